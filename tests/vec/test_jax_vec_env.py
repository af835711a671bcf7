"""JaxVecEnv alone: what it shows, seeds, options, actions that are refused, and what is pending."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import vectorize
from jaxvec.envs import make
from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.random import keys_from_seeds
from jaxvec.vec import DummyVecEnv, VecEnv
from jaxvec.vec._jax import JaxVecEnv
from tests.envs.toys import BOTH, TERMINATE, TRUNCATE, assert_same
from tests.vec.jax_envs import LIMIT, SPACES, counter, draws, random_actions, twins

KEYS = ("draw", "at")


def same_tree(left, right):
    """Asserts that two trees of arrays, dicts and tuples are equal, dtypes and order of keys included."""
    if isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            same_tree(left[key], right[key])
    elif isinstance(left, tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            same_tree(one, other)
    else:
        assert np.asarray(left).dtype == np.asarray(right).dtype
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", SPACES)
def test_it_shows_what_a_dummy_vec_env_of_the_same_environment_shows(name):
    env = draws(SPACES[name])
    ours = JaxVecEnv(vectorize(env, 3), info_keys=KEYS)
    theirs = DummyVecEnv(twins(env, 3, KEYS))
    for venv in (ours, theirs):
        venv.seed(7)
    same_tree(ours.reset(), theirs.reset())
    assert ours.reset_infos == theirs.reset_infos
    ended = truncated = 0
    for actions in random_actions(env.action_space, 40, 3):
        (obs, rewards, dones, infos), expected = ours.step(actions), theirs.step(actions)
        same_tree((obs, rewards, dones), expected[:3])
        for info, wanted in zip(infos, expected[3], strict=True):
            assert info.keys() == wanted.keys()
            for key in info:
                same_tree(info[key], wanted[key])
        assert ours.reset_infos == theirs.reset_infos
        ended += sum(dones)
        truncated += sum(info["TimeLimit.truncated"] for info in infos)
    assert ended > truncated > 0


def test_it_equals_the_compiled_environment_to_the_last_bit():
    env = vectorize(make("CartPole-v1"), 64)
    venv = JaxVecEnv(env, seed=3)
    step = jax.jit(env.step)
    state, timestep = jax.jit(env.reset)(keys_from_seeds(3 + np.arange(64)))
    np.testing.assert_array_equal(venv.reset(), timestep.obs)
    for actions in random_actions(env.spec.action_space, 100, 64):
        obs, rewards, dones, infos = venv.step(actions)
        state, timestep = step(state, actions.astype(np.int32))
        assert_same(
            (obs, rewards, dones),
            tuple(map(np.asarray, (timestep.obs, timestep.reward, timestep.done))),
        )
        for row in np.flatnonzero(dones):
            np.testing.assert_array_equal(
                infos[row]["terminal_observation"], timestep.final_obs[row]
            )


def test_an_end_is_a_time_limit_only_if_the_environment_was_cut_off_and_had_not_ended():
    venv = JaxVecEnv(vectorize(counter(), 4))
    venv.reset()
    _, _, dones, infos = venv.step(np.array([0, TRUNCATE, TERMINATE, BOTH]))
    assert dones.tolist() == [False, True, True, True]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, True, False, False]
    assert ["terminal_observation" in info for info in infos] == [False, True, True, True]
    assert infos[1]["terminal_observation"][0] == 1  # its count, where `obs` shows the next one's


def test_what_it_hands_out_may_be_written_into():
    actions = random_actions(spaces.Discrete(2), 30, 3)
    untouched, touched = (JaxVecEnv(vectorize(draws(SPACES["image"]), 3)) for _ in range(2))
    expected, obs = untouched.reset(), touched.reset()
    for each in actions:
        np.testing.assert_array_equal(obs, expected)
        obs[:] = 0
        expected, rewards, *_ = untouched.step(each)
        obs, others, dones, infos = touched.step(each)
        np.testing.assert_array_equal(others, rewards)
        others += 100
        dones[:] = True
        for info in infos:
            info["mine"] = 1


def test_what_was_handed_out_stays_when_steps_follow():
    venv = JaxVecEnv(vectorize(draws(SPACES["dict"]), 3), info_keys=KEYS)
    kept = [(venv.reset(), None, None, ())]
    kept += [venv.step(np.zeros(3, int)) for _ in range(LIMIT)]
    copies = copy.deepcopy(kept)
    for _ in range(5):
        venv.step(np.zeros(3, int))
    for (obs, rewards, dones, infos), copied in zip(kept, copies, strict=True):
        same_tree(obs, copied[0])
        same_tree((rewards, dones), copied[1:3]) if rewards is not None else None
        assert [info["draw"] for info in infos] == [info["draw"] for info in copied[3]]


def test_infos_pickle_and_are_a_list_of_dicts():
    venv = JaxVecEnv(vectorize(draws(SPACES["box"]), 2), info_keys=KEYS)
    venv.reset()
    infos = venv.step(np.zeros(2, int))[3]
    assert len(infos) == 2
    assert all(type(info) is dict for info in infos)
    again = pickle.loads(pickle.dumps(infos))
    assert [info["draw"] for info in again] == [info["draw"] for info in infos]


def test_infos_that_nobody_reads_fetch_nothing():
    venv = JaxVecEnv(vectorize(counter(), 2), info_keys=("t",))
    venv.reset()
    infos = venv.step(np.zeros(2, int))[3]
    results = infos._results
    assert results._columns is None
    assert infos[1]["t"] == 1
    assert results._columns is not None


def trace(venv, actions):
    """Returns observations, rewards and dones `[T, N, ...]` of a reset and steps."""
    obs = [venv.reset()]
    columns = [[], []]
    for each in actions:
        new, *rest, _ = venv.step(each)
        obs.append(new)
        for column, value in zip(columns, rest, strict=True):
            column.append(value)
    return [np.array(each) for each in (obs, *columns)]


def test_a_rows_trace_depends_on_its_own_seed_alone():
    few, many = (JaxVecEnv(vectorize(make("CartPole-v1"), count)) for count in (2, 5))
    actions = random_actions(spaces.Discrete(2), 60, 5)
    many.seed(10)
    few.seed(13)
    for one, other in zip(trace(few, actions[:, 3:]), trace(many, actions), strict=True):
        np.testing.assert_array_equal(one, other[:, 3:])


def test_a_seed_gives_the_same_trace_again_whatever_came_before():
    venv = JaxVecEnv(vectorize(make("CartPole-v1"), 3), seed=4)
    actions = random_actions(spaces.Discrete(2), 60, 3)
    first, other = trace(venv, actions), trace(venv, actions)
    assert not np.array_equal(first[0][0], other[0][0])  # it was not seeded again, and went on
    assert venv.seed(4) == [4, 5, 6]
    for one, again in zip(first, trace(venv, actions), strict=True):
        np.testing.assert_array_equal(one, again)
    for one, again in zip(other, trace(venv, actions), strict=True):
        np.testing.assert_array_equal(
            one, again
        )  # nor does what it goes on with depend on the past


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_a_seed_that_is_none_is_refused_at_once(seed):
    venv = JaxVecEnv(vectorize(counter(), 1))
    with pytest.raises((ValueError, TypeError)):
        venv.seed(seed)
    assert venv.reset().shape == (1, 3)


def test_options_reach_the_reset_of_each_environment_once():
    venv = JaxVecEnv(vectorize(counter(), 3))
    unset = venv.reset()[:, 1]
    venv.set_options({"start": 5})
    assert venv.reset()[:, 1].tolist() == [5, 5, 5]
    assert 5 not in venv.reset()[:, 1]
    venv.set_options([{"start": 7}, {}, {"start": 9}])
    starts = venv.reset()[:, 1]
    assert starts[[0, 2]].tolist() == [7, 9]
    assert starts[1] not in (7, 9, *unset)


def test_options_of_several_kinds_serve_for_the_first_reset():
    plain, venv = (JaxVecEnv(vectorize(counter(), 3)) for _ in range(2))
    venv.set_options([{}, {"start": 7}, {"start": 9}])
    assert venv.reset()[:, 1].tolist() == [plain.reset()[0, 1], 7, 9]


def test_options_that_a_compiled_reset_cannot_take_are_refused():
    venv = JaxVecEnv(vectorize(counter(), 2))
    venv.set_options({"start": "left"})
    with pytest.raises(TypeError, match=r"'start'.*left.*numbers"):
        venv.reset()
    venv.set_options([{"start": 1}])
    with pytest.raises(IndexError, match="1 environments, but there are 2"):
        venv.reset()
    takes_none = counter()._replace(reset=lambda key, params: counter().reset(key, params))
    venv = JaxVecEnv(vectorize(takes_none, 2))
    venv.set_options({"start": 1})
    with pytest.raises(ValueError, match="takes none"):
        venv.reset()


def test_some_rows_are_reset_and_the_others_stay():
    venv = JaxVecEnv(vectorize(counter(), 4))
    venv.reset()
    before = venv.step(np.zeros(4, int))[0].copy()
    venv.seed(20)
    obs = venv.reset([1, -1])
    np.testing.assert_array_equal(obs[[0, 2]], before[[0, 2]])
    assert obs[[1, 3], 0].tolist() == [0, 0]
    assert obs[1, 1] != before[1, 1]
    assert venv._seeds == [20, None, 22, None]
    np.testing.assert_array_equal(venv.reset(slice(0, 0)), obs)
    after = venv.step(np.zeros(4, int))[0]
    assert after[:, 0].tolist() == [2, 1, 2, 1]
    fresh = JaxVecEnv(vectorize(counter(), 1))
    fresh.seed(21)
    assert fresh.reset()[0, 1] == obs[1, 1]


BOX = spaces.Box(-1, 1, (2,), np.float32)
REFUSED = [
    (spaces.Discrete(2), [0, 1, 2], ValueError, "2 for environment 2"),
    (spaces.Discrete(2, start=-1), [0, -2, 0], ValueError, "-2 for environment 1"),
    (spaces.Discrete(2), [2**40, 0, 0], ValueError, "1099511627776"),
    (spaces.Discrete(2), [0.0, 1.0, 0.0], TypeError, "float64"),
    (spaces.Discrete(2), [True, True, False], TypeError, "bool"),
    (spaces.Discrete(2), [0, 1], ValueError, r"\(2,\).*3 environments"),
    (spaces.Discrete(2), [[0], [1], [1]], ValueError, r"\(3, 1\)"),
    (spaces.Discrete(2), 1, ValueError, r"shape \(\)"),
    (spaces.MultiDiscrete([2, 3]), [[1, 2], [0, 3], [0, 0]], ValueError, "3 for environment 1"),
    (spaces.MultiBinary(2), [[1, 0], [0, 2], [0, 0]], ValueError, "2 for environment 1"),
    (BOX, np.full((3, 2), np.nan, np.float32), ValueError, "nan for environment 0"),
    (BOX, [[0, 0], [0, 0], [np.inf, 0]], ValueError, "inf for environment 2"),
    (BOX, np.zeros((3, 1), np.float32), ValueError, r"\(3, 1\)"),
    (BOX, np.full((3, 2), 1e-50), ValueError, "1e-50.*float32 cannot hold"),
    (BOX, np.full((3, 2), 1e50), ValueError, "float32 cannot hold"),
    (BOX, np.full((3, 2), 0.1), UserWarning, "rounded to float32"),
    (BOX, np.full((3, 2), "left"), TypeError, "left"),
    (spaces.Dict(a=BOX), {"b": np.zeros((3, 2))}, ValueError, r"\['b'\].*\['a'\]"),
    (spaces.Dict(a=BOX), {"a": np.full((3, 2), np.nan)}, ValueError, r"actions\['a'\] has nan"),
    (spaces.Tuple([BOX]), (np.zeros(3),), ValueError, r"actions\[0\] have shape"),
]


@pytest.mark.parametrize(("space", "actions", "error", "words"), REFUSED)
def test_wrong_actions_are_refused_before_anything_is_stepped(space, actions, error, words):
    venv = counter_of(str(space), lambda: space)
    obs = venv.reset()
    with pytest.raises(error, match=words):
        venv.step_async(actions)
    assert not venv.waiting
    np.testing.assert_array_equal(venv.reset([]), obs)  # the observations of now


def counter_of(name, space, made={}):  # noqa: B006  compiled once for each space
    """Returns three counters whose actions are of a space and do nothing."""
    if name not in made:
        env = counter()._replace(action_space=space(), step=still)
        made[name] = JaxVecEnv(vectorize(env, 3))
        right = jax.tree.map(lambda *rows: np.stack(rows), *[space().sample() for _ in range(3)])
        made[name].reset()
        assert made[name].step(right)[0][:, 0].tolist() == [1, 1, 1]
    return made[name]


def still(key, state, action, params):
    """The counter's step, for actions of any kind."""
    return counter().step(key, state, 0, params)


ACCEPTED = [
    (spaces.Discrete(2), [0, 1, 1]),
    (spaces.Discrete(2), np.array([0, 1, 1], np.uint8)),
    (spaces.MultiBinary(2), np.ones((3, 2), bool)),
    (BOX, np.full((3, 2), 0.5)),
    (BOX, np.full((3, 2), 1e30, np.float32)),  # finite, though its square is not
    (BOX, np.zeros((3, 2), int)),
    (spaces.Box(-5, 5, (1,), np.int32), [[5], [-5], [0]]),
    (spaces.Dict(b=BOX, a=spaces.Discrete(3)), {"a": [0, 1, 2], "b": np.zeros((3, 2))}),
    (spaces.Tuple([BOX, spaces.Discrete(3)]), (np.zeros((3, 2)), [0, 1, 2])),
]


@pytest.mark.parametrize(("space", "actions"), ACCEPTED)
def test_actions_that_lose_nothing_on_the_way_are_taken(space, actions):
    def echo(key, state, action, params):
        state, obs, *rest, _ = counter().step(key, state, 0, params)
        return state, obs, *rest, {"action": action}

    def reset(key, params):
        state, obs, _ = counter().reset(key, params)
        return state, obs, {"action": jax.tree.map(jnp.zeros_like, example)}

    example = jax.tree.map(
        lambda leaf: jnp.asarray(leaf).astype(jax.dtypes.canonicalize_dtype(leaf.dtype)),
        space.sample(),
    )
    record = {"step": echo, "reset": reset, "action_space": space}
    venv = JaxVecEnv(vectorize(counter()._replace(**record), 3), info_keys=["action"])
    venv.reset()
    for row, info in enumerate(venv.step(actions)[3]):
        wanted = jax.tree.map(
            lambda each, row=row: each[row], actions, is_leaf=lambda x: isinstance(x, list)
        )
        jax.tree.map(np.testing.assert_array_equal, info["action"], wanted)


def test_actions_may_be_written_into_once_they_are_sent():
    venv = JaxVecEnv(vectorize(counter(), 2), info_keys=["action"])
    venv.reset()
    actions = np.array([0, 0], np.int32)
    venv.step_async(actions)
    actions[:] = TERMINATE
    assert venv.step_wait()[2].tolist() == [False, False]


def test_a_reset_that_is_refused_loses_no_step():
    venv = JaxVecEnv(vectorize(counter(), 2))
    venv.reset()
    venv.step_async(np.zeros(2, int))
    with pytest.raises(AlreadyPendingError, match="Nothing was reset"):
        venv.reset([1])
    venv.set_options([{}])
    with pytest.raises(IndexError):
        venv.reset()
    assert venv.step_wait()[0].shape[0] == 2
    venv.set_options(None)
    venv.step_async(np.zeros(2, int))
    venv.reset([0, 1])
    assert not venv.waiting


def test_a_reset_of_no_rows_hands_out_a_copy():
    venv = JaxVecEnv(vectorize(counter(), 2))
    seen = venv.reset()
    venv.reset([])[:] = 7
    np.testing.assert_array_equal(venv.reset([]), seen)


def test_what_is_read_before_the_first_reset_is_no_reset():
    venv = JaxVecEnv(vectorize(draws(SPACES["box"]), 2), info_keys=("draw",))
    assert len(venv.get_attr("state")) == 2
    assert venv.reset_infos == [{}, {}]
    with pytest.raises(RuntimeError, match="call reset"):
        venv.step(np.zeros(2, int))


def test_a_step_is_started_once_and_finished_once():
    venv = JaxVecEnv(vectorize(counter(), 2))
    with pytest.raises(RuntimeError, match="call reset"):
        venv.step(np.zeros(2, int))
    first = venv.reset()
    with pytest.raises(NotPendingError, match="step_async"):
        venv.step_wait()
    venv.step_async(np.zeros(2, int))
    assert venv.waiting
    with pytest.raises(AlreadyPendingError, match="step_wait"):
        venv.step_async(np.zeros(2, int))
    obs, *_ = venv.step_wait()
    assert obs[:, 0].tolist() == [1, 1]
    venv.step_async(np.zeros(2, int))
    again = venv.reset()
    assert not venv.waiting
    assert again[:, 0].tolist() == [0, 0]
    assert not np.array_equal(again, first)
    venv.close()
    venv.close()
    for use in (venv.reset, lambda: venv.step(np.zeros(2, int))):
        with pytest.raises(ClosedError, match="closed"):
            use()


def test_what_it_cannot_be_made_of_is_refused():
    with pytest.raises(TypeError, match="vectorize"):
        JaxVecEnv(counter())
    for mode in ("NextStep", "Disabled"):
        with pytest.raises(ValueError, match="SameStep"):
            JaxVecEnv(vectorize(counter(), 2, autoreset_mode=mode))
    with pytest.raises(KeyError, match=r"'speed'.*\['t', 'start', 'action'\]|'speed'"):
        JaxVecEnv(vectorize(counter(), 2), info_keys=["speed"])
    with pytest.raises(ValueError, match="output='list'"):
        JaxVecEnv(vectorize(counter(), 2), output="list")


def test_it_is_a_vec_env_and_columns_are_numpys():
    venv = JaxVecEnv(vectorize(draws(SPACES["dict"]), 3), info_keys=["draw"])
    assert isinstance(venv, VecEnv)
    timestep = venv.reset_arrays()
    assert timestep.first.all()
    for _ in range(LIMIT):
        timestep = venv.step_arrays(np.zeros(3, int))
        leaves = jax.tree.leaves(timestep)
        assert all(type(leaf) is np.ndarray for leaf in leaves)
    ended = np.flatnonzero(timestep.done)
    assert len(ended)
    np.testing.assert_array_equal(timestep.final_rows, ended)
    assert timestep.final_obs["speed"].shape == (len(ended), 2)


def test_jax_arrays_stay_on_the_device():
    env = vectorize(make("CartPole-v1"), 4)
    host, device = JaxVecEnv(env), JaxVecEnv(env, output="jax")
    np.testing.assert_array_equal(host.reset(), device.reset())
    for actions in random_actions(env.spec.action_space, 60, 4):
        expected, given = host.step(actions), device.step(jnp.asarray(actions))
        assert all(isinstance(each, jax.Array) for each in given[:3])
        for one, other in zip(expected[:3], given[:3], strict=True):
            np.testing.assert_array_equal(one, other)
        for info, other in zip(expected[3], given[3], strict=True):
            assert info.keys() == other.keys()
    partly = device.reset([0])
    assert isinstance(partly, jax.Array)
    np.testing.assert_array_equal(partly[1:], given[0][1:])


def test_torch_tensors_share_the_devices_memory():
    torch = pytest.importorskip("torch")
    env = vectorize(make("CartPole-v1"), 4)
    host, venv = JaxVecEnv(env), JaxVecEnv(env, output="torch")
    assert torch.equal(venv.reset(), torch.as_tensor(host.reset()))
    actions = random_actions(env.spec.action_space, 60, 4)
    for each in actions:
        expected, given = host.step(each), venv.step(torch.as_tensor(each))
        for one, other in zip(expected[:3], given[:3], strict=True):
            assert torch.equal(torch.as_tensor(one), other)
        given[0][:] = 0
        given[1][:] = 0


def test_nothing_is_compiled_after_the_second_reset():
    traced = []

    def noting(name):
        def function(*arguments):
            traced.append(name)
            return getattr(env, name)(*arguments)

        return function

    env = vectorize(counter(), 4)
    names = ("reset", "reset_rows", "step")
    venv = JaxVecEnv(env._replace(**{name: noting(name) for name in names}))
    venv.reset()
    venv.reset()
    venv.step(np.zeros(4, int))
    assert sorted(traced) == sorted(names)
    for round_ in range(3):
        venv.seed(round_)
        venv.reset()
        for _ in range(4):
            venv.step(np.full(4, round_))
    assert len(traced) == 3
