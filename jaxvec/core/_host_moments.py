"""The kernels of moments on NumPy arrays: the same bits as `np.mean`, `np.var` and Stable-Baselines3, sooner.

What SB3 computes is fixed operation by operation; what is free is how often a mean is taken, where the
results lie, and in which pieces. Large arrays are worked on in parts that stay in the cache; sums over
rows keep their order, and so their rounding.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

HostArray = np.ndarray[Any, Any]
Kernel = Callable[..., None]
Batch = Callable[[HostArray, Any], tuple[Any, Any]]

WHOLE = 16384
"""Elements up to which an array is worked on as a whole: 128 KiB of float64 stay in a core's cache."""

SCRATCH = 262144
"""Elements of 16 bits, 512 KiB, that stay there while bytes are summed."""

WIDE = 1024
"""Elements of a sample from which on a larger array is worked on sample by sample."""

PART = 32768
"""Elements of smaller samples that are worked on at a time."""

MANY = 512
"""Samples from which on, if they are small, what an array's rows cost apart from their elements counts."""

SMALL = 2048
"""Elements up to which two comparisons take less time than `clip`, which is two functions in Python."""

FEW = 257
"""Bytes of which the sum has 16 bits, and 257 times the sum of squares has 32."""

EXACT_IN_FLOAT32 = 8192
"""Rows up to which NumPy's float32 sums are kept, since SB3 has their rounding; beyond it drifts."""

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_sum, _maximum, _minimum = np.add.reduce, np.maximum, np.minimum


@lru_cache(256)
def _number(value: float, dtype: Any) -> HostArray:
    # An array `[]`: a ufunc takes it in half the time of a Python number.
    return np.array(value, dtype)


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
    size = len(rows)
    dtype = _dtype_of_sums(rows.dtype, size)
    if not _stays_whole(rows.size, mean.size):
        batch_mean, batch_var = _kernel_for(rows, mean.size, dtype, precision)(rows, dtype)
    elif mean.ndim == 0 and rows.dtype is _FLOAT64:
        batch_mean, batch_var = _of_numbers(rows)
    else:
        batch_mean, batch_var = _plain(rows, dtype)
    return _merged(mean, var, count, batch_mean - mean, batch_var, size)


def _stays_whole(size: int, width: int) -> bool:
    """Tells whether an array of samples of so many elements is best worked on as a whole."""
    return size <= WHOLE or (width < WIDE and size <= 4 * WHOLE and size < MANY * width)


def _kernel_for(rows: HostArray, width: int, dtype: Any, precision: str) -> Batch:
    if dtype is None or not rows.flags.c_contiguous:
        return _plain
    if width < WIDE:
        return _part_by_part if width > 1 and rows.dtype == dtype else _plain
    exact = EXACT_IN_FLOAT32 if precision == "float32" else _exact_powers(len(rows))
    return _exact_of_bytes if rows.dtype == np.uint8 and len(rows) <= exact else _row_by_row


def _exact_powers(size: int) -> int:
    """Returns up to which number of rows sums of bytes are exact in SB3's arithmetic too."""
    # With a power of two of rows, deviations from the mean and their squares have few binary digits: all 52
    # at 4096 rows.
    return 4096 if _is_power_of_two(size) else 0


def _is_power_of_two(size: Any) -> bool:
    return isinstance(size, int) and size & (size - 1) == 0


def _dtype_of_sums(dtype: Any, size: int) -> Any:
    """Returns the dtype of a batch's sums: NumPy's own choice where that is accurate, else float64."""
    if dtype.kind == "f" and dtype.itemsize >= 4 and size <= EXACT_IN_FLOAT32:
        return dtype
    return _FLOAT64 if dtype.kind in "fbiu" else None


# NumPy's own order (mean and var of numpy/_core/_methods.py), with one sum less.


def _plain(rows: HostArray, dtype: Any) -> tuple[Any, Any]:
    size = len(rows)
    share = size if dtype is None else _number(size, dtype)
    mean = _sum(rows, 0, dtype)
    mean = mean / share
    deviations = rows - mean
    deviations *= deviations
    return mean, _sum(deviations, 0, dtype) / share


def _of_numbers(rows: HostArray) -> tuple[float, float]:
    # Python's numbers are faster than NumPy's scalars.
    size = len(rows)
    mean = float(_sum(rows)) / size
    deviations = rows - mean
    deviations *= deviations
    return mean, float(_sum(deviations)) / size


def _part_by_part(rows: HostArray, dtype: Any) -> tuple[HostArray, HostArray]:
    # `einsum` adds row after row too, in half the time where rows are short.
    size, width = len(rows), rows[0].size
    flat = rows.reshape(-1)
    mean = np.einsum("ij->j", rows.reshape(size, width)) / _number(size, dtype)
    length = max(PART // width, 1)
    means = np.tile(mean, length)
    # The sum so far is the first row of the next part, so that the order is that of one sum.
    work = np.zeros((length + 1, width), dtype)
    total = work[0].copy()
    for start in range(0, flat.size, length * width):
        part = flat[start : start + length * width]
        deviations = work.reshape(-1)[width : width + part.size]
        np.subtract(part, means[: part.size], deviations)
        np.multiply(deviations, deviations, deviations)
        np.einsum("ij->j", work[: 1 + part.size // width], out=total)
        work[0] = total
    shape = rows.shape[1:]
    return mean.reshape(shape), (total / _number(size, dtype)).reshape(shape)


def _row_by_row(rows: HostArray, dtype: Any) -> tuple[HostArray, HostArray]:
    # As `_plain`, with deviations of one row at a time.
    shape, size = rows.shape[1:], len(rows)
    flat = rows.reshape(size, -1)
    whole = flat.dtype == np.uint8 and size <= FEW
    mean = _sum(flat, 0, np.uint16 if whole else dtype) / size
    total, deviations = np.zeros(mean.shape, dtype), np.empty(mean.shape, dtype)
    for row in flat:
        deviations[...] = row
        deviations -= mean
        deviations *= deviations
        total += deviations
    total /= size
    return mean.reshape(shape), total.reshape(shape)


def _exact_of_bytes(rows: HostArray, dtype: Any) -> tuple[HostArray, HostArray]:
    # From the sum and the sum of squares, which are whole numbers, of 32 bits while there are few.
    size = len(rows)
    total, squares = _sums_of_bytes(rows.reshape(size, -1))
    exact: Any = np.uint32 if size <= FEW else dtype
    spread, square = squares.astype(exact, copy=False), total.astype(exact)
    spread *= _number(size, exact)
    square *= square
    spread -= square
    total, var = total.astype(dtype), spread.astype(dtype, copy=False)
    if _is_power_of_two(size):  # a product is exact too, and sooner
        var *= 1 / (size * size)
        total *= 1 / size
    else:
        var /= size * size
        total /= size
    shape = rows.shape[1:]
    return total.reshape(shape), var.reshape(shape)


def _sums_of_bytes(flat: HostArray) -> tuple[HostArray, HostArray]:
    """Returns the sums and the sums of squares of bytes `[B, W]` over the rows, whole numbers `[W]`."""
    size, width = flat.shape
    total = np.empty(width, np.uint16 if size <= FEW else np.uint32)
    squares = np.empty(width, np.uint32)
    length = max(SCRATCH // size, 1)
    work = np.empty((size, min(length, width)), np.uint16)
    for start in range(0, width, length):
        part = slice(start, min(start + length, width))
        numbers = work[:, : part.stop - start]
        numbers[...] = flat[:, part]
        _sum(numbers, 0, total.dtype, out=total[part])
        np.multiply(numbers, numbers, numbers)
        _sum(numbers, 0, np.uint32, out=squares[part])
    return total, squares


def merge_on_host(
    mean: Any, var: Any, count: Any, delta: Any, batch_var: Any, size: Any
) -> tuple[Any, ...]:
    """Merges a set whose mean is the running mean plus `delta`; returns mean, variance and count.

    The order of operations is SB3's (running_mean_std.py, update_from_moments): the same bits.
    """
    return _merged(mean, var, count, +delta, +batch_var, size)


def _merged(
    mean: Any, var: Any, count: Any, delta: Any, batch_var: Any, size: Any
) -> tuple[Any, ...]:
    # As `merge_on_host`, but it may write into `delta` and `batch_var`.
    if mean.ndim == 0:
        # Python's numbers again; a float32 variance keeps its own rounding.
        count, delta, batch = float(count), float(delta), float(batch_var * size)
        total = count + size
        squares = float(var) * count + batch + delta * delta * count * size / total
        mean = float(mean) + delta * size / total
        return np.float64(mean), np.float64(squares / total), np.float64(total)
    total = count + size
    old, new = np.array(count), np.array(total)
    squares = delta * delta
    squares *= old
    if _is_power_of_two(size):
        # A power of two times anything rounds nothing: it may as well divide what is divided by.
        shares = np.array(total / size)
        delta /= shares
    else:
        shares = new
        squares *= size
        delta *= size
        delta /= new
    squares /= shares
    delta += mean
    new_var = var * old
    batch_var *= _number(size, batch_var.dtype)
    new_var += batch_var
    new_var += squares
    new_var /= new
    return delta, new_var, total


def scale_on_host(x: HostArray, var: Any, epsilon: float, clip: float) -> HostArray:
    """Returns `x / sqrt(var + epsilon)`, clipped, float32 of the shape of `x`.

    Args:
      x: `[...]`, of any dtype.
      var: float64 `[]`.
      epsilon: added to the variance.
      clip: the largest magnitude.
    """
    return _clipped((x / np.sqrt(var + epsilon)).astype(_FLOAT32), clip)


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
      precision: of the arithmetic: "float64", or for what is large "float32", which is within 1e-6 of the
        value.
    """
    fits = x.shape[x.ndim - mean.ndim :] == mean.shape
    whole = not fits or _stays_whole(x.size, mean.size)
    if precision == "float32" and x.size > WHOLE:
        kernel, constants = _prepared_float32(x.dtype, mean, var + epsilon)
    else:
        std = np.sqrt(var + epsilon)
        if fits and whole:
            scaled = x - mean
            scaled /= std
            return _clipped(scaled.astype(_FLOAT32), clip)
        kernel, constants = _in_float64, (mean, std)
    out = np.empty(x.shape, np.float32)
    if whole:
        kernel(x, out, None, *constants)
        return _clipped(out, clip)
    width, constants = max(mean.size, 1), tuple(each.reshape(-1) for each in constants)
    if width < WIDE:
        # Samples side by side, so that the inner loop is long.
        copies = PART // width
        width, constants = width * copies, tuple(np.tile(each, copies) for each in constants)
    flat, flat_out, scratch = x.reshape(-1), out.reshape(-1), np.empty(width)
    for start in range(0, x.size, width):
        part, part_out = flat[start : start + width], flat_out[start : start + width]
        if len(part) < width:
            scratch = scratch[: len(part)]
            constants = tuple(each[: len(part)] for each in constants)
        kernel(part, part_out, scratch, *constants)
    return _clipped(out, clip)


def _clipped(x: HostArray, clip: float) -> HostArray:
    # Rounding keeps the order, so clipping may follow it.
    if x.size > SMALL:
        return x.clip(-clip, clip, out=x)
    _maximum(x, _number(-clip, _FLOAT32), out=x)
    return _minimum(x, _number(clip, _FLOAT32), out=x)


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
