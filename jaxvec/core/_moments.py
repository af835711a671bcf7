"""Running mean and variance that stay right: exact merging, counts that never saturate.

In float64 (NumPy, or JAX with x64) the kernel is Stable-Baselines3's, operation by operation, so that
both give the same bits. In float32 (JAX) every number is held as a pair of floats whose unevaluated sum
is its value: a plain float32 count stops at 2^24 batches' worth, and a mean or variance stops moving once
an update is smaller than half a unit in the last place.
"""

from typing import Literal, NamedTuple

import numpy as np

from jaxvec.core._arguments import check_clip, check_count, check_epsilon, check_one_of
from jaxvec.core._device_moments import (
    batch_on_device,
    merge_float64,
    merge_pairs,
    pool_sets,
    two_sum,
)
from jaxvec.core._host_moments import (
    merge_on_host,
    scale_on_host,
    standardize_on_host,
    update_on_host,
)
from jaxvec.core._xp import (
    Namespace,
    all_rows,
    backend_namespace,
    expand_mask,
    is_array,
    is_numpy,
    is_traced,
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

    Attributes:
      mean: `[*D]`.
      var: `[*D]`.
      count: `[]`.
      mean_low: `[*D]`: what `mean` rounded away.
      var_low: `[*D]`, likewise.
      count_low: `[]`, likewise.
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

    Raises:
      ValueError: if there is no such backend or shape.
    """
    check_one_of("init_moments", "backend", backend, ("numpy", "jax"))
    for length in shape if isinstance(shape, tuple | list) else (shape,):
        check_count("init_moments", "shape", length, least=0)
    xp, dtype = backend_namespace(backend), moment_dtype(backend)
    count = xp.asarray(PRIOR_COUNT, dtype=dtype)
    low = 0.0 if dtype == np.float64 else PRIOR_COUNT - float(np.float32(PRIOR_COUNT))
    # Three buffers of zeros: whoever steps may be given all of the state to overwrite.
    mean, mean_low, var_low = (xp.zeros(shape, dtype) for _ in range(3))
    count_low = xp.asarray(low, dtype=dtype)
    return RunningMoments(mean, xp.ones(shape, dtype), count, mean_low, var_low, count_low)


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
      The moments of all samples so far, in the dtype of `moments`. A float32 variance ends at 8.5e37:
      finite samples give finite moments as long as a batch's sum is finite too.

    Raises:
      ValueError: if a sample's shape is not that of `moments.mean`: broadcasting would average the
        wrong axes without a word; or if the mask is no bool per row: its numbers would choose rows.

    References:
      Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
      Variances, 1979, eq. 2.1.
    """
    if precision not in PRECISIONS:
        check_one_of("update_moments", "precision", precision, PRECISIONS)
    batch = _numbers("update_moments", "batch", batch, moments)
    mean, shape = moments.mean, batch.shape
    if shape[1:] != mean.shape or not shape or not shape[0]:
        raise ValueError(
            f"update_moments: the batch has shape {tuple(shape)}, but one sample of these "
            f"moments has shape {tuple(mean.shape)}: pass [B, *sample] with B >= 1."
        )
    if mask is not None:
        _check_mask(mask, shape[0])
        mask = None if all_rows(mask) else mask
    if not is_numpy(mean):
        xp = namespace(mean)
        return _merge(xp, moments, *batch_on_device(xp, moments, batch, mask))
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

    Raises:
      ValueError: if their samples have other shapes: broadcasting would mix them up without a word.
    """
    for name, each in (("moments", moments), ("other", other)):
        _check_moments("merge_moments", name, each)
    _check_same_samples("merge_moments", moments.mean.shape, other.mean.shape)
    xp = namespace(moments.mean)
    if xp is np:  # JAX's float32 would make the result float32
        other = RunningMoments._make(np.asarray(leaf, np.float64) for leaf in other)
    delta = (other.mean - moments.mean) + (other.mean_low - moments.mean_low)
    merged = _merge(xp, moments, delta, other.var + other.var_low, other.count)
    count, low = two_sum(merged.count, merged.count_low + other.count_low)
    return merged._replace(count=count, count_low=low)


def merge_rows(moments: RunningMoments, rows: RunningMoments) -> RunningMoments:
    """Merges R sets, stacked along a leading axis, into one running set.

    Args:
      moments: the running set; shapes `[*D]` and `[]`.
      rows: R sets that hold no prior; shapes `[R, *D]` and `[R]`. The low words are not read.

    Raises:
      ValueError: if their samples have other shapes.
    """
    _check_same_samples("merge_rows", moments.mean.shape, rows.mean.shape[1:])
    xp = namespace(moments.mean)
    size = expand_mask(rows.count, rows.mean)
    pooled = pool_sets(xp, moments, rows.mean - moments.mean, rows.var, size)
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

    Raises:
      ValueError: if the last axes of `x` are not those of `moments.mean`, or an option cannot be.
    """
    _check_options("standardize", epsilon, clip)
    if precision not in PRECISIONS:
        check_one_of("standardize", "precision", precision, PRECISIONS)
    x = _numbers("standardize", "x", x, moments)
    _check_last_axes("standardize", x, moments)
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

    Raises:
      ValueError: if the last axes of `x` are not those of `moments.mean`, or an option cannot be.
    """
    _check_options("unstandardize", epsilon)
    x = _numbers("unstandardize", "x", x, moments)
    _check_last_axes("unstandardize", x, moments)
    xp = namespace(x)
    if xp is np:
        return x * np.sqrt(moments.var + epsilon) + moments.mean
    dtype = moments.mean.dtype
    return x.astype(dtype) * xp.sqrt(moments.var + dtype.type(epsilon)) + moments.mean


def scale_by_std(
    x: Array, moments: RunningMoments, *, epsilon: float = 1e-8, clip: float = np.inf
) -> Array:
    """Returns `x / sqrt(var + epsilon)`, clipped to `[-clip, clip]`: the mean is left in (rewards).

    Raises:
      ValueError: if the last axes of `x` are not those of `moments.mean`, or an option cannot be.
    """
    _check_options("scale_by_std", epsilon, clip)
    x = _numbers("scale_by_std", "x", x, moments)
    _check_last_axes("scale_by_std", x, moments)
    xp = namespace(x)
    if xp is np:
        if type(x) is np.ndarray and x.ndim > 0 and np.ndim(moments.var) == 0:
            return scale_on_host(x, moments.var, epsilon, clip)
        scaled = x / np.sqrt(moments.var + epsilon)
        return scaled.clip(-clip, clip).astype(np.float32)
    dtype = moments.mean.dtype
    scaled = x.astype(dtype) * (1 / xp.sqrt(moments.var + dtype.type(epsilon)))
    return _clip(xp, scaled, clip).astype(np.float32)


def _numbers(where: str, name: str, x: Array, moments: RunningMoments) -> Array:
    """Returns what came as an array of numbers, of NumPy or JAX as the moments are: they say who computes."""
    if type(moments) is not RunningMoments:
        _check_moments(where, "moments", moments)
    if not is_array(x):
        x = np.asarray(x)
    if x.dtype.kind in "cOSUMm":
        raise TypeError(f"{where}: {name} is of dtype {x.dtype}, but it must be of real numbers.")
    if is_numpy(x) == is_numpy(moments.mean):
        return x
    if is_traced(x):
        raise TypeError(
            f"{where}: {name} is traced by JAX, but the moments are NumPy's, which no compiled program can "
            "update or read exactly: pass jax.tree.map(jax.numpy.asarray, moments)."
        )
    return namespace(moments.mean).asarray(x)


def _check_moments(where: str, name: str, moments: object) -> None:
    if not isinstance(moments, RunningMoments):
        raise TypeError(
            f"{where}: {name} is {moments!r}, but it must be RunningMoments, as init_moments makes them."
        )


def _check_mask(mask: Array, num_rows: int) -> None:
    if not (is_array(mask) and mask.shape == (num_rows,) and mask.dtype == bool):
        raise ValueError(
            f"update_moments: mask={mask!r} came with a batch of {num_rows} rows; it must be a bool "
            f"array of shape ({num_rows},), True for the rows that count."
        )


def _check_same_samples(where: str, mine: tuple[int, ...], other: tuple[int, ...]) -> None:
    if mine != other:
        raise ValueError(
            f"{where}: the samples have shape {mine} in the one set and {other} in the other; they must "
            "be the same. Merge statistics of the same space only."
        )


def _check_last_axes(where: str, x: Array, moments: RunningMoments) -> None:
    wanted, given = moments.mean.shape, x.shape
    if given[len(given) - len(wanted) :] != wanted:
        raise ValueError(
            f"{where}: x has shape {given}, but one sample of these moments has shape {wanted}: pass "
            "[..., *sample]."
        )


def _check_options(where: str, epsilon: float, clip: float = np.inf) -> None:
    if epsilon.__class__ is float and clip.__class__ is float and epsilon >= 0 and clip > 0:
        return  # a host loop asks several times a step
    check_epsilon(where, "epsilon", epsilon)
    check_clip(where, "clip", clip)


def _clip(xp: Namespace, x: Array, limit: float) -> Array:
    return xp.clip(x, -limit, limit) if np.isfinite(limit) else x


def _merge(
    xp: Namespace, moments: RunningMoments, delta: Array, var: Array, count: Array
) -> RunningMoments:
    """Merges a set whose mean is the running mean plus `delta`."""
    if xp is np:
        merged = merge_on_host(moments.mean, moments.var, moments.count, delta, var, float(count))
        return RunningMoments._make((*merged, *moments[3:]))
    if moments.mean.dtype == np.float64:
        return merge_float64(moments, delta, var, count)
    return merge_pairs(xp, moments, delta, var, count)
