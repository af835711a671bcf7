"""Faults that SB3's own test suite lets pass: each planted once, each caught here or where the table says."""

import numpy as np
import pytest

import jaxvec.vec as jv
from tests.vec.host_envs import CountEnv


def normalized(**options):
    return jv.VecNormalize(jv.DummyVecEnv([CountEnv] * 2), gamma=0.5, **options)


@pytest.mark.parametrize("indices", [None, 1])
def test_a_reset_begins_the_discounted_returns_of_its_rows_anew(indices):
    venv = normalized()
    venv.reset()
    venv.step([0, 0])
    venv.step([0, 0])
    assert venv.returns.tolist() == [1.5, 1.5]
    venv.reset() if indices is None else venv.reset(indices)
    assert venv.returns.tolist() == ([0, 0] if indices is None else [1.5, 0])
    venv.step([0, 0])
    assert venv.returns[1] == 1


def test_a_reset_leaves_the_statistics_of_rewards_alone():
    venv = normalized()
    venv.reset()
    venv.step([0, 0])
    mean, var, count = venv.ret_rms.mean, venv.ret_rms.var, venv.ret_rms.count
    venv.reset()
    assert (venv.ret_rms.mean, venv.ret_rms.var, venv.ret_rms.count) == (mean, var, count)


@pytest.mark.parametrize("training", [True, False])
def test_only_training_statistics_learn(training):
    venv = normalized(training=training)
    venv.reset()
    for _ in range(4):
        venv.step([0, 0])
    assert (venv.obs_rms.count > 1) == training
    assert (venv.ret_rms.count > 1) == training
    assert venv.returns.any() == training


def test_running_episodes_of_vec_monitor_begin_anew_at_a_reset():
    venv = jv.VecMonitor(jv.DummyVecEnv([CountEnv] * 2))
    venv.reset()
    venv.step([0, 0])
    venv.reset()
    for _ in range(3):
        *_, infos = venv.step([0, 0])
    assert [info["episode"]["l"] for info in infos] == [3, 3]
    assert [float(info["episode"]["r"]) for info in infos] == [3, 3]


def test_a_terminal_observation_is_normalized_as_any_other():
    venv = normalized(training=False, epsilon=0.0, clip_obs=100.0)
    venv.obs_rms.mean, venv.obs_rms.var = np.ones(2), np.full(2, 4.0)
    venv.reset()
    for _ in range(3):
        obs, *_, infos = venv.step([0, 0])
    assert infos[0]["terminal_observation"].tolist() == [1, 1]  # (3 - 1) / 2
    assert infos[0]["terminal_observation"].dtype == np.float32
    assert obs.tolist() == [[-0.5, -0.5]] * 2


def test_a_stack_that_is_reset_shows_no_older_frame():
    venv = jv.VecFrameStack(jv.DummyVecEnv([CountEnv] * 2), 2)
    venv.reset()
    venv.step([0, 0])
    venv.step([0, 0])
    assert venv.reset().tolist() == [[0, 0, 0, 0]] * 2
    assert venv.step([0, 0])[0].tolist() == [[0, 0, 1, 1]] * 2
    stacked = venv.observation_space
    assert stacked.low.tolist() == [-1000] * 4
    assert stacked.high.tolist() == [1000] * 4
