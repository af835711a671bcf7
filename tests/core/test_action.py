"""Actions on their way down: clipping and rescaling against gymnasium's wrappers, stickiness by hand."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import ClipAction, RescaleAction

from jaxvec.core._action import clip_action, rescale_action, sticky_action
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.random import key_words, uniform_rows

BACKENDS = ("numpy", "jax")
OBS = spaces.Box(-1, 1, (1,), np.float32)
BOX = spaces.Box(np.array([-2.0, 0.1], np.float32), np.array([3.0, 0.3], np.float32))


def put(x, backend):
    return np.asarray(x) if backend == "numpy" else jnp.asarray(x)


def send(layer, space, actions, backend, keys=None):
    """Sends one batch of actions down."""
    state = layer.init(VecSpec(len(actions), OBS, space, backend=backend), keys)
    after, out = layer.action(state, put(actions, backend))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert isinstance(out, np.ndarray) == (backend == "numpy")
    return out


class Echo(gymnasium.Env):
    """Notes the action that arrives; for gymnasium's wrappers as the oracle."""

    observation_space = OBS

    def __init__(self, action_space):
        self.action_space = action_space

    def step(self, action):
        self.seen = action
        return np.zeros(1, np.float32), 0.0, False, False, {}


def gymnasium_sends(wrapper, actions):
    seen = []
    for action in actions:
        wrapper.step(action)
        seen.append(wrapper.unwrapped.seen)
    return np.stack(seen)


@pytest.mark.parametrize("backend", BACKENDS)
class TestClipAction:
    @pytest.mark.parametrize(
        "space",
        [
            BOX,
            spaces.Box(-1, 1, (2,), np.float16),
            spaces.Box(np.float32([-np.inf, 0]), np.float32([1, np.inf])),
        ],
        ids=["finite", "float16", "half"],
    )
    def test_actions_and_space_are_those_of_gymnasium(self, backend, space):
        actions = np.array([[5, 5], [-5, -5], [0.5, 0.25]], space.dtype)
        wrapper = ClipAction(Echo(space))
        out = send(clip_action(), space, actions, backend)
        assert out.dtype == space.dtype
        np.testing.assert_array_equal(out, gymnasium_sends(wrapper, actions))
        spec = VecSpec(3, OBS, space, backend=backend)
        assert clip_action().spec(spec).action_space == wrapper.action_space
        assert clip_action().spec(spec).observation_space == OBS

    def test_whole_numbers_are_clipped_as_whole_numbers(self, backend):
        space = spaces.Box(-2, 3, (1,), np.int32)
        out = send(clip_action(), space, np.array([[-9], [1], [9]], np.int32), backend)
        assert out.dtype == np.int32
        np.testing.assert_array_equal(out, [[-2], [1], [3]])
        unsigned = spaces.Box(1, 3, (1,), np.uint8)
        spec = VecSpec(1, OBS, unsigned, backend=backend)
        assert clip_action().spec(spec).action_space == spaces.Box(0, 255, (1,), np.uint8)

    def test_nan_passes_and_infinity_is_clipped(self, backend):
        actions = np.array([[np.nan, np.inf], [-np.inf, np.nan]], np.float32)
        out = send(clip_action(), BOX, actions, backend)
        np.testing.assert_array_equal(out, np.float32([[np.nan, 0.3], [-2, np.nan]]))

    def test_actions_of_another_kind_are_cast_or_refused(self, backend):
        out = send(clip_action(), BOX, np.array([[1, 1]], np.int32), backend)
        assert out.dtype == np.float32
        space = spaces.Box(-2, 3, (1,), np.int32)
        with pytest.raises(TypeError, match="Round them"):
            send(clip_action(), space, np.array([[0.5]], np.float32), backend)

    def test_what_is_no_box_is_refused_before_anything_runs(self, backend):
        spec = VecSpec(2, OBS, spaces.Discrete(3), backend=backend)
        for function in (clip_action().spec, lambda s: clip_action().init(s, None)):
            with pytest.raises(TypeError, match=r"clip_action: .*Discrete\(3\)"):
                function(spec)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", [clip_action, rescale_action], ids=["clip", "rescale"])
def test_actions_that_would_broadcast_are_refused(make, backend):
    layer = make()
    state = layer.init(VecSpec(2, OBS, BOX, backend=backend), None)
    for shape in ((2,), (2, 1), (2, 2, 2), ()):
        with pytest.raises(ValueError, match=r"pass \[N, \*action\]"):
            layer.action(state, put(np.zeros(shape, np.float32), backend))
    with pytest.raises(TypeError, match="dict"):
        layer.action(state, {"a": put(np.zeros((2, 2), np.float32), backend)})


@pytest.mark.parametrize("backend", BACKENDS)
class TestRescaleAction:
    @pytest.mark.parametrize(
        ("low", "high"), [(-1.0, 1.0), (0.0, 49.0), (np.array([-1, 0]), np.array([0.5, 9]))]
    )
    def test_actions_and_space_are_those_of_gymnasium(self, backend, low, high):
        low32, high32 = (np.broadcast_to(x, BOX.shape).astype(np.float32) for x in (low, high))
        fractions = np.random.default_rng(0).random((50, 2), np.float32)
        actions = (low32 + fractions * (high32 - low32)).astype(np.float32)
        wrapper = RescaleAction(Echo(BOX), low32, high32)
        layer = rescale_action(low, high)
        out = send(layer, BOX, actions, backend)
        assert out.dtype == np.float32
        np.testing.assert_allclose(out, gymnasium_sends(wrapper, actions), rtol=1e-5, atol=1e-6)
        spec = layer.spec(VecSpec(2, OBS, BOX, backend=backend))
        assert spec.action_space == spaces.Box(low32, high32)

    @pytest.mark.parametrize("high", [1.0, 41.0, 0.1])
    def test_the_ends_are_met_exactly_and_what_lies_outside_is_clipped(self, backend, high):
        layer = rescale_action(0.0, high)
        state = layer.init(VecSpec(4, OBS, BOX, backend=backend), None)
        ends = np.float32([[0, high], [high, 0], [2e38, -2e38], [-np.inf, np.inf]])
        action = layer.action if backend == "numpy" else jax.jit(layer.action)
        _, out = action(state, put(ends, backend))
        low, top = BOX.low, BOX.high
        expected = [[low[0], top[1]], [top[0], low[1]], [top[0], low[1]], [low[0], top[1]]]
        np.testing.assert_array_equal(out, expected)

    def test_nan_passes_and_wide_bounds_do_not_overflow(self, backend):
        space = spaces.Box(-3e38, 3e38, (2,), np.float32)
        out = send(rescale_action(), space, np.float32([[np.nan, 0.0], [0.5, 1.0]]), backend)
        assert np.isnan(out[0, 0])
        assert out[0, 1] == 0
        np.testing.assert_allclose(out[1], [1.5e38, 3e38], rtol=1e-6)

    @pytest.mark.parametrize(
        ("space", "error", "message"),
        [
            (spaces.Discrete(3), TypeError, "only a Box"),
            (spaces.Box(0, 5, (2,), np.int32), TypeError, "whole numbers"),
            (spaces.Box(-np.inf, 1, (2,), np.float32), ValueError, "not bounded"),
            (spaces.Box(0, 1, (3,), np.float32), ValueError, r"shape \(2,\)"),
        ],
        ids=["discrete", "whole", "unbounded", "shape"],
    )
    def test_spaces_that_cannot_be_scaled_to_are_refused(self, backend, space, error, message):
        layer = rescale_action(np.float32([-1, -1]), 1.0)
        for function in (layer.spec, lambda s: layer.init(s, None)):
            with pytest.raises(error, match=message):
                function(VecSpec(2, OBS, space, backend=backend))


@pytest.mark.parametrize(
    ("low", "high"), [(1, -1), (0, 0), (-np.inf, 1), (0, np.nan), ([0, 1], [1, 1])]
)
def test_bounds_that_hold_nothing_are_refused(low, high):
    with pytest.raises(ValueError, match="low below high"):
        rescale_action(low, high)


def test_bounds_that_are_one_number_in_the_dtype_of_the_space_are_refused():
    with pytest.raises(ValueError, match="same float32"):
        rescale_action(1.0, 1.0 + 1e-12).spec(VecSpec(1, OBS, BOX))


def timestep(backend, first, valid=None):
    n = len(first)
    no = np.zeros(n, bool)
    valid = np.ones(n, bool) if valid is None else np.array(valid, bool)
    step = Timestep(np.zeros((n, 1), np.float32), np.zeros(n, np.float32), no, no, valid, no)
    step = step._replace(first=np.array(first, bool))
    return step if backend == "numpy" else jax.tree.map(jnp.asarray, step)


def row_keys(num, seed=0):
    return np.random.default_rng(seed).integers(0, 2**32, (num, 2), dtype=np.uint32)


def sticky_play(layer: Transform, backend, space, actions, firsts):
    """Returns the executed actions of an episode stream."""
    num = len(actions[0])
    state = layer.init(VecSpec(num, OBS, space, backend=backend), row_keys(num))
    kinds = jax.tree.map(lambda x: jax.typeof(jnp.asarray(x)), state)
    state, _ = layer.reset(state, timestep(backend, [True] * num), None)
    executed = []
    for action, first in zip(actions, firsts, strict=True):
        state, out = layer.action(state, put(action, backend))
        state, _ = layer.update(state, timestep(backend, first))
        assert jax.tree.map(lambda x: jax.typeof(jnp.asarray(x)), state) == kinds
        executed.append(np.asarray(out))
    return np.array(executed)


@pytest.mark.parametrize("backend", BACKENDS)
class TestStickyAction:
    def test_with_probability_one_an_episode_repeats_its_first_action(self, backend):
        actions = np.arange(10).reshape(5, 2)
        # Row 1 opens a new episode after its second step.
        firsts = [[False, False], [False, True], [False, False], [False, False], [False, False]]
        executed = sticky_play(sticky_action(1.0), backend, spaces.Discrete(10), actions, firsts)
        np.testing.assert_array_equal(executed, [[0, 1], [0, 1], [0, 5], [0, 5], [0, 5]])

    def test_with_probability_zero_every_action_is_executed(self, backend):
        actions = np.arange(10).reshape(5, 2)
        firsts = np.zeros((5, 2), bool)
        executed = sticky_play(sticky_action(0.0), backend, spaces.Discrete(10), actions, firsts)
        np.testing.assert_array_equal(executed, actions)

    def test_a_repeated_action_is_the_one_executed_last(self, backend):
        """Each step executes the new action, or what the step before has executed."""
        steps, rows = 40, 50
        actions = np.arange(steps * rows).reshape(steps, rows)
        firsts = np.zeros((steps, rows), bool)
        space = spaces.Discrete(steps * rows)
        executed = sticky_play(sticky_action(0.25), backend, space, actions, firsts)
        new = executed == actions
        before = np.vstack([actions[:1], executed[:-1]])
        assert (new | (executed == before)).all()
        assert new[0].all()
        # 1950 draws of probability 0.25: five standard deviations are 0.049.
        assert abs((~new[1:]).mean() - 0.25) < 0.049
        # Rows and steps differ: no row is another one's copy, no step repeats everywhere.
        assert len(np.unique(new, axis=1).T) == rows
        assert (~new[1:]).sum(1).min() > 0
        assert (~new[1:]).sum(1).max() < rows

    @pytest.mark.parametrize(
        "space",
        [
            BOX,
            spaces.Box(-1, 1, (2, 3), np.float16),
            spaces.MultiDiscrete([3, 4]),
            spaces.MultiBinary(3),
        ],
        ids=["box", "matrix", "multi_discrete", "multi_binary"],
    )
    def test_whole_rows_of_any_array_of_actions_are_kept(self, backend, space):
        space.seed(0)
        actions = np.stack([np.stack([space.sample() for _ in range(3)]) for _ in range(2)])
        firsts = np.zeros((2, 3), bool)
        executed = sticky_play(sticky_action(1.0), backend, space, actions, firsts)
        np.testing.assert_array_equal(executed, np.stack([actions[0]] * 2))

    def test_a_partial_reset_frees_only_its_rows_and_rewinds_no_draws(self, backend):
        layer = sticky_action(1.0)
        state = layer.init(VecSpec(3, OBS, spaces.Discrete(9), backend=backend), row_keys(3))
        state, _ = layer.action(state, put([1, 2, 3], backend))
        state, _ = layer.update(state, timestep(backend, [False] * 3))
        mask = put([False, True, False], backend)
        state, _ = layer.reset(state, timestep(backend, [False, True, False]), mask)
        assert np.asarray(state.draws).tolist() == [1, 1, 1]
        _, out = layer.action(state, put([4, 5, 6], backend))
        assert np.asarray(out).tolist() == [1, 5, 3]

    def test_the_rows_reset_by_next_step_start_afresh(self, backend):
        layer = sticky_action(1.0)
        state = layer.init(VecSpec(1, OBS, spaces.Discrete(9), backend=backend), row_keys(1))
        seen = []
        # (valid, first): a step that ends, the reset that ignores its action, two steps.
        for action, valid, first in [(1, 1, 0), (2, 0, 1), (3, 1, 0), (4, 1, 0)]:
            state, out = layer.action(state, put([action], backend))
            state, _ = layer.update(state, timestep(backend, [first], [valid]))
            seen.append(int(out[0]))
        assert seen[2:] == [3, 3]

    def test_a_row_draws_the_same_whatever_the_number_of_rows(self, backend):
        actions = np.arange(60).reshape(20, 3)
        firsts = np.zeros((20, 3), bool)
        space, layer = spaces.Discrete(60), sticky_action(0.5)
        many = sticky_play(layer, backend, space, actions, firsts)
        few = sticky_play(layer, backend, space, actions[:, :2], firsts[:, :2])
        np.testing.assert_array_equal(many[:, :2], few)

    def test_keys_are_needed_one_for_each_row(self, backend):
        spec = VecSpec(3, OBS, spaces.Discrete(9), backend=backend)
        with pytest.raises(ValueError, match="no keys"):
            sticky_action(0.5).init(spec, None)
        with pytest.raises(ValueError, match="one key per environment"):
            sticky_action(0.5).init(spec, row_keys(2))

    def test_actions_that_are_no_single_array_are_refused(self, backend):
        for space in (spaces.Dict({"a": BOX}), spaces.Tuple([BOX])):
            with pytest.raises(TypeError, match="not supported"):
                sticky_action(0.5).spec(VecSpec(3, OBS, space, backend=backend))
        layer = sticky_action(0.5)
        state = layer.init(VecSpec(3, OBS, spaces.Discrete(9), backend=backend), row_keys(3))
        with pytest.raises(ValueError, match="1 actions came for 3"):
            layer.action(state, put([1], backend))
        with pytest.raises(TypeError, match="Round them"):
            layer.action(state, put(np.float32([1, 2, 3]), backend))


def test_numpy_and_compiled_jax_draw_the_same():
    layer = sticky_action(0.4)
    actions = np.arange(400).reshape(20, 20)
    firsts = np.random.default_rng(1).random((20, 20)) < 0.1
    host = sticky_play(layer, "numpy", spaces.Discrete(400), actions, firsts)

    def body(state, inputs):
        action, first = inputs
        state, out = layer.action(state, action)
        state, _ = layer.update(state, timestep("jax", [False] * 20)._replace(first=first))
        return state, out

    state = layer.init(VecSpec(20, OBS, spaces.Discrete(400)), row_keys(20))
    _, device = jax.lax.scan(body, state, (jnp.asarray(actions), jnp.asarray(firsts)))
    np.testing.assert_array_equal(host, device)


@pytest.mark.parametrize("probability", [-0.1, 1.1, np.nan, "0.5", None, [0.5]])
def test_a_probability_lies_between_0_and_1(probability):
    with pytest.raises(ValueError, match=r"probability=.* a number from 0 to 1"):
        sticky_action(probability)


def test_typed_keys_and_their_words_draw_the_same():
    keys = jax.random.split(jax.random.key(3), 4)
    spec = VecSpec(4, OBS, spaces.Discrete(9))
    typed = sticky_action(0.5).init(spec, keys).words
    raw = sticky_action(0.5).init(spec, np.asarray(key_words(keys))).words
    np.testing.assert_array_equal(typed, raw)
    assert uniform_rows(typed, jnp.zeros(4, jnp.uint32), 1).shape == (4,)
