"""Return and length of every episode, summed so that a million small rewards are not lost."""

from typing import NamedTuple

import numpy as np

from jaxvec.core._arguments import check_flag
from jaxvec.core._device_moments import two_sum
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import (
    all_rows,
    backend_namespace,
    moment_dtype,
    namespace,
    no_rows,
    where_rows,
)
from jaxvec.typing import Array, Key

_ONE = np.array(1, np.int32)
"""On NumPy's way an array `[]` takes half the time of a number."""


class EpisodeState(NamedTuple):
    """The running episode of each row, and what has ended so far."""

    returns: Array  # [N], sum of rewards
    returns_low: Array  # [N]: what the float32 sum rounded away; 0 in float64
    lengths: Array  # int32 [N], steps
    episodes: Array  # int32 [N], episodes that ended; scalar 0 where not counted
    steps: Array  # int32 [N], transitions; scalar 0 where not counted


def episode_statistics(*, totals: bool = False) -> Transform:
    """Puts return and length of the running episode into `info["episode"]`, as columns `r` and `l`.

    Read them where `timestep.done` holds: there they are those of the whole episode. Rewards are those
    that arrive from below: place it under `normalize_reward` to report the true returns. Infinite or
    NaN rewards stay in their own episode.

    Args:
      totals: also count, per row, the episodes and transitions so far: `info["totals"]`, with the
        int32 columns `episodes` and `steps`.

    Returns:
      The transform; `r` is float32 `[N]`, in the unit of the reward, `l` int32 `[N]`, steps.

    Raises:
      ValueError: if `totals` is no bool.
    """
    check_flag("episode_statistics", "totals", totals)

    def init(spec: VecSpec, keys: Key | None = None) -> EpisodeState:
        del keys
        xp = backend_namespace(spec.backend)
        zeros = xp.zeros(spec.num_envs, moment_dtype(spec.backend))
        whole = xp.zeros(spec.num_envs, np.int32)
        count = whole if totals else xp.zeros((), np.int32)
        return EpisodeState(zeros, zeros, whole, count, count)

    def report(state: EpisodeState, timestep: Timestep) -> Timestep:
        returns = state.returns
        if namespace(returns) is not np:  # in float64 the low word is 0
            returns = returns + state.returns_low
        returns = returns.astype(np.float32)
        info = {**timestep.info, "episode": {"r": returns, "l": state.lengths}}
        if totals:
            info["totals"] = {"episodes": state.episodes, "steps": state.steps}
        return timestep.with_info(info)

    def reset(
        state: EpisodeState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[EpisodeState, Timestep]:
        xp = namespace(state.returns)
        state = _cleared(state, xp.ones_like(timestep.first) if mask is None else mask)
        return state, report(state, timestep)

    def update(state: EpisodeState, timestep: Timestep) -> tuple[EpisodeState, Timestep]:
        state = _added(state, timestep, totals)
        return _cleared(state, timestep.first), report(state, timestep)

    return Transform(init, reset, update)


def _added(state: EpisodeState, timestep: Timestep, totals: bool) -> EpisodeState:
    """Adds one step to the running episodes, where a transition took place."""
    xp, valid = namespace(state.returns), timestep.valid
    if xp is np:
        returns, low = state.returns + timestep.reward, state.returns_low
        if not totals and all_rows(valid):
            return EpisodeState(returns, low, state.lengths + _ONE, *state[3:])
    else:
        # The second sum keeps the low word below the high one's last digit: left to grow, it would
        # itself round away what it is there to keep.
        total, carry = two_sum(state.returns, timestep.reward.astype(state.returns.dtype))
        high, low = two_sum(total, carry + state.returns_low)
        # An infinite return has no rounding error; the difference of infinities would be NaN.
        finite = xp.isfinite(total)
        returns, low = xp.where(finite, high, total), xp.where(finite, low, 0)
    lengths = state.lengths + 1
    if not all_rows(valid):
        returns = where_rows(valid, returns, state.returns)
        low = where_rows(valid, low, state.returns_low)
        lengths = where_rows(valid, lengths, state.lengths)
    episodes, steps = state.episodes, state.steps
    if totals:
        episodes = episodes + (timestep.done & valid).astype(np.int32)
        steps = steps + valid.astype(np.int32)
    return EpisodeState(returns, low, lengths, episodes, steps)


def _cleared(state: EpisodeState, rows: Array) -> EpisodeState:
    """Starts a new episode in the rows where the mask holds."""
    if no_rows(rows):
        return state
    returns, low, lengths = state[:3]
    if type(returns) is np.ndarray:  # there the low words are 0
        returns, lengths = returns.copy(), lengths.copy()
        returns[rows] = 0
        lengths[rows] = 0
        return EpisodeState(returns, low, lengths, *state[3:])
    return state._replace(
        returns=where_rows(rows, 0, returns),
        returns_low=where_rows(rows, 0, low),
        lengths=where_rows(rows, 0, lengths),
    )
