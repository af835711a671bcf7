"""Frame stacks, images, keys, bad numbers: what jaxvec's wrappers refuse, warn of, and do row by row."""

import functools

import numpy as np
import pytest
import stable_baselines3.common.vec_env as sb3
from gymnasium import spaces
from stable_baselines3.common.vec_env.stacked_observations import (
    StackedObservations as SB3StackedObservations,
)

import jaxvec.vec as jv
from jaxvec import sticky_action
from jaxvec.core._frame_stack import frame_stack
from jaxvec.core._observation import flatten_observation
from jaxvec.core._transform import chain
from jaxvec.vec import (
    DummyVecEnv,
    StackedObservations,
    SubprocVecEnv,
    VecCheckNan,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransform,
    VecTransposeImage,
    is_vecenv_wrapped,
    unwrap_vec_wrapper,
)
from tests.vec.host_envs import CountEnv, SpaceEnv, assert_same

IMAGE = spaces.Box(0, 255, (4, 6, 3), np.uint8)
DICT = spaces.Dict({"image": IMAGE, "speed": spaces.Box(-1, 1, (2,), np.float32)})


def of_space(space, num=2):
    return DummyVecEnv([functools.partial(SpaceEnv, space)] * num)


def count(num=2, **options):
    return DummyVecEnv([functools.partial(CountEnv, **options)] * num)


def test_a_terminal_stack_holds_the_ended_episode_and_the_new_one_begins_with_zeros():
    venv = VecFrameStack(count(), 3)
    assert venv.reset().tolist() == [[0, 0] * 3] * 2
    for _ in range(3):
        obs, *_, infos = venv.step([0, 0])
    assert infos[0]["terminal_observation"].tolist() == [1, 1, 2, 2, 3, 3]
    assert obs.tolist() == [[0] * 6] * 2
    assert venv.step([0, 0])[0][0].tolist() == [0, 0, 0, 0, 1, 1]


def test_only_the_row_that_ended_is_cleared():
    venv = VecFrameStack(DummyVecEnv([lambda: CountEnv(2), lambda: CountEnv(5)]), 2)
    venv.reset()
    for _ in range(2):
        obs, *_ = venv.step([0, 0])
    assert obs.tolist() == [[0, 0, 0, 0], [1, 1, 2, 2]]


def test_a_stack_that_was_handed_out_does_not_change_and_cannot_be_changed():
    venv = VecFrameStack(count(), 2)
    first = venv.reset()
    obs = venv.step([0, 0])[0]
    obs[:] = 99
    later = venv.step([0, 0])[0]
    assert first.tolist() == [[0] * 4] * 2
    assert later.tolist() == [[1, 1, 2, 2]] * 2


@pytest.mark.parametrize(
    ("space", "order", "error"),
    [
        (spaces.Discrete(3), None, AssertionError),
        (spaces.Dict({"a": IMAGE, "b": spaces.Discrete(2)}), None, TypeError),
        (IMAGE, {"a": "first"}, TypeError),
        (IMAGE, "middle", AssertionError),
        (DICT, {"image": "first"}, KeyError),
    ],
)
def test_what_cannot_be_stacked_is_refused_as_sb3_refuses_it(space, order, error):
    for lib in (jv, sb3):
        with pytest.raises(error):
            lib.VecFrameStack(of_space(space), 2, channels_order=order)


def test_a_missing_terminal_observation_warns():
    class Forgetful(jv.VecEnvWrapper):
        def reset(self):
            return self.venv.reset()

        def step_wait(self):
            obs, rewards, dones, _ = self.venv.step_wait()
            return obs, rewards, dones, [{}, {}]

    venv = VecFrameStack(Forgetful(count(length=1)), 2)
    venv.reset()
    with pytest.warns(UserWarning, match="without terminal_observation"):
        venv.step([0, 0])


@pytest.mark.parametrize(
    ("space", "order"),
    [
        (IMAGE, None),
        (IMAGE, "first"),
        (spaces.Box(-1, 1, (5,)), None),
        (DICT, {"image": "first", "speed": "last"}),
    ],
)
def test_stacked_observations_fed_by_hand_are_sb3s(space, order):
    ours, theirs = (
        StackedObservations(2, 3, space, order),
        SB3StackedObservations(2, 3, space, order),
    )
    assert ours.stacked_observation_space == theirs.stacked_observation_space
    source = of_space(space)
    obs = source.reset()
    assert_same(ours.reset(obs), theirs.reset(obs))
    for _ in range(25):
        obs, _, dones, infos = source.step([0, 0])
        infos, sb3_infos = [dict(each) for each in infos], [dict(each) for each in infos]
        if isinstance(space, spaces.Dict):  # SB3 writes into it
            for info in sb3_infos:
                if "terminal_observation" in info:
                    info["terminal_observation"] = dict(info["terminal_observation"])
        stacked, infos = ours.update(obs, dones, infos)
        sb3_stacked, sb3_infos = theirs.update(obs, dones, sb3_infos)
        assert_same(stacked, sb3_stacked)
        for one, other in zip(infos, sb3_infos, strict=True):
            assert ("terminal_observation" in one) == ("terminal_observation" in other)
            if "terminal_observation" in one:
                assert_same(one["terminal_observation"], other["terminal_observation"])
    assert_same(ours.stacked_obs, stacked)


def test_images_are_transposed_and_others_are_not():
    venv = VecTransposeImage(of_space(DICT))
    assert venv.observation_space["image"].shape == (3, 4, 6)
    assert venv.observation_space["speed"] == DICT["speed"]
    assert venv.image_space_keys == ["image"]
    assert venv.reset()["image"].shape == (2, 3, 4, 6)
    one = np.arange(24).reshape(2, 4, 3)
    assert venv.transpose_image(one).shape == (3, 2, 4)
    given = {"image": one, "speed": np.ones(2)}
    assert venv.transpose_observations(given)["image"].shape == (3, 2, 4)
    assert given["image"].shape == (2, 4, 3)


def test_what_is_no_image_is_not_transposed():
    for lib in (jv, sb3):
        for space in (spaces.Box(-1, 1, (4,)), spaces.Box(0, 255, (3, 6, 5), np.uint8)):
            with pytest.raises(AssertionError):
                lib.VecTransposeImage(of_space(space))
    skipping = VecTransposeImage(of_space(IMAGE), skip=True)
    assert skipping.observation_space == IMAGE
    assert skipping.reset().shape == (2, 4, 6, 3)


def test_an_unknown_key_or_a_plain_space_is_refused():
    with pytest.raises(KeyError, match="nothing"):
        VecExtractDictObs(of_space(DICT), "nothing")
    with pytest.raises(AssertionError):
        VecExtractDictObs(of_space(IMAGE), "image")
    assert VecExtractDictObs(of_space(DICT), "speed").observation_space == DICT["speed"]


class Bad(CountEnv):
    """Returns a bad number where it was told to."""

    def __init__(self, where, number):
        super().__init__(length=2)
        self.where, self.number = where, number
        self.action_space = spaces.Box(-1, 1, (1,))

    def reset(self, **options):
        obs, info = super().reset(**options)
        return (obs + self.number if self.where == "reset" else obs), info

    def step(self, action):
        obs, reward, *rest = super().step(action)
        if self.where == "reward":
            reward = self.number
        return (obs + self.number if self.where == "obs" else obs), reward, *rest


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("where", "named"), [("obs", "observations"), ("reward", "rewards"), ("reset", "observations")]
)
def test_bad_numbers_of_the_environment_are_named(where, named, number):
    def run(venv):
        venv.reset()
        venv.step(np.zeros((2, 1)))

    make = functools.partial(Bad, where, number)
    for lib in (jv, sb3):
        with pytest.raises(ValueError, match=rf"found {str(number)[:3]} in {named}"):
            run(lib.VecCheckNan(DummyVecEnv([make] * 2), raise_exception=True))
    with pytest.warns(UserWarning, match=f"in {named}") as seen:
        run(VecCheckNan(DummyVecEnv([make] * 2)))
    assert len(seen) == 1
    if number == np.inf:
        run(VecCheckNan(DummyVecEnv([make] * 2), raise_exception=True, check_inf=False))


def test_a_bad_action_is_refused_before_the_environments_see_it():
    venv = VecCheckNan(DummyVecEnv([functools.partial(Bad, "", 0)] * 2), raise_exception=True)
    with pytest.raises(ValueError, match="nan in actions"):
        venv.step(np.array([[0.0], [np.nan]]))
    venv.reset()
    with pytest.raises(ValueError, match="inf in actions"):
        venv.step([[0.0], [np.inf]])
    assert venv.get_attr("steps") == [0, 0]
    with pytest.raises(TypeError, match="actions is of type int"):
        venv.step(3)
    venv.step(np.zeros((2, 1)))


def test_every_step_warns_unless_once_is_asked_for():
    venv = VecCheckNan(DummyVecEnv([functools.partial(Bad, "obs", np.nan)]), warn_once=False)
    venv.reset()
    for _ in range(3):
        with pytest.warns(UserWarning, match="found nan in"):
            venv.step(np.zeros((1, 1)))


def test_a_bad_last_observation_is_named_too():
    venv = VecCheckNan(DummyVecEnv([functools.partial(Bad, "obs", np.nan)]), check_inf=False)
    venv.venv.envs[0].length = 1
    venv.reset()
    with pytest.warns(UserWarning, match="nan in terminal_observation"):
        venv.step(np.zeros((1, 1)))


def test_a_dict_of_actions_is_not_checked():
    venv = count()
    venv.action_space = spaces.Dict({"a": spaces.Discrete(2)})
    with pytest.raises(NotImplementedError, match="Dict action"):
        VecCheckNan(venv)


# VecTransform


def test_any_transform_can_be_put_around_a_venv():
    venv = VecTransform(of_space(DICT), chain(flatten_observation(), frame_stack(2)))
    assert venv.observation_space.shape == (2 * (4 * 6 * 3 + 2),)
    obs = venv.reset()
    assert obs.shape == (2, 148)
    for _ in range(12):
        obs, _, dones, infos = venv.step([0, 0])
        for row in np.flatnonzero(dones):
            assert infos[row]["terminal_observation"].shape == (148,)


def test_a_transform_that_draws_gets_its_numbers_from_the_seed():
    class Echo(CountEnv):
        def step(self, action):
            return np.full(2, action, np.float32), 0.0, False, False, {}

    def trace(seed):
        venv = VecTransform(DummyVecEnv([Echo] * 4), sticky_action(0.5), seed=seed)
        venv.reset()
        return np.stack([venv.step(np.arange(4) * 0 + step % 2)[0][:, 0] for step in range(50)])

    np.testing.assert_array_equal(trace(1), trace(1))
    assert (trace(1) != trace(2)).any()
    with pytest.raises(NotImplementedError, match="works on the actions of all"):
        VecTransform(count(), sticky_action(0.5), seed=0).send([0], [0])


def test_single_rows_are_reset_through_the_wrappers():
    venv = VecNormalize(VecFrameStack(VecMonitor(count(3, length=9)), 2), norm_reward=False)
    venv.reset()
    for _ in range(2):
        venv.step([0, 0, 0])
    counted = venv.obs_rms.count
    venv.reset(indices=[1])
    assert venv.get_original_obs().tolist() == [[1, 1, 2, 2], [0, 0, 0, 0], [1, 1, 2, 2]]
    assert venv.obs_rms.count == counted + 1
    assert venv.venv.venv.episode_lengths.tolist() == [2, 0, 2]
    foreign = VecFrameStack(sb3.DummyVecEnv([CountEnv] * 2), 2)
    with pytest.raises(NotImplementedError, match="indices"):
        foreign.reset(indices=[0])


def test_rows_that_are_ready_first_pass_the_wrappers_one_by_one():
    sent = VecNormalize(VecFrameStack(VecMonitor(SubprocVecEnv([CountEnv] * 3, num_workers=2)), 2))
    whole = VecNormalize(VecFrameStack(VecMonitor(count(3)), 2))
    try:
        sent.reset(), whole.reset()
        episodes = []
        for _ in range(6):
            whole.step([0, 0, 0])
            sent.send([0, 0, 0])
            left = 3
            while left:
                rows, obs, rewards, dones, infos = sent.recv(min_envs=1)
                assert len(rows) == len(obs) == len(rewards) == len(infos)
                episodes += [
                    info["episode"]["l"] for info, done in zip(infos, dones, strict=True) if done
                ]
                left -= len(rows)
        assert episodes == [3] * 6
        assert_same(sent.get_original_obs(), whole.get_original_obs())
        np.testing.assert_allclose(sent.obs_rms.mean, whole.obs_rms.mean, 1e-9)
        np.testing.assert_allclose(sent.obs_rms.var, whole.obs_rms.var, 1e-9)
        np.testing.assert_allclose(sent.ret_rms.count, whole.ret_rms.count)
        np.testing.assert_array_equal(sent.returns, whole.returns)
    finally:
        sent.close()


def test_wrappers_are_found_by_jaxvecs_class_and_by_sb3s():
    ours = VecMonitor(VecNormalize(VecFrameStack(count(), 2)))
    theirs = sb3.VecMonitor(sb3.VecNormalize(VecFrameStack(count(), 2)))
    mixed = VecMonitor(sb3.VecNormalize(VecFrameStack(sb3.DummyVecEnv([CountEnv]), 2)))
    for venv in (ours, theirs, mixed):
        for find in (jv.unwrap_vec_wrapper, sb3.unwrap_vec_wrapper):
            for name, depth in (("VecMonitor", 0), ("VecNormalize", 1), ("VecFrameStack", 2)):
                found = venv
                for _ in range(depth):
                    found = found.venv
                assert find(venv, getattr(sb3, name)) is found
        assert unwrap_vec_wrapper(venv, VecNormalize) is venv.venv
        assert not is_vecenv_wrapped(venv, VecTransposeImage)
    assert unwrap_vec_wrapper(count(), VecMonitor) is None


class Kept(jv.VecEnvWrapper):
    """Keeps the infos that it returned."""

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        self.returned = [dict(info) for info in infos]
        return obs, rewards, dones, self.returned


def test_no_wrapper_writes_into_the_infos_from_below():
    inner = Kept(count(length=2))
    venv = VecCheckNan(VecNormalize(VecFrameStack(VecMonitor(inner), 2)))
    venv.reset()
    venv.step([0, 0])
    infos = venv.step([0, 0])[3]
    assert infos[0]["episode"]["l"] == 2
    assert set(inner.returned[0]) == {"TimeLimit.truncated", "terminal_observation"}
    assert inner.returned[0]["terminal_observation"].tolist() == [2, 2]


def test_reset_infos_are_seen_through_wrappers():
    venv = VecNormalize(VecMonitor(count()))
    venv.seed(3)
    venv.reset()
    assert venv.reset_infos == venv.venv.venv.reset_infos == [{"seed": 3}, {"seed": 4}]
