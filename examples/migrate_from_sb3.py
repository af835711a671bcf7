"""From Stable-Baselines3's VecEnvs to jaxvec's: the import changes, the numbers do not.

    python examples/migrate_from_sb3.py

    - from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack, VecNormalize
    + from jaxvec.vec import SubprocVecEnv, VecFrameStack, VecNormalize

The same program runs with both libraries here, and everything that it yields is compared, to the last bit.
Files go both ways: `VecNormalize.load` of either reads what the other saved under a name in `.pkl`.
"""

import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

import jaxvec

N, STEPS = 3, 120


def program(library: ModuleType) -> tuple[list[Any], Any]:
    """Steps three CartPoles by actions of their own, under three wrappers; returns all that came out."""
    venv = library.DummyVecEnv([lambda: gym.make("CartPole-v1")] * N)
    venv = library.VecMonitor(venv)
    venv = library.VecFrameStack(venv, n_stack=2)
    venv = library.VecNormalize(venv, gamma=0.95)
    venv.seed(7)
    seen: list[Any] = [venv.reset()]
    for step in range(STEPS):
        obs, reward, done, infos = venv.step(np.array([(step + i) // 4 % 2 for i in range(N)]))
        ends = [info["terminal_observation"] for info in infos if "terminal_observation" in info]
        episodes = [
            (info["episode"]["r"], info["episode"]["l"]) for info in infos if "episode" in info
        ]
        seen.append((obs, reward, done, ends, episodes))
    return seen, venv


def train(library: ModuleType) -> dict[str, Any]:
    """Returns the weights after a short training of SB3's PPO."""
    from stable_baselines3 import PPO

    venv = library.VecNormalize(library.DummyVecEnv([lambda: gym.make("CartPole-v1")] * N))
    model = PPO("MlpPolicy", venv, n_steps=32, batch_size=48, n_epochs=2, seed=1, device="cpu")
    return model.learn(2 * 32 * N).policy.state_dict()


def main() -> None:
    """Compares."""
    if find_spec("stable_baselines3") is None:
        print("This example needs Stable-Baselines3: pip install 'jaxvec[sb3]'")
        return
    import torch
    from stable_baselines3.common import vec_env as theirs

    import jaxvec.vec as ours

    torch.set_num_threads(1)
    (seen_there, there), (seen_here, here) = program(theirs), program(ours)
    np.testing.assert_equal(seen_here, seen_there)
    np.testing.assert_equal(here.obs_rms.var, there.obs_rms.var)
    episodes = sum(len(step[-1]) for step in seen_here[1:])
    assert episodes > 5
    assert isinstance(here, theirs.VecNormalize)  # SB3 takes jaxvec's for its own
    print(f"{N * STEPS} steps, {episodes} episodes: observations, rewards and infos are equal")

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "vecnormalize.pkl"
        there.save(str(file))
        loaded = jaxvec.VecNormalize.load(file, here.venv)  # and runs nothing that the pickle says
        np.testing.assert_equal(loaded.ret_rms.mean, there.ret_rms.mean)
        here.save(str(file))
        statistics = theirs.VecNormalize.load(str(file), there.venv).obs_rms
        assert not isinstance(statistics, dict)  # of a Dict's parts there would be several
        np.testing.assert_equal(statistics.mean, there.obs_rms.mean)
    print("each reads what the other has saved")

    weights_there, weights_here = train(theirs), train(ours)
    assert all(torch.equal(weights_here[name], weights_there[name]) for name in weights_there)
    print("PPO learns the same weights")


if __name__ == "__main__":
    main()
