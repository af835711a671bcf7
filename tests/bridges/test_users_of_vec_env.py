"""Libraries that stand on SB3's VecEnv train through jaxvec's classes, unmodified, as through SB3's own.

Each trains twice with one seed: the parameters are equal to the last bit, so it saw the same numbers.
"""

import argparse
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

import jaxvec.vec as jv
from tests.vec.host_envs import CountEnv

sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
STEPS = 2000
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # the libraries' own warnings


def cart_pole():
    return gym.make("CartPole-v1")


def pendulum():
    return gym.make("Pendulum-v1")


class Masked(CountEnv):
    """The action that the step counter allows earns a reward; the other is masked, and forbidden."""

    def action_masks(self):
        return np.array([self.steps % 2 == 0, self.steps % 2 == 1])

    def step(self, action):
        assert self.action_masks()[int(action)], "a masked action was taken"
        return super().step(action)


def layers(lib, venv):
    """Returns what users put around a VecEnv."""
    return lib.VecNormalize(lib.VecMonitor(venv))


def torch_numbers(model):
    """Returns a model's parameters, those of every network, as one array."""
    return np.concatenate([each.cpu().numpy().ravel() for each in _tensors(model.get_parameters())])


def _tensors(tree):
    if isinstance(tree, dict):
        for key in sorted(tree, key=str):
            yield from _tensors(tree[key])
    elif hasattr(tree, "cpu"):
        yield tree.detach()


def assert_same_training(train, numbers=torch_numbers):
    """Asserts that training through SB3's classes and through jaxvec's gives the same parameters."""
    theirs, ours = (numbers(train(lib)) for lib in (sb3, jv))
    assert theirs.size > 100
    np.testing.assert_array_equal(ours, theirs)


def test_maskable_ppo_gets_action_masks_through_subproc_vec_env():
    contrib = pytest.importorskip("sb3_contrib")

    def train(lib):
        with_masks = lib.SubprocVecEnv([partial(Masked, 7)] * 4)
        venv = layers(lib, with_masks)
        model = contrib.MaskablePPO("MlpPolicy", venv, n_steps=64, seed=3, device="cpu")
        model.learn(STEPS)
        venv.close()
        return model

    assert_same_training(train)


def test_recurrent_ppo_trains():
    contrib = pytest.importorskip("sb3_contrib")

    def train(lib):
        venv = layers(lib, lib.SubprocVecEnv([cart_pole] * 4))
        model = contrib.RecurrentPPO("MlpLstmPolicy", venv, n_steps=64, seed=3, device="cpu")
        model.learn(STEPS)
        venv.close()
        return model

    assert_same_training(train)


@pytest.mark.parametrize("algorithm", ["PPO", "SAC"])
def test_sbx_trains(algorithm):
    sbx = pytest.importorskip("sbx")
    jax = pytest.importorskip("jax")
    kind = getattr(sbx, algorithm)
    on_policy = algorithm == "PPO"
    options = {"n_steps": 64} if on_policy else {"learning_starts": 100, "train_freq": 4}

    def train(lib):
        venv = layers(lib, lib.DummyVecEnv([cart_pole if on_policy else pendulum] * 4))
        model = kind("MlpPolicy", venv, seed=3, **options)
        model.learn(STEPS)
        return model

    def numbers(model):
        policy = model.policy
        state = (policy.actor_state, policy.vf_state if on_policy else policy.qf_state)
        leaves = jax.tree.leaves([each.params for each in state])
        return np.concatenate([np.ravel(leaf) for leaf in leaves])

    assert_same_training(train, numbers)


@pytest.mark.parametrize("name", ["DummyVecEnv", "SubprocVecEnv"])
def test_rl_zoo3_trains_evaluates_and_saves_statistics(tmp_path, name):
    manager = pytest.importorskip("rl_zoo3.exp_manager")

    def train(lib):
        class Manager(manager.ExperimentManager):
            default_vec_env_cls = getattr(lib, name)

        folder = tmp_path / lib.__name__
        experiment = Manager(
            *(argparse.Namespace(), "ppo", "MountainCar-v0", str(folder)),
            n_timesteps=STEPS,
            eval_freq=1000,
            n_eval_episodes=1,
            save_freq=1000,
            log_interval=-1,  # its command's default
            seed=3,
            verbose=0,
            device="cpu",
        )
        model, _ = experiment.setup_experiment()
        assert isinstance(model.get_env().unwrapped, getattr(lib, name))
        experiment.learn(model)
        experiment.save_trained_model(model)
        (statistics,) = folder.rglob("vecnormalize.pkl")
        assert sb3.VecNormalize.load(str(statistics), sb3.DummyVecEnv([_mountain_car])).training
        assert list(folder.rglob("0.monitor.csv"))
        assert list(folder.rglob("evaluations.npz"))
        return model

    assert_same_training(train)


def _mountain_car():
    return gym.make("MountainCar-v0")


def test_rl_zoo3_wraps_jaxvecs_layers_by_their_names(tmp_path):
    manager = pytest.importorskip("rl_zoo3.exp_manager")
    experiment = manager.ExperimentManager(
        *(argparse.Namespace(), "a2c", "CartPole-v1", str(tmp_path)),
        n_timesteps=STEPS,
        hyperparams={"vec_env_wrapper": [{"jaxvec.vec.VecFrameStack": {"n_stack": 3}}]},
        log_interval=-1,
        seed=3,
        verbose=0,
        device="cpu",
    )
    model, _ = experiment.setup_experiment()
    assert isinstance(model.get_env(), jv.VecFrameStack)
    assert model.observation_space.shape == (12,)
    experiment.learn(model)
    assert model.num_timesteps >= STEPS


def test_imitation_collects_demonstrations_and_trains_against_them(tmp_path):
    rollout = pytest.importorskip("imitation.data.rollout")
    gail = pytest.importorskip("imitation.algorithms.adversarial.gail")
    from imitation.data.wrappers import RolloutInfoWrapper
    from imitation.rewards.reward_nets import BasicRewardNet
    from stable_baselines3 import PPO

    def train(lib):
        import torch

        torch.manual_seed(3)
        env_fns = [lambda: RolloutInfoWrapper(pendulum())] * 4
        venv = lib.SubprocVecEnv(env_fns)
        venv.seed(3)
        expert = PPO("MlpPolicy", venv, n_steps=64, seed=3, device="cpu")
        shown = rollout.rollout(
            expert,
            venv,
            rollout.make_sample_until(min_episodes=8),
            rng=np.random.default_rng(3),
        )
        # It takes them from the infos, where RolloutInfoWrapper puts them at an episode's end.
        assert [each.obs.shape for each in shown] == [(201, 3)] * 8
        learner = PPO("MlpPolicy", venv, n_steps=64, seed=3, device="cpu")
        trainer = gail.GAIL(
            demonstrations=shown,
            demo_batch_size=64,
            venv=venv,
            gen_algo=learner,
            reward_net=BasicRewardNet(venv.observation_space, venv.action_space),
            log_dir=str(tmp_path / lib.__name__),
        )
        trainer.train(STEPS)
        venv.close()
        return learner

    assert_same_training(train)
