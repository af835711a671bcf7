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

WHOLE = 65536
"""Elements up to which an array is worked on as a whole: 512 KiB of float64 stay in a core's cache."""

WIDE = 1024
"""Elements of a sample from which on a larger array is worked on sample by sample."""

PART = 16384
"""Elements of smaller samples that are worked on at a time."""

FEW = 257
"""Bytes of which the sum has 16 bits."""

EXACT_IN_FLOAT32 = 8192
"""Rows up to which NumPy's float32 sums are kept, since SB3 has their rounding; beyond it drifts."""


_FLOAT64 = np.dtype(np.float64)


def update_on_host(
    mean: Any, var: Any, count: Any, rows: HostArray, precision: str
) -> tuple[Any, ...]:
    """Merges rows into running moments; returns mean, variance and count.

    Args:
      mean: float64 `[*D]`.
      var: float64 `[*D]`.
      count: float64 `[]`.
      rows: `[B, *D]` with B >= 1, of any dtype.
      precision: "float64", or "float32" for sums of bytes in whole numbers: they are exact, where those of
        SB3 are rounded.
    """
    dtype, size = _dtype_of_sums(rows), len(rows)
    batch = _plain
    if rows.size > WHOLE and mean.size >= WIDE and rows.flags.c_contiguous and dtype is not None:
        exact = size <= (EXACT_IN_FLOAT32 if precision == "float32" else _exact_powers(size))
        batch = _exact_of_bytes if exact and rows.dtype == np.uint8 else _row_by_row
    batch_mean, batch_var = batch(rows, dtype)
    return merge_on_host(mean, var, count, batch_mean - mean, batch_var, size)


def _exact_powers(size: int) -> int:
    """Returns up to which number of rows sums of bytes are exact in SB3's arithmetic too."""
    # With a power of two of rows, deviations from the mean and their squares have few binary digits: all 52
    # at 4096 rows.
    return 4096 if _is_power_of_two(size) else 0


def _is_power_of_two(size: int) -> bool:
    return size & (size - 1) == 0


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
    whole = flat.dtype == np.uint8 and size <= FEW
    mean = np.add.reduce(flat, 0, np.uint16 if whole else dtype) / size
    total, deviations = np.zeros(mean.shape, dtype), np.empty(mean.shape, dtype)
    for row in flat:
        deviations[...] = row
        deviations -= mean
        deviations *= deviations
        total += deviations
    total /= size
    return mean.reshape(shape), total.reshape(shape)


def _exact_of_bytes(rows: HostArray, dtype: Any) -> tuple[HostArray, HostArray]:
    # From the sum and the sum of squares, which are whole numbers.
    shape, size = rows.shape[1:], len(rows)
    flat = rows.reshape(size, -1)
    squares, wide, square = (np.zeros(flat.shape[1], each) for each in ("u4", "u4", "u2"))
    for row in flat:
        square[...] = row
        square *= square
        wide[...] = square
        squares += wide
    total = np.add.reduce(flat, 0, np.uint16 if size <= FEW else np.uint32).astype(dtype)
    var = squares.astype(dtype)
    var *= size
    var -= total * total
    var /= size * size
    total /= size
    return total.reshape(shape), var.reshape(shape)


def merge_on_host(
    mean: Any, var: Any, count: Any, delta: Any, batch_var: Any, size: Any
) -> tuple[Any, ...]:
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
    if _is_power_of_two(size):
        # A power of two times anything rounds nothing: it may as well divide what is divided by.
        shares = total / size
        step = delta / shares
    else:
        shares = total
        squares *= size
        step = delta * size
        step /= total
    squares /= shares
    step += mean
    new_var = var * count
    new_var += batch_var * size
    new_var += squares
    new_var /= total
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
    if precision == "float32":
        kernel, constants = _prepared_float32(x.dtype, mean, var + epsilon)
    else:
        kernel, constants = _in_float64, (mean, np.sqrt(var + epsilon))
    out = np.empty(x.shape, np.float32)
    if x.size <= WHOLE or x.shape[x.ndim - mean.ndim :] != mean.shape:
        kernel(x, out, None, *constants)
        return out.clip(-clip, clip, out=out)
    width, constants = max(mean.size, 1), tuple(each.reshape(-1) for each in constants)
    if width < WIDE:
        # Samples side by side, so that the inner loop is long.
        copies = PART // width
        width, constants = width * copies, tuple(np.tile(each, copies) for each in constants)
    flat, flat_out, scratch = x.reshape(-1), out.reshape(-1), np.empty(width)
    for start in range(0, x.size, width):
        part, part_out = flat[start : start + width], flat_out[start : start + width]
        kernel(part, part_out, *(each[: len(part)] for each in (scratch, *constants)))
        # Rounding keeps the order, so clipping may follow it.
        part_out.clip(-clip, clip, out=part_out)
    return out


# A copy that casts, then arithmetic in one dtype, takes less time than arithmetic that casts on the way.


def _in_float64(x: HostArray, out: HostArray, scratch: Any, mean: Any, std: Any) -> None:
    if scratch is None:
        np.divide(x - mean, std, out=out, casting="same_kind")
        return
    scratch[...] = x
    scratch -= mean
    scratch /= std
    out[...] = scratch


def _prepared_float32(dtype: Any, mean: Any, var: Any) -> tuple[Kernel, tuple[Any, ...]]:
    """Returns a kernel in float32 and its constants."""
    scale = 1 / np.sqrt(var.astype(np.float32))
    if dtype.itemsize > 4 or (dtype.itemsize == 4 and dtype.kind != "f"):
        return _of_wide_numbers, (mean, scale)
    # The mean in two words: near it, what one word rounds away is a visible part of the difference.
    high = mean.astype(np.float32)
    return _in_float32, (high, (mean - high).astype(np.float32), scale)


def _in_float32(
    x: HostArray, out: HostArray, scratch: Any, high: Any, low: Any, scale: Any
) -> None:
    del scratch
    out[...] = x
    out -= high
    out -= low
    out *= scale


def _of_wide_numbers(x: HostArray, out: HostArray, scratch: Any, mean: Any, scale: Any) -> None:
    del scratch
    np.subtract(x, mean, out=out, casting="same_kind")
    out *= scale
