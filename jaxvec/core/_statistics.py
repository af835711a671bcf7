"""Moments with an update policy: learn at once, or set aside row by row and merge after a rollout."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxvec.core._device_moments import largest_variance
from jaxvec.core._moments import (
    Precision,
    RunningMoments,
    init_moments,
    merge_rows,
    update_moments,
)
from jaxvec.core._transform import VecSpec
from jaxvec.core._xp import (
    backend_namespace,
    expand_mask,
    is_numpy,
    moment_dtype,
    namespace,
    where_rows,
)
from jaxvec.typing import Array, PyTree

UpdatePolicy = Literal["step", "rollout", "frozen"]
UPDATE_POLICIES = ("step", "rollout", "frozen")


class Statistics(NamedTuple):
    """What is known of one kind of sample."""

    moments: RunningMoments  # in use; shapes of ONE sample
    pending: RunningMoments | None  # this rollout's, leading [N]; None unless update="rollout"


def init_statistics(spec: VecSpec, shape: tuple[int, ...], update: UpdatePolicy) -> Statistics:
    """Returns the statistics before any sample of shape `shape`."""
    pending = None
    if update == "rollout":
        xp, dtype = backend_namespace(spec.backend), moment_dtype(spec.backend)
        zeros = xp.zeros((spec.num_envs, *shape), dtype)
        none = xp.zeros((), dtype)
        pending = RunningMoments(zeros, zeros, xp.zeros(spec.num_envs, dtype), none, none, none)
    return Statistics(init_moments(shape, spec.backend), pending)


def learn(
    statistics: Statistics,
    batch: Array,
    rows: Array | None,
    training: Array,
    precision: Precision = "float64",
) -> Statistics:
    """Lets the rows of a batch enter: the moments, or what is set aside for them.

    Args:
      statistics: what is known so far.
      batch: one sample per row, `[N, *D]`.
      rows: bool `[N]`: the rows that count; None for all.
      training: bool `[]`: while it is off, nothing enters.
      precision: of the host's arithmetic.
    """
    on_host = is_numpy(training)
    if on_host and not training:
        return statistics
    if statistics.pending is None:
        learned = update_moments(statistics.moments, batch, rows, precision=precision)
        if not on_host:
            learned = either(training, learned, statistics.moments)
        return Statistics(learned, None)
    pending = statistics.pending
    xp = namespace(pending.count)
    rows = (xp.ones(batch.shape[:1], bool) if rows is None else rows) & training
    count = pending.count + 1
    # Welford's update, row by row: no row looks at another, so a sharded loop needs no collective.
    batch = batch.astype(pending.mean.dtype)
    with np.errstate(invalid="ignore"):  # rows that do not count hold anything
        deviation = batch - pending.mean
        size = expand_mask(count, deviation)
        mean = pending.mean + deviation / size
        square = deviation * (batch - mean)
        if xp is not np:  # of large numbers it is infinite in float32, and a difference of such NaN
            square = xp.minimum(square, largest_variance(square.dtype))
        var = pending.var + (square - pending.var) / size
    pending = pending._replace(
        mean=where_rows(rows, mean, pending.mean),
        var=where_rows(rows, var, pending.var),
        count=where_rows(rows, count, pending.count),
    )
    return Statistics(statistics.moments, pending)


def merge_pending(statistics: Statistics) -> Statistics:
    """Merges what a rollout set aside into the moments, and starts to set aside anew."""
    if statistics.pending is None:
        return statistics
    xp = namespace(statistics.moments.mean)
    cleared = RunningMoments(*(xp.zeros_like(field) for field in statistics.pending))
    return Statistics(merge_rows(statistics.moments, statistics.pending), cleared)


def map_statistics(function: Callable[[Statistics], Any], tree: PyTree) -> PyTree:
    """Applies a function to every `Statistics` of a tree shaped as an observation; None stays."""
    if isinstance(tree, Statistics):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_statistics(function, branch) for key, branch in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_statistics(function, branch) for branch in tree)
    return tree


def either(switch: Array, on: PyTree, off: PyTree) -> PyTree:
    """Returns `on` where a scalar switch is set, else `off`; a record field by field."""
    if is_numpy(switch):
        return on if switch else off
    if isinstance(on, RunningMoments):
        return RunningMoments(*(either(switch, x, y) for x, y in zip(on, off, strict=True)))
    return namespace(switch).where(switch, on, off)
