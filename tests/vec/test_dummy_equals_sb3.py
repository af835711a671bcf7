"""DummyVecEnv against Stable-Baselines3's own, and where jaxvec does better on purpose."""

import copy
import functools
import pickle
import sys
import types
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv as SB3DummyVecEnv

from jaxvec.errors import AlreadyPendingError, MissingExtraError, NotPendingError
from jaxvec.vec import DummyVecEnv
from tests.vec.host_envs import (
    PLAIN_SPACES,
    CountEnv,
    SpaceEnv,
    actions_for,
    assert_same,
)

N = 3


def both(make):
    return DummyVecEnv([make] * N), SB3DummyVecEnv([make] * N)


@pytest.mark.parametrize("name", PLAIN_SPACES)
def test_steps_resets_and_infos_equal_sb3s_to_the_last_bit(name):
    ours, theirs = both(functools.partial(SpaceEnv, PLAIN_SPACES[name]))
    assert ours.observation_space == theirs.observation_space
    assert ours.seed(7) == theirs.seed(7) == [7, 8, 9]
    theirs.set_options({"level": 2})
    ours.set_options({"level": 2})
    assert_same(ours.reset(), theirs.reset())
    assert ours.reset_infos == theirs.reset_infos
    ended = 0
    for step in range(150):
        actions = actions_for(ours.action_space, N, step)
        obs, rewards, dones, infos = ours.step(actions)
        sb3_obs, sb3_rewards, sb3_dones, sb3_infos = theirs.step(actions)
        assert_same(obs, sb3_obs)
        assert rewards.dtype == sb3_rewards.dtype == np.float32
        np.testing.assert_array_equal(rewards, sb3_rewards)
        np.testing.assert_array_equal(dones, sb3_dones)
        assert ours.reset_infos == theirs.reset_infos
        for info, sb3_info in zip(infos, sb3_infos, strict=True):
            assert list(info) == list(sb3_info)
            for key in info:
                if key == "terminal_observation":
                    ended += 1
                    for one, other in zip(_parts(info[key]), _parts(sb3_info[key]), strict=True):
                        np.testing.assert_array_equal(one, other)
                else:
                    np.testing.assert_array_equal(info[key], sb3_info[key])
                    assert isinstance(info[key], type(sb3_info[key]))
    assert ended > 20


def _parts(obs):
    if isinstance(obs, dict):
        return [obs[key] for key in sorted(obs)]
    return list(obs) if isinstance(obs, tuple) else [obs]


def test_cartpole_gives_the_trace_that_sb3_gives():
    ours, theirs = both(functools.partial(gym.make, "CartPole-v1"))
    ours.seed(0), theirs.seed(0)
    assert_same(ours.reset(), theirs.reset())
    for step in range(200):
        actions = actions_for(ours.action_space, N, step)
        for one, other in zip(ours.step(actions), theirs.step(actions), strict=True):
            assert str(one) == str(other)


def test_a_box_action_reaches_the_environment_as_sb3_hands_it_over():
    class Echo(CountEnv):
        def __init__(self):
            super().__init__(length=100)
            self.action_space = spaces.Box(-1, 1, (2,), np.float32)

        def step(self, action):
            obs, reward, terminated, truncated, _ = super().step(action)
            return obs, reward, terminated, truncated, {"got": (type(action), action.dtype)}

    for actions in (np.zeros((N, 2), np.float32), np.zeros((N, 2), np.float64)):
        ours, theirs = both(Echo)
        ours.reset(), theirs.reset()
        assert ours.step(actions)[3] == theirs.step(actions)[3]


def test_constructor_attributes_are_those_of_sb3():
    ours, theirs = both(functools.partial(CountEnv, render_mode="rgb_array"))
    assert ours.metadata == theirs.metadata == CountEnv.metadata
    assert ours.render_mode == theirs.render_mode == "rgb_array"
    assert ours.observation_space is ours.envs[0].observation_space
    np.testing.assert_array_equal(ours.render(), theirs.render())
    assert ours.render().shape == (8, 8, 3)
    assert len(ours.get_images()) == N


def test_render_warns_and_returns_none_where_the_mode_does_not_fit():
    ours, _ = both(CountEnv)
    with pytest.warns(UserWarning, match="no `render_mode`"):
        assert ours.render() is None
    with pytest.warns(UserWarning, match="render_mode=None"):
        assert ours.render("rgb_array") is None
    with pytest.warns(UserWarning, match="rgb_array"):
        assert ours.get_images() == [None] * N


def test_render_modes_must_agree():
    fns = [CountEnv, functools.partial(CountEnv, render_mode="rgb_array")]
    with pytest.raises(AssertionError, match="render_mode"):
        DummyVecEnv(fns)


def test_a_lacking_render_mode_warns_and_is_none():
    class NoMode(CountEnv):
        def __init__(self):
            super().__init__()
            del self.render_mode

        def get_wrapper_attr(self, name):
            if name == "render_mode":
                raise AttributeError(name)
            return super().get_wrapper_attr(name)

    with pytest.warns(UserWarning, match="render_mode"):
        assert DummyVecEnv([NoMode]).render_mode is None


def test_seed_without_a_number_draws_what_sb3_draws_from_the_global_generator():
    ours, theirs = both(CountEnv)
    np.random.seed(4)  # noqa: NPY002
    first = ours.seed()
    np.random.seed(4)  # noqa: NPY002
    assert first == theirs.seed()


def test_seeds_and_options_are_used_by_one_explicit_reset_only():
    ours, theirs = both(CountEnv)
    for venv in (ours, theirs):
        venv.reset()
        venv.seed(5)
        venv.set_options([{"level": 1}, {}, {"level": 3}])
        for _ in range(3):
            venv.step([0] * N)
        venv.reset()
        venv.reset()
    assert ours.get_attr("resets") == theirs.get_attr("resets")
    assert ours.get_attr("resets")[0] == [
        (None, None),
        (None, None),
        (5, {"level": 1}),
        (None, None),
    ]


def test_the_list_that_seed_returned_is_not_changed_by_the_reset():
    venv = DummyVecEnv([CountEnv] * N)
    seeds = venv.seed(3)
    venv.reset()
    assert seeds == [3, 4, 5]


def test_spawned_seeds_of_neighbouring_runs_do_not_overlap():
    venv = DummyVecEnv([CountEnv] * 64)
    runs = [venv.seed(base, mode="spawn") for base in range(20)]
    assert len({seed for run in runs for seed in run}) == 20 * 64
    assert runs[3] == venv.seed(3, mode="spawn")
    assert all(0 <= seed < 2**63 for seed in runs[0])
    with pytest.raises(ValueError, match="mode='sideways'"):
        venv.seed(0, mode="sideways")


def test_every_environment_has_options_of_its_own():
    venv = DummyVecEnv([CountEnv] * 2)
    venv.set_options({"list": [1]})
    venv.reset()
    one, other = venv.get_attr("resets")
    assert one[0][1] == {"list": [1]}
    assert one[0][1]["list"] is not other[0][1]["list"]


def test_sticky_options_reach_automatic_resets_too():
    venv = DummyVecEnv([functools.partial(CountEnv, 2)] * 2)
    venv.set_options([{"level": 1}, {}], sticky=True)
    venv.reset()
    venv.step([0, 0]), venv.step([0, 0])
    venv.set_options({"level": 9})
    venv.reset()
    venv.reset()
    venv.set_options(None, sticky=True)
    venv.reset()
    levels = [options and options["level"] for _, options in venv.get_attr("resets")[0]]
    assert levels == [1, 1, 9, 1, None]
    assert venv.get_attr("resets")[1][0] == (None, None)


def test_too_few_options_are_refused_at_the_reset():
    venv = DummyVecEnv([CountEnv] * 3)
    venv.set_options([{"a": 1}])
    with pytest.raises(IndexError, match="options for 1 environments"):
        venv.reset()


def test_terminal_observation_survives_an_environment_that_reuses_its_array():
    venv = DummyVecEnv([functools.partial(CountEnv, reuse=True)])
    first = venv.reset()
    kept = [first]
    for _ in range(3):
        obs, _, _, infos = venv.step([0])
        kept.append(obs)
    assert infos[0]["terminal_observation"].tolist() == [3, 3]
    assert [each[0, 0] for each in kept] == [0, 1, 2, 0]
    assert not np.shares_memory(kept[0], kept[1])


def test_the_environments_own_info_is_never_written_and_never_aliased():
    own = {"list": [0]}
    venv = DummyVecEnv([functools.partial(CountEnv, info=own)])
    venv.reset()
    for _ in range(3):
        *_, infos = venv.step([0])
    assert "terminal_observation" in infos[0]
    assert own == {"list": [0]}
    own["list"].append(1)
    assert infos[0]["list"] == [0]
    *_, infos = venv.step([0])
    assert "terminal_observation" not in infos[0]


def test_both_flags_at_once_are_a_termination():
    class Both(CountEnv):
        def step(self, action):
            obs, reward, _, _, info = super().step(action)
            return obs, reward, True, True, info

    venv = DummyVecEnv([Both])
    venv.reset()
    _, _, dones, infos = venv.step([0])
    assert dones[0]
    assert infos[0]["TimeLimit.truncated"] is False


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([300.0, 0.0]), "300"),
        ([2**40, 0], "1099511627776"),
        (np.zeros(1, np.uint8), "shape"),
        (np.uint8(7), "shape"),
    ],
)
def test_an_observation_that_does_not_fit_raises_and_names_the_row(value, message):
    class Odd(CountEnv):
        def __init__(self, odd):
            super().__init__()
            self.observation_space = spaces.Box(0, 255, (2,), np.uint8)
            self.odd = odd

        def _observe(self):
            return value if self.odd and self.steps else np.zeros(2, np.uint8)

    venv = DummyVecEnv([functools.partial(Odd, False), functools.partial(Odd, True)])
    venv.reset()
    with pytest.raises(ValueError, match=rf"row 1\b.*{message}") as caught:
        venv.step([0, 0])
    assert "environment 1" in caught.value.__notes__[0]
    assert not venv.waiting


@pytest.mark.parametrize("reward", [1, 2.5, np.float32(3), np.array([4.0]), np.array([[5]])])
def test_any_single_number_is_a_reward(reward):
    venv = DummyVecEnv([functools.partial(CountEnv, reward=reward)])
    venv.reset()
    _, rewards, _, _ = venv.step([0])
    assert rewards.shape == (1,)
    assert rewards.dtype == np.float32
    assert rewards[0] == np.asarray(reward).item()


@pytest.mark.parametrize(
    ("reward", "error"), [(None, TypeError), ("1", TypeError), (np.ones(2), ValueError)]
)
def test_a_reward_that_is_no_single_number_is_refused(reward, error):
    venv = DummyVecEnv([CountEnv, functools.partial(CountEnv, reward=reward)])
    venv.reset()
    with pytest.raises(error, match="environment 1"):
        venv.step([0, 0])


def test_a_wrong_number_of_actions_and_a_second_step_are_refused_before_anything_happens():
    venv = DummyVecEnv([CountEnv] * 2)
    venv.reset()
    for actions in ([0], 0, np.int64(0)):
        with pytest.raises(ValueError, match="2 environments"):
            venv.step_async(actions)
    with pytest.raises(NotPendingError):
        venv.step_wait()
    venv.step_async([0, 0])
    with pytest.raises(AlreadyPendingError):
        venv.step_async([0, 0])
    assert venv.waiting
    assert venv.step_wait()[0][0, 0] == 1
    venv.step_async([0, 0])
    assert venv.reset()[0, 0] == 0
    assert not venv.waiting


@pytest.mark.parametrize("actions", [[0, 0, 0], np.zeros(3, np.int64)])
def test_actions_beyond_the_last_environment_are_left_out_as_sb3_does(actions):
    for venv in both(CountEnv)[:2]:
        venv.reset()
        actions = [*actions, 0]
        assert venv.step(actions)[0][:, 0].tolist() == [1] * N


def test_an_exception_leaves_the_environments_before_it_stepped_and_the_venv_usable():
    failing = functools.partial(CountEnv, fail={"step": (1, ValueError("on purpose"))})
    venv = DummyVecEnv([CountEnv, failing, CountEnv])
    venv.reset()
    with pytest.raises(ValueError, match="on purpose"):
        venv.step([0, 0, 0])
    assert venv.get_attr("steps") == [1, 1, 0]
    assert venv.reset().tolist() == [[0, 0]] * 3


def test_the_same_instance_twice_is_refused():
    env = CountEnv()
    with pytest.raises(ValueError, match="1151"):
        DummyVecEnv([lambda: env, lambda: gym.wrappers.TimeLimit(env, 3)])


def test_what_is_no_environment_and_no_environments_at_all_are_refused():
    with pytest.raises(ValueError, match="of type"):
        DummyVecEnv([lambda: 3])
    with pytest.raises(IndexError):
        DummyVecEnv([])
    nested = spaces.Dict({"inner": spaces.Dict({"a": spaces.Discrete(2)})})
    with pytest.raises(NotImplementedError, match="nested"):
        DummyVecEnv([functools.partial(SpaceEnv, nested)])


@pytest.mark.parametrize(
    ("indices", "rows"),
    [
        (None, [0, 1, 2, 3]),
        (1, [1]),
        (-1, [3]),
        (np.int64(2), [2]),
        (True, [1]),
        ([0, -1], [0, 3]),
        ([2, 2], [2, 2]),
        ((3, 1), [3, 1]),
        (range(1, 3), [1, 2]),
        (np.array([3, 0], np.uint8), [3, 0]),
        (slice(None, None, -2), [3, 1]),
        (slice(1, 100), [1, 2, 3]),
        (np.array([True, False, False, True]), [0, 3]),
        ([], []),
    ],
)
def test_indices_are_integers_slices_and_masks(indices, rows):
    venv = DummyVecEnv([functools.partial(CountEnv, 10 + i) for i in range(4)])
    assert venv.get_attr("length", indices) == [10 + row for row in rows]
    assert venv.env_method("add", 1, right=2, indices=indices) == [8] * len(rows)
    venv.set_attr("mark", 1, indices)
    marked = [hasattr(env, "mark") for env in venv.envs]
    assert marked == [row in rows for row in range(4)]


@pytest.mark.parametrize("indices", [4, -5, [0, 7], np.ones(3, bool)])
def test_indices_out_of_range_are_refused(indices):
    with pytest.raises(IndexError, match="4"):
        DummyVecEnv([CountEnv] * 4).get_attr("length", indices)
    with pytest.raises(TypeError, match=r"1\.5"):
        DummyVecEnv([CountEnv] * 4).get_attr("length", [1.5])


def test_attributes_are_read_through_wrappers_and_set_where_asked():
    venv = DummyVecEnv([lambda: gym.wrappers.TimeLimit(CountEnv(), 3)])
    assert venv.has_attr("secret")
    assert not venv.has_attr("nothing")
    with pytest.raises(AttributeError, match="nothing"):
        venv.get_attr("nothing")
    venv.set_attr("secret", 9)
    assert venv.get_attr("secret") == [9]
    assert venv.envs[0].unwrapped.secret == 5
    venv.set_attr("secret", 11, where="unwrapped")
    assert venv.envs[0].unwrapped.secret == 11
    assert venv.env_is_wrapped(gym.wrappers.TimeLimit) == [True]
    assert venv.env_is_wrapped(gym.Wrapper) == [True]
    assert venv.env_is_wrapped(gym.wrappers.RecordVideo) == [False]
    with pytest.raises(ValueError, match="where"):
        venv.set_attr("secret", 1, where="inside")


def test_a_reset_of_some_rows_leaves_the_others_as_they_are():
    venv = DummyVecEnv([functools.partial(CountEnv, 9)] * 3)
    venv.reset()
    venv.step([0] * 3)
    venv.seed(20)
    assert venv.reset(indices=[1]).tolist() == [[1, 1], [0, 0], [1, 1]]
    assert venv.reset_infos == [{}, {"seed": 21}, {}]
    timestep = venv.reset_arrays(slice(0, 1))
    assert timestep.first.tolist() == [True, False, False]
    assert venv.get_attr("resets")[0][-1] == (20, None)
    venv.reset()
    assert [resets[-1][0] for resets in venv.get_attr("resets")] == [None, None, 22]


def test_rows_sent_one_by_one_come_back_as_they_are_ready():
    venv = DummyVecEnv([functools.partial(CountEnv, 2)] * 3)
    venv.reset()
    venv.send([0, 0], [2, 0])
    venv.send([0], np.int64(1))
    with pytest.raises(AlreadyPendingError):
        venv.send([0], [1])
    with pytest.raises(AlreadyPendingError):
        venv.step_async([0, 0, 0])
    with pytest.raises(ValueError, match="1 environments"):
        DummyVecEnv([CountEnv]).send([0, 0], [0])
    rows, obs, rewards, dones, infos = venv.recv(min_envs=2)
    assert rows.tolist() == [0, 2]
    assert obs.tolist() == [[1, 1], [1, 1]]
    assert rewards.tolist() == [1, 1]
    venv.send([0], [2])
    rows, obs, rewards, dones, infos = venv.recv()
    assert rows.tolist() == [1, 2]
    assert dones.tolist() == [False, True]
    assert infos[1]["terminal_observation"].tolist() == [2, 2]
    with pytest.raises(NotPendingError):
        venv.recv()


def test_recv_arrays_marks_the_rows_that_were_ready_as_valid():
    venv = DummyVecEnv([functools.partial(CountEnv, 1)] * 3)
    venv.reset()
    venv.step([0, 0, 0])
    venv.send([0], [1])
    timestep = venv.recv_arrays()
    assert timestep.valid.tolist() == timestep.done.tolist() == [False, True, False]
    assert timestep.reward.tolist() == [0, 1, 0]
    assert timestep.final_rows.tolist() == [1]


def test_a_timestep_on_the_host_holds_the_ended_rows_only():
    venv = DummyVecEnv([functools.partial(CountEnv, 2), functools.partial(CountEnv, 3)])
    first = venv.reset_arrays()
    assert first.first.all()
    assert not first.valid.any()
    step = venv.step_arrays([0, 0])
    assert step.final_obs is step.final_rows is step.rows is None
    step = venv.step_arrays([0, 0])
    assert step.final_rows.tolist() == [0]
    assert step.final_obs.tolist() == [[2, 2]]
    assert step.first.tolist() == step.truncated.tolist() == [True, False]
    assert step.valid.all()
    assert step.reward.dtype == np.float32


def test_infos_pass_for_a_list():
    venv = DummyVecEnv([functools.partial(CountEnv, 1, info={"a": 1}), CountEnv])
    venv.reset()
    infos = venv.step([0, 0])[3]
    rows = list(infos)
    assert len(infos) == 2
    assert infos[0] is infos[0] is rows[0] is infos[-2] is infos[:1][0]
    assert isinstance(infos[1], dict)
    with pytest.raises(IndexError):
        infos[2]
    plain = [{"a": 1, "TimeLimit.truncated": True}, {"TimeLimit.truncated": False}]
    terminal = infos[0].pop("terminal_observation")
    assert terminal.tolist() == [1, 1]
    assert infos == plain
    assert plain == infos
    assert infos != plain[:1]
    assert infos + plain[:1] == [*plain, plain[0]]
    assert plain[:1] + infos == [plain[0], *plain]
    assert infos.index(plain[1]) == 1
    assert plain[1] in infos
    assert repr(infos) == repr(plain)
    assert infos.copy() == plain
    assert infos.copy()[0] is infos[0]
    for twin in (copy.deepcopy(infos), pickle.loads(pickle.dumps(infos))):
        assert type(twin) is type(infos)
        assert twin == plain
        assert twin[0] is not infos[0]
    infos[1] = {"new": 1}
    assert list(infos)[1] == {"new": 1}
    infos.append({"third": 3})
    del infos[0]
    assert infos == [{"new": 1}, {"third": 3}]


def test_closing_reaches_every_environment_even_where_one_raises():
    failing = functools.partial(CountEnv, fail={"close": ValueError("stuck")})
    closed = []

    class Noting(CountEnv):
        def close(self):
            closed.append(self)

    venv = DummyVecEnv([failing, Noting])
    with pytest.raises(ValueError, match="stuck"):
        venv.close()
    assert len(closed) == 1
    with DummyVecEnv([Noting]):
        pass
    assert len(closed) == 2


def test_closing_twice_closes_every_environment_twice_as_sb3_does():
    for kind in (DummyVecEnv, SB3DummyVecEnv):
        closed = []

        class Noting(CountEnv):
            def close(self, closed=closed):
                closed.append(self)

        venv = kind([Noting] * 2)
        venv.close()
        venv.close()
        assert len(closed) == 4


def test_a_call_between_the_halves_of_a_step_sees_the_environments_before_it():
    for kind in (DummyVecEnv, SB3DummyVecEnv):
        venv = kind([CountEnv] * 2)
        venv.reset()
        venv.step_async([0, 0])
        assert venv.get_attr("steps") == [0, 0]
        venv.set_attr("reward", 7)
        assert venv.step_wait()[1].tolist() == [7, 7]
        venv.step_async([0, 0])
        venv.reset()
        assert venv.get_attr("steps") == [0, 0]


def test_openai_gyms_environments_need_shimmy(monkeypatch):
    class OldEnv:
        pass

    old_gym = types.ModuleType("gym")
    old_gym.Env = OldEnv
    monkeypatch.setitem(sys.modules, "gym", old_gym)
    monkeypatch.setitem(sys.modules, "shimmy", None)
    with pytest.raises(MissingExtraError, match="shimmy"):
        DummyVecEnv([OldEnv])


def test_environments_built_before_a_constructor_raised_are_closed():
    closed = []

    class Noting(CountEnv):
        def close(self):
            closed.append(self)

    with pytest.raises(ValueError, match="no"):
        DummyVecEnv([Noting, functools.partial(CountEnv, fail={"init": ValueError("no")})])
    assert len(closed) == 1


def test_no_warning_is_raised_by_an_ordinary_run():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        venv = DummyVecEnv([functools.partial(gym.make, "CartPole-v1")] * 2)
        venv.reset()
        venv.step(np.zeros(2, np.int64))
        venv.close()
