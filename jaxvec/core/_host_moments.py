"""The kernels of moments on NumPy arrays: the same bits as `np.mean`, `np.var` and Stable-Baselines3, sooner.

What SB3 computes is fixed operation by operation; what is free is how often a mean is taken, where the
results lie, and in which pieces. Large arrays are worked on in parts that stay in the cache; sums over
rows keep their order, and so their rounding.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]
Kernel = Callable[..., None]

TILE = 16384
"""Elements worked on at a time: 128 KiB of float64 stay in a core's cache."""

WIDE = 1024
"""Elements of a sample from which on samples are worked on one by one."""

EXACT_IN_FLOAT32 = 8192
"""Rows up to which NumPy's float32 sums are kept, since SB3 has their rounding; beyond it drifts."""


_FLOAT64 = np.dtype(np.float64)


def batch_on_host(rows: HostArray, precision: str) -> tuple[Any, Any]:
    """Returns mean and population variance of rows, `[B, *D]`: each `[*D]`.

    Args:
      rows: of any dtype; they stay as they are.
      precision: "float64", or "float32" for sums of whole numbers in whole numbers: they are exact, where
        those of SB3 are rounded.
    """
    dtype = _dtype_of_sums(rows)
    if rows.size <= TILE:
        return _plain(rows, dtype)
    if precision == "float32" and rows.dtype == np.uint8 and len(rows) <= EXACT_IN_FLOAT32:
        return _exact_of_bytes(rows)
    if rows[0].size >= WIDE and rows.flags.c_contiguous and dtype is not None:
        return _row_by_row(rows, dtype)
    return _plain(rows, dtype)


def _dtype_of_sums(rows: HostArray) -> Any:
    """Returns the dtype of a batch's sums: NumPy's own choice where that is accurate, else float64."""
    dtype = rows.dtype
    if dtype.kind == "f" and dtype.itemsize >= 4 and len(rows) <= EXACT_IN_FLOAT32:
        return dtype
    return _FLOAT64 if dtype.kind in "fbiu" else None


def _plain(rows: HostArray, dtype: Any) -> tuple[Any, Any]:
    # NumPy's own order (mean and var of numpy/_core/_methods.py), with one sum less.
    size = len(rows)
    mean = np.add.reduce(rows, 0, dtype) / size
    deviations = rows - mean
    deviations *= deviations
    return mean, np.add.reduce(deviations, 0, dtype) / size


def _row_by_row(rows: HostArray, dtype: Any) -> tuple[HostArray, HostArray]:
    # As `_plain`, with deviations of one row at a time.
    shape, size = rows.shape[1:], len(rows)
    flat = rows.reshape(size, -1)
    whole = flat.dtype == np.uint8 and size <= 257  # the sum of 257 bytes has 16 bits
    mean = np.add.reduce(flat, axis=0, dtype=np.uint16 if whole else dtype) / size
    total, deviations = np.zeros(flat.shape[1], dtype), np.empty(flat.shape[1], dtype)
    for row in flat:
        np.subtract(row, mean, out=deviations)
        np.multiply(deviations, deviations, out=deviations)
        np.add(total, deviations, out=total)
    total /= size
    return mean.reshape(shape), total.reshape(shape)


def _exact_of_bytes(rows: HostArray) -> tuple[Any, Any]:
    """Returns mean and variance of bytes from their sum and sum of squares, which are whole."""
    size = len(rows)
    total = np.add.reduce(rows, axis=0, dtype=np.uint32).astype(np.float64)
    squares = np.multiply(rows, rows, dtype=np.uint16)
    square = np.add.reduce(squares, axis=0, dtype=np.uint32).astype(np.float64)
    return total / size, (square * size - total * total) / (size * size)


def merge_on_host(mean: Any, var: Any, count: Any, delta: Any, batch_var: Any, size: Any) -> Any:
    """Merges a set whose mean is the running mean plus `delta`; returns mean, variance and count.

    The order of operations is SB3's (running_mean_std.py, update_from_moments): the same bits.
    """
    if mean.ndim == 0:
        # Python's numbers are faster than NumPy's scalars; a float32 variance keeps its own rounding.
        count, delta, batch = float(count), float(delta), float(batch_var * size)
        total = count + size
        squares = float(var) * count + batch + delta * delta * count * size / total
        mean = float(mean) + delta * size / total
        return np.float64(mean), np.float64(squares / total), np.float64(total)
    total = count + size
    squares = delta * delta
    squares *= count
    squares *= size
    squares /= total
    new_var = var * count
    new_var += batch_var * size
    new_var += squares
    new_var /= total
    step = delta * size
    step /= total
    step += mean
    return step, new_var, total


def standardize_on_host(
    x: HostArray, mean: Any, var: Any, epsilon: float, clip: float, precision: str
) -> HostArray:
    """Returns `(x - mean) / sqrt(var + epsilon)`, clipped, float32 of the shape of `x`, `[..., *D]`.

    Args:
      x: of any dtype.
      mean: float64 `[*D]`.
      var: float64 `[*D]`.
      epsilon: added to the variance.
      clip: the largest magnitude.
      precision: of the arithmetic: "float64", or "float32", which is within 1e-6 of the value.
    """
    kernel: Kernel
    constants: tuple[Any, ...]
    if precision == "float32":
        kernel, constants = _float32_kernel(x, mean, var + epsilon)
    else:
        kernel, constants = _in_float64, (mean, np.sqrt(var + epsilon))
    out = np.empty(x.shape, np.float32)
    if x.size <= TILE or x.shape[x.ndim - mean.ndim :] != mean.shape:
        kernel(x, out, *constants)
        return out.clip(-clip, clip, out=out)
    width, constants = max(mean.size, 1), tuple(each.reshape(-1) for each in constants)
    flat, flat_out = x.reshape(-1), out.reshape(-1)
    if width < WIDE:
        # Samples side by side, so that the inner loop is long.
        copies = min(TILE, x.size) // width
        width, constants = width * copies, tuple(np.tile(each, copies) for each in constants)
    for start in range(0, x.size, width):
        part, part_out = flat[start : start + width], flat_out[start : start + width]
        kernel(part, part_out, *(each[: len(part)] for each in constants))
        # Rounding keeps the order, so clipping may follow it.
        part_out.clip(-clip, clip, out=part_out)
    return out


def _in_float64(x: HostArray, out: HostArray, mean: Any, std: Any) -> None:
    np.divide(x - mean, std, out=out, casting="same_kind")


def _float32_kernel(x: HostArray, mean: Any, var: Any) -> tuple[Kernel, tuple[Any, ...]]:
    """Returns a kernel in float32 and its constants."""
    scale = 1 / np.sqrt(var.astype(np.float32))
    if x.dtype.itemsize > 4 or (x.dtype.itemsize == 4 and x.dtype.kind != "f"):
        return _of_wide_numbers, (mean, scale)
    # The mean in two words: near it, what one word rounds away is a visible part of the difference.
    high = mean.astype(np.float32)
    return _in_float32, (high, (mean - high).astype(np.float32), scale)


def _in_float32(x: HostArray, out: HostArray, high: Any, low: Any, scale: Any) -> None:
    np.subtract(x, high, out=out, dtype=np.float32)
    np.subtract(out, low, out=out)
    np.multiply(out, scale, out=out)


def _of_wide_numbers(x: HostArray, out: HostArray, mean: Any, scale: Any) -> None:
    np.subtract(x, mean, out=out, casting="same_kind")
    np.multiply(out, scale, out=out)
