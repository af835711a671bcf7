"""Images of bytes on NumPy arrays, learnt from and standardized in one go: float32 within 1e-6 of the value.

The bytes are cast once, and their sums taken from what they were cast to. What is left are passes over one
image: in float64 where the moments are, in float32 where they are used.
"""

from typing import Any

import numpy as np

from jaxvec.core._host_moments import FEW, HostArray

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_ONE = np.array(1, np.float32)

_SMALL = 8192
"""Bytes up to which the other kernels are as fast."""

_WHOLE_NUMBERS = 16
"""Rows up to which the square of a sum of bytes is exact in float32: below 2^24."""

_LIMIT = 10.0
"""Standard deviations within which the mean need not have a second word."""


def are_images(rows: HostArray, precision: str) -> bool:
    """Tells whether `learn_and_standardize_images` is meant for an array `[B, *D]`."""
    return (
        precision == "float32"
        and rows.dtype == np.uint8
        and rows.size > _SMALL
        and len(rows) <= FEW  # their sums of squares are exact in float32
        and rows.flags.c_contiguous
    )


def learn_and_standardize_images(
    mean: Any, var: Any, count: Any, rows: HostArray, epsilon: float, clip: float
) -> tuple[Any, Any, Any, HostArray]:
    """Merges images into running moments, and standardizes them by the new ones.

    Args:
      mean: float64 `[*D]`.
      var: float64 `[*D]`.
      count: float64 `[]`.
      rows: uint8 `[B, *D]`, see `are_images`.
      epsilon: added to the variance.
      clip: the largest magnitude that leaves.

    Returns:
      Mean, variance and count, float64, and the standardized images, float32 `[B, *D]`.
    """
    size, shape = len(rows), mean.shape
    scaled = rows.reshape(size, -1).astype(_FLOAT32)
    sums, squares = np.add.reduce(scaled, 0), np.einsum("ij,ij->j", scaled, scaled)
    mean, var = _merged(mean.reshape(-1), var.reshape(-1), count, sums, squares, size)
    high, scale = mean.astype(_FLOAT32), var.astype(_FLOAT32)
    scale += np.float32(epsilon)
    np.divide(_ONE, np.sqrt(scale, scale), scale)
    scaled -= high
    scaled *= scale
    if not _is_narrow(high, scale, min(clip, _LIMIT)):
        low = np.subtract(mean, high).astype(_FLOAT32)  # what one word of the mean rounds away
        low *= scale
        scaled -= low
        scaled.clip(-clip, clip, out=scaled)
    total = np.float64(count + size)
    return mean.reshape(shape), var.reshape(shape), total, scaled.reshape(rows.shape)


def _merged(
    mean: HostArray, var: HostArray, count: Any, sums: HostArray, squares: HostArray, size: int
) -> tuple[HostArray, HostArray]:
    """Merges a batch of known sums into the moments; see `update_moments`, here with fewer divisions."""
    total = float(count) + size
    share, rest = size / total, float(count) / total
    # size * squares - sums^2, a whole number: the batch's variance times size^2.
    exact: Any = _FLOAT32 if size <= _WHOLE_NUMBERS else _FLOAT64
    spread: Any = squares.astype(exact)
    spread *= size
    spread -= np.square(sums, dtype=exact)
    delta = sums.astype(_FLOAT64)
    delta *= 1 / size
    delta -= mean
    new_mean = delta * share
    new_mean += mean
    delta *= delta
    delta *= share * rest
    new_var = var * rest
    new_var += delta
    spread = spread.astype(_FLOAT64, copy=False)
    spread *= 1 / (size * total)
    new_var += spread
    return new_mean, new_var


def _is_narrow(mean: HostArray, scale: HostArray, limit: float) -> bool:
    """Tells whether no byte at all can be further from the mean than some standard deviations."""
    return bool(255 * scale.max() <= limit and mean.min() >= 0 and mean.max() <= 255)
