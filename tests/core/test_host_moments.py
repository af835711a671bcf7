"""The host's kernels of moments: NumPy's bits, whatever the size and the order in memory."""

import numpy as np
import pytest
from stable_baselines3.common.running_mean_std import RunningMeanStd as SB3RunningMeanStd

from jaxvec.core._host_moments import (
    EXACT_IN_FLOAT32,
    merge_on_host,
    standardize_on_host,
    update_on_host,
)

SHAPES = [
    *((8,), (8, 17), (3000, 5), (70_000,), (70_000, 1), (70_000, 3), (8, 40, 50, 4), (300, 300)),
    *((1, 70_000), (2, 40_000), (66, 1023), (66, 1024), (258, 30, 10), (7, 3, 9, 400)),
]
DTYPES = [np.float32, np.float64, np.uint8, np.int32, np.bool_]


def drawn(shape, dtype):
    numbers = np.random.default_rng(0).normal(100, 50, shape)
    return numbers > 100 if dtype is np.bool_ else numbers.clip(0, 255).astype(dtype)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_moments_are_sb3s_to_the_last_bit(shape, dtype, order):
    rows = np.asarray(drawn(shape, dtype), order=order)
    before = rows.copy()
    sums = np.float64 if dtype is not np.float64 and shape[0] > EXACT_IN_FLOAT32 else None
    theirs = SB3RunningMeanStd(shape=shape[1:])
    ours = theirs.mean, theirs.var, np.float64(theirs.count)
    for _ in range(2):
        theirs.update_from_moments(np.mean(rows, 0, sums), np.var(rows, 0, sums), len(rows))
        ours = update_on_host(*ours, rows, "float64")
        for one, other in zip(ours, (theirs.mean, theirs.var, theirs.count), strict=True):
            np.testing.assert_array_equal(one, other)
            assert np.shape(one) == np.shape(other)
            assert one.dtype == np.float64
    np.testing.assert_array_equal(rows, before)


@pytest.mark.parametrize("shape", [(2, 40_000), (8, 100, 100), (256, 1200), (4096, 1030)])
def test_moments_of_a_power_of_two_of_images_are_sb3s_to_the_last_bit(shape):
    rng = np.random.default_rng(0)
    theirs = SB3RunningMeanStd(shape=shape[1:])
    ours = theirs.mean, theirs.var, np.float64(theirs.count)
    for rows in (rng.integers(0, 256, shape), np.where(rng.random(shape) < 0.5, 0, 255)):
        theirs.update(rows.astype(np.uint8))
        ours = update_on_host(*ours, rows.astype(np.uint8), "float64")
        np.testing.assert_array_equal(ours[0], theirs.mean)
        np.testing.assert_array_equal(ours[1], theirs.var)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_standardized_numbers_are_those_of_the_formula_to_the_last_bit(shape, dtype):
    rows = drawn(shape, dtype)
    mean, var = np.mean(rows, 0, np.float64), np.asarray(np.var(rows, 0, np.float64))
    ours = standardize_on_host(rows, mean, var, 1e-8, 1.5, "float64")
    theirs = np.clip((rows - mean) / np.sqrt(var + 1e-8), -1.5, 1.5).astype(np.float32)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == np.float32


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_float32_arithmetic_is_within_1e_6_of_the_value(shape, dtype, offset):
    rows = drawn(shape, dtype)
    if rows.dtype.kind == "f":
        rows = rows + rows.dtype.type(offset)
    mean, var = np.mean(rows, 0, np.float64), np.asarray(np.var(rows, 0, np.float64))
    ours = standardize_on_host(rows, mean, var, 1e-8, 10.0, "float32")
    theirs = np.clip((rows - mean) / np.sqrt(var + 1e-8), -10, 10)
    np.testing.assert_allclose(ours, theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("rows", [1, 2, 257, 258, 8192])
def test_bytes_summed_in_whole_numbers_give_the_exact_moments(rows):
    full = np.full((rows, 1100), 255, np.uint8)
    full[0, ::2] = 0
    if full.size <= 65536:
        full = np.tile(full, (1, 60))
    mean, var = np.zeros(full.shape[1]), np.ones(full.shape[1])
    mean, var, _ = update_on_host(mean, var, np.float64(0), full, "float32")
    np.testing.assert_array_equal(mean[1::2], 255)
    np.testing.assert_array_equal(var[1::2], 0)
    np.testing.assert_allclose(mean[0], 255 * (rows - 1) / rows, 1e-15)
    np.testing.assert_allclose(var[0], 255**2 * (rows - 1) / rows**2, 1e-14)


def test_a_nan_and_infinities_pass_as_in_the_formula():
    rows = np.array([[np.nan, np.inf, -np.inf, 1.0]] * 2)
    mean, var = np.zeros(4), np.ones(4)
    for precision in ("float64", "float32"):
        ours = standardize_on_host(rows, mean, var, 0, 10.0, precision)
        np.testing.assert_array_equal(ours, [[np.nan, 10, -10, 1]] * 2)


@pytest.mark.parametrize("shape", [(), (3,)])
def test_a_merge_overwrites_nothing(shape):
    numbers = [np.float64(x) if not shape else np.full(shape, float(x)) for x in (1, 2, 3, 4)]
    mean, var, delta, batch_var = numbers
    kept = [np.array(x) for x in numbers]
    merge_on_host(mean, var, np.float64(5), delta, batch_var, 8)
    for one, other in zip(numbers, kept, strict=True):
        np.testing.assert_array_equal(one, other)
