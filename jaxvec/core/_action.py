"""Actions on their way down: clipped, rescaled, or not let go of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_fraction
from jaxvec.core._layers import Space, box_bounds
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import (
    backend_namespace,
    canonical_dtype,
    is_integer_or_bool,
    namespace,
    where_rows,
)
from jaxvec.random import key_words, uniform_rows
from jaxvec.typing import Action, Array, Key, PyTree

STICKY_SALT = 0x571C
"""Sets the draws of `sticky_action` apart from what others draw from the same row keys."""


class Bounds(NamedTuple):
    """What the actions of the environment lie between."""

    low: Array  # [*A], in the dtype of the action space
    high: Array  # [*A]


class StickyState(NamedTuple):
    """What each row did last, and how far its random numbers are."""

    words: Array  # uint32 [N, 2], the row keys
    draws: Array  # uint32 [N], draws so far
    last: Array  # [N, *A], the action that was executed last
    has_last: Array  # bool [N]: it belongs to the running episode


def clip_action() -> Transform:
    """Clips actions to the bounds of the environment's Box; above it, the action space has none.

    Where the Box has no bound, nothing is clipped. NaN passes: `check_finite` finds it.

    Raises:
      TypeError: once the spaces are known, if the action space is no Box.
    """

    def spec(spec: VecSpec) -> VecSpec:
        box = _box(spec.action_space, "clip_action")
        unsigned = box.dtype.kind == "u"
        low, high = (0, np.iinfo(box.dtype).max) if unsigned else (-np.inf, np.inf)
        free: Space = spaces.Box(low, high, box.shape, box.dtype.type)
        return spec._replace(action_space=free)

    def clip(action: Array, low: Array, high: Array) -> Array:
        return namespace(low).clip(action, low, high)

    return _bounded_layer("clip_action", spec, clip)


def rescale_action(low: Any = -1.0, high: Any = 1.0) -> Transform:
    """Maps actions from `[low, high]` to the bounds of the environment's Box, linearly.

    `low` becomes exactly the environment's lower bound and `high` its upper one; what lies outside is
    clipped.

    Args:
      low: the lower bound above this layer, a number or `[*A]`.
      high: the upper bound, likewise; each above its `low`.

    Raises:
      ValueError: if a bound is not finite or `low` is not below `high`; once the spaces are known, if
        their shapes do not fit or the environment's bounds are not finite.
      TypeError: once the spaces are known, if the action space is no Box of floating numbers.
    """
    least, most = np.asarray(low), np.asarray(high)
    numbers = least.dtype.kind in "fiu" and most.dtype.kind in "fiu"
    if not numbers or not (np.isfinite(least) & np.isfinite(most) & (least < most)).all():
        raise ValueError(
            f"rescale_action: low={low!r}, high={high!r}, but both must be finite numbers, and low below "
            "high."
        )

    def spec(spec: VecSpec) -> VecSpec:
        box = _box(spec.action_space, "rescale_action")
        if is_integer_or_bool(box.dtype):
            raise TypeError(
                f"rescale_action: the action space {box} has whole numbers, between which nothing "
                "can be scaled; it must be a Box of a floating dtype."
            )
        if not box.is_bounded():
            raise ValueError(
                f"rescale_action: the action space {box} is not bounded, so there is nothing to "
                "scale to: every low and high must be finite. (clip_action below takes bounds away: "
                "rescale_action clips by itself.)"
            )
        if any(x.shape not in ((), box.shape) for x in (least, most)):
            raise ValueError(
                f"rescale_action: low has shape {least.shape} and high {most.shape}, but the action "
                f"space is {box}: give numbers, or arrays of shape {box.shape}."
            )
        start, end = (np.full(box.shape, x, box.dtype) for x in (least, most))
        if not (start < end).all():
            raise ValueError(f"rescale_action: low={low} and high={high} are the same {box.dtype}.")
        return spec._replace(action_space=spaces.Box(start, end, box.shape, box.dtype.type))

    def rescale(action: Array, low: Array, high: Array) -> Array:
        xp, start, end = namespace(low), least.astype(low.dtype), most.astype(low.dtype)
        action = xp.clip(action, start, end)
        # By the reciprocal, as XLA divides by a constant anyway: both backends then round alike.
        part = (action - start) * (1 / (end - start))
        # low + part * (high - low) would overflow where the bounds are far apart.
        scaled = xp.clip((1 - part) * low + part * high, low, high)
        return xp.where(action >= end, high, scaled)  # part may fall short of 1

    return _bounded_layer("rescale_action", spec, rescale)


def sticky_action(probability: float) -> Transform:
    """Executes, with some probability, the action again that was executed before.

    It makes a deterministic environment stochastic. An episode's first action is never replaced, and
    each row draws from its own key, once a step.

    Args:
      probability: of executing the last action again; 0.25 is usual for Atari games.

    Raises:
      ValueError: if the probability is no number from 0 to 1; in `init`, if there are no keys.
      TypeError: once the spaces are known, if the action space is a Dict or Tuple.

    References:
      Machado et al., Revisiting the Arcade Learning Environment, 2018, section 5.2.
    """
    check_fraction("sticky_action", "probability", probability)

    def spec(spec: VecSpec) -> VecSpec:
        check_plain_actions("sticky_action", spec.action_space)
        return spec

    def init(layer: VecSpec, keys: Key | None = None) -> StickyState:
        spec(layer)
        if keys is None:
            raise ValueError(
                "sticky_action: init got no keys, but this layer draws random numbers: pass one key "
                "per environment, as init(spec, keys)."
            )
        xp, num_envs = backend_namespace(layer.backend), layer.num_envs
        words = xp.asarray(key_words(keys), dtype=np.uint32)
        if words.shape != (num_envs, 2):
            raise ValueError(
                f"sticky_action: the keys' words have shape {tuple(words.shape)}, but {num_envs} "
                f"environments need ({num_envs}, 2): pass one key per environment."
            )
        space: Any = layer.action_space
        return StickyState(
            words,
            xp.zeros(num_envs, np.uint32),
            xp.zeros((num_envs, *space.shape), canonical_dtype(space.dtype, xp)),
            xp.zeros(num_envs, bool),
        )

    def reset(
        state: StickyState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[StickyState, Timestep]:
        xp = namespace(state.has_last)
        started = xp.ones_like(state.has_last) if mask is None else mask
        return state._replace(has_last=state.has_last & ~started), timestep

    def update(state: StickyState, timestep: Timestep) -> tuple[StickyState, Timestep]:
        return state._replace(has_last=~timestep.first), timestep

    def action(state: StickyState, action: Action) -> tuple[StickyState, Action]:
        last = state.last
        action = _checked(action, last, last.shape[1:], "sticky_action")
        if action.shape[0] != last.shape[0]:
            raise ValueError(
                f"sticky_action: {action.shape[0]} actions came for {last.shape[0]} environments: "
                "pass one for each."
            )
        sticks = uniform_rows(state.words, state.draws, STICKY_SALT) < np.float32(probability)
        executed = where_rows(state.has_last & sticks, last, action)
        draws = state.draws + np.uint32(1)
        return state._replace(draws=draws, last=executed.astype(last.dtype)), executed

    return Transform(init, reset, update, action, spec)


def _bounded_layer(
    where: str,
    spec: Callable[[VecSpec], VecSpec],
    function: Callable[[Array, Array, Array], Array],
) -> Transform:
    """Returns the transform that maps actions, and whose state is the environment's bounds.

    Args:
      where: the layer, for messages.
      spec: what it does to the action space; it raises if that is no Box.
      function: `(actions, low, high) -> actions`: `[N, *A]`, `[*A]` and `[*A]`, all of one dtype.
    """

    def init(layer: VecSpec, keys: Key | None = None) -> Bounds:
        del keys
        spec(layer)
        xp, box = backend_namespace(layer.backend), _box(layer.action_space, where)
        low, high = box_bounds(box, canonical_dtype(box.dtype, xp))
        return Bounds(xp.array(low), xp.array(high))

    def action(state: Bounds, action: Action) -> tuple[Bounds, Action]:
        low, high = state
        action = _checked(action, low, low.shape, where).astype(low.dtype)
        return state, function(action, low, high)

    return Transform(init, _same_reset, _same_update, action, spec)


def _same_reset(
    state: PyTree, timestep: Timestep, mask: Array | None = None
) -> tuple[PyTree, Timestep]:
    del mask
    return state, timestep


def _same_update(state: PyTree, timestep: Timestep) -> tuple[PyTree, Timestep]:
    return state, timestep


def _box(space: Space, where: str) -> Any:
    if not isinstance(space, spaces.Box):
        raise TypeError(
            f"{where}: the action space is {space}, but only a Box has bounds: drop this layer."
        )
    return space


def check_plain_actions(where: str, space: Space) -> None:
    """Refuses an action space whose actions are not one array.

    Raises:
      TypeError: if it is no Box, Discrete, MultiDiscrete or MultiBinary.
    """
    if not isinstance(
        space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
    ):
        raise TypeError(
            f"{where}: the action space {space} is not supported; it must be a Box, Discrete, "
            "MultiDiscrete or MultiBinary."
        )


def _checked(action: Action, like: Array, shape: tuple[int, ...], where: str) -> Array:
    """Returns actions `[N, *A]` as an array of the backend of `like`; `shape` is `[*A]`.

    Raises:
      ValueError: if their shape is another one: broadcasting would mix rows up without a word.
      TypeError: if they are a dict or tuple, or floating where whole numbers are needed.
    """
    if isinstance(action, dict | tuple):
        raise TypeError(
            f"{where}: the actions are a {type(action).__name__}, but they must be one array."
        )
    action = namespace(like).asarray(action)
    if action.ndim == 0 or action.shape[1:] != shape:
        raise ValueError(
            f"{where}: the actions have shape {tuple(action.shape)}, but one action has shape "
            f"{tuple(shape)}: pass [N, *action]."
        )
    if is_integer_or_bool(like.dtype) and not is_integer_or_bool(action.dtype):
        raise TypeError(
            f"{where}: the actions are {action.dtype}, but the action space holds {like.dtype}: "
            "casting would cut them off. Round them first."
        )
    return action
