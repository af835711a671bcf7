"""Shared memory in the ctypes form that gymnasium documents: one `ctx.Array` for every array.

Written values are checked as a whole before anything is written. For a VecEnv's own columns see
`SharedBlock`: one block, read without building an array.
"""

from __future__ import annotations  # gymnasium before 1.4 has no Tuple[Any] at run time

import multiprocessing
from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any

import gymnasium.vector.utils as gym_utils
import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_count
from jaxvec.errors import MissingPartError
from jaxvec.spaces._values import (
    Place,
    dict_parts,
    fit,
    named,
    refuse_type,
    tuple_parts,
)


@singledispatch
def create_shared_memory(space: spaces.Space[Any], n: int = 1, ctx: Any = multiprocessing) -> Any:
    """Makes the memory that `n` environments in other processes write their observations into.

    Args:
      space: the space of one environment.
      n: how many environments.
      ctx: the multiprocessing module or a context of it.

    Returns:
      `ctx.Array`s, in dicts and tuples as the space has them. They can be handed to processes while
      these are started.

    Raises:
      ValueError: if `n` is no whole number from 0 on.
      CustomSpaceError: if the function is not registered for the space.
      TypeError: if `space` is no gymnasium space, or has no fixed shape (Graph, Sequence).
    """
    # A Python number: ctypes takes no other.
    n = check_count("create_shared_memory", "n", n, least=0, most=None)
    return gym_utils.create_shared_memory(space, n, ctx)


@create_shared_memory.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], n: int = 1, ctx: Any = multiprocessing) -> Any:
    return tuple(create_shared_memory(part, n=n, ctx=ctx) for part in space.spaces)


@create_shared_memory.register(spaces.Dict)
def _(space: spaces.Dict, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return {key: create_shared_memory(part, n=n, ctx=ctx) for key, part in space.spaces.items()}


@create_shared_memory.register(spaces.OneOf)
def _(space: spaces.OneOf[Any], n: int = 1, ctx: Any = multiprocessing) -> Any:
    parts = tuple(create_shared_memory(part, n=n, ctx=ctx) for part in space.spaces)
    return (ctx.Array(np.dtype(np.int64).char, n), *parts)


@create_shared_memory.register(spaces.Text)
def _(space: spaces.Text, n: int = 1, ctx: Any = multiprocessing) -> Any:
    memory: Any = gym_utils.create_shared_memory(space, n, ctx)
    # Zero is the code of the first character: a row that nobody wrote would read "aaaa".
    np.frombuffer(memory.get_obj(), np.int32)[:] = _end_of_text(space)
    return memory


@singledispatch
def read_from_shared_memory(space: spaces.Space[Any], shared_memory: Any, n: int = 1) -> Any:
    """Reads the elements of all environments.

    Args:
      space: the space of one environment.
      shared_memory: from `create_shared_memory`.
      n: how many environments.

    Returns:
      Arrays `[n, *D]` in dicts and tuples as the space has them. They ARE the shared memory: copy
      what should outlast the next write. Text and OneOf give tuples, and copies.

    Raises:
      ValueError: if `n` is no whole number from 0 on.
      CustomSpaceError: if the function is not registered for the space.
      TypeError: if `space` is no gymnasium space.
    """
    check_count("read_from_shared_memory", "n", n, least=0, most=None)
    return gym_utils.read_from_shared_memory(space, shared_memory, n)


@read_from_shared_memory.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], shared_memory: Any, n: int = 1) -> Any:
    pairs = zip(space.spaces, shared_memory, strict=True)
    return tuple(read_from_shared_memory(part, memory, n=n) for part, memory in pairs)


@read_from_shared_memory.register(spaces.Dict)
def _(space: spaces.Dict, shared_memory: Any, n: int = 1) -> Any:
    return {
        key: read_from_shared_memory(part, shared_memory[key], n=n)
        for key, part in space.spaces.items()
    }


@read_from_shared_memory.register(spaces.OneOf)
def _(space: spaces.OneOf[Any], shared_memory: Any, n: int = 1) -> Any:
    choices = np.frombuffer(shared_memory[0].get_obj(), np.int64)
    parts = [
        read_from_shared_memory(part, memory, n=n)
        for part, memory in zip(space.spaces, shared_memory[1:], strict=True)
    ]
    # The index is read now; a view beside it would show a later element under an older index.
    return tuple(
        (choice, _row_copy(space.spaces[choice], parts[choice], row))
        for row, choice in enumerate(choices)
    )


def _row_copy(space: Any, columns: Any, row: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _row_copy(part, columns[key], row) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        pairs = zip(space.spaces, columns, strict=True)
        return tuple(_row_copy(part, column, row) for part, column in pairs)
    element = columns[row]
    return element.copy() if isinstance(element, np.ndarray) else element


@singledispatch
def write_to_shared_memory(
    space: spaces.Space[Any], index: int, value: Any, shared_memory: Any
) -> None:
    """Writes the element of one environment.

    Args:
      space: the space of one environment.
      index: which environment, 0 to n - 1.
      value: the element.
      shared_memory: from `create_shared_memory`.

    Raises:
      CustomSpaceError: if the function is not registered for the space.
      MissingPartError: if a key or a part is missing (a ValueError that is a LookupError too).
      TypeError: if `space` is no gymnasium space, or a part of the value is of the wrong kind.
      ValueError: if there is no such row, a shape is wrong, a number does not fit the dtype, or a
        text is too long or has other characters. Nothing is written then.
    """
    gym_utils.write_to_shared_memory(space, index, value, shared_memory)


@write_to_shared_memory.register(spaces.Box)
@write_to_shared_memory.register(spaces.Discrete)
@write_to_shared_memory.register(spaces.MultiDiscrete)
@write_to_shared_memory.register(spaces.MultiBinary)
@write_to_shared_memory.register(spaces.Text)
@write_to_shared_memory.register(spaces.Tuple)
@write_to_shared_memory.register(spaces.Dict)
@write_to_shared_memory.register(spaces.OneOf)
def _write_checked(space: Any, index: int, value: Any, shared_memory: Any) -> None:
    writes: list[Callable[[], None]] = []
    _check(space, index, value, shared_memory, None, writes)
    for write in writes:
        write()


def _check(
    space: Any,
    index: int,
    value: Any,
    memory: Any,
    place: Place,
    writes: list[Callable[[], None]],
) -> None:
    """Appends all that is to be written once everything is known to fit."""
    function = write_to_shared_memory.dispatch(type(space))
    if function is not _write_checked:  # registered by a user, or an error that says so
        writes.append(partial(function, space, index, value, memory))
    elif isinstance(space, spaces.Dict):
        for key, part, part_value in dict_parts(value, space, index, place):
            _check(part, index, part_value, memory[key], (place, key), writes)
    elif isinstance(space, spaces.Tuple):
        parts = tuple_parts(value, space, index, place)
        for key, ((part, part_value), part_memory) in enumerate(zip(parts, memory, strict=True)):
            _check(part, index, part_value, part_memory, (place, key), writes)
    elif isinstance(space, spaces.OneOf):
        choice, part_value = _checked_choice(space, value, index, place)
        writes.append(_write(memory[0], np.int64, (), index, choice, space, place))
        part, part_memory = space.spaces[choice], memory[1 + choice]
        _check(part, index, part_value, part_memory, (place, choice), writes)
    elif isinstance(space, spaces.Text):
        codes = _encoded(space, value, index, place)
        writes.append(_write(memory, np.int32, (space.max_length,), index, codes, space, place))
    else:
        dtype, shape = space.dtype, space.shape
        if not (type(value) is np.ndarray and value.dtype == dtype and value.shape == shape):
            value = fit(value, dtype, shape, space, index, place)
        writes.append(_write(memory, dtype, shape, index, value, space, place))


def _write(
    memory: Any,
    dtype: Any,
    shape: tuple[int, ...],
    index: int,
    value: Any,
    space: Any,
    place: Place,
) -> Callable[[], None]:
    """Returns the write of one row `[*D]` of an array `[n, *D]`, once the row is known to exist."""
    memory = np.frombuffer(memory.get_obj(), dtype)
    if not memory.size and 0 in shape:
        return lambda: None  # how many rows of no bytes there are, nobody knows
    columns = memory.reshape(-1, *shape)
    if isinstance(index, bool) or not isinstance(index, int | np.integer):
        raise TypeError(
            f"write_to_shared_memory: index={index!r} is no whole number; it says which row is written."
        )
    if not 0 <= index < len(columns):
        raise ValueError(
            f"{named(index, place)}: there is no such row of {space}; the rows are 0 to "
            f"{len(columns) - 1}."
        )
    return partial(columns.__setitem__, index, value)


def _checked_choice(
    space: spaces.OneOf[Any], value: Any, row: int, place: Place
) -> tuple[int, Any]:
    if not isinstance(value, tuple | list):
        refuse_type(value, "a tuple (which space, its element)", space, row, place)
    if len(value) != 2:
        raise MissingPartError(
            f"{named(row, place)}: the value has {len(value)} parts, 2 are needed (which space, its "
            f"element); the space is {space}."
        )
    choice = value[0]
    if not isinstance(choice, int | np.integer):
        refuse_type(choice, "an integer (which space)", space, row, place)
    if not 0 <= choice < len(space.spaces):
        raise MissingPartError(
            f"{named(row, place)}: the value chooses space {choice}, there are {len(space.spaces)}; "
            f"the space is {space}."
        )
    return int(choice), value[1]


def _encoded(space: spaces.Text, text: Any, row: int, place: Place) -> Any:
    """Returns the codes of a text, int32 `[max_length]`, as gymnasium's `flatten` numbers them."""
    if not isinstance(text, str):
        refuse_type(text, "a str", space, row, place)
    if len(text) > space.max_length:
        raise ValueError(
            f"{named(row, place)}: the text {text!r} has {len(text)} characters, at most "
            f"{space.max_length} fit; the space is {space}."
        )
    foreign = sorted(set(text) - space.character_set)
    if foreign:
        raise ValueError(
            f"{named(row, place)}: the text {text!r} has the characters {foreign}, which are not in "
            f"the charset; the space is {space}."
        )
    return spaces.flatten(space, text)


def _end_of_text(space: spaces.Text) -> int:
    """Returns the code that pads a text: the first that is no character."""
    return len(space.character_set)
