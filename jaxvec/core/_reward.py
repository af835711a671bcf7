"""Rewards on another scale, or within bounds; float32, and 0 where no transition took place."""

from collections.abc import Callable

import numpy as np

from jaxvec.core._arguments import check_finite_number, check_flag, check_number
from jaxvec.core._transform import Timestep, Transform, stateless
from jaxvec.core._xp import all_rows, namespace, where_rows
from jaxvec.typing import Array, PyTree


def scale_reward(scale: float, shift: float = 0.0) -> Transform:
    """Returns the layer that makes `scale * reward + shift` of every reward.

    Args:
      scale: the factor; finite.
      shift: what is added after that, in the new unit; finite.

    Raises:
      ValueError: if either is no finite number.
    """
    check_finite_number("scale_reward", "scale", scale)
    check_finite_number("scale_reward", "shift", shift)
    factor, offset = np.float32(scale), np.float32(shift)
    return _reward_layer(lambda reward: reward * factor + offset)


def clip_reward(low: float = -1.0, high: float = 1.0, *, sign: bool = False) -> Transform:
    """Returns the layer that clips rewards to `[low, high]`, or leaves their sign only.

    Args:
      low: the smallest reward; `-inf` for none.
      high: the largest reward; `inf` for none.
      sign: whether to give -1, 0 or 1 for the sign of the reward (clipped after that). Rewards within
        the bounds then change too: 0.01 becomes 1, as is usual for Atari games.

    Raises:
      ValueError: if `low` is above `high`, one is NaN or no number, or `sign` is no bool.
    """
    for name, bound in (("low", low), ("high", high)):
        check_number(
            "clip_reward", name, bound, lambda x: not np.isnan(x), "a number (inf for no bound)"
        )
    check_flag("clip_reward", "sign", sign)
    if not low <= high:
        raise ValueError(f"clip_reward: low={low} must not be above high={high}.")
    least, most = np.float32(low), np.float32(high)

    def clip(reward: Array) -> Array:
        xp = namespace(reward)
        return xp.clip(xp.sign(reward) if sign else reward, least, most)

    return _reward_layer(clip)


def _reward_layer(function: Callable[[Array], Array]) -> Transform:
    def update(state: PyTree, timestep: Timestep) -> tuple[PyTree, Timestep]:
        reward = function(timestep.reward.astype(np.float32))
        if not all_rows(timestep.valid):
            # A reset pays nothing, whatever `function` makes of 0: statistics above may sum it up.
            reward = where_rows(timestep.valid, reward, namespace(reward).zeros_like(reward))
        return state, timestep._replace(reward=reward)

    def reset(
        state: PyTree, timestep: Timestep, mask: Array | None = None
    ) -> tuple[PyTree, Timestep]:
        del mask
        return update(state, timestep)

    return Transform(stateless, reset, update)
