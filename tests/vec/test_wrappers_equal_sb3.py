"""jaxvec's wrappers against Stable-Baselines3's over the same environments: equal to the last bit."""

import copy
import functools
import warnings

import numpy as np
import pytest
import stable_baselines3.common.vec_env as sb3
from gymnasium import spaces

import jaxvec.vec as jv
from tests.vec.host_envs import CountEnv, SpaceEnv, actions_for, assert_same

STEPS = 600

BOX = spaces.Box(-1, 1, (5,), np.float32)
BOX64 = spaces.Box(-1, 1, (2, 3), np.float64)
BYTES = spaces.Box(0, 255, (6, 5, 3), np.uint8)
CHANNELS_FIRST = spaces.Box(0, 255, (3, 6, 5), np.uint8)
DICT = spaces.Dict({"image": BYTES, "speed": spaces.Box(-1, 1, (2,), np.float32)})
MIXED = spaces.Dict({"kind": spaces.Discrete(4), "speed": spaces.Box(-1, 1, (2,), np.float32)})


class Eighths(SpaceEnv):
    """Rewards are multiples of 1/8: their float32 sums, which SB3 takes, are exact."""

    def __init__(self, space):
        super().__init__(copy.deepcopy(space))  # SB3's VecNormalize writes into it
        self.drawn_from = copy.deepcopy(space)

    def _observe(self):
        self.drawn_from.seed(int(self.np_random.integers(2**31)))
        return self.drawn_from.sample()

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, np.round(reward * 8) / 8, terminated, truncated, info


def monitor_stack_normalize(lib, base):
    return lib.VecNormalize(lib.VecFrameStack(lib.VecMonitor(base), 4))


def normalize_stack(lib, base):
    return lib.VecFrameStack(lib.VecNormalize(base, gamma=0.9, clip_obs=1.5), 3)


def speed_only(lib, base):
    return lib.VecNormalize(base, norm_obs_keys=["speed"], norm_reward=False, epsilon=0.5)


def rewards_only(lib, base):
    return lib.VecNormalize(base, norm_obs=False, clip_reward=0.5)


def transposed(lib, base):
    return lib.VecFrameStack(lib.VecTransposeImage(base), 2)


def extracted(lib, base):
    return lib.VecFrameStack(lib.VecExtractDictObs(lib.VecNormalize(base), "image"), 2)


def checked(lib, base):
    return lib.VecCheckNan(lib.VecFrameStack(base, 2, channels_order="first"), raise_exception=True)


STACKS = {
    "monitor, stack, normalize": (BOX, monitor_stack_normalize),
    "monitor, stack, normalize images": (BYTES, monitor_stack_normalize),
    "monitor, stack, normalize channels first": (CHANNELS_FIRST, monitor_stack_normalize),
    "monitor, stack, normalize dict": (DICT, monitor_stack_normalize),
    "normalize, stack": (BOX, normalize_stack),
    "normalize, stack float64": (BOX64, normalize_stack),
    "normalize, stack images": (BYTES, normalize_stack),
    "normalize one key": (MIXED, speed_only),
    "normalize rewards": (spaces.Discrete(5), rewards_only),
    "transpose, stack": (BYTES, transposed),
    "transpose dict, stack": (DICT, transposed),
    "normalize, extract, stack": (DICT, extracted),
    "check, stack first": (BOX64, checked),
}
BASES = {"jaxvec": jv.DummyVecEnv, "sb3": sb3.DummyVecEnv}


def assert_same_infos(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert set(one) == set(other)
        for key in other:
            if key == "terminal_observation":
                assert_same(one[key], other[key])
            elif key == "episode":
                assert {k: one[key][k] for k in "rl"} == {k: other[key][k] for k in "rl"}
                assert set(one[key]) == set(other[key])
                for k in "rlt":
                    assert isinstance(one[key][k], type(other[key][k]))
            else:
                np.testing.assert_array_equal(one[key], other[key])


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", STACKS)
def test_a_stack_of_wrappers_equals_sb3s_over_600_steps(name, base):
    space, stack = STACKS[name]
    make = functools.partial(Eighths, space)
    ours, theirs = stack(jv, BASES[base]([make] * 3)), stack(sb3, sb3.DummyVecEnv([make] * 3))
    assert ours.observation_space == theirs.observation_space
    ours.seed(5), theirs.seed(5)
    assert_same(ours.reset(), theirs.reset())
    ended = 0
    for step in range(STEPS if space is BOX else 120):
        actions = actions_for(ours.action_space, 3, step)
        obs, rewards, dones, infos = ours.step(actions)
        sb3_obs, sb3_rewards, sb3_dones, sb3_infos = theirs.step(actions)
        assert_same(obs, sb3_obs)
        assert rewards.dtype == sb3_rewards.dtype
        np.testing.assert_array_equal(rewards, sb3_rewards)
        np.testing.assert_array_equal(dones, sb3_dones)
        assert_same_infos(infos, sb3_infos)
        ended += dones.sum()
        if step == 50:
            assert_same(ours.reset(), theirs.reset())
    assert ended > 20
    if jv.unwrap_vec_normalize(ours):
        assert_same(ours.get_original_obs(), theirs.get_original_obs())
        assert_same(ours.get_original_reward(), theirs.get_original_reward())
        assert ours.ret_rms.mean == theirs.ret_rms.mean
        assert ours.ret_rms.var == theirs.ret_rms.var
        assert ours.ret_rms.count == theirs.ret_rms.count
        np.testing.assert_array_equal(ours.returns, theirs.returns)


@pytest.mark.parametrize("inner", [jv, sb3], ids=["sb3 over jaxvec", "jaxvec over sb3"])
def test_wrappers_of_the_one_around_the_others_give_the_same(inner):
    outer = sb3 if inner is jv else jv
    make = functools.partial(Eighths, BOX)

    def mixed(first, second):
        venv = first.VecNormalize(first.VecMonitor(first.DummyVecEnv([make] * 3)))
        return second.VecNormalize(second.VecFrameStack(venv, 2), norm_reward=False, gamma=0.5)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is normalized twice
        ours, theirs = mixed(inner, outer), mixed(sb3, sb3)
    ours.seed(1), theirs.seed(1)
    assert_same(ours.reset(), theirs.reset())
    for step in range(100):
        actions = actions_for(ours.action_space, 3, step)
        for one, other in zip(ours.step(actions)[:3], theirs.step(actions)[:3], strict=True):
            assert_same(one, other)
    assert ours.get_attr("steps") == theirs.get_attr("steps")


class NegatedSB3(sb3.VecEnvWrapper):
    def reset(self):
        return -self.venv.reset()

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        for row, done in enumerate(dones):
            if done:
                infos[row]["terminal_observation"] = -infos[row]["terminal_observation"]
                infos[row]["mine"] = row
        return -obs, rewards + 1, dones, infos


class Negated(jv.VecEnvWrapper):
    reset, step_wait = NegatedSB3.reset, NegatedSB3.step_wait


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("own", [Negated, NegatedSB3], ids=["jaxvec's base", "sb3's base"])
def test_a_users_wrapper_in_sb3s_style_works_in_any_position(place, own):
    def stack(lib, wrapper):
        layers = [lib.VecMonitor, functools.partial(lib.VecFrameStack, n_stack=2), lib.VecNormalize]
        layers.insert(place, wrapper)
        venv = lib.DummyVecEnv([functools.partial(Eighths, BOX)] * 3)
        for layer in layers:
            venv = layer(venv)
        return venv

    ours, theirs = stack(jv, own), stack(sb3, NegatedSB3)
    ours.seed(1), theirs.seed(1)
    assert_same(ours.reset(), theirs.reset())
    for step in range(100):
        actions = actions_for(ours.action_space, 3, step)
        obs, rewards, dones, infos = ours.step(actions)
        sb3_obs, sb3_rewards, sb3_dones, sb3_infos = theirs.step(actions)
        assert_same(obs, sb3_obs)
        np.testing.assert_array_equal(rewards, sb3_rewards)
        np.testing.assert_array_equal(dones, sb3_dones)
        assert_same_infos(infos, sb3_infos)


class Subclassed(jv.VecNormalize):
    """A user's subclass of a wrapper of jaxvec's, in SB3's style."""

    def step_wait(self):
        obs, rewards, dones, infos = super().step_wait()
        return obs, rewards * 2, dones, infos


def test_a_subclass_that_overrides_step_wait_is_seen_by_the_layers_above():
    plain = jv.VecMonitor(jv.VecNormalize(jv.DummyVecEnv([CountEnv] * 2)))
    doubled = jv.VecMonitor(Subclassed(jv.DummyVecEnv([CountEnv] * 2)))
    for venv in (plain, doubled):
        venv.reset()
    for _ in range(3):
        one, other = plain.step([0, 0]), doubled.step([0, 0])
        np.testing.assert_array_equal(one[1] * 2, other[1])
    assert other[3][0]["episode"]["r"] == one[3][0]["episode"]["r"] * 2


def test_float64_rewards_of_a_foreign_venv_are_normalized_as_sb3_does():
    make = functools.partial(SpaceEnv, BOX)
    ours, theirs = (
        lib.VecNormalize(sb3.SubprocVecEnv([make] * 2, start_method="fork")) for lib in (jv, sb3)
    )
    ours.seed(3), theirs.seed(3)
    assert_same(ours.reset(), theirs.reset())
    for step in range(30):
        actions = actions_for(ours.action_space, 2, step)
        for one, other in zip(ours.step(actions)[:3], theirs.step(actions)[:3], strict=True):
            assert_same(one, other)
        assert_same(ours.get_original_reward(), theirs.get_original_reward())
    ours.close(), theirs.close()
