"""Observations with more in them: what was done last, how much of the episode is over.

A column goes to the end of a Box of one axis, or becomes a part of a Dict or Tuple. Where an episode ends,
`final_obs` gets what belongs to it, and `obs`, which opens the next one, starts anew.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from jaxvec.core._action import check_plain_actions
from jaxvec.core._arguments import check_count
from jaxvec.core._layers import Space, box_bounds, categories, encode_one_hot, flat_rows
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import (
    all_rows,
    backend_namespace,
    is_integer_or_bool,
    namespace,
    no_rows,
    space_tree,
    take_rows,
    tree_space,
    where_rows,
)
from jaxvec.typing import Action, Array, Key, Obs


class LastActionState(NamedTuple):
    """The actions of each row, flat."""

    sent: Array  # float32 [N, A], on its way down
    last: Array  # float32 [N, A], what led to the observation handed out last
    values: tuple[Array, ...] | None  # the values of a discrete action's numbers


class TimeState(NamedTuple):
    """How old each row's episode is."""

    steps: Array  # int32 [N], transitions


def append_last_action() -> Transform:
    """Appends the action that led to an observation, flat, as float32; discrete ones are one-hot.

    A Box of one axis gets it concatenated, a Dict the key `last_action`, a Tuple one element more. An
    episode's first observation has zeros. The action is the one that passes this layer: above
    `clip_action` the unclipped one, below it the clipped one.

    Raises:
      TypeError: once the spaces are known, if the observation is a plain one of another kind, or the
        action is no Box, Discrete, MultiDiscrete or MultiBinary.
      ValueError: once the spaces are known, if the Dict has that key.
    """
    name = "last_action"

    def init(layer: VecSpec, keys: Key | None = None) -> LastActionState:
        del keys
        spec(layer)
        xp, space = backend_namespace(layer.backend), layer.action_space
        shape = (layer.num_envs, spaces.flatdim(space))
        # Two buffers: a step may be given both to overwrite.
        sent, last = xp.zeros(shape, np.float32), xp.zeros(shape, np.float32)
        return LastActionState(sent, last, categories(space, xp))

    def reset(
        state: LastActionState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[LastActionState, Timestep]:
        sent, last = _cleared(mask, state.sent), _cleared(mask, state.last)
        return state._replace(sent=sent, last=last), _append(timestep, name, last, last)

    def update(state: LastActionState, timestep: Timestep) -> tuple[LastActionState, Timestep]:
        led, last = _led_and_opened(timestep, state.sent, state.last)
        return state._replace(last=last), _append(timestep, name, led, last)

    def action(state: LastActionState, action: Action) -> tuple[LastActionState, Action]:
        column = namespace(state.sent).asarray(action)
        num_envs, size = state.sent.shape
        size = size if state.values is None else len(state.values)
        if column.shape[:1] != (num_envs,) or column.size != num_envs * size:
            raise ValueError(
                f"append_last_action: the actions have shape {tuple(column.shape)}, but each of the "
                f"{num_envs} environments takes one of {size} numbers: pass [{num_envs}, ...]."
            )
        if state.values is None:
            column = flat_rows(column).astype(np.float32)
        else:
            column = encode_one_hot(column, state.values, np.float32)
        return state._replace(sent=column), action

    def spec(spec: VecSpec) -> VecSpec:
        column = _action_box(spec.action_space)
        space = _appended_space(spec.observation_space, name, column, "append_last_action")
        return spec._replace(observation_space=space)

    return Transform(init, reset, update, action, spec)


def time_fraction(max_episode_steps: int) -> Transform:
    """Appends how much of an episode's time is over: its steps so far / `max_episode_steps`, float32.

    It is 0 in an episode's first observation and never above 1. A Box of one axis gets it concatenated,
    a Dict the key `time_fraction`, a Tuple one element more, of shape `[1]`.

    Args:
      max_episode_steps: the time limit, steps.

    Raises:
      ValueError: if that is no whole number from 1 on that int32 holds; once the spaces are known, if
        the Dict has that key.
      TypeError: once the spaces are known, if the observation is a plain one of another kind.
    """
    name = "time_fraction"
    limit = check_count(name, "max_episode_steps", max_episode_steps)

    def fraction(steps: Array) -> Array:
        # By the reciprocal, as XLA divides by a constant anyway: both backends then round alike.
        part = steps.astype(np.float32) * np.float32(1 / limit)
        return where_rows(steps < limit, part, namespace(steps).ones_like(part))[:, None]

    def init(layer: VecSpec, keys: Key | None = None) -> TimeState:
        del keys
        spec(layer)
        return TimeState(backend_namespace(layer.backend).zeros(layer.num_envs, np.int32))

    def reset(
        state: TimeState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[TimeState, Timestep]:
        steps = _cleared(mask, state.steps)
        return TimeState(steps), _append(timestep, name, steps, steps, fraction)

    def update(state: TimeState, timestep: Timestep) -> tuple[TimeState, Timestep]:
        led, steps = _led_and_opened(timestep, state.steps + 1, state.steps)
        return TimeState(steps), _append(timestep, name, led, steps, fraction)

    def spec(spec: VecSpec) -> VecSpec:
        column = spaces.Box(0, 1, (1,), np.float32)
        space = _appended_space(spec.observation_space, name, column, "time_fraction")
        return spec._replace(observation_space=space)

    return Transform(init, reset, update, spec=spec)


def _cleared(mask: Array | None, x: Array) -> Array:
    """Returns `x` with zeros in the rows that start anew."""
    return namespace(x).zeros_like(x) if mask is None else where_rows(mask, 0, x)


def _led_and_opened(timestep: Timestep, stepped: Array, before: Array) -> tuple[Array, Array]:
    """Returns what belongs to the observation that a step led to, and to the one it hands out.

    They differ in a row that ended and shows its next episode already (`SAME_STEP`).

    Args:
      timestep: tells which rows made a transition, and which open an episode.
      stepped: `[N, ...]`, for rows that made a transition.
      before: `[N, ...]`, what belongs to the observation handed out last.
    """
    valid, first = timestep.valid, timestep.first
    led = stepped
    if not all_rows(valid):
        led = where_rows(valid, stepped, where_rows(first, 0, before))
    return led, led if no_rows(first) else where_rows(first, 0, led)


def _append(
    timestep: Timestep,
    name: str,
    led: Array,
    opened: Array,
    column: Callable[[Array], Array] = lambda x: x,
) -> Timestep:
    """Returns the timestep with a column more, `[N, A]`: `column(led)` for final_obs, `column(opened)`."""
    final = timestep.final_obs
    if final is not None:
        final = _appended(final, name, column(take_rows(led, timestep.final_rows)))
    return timestep._replace(obs=_appended(timestep.obs, name, column(opened)), final_obs=final)


def _appended(obs: Obs, name: str, column: Array) -> Obs:
    if isinstance(obs, dict):
        return {**obs, name: column}
    if isinstance(obs, tuple):
        return (*obs, column)
    dtype = _floating(obs.dtype)
    return namespace(obs).concatenate([obs.astype(dtype), column.astype(dtype)], 1)


def _appended_space(space: Space, name: str, column: spaces.Box, where: str) -> Space:
    tree = space_tree(space)
    if isinstance(tree, dict) and name in tree:
        raise ValueError(
            f"{where}: the observation space {space} has a key {name!r} already: use this layer once."
        )
    if isinstance(tree, dict | tuple):
        appended: Space = tree_space(_appended(tree, name, column))
        return appended
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise TypeError(
            f"{where}: nothing can be appended to {space}, only to a Box of one axis, a Dict or a "
            "Tuple: put flatten_observation or one_hot below, or make it a part of a Dict."
        )
    dtype = _floating(space.dtype)
    parts = [box_bounds(box, dtype) for box in (space, column)]
    low, high = (np.concatenate(bounds) for bounds in zip(*parts, strict=True))
    return spaces.Box(low, high, dtype=dtype.type)


def _action_box(space: Space) -> spaces.Box:
    """Returns the space of an action's column: flat, float32, with the 0 of first observations in it."""
    check_plain_actions("append_last_action", space)
    if not isinstance(space, spaces.Box):
        return spaces.Box(0, 1, (spaces.flatdim(space),), np.float32)
    low, high = box_bounds(space, np.dtype(np.float32))
    return spaces.Box(np.minimum(low, 0).ravel(), np.maximum(high, 0).ravel(), dtype=np.float32)


def _floating(dtype: Any) -> np.dtype[Any]:
    """Returns the dtype of an observation that a float32 column was appended to."""
    return np.dtype(np.float32 if is_integer_or_bool(dtype) else dtype)
