"""A user's program with Stable-Baselines3, for type checkers (`tests/test_types.py`). It runs, too."""

import tempfile
from pathlib import Path
from typing import Any, assert_type

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv as DummyVecEnvOfSB3
from stable_baselines3.common.vec_env import VecEnv as VecEnvOfSB3

import jaxvec
from jaxvec import VecFrameStack, VecMonitor, VecNormalize, make_vec_env
from jaxvec.vec import HostVecEnv, JaxVecEnv


class Doubled(jaxvec.VecEnvWrapper):
    """A wrapper of one's own, in SB3's style."""

    def reset(self) -> Any:
        return 2 * self.venv.reset()

    def step_wait(self) -> Any:
        obs, rewards, dones, infos = self.venv.step_wait()
        return 2 * obs, rewards, dones, infos


def cartpole() -> gym.Env[Any, Any]:
    return gym.make("CartPole-v1")


def train(venv: VecEnvOfSB3) -> PPO:
    return PPO("MlpPolicy", venv, n_steps=8, batch_size=16, n_epochs=1, device="cpu").learn(32)


classic = make_vec_env("CartPole-v1", 2, seed=0, backend="dummy")
assert_type(classic, HostVecEnv)
compiled = make_vec_env("CartPole-v1", 2, seed=0, backend="jax")
assert_type(compiled, VecMonitor)
chosen = make_vec_env("CartPole-v1", 2, vec_env_cls=jaxvec.DummyVecEnv)
assert_type(chosen, jaxvec.DummyVecEnv)
theirs = make_vec_env("CartPole-v1", 2, vec_env_cls=DummyVecEnvOfSB3)
assert_type(theirs, DummyVecEnvOfSB3)
batch = JaxVecEnv(jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), 2))

for venv in (classic, compiled, chosen, theirs, batch, jaxvec.DummyVecEnv([cartpole] * 2)):
    train(venv)
    train(Doubled(VecFrameStack(venv, 2)))

normalized = VecNormalize(make_vec_env("CartPole-v1", 2, seed=0, backend="jax"))
model = PPO("MlpPolicy", normalized, n_steps=8, batch_size=16, n_epochs=1, device="cpu")
model.learn(32, callback=EvalCallback(VecNormalize(compiled), n_eval_episodes=1, eval_freq=8))
with tempfile.TemporaryDirectory() as folder:
    normalized.save(Path(folder) / "statistics.npz")
    test = VecNormalize.load(Path(folder) / "statistics.npz", make_vec_env("CartPole-v1", 2))
assert_type(test, VecNormalize)
test.training = test.norm_reward = False
mean, _ = evaluate_policy(model, test, 1)
assert_type(jaxvec.unwrap_vec_normalize(test), VecNormalize | None)
assert_type(jaxvec.unwrap_vec_wrapper(compiled, VecMonitor), VecMonitor | None)
obs, rewards, dones, infos = test.step([0, 1])
print(mean, rewards.mean(), [info["TimeLimit.truncated"] for info in infos])

# Each of these is a mistake: strict mypy would say if one of them passed.
mistakes = False
if mistakes:
    PPO("MlpPolicy", test.obs_rms and 1)  # type: ignore[arg-type]
    PPO("MlpPolicy", compiled.num_envs)  # type: ignore[arg-type]
    chosen.no_such_method()  # type: ignore[attr-defined]
    make_vec_env("CartPole-v1", 2, backend="gpu")  # type: ignore[call-overload]
    VecNormalize(classic, clip_obs="10")  # type: ignore[arg-type]
    number: int = compiled  # type: ignore[assignment]
