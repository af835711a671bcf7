"""The last K observations as one: stacked along the channels, cleared where an episode begins."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_count, check_one_of
from jaxvec.core._images import is_channels_first, is_image_space
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import (
    all_rows,
    backend_namespace,
    canonical_dtype,
    map_obs,
    namespace,
    no_rows,
    replace_rows,
    space_tree,
    take_rows,
    tree_space,
    where_rows,
)
from jaxvec.typing import Array, Key, Obs

ChannelsOrder = Literal["first", "last"] | None


class FrameStackState(NamedTuple):
    """The stacks as they were handed out last."""

    stack: Obs  # [N, *D] with K times the channels, in the dtype of the space


def frame_stack(
    num_frames: int,
    *,
    channels_order: ChannelsOrder | Mapping[Any, ChannelsOrder] = None,
    padding: Literal["zero", "reset"] = "zero",
) -> Transform:
    """Stacks the last observations along the channel axis, the newest at its end.

    An episode's first stack holds its first observation after `num_frames - 1` frames of padding.
    `final_obs` becomes the ending episode's own stack. The dtype stays that of the space.

    Args:
      num_frames: K, how many observations make one stack.
      channels_order: where an observation's channels are: "first" (axis 0) or "last". None decides as
        Stable-Baselines3 does: an image's smallest axis if that is axis 0 or 2, otherwise the last. A
        mapping names the keys of a Dict space one by one.
      padding: "zero" (Stable-Baselines3's), or "reset": the first observation repeated.

    Returns:
      The transform. Its observation space has K times the channels, low and high repeated.

    Raises:
      ValueError: if `num_frames` is no whole number from 1 on or an option does not exist; once the
        spaces are known, if a key of the mapping is missing or too much.
      TypeError: once the spaces are known, if a part of the observation is no Box, or the mapping is
        for a space that is no Dict.
    """
    num_frames = check_count("frame_stack", "num_frames", num_frames)
    check_one_of("frame_stack", "padding", padding, ("zero", "reset"))
    orders = channels_order.values() if isinstance(channels_order, Mapping) else [channels_order]
    for order in orders:
        check_one_of("frame_stack", "channels_order", order, (None, "first", "last"))

    # The axis a leaf is stacked on follows from its space, which `init` and `spec` see; the functions
    # between them see arrays only, and tell the axis by the one that is longer than a frame's.
    def init(spec: VecSpec, keys: Key | None = None) -> FrameStackState:
        del keys
        xp = backend_namespace(spec.backend)
        stacked = _stacked_spaces(spec.observation_space, num_frames, channels_order)

        def empty(box: spaces.Box) -> Array:
            return xp.zeros((spec.num_envs, *box.shape), canonical_dtype(box.dtype, xp))

        return FrameStackState(map_obs(empty, stacked))

    def reset(
        state: FrameStackState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[FrameStackState, Timestep]:
        def open_rows(old: Array, obs: Array) -> Array:
            history, axis = _history(old, obs)
            new = _joined(_padding(history, obs, axis, padding), obs, axis)
            return new if mask is None else replace_rows(mask, new, old)

        stack = map_obs(open_rows, state.stack, timestep.obs)
        final = None if timestep.final_obs is None else stack
        return FrameStackState(stack), timestep._replace(obs=stack, final_obs=final)

    def update(state: FrameStackState, timestep: Timestep) -> tuple[FrameStackState, Timestep]:
        first, moved = timestep.first, timestep.moved

        def push(old: Array, obs: Array) -> Array:
            if type(old) is np.ndarray:
                return _pushed_on_host(old, obs, first, moved, padding)
            history, axis = _history(old, obs)
            if not no_rows(first):
                history = where_rows(first, _padding(history, obs, axis, padding), history)
            return replace_rows(moved, _joined(history, obs, axis), old)

        def push_final(old: Array, final: Array) -> Array:
            history, axis = _history(take_rows(old, timestep.final_rows), final)
            return _joined(history, final, axis)

        stack = map_obs(push, state.stack, timestep.obs)
        final = timestep.final_obs
        if final is not None:
            final = map_obs(push_final, state.stack, final)
        return FrameStackState(stack), timestep.with_obs(stack, final)

    def spec(spec: VecSpec) -> VecSpec:
        stacked = _stacked_spaces(spec.observation_space, num_frames, channels_order)
        return spec._replace(observation_space=tree_space(stacked))

    return Transform(init, reset, update, spec=spec)


def stack_axis(space: spaces.Box, channels_order: ChannelsOrder) -> int:
    """Returns the axis that one observation is stacked on: 0 or -1, as Stable-Baselines3 decides."""
    if channels_order is None:
        return 0 if is_image_space(space) and is_channels_first(space) else -1
    check_one_of("frame_stack", "channels_order", channels_order, ("first", "last"))
    return 0 if channels_order == "first" else -1


def _stacked_spaces(space: Any, num_frames: int, channels_order: Any) -> Any:
    """Returns the tree of stacked Box spaces."""
    if isinstance(channels_order, Mapping):
        if not isinstance(space, spaces.Dict):
            raise TypeError(
                f"frame_stack: channels_order={channels_order!r} names keys, but the observation "
                f"space is {space}: give 'first', 'last' or None."
            )
        if set(channels_order) != set(space.spaces):
            raise ValueError(
                f"frame_stack: channels_order has the keys {sorted(map(str, channels_order))}, the "
                f"observation space has {sorted(map(str, space.spaces))}: name each of them once."
            )
        return {
            key: _stacked_spaces(each, num_frames, channels_order[key])
            for key, each in space.spaces.items()
        }
    return map_obs(lambda leaf: _stacked_box(leaf, num_frames, channels_order), space_tree(space))


def _stacked_box(space: Any, num_frames: int, channels_order: ChannelsOrder) -> spaces.Box:
    if not isinstance(space, spaces.Box) or not space.shape:
        raise TypeError(
            f"frame_stack: {space} cannot be stacked: it has no channel axis. Every part of the "
            "observation must be a Box of one axis or more; put extract_key or one_hot below."
        )
    axis = stack_axis(space, channels_order)
    low, high = (np.repeat(bound, num_frames, axis) for bound in (space.low, space.high))
    return spaces.Box(low, high, dtype=space.dtype.type)


def _history(stack: Array, frame: Array) -> tuple[Array, int]:
    """Returns the stack less its oldest frame, and the axis that it is stacked on."""
    axis = _axis(stack, frame)
    return stack[(slice(None),) * axis + (slice(frame.shape[axis], None),)], axis


def _axis(stack: Array, frame: Array) -> int:
    return 1 if stack.shape[1] != frame.shape[1] else frame.ndim - 1


def _padding(history: Array, frame: Array, axis: int, padding: str) -> Array:
    """Returns what stands in for the frames before an episode's first, in the shape of `history`."""
    xp = namespace(history)
    if padding == "zero" or 0 in history.shape:
        return xp.zeros_like(history)
    return xp.concatenate([frame] * (history.shape[axis] // frame.shape[axis]), axis)


def _pushed_on_host(stack: Array, frame: Array, first: Array, moved: Array, padding: str) -> Array:
    """Returns what `push` does, with one copy of the stacks less."""
    axis, new = _axis(stack, frame), np.empty(stack.shape, stack.dtype)
    if not new.size:
        return new
    # A shift by one frame is a shift of the whole memory: what it carries over from one row to the next
    # lies where the new frame goes.
    step = math.prod(frame.shape[axis:])
    new.reshape(-1)[:-step] = stack.reshape(-1)[step:]
    opens = () if no_rows(first) else np.flatnonzero(first)
    if len(opens):
        new[opens] = 0
        if padding == "reset":
            copies = stack.shape[axis] // frame.shape[axis]
            new[opens] = np.concatenate([frame[opens]] * copies, axis)
    at_the_end = slice(stack.shape[axis] - frame.shape[axis], None)
    new[(slice(None), at_the_end) if axis == 1 else (..., at_the_end)] = frame
    return new if all_rows(moved) else where_rows(moved, new, stack)


def _joined(history: Array, frame: Array, axis: int) -> Array:
    xp = namespace(history)
    return xp.concatenate([history, xp.asarray(frame, dtype=history.dtype)], axis)
