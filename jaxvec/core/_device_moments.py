"""The kernels of moments on a device: sums that are accurate in float32, numbers held as pairs of floats."""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxvec.core._xp import Namespace, namespace
from jaxvec.typing import Array

if TYPE_CHECKING:  # the record stands on the kernels
    from jaxvec.core._moments import RunningMoments


def largest_variance(dtype: Any) -> Array:
    """Returns where a variance of a dtype ends: the sum of three such is still finite."""
    dtype = np.dtype(dtype)
    return dtype.type(np.finfo(dtype).max / 4)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the rounded sum of two arrays and what the rounding lost, exactly.

    References:
      Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B.
    """
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def batch_on_device(
    xp: Namespace, moments: "RunningMoments", batch: Array, mask: Array | None
) -> tuple[Array, Array, Array]:
    """Returns the rows' mean less the running mean, their population variance and their number.

    The batch is read as `[N / L, L * D]`: L sets side by side, as many as make the inner loop wide. (A
    sum over the rows of `[2048, 4]` runs at a quarter of the speed of one over the rows of `[64, 128]`
    on a CPU.) Sums are of differences to a number amid the samples, so that little cancels and one
    reading is enough: to the running mean, or while that rests on less than this batch, to the set's
    first row. (To a first row far out, N / L units in the last place of the variance would cancel.)
    """
    dtype, width = moments.mean.dtype, moments.mean.size
    if not width:  # there are no numbers, but they have been seen that often
        size = xp.asarray(batch.shape[0] if mask is None else mask.sum(), dtype)
        return moments.mean, moments.var, size
    num_sets = _num_sets(batch.shape[0], width)
    rows = batch.astype(dtype).reshape(-1, num_sets * width)
    mean = xp.tile(moments.mean.reshape(width), num_sets)
    if mask is None:
        pivot = xp.where(moments.count >= batch.shape[0], mean, rows[0])
        size = xp.asarray(rows.shape[0], dtype)
        divisor, deviations = size, rows - pivot
    else:
        # The first row may not count, and then holds anything, NaN too: the sets' means serve, for
        # which the batch is read once more.
        keep = xp.repeat(mask.reshape(-1, num_sets), width, axis=1)
        size = keep.sum(0, dtype=dtype)
        divisor = xp.maximum(size, 1)
        pivot = mean + xp.where(keep, rows - mean, 0).sum(0) / divisor
        deviations = xp.where(keep, rows - pivot, 0)
    offset = deviations.sum(0) / divisor
    var = xp.maximum((deviations**2).sum(0) / divisor - offset**2, 0)
    sets = (-1, *moments.mean.shape)
    return pool_sets(
        xp,
        moments,
        shift=((pivot - mean) + offset).reshape(sets),
        var=var.reshape(sets),
        size=xp.broadcast_to(size, num_sets * width).reshape(sets),
    )


def pool_sets(
    xp: Namespace, moments: "RunningMoments", shift: Array, var: Array, size: Array
) -> tuple[Array, Array, Array]:
    """Pools sets along axis 0 into one: its mean less the running mean, its variance, its number.

    Args:
      xp: the namespace.
      moments: the running set.
      shift: the sets' means less `moments.mean`, `[L, *D]`.
      var: their population variances, `[L, *D]`.
      size: their numbers of samples, `[L, *D]` or `[L, 1, ...]`.
    """
    total = size.sum(0)
    divisor = xp.maximum(total, 1)
    delta = (shift * size).sum(0) / divisor
    largest = largest_variance(moments.mean.dtype)
    apart = xp.minimum((shift - delta) ** 2, largest)
    var = ((var + apart) * size).sum(0) / divisor
    delta = xp.where(total > 0, delta - moments.mean_low, 0)
    # Squares of large numbers are infinite, and a difference of such is NaN: that ends here. (Bounded
    # before they are subtracted, images took a quarter longer.) A sample that is itself NaN or infinite
    # makes `delta` so, and the variance NaN, as on the host: bounded, it would go unnoticed.
    var = xp.where(xp.isfinite(delta), xp.where(var <= largest, var, largest), np.nan)
    return delta, var, total.reshape(-1)[0]


def _num_sets(num_rows: int, width: int) -> int:
    """Returns L, a power of two that divides the rows, with L times the width about 128."""
    num_sets = 1
    while num_sets * width < 128 and num_rows % (16 * num_sets) == 0:
        num_sets *= 2
    return num_sets


def merge_float64(
    moments: "RunningMoments", delta: Array, var: Array, added: Array
) -> "RunningMoments":
    """Merges a set whose mean is the running mean plus `delta`; SB3's order of operations, its bits."""
    total = moments.count + added
    squares = moments.var * moments.count + var * added
    squares = squares + delta**2 * moments.count * added / total
    mean = moments.mean + delta * added / total
    # Of nothing nothing comes: a variance times its count, over its count, may be another.
    var = namespace(total).where(added > 0, squares / total, moments.var)
    return moments._replace(mean=mean, var=var, count=total)


def merge_pairs(
    xp: Namespace, moments: "RunningMoments", delta: Array, var: Array, added: Array
) -> "RunningMoments":
    """Does what `merge_float64` does, in float32 with low words."""
    # Increments, not totals: var * count would overflow the digits of a float32 at once. And to the
    # larger of the two sets: a weight close to 1 would leave the rounding of what it takes away.
    count, carry = two_sum(moments.count, added)
    count, count_low = two_sum(count, carry + moments.count_low)
    weight, rest = added / count, moments.count / count
    mean, carry = two_sum(moments.mean, delta * weight)
    mean, mean_low = two_sum(mean, carry + moments.mean_low)
    change = (var - moments.var) - moments.var_low
    smaller = added < moments.count
    largest = largest_variance(moments.mean.dtype)
    apart = xp.minimum(delta**2, largest)
    gain = xp.where(smaller, (change + apart * rest) * weight, (apart * weight - change) * rest)
    var, carry = two_sum(xp.where(smaller, moments.var, var), gain)
    var, var_low = two_sum(var, carry + xp.where(smaller, moments.var_low, 0))
    return moments._replace(
        mean=mean,
        var=xp.clip(var, 0, largest),
        count=count,
        mean_low=mean_low,
        var_low=var_low,
        count_low=count_low,
    )
