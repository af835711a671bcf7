"""What became of the episodes that ended in a stretch of steps, in a few numbers.

A log wants a few numbers of each update and not the arrays they come from. They are computed where the steps
are, under `jit` and inside `lax.scan` too, so that nothing is sent to the host on the way.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxvec.core._transform import Timestep
from jaxvec.core._xp import namespace
from jaxvec.typing import Array


class Spread(NamedTuple):
    """How E numbers are spread; NaN where there are none.

    Attributes:
      mean: float `[]`.
      min: float `[]`.
      max: float `[]`.
      quantiles: float `[Q]`, those asked for, in their order; linear between neighbours, as NumPy's.
    """

    mean: Array  # float []
    min: Array  # float []
    max: Array  # float []
    quantiles: Array  # float [Q]


class EpisodeSummary(NamedTuple):
    """The E episodes that ended in a stretch of steps.

    Attributes:
      count: int32 `[]`, E.
      returns: of their returns, in the unit of the reward.
      lengths: of their lengths, steps.
    """

    count: Array  # int32 [], E
    returns: Spread
    lengths: Spread


def summarize_episodes(
    timesteps: Timestep, quantiles: Sequence[float] = (0.25, 0.5, 0.75)
) -> EpisodeSummary:
    """Sums up the episodes that ended, by what `episode_statistics` reports.

    >>> import jax, jaxvec
    >>> env = jaxvec.vectorize(jaxvec.envs.make("MountainCar-v0"), 8)  # random actions never arrive
    >>> env = jaxvec.wrap(env, jaxvec.episode_statistics())
    >>> policy = jaxvec.random_policy(env)
    >>> _, (_, _, timesteps) = jaxvec.rollout(env, policy, jax.random.key(0), 400)
    >>> summary = jaxvec.summarize_episodes(timesteps)
    >>> int(summary.count), float(summary.returns.mean), summary.lengths.quantiles.tolist()
    (16, -200.0, [200.0, 200.0, 200.0])

    All is computed on arrays of one size, whatever ended, so that it compiles. What is not read of the
    result, such as the quantiles and the sorting that they need, costs a compiled program nothing.

    Args:
      timesteps: of one step or of many: leaves `[N, ...]`, or `[T, N, ...]` as `rollout` returns them.
        Rows that made no transition (`valid` is False) ended nothing.
      quantiles: Q numbers from 0 to 1.

    Returns:
      Count, and mean, extremes and quantiles of returns and lengths. They are NaN where no episode ended,
      and where a return is NaN.

    Raises:
      ValueError: if there are no episode statistics in `timesteps.info`, or a quantile is not from 0 to 1.
    """
    levels = check_levels("summarize_episodes", quantiles)
    episode = timesteps.info.get("episode")
    if episode is None:
        raise ValueError(
            f"summarize_episodes: timesteps.info has {sorted(timesteps.info)}, but no 'episode'; put the "
            "layer jaxvec.episode_statistics() on the environments."
        )
    return summarize(episode["r"], episode["l"], timesteps.done & timesteps.valid, levels)


def summarize(returns: Array, lengths: Array, ended: Array, levels: Array) -> EpisodeSummary:
    """Sums up those of some numbers that count.

    Args:
      returns: of any shape.
      lengths: of that shape.
      ended: bool of that shape: which of them count.
      levels: float32 `[Q]`, the quantiles.
    """
    count = namespace(ended).sum(ended, dtype=np.int32)
    spreads = (_spread(values, ended, count, levels) for values in (returns, lengths))
    return EpisodeSummary(count, *spreads)


def check_levels(where: str, quantiles: Sequence[float]) -> Array:
    """Returns the quantiles as float32 `[Q]`.

    Raises:
      ValueError: if one is not from 0 to 1.
    """
    levels = np.asarray(quantiles, np.float32)
    if levels.ndim != 1 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"{where}: quantiles={quantiles!r}, but they must be numbers from 0 to 1.")
    return levels


def _spread(values: Array, ended: Array, count: Array, levels: Array) -> Spread:
    xp = namespace(ended)
    values = values.astype(np.float32)

    def only_if_any(number: Array) -> Array:
        return xp.where(count > 0, number, np.nan)

    total = xp.where(ended, values, 0).sum(dtype=values.dtype)
    # NaN sorts last, as the rows do that do not count: it goes before them, and is said afterwards.
    bad = xp.any(ended & xp.isnan(values))
    ascending = xp.sort(xp.where(ended, values, np.inf), axis=None)
    place = levels * xp.maximum(count - 1, 0)
    below = xp.floor(place).astype(np.int32)
    low, high = ascending[below], ascending[xp.ceil(place).astype(np.int32)]
    # Equal neighbours, infinite ones too, have nothing between them.
    gap = xp.where(low == high, 0, high) - xp.where(low == high, 0, low)
    between = low + (place - below) * gap
    return Spread(
        only_if_any(total / xp.maximum(count, 1)),
        only_if_any(xp.min(xp.where(ended, values, np.inf))),
        only_if_any(xp.max(xp.where(ended, values, -np.inf))),
        only_if_any(xp.where(bad, np.nan, between)),
    )
