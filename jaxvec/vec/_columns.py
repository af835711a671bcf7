"""Where environments put their results: columns of N rows, in this process's memory or in shared memory.

The process that steps row i writes row i and no other. Parts of an observation whose elements have no
fixed shape (Text, Graph, Sequence, custom spaces) are kept in arrays of objects, which no other process
sees: they are carried by messages, as is everything where memory is not shared.
"""

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Dict, Space, Tuple

from jaxvec.spaces._values import dict_parts, tuple_parts, write_row
from jaxvec.typing import Array, Obs
from jaxvec.vec._utils import dict_to_obs, space_parts

Shape = tuple[int, ...]
Layout = dict[str, tuple[Shape, np.dtype[Any]]]
"""Name to shape and dtype of each array that is to be shared."""

FLOAT32_MAX = float(np.finfo(np.float32).max)

Carried = list[tuple[str, list[int], Any]]
"""Rows that travel by message: name of the column, which rows, and their values."""


class Columns(NamedTuple):
    """The results of the last step or reset of N environments."""

    obs: Obs  # [N, *D], in the dtype of the space
    final: Obs  # [N, *D]: the last observation of each row's last ended episode
    reward: Array  # float32 [N]
    terminated: Array  # bool [N]
    truncated: Array  # bool [N]; never where `terminated` holds
    actions: Array | None  # [N, *A], shared only; None where actions travel by message
    arrays: dict[str, Array]  # all of these by name
    carried: frozenset[str]  # the names of those that no other process sees


def layout_of(space: Space[Any], action_space: Space[Any], num_envs: int) -> Layout:
    """Returns the arrays of the columns that can be shared.

    Args:
      space: of one observation.
      action_space: of one action.
      num_envs: N.
    """
    layout = {name: array for name, array in _results(space, num_envs) if not array[1].hasobject}
    shape, dtype = _array_of(action_space, num_envs)
    if not dtype.hasobject:
        layout["actions"] = (shape, dtype)
    return layout


def columns_of(
    space: Space[Any], num_envs: int, shared: Mapping[str, Array] | None = None
) -> Columns:
    """Makes columns for N environments.

    Args:
      space: of one observation.
      num_envs: N.
      shared: arrays that lie in shared memory, by name; those that are lacking are made here.
    """
    shared = shared or {}
    arrays = dict(shared)
    for name, (shape, dtype) in _results(space, num_envs):
        if name not in arrays:
            arrays[name] = np.zeros(shape, dtype)

    def part(prefix: str) -> Obs:
        parts = OrderedDict((key, arrays[f"{prefix}{key!r}"]) for key in space_parts(space))
        return dict_to_obs(space, parts)

    return Columns(
        obs=part("obs"),
        final=part("final"),
        reward=arrays["reward"],
        terminated=arrays["terminated"],
        truncated=arrays["truncated"],
        actions=arrays.get("actions"),
        arrays=arrays,
        carried=frozenset(arrays.keys() - shared.keys()),
    )


def _results(space: Space[Any], num_envs: int) -> Iterator[tuple[str, tuple[Shape, np.dtype[Any]]]]:
    for key, part in space_parts(space).items():
        yield f"obs{key!r}", _array_of(part, num_envs)
        yield f"final{key!r}", _array_of(part, num_envs)
    yield "reward", ((num_envs,), np.dtype(np.float32))
    yield "terminated", ((num_envs,), np.dtype(bool))
    yield "truncated", ((num_envs,), np.dtype(bool))


def _array_of(space: Space[Any], num_envs: int) -> tuple[Shape, np.dtype[Any]]:
    """Returns shape and dtype of N elements of a space: of objects, where these have no fixed shape."""
    if _is_array_space(space):
        assert space.shape is not None
        return (num_envs, *space.shape), np.dtype(space.dtype)
    return (num_envs,), np.dtype(object)


def _is_array_space(space: Space[Any]) -> bool:
    if isinstance(space, Dict | Tuple) or space.shape is None or space.dtype is None:
        return False
    return np.dtype(space.dtype).kind in "biuf"


def obs_writer(space: Space[Any]) -> Callable[[Obs, int, Any], None]:
    """Returns the function that writes one observation into its row: `(columns, row, value)`.

    It raises where a value does not fit the space; see `write_row`. Objects are copied.
    """
    parts = space_parts(space)
    if all(_is_array_space(part) for part in parts.values()):
        return lambda columns, row, value: write_row(columns, space, row, value)
    if None in parts:
        return lambda columns, row, value: columns.__setitem__(row, copy.deepcopy(value))

    def write(columns: Obs, row: int, value: Any) -> None:
        if isinstance(space, Dict):
            triples: list[Any] = dict_parts(value, space, row, None)
        else:
            assert isinstance(space, Tuple)
            pairs = tuple_parts(value, space, row, None)
            triples = [(place, *pair) for place, pair in enumerate(pairs)]
        for key, part, each in triples:
            if _is_array_space(part):
                write_row(columns[key], part, row, each)
            else:
                columns[key][row] = copy.deepcopy(each)

    return write


def reward_value(reward: Any, row: int) -> float:
    """Returns a reward as a float: any number, or an array of one.

    Raises:
      TypeError: if it is no number.
      ValueError: if it holds another count of numbers than one, or one that float32 does not hold.
    """
    if isinstance(reward, float | int):
        return _fitting_reward(reward, row)
    array = np.asarray(reward)
    if array.size != 1:
        raise ValueError(
            f"environment {row}: the reward {reward!r} has shape {array.shape}; one number is needed."
        )
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"environment {row}: the reward is {reward!r} of type {type(reward).__name__}; a number is "
            "needed."
        )
    return _fitting_reward(array.reshape(()).item(), row)


def _fitting_reward(reward: float, row: int) -> float:
    if FLOAT32_MAX < abs(reward) != math.inf:
        raise ValueError(
            f"environment {row}: the reward {reward!r} does not fit float32, which holds up to "
            f"{FLOAT32_MAX:.7g}; rewards are float32, as in SB3's DummyVecEnv. Scale it."
        )
    return reward


def take_rows(columns: Columns, rows: Sequence[int], ended: Sequence[int]) -> Carried:
    """Takes out of the columns what another process needs and does not see.

    Args:
      columns: of the process that stepped.
      rows: which were stepped or reset.
      ended: those of them whose episode ended.
    """
    carried: Carried = []
    for name in columns.carried:
        which = list(ended if name.startswith("final") else rows)
        if which:
            carried.append((name, which, columns.arrays[name][which]))
    return carried


def put_rows(columns: Columns, carried: Carried) -> None:
    """Puts what `take_rows` took into the columns of this process."""
    for name, rows, values in carried:
        columns.arrays[name][rows] = values
