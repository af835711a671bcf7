"""Images of bytes on the host in float32: SB3's moments, and its observations within 1e-6."""

import numpy as np
import pytest
from stable_baselines3.common.running_mean_std import RunningMeanStd as SB3RunningMeanStd

from jaxvec.core._host_images import are_images, learn_and_standardize_images


def noise(rng, shape):
    return rng.integers(0, 256, shape).astype(np.uint8)


def mostly_one_colour(rng, shape):
    return np.where(rng.random(shape) < 0.02, 200, 255).astype(np.uint8)


def one_colour(rng, shape):
    return np.full(shape, 255, np.uint8)


@pytest.mark.parametrize("clip", [10.0, 0.5])
@pytest.mark.parametrize("draw", [noise, mostly_one_colour, one_colour])
@pytest.mark.parametrize("shape", [(8, 100, 100, 1), (1, 70_000), (17, 70, 60), (257, 300)])
def test_images_in_float32_are_within_1e_6_of_sb3s(shape, draw, clip):
    rng = np.random.default_rng(0)
    theirs = SB3RunningMeanStd(shape=shape[1:])
    mean, var, count = theirs.mean, theirs.var, np.float64(theirs.count)
    for _ in range(4):
        images = draw(rng, shape)
        before = images.copy()
        assert are_images(images, "float32")
        mean, var, count, ours = learn_and_standardize_images(mean, var, count, images, 1e-8, clip)
        theirs.update(images)
        np.testing.assert_allclose(mean, theirs.mean, 1e-12)
        np.testing.assert_allclose(var, theirs.var, 1e-9, 1e-9)
        assert count == theirs.count
        expected = np.clip((images - theirs.mean) / np.sqrt(theirs.var + 1e-8), -clip, clip)
        np.testing.assert_allclose(ours, expected, 1e-6, 1e-6)
        assert (ours.dtype, mean.dtype, var.dtype) == (np.float32, np.float64, np.float64)
        np.testing.assert_array_equal(images, before)


def test_a_mean_that_was_assigned_beyond_the_bytes_is_clipped_too():
    images = np.zeros((8, 10_000), np.uint8)
    mean, var = np.full(10_000, 5000.0), np.full(10_000, 2500.0)
    *_, ours = learn_and_standardize_images(mean, var, np.float64(1e9), images, 1e-8, 10.0)
    np.testing.assert_array_equal(ours, -10)


def test_what_is_no_batch_of_images_is_left_to_the_other_kernels():
    images = np.zeros((8, 100, 100), np.uint8)
    assert are_images(images, "float32")
    assert not are_images(images, "float64")
    assert not are_images(images.astype(np.int16), "float32")
    assert not are_images(images[:, :10, :10].copy(), "float32")  # small
    assert not are_images(images.T, "float32")
    assert not are_images(np.zeros((258, 300), np.uint8), "float32")  # sums are not exact
