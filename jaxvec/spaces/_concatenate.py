"""`concatenate`: elements of N environments into the arrays of one batch.

It is gymnasium's function with one promise more: every element is checked before anything is
written, and what would be broadcast, wrapped or missed is refused with row, key and space named.
"""

from collections.abc import Callable, Iterable
from functools import singledispatch
from operator import attrgetter
from typing import Any

import gymnasium.vector.utils as gym_utils
import numpy as np
from gymnasium import spaces

from jaxvec.spaces._values import Place, dict_parts, fit, tuple_parts

_dtype_and_shape = attrgetter("dtype", "shape")


@singledispatch
def concatenate(space: spaces.Space[Any], items: Iterable[Any], out: Any) -> Any:
    """Joins `n` elements of a space into one element of the batched space.

    Args:
      space: the space of each element.
      items: the elements; any iterable, a generator too.
      out: what is written into, from `create_empty_array(space, n)`.

    Returns:
      `out`, or a new dict or tuple of its arrays; for a space that has no arrays a tuple of `items`.

    Raises:
      TypeError: if `space` is no gymnasium space, or an element's dtype cannot be cast to that of
        `out` with the rule "same_kind".
      MissingPartError: if an element lacks a key or a part (a ValueError, a LookupError too).
      ValueError: if an element's shape is wrong, a number does not fit, or there are not `n`. Then
        nothing is written.

    >>> space = spaces.Box(0, 1, (1,))
    >>> concatenate(space, [np.ones(1, np.float32)] * 2, np.zeros((2, 1), np.float32))
    array([[1.],
           [1.]], dtype=float32)
    """
    return gym_utils.concatenate(space, items, out)


@concatenate.register(spaces.Box)
@concatenate.register(spaces.Discrete)
@concatenate.register(spaces.MultiDiscrete)
@concatenate.register(spaces.MultiBinary)
@concatenate.register(spaces.Tuple)
@concatenate.register(spaces.Dict)
def _concatenate_checked(space: spaces.Space[Any], items: Iterable[Any], out: Any) -> Any:
    return _checked(space, list(items), out, None)()


def _checked(space: Any, items: list[Any], out: Any, place: Place) -> Callable[[], Any]:
    """Checks all elements; returns the function that writes them and returns the batch."""
    function = concatenate.dispatch(type(space))
    if function is not _concatenate_checked:  # registered by a user, or a space without arrays
        return lambda: function(space, items, out)
    if isinstance(space, spaces.Dict):
        columns = _dict_columns(items, space, place)
        writes = {
            key: _checked(part, column, out[key], (place, key))
            for (key, part), column in zip(space.spaces.items(), columns, strict=True)
        }
        return lambda: {key: write() for key, write in writes.items()}
    if isinstance(space, spaces.Tuple):
        rows = [tuple_parts(item, space, row, place) for row, item in enumerate(items)]
        ordered = [
            _checked(part, [row[index][1] for row in rows], out[index], (place, index))
            for index, part in enumerate(space.spaces)
        ]
        return lambda: tuple(write() for write in ordered)
    return _checked_arrays(space, items, out, place)


def _dict_columns(items: list[Any], space: spaces.Dict, place: Place) -> list[list[Any]]:
    """Gathers the parts of all elements, key by key: a transposition of dicts."""
    keys = space.spaces
    if all(type(item) is dict and len(item) == len(keys) for item in items):
        try:
            return [[item[key] for item in items] for key in keys]
        except KeyError:
            pass  # said in full below
    rows = [dict_parts(item, space, row, place) for row, item in enumerate(items)]
    return [[row[index][2] for row in rows] for index in range(len(keys))]


def _checked_arrays(space: Any, items: list[Any], out: Any, place: Place) -> Callable[[], Any]:
    if not isinstance(out, np.ndarray) or not items:
        return lambda: np.stack(items, axis=0, out=out)
    if len(items) != out.shape[0] or out.ndim == 0:
        raise ValueError(
            f"concatenate: got {len(items)} elements of {space} for an `out` of shape {out.shape}; "
            "make it with create_empty_array(space, n)."
        )
    needed = (out.dtype, out.shape[1:])
    try:
        ready = list(map(_dtype_and_shape, items)).count(needed) == len(items)
    except AttributeError:  # lists and Python's numbers
        ready = False
    if not ready:
        items = [
            fit(item, *needed, space, row, place, same_kind=True) for row, item in enumerate(items)
        ]
    return lambda: _join(items, out)


def _join(items: list[Any], out: Any) -> Any:
    """Writes arrays `[*D]` of the right dtype into `out`, `[n, *D]`."""
    if out.ndim > 1 and out.size and out.flags.c_contiguous:
        # Along the first axis that is there: np.stack would make a view of every element first.
        np.concatenate(items, axis=0, out=out.reshape(-1, *out.shape[2:]))
    elif out.ndim == 1:
        out[:] = items
    else:
        np.stack(items, axis=0, out=out)
    return out
