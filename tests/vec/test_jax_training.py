"""Stable-Baselines3 trains on compiled environments: returns that it reaches, callbacks, saved models.

The tests that learn until an environment is solved are marked `long`.
"""

import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy

from jaxvec.vec import VecFrameStack, VecMonitor, VecNormalize, load_results, make_vec_env


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small are slower on several threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def linear(start):
    """Falls from `start` to 0 while learning goes on."""
    return lambda remaining: start * remaining


# What rl-baselines3-zoo's hyperparams/ppo.yml and sac.yml have for these environments.
PPO_CART_POLE = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": linear(0.001),
    "clip_range": linear(0.2),
}
SAC_PENDULUM = {"learning_rate": 1e-3}


def greedy_return(model, env_id):
    """Returns the mean return of 20 episodes in which the model does what it thinks best."""
    venv = make_vec_env(env_id, 20, seed=10_000, backend="jax")
    mean, _ = evaluate_policy(model, venv, n_eval_episodes=20, deterministic=True)
    return mean


def small_ppo(venv, **options):
    options = {"n_steps": 16, "batch_size": 32, "n_epochs": 1, "seed": 0, "device": "cpu"} | options
    return PPO("MlpPolicy", venv, **options)


def test_an_evaluation_syncs_the_statistics_and_finds_true_returns(tmp_path):
    def normalized(n_envs, **options):
        return VecNormalize(make_vec_env("CartPole-v1", n_envs, seed=1, backend="jax"), **options)

    venv, test_venv = normalized(4), normalized(3, training=False, norm_reward=False)
    evaluation = EvalCallback(
        test_venv, n_eval_episodes=6, eval_freq=32, log_path=tmp_path, best_model_save_path=tmp_path
    )
    model = small_ppo(venv)
    model.learn(256, callback=evaluation)  # a warning would be an error
    assert model.get_vec_normalize_env() is venv
    saved = np.load(tmp_path / "evaluations.npz")
    assert saved["timesteps"].tolist() == [128, 256]
    np.testing.assert_array_equal(saved["results"], saved["ep_lengths"])  # 1 a step: not normalized
    assert (tmp_path / "best_model.zip").exists()
    # The last evaluation synced them, and nothing was learned from the environments after it.
    np.testing.assert_array_equal(test_venv.obs_rms.mean, venv.obs_rms.mean)
    assert test_venv.obs_rms.count == venv.obs_rms.count == pytest.approx(4 * 65, abs=1e-3)
    assert test_venv.ret_rms.var == venv.ret_rms.var


def test_a_checkpoint_goes_on_over_another_number_of_environments(tmp_path):
    venv = VecNormalize(make_vec_env("CartPole-v1", 4, seed=1, backend="jax"))
    checkpoint = CheckpointCallback(
        save_freq=32, save_path=tmp_path, name_prefix="ppo", save_vecnormalize=True
    )
    model = small_ppo(venv)
    model.learn(128, callback=checkpoint)
    other = make_vec_env("CartPole-v1", 2, seed=2, backend="jax")
    loaded = VecNormalize.load(tmp_path / "ppo_vecnormalize_128_steps.pkl", other)
    assert loaded.obs_rms.count == venv.obs_rms.count
    assert PPO.load(tmp_path / "ppo_128_steps.zip", device="cpu").num_timesteps == 128
    model.save(tmp_path / "model")
    again = PPO.load(tmp_path / "model", env=loaded, device="cpu", n_envs=2)
    for key, value in model.policy.state_dict().items():
        assert torch.equal(value, again.policy.state_dict()[key])
    obs = loaded.reset()
    assert (
        again.predict(obs, deterministic=True)[0] == model.predict(obs, deterministic=True)[0]
    ).all()
    again.learn(64, reset_num_timesteps=False)
    assert again.num_timesteps == 192
    assert loaded.obs_rms.count > venv.obs_rms.count


def test_a_learner_sees_stacks_and_logs_true_returns(tmp_path):
    base = make_vec_env("CartPole-v1", 4, seed=0, monitor_dir=tmp_path, backend="jax")
    venv = VecFrameStack(VecNormalize(base), 3)
    model = A2C("MlpPolicy", venv, n_steps=8, seed=0, device="cpu")
    assert model.get_env() is venv
    assert model.observation_space.shape == (12,)
    assert model.get_vec_normalize_env() is venv.venv
    model.learn(640)
    logged = load_results(tmp_path)
    assert logged["r"].tolist() == logged["l"].tolist()
    assert [each["r"] for each in model.ep_info_buffer] == logged["r"].tolist()[-100:]
    assert isinstance(base, VecMonitor)
    venv.close()


def test_truncated_episodes_are_continued_by_the_value_of_their_last_observation():
    """Pendulum only ever truncates: SB3 finds the flag and the observation, and adds to the reward."""
    venv = make_vec_env(
        "Pendulum-v1", 2, seed=0, env_kwargs={"max_episode_steps": 5}, backend="jax"
    )
    model = small_ppo(venv, n_steps=5, batch_size=10, gamma=0.5)
    asked = []
    original = model.policy.predict_values

    def asking(obs):
        asked.append(obs.shape)
        return original(obs)

    model.policy.predict_values = asking
    model.learn(10)
    # Two episodes ended in the fifth step, one observation each; then the two rows at the rollout's end.
    assert asked == [(1, 3), (1, 3), (2, 3)]


@pytest.mark.long
def test_ppo_solves_cart_pole_in_a_hundred_thousand_steps():
    returns = []
    for seed in range(3):
        venv = make_vec_env("CartPole-v1", 16, seed=seed, backend="jax")
        model = PPO("MlpPolicy", venv, **PPO_CART_POLE, seed=seed, device="cpu")
        assert model.get_env() is venv
        model.learn(100_000)
        returns.append(greedy_return(model, "CartPole-v1"))
    print("PPO, CartPole-v1:", returns)
    assert sum(each >= 475 for each in returns) >= 2, returns


@pytest.mark.long
def test_sac_solves_pendulum_in_twenty_thousand_steps():
    venv = make_vec_env("Pendulum-v1", 1, seed=0, backend="jax")
    model = SAC("MlpPolicy", venv, **SAC_PENDULUM, seed=0, device="cpu")
    model.learn(20_000)
    reached = greedy_return(model, "Pendulum-v1")
    print("SAC, Pendulum-v1:", reached)
    assert reached >= -250
