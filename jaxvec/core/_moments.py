"""Running mean and variance that stay right: exact merging, counts that never saturate.

In float64 (NumPy, or JAX with x64) the kernel is Stable-Baselines3's, operation by operation, so that
both give the same bits. In float32 (JAX) every number is held as a pair of floats whose unevaluated sum
is its value: a plain float32 count stops at 2^24 batches' worth, and a mean or variance stops moving once
an update is smaller than half a unit in the last place.
"""

from typing import Literal, NamedTuple

import numpy as np

from jaxvec.core._host_moments import standardize_on_host, update_on_host
from jaxvec.core._xp import (
    Namespace,
    all_rows,
    backend_namespace,
    expand_mask,
    is_numpy,
    moment_dtype,
    namespace,
)
from jaxvec.typing import Array

PRIOR_COUNT = 1e-4
"""The weight of the prior N(0, 1), samples: Stable-Baselines3's value."""

Precision = Literal["float64", "float32"]
"""Of the host's arithmetic. "float64" gives SB3's bits; "float32" is faster, within 1e-6 of the value. On a
device the dtype of the moments decides."""
PRECISIONS = ("float64", "float32")


class RunningMoments(NamedTuple):
    """Mean, population variance and number of the samples so far; the low words are 0 in float64.

    The shapes are those of ONE sample, whatever the number of environments.
    """

    mean: Array  # [*D]
    var: Array  # [*D]
    count: Array  # []
    mean_low: Array  # [*D]: what `mean` rounded away
    var_low: Array  # [*D]
    count_low: Array  # []


def init_moments(shape: tuple[int, ...], backend: str = "jax") -> RunningMoments:
    """Returns the moments before any sample: mean 0, variance 1, with the weight of 1e-4 samples.

    Args:
      shape: the shape of one sample.
      backend: "numpy" (float64) or "jax" (float32; float64 where x64 is enabled).
    """
    xp, dtype = backend_namespace(backend), moment_dtype(backend)
    count = xp.asarray(PRIOR_COUNT, dtype=dtype)
    low = 0.0 if dtype == np.float64 else PRIOR_COUNT - float(np.float32(PRIOR_COUNT))
    zeros = xp.zeros(shape, dtype)
    return RunningMoments(
        zeros, xp.ones(shape, dtype), count, zeros, zeros, xp.asarray(low, dtype=dtype)
    )


def update_moments(
    moments: RunningMoments,
    batch: Array,
    mask: Array | None = None,
    *,
    precision: Precision = "float64",
) -> RunningMoments:
    """Merges a batch of samples into the running moments.

    The batch counts as a set of its own with mean `m_b`, variance `v_b` and size `B`, and the two
    sets are merged exactly (no forgetting):

        d = m_b - mean,    n = count + B
        mean' = mean + d B / n
        var'  = (var count + v_b B + d^2 count B / n) / n

    >>> import numpy as np
    >>> moments = update_moments(init_moments((2,), "numpy"), np.array([[1.0, 2.0], [3.0, 6.0]]))
    >>> np.round(moments.mean, 4).tolist(), round(float(moments.count), 4)
    ([1.9999, 3.9998], 2.0001)

    Args:
      moments: the moments so far; shapes `[*D]` and `[]`.
      batch: the samples, `[B, *D]` with B >= 1, of any dtype, in the unit of `moments.mean`.
      mask: bool `[B]`: which rows count; None for all. With no row, the moments stay as they are.
      precision: of the host's arithmetic, see `Precision`.

    Returns:
      The moments of all samples so far, in the dtype of `moments`.

    Raises:
      ValueError: if a sample's shape is not that of `moments.mean`: broadcasting would average the
        wrong axes without a word.

    References:
      Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
      Variances, 1979, eq. 2.1.
    """
    mean, shape = moments.mean, batch.shape
    if shape[1:] != mean.shape or not shape or not shape[0]:
        raise ValueError(
            f"update_moments: the batch has shape {tuple(shape)}, but one sample of these "
            f"moments has shape {tuple(mean.shape)}: pass [B, *sample] with B >= 1."
        )
    if mask is not None and all_rows(mask):
        mask = None
    if not is_numpy(mean):
        xp = namespace(mean)
        return _merge(xp, moments, *_batch_on_device(xp, moments, batch, mask))
    if mask is not None:
        batch = batch[mask]
        if len(batch) == 0:
            return moments
    merged = update_on_host(mean, moments.var, moments.count, batch, precision)
    return RunningMoments._make((*merged, *moments[3:]))


def merge_moments(moments: RunningMoments, other: RunningMoments) -> RunningMoments:
    """Merges two sets of samples, of other rows, devices, seeds or runs, as if all had come in one.

    The prior of `other` is merged with it (its weight is 1e-4 samples).

    Args:
      moments: the one set; its dtype is the result's.
      other: the other set, of samples of the same shape.
    """
    xp = namespace(moments.mean)
    delta = (other.mean - moments.mean) + (other.mean_low - moments.mean_low)
    merged = _merge(xp, moments, delta, other.var + other.var_low, other.count)
    count, low = two_sum(merged.count, merged.count_low + other.count_low)
    return merged._replace(count=count, count_low=low)


def merge_rows(moments: RunningMoments, rows: RunningMoments) -> RunningMoments:
    """Merges R sets, stacked along a leading axis, into one running set.

    Args:
      moments: the running set; shapes `[*D]` and `[]`.
      rows: R sets that hold no prior; shapes `[R, *D]` and `[R]`. The low words are not read.
    """
    xp = namespace(moments.mean)
    size = expand_mask(rows.count, rows.mean)
    pooled = _pooled(xp, moments, rows.mean - moments.mean, rows.var, size)
    return _merge(xp, moments, *pooled)


def standardize(
    x: Array,
    moments: RunningMoments,
    *,
    epsilon: float = 1e-8,
    clip: float = np.inf,
    precision: Precision = "float64",
) -> Array:
    """Returns `(x - mean) / sqrt(var + epsilon)`, clipped to `[-clip, clip]`.

    Args:
      x: `[..., *D]`, of any dtype: whole numbers are cast before they are subtracted.
      moments: shapes `[*D]`.
      epsilon: added to the variance, in its unit.
      clip: the largest magnitude, standard deviations.
      precision: of the host's arithmetic, see `Precision`.

    Returns:
      Float32, of the shape of `x`.
    """
    xp = namespace(x)
    if xp is np:
        if np.ndim(x) > 0:
            return standardize_on_host(x, moments.mean, moments.var, epsilon, clip, precision)
        scaled = (x - moments.mean) / np.sqrt(moments.var + epsilon)
        return np.clip(scaled, -clip, clip).astype(np.float32)
    dtype = moments.mean.dtype
    # mean + mean_low is the mean: near it, the low word is a visible part of the difference.
    centered = (x.astype(dtype) - moments.mean) - moments.mean_low
    scaled = centered * (1 / xp.sqrt(moments.var + dtype.type(epsilon)))
    return _clip(xp, scaled, clip).astype(np.float32)


def unstandardize(x: Array, moments: RunningMoments, *, epsilon: float = 1e-8) -> Array:
    """Returns `x sqrt(var + epsilon) + mean`: the inverse of `standardize` where that did not clip.

    Returns:
      The dtype of `moments` (float64 in NumPy), of the shape of `x`.
    """
    xp = namespace(x)
    if xp is np:
        return x * np.sqrt(moments.var + epsilon) + moments.mean
    dtype = moments.mean.dtype
    return x.astype(dtype) * xp.sqrt(moments.var + dtype.type(epsilon)) + moments.mean


def scale_by_std(
    x: Array, moments: RunningMoments, *, epsilon: float = 1e-8, clip: float = np.inf
) -> Array:
    """Returns `x / sqrt(var + epsilon)`, clipped to `[-clip, clip]`: the mean is left in (rewards)."""
    xp = namespace(x)
    if xp is np:
        scaled = x / np.sqrt(moments.var + epsilon)
        return scaled.clip(-clip, clip).astype(np.float32)
    dtype = moments.mean.dtype
    scaled = x.astype(dtype) * (1 / xp.sqrt(moments.var + dtype.type(epsilon)))
    return _clip(xp, scaled, clip).astype(np.float32)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the rounded sum of two arrays and what the rounding lost, exactly.

    References:
      Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B.
    """
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _clip(xp: Namespace, x: Array, limit: float) -> Array:
    return xp.clip(x, -limit, limit) if np.isfinite(limit) else x


def _batch_on_device(
    xp: Namespace, moments: RunningMoments, batch: Array, mask: Array | None
) -> tuple[Array, Array, Array]:
    """Returns the rows' mean less the running mean, their population variance and their number.

    The batch is read as `[N / L, L * D]`: L sets side by side, as many as make the inner loop wide. (A
    sum over the rows of `[2048, 4]` runs at a quarter of the speed of one over the rows of `[64, 128]`
    on a CPU.) Sums are of differences to a number amid the samples, so that little cancels and one
    reading is enough: to the running mean, or while that rests on less than this batch, to the set's
    first row. (To a first row far out, N / L units in the last place of the variance would cancel.)
    """
    dtype, width = moments.mean.dtype, moments.mean.size
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
    return _pooled(
        xp,
        moments,
        shift=((pivot - mean) + offset).reshape(sets),
        var=var.reshape(sets),
        size=xp.broadcast_to(size, num_sets * width).reshape(sets),
    )


def _pooled(
    xp: Namespace, moments: RunningMoments, shift: Array, var: Array, size: Array
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
    var = ((var + (shift - delta) ** 2) * size).sum(0) / divisor
    delta = xp.where(total > 0, delta - moments.mean_low, 0)
    return delta, var, total.reshape(-1)[0]


def _num_sets(num_rows: int, width: int) -> int:
    """Returns L, a power of two that divides the rows, with L times the width about 128."""
    num_sets = 1
    while num_sets * width < 128 and num_rows % (16 * num_sets) == 0:
        num_sets *= 2
    return num_sets


def _merge(
    xp: Namespace, moments: RunningMoments, delta: Array, var: Array, count: Array
) -> RunningMoments:
    """Merges a set whose mean is the running mean plus `delta`."""
    if moments.mean.dtype == np.float64:
        return _merge_float64(xp, moments, delta, var, count)
    return _merge_pairs(xp, moments, delta, var, count)


def _merge_float64(
    xp: Namespace, moments: RunningMoments, delta: Array, var: Array, count: Array | int
) -> RunningMoments:
    # The order of operations is SB3's (running_mean_std.py, update_from_moments): same bits.
    total = moments.count + count
    mean = moments.mean + delta * count / total
    m_2 = moments.var * moments.count + var * count
    m_2 = m_2 + xp.square(delta) * moments.count * count / total
    return moments._replace(mean=mean, var=m_2 / total, count=total)


def _merge_pairs(
    xp: Namespace, moments: RunningMoments, delta: Array, var: Array, added: Array
) -> RunningMoments:
    # Increments, not totals: var * count would overflow the digits of a float32 at once. And to the
    # larger of the two sets: a weight close to 1 would leave the rounding of what it takes away.
    count, carry = two_sum(moments.count, added)
    count, count_low = two_sum(count, carry + moments.count_low)
    weight, rest = added / count, moments.count / count
    mean, carry = two_sum(moments.mean, delta * weight)
    mean, mean_low = two_sum(mean, carry + moments.mean_low)
    change = (var - moments.var) - moments.var_low
    smaller = added < moments.count
    gain = xp.where(
        smaller, (change + delta**2 * rest) * weight, (delta**2 * weight - change) * rest
    )
    var, carry = two_sum(xp.where(smaller, moments.var, var), gain)
    var, var_low = two_sum(var, carry + xp.where(smaller, moments.var_low, 0))
    return RunningMoments(mean, xp.maximum(var, 0), count, mean_low, var_low, count_low)
