"""Layers that give an observation another form: on every kind of space, NumPy and JAX, dense and sparse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.core._observation import (
    cast_observation,
    extract_key,
    flatten_observation,
    one_hot,
    transpose_image,
)
from jaxvec.core._transform import Timestep, VecSpec
from tests.modes import in_32_bits

BACKENDS = ("numpy", "jax")
N = 3
IMAGE = spaces.Box(0, 255, (4, 5, 2), np.uint8)
FIRST = spaces.Box(0, 255, (2, 4, 5), np.uint8)
VECTOR = spaces.Box(-1.0, 2.0, (3,), np.float32)
NESTED = spaces.Dict(
    {
        "camera": IMAGE,
        "pair": spaces.Tuple([spaces.Discrete(3, start=5), spaces.MultiBinary(2)]),
        "speed": VECTOR,
    }
)


def put(tree, backend):
    return tree if backend == "numpy" else jax.tree.map(jnp.asarray, tree)


def batch(space, seed=0, rows=N):
    """Returns `rows` samples of a space in columns, and the samples."""
    space.seed(seed)
    samples = [space.sample() for _ in range(rows)]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *samples), samples


def ended_timestep(obs, final, backend):
    """Returns a step in which row 1 of 3 ended; NumPy holds only that row of `final`."""
    flags = np.array([False, True, False])
    rows = np.array([1]) if backend == "numpy" else None
    if backend == "numpy":
        final = jax.tree.map(lambda x: x[1:2], final)
    step = Timestep(
        obs=obs,
        reward=np.zeros(N, np.float32),
        terminated=flags,
        truncated=np.zeros(N, bool),
        valid=np.ones(N, bool),
        first=flags,
        final_obs=final,
    )
    return put(step, backend)._replace(final_rows=rows)


def run(layer, space, backend, obs, final):
    """Returns the spec above a layer, and the step it makes of an ended row."""
    spec = VecSpec(N, space, spaces.Discrete(2), backend=backend)
    state = layer.init(spec, None)
    after, step = layer.update(state, ended_timestep(obs, final, backend))
    assert jax.tree.structure(after) == jax.tree.structure(state)
    return layer.spec(spec), step


def assert_tree_equal(left, right):
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def assert_rows_fit(space, tree, rows):
    for row in range(rows):
        one = jax.tree.map(lambda x, row=row: np.asarray(x[row]), tree)
        assert space.contains(one), f"{one} is not in {space}"


@pytest.mark.parametrize("backend", BACKENDS)
class TestTransposeImage:
    def test_an_image_has_its_channels_first_in_obs_and_final_obs(self, backend):
        obs, final = batch(IMAGE, 1)[0], batch(IMAGE, 2)[0]
        spec, step = run(transpose_image(), IMAGE, backend, obs, final)
        assert spec.observation_space == FIRST
        assert step.obs.shape == (N, 2, 4, 5)
        assert step.obs.dtype == np.uint8
        for channel in range(2):
            np.testing.assert_array_equal(step.obs[:, channel], obs[..., channel])
            ended = step.final_obs[0 if backend == "numpy" else 1]
            np.testing.assert_array_equal(ended[channel], final[1, ..., channel])

    def test_only_the_images_of_a_nested_dict_change(self, backend):
        obs, final = batch(NESTED, 1)[0], batch(NESTED, 2)[0]
        spec, step = run(transpose_image(), NESTED, backend, obs, final)
        expected = {**NESTED.spaces, "camera": FIRST}
        assert spec.observation_space == spaces.Dict(expected)
        np.testing.assert_array_equal(step.obs["camera"], np.moveaxis(obs["camera"], 3, 1))
        assert_tree_equal(step.obs["pair"], put(obs["pair"], backend))
        assert_tree_equal(step.obs["speed"], put(obs["speed"], backend))
        assert_rows_fit(spec.observation_space, step.final_obs, 1)

    def test_named_keys_and_tuple_indices_leave_other_images_alone(self, backend):
        both = spaces.Dict({"a": IMAGE, "b": IMAGE})
        spec, step = run(transpose_image(keys=["b"]), both, backend, *2 * [batch(both)[0]])
        assert spec.observation_space == spaces.Dict({"a": IMAGE, "b": FIRST})
        assert step.obs["a"].shape == (N, 4, 5, 2)
        assert step.obs["b"].shape == (N, 2, 4, 5)
        pair = spaces.Tuple([IMAGE, IMAGE])
        spec, step = run(transpose_image(keys=[0]), pair, backend, *2 * [batch(pair)[0]])
        assert spec.observation_space == spaces.Tuple([FIRST, IMAGE])
        assert step.final_obs[0].shape[1:] == (2, 4, 5)

    def test_skip_leaves_an_image_with_its_channels_first_as_it_is(self, backend):
        obs = batch(FIRST)[0]
        spec, step = run(transpose_image(skip=True), FIRST, backend, obs, obs)
        assert spec.observation_space == FIRST
        assert_tree_equal(step.obs, put(obs, backend))

    def test_a_dict_without_images_stays_as_it_is(self, backend):
        space = spaces.Dict({"speed": VECTOR})
        spec, step = run(transpose_image(), space, backend, *2 * [batch(space)[0]])
        assert spec.observation_space == space
        assert step.obs["speed"].shape == (N, 3)

    @pytest.mark.parametrize(
        ("space", "keys", "message"),
        [
            (FIRST, None, "channels first"),
            (spaces.Dict({"a": FIRST}), None, "channels first"),
            (VECTOR, None, "is no image"),
            (spaces.Box(0, 1, (4, 5, 2), np.float32), None, "is no image"),
            (spaces.Box(0, 254, (4, 5, 2), np.uint8), None, "is no image"),
            (spaces.Dict({"a": IMAGE, "b": VECTOR}), ["b"], "is no image"),
            (spaces.Dict({"a": IMAGE}), ["c"], r"no \['c'\]"),
            (IMAGE, ["a"], "has no keys"),
        ],
    )
    def test_what_cannot_be_transposed_is_refused_before_anything_runs(
        self, backend, space, keys, message
    ):
        spec = VecSpec(N, space, spaces.Discrete(2), backend=backend)
        layer = transpose_image(keys=keys)
        for function in (layer.spec, lambda s: layer.init(s, None)):
            with pytest.raises(ValueError, match=message):
                function(spec)

    def test_an_image_whose_middle_axis_is_smallest_warns_and_counts_as_channels_last(
        self, backend
    ):
        spec = VecSpec(
            N, spaces.Box(0, 255, (4, 2, 4), np.uint8), spaces.Discrete(2), backend=backend
        )
        with pytest.warns(UserWarning, match="middle"):
            assert transpose_image().spec(spec).observation_space.shape == (4, 4, 2)


@pytest.mark.parametrize("backend", BACKENDS)
class TestExtractKey:
    def test_a_part_of_a_dict_becomes_the_observation(self, backend):
        obs, final = batch(NESTED, 1)[0], batch(NESTED, 2)[0]
        spec, step = run(extract_key("speed"), NESTED, backend, obs, final)
        assert spec.observation_space == VECTOR
        np.testing.assert_array_equal(step.obs, obs["speed"])
        ended = step.final_obs[0 if backend == "numpy" else 1]
        np.testing.assert_array_equal(ended, final["speed"][1])

    def test_a_part_may_have_parts_itself_and_a_tuple_is_asked_by_index(self, backend):
        obs = batch(NESTED)[0]
        spec, step = run(extract_key("pair"), NESTED, backend, obs, obs)
        assert spec.observation_space == NESTED["pair"]
        assert_tree_equal(step.obs, put(obs["pair"], backend))
        spec, step = run(extract_key(1), NESTED["pair"], backend, *2 * [obs["pair"]])
        assert spec.observation_space == spaces.MultiBinary(2)
        np.testing.assert_array_equal(step.obs, obs["pair"][1])

    def test_a_key_that_does_not_exist_is_refused_with_those_that_do(self, backend):
        spec = VecSpec(N, NESTED, spaces.Discrete(2), backend=backend)
        with pytest.raises(ValueError, match=r"'sped'.*'speed'"):
            extract_key("sped").spec(spec)
        with pytest.raises(TypeError, match="only Dict and Tuple"):
            extract_key("speed").init(spec._replace(observation_space=VECTOR), None)

    def test_without_ended_rows_there_is_no_final_observation(self, backend):
        spec = VecSpec(N, NESTED, spaces.Discrete(2), backend=backend)
        layer = extract_key("speed")
        obs = put(batch(NESTED)[0], backend)
        step = ended_timestep(obs, obs, backend)._replace(final_obs=None, final_rows=None)
        assert layer.update(layer.init(spec, None), step)[1].final_obs is None


UNSORTED = spaces.Dict(
    [("z", spaces.Discrete(4, start=-1)), ("a", spaces.Box(0, 9, (2, 2), np.float32))]
)
FLATTENED = {
    "image": IMAGE,
    "vector": VECTOR,
    "scalar": spaces.Box(0, 1, (), np.float32),
    "discrete": spaces.Discrete(3, start=5),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "multi_discrete_matrix": spaces.MultiDiscrete([[2, 3], [4, 1]]),
    "multi_binary": spaces.MultiBinary([2, 2]),
    "nested": NESTED,
    "unsorted": UNSORTED,
    "tuple": spaces.Tuple([IMAGE, spaces.Tuple([VECTOR, UNSORTED])]),
}


@pytest.mark.parametrize("backend", BACKENDS)
class TestFlattenObservation:
    @pytest.mark.parametrize("name", FLATTENED)
    def test_every_row_is_what_gymnasium_makes_of_it(self, backend, name):
        space = FLATTENED[name]
        (obs, samples), (final, final_samples) = batch(space, 1), batch(space, 2)
        spec, step = run(flatten_observation(), space, backend, obs, final)
        flat = spaces.flatten_space(space)
        dtype = flat.dtype if backend == "numpy" else jax.dtypes.canonicalize_dtype(flat.dtype)
        if dtype == flat.dtype:
            assert spec.observation_space == flat
        np.testing.assert_array_equal(spec.observation_space.low, flat.low.astype(dtype))
        np.testing.assert_array_equal(spec.observation_space.high, flat.high.astype(dtype))
        assert step.obs.dtype == spec.observation_space.dtype == dtype
        expected = np.stack([spaces.flatten(space, sample) for sample in samples])
        np.testing.assert_array_equal(step.obs, expected)
        ended = step.final_obs[0 if backend == "numpy" else 1]
        np.testing.assert_array_equal(ended, spaces.flatten(space, final_samples[1]))
        assert_rows_fit(spec.observation_space, step.obs, N)

    def test_the_order_of_an_unsorted_dict_survives_jit(self, backend):
        layer = flatten_observation()
        spec = VecSpec(N, UNSORTED, spaces.Discrete(2), backend=backend)
        obs, samples = batch(UNSORTED)
        update = jax.jit(layer.update) if backend == "jax" else layer.update
        step = ended_timestep(obs, obs, backend)
        _, step = update(*update(layer.init(spec, None), step)[:1], step)
        expected = [spaces.flatten(UNSORTED, sample) for sample in samples]
        np.testing.assert_array_equal(step.obs, expected)

    def test_an_empty_part_adds_nothing(self, backend):
        hollow = spaces.Dict(none=spaces.Dict(), speed=VECTOR, nor=spaces.Tuple([spaces.Dict()]))
        obs, _ = batch(hollow)
        spec, step = run(flatten_observation(), hollow, backend, obs, obs)
        assert spec.observation_space == VECTOR
        np.testing.assert_array_equal(step.obs, obs["speed"])

    def test_the_dtype_of_the_space_is_what_comes_out_however_the_parts_are_nested(self, backend):
        small, byte, half = (spaces.Box(0, 1, (1,), kind) for kind in ("int8", "uint8", "float16"))
        space = spaces.Dict(half=half, whole=spaces.Tuple([small, byte]))
        obs, _ = batch(space)
        spec, step = run(flatten_observation(), space, backend, obs, obs)
        assert step.obs.dtype == spec.observation_space.dtype

    def test_an_observation_without_numbers_is_refused(self, backend):
        space = spaces.Dict(none=spaces.Tuple([]))
        spec = VecSpec(N, space, spaces.Discrete(2), backend=backend)
        with pytest.raises(ValueError, match=r"flatten_observation: Dict.* holds no numbers"):
            flatten_observation().spec(spec)

    def test_a_part_without_a_fixed_size_is_refused(self, backend):
        space = spaces.Dict({"words": spaces.Text(5), "speed": VECTOR})
        spec = VecSpec(N, space, spaces.Discrete(2), backend=backend)
        with pytest.raises(TypeError, match="no fixed number"):
            flatten_observation().spec(spec)
        with pytest.raises(TypeError, match="no fixed number"):
            flatten_observation().init(spec, None)


@pytest.mark.parametrize("backend", BACKENDS)
class TestCastObservation:
    def test_an_image_becomes_a_fraction_in_float32(self, backend):
        obs, final = batch(IMAGE, 1)[0], batch(IMAGE, 2)[0]
        obs[0, 0, 0] = [0, 255]
        layer = cast_observation("float32", scale=1 / 255)
        spec, step = run(layer, IMAGE, backend, obs, final)
        assert step.obs.dtype == np.float32
        np.testing.assert_allclose(step.obs, obs / 255, rtol=1e-6)
        ended = step.final_obs[0 if backend == "numpy" else 1]
        np.testing.assert_allclose(ended, final[1] / 255, rtol=1e-6)
        assert spec.observation_space.dtype == np.float32
        np.testing.assert_allclose(spec.observation_space.high, 1.0, rtol=1e-6)
        assert_rows_fit(spec.observation_space, step.obs, N)

    def test_only_box_parts_of_a_tree_are_cast(self, backend):
        obs = batch(NESTED)[0]
        spec, step = run(cast_observation(np.float16), NESTED, backend, obs, obs)
        assert spec.observation_space["pair"] == NESTED["pair"]
        assert spec.observation_space["camera"] == spaces.Box(0, 255, (4, 5, 2), np.float16)
        assert_tree_equal(step.obs["pair"], put(obs["pair"], backend))
        assert step.obs["speed"].dtype == np.float16
        np.testing.assert_array_equal(step.obs["speed"], obs["speed"].astype(np.float16))

    def test_open_and_overflowing_bounds_are_infinite_and_a_negative_scale_swaps_them(
        self, backend
    ):
        low = np.array([-np.inf, -4.0, -1e30], np.float32)
        space = spaces.Box(low, np.array([1.0, np.inf, 1e30], np.float32))
        layer = cast_observation(np.float16, scale=-2.0)
        box = layer.spec(VecSpec(N, space, spaces.Discrete(2), backend=backend)).observation_space
        np.testing.assert_array_equal(box.low, np.array([-2.0, -np.inf, -np.inf], np.float16))
        np.testing.assert_array_equal(box.high, np.array([np.inf, 8.0, np.inf], np.float16))
        whole = spaces.Box(-np.inf, np.inf, (1,), np.int32)
        spec = VecSpec(N, whole, spaces.Discrete(2), backend=backend)
        box = cast_observation(np.float32).spec(spec).observation_space
        assert (box.low, box.high) == (-np.inf, np.inf)

    def test_whole_numbers_go_into_wider_whole_numbers_only(self, backend):
        obs = batch(IMAGE)[0]
        spec, step = run(cast_observation(np.int32), IMAGE, backend, obs, obs)
        assert spec.observation_space == spaces.Box(0, 255, (4, 5, 2), np.int32)
        assert step.obs.dtype == np.int32
        for space, dtype in ((IMAGE, np.int8), (VECTOR, np.int32)):
            spec = VecSpec(N, space, spaces.Discrete(2), backend=backend)
            with pytest.raises(ValueError, match="does not fit"):
                cast_observation(dtype).spec(spec)

    @in_32_bits("with 64 they are taken")
    def test_64_bits_are_refused_where_jax_would_make_32_of_them(self, backend):
        spec = VecSpec(N, VECTOR, spaces.Discrete(2), backend=backend)
        layer = cast_observation(np.float64)
        if backend == "numpy":
            assert layer.spec(spec).observation_space.dtype == np.float64
        else:
            for function in (layer.spec, lambda s: layer.init(s, None)):
                with pytest.raises(ValueError, match=r"ask for float32"):
                    function(spec)


@pytest.mark.parametrize(
    ("dtype", "scale", "error"),
    [
        ("float32", 0.0, ValueError),
        ("float32", np.nan, ValueError),
        ("int32", 2.0, ValueError),
        (bool, None, TypeError),
        ("U3", None, TypeError),
    ],
)
def test_a_cast_that_makes_no_sense_is_refused_when_it_is_asked_for(dtype, scale, error):
    with pytest.raises(error, match="cast_observation"):
        cast_observation(dtype, scale=scale)


@pytest.mark.parametrize("backend", BACKENDS)
class TestOneHot:
    def test_a_discrete_observation_counts_from_its_start(self, backend):
        space = spaces.Discrete(3, start=5)
        obs, final = np.array([5, 7, 6]), np.array([5, 6, 5])
        spec, step = run(one_hot(), space, backend, obs, final)
        assert spec.observation_space == spaces.Box(0, 1, (3,), np.float32)
        assert step.obs.dtype == np.float32
        np.testing.assert_array_equal(step.obs, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])
        ended = step.final_obs[0 if backend == "numpy" else 1]
        np.testing.assert_array_equal(ended, [0, 1, 0])

    def test_the_numbers_of_a_multi_discrete_observation_stand_one_after_the_other(self, backend):
        space = spaces.MultiDiscrete([2, 3], start=[0, 10])
        obs = np.array([[0, 10], [1, 12], [1, 11]])
        spec, step = run(one_hot(), space, backend, obs, obs)
        assert spec.observation_space == spaces.Box(0, 1, (5,), np.float32)
        expected = [[1, 0, 1, 0, 0], [0, 1, 0, 0, 1], [0, 1, 0, 1, 0]]
        np.testing.assert_array_equal(step.obs, expected)

    def test_other_parts_stay_as_they_are(self, backend):
        obs = batch(NESTED)[0]
        spec, step = run(one_hot(), NESTED, backend, obs, obs)
        pair = spaces.Tuple([spaces.Box(0, 1, (3,), np.float32), spaces.MultiBinary(2)])
        assert spec.observation_space == spaces.Dict({**NESTED.spaces, "pair": pair})
        assert_tree_equal(step.obs["camera"], put(obs["camera"], backend))
        np.testing.assert_array_equal(step.obs["pair"][1], obs["pair"][1])
        assert_rows_fit(spec.observation_space, step.obs, N)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "layer",
    [transpose_image(), extract_key("speed"), flatten_observation(), cast_observation("float16")],
    ids=["transpose", "extract", "flatten", "cast"],
)
def test_a_reset_maps_like_a_step_and_leaves_the_arguments_alone(backend, layer):
    spec = VecSpec(N, NESTED, spaces.Discrete(2), backend=backend)
    obs = put(batch(NESTED)[0], backend)
    before = jax.tree.map(np.array, obs)
    step = ended_timestep(obs, obs, backend)
    state = layer.init(spec, None)
    _, stepped = layer.update(state, step)
    for mask in (None, put(np.array([True, False, True]), backend)):
        _, opened = layer.reset(state, step, mask)
        assert_tree_equal(opened.obs, stepped.obs)
        assert_tree_equal(opened.final_obs, stepped.final_obs)
    assert_tree_equal(before, jax.tree.map(np.array, obs))
