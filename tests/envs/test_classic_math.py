"""The numbers under the classic environments: sine and cosine, whole turns, options of a reset."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.classic_control import acrobot, pendulum

from jaxvec.envs.classic import _math
from jaxvec.envs.classic._math import (
    check_action,
    reset_bounds,
    reset_option,
    sin_cos,
    to_float32,
    wrap_angle,
)
from tests.modes import in_32_bits

ONE_UNIT = 2.0**-24  # in the last place of float32 numbers just below one


def near_quadrants(limit: float) -> np.ndarray:
    """The float32 numbers around every multiple of pi/4 up to `limit`: where reductions fail."""
    count = int(limit / (math.pi / 4))
    centres = (np.arange(-count, count + 1) * (math.pi / 4)).astype(np.float32)
    below, above = np.nextafter(centres, np.float32(-9e9)), np.nextafter(centres, np.float32(9e9))
    return np.concatenate([below, centres, above])


def angles(limit: float, count: int = 2_000_000) -> np.ndarray:
    uniform = np.random.default_rng(7).uniform(-limit, limit, count)
    dense = np.linspace(-limit, limit, count)
    return np.concatenate([uniform, dense, near_quadrants(min(limit, 1e4))]).astype(np.float32)


def errors(x: np.ndarray, function: object = None) -> np.ndarray:
    """The larger error of the two, against float64."""
    sine, cosine = (function or jax.jit(sin_cos))(x)
    exact = x.astype(np.float64)
    assert sine.dtype == cosine.dtype == np.float32
    return np.maximum(
        np.abs(np.asarray(sine, np.float64) - np.sin(exact)),
        np.abs(np.asarray(cosine, np.float64) - np.cos(exact)),
    )


@pytest.mark.parametrize("limit", [0.8, 3.2, 100.0, 1e4])
def test_sine_and_cosine_are_right_to_one_unit_in_the_last_place(limit):
    assert errors(angles(limit)).max() <= ONE_UNIT


def test_they_are_as_right_when_no_operations_are_fused():
    # Compiled as a whole, a product and a sum may round once instead of twice.
    assert errors(angles(1e4, 200_000), sin_cos).max() <= ONE_UNIT


def test_small_angles_keep_their_relative_accuracy():
    x = np.float32(10.0) ** np.random.default_rng(0).uniform(-30, -0.2, 100_000).astype(np.float32)
    sine, _ = jax.jit(sin_cos)(x)
    exact = np.sin(x.astype(np.float64))
    assert (np.abs(np.asarray(sine, np.float64) - exact) <= 2.0**-23 * exact).all()


def test_large_angles_are_as_right_as_the_angle_itself():
    magnitude = np.exp(np.random.default_rng(0).uniform(np.log(1e4), np.log(2.0**22), 1_000_000))
    x = np.concatenate([magnitude, -magnitude]).astype(np.float32)
    x = x[np.abs(x) < 2.0**22]
    for function in (sin_cos, jax.jit(sin_cos)):
        assert (errors(x, function) <= np.spacing(np.abs(x)) + ONE_UNIT).all()


@pytest.mark.parametrize("x", [2.0**22, -(2.0**22), 1e10, -3e38, np.inf, -np.inf, np.nan])
def test_an_angle_that_says_nothing_gives_nan(x):
    sine, cosine = jax.jit(sin_cos)(np.float32(x))
    assert np.isnan(sine)
    assert np.isnan(cosine)


def test_derivatives_are_exact_functions_too():
    x = jnp.linspace(-50.0, 50.0, 2001)
    exact = np.asarray(x, np.float64)
    sine = lambda v: sin_cos(v)[0]  # noqa: E731
    cosine = lambda v: sin_cos(v)[1]  # noqa: E731
    for function, expected in [
        (jax.grad(sine), np.cos(exact)),
        (jax.grad(cosine), -np.sin(exact)),
        (jax.grad(jax.grad(sine)), -np.sin(exact)),
        (jax.jacfwd(cosine), -np.sin(exact)),
    ]:
        np.testing.assert_allclose(jax.vmap(function)(x), expected, rtol=0, atol=ONE_UNIT)


def test_one_by_one_is_what_vmap_and_the_whole_array_give():
    x = jnp.linspace(-9.0, 9.0, 64).reshape(8, 8)
    whole = jax.jit(sin_cos)(x)
    mapped = jax.jit(jax.vmap(jax.vmap(sin_cos)))(x)
    for left, right in zip(whole, mapped, strict=True):
        np.testing.assert_array_equal(left, right)
    single = jax.jit(sin_cos)(x[3, 4])
    np.testing.assert_allclose(np.stack(single), [whole[0][3, 4], whole[1][3, 4]], atol=ONE_UNIT)


def test_other_dtypes_keep_their_own_accuracy():
    half = jnp.asarray([0.5, -2.0], jnp.bfloat16)
    for ours, theirs in zip(sin_cos(half), (jnp.sin(half), jnp.cos(half)), strict=True):
        assert ours.dtype == jnp.bfloat16
        np.testing.assert_array_equal(ours, theirs)
    with jax.enable_x64(True):
        x = np.linspace(-1e4, 1e4, 10_001)
        sine, cosine = sin_cos(x)
        np.testing.assert_allclose(sine, np.sin(x), rtol=0, atol=1e-15)
        np.testing.assert_allclose(cosine, np.cos(x), rtol=0, atol=1e-15)


@in_32_bits("with 64 a Python number is float64")
def test_the_results_are_strongly_typed_whatever_came_in():
    for x in (jnp.float32(1.0), 1.0):
        for aval in jax.make_jaxpr(sin_cos)(x).out_avals:
            assert aval.dtype == np.float32
    assert not any(aval.weak_type for aval in jax.make_jaxpr(sin_cos)(jnp.float32(1.0)).out_avals)


def test_the_parts_of_pi_are_short_enough_and_leave_nothing_out():
    for part in _math._HALF_PI[:2]:
        assert abs(Fraction(part).numerator).bit_length() <= 11
    digits = 1.570796326794896619231321691639751442
    assert math.fsum(_math._HALF_PI) == digits
    rest = Fraction(1570796326794896619231321691639751442, 10**36) - sum(
        map(Fraction, _math._HALF_PI)
    )
    assert abs(rest) < Fraction(1, 10**23)


def test_the_polynomials_are_as_near_as_their_comment_says():
    r = np.linspace(1e-3, math.pi / 4, 100_001)
    z = r * r
    sine = r + r * z * _math._polynomial(_math._SINE, z)
    cosine = 1 - 0.5 * z + z * z * _math._polynomial(_math._COSINE, z)
    assert np.abs(sine / np.sin(r) - 1).max() < 5.85e-9
    assert np.abs(cosine - np.cos(r)).max() < 1.15e-10
    for coefficient in (*_math._SINE, *_math._COSINE):
        assert float(np.float32(coefficient)) == coefficient


def circular(difference: np.ndarray) -> np.ndarray:
    return np.abs((difference + np.pi) % (2 * np.pi) - np.pi)


def test_whole_turns_come_off_as_gymnasium_takes_them_off():
    x = np.concatenate([angles(30.0, 5_000), np.float32([math.pi, -math.pi, 0.0])])
    wrapped = np.asarray(jax.jit(wrap_angle)(x), np.float64)
    exact = x.astype(np.float64)
    for theirs in (
        np.array([acrobot.wrap(each, -math.pi, math.pi) for each in exact]),
        pendulum.angle_normalize(exact),
    ):
        assert circular(wrapped - theirs).max() < 5e-7
        inside = np.abs(theirs) < math.pi - 1e-5
        np.testing.assert_allclose(wrapped[inside], theirs[inside], rtol=0, atol=5e-7)
    assert (np.abs(wrapped) <= math.pi + 2 * np.spacing(np.abs(x))).all()


def test_many_turns_cost_no_accuracy():
    x = angles(1e4, 100_000)
    wrapped = np.asarray(jax.jit(wrap_angle)(x), np.float64)
    assert circular(wrapped - x.astype(np.float64)).max() < 5e-7
    assert (np.abs(wrapped) <= math.pi + 2 * np.spacing(np.abs(x))).all()


def test_parameters_become_float32_arrays_of_numpy():
    made = to_float32({"gravity": 9.8, "torques": [1, 2]})
    assert [type(leaf) for leaf in jax.tree.leaves(made)] == [np.ndarray] * 3
    assert {leaf.dtype for leaf in jax.tree.leaves(made)} == {np.dtype(np.float32)}


def test_a_bound_that_is_not_given_keeps_its_default():
    assert reset_bounds("car", None, -1.0, 1.0) == (-1.0, 1.0)
    assert reset_bounds("car", {"high": 3.0, "other": object()}, -1.0, 1.0) == (-1.0, 3.0)
    assert reset_bounds("car", {"low": np.float64(0.5)}, -1.0, 1.0) == (0.5, 1.0)


def test_bounds_the_wrong_way_round_are_refused_with_both_values():
    with pytest.raises(ValueError, match=r"car\.reset: options give low=2\.0 and high=1\.0"):
        reset_bounds("car", {"low": 2.0}, -1.0, 1.0)


def test_an_array_where_one_number_belongs_is_refused():
    with pytest.raises(ValueError, match=r"car\.reset: options\['low'\] has shape \(4,\)"):
        reset_option("car", {"low": np.zeros(4)}, "low", 0.0)


def test_an_action_of_another_shape_is_refused_with_both_shapes():
    check_action("car", np.zeros(1), (1,))
    with pytest.raises(ValueError, match=r"car\.step: the action has shape \(\).*takes \(1,\)"):
        check_action("car", np.float32(0.0), (1,))
