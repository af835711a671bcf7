"""Arguments that cannot be are refused where they come in, by name and value, and nothing is computed."""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import (
    cast_observation,
    check_finite,
    clip_reward,
    episode_statistics,
    frame_stack,
    init_moments,
    merge_moments,
    normalize_observation,
    normalize_reward,
    rescale_action,
    scale_by_std,
    standardize,
    transpose_image,
    unstandardize,
    update_moments,
)
from jaxvec.core._arguments import (
    INT32_MAX,
    check_count,
    check_finite_number,
    check_flag,
    check_fraction,
    check_one_of,
)
from jaxvec.core._moments import merge_rows
from jaxvec.core._transform import VecSpec

NAN, INF = float("nan"), float("inf")
NO_CLIP = [NAN, 0, -1.0, "10", None, [1.0], True, 1j]
NO_EPSILON = [NAN, INF, -1e-8, "small", None]
NO_FRACTION = [NAN, -0.1, 1.01, INF, "0.99", None, [0.5, 0.5]]
NO_COUNT = [0, -1, 2.5, 2.0, True, NAN, "3", None, [3], 2**31]
NO_FLAG = ["yes", 1, 0.0, None, [True]]

WRONG = [
    *[(normalize_observation, "clip", value) for value in NO_CLIP],
    *[(normalize_reward, "clip", value) for value in NO_CLIP],
    *[(normalize_observation, "epsilon", value) for value in NO_EPSILON],
    *[(normalize_reward, "epsilon", value) for value in NO_EPSILON],
    *[(normalize_reward, "gamma", value) for value in NO_FRACTION],
    *[(frame_stack, "num_frames", value) for value in NO_COUNT],
    *[(normalize_observation, "training", value) for value in NO_FLAG],
    (normalize_observation, "count_final", "no"),
    (normalize_observation, "keep_bounds", 1),
    (normalize_observation, "skip_non_finite", 1),
    (normalize_observation, "keys", "state"),
    (normalize_observation, "keys", 3),
    (normalize_reward, "enabled", "no"),
    (normalize_reward, "training", 1),
    (normalize_reward, "skip_non_finite", 1),
    (episode_statistics, "totals", "yes"),
    (check_finite, "check_inf", 1),
    (clip_reward, "sign", "both"),
    (transpose_image, "skip", "no"),
    (transpose_image, "keys", "camera"),
    (partial(cast_observation, "float32"), "scale", "1/255"),
]


def named(part):
    """Names a layer by its function, without the address that differs from one process to the next."""
    return getattr(getattr(part, "func", part), "__name__", str(part))


@pytest.mark.parametrize(("layer", "name", "value"), WRONG, ids=named)
def test_an_option_that_cannot_be_is_refused_with_its_layer_name_and_value(layer, name, value):
    with pytest.raises(
        ValueError, match=f"^{re.escape(f'{named(layer)}: {name}={value!r}, but ')}"
    ):
        layer(**{name: value})


@pytest.mark.parametrize("bounds", [{"low": "small"}, {"high": None}, {"low": NAN}, {"low": True}])
def test_bounds_of_actions_that_are_no_numbers_are_refused(bounds):
    with pytest.raises(
        ValueError, match=r"rescale_action: low=.*, high=.*, but both must be finite"
    ):
        rescale_action(**bounds)


@pytest.mark.parametrize("dtype", ["nonsense", None, complex, "U3", bool])
def test_a_dtype_that_no_box_has_is_refused(dtype):
    with pytest.raises(TypeError, match=r"cast_observation: dtype=.* is none of a Box"):
        cast_observation(dtype)


def test_what_numpy_and_jax_hold_for_a_number_is_one():
    normalize_reward(gamma=np.float32(0.5), clip=np.int64(3), epsilon=np.array(0.0))
    normalize_observation(clip=INF, training=np.True_)
    assert check_count("f", "n", np.uint8(7)) == 7
    assert type(check_count("f", "n", np.int64(INT32_MAX))) is int
    check_fraction("f", "x", jnp.float32(0.5))
    with pytest.raises(ValueError, match=r"f: x=Array\(1.5"):
        check_fraction("f", "x", jnp.float32(1.5))
    check_flag("f", "x", jnp.array(True))


def test_a_traced_discount_passes_so_that_one_may_map_over_discounts():
    spec = VecSpec(2, spaces.Box(-1, 1, (1,)), spaces.Discrete(2))

    def returns(gamma):
        layer = normalize_reward(gamma=gamma)
        return layer.init(spec, None).returns + gamma

    np.testing.assert_allclose(jax.vmap(returns)(jnp.float32([0.25, 0.5])), [[0.25] * 2, [0.5] * 2])


@pytest.mark.parametrize("value", ["A", ["a"], 1, np.zeros(2)])
def test_an_option_is_compared_with_its_own_kind_only(value):
    with pytest.raises(ValueError, match=r"f: mode=.* is not an option; choose one of 'a', None"):
        check_one_of("f", "mode", value, ("a", None))


def test_an_infinite_number_is_not_finite():
    with pytest.raises(ValueError, match="f: x=inf, but it must be a finite number"):
        check_finite_number("f", "x", INF)


MOMENTS = {backend: init_moments((2,), backend) for backend in ("numpy", "jax")}
over_backends = pytest.mark.parametrize("backend", MOMENTS)


def array(backend, values, dtype=np.float32):
    return (np if backend == "numpy" else jnp).asarray(values, dtype=dtype)


@over_backends
@pytest.mark.parametrize(
    "mask",
    [
        np.ones(2, bool),
        np.ones(4, bool),
        np.ones((3, 1), bool),
        np.float32([1, 0, 1]),
        np.int32([0, 1, 2]),
    ],
    ids=["short", "long", "column", "floats", "numbers"],
)
def test_a_mask_that_is_no_bool_per_row_is_refused(backend, mask):
    # Numbers would choose rows by index, and a short mask rows of the beginning.
    for given in (mask, array(backend, mask, mask.dtype), mask.tolist()):
        with pytest.raises(ValueError, match=r"(?s)mask=.* of 3 rows; it must be a bool array"):
            update_moments(MOMENTS[backend], array(backend, np.ones((3, 2))), given)


def test_a_mask_is_looked_at_while_tracing():
    update = jax.jit(update_moments)
    with pytest.raises(ValueError, match="bool array of shape"):
        update(MOMENTS["jax"], jnp.ones((3, 2)), jnp.ones(3))
    assert float(update(MOMENTS["jax"], jnp.ones((3, 2)), jnp.array([True, False, True])).count) > 1


@over_backends
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 2), (1, 2)])
def test_sets_of_other_samples_are_not_merged(backend, shape):
    other = init_moments(shape, backend)
    with pytest.raises(ValueError, match=r"merge_moments: .* shape \(2,\) .* and"):
        merge_moments(MOMENTS[backend], other)
    rows = other._replace(mean=other.mean[None], var=other.var[None], count=other.count[None])
    with pytest.raises(ValueError, match=r"merge_rows: .* shape \(2,\) in the one set and"):
        merge_rows(MOMENTS[backend], rows)


@over_backends
@pytest.mark.parametrize("function", [standardize, unstandardize, scale_by_std])
def test_samples_of_another_shape_are_not_broadcast(backend, function):
    for shape in [(), (1,), (4,), (4, 1), (2, 4), (4, 3)]:
        with pytest.raises(ValueError, match=rf"{function.__name__}: x has shape \({shape and ''}"):
            function(array(backend, np.zeros(shape)), MOMENTS[backend])
    for shape in [(2,), (5, 2), (6, 5, 2), (0, 2)]:
        assert function(array(backend, np.zeros(shape)), MOMENTS[backend]).shape == shape


@over_backends
@pytest.mark.parametrize("options", [{"epsilon": -1.0}, {"epsilon": NAN}, {"epsilon": "x"}])
def test_kernels_refuse_options_that_cannot_be(backend, options):
    for function in (standardize, unstandardize, scale_by_std):
        with pytest.raises(ValueError, match=f"{function.__name__}: epsilon="):
            function(array(backend, np.zeros(2)), MOMENTS[backend], **options)
    for function in (standardize, scale_by_std):
        with pytest.raises(ValueError, match=f"{function.__name__}: clip=nan"):
            function(array(backend, np.zeros(2)), MOMENTS[backend], clip=NAN)


def test_a_backend_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"init_moments: backend='torch'.*'numpy', 'jax'"):
        init_moments((2,), "torch")
    spec = VecSpec(2, spaces.Box(-1, 1, (1,)), spaces.Discrete(2), backend="torch")
    for layer in (normalize_observation(), frame_stack(2), episode_statistics()):
        with pytest.raises(ValueError, match="backend='torch'"):
            layer.init(spec, None)
