"""JaxVecEnv at its edges: what is read before a step, switched between steps, copied, closed, handed out."""

import copy
import pickle

import cloudpickle
import jax
import numpy as np
import pytest
import stable_baselines3.common.vec_env as sb3
from gymnasium import spaces

from jaxvec import vectorize
from jaxvec.envs import make
from jaxvec.errors import ClosedError, NotPendingError
from jaxvec.vec import (
    DummyVecEnv,
    JaxVecEnv,
    RunningMeanStd,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    make_vec_env,
)
from jaxvec.vec._infos import Infos
from tests.envs.toys import TERMINATE
from tests.vec.jax_envs import SPACES, counter, draws, random_actions, twins

N = 3


@pytest.fixture(scope="module")
def cart_poles():
    return vectorize(make("CartPole-v1"), N)


# Statistics


def test_before_the_first_step_the_original_rewards_are_zeros(cart_poles):
    venv = VecNormalize(JaxVecEnv(cart_poles))
    assert venv.get_original_reward().tolist() == [0] * N
    venv.reset()
    assert venv.get_original_reward().tolist() == [0] * N
    venv.step([0] * N)
    assert venv.get_original_reward().tolist() == [1] * N


def test_what_is_assigned_to_obs_rms_is_copied(cart_poles):
    venv = VecNormalize(JaxVecEnv(cart_poles))
    venv.reset()
    given = RunningMeanStd(shape=(4,))
    given.mean = np.full(4, 2.0)
    given.count = 50.0
    venv.obs_rms = given
    assert venv.obs_rms is not given
    given.mean[:] = 9
    assert venv.obs_rms.mean.tolist() == [2] * 4
    venv.step([0] * N)
    assert venv.obs_rms.count == 50 + N
    assert given.count == 50
    theirs = sb3.VecNormalize(sb3.DummyVecEnv(twins(make("CartPole-v1"), 1)))
    theirs.obs_rms.mean = np.full(4, 5.0)
    venv.obs_rms = theirs.obs_rms  # SB3's own kind
    assert venv.obs_rms.mean.tolist() == [5] * 4


def test_whole_numbers_of_64_bits_pass_a_normalization_of_rewards_alone():
    venv = VecNormalize(JaxVecEnv(vectorize(draws(spaces.Discrete(5)), N)), norm_obs=False)
    assert venv.reset().dtype == np.int64
    obs = venv.step([0] * N)[0]
    np.testing.assert_array_equal(venv.get_original_obs(), obs)
    assert venv.get_original_obs().dtype == np.int64


@pytest.mark.parametrize("kind", ["jax", "dummy"])
def test_the_normalization_of_observations_may_be_switched_off_and_on_again(cart_poles, kind):
    base = JaxVecEnv(cart_poles) if kind == "jax" else DummyVecEnv(twins(make("CartPole-v1"), N))
    venv = VecNormalize(base, clip_obs=5.0)
    venv.reset()
    venv.step([0] * N)
    counted = venv.obs_rms.count
    venv.norm_obs = False
    obs = venv.step([0] * N)[0]
    np.testing.assert_array_equal(obs, venv.get_original_obs())
    assert venv.obs_rms.count == counted
    venv.norm_obs = True
    obs = venv.step([0] * N)[0]
    np.testing.assert_allclose(obs, venv.normalize_obs(venv.get_original_obs()), atol=2e-6)
    assert venv.obs_rms.count == counted + N
    never = VecNormalize(base, norm_obs=False)
    never.reset()
    never.norm_obs = True
    with pytest.raises(ValueError, match="switched on"):
        never.step([0] * N)


def test_the_stacks_that_are_shown_are_those_of_the_last_step(cart_poles):
    venv = VecFrameStack(JaxVecEnv(cart_poles), 2)
    np.testing.assert_array_equal(venv.reset(), venv.stacked_obs.stacked_obs)
    for actions in random_actions(venv.action_space, 4, N):
        obs = venv.step(actions)[0]
        np.testing.assert_array_equal(venv.stacked_obs.stacked_obs, obs)
    venv.stacked_obs.stacked_obs[:] = 0  # a copy
    np.testing.assert_array_equal(venv.stacked_obs.stacked_obs, obs)


# Layers


class Doubled(sb3.VecEnvWrapper):
    """A user's wrapper that inherits from SB3's."""

    def reset(self):
        return self.venv.reset() * 2

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        for row in np.flatnonzero(dones):
            infos[row]["terminal_observation"] = infos[row]["terminal_observation"] * 2
        return obs * 2, rewards, dones, infos


def test_a_wrapper_of_sb3s_may_stand_between_two_of_jaxvecs(cart_poles):
    def stacked(venv):
        return VecFrameStack(Doubled(VecMonitor(venv)), 2)

    ours, theirs = (
        stacked(JaxVecEnv(cart_poles)),
        stacked(DummyVecEnv(twins(make("CartPole-v1"), N))),
    )
    theirs.seed(0)
    np.testing.assert_allclose(ours.reset(), theirs.reset(), atol=1e-6)
    ended = 0
    for actions in random_actions(ours.action_space, 60, N):
        (obs, rewards, dones, infos), expected = ours.step(actions), theirs.step(actions)
        np.testing.assert_allclose(obs, expected[0], atol=2e-6)
        np.testing.assert_array_equal(rewards, expected[1])
        np.testing.assert_array_equal(dones, expected[2])
        for row in np.flatnonzero(dones):
            final = expected[3][row]["terminal_observation"]
            np.testing.assert_allclose(infos[row]["terminal_observation"], final, atol=2e-6)
            assert infos[row]["episode"]["l"] == expected[3][row]["episode"]["l"]
            ended += 1
    assert ended


def test_sb3s_wrappers_take_it_for_a_vec_env(cart_poles):
    venv = sb3.VecFrameStack(sb3.VecNormalize(sb3.VecMonitor(JaxVecEnv(cart_poles))), 2)
    assert venv.reset().shape == (N, 8)
    for actions in random_actions(venv.action_space, 60, N):
        _, _, dones, infos = venv.step(actions)
        for row in np.flatnonzero(dones):
            assert infos[row]["terminal_observation"].shape == (8,)
            assert infos[row]["episode"]["l"] >= 8


def test_the_render_mode_is_an_attribute_of_every_row(cart_poles):
    assert JaxVecEnv(cart_poles).get_attr("render_mode") == [None] * N
    pytest.importorskip("pygame")
    venv = VecNormalize(JaxVecEnv(cart_poles, render_mode="rgb_array"))
    assert venv.get_attr("render_mode", [0, 2]) == ["rgb_array"] * 2
    assert venv.render_mode == "rgb_array"


# Infos


def test_no_dict_is_built_for_a_row_that_nobody_reads(cart_poles, monkeypatch):
    built = []
    original = Infos._built

    def counting(infos, index):
        built.append(index)
        return original(infos, index)

    monkeypatch.setattr(Infos, "_built", counting)
    venv = VecFrameStack(VecNormalize(VecMonitor(JaxVecEnv(cart_poles))), 2)
    venv.reset()
    ended = 0
    for actions in random_actions(venv.action_space, 60, N):
        _, _, dones, infos = venv.step(actions)
        assert len(infos) == N
        ended += dones.sum()
    assert ended > 3  # the monitor has seen these, without a dict
    assert venv.venv.venv.episode_count == ended
    assert built == []
    assert infos[1] is infos[1]
    assert built == [1]


# What is handed out


def buffers_of(venv):
    """Returns where the arrays lie that the last step has shown."""
    return [each.unsafe_buffer_pointer() for each in venv._latest[1]._every]


@pytest.mark.parametrize("output", ["jax", "torch"])
def test_arrays_of_the_device_are_handed_out_without_a_copy(cart_poles, output):
    if output == "torch":
        pytest.importorskip("torch")
    venv = JaxVecEnv(cart_poles, output=output)
    venv.reset()
    given = venv.step(np.zeros(N, int))[:3]
    places = [
        each.data_ptr() if output == "torch" else each.unsafe_buffer_pointer() for each in given
    ]
    assert places == buffers_of(venv)


@pytest.mark.parametrize("output", ["jax", "torch"])
def test_arrays_of_the_device_stay_as_they_are_when_steps_follow(cart_poles, output):
    if output == "torch":
        pytest.importorskip("torch")
    venv = VecFrameStack(VecNormalize(JaxVecEnv(cart_poles, output=output)), 2)
    venv.reset()
    kept = [venv.step(each)[:3] for each in random_actions(venv.action_space, 20, N)]
    copies = [[np.asarray(part).copy() for part in each] for each in kept]
    for each in random_actions(venv.action_space, 20, N):
        venv.step(each)
    for each, copied in zip(kept, copies, strict=True):
        for part, same in zip(each, copied, strict=True):
            np.testing.assert_array_equal(np.asarray(part), same)


def test_an_observation_of_several_parts_is_handed_out_as_jax_arrays():
    venv = JaxVecEnv(vectorize(draws(SPACES["dict"]), N), output="jax")
    for obs in (venv.reset(), venv.step([0] * N)[0]):
        assert list(obs) == list(SPACES["dict"])
        assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(obs))


# Its life


def test_it_can_be_neither_pickled_nor_copied_and_says_what_to_do(cart_poles):
    venv = JaxVecEnv(cart_poles)
    for copied in (pickle.dumps, cloudpickle.dumps, copy.deepcopy, copy.copy):
        with pytest.raises(TypeError, match=r"JaxVecEnv: .*neither pickled.*VecNormalize\.save"):
            copied(venv)
    with pytest.raises(TypeError, match="neither pickled"):
        cloudpickle.dumps(VecFrameStack(venv, 2))


def test_what_is_closed_says_so_whatever_is_asked_of_it(cart_poles):
    venv = VecFrameStack(VecNormalize(VecMonitor(JaxVecEnv(cart_poles))), 2)
    venv.reset()
    venv.step_async([0] * N)
    venv.close()
    venv.close()
    base = venv.unwrapped
    uses = (
        venv.reset,
        base.reset,
        lambda: venv.step([0] * N),
        lambda: base.step_async([0] * N),
        lambda: base.get_attr("gravity"),
        lambda: base.set_attr("gravity", 1.0),
        lambda: base.env_method("jump"),
    )
    for use in uses:
        with pytest.raises(ClosedError, match="closed"):
            use()
    with pytest.raises(NotPendingError):
        venv.step_wait()
    assert base.num_envs == N
    assert base.seed(3) == [3, 4, 5]


def test_closed_before_its_first_reset_it_is_closed(cart_poles):
    with JaxVecEnv(cart_poles) as venv:
        pass
    with pytest.raises(ClosedError):
        venv.reset()


def test_layers_refuse_what_their_base_refuses_and_go_on():
    venv = VecFrameStack(VecMonitor(JaxVecEnv(vectorize(counter(), N))), 2)
    with pytest.raises(RuntimeError, match="call reset"):
        venv.step([0] * N)
    venv.reset()
    with pytest.raises(NotPendingError):
        venv.step_wait()
    with pytest.raises(ValueError, match="4 for environment 1"):
        venv.step([0, 4, 0])
    with pytest.raises(TypeError, match="float64"):
        venv.step(np.zeros(N))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        venv.step([0, 0])
    assert venv.step([0, TERMINATE, 0])[2].tolist() == [False, True, False]
    assert venv.venv.episode_lengths.tolist() == [1, 0, 1]


def test_it_names_its_environment(tmp_path, cart_poles):
    venv = VecMonitor(JaxVecEnv(cart_poles), str(tmp_path / "log"))
    venv.close()
    assert '"env_id": "CartPole-v1"' in (tmp_path / "log.monitor.csv").read_text()
    spec = make_vec_env("CartPole-v1", backend="jax").unwrapped.spec
    assert (spec.id, spec.max_episode_steps) == ("CartPole-v1", 500)
    assert JaxVecEnv(vectorize(counter()._replace(metadata={}), 1)).spec is None
    odd = counter()._replace(metadata={"name": "no name / of its own"})
    assert JaxVecEnv(vectorize(odd, 1)).spec is None


def test_two_layers_over_one_base_may_take_turns_with_a_wrapper_between():
    class Shifted(VecEnvWrapper):
        def reset(self):
            return self.venv.reset() + 1

        def step_wait(self):
            obs, *rest = self.venv.step_wait()
            return obs + 1, *rest

    base = JaxVecEnv(vectorize(counter(), N))
    left, right = VecMonitor(base), VecMonitor(Shifted(base))
    left.reset()
    assert left.step([0] * N)[0][:, 0].tolist() == [1] * N
    assert right.step([0] * N)[0][:, 0].tolist() == [3] * N
    _, _, dones, infos = left.step([0] * N)
    assert dones.all()
    assert [info["episode"]["l"] for info in infos] == [2] * N  # it saw two of the three
    assert right.episode_lengths.tolist() == [1] * N
