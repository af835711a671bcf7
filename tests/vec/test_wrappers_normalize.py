"""VecNormalize: its attributes, statistics, spaces, files and faults."""

import copy
import functools
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
import stable_baselines3.common.vec_env as sb3
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd as SB3RunningMeanStd

import jaxvec.vec as jv
from jaxvec.errors import FileFormatError
from jaxvec.vec import (
    DummyVecEnv,
    RunningMeanStd,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    sync_envs_normalization,
    unwrap_vec_normalize,
)
from tests.vec.host_envs import CountEnv, SpaceEnv, assert_same

BYTES = spaces.Box(0, 255, (4, 5, 3), np.uint8)
DICT = spaces.Dict({"image": BYTES, "speed": spaces.Box(-1, 1, (2,), np.float32)})


def count(num=2, lib=jv, **options):
    return lib.DummyVecEnv([functools.partial(CountEnv, **options)] * num)


def warm(venv, steps=5):
    venv.reset()
    for _ in range(steps):
        venv.step([0] * venv.num_envs)
    return venv


def of_space(space):
    return DummyVecEnv([functools.partial(SpaceEnv, space)] * 2)


def test_a_reset_counts_the_observations_once():
    venv = VecNormalize(count())
    venv.reset()
    assert venv.obs_rms.count == 2.0001
    assert venv.ret_rms.count == 1e-4


def test_the_first_rewards_give_the_numbers_of_sb3s_docs():
    rewards = iter([1.0, 2.0])
    venv = VecNormalize(DummyVecEnv([lambda: CountEnv(reward=next(rewards))] * 2))
    venv.reset()
    _, normalized, _, _ = venv.step([0, 0])
    np.testing.assert_allclose([venv.ret_rms.mean, venv.ret_rms.var], [1.499925, 0.25015], 1e-6)
    np.testing.assert_allclose(normalized, [1.9994003, 3.9988005], 1e-6)


def test_training_off_leaves_all_statistics_as_they_are():
    venv = warm(VecNormalize(count()))
    venv.training = False
    before = copy.deepcopy((venv.obs_rms, venv.ret_rms, venv.returns))
    venv.step([0, 0])
    venv.step([0, 0])
    for one, other in zip(before[:2], (venv.obs_rms, venv.ret_rms), strict=True):
        np.testing.assert_array_equal(one.mean, other.mean)
        assert one.count == other.count
    warm(venv, 0)
    assert venv.obs_rms.count == before[0].count


def test_training_off_still_clears_the_return_of_an_episode_that_ends():
    ours, theirs = (warm(lib.VecNormalize(count(lib=lib)), 2) for lib in (jv, sb3))
    for venv in (ours, theirs):
        venv.training = False
        venv.step([0, 0])
    np.testing.assert_array_equal(ours.returns, theirs.returns)
    assert ours.returns.tolist() == [0, 0]


@pytest.mark.parametrize(
    "name", ["clip_obs", "epsilon", "gamma", "clip_reward", "norm_obs", "norm_reward"]
)
def test_a_setting_may_be_assigned_while_it_runs_as_with_sb3(name):
    values = {"clip_obs": 0.1, "epsilon": 4.0, "gamma": 0.1, "clip_reward": 0.2}
    ours, theirs = (warm(lib.VecNormalize(count(lib=lib))) for lib in (jv, sb3))
    for venv in (ours, theirs):
        setattr(venv, name, values.get(name, False))
    for _ in range(5):
        for one, other in zip(ours.step([0, 0])[:3], theirs.step([0, 0])[:3], strict=True):
            assert_same(one, other)


def test_statistics_have_the_shape_of_one_observation():
    venv = warm(VecNormalize(count(5)))
    assert venv.obs_rms.mean.shape == venv.obs_rms.var.shape == (2,)
    assert venv.obs_rms.mean.dtype == np.float64
    assert isinstance(venv.obs_rms.count, float)


def test_what_is_handed_out_shares_no_memory_with_what_is_kept():
    for options in ({}, {"norm_obs": False}):
        venv = warm(VecNormalize(count(), **options))
        for obs in (venv.reset(), venv.step([0, 0])[0]):
            kept = venv.get_original_obs()
            obs[:] = 77
            np.testing.assert_array_equal(venv.get_original_obs(), kept)
            kept[:] = 78
            assert 78 not in venv.get_original_obs()
        _, rewards, _, _ = venv.step([0, 0])
        rewards += 100
        assert venv.get_original_reward().max() <= 1


def test_a_learner_that_writes_into_rewards_reaches_no_monitor_and_no_statistics():
    venv = VecNormalize(VecMonitor(count()))
    venv.reset()
    for _ in range(3):
        _, rewards, _, infos = venv.step([0, 0])
        rewards += 100
    assert infos[0]["episode"]["r"] == 3
    assert venv.get_original_reward().tolist() == [1, 1]


def test_original_values_are_reached_through_wrappers_outside():
    venv = VecMonitor(VecFrameStack(VecNormalize(count()), 2))
    venv.reset()
    venv.step([0, 0])
    assert venv.get_original_obs().tolist() == [[1, 1]] * 2
    assert venv.get_original_reward().tolist() == [1, 1]
    assert venv.normalize_obs(np.zeros(2)).dtype == np.float32
    assert unwrap_vec_normalize(venv) is venv.venv.venv


def test_there_are_no_original_values_before_the_first_reset_and_step():
    venv = VecNormalize(count())
    with pytest.raises(AttributeError):
        venv.get_original_obs()
    assert venv.get_original_reward().shape == (0,)
    assert not hasattr(VecNormalize(count(), norm_obs=False), "obs_rms")


def test_normalizing_a_batch_copies_it_and_learns_nothing():
    venv, theirs = (
        warm(
            lib.VecNormalize(
                lib.DummyVecEnv([functools.partial(SpaceEnv, copy.deepcopy(DICT))] * 2)
            ),
            0,
        )
        for lib in (jv, sb3)
    )
    venv.obs_rms = theirs.obs_rms = copy.deepcopy(venv.obs_rms)
    venv.ret_rms.var = theirs.ret_rms.var = np.float64(3.0)
    batch = {"image": np.full((7, 4, 5, 3), 9, np.uint8), "speed": np.ones((7, 2), np.float64)}
    before = copy.deepcopy(batch)
    for name in ("normalize_obs", "unnormalize_obs"):
        one, other = getattr(venv, name)(batch), getattr(theirs, name)(batch)
        assert_same(one, other)
        single = {key: value[0] for key, value in batch.items()}
        assert_same(getattr(venv, name)(single), getattr(theirs, name)(single))
    assert_same(batch, before)
    for name in ("normalize_reward", "unnormalize_reward"):
        for reward in (np.arange(5), np.float32(3), np.ones((4, 1), np.float32)):
            one, other = getattr(venv, name)(reward), getattr(theirs, name)(reward)
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_the_space_inside_stays_as_it_was():
    inner = of_space(copy.deepcopy(DICT))
    venv = VecNormalize(inner)
    assert inner.observation_space == inner.envs[0].observation_space == DICT
    assert venv.observation_space["image"] == spaces.Box(-10, 10, BYTES.shape, np.float32)
    assert venv.observation_space["speed"] == DICT["speed"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_and_dtype_of_float_spaces_stay_those_of_sb3(dtype):
    space = spaces.Box(-3, 5, (2,), dtype)
    assert VecNormalize(of_space(space)).observation_space == space


def test_a_stack_of_normalized_bytes_is_not_cut_off_to_bytes():
    venv = VecFrameStack(VecNormalize(of_space(spaces.Box(0, 255, (3,), np.uint8))), 2)
    obs = venv.reset()
    assert obs.dtype == venv.observation_space.dtype == np.float32
    assert (obs[:, 3:] % 1 != 0).any()


@pytest.mark.parametrize(
    ("space", "keys", "error", "match"),
    [
        (spaces.Discrete(3), None, ValueError, "only supports"),
        (spaces.Tuple([BYTES, BYTES]), None, ValueError, "only supports"),
        (BYTES, ["image"], ValueError, "is applicable only"),
        (spaces.Dict({"a": BYTES, "b": spaces.Discrete(2)}), None, ValueError, "explicitly pass"),
        (DICT, ["nothing"], KeyError, "nothing"),
    ],
)
def test_what_cannot_be_normalized_is_refused_unless_norm_obs_is_off(space, keys, error, match):
    with pytest.raises(error, match=match):
        VecNormalize(of_space(space), norm_obs_keys=keys)
    venv = VecNormalize(of_space(space), norm_obs=False)
    assert_same(venv.reset(), venv.get_original_obs())


def test_a_second_normalization_warns_unless_it_normalizes_something_else():
    with pytest.warns(UserWarning, match="normalized twice"):
        VecNormalize(VecMonitor(VecNormalize(count(), norm_reward=False)), norm_reward=False)
    VecNormalize(VecNormalize(count(), norm_reward=False), norm_obs=False)


def test_float32_precision_is_within_1e_6_of_sb3s_numbers():
    for space in (
        BYTES,
        spaces.Box(-1, 1, (4,), np.float64),
        spaces.Box(900, 901, (4,), np.float32),
    ):
        exact, quick = (VecNormalize(of_space(space), **o) for o in ({}, {"precision": "float32"}))
        for venv in (exact, quick):
            venv.seed(0)
        obs = [exact.reset(), quick.reset()]
        for _ in range(40):
            np.testing.assert_allclose(*obs, rtol=1e-6, atol=1e-6)
            obs = [venv.step([0, 0])[0] for venv in (exact, quick)]
        np.testing.assert_allclose(exact.obs_rms.var, quick.obs_rms.var, 1e-10)
    with pytest.raises(ValueError, match="float16"):
        VecNormalize(count(), precision="float16")


# Statistics that are held, shared and copied


def test_statistics_may_be_assigned_and_are_then_shared():
    venv, other = warm(VecNormalize(count())), warm(VecNormalize(count(), training=False))
    other.obs_rms, other.ret_rms = venv.obs_rms, venv.ret_rms
    venv.step([0, 0])
    assert other.obs_rms.count == venv.obs_rms.count
    np.testing.assert_array_equal(other.normalize_obs(np.ones(2)), venv.normalize_obs(np.ones(2)))


def test_the_numbers_of_statistics_may_be_assigned_and_written_into():
    venv = VecNormalize(count(), training=False, epsilon=0)
    venv.obs_rms.mean = np.array([1.0, 2.0])
    venv.obs_rms.var[:] = 4
    np.testing.assert_array_equal(venv.normalize_obs(np.array([5.0, 6.0])), [2, 2])
    venv.obs_rms.update(np.array([[1.0, 2.0], [3.0, 6.0]]))
    np.testing.assert_allclose(venv.obs_rms.count, 2.0001)
    assert venv.state.observation.statistics.moments.count == venv.obs_rms.count


def test_statistics_of_sb3s_class_may_be_assigned():
    theirs = SB3RunningMeanStd(shape=(2,))
    theirs.update(np.arange(6.0).reshape(3, 2))
    venv = VecNormalize(count())
    venv.obs_rms = theirs
    np.testing.assert_array_equal(venv.obs_rms.mean, theirs.mean)
    warm(venv)
    assert venv.obs_rms.count == theirs.count + 12


def test_a_state_is_a_copy_and_can_be_assigned():
    venv = warm(VecNormalize(VecFrameStack(count(), 2)))
    state, inner = venv.state, venv.venv.state
    expected = [venv.step([0, 0])[0] for _ in range(1)]
    venv.state, venv.venv.state = state, inner
    assert venv.obs_rms.count == state.observation.statistics.moments.count
    inner.stack[:] = 99
    assert 99 not in venv.venv.state.stack
    assert expected[0].shape == (2, 4)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_running_mean_std_computes_as_sb3s(shape):
    rng = np.random.default_rng(0)
    ours, theirs = RunningMeanStd(shape=shape), SB3RunningMeanStd(shape=shape)
    other, sb3_other = RunningMeanStd(epsilon=2.0, shape=shape), SB3RunningMeanStd(2.0, shape)
    for dtype in (np.float64, np.float32, np.uint8):
        batch = (rng.random((5, *shape)) * 50).astype(dtype)
        for rms in (ours, theirs, other, sb3_other):
            rms.update(batch)
    ours.combine(other), theirs.combine(sb3_other)
    ours.update_from_moments(np.ones(shape), np.ones(shape), 3)
    theirs.update_from_moments(np.ones(shape), np.ones(shape), 3)
    for rms in (ours, ours.copy(), copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        np.testing.assert_array_equal(rms.mean, theirs.mean)
        np.testing.assert_array_equal(rms.var, theirs.var)
        assert rms.count == theirs.count
        assert type(rms) is RunningMeanStd
        assert isinstance(rms, SB3RunningMeanStd)
    twin = ours.copy()
    twin.update(batch)
    assert twin.count != ours.count
    if shape:
        ours.update(np.ones(3))  # SB3 broadcasts
        theirs.update(np.ones(3))
        np.testing.assert_array_equal(ours.mean, theirs.mean)


def test_synchronized_statistics_are_copies():
    train, test = warm(VecNormalize(VecMonitor(count()))), VecNormalize(VecMonitor(count(3)))
    sync_envs_normalization(train, test)
    np.testing.assert_array_equal(train.obs_rms.mean, test.obs_rms.mean)
    train.step([0, 0])
    assert train.obs_rms.count != test.obs_rms.count
    assert train.ret_rms.count != test.ret_rms.count


@pytest.mark.parametrize("lib", [jv, sb3], ids=["by jaxvec", "by sb3"])
@pytest.mark.parametrize("first", [jv, sb3], ids=["from jaxvec", "from sb3"])
def test_statistics_are_synchronized_between_jaxvecs_and_sb3s(lib, first):
    for second in (jv, sb3):
        one, other = (each.VecNormalize(count(lib=each)) for each in (first, second))
        warm(one)
        lib.sync_envs_normalization(one, other)
        obs = np.ones((2, 2), np.float32)
        np.testing.assert_array_equal(one.normalize_obs(obs), other.normalize_obs(obs))
        warm(other)


def test_stacks_that_do_not_correspond_are_not_synchronized():
    train = VecNormalize(count())
    for test in (count(), VecMonitor(VecNormalize(count())), VecNormalize(count(), norm_obs=False)):
        with pytest.raises(AssertionError, match="sync_envs_normalization"):
            sync_envs_normalization(train, test)


# Files and pickles


def test_a_pickle_without_its_venv_goes_on_where_it_was():
    venv = warm(VecNormalize(count()))
    again = pickle.loads(pickle.dumps(venv))
    with pytest.raises(AssertionError, match="same shape"):
        again.set_venv(of_space(BYTES))
    again.set_venv(count(3))
    with pytest.raises(ValueError, match="already"):
        again.set_venv(count())
    assert again.num_envs == 3
    assert again.obs_rms.count == venv.obs_rms.count
    assert again.reset().shape == (3, 2)


@pytest.mark.parametrize("name", ["x.pkl", "x.npz", "x"])
@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), DICT], ids=["box", "dict"])
def test_a_saved_file_gives_back_statistics_and_settings(tmp_path, name, space):
    options = {"gamma": 0.5, "clip_obs": 3.0, "training": False, "norm_reward": False}
    venv = warm(VecNormalize(of_space(copy.deepcopy(space)), epsilon=1e-3))
    for key, value in options.items():
        setattr(venv, key, value)
    venv.save(tmp_path / name)
    again = VecNormalize.load(
        str(tmp_path / name), DummyVecEnv([functools.partial(SpaceEnv, space)] * 3)
    )
    for key, value in options.items():
        assert getattr(again, key) == value
    assert again.epsilon == 1e-3
    obs = (
        {"image": np.ones((3, 4, 5, 3), np.uint8), "speed": np.ones((3, 2))}
        if space is DICT
        else np.ones((3, 2))
    )
    assert_same(again.normalize_obs(obs), venv.normalize_obs(obs))
    assert again.ret_rms.count == venv.ret_rms.count
    warm(again)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), DICT], ids=["box", "dict"])
def test_sb3s_own_class_loads_what_is_saved_and_the_other_way_round(tmp_path, space):
    def make(lib):
        return lib.DummyVecEnv([functools.partial(SpaceEnv, copy.deepcopy(space))] * 2)

    ours, theirs = warm(VecNormalize(make(jv))), warm(sb3.VecNormalize(make(sb3)))
    ours.save(tmp_path / "ours.pkl"), theirs.save(tmp_path / "theirs.pkl")
    from_ours = sb3.VecNormalize.load(tmp_path / "ours.pkl", make(sb3))
    from_theirs = VecNormalize.load(tmp_path / "theirs.pkl", make(jv))
    assert type(from_ours) is sb3.VecNormalize
    batch = of_space(space).reset()
    for one, other in ((ours, from_ours), (theirs, from_theirs)):
        assert one.observation_space == other.observation_space
        assert_same(one.normalize_obs(batch), other.normalize_obs(batch))
        np.testing.assert_array_equal(one.ret_rms.var, other.ret_rms.var)
        np.testing.assert_array_equal(one.get_original_reward(), other.get_original_reward())
        assert_same(one.get_original_obs(), other.get_original_obs())
        warm(other)
    assert set(vars(from_ours)) == set(
        vars(sb3.VecNormalize.load(tmp_path / "theirs.pkl", make(sb3)))
    )


class Evil:
    def __reduce__(self):
        return print, ("this was run",)


def test_a_pickle_with_anything_else_in_it_is_refused_unless_trusted(tmp_path, capsys):
    theirs = warm(sb3.VecNormalize(count(lib=sb3)))
    theirs.metadata = {"evil": Evil()}
    theirs.save(tmp_path / "evil.pkl")
    with pytest.raises(FileFormatError, match=r"builtins.print.*trust=True"):
        VecNormalize.load(tmp_path / "evil.pkl", count())
    assert capsys.readouterr().out == ""
    again = VecNormalize.load(tmp_path / "evil.pkl", count(), trust=True)
    assert capsys.readouterr().out == "this was run\n"
    assert again.obs_rms.count == theirs.obs_rms.count


def test_files_of_something_else_are_refused_by_name(tmp_path):
    (tmp_path / "text").write_text("not a pickle")
    (tmp_path / "list").write_bytes(pickle.dumps([1, 2]))
    np.savez(tmp_path / "other.npz", x=1)
    for name in ("text", "list", "other.npz"):
        with pytest.raises(FileFormatError, match=name):
            VecNormalize.load(tmp_path / name, count())


@pytest.mark.parametrize("name", ["x.pkl", "x.npz"])
def test_statistics_of_another_shape_are_refused(tmp_path, name):
    warm(VecNormalize(count())).save(tmp_path / name)
    with pytest.raises(AssertionError, match="same shape"):
        VecNormalize.load(tmp_path / name, of_space(spaces.Box(-1, 1, (4,))))


def test_saving_and_loading_for_sb3_imports_neither_sb3_nor_torch_nor_jax(tmp_path):
    code = f"""
import sys
from jaxvec.vec import DummyVecEnv, VecNormalize
from tests.vec.host_envs import CountEnv
venv = VecNormalize(DummyVecEnv([CountEnv] * 2))
venv.reset()
venv.save({str(tmp_path / "x.pkl")!r})
VecNormalize.load({str(tmp_path / "x.pkl")!r}, DummyVecEnv([CountEnv]))
print(sorted(set(sys.modules) & {{"stable_baselines3", "torch", "jax", "flax"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr


def test_warnings_of_a_load_name_the_double_normalization(tmp_path):
    venv = warm(VecNormalize(count()))
    venv.save(tmp_path / "x.pkl")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        VecNormalize.load(tmp_path / "x.pkl", venv)
    assert any("normalized twice" in str(each.message) for each in seen)
