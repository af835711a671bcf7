"""Appended columns: the last action and the time, in all three autoreset modes, by hand-computed values.

The rows of one batch play the modes: row 0 as in SAME_STEP, row 1 as in NEXT_STEP, row 2 as in DISABLED.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.core._append import append_last_action, time_fraction
from jaxvec.core._transform import Timestep, VecSpec

BACKENDS = ("numpy", "jax")
N = 3
VECTOR = spaces.Box(-1.0, 2.0, (1,), np.float32)
ACTION = spaces.Box(-0.5, 1.0, (1,), np.float32)

# (action, terminated, valid, first) of rows 0, 1, 2, for four steps.
STEPS = [
    ([0.1, 0.1, 0.1], [0, 0, 1], [1, 1, 1], [0, 0, 0]),
    ([0.2, 0.2, 0.9], [1, 1, 0], [1, 1, 0], [1, 0, 0]),
    ([0.3, 0.9, 0.9], [0, 0, 0], [1, 0, 0], [0, 1, 0]),
    ([0.4, 0.4, 0.9], [0, 0, 0], [1, 1, 0], [0, 0, 0]),
]
LAST_ACTION = [[0.1, 0.1, 0.1], [0.0, 0.2, 0.1], [0.3, 0.0, 0.1], [0.4, 0.4, 0.1]]
FINAL_ACTION = [{2: 0.1}, {0: 0.2, 1: 0.2}, {}, {}]
AGE = [[1, 1, 1], [0, 2, 1], [1, 0, 1], [2, 1, 1]]
FINAL_AGE = [{2: 1}, {0: 2, 1: 2}, {}, {}]


def put(tree, backend):
    return tree if backend == "numpy" else jax.tree.map(jnp.asarray, tree)


def timestep(backend, obs, terminated=(0, 0, 0), valid=(0, 0, 0), first=(1, 1, 1)):
    """Returns a step whose final observations are 7; NumPy holds those of the ended rows only."""
    ended = np.array(terminated, bool)
    final, rows = jax.tree.map(lambda x: np.full_like(x, 7), obs), None
    if backend == "numpy":
        rows = np.flatnonzero(ended)
        final = jax.tree.map(lambda x: x[rows], final) if rows.size else None
        rows = rows if rows.size else None
    step = Timestep(
        obs=obs,
        reward=np.zeros(N, np.float32),
        terminated=ended,
        truncated=np.zeros(N, bool),
        valid=np.array(valid, bool),
        first=np.array(first, bool),
        final_obs=final,
    )
    return put(step, backend)._replace(final_rows=rows)


def final_row(step, row):
    """Returns one row of a dense or sparse final observation."""
    at = row if step.final_rows is None else list(step.final_rows).index(row)
    return np.asarray(step.final_obs[at])


def avals(tree):
    return jax.tree.map(lambda x: jax.typeof(jnp.asarray(x)), tree)


def play(layer, backend, obs, action_space=ACTION):
    """Yields the four steps above a layer; the state's avals must stand still."""
    spec = VecSpec(N, VECTOR, action_space, backend=backend)
    state = layer.init(spec, None)
    kinds = avals(state)
    state, _ = layer.reset(state, timestep(backend, obs), None)
    assert avals(state) == kinds
    for action, terminated, valid, first in STEPS:
        action = put(np.array(action, np.float32)[:, None], backend)
        state, sent = layer.action(state, action)
        assert sent is action
        state, step = layer.update(state, timestep(backend, obs, terminated, valid, first))
        assert avals(state) == kinds
        yield step


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("layer", "columns", "finals", "unit"),
    [
        (append_last_action(), LAST_ACTION, FINAL_ACTION, 1),
        (time_fraction(4), AGE, FINAL_AGE, 4),
    ],
    ids=["action", "time"],
)
def test_the_column_of_every_mode_is_the_one_computed_by_hand(
    backend, layer, columns, finals, unit
):
    obs = np.full((N, 1), 5, np.float32)
    steps = list(play(layer, backend, obs))
    for step, column, ended in zip(steps, columns, finals, strict=True):
        assert step.obs.dtype == np.float32
        np.testing.assert_array_equal(step.obs[:, 0], 5)
        np.testing.assert_array_equal(step.obs[:, 1], np.float32(column) / np.float32(unit))
        if backend == "numpy":
            assert (step.final_obs is None) == (not ended)
        for row, value in ended.items():
            np.testing.assert_array_equal(final_row(step, row), np.float32([7, value / unit]))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("layer", "value"), [(append_last_action(), 0.3), (time_fraction(4), 0.25)]
)
def test_a_partial_reset_leaves_the_other_rows_alone(backend, layer, value):
    obs = np.zeros((N, 1), np.float32)
    spec = VecSpec(N, VECTOR, ACTION, backend=backend)
    state, _ = layer.reset(layer.init(spec, None), timestep(backend, obs), None)
    state, _ = layer.action(state, put(np.full((N, 1), 0.3, np.float32), backend))
    state, _ = layer.update(state, timestep(backend, obs, valid=[1] * 3, first=[0] * 3))
    mask = put(np.array([False, True, False]), backend)
    state, step = layer.reset(state, timestep(backend, obs, first=[0, 1, 0]), mask)
    assert float(step.obs[1, 1]) == 0.0
    still = timestep(backend, obs, valid=[0, 0, 0], first=[0, 0, 0])
    _, step = layer.update(state, still)
    np.testing.assert_array_equal(step.obs[:, 1], np.float32([value, 0, value]))
    _, step = layer.reset(state, timestep(backend, obs), None)
    np.testing.assert_array_equal(step.obs[:, 1], [0, 0, 0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("space", "actions", "flat"),
    [
        (spaces.Discrete(3, start=5), [5, 7, 6], [[1, 0, 0], [0, 0, 1], [0, 1, 0]]),
        (
            spaces.MultiDiscrete([2, 3], start=[0, 10]),
            [[0, 10], [1, 12], [1, 11]],
            [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 1, 0]],
        ),
        (spaces.MultiBinary(2), [[0, 1], [1, 1], [0, 0]], [[0, 1], [1, 1], [0, 0]]),
        (
            spaces.Box(-4, 4, (2, 1), np.float32),
            [[[1], [2]], [[3], [-4]], [[0], [0.5]]],
            [[1, 2], [3, -4], [0, 0.5]],
        ),
    ],
    ids=["discrete", "multi_discrete", "multi_binary", "box"],
)
def test_actions_of_every_kind_become_flat_float32_columns(backend, space, actions, flat):
    layer = append_last_action()
    obs_space = spaces.Dict({"a": VECTOR})
    spec = VecSpec(N, obs_space, space, backend=backend)
    obs = {"a": np.zeros((N, 1), np.float32)}
    state, _ = layer.action(layer.init(spec, None), put(np.array(actions), backend))
    _, step = layer.update(state, timestep(backend, obs, valid=[1] * 3, first=[0] * 3))
    assert step.obs["last_action"].dtype == np.float32
    np.testing.assert_array_equal(step.obs["last_action"], flat)
    column = layer.spec(spec).observation_space["last_action"]
    for row in np.asarray(step.obs["last_action"]):
        assert column.contains(row)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("layer", "name"), [(append_last_action(), "last_action"), (time_fraction(9), "time_fraction")]
)
class TestSpaces:
    def column(self, name):
        low, high = (-0.5, 1.0) if name == "last_action" else (0.0, 1.0)
        return spaces.Box(low, high, (1,), np.float32)

    def test_a_dict_has_one_key_more(self, backend, layer, name):
        space = spaces.Dict({"x": VECTOR, "y": spaces.Discrete(3)})
        spec = layer.spec(VecSpec(N, space, ACTION, backend=backend))
        assert spec.observation_space == spaces.Dict({**space.spaces, name: self.column(name)})
        assert spec.action_space == ACTION
        obs = {"x": np.ones((N, 1), np.float32), "y": np.array([0, 1, 2])}
        step = list(play(layer, backend, obs))[1]
        assert set(step.obs) == set(step.final_obs) == {"x", "y", name}
        np.testing.assert_array_equal(step.obs["y"], obs["y"])
        assert step.obs[name].shape == (N, 1)
        assert set(obs) == {"x", "y"}

    def test_a_tuple_has_one_element_more(self, backend, layer, name):
        space = spaces.Tuple([VECTOR, spaces.Discrete(3)])
        spec = layer.spec(VecSpec(N, space, ACTION, backend=backend))
        assert spec.observation_space == spaces.Tuple([*space.spaces, self.column(name)])
        step = list(play(layer, backend, (np.ones((N, 1), np.float32), np.array([0, 1, 2]))))[1]
        assert len(step.obs) == len(step.final_obs) == 3
        assert step.obs[2].shape == (N, 1)

    @pytest.mark.parametrize(
        ("dtype", "out"),
        [(np.uint8, np.float32), (np.float16, np.float16), (np.int32, np.float32)],
    )
    def test_a_vector_gets_longer_and_is_floating(self, backend, layer, name, dtype, out):
        space = spaces.Box(0, 100, (2,), dtype)
        spec = layer.spec(VecSpec(N, space, ACTION, backend=backend))
        column = self.column(name)
        low, high = np.array([0, 0, column.low[0]], out), np.array([100, 100, 1], out)
        assert spec.observation_space == spaces.Box(low, high, dtype=out)
        step = list(play(layer, backend, np.full((N, 2), 99, dtype)))[1]
        assert step.obs.dtype == out
        assert step.final_obs.dtype == out
        np.testing.assert_array_equal(step.obs[:, :2], 99)

    def test_whole_numbers_without_bounds_become_floats_without_bounds(self, backend, layer, name):
        space = spaces.Box(-np.inf, np.inf, (1,), np.int32)
        box = layer.spec(VecSpec(N, space, ACTION, backend=backend)).observation_space
        assert (box.low[0], box.high[0]) == (-np.inf, np.inf)

    def test_an_image_and_a_key_that_is_taken_are_refused(self, backend, layer, name):
        image = spaces.Box(0, 255, (4, 4, 3), np.uint8)
        for space in (image, spaces.Discrete(3)):
            for function in (layer.spec, lambda s: layer.init(s, None)):
                with pytest.raises(TypeError, match="nothing can be appended"):
                    function(VecSpec(N, space, ACTION, backend=backend))
        taken = spaces.Dict({name: VECTOR})
        with pytest.raises(ValueError, match="already"):
            layer.spec(VecSpec(N, taken, ACTION, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_zeros_of_first_observations_lie_in_the_space_even_if_no_action_is_zero(backend):
    action = spaces.Box(np.array([1, -3], np.float32), np.array([2, -2], np.float32))
    spec = VecSpec(N, spaces.Tuple([]), action, backend=backend)
    column = append_last_action().spec(spec).observation_space[0]
    np.testing.assert_array_equal(column.low, [0, -3])
    np.testing.assert_array_equal(column.high, [2, 0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_actions_of_a_wrong_shape_and_action_spaces_without_numbers_are_refused(backend):
    layer = append_last_action()
    state = layer.init(VecSpec(N, VECTOR, ACTION, backend=backend), None)
    for shape in ((2, 1), (N, 2), ()):
        with pytest.raises(ValueError, match="3 environments"):
            layer.action(state, put(np.zeros(shape, np.float32), backend))
    spec = VecSpec(N, VECTOR, spaces.Dict({"a": ACTION}), backend=backend)
    with pytest.raises(TypeError, match="not supported"):
        layer.spec(spec)


@pytest.mark.parametrize("backend", BACKENDS)
def test_time_is_exactly_one_at_the_limit_and_stays_so_beyond(backend):
    layer = time_fraction(41)  # float32: 41 * (1 / 41) is below 1
    obs = np.zeros((N, 1), np.float32)
    state = layer.init(VecSpec(N, VECTOR, ACTION, backend=backend), None)
    update = layer.update if backend == "numpy" else jax.jit(layer.update)
    step = timestep(backend, obs, valid=[1] * 3, first=[0] * 3)
    seen = []
    for _ in range(43):
        state, out = update(state, step)
        seen.append(float(out.obs[0, 1]))
    np.testing.assert_allclose(seen[:40], np.arange(1, 41) / 41, rtol=1e-6)
    assert seen[40:] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("limit", [0, -3, 2.5, True, "5", None, 2**31])
def test_a_time_limit_is_a_positive_whole_number_that_int32_holds(limit):
    with pytest.raises(
        ValueError, match=r"time_fraction: max_episode_steps=.* whole number from 1"
    ):
        time_fraction(limit)


def test_the_remembered_action_is_a_copy_of_what_the_caller_may_overwrite():
    layer = append_last_action()
    state = layer.init(VecSpec(N, VECTOR, ACTION, backend="numpy"), None)
    action = np.full((N, 1), 0.5, np.float32)
    state, _ = layer.action(state, action)
    action[:] = 9
    obs = np.zeros((N, 1), np.float32)
    _, step = layer.update(state, timestep("numpy", obs, valid=[1] * 3, first=[0] * 3))
    np.testing.assert_array_equal(step.obs[:, 1], 0.5)
