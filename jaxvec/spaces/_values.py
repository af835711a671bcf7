"""Checked writes: one environment's value into its row of the columns of many.

A value is refused if its shape is not the space's (NumPy would broadcast it), if a number does not
fit the dtype (NumPy would wrap it or cut it off), or if a key is missing; the message names row, key
and space. Everything is checked before anything is written.

A value that has the right type already is written in about a microsecond: a host VecEnv does this
for every environment in every step.
"""

from __future__ import annotations  # gymnasium before 1.4 has no Tuple[Any] at run time

import warnings
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
from gymnasium import spaces

from jaxvec.errors import MissingPartError

Place: TypeAlias = tuple[Any, Any] | None
"""Where in a nested space: None at the top, else the place of the parent and the key there."""


def write_row(columns: Any, space: spaces.Space[Any], row: int, value: Any) -> None:
    """Writes one element of a space into one row of its columns.

    Args:
      columns: an array `[N, *D]` in the space's dtype, or a dict or tuple of such as the space is.
      space: the space of one element; `*D` is its shape.
      row: which row is written.
      value: the element: arrays, numbers or lists that NumPy can read, in dicts and tuples as the
        space has them. Keys that the space does not have are dropped, with a warning.

    Raises:
      MissingPartError: if a key or a part is missing (a ValueError that is a LookupError too).
      TypeError: if a part is not a number or an array of numbers, a dict or a tuple where it must be.
      ValueError: if there is no such row (none is counted from the end), a shape is wrong, or a number
        does not fit the dtype: it is out of range, or has a fraction where integers are kept. Nothing is
        written then.

    >>> columns = np.zeros((3, 2), np.uint8)
    >>> write_row(columns, spaces.Box(0, 255, (2,), np.uint8), 1, [7, 300])
    Traceback (most recent call last):
        ...
    ValueError: row 1: 300 does not fit uint8, which holds 0 to 255; the space is Box(0, 255, (2,), \
uint8). Return a value of the space, or widen the space.
    """
    if type(columns) is np.ndarray:
        if type(row) is not int or not 0 <= row < len(columns):
            _check_row(columns, row)
        if _is_ready(value, columns.dtype, space.shape):
            columns[row] = value
        else:
            columns[row] = fit(value, columns.dtype, columns.shape[1:], space, row, None)
        return
    checked: list[tuple[Any, Any]] = []
    _check(columns, space, row, value, None, checked)
    for column, part in checked:
        column[row] = part


def _check_row(column: np.ndarray[Any, Any], row: Any) -> None:
    if isinstance(row, bool) or not isinstance(row, int | np.integer):
        raise TypeError(f"write_row: row={row!r} is no whole number; it says which row is written.")
    if not 0 <= row < len(column):
        raise ValueError(f"row {row}: there is no such row; the rows are 0 to {len(column) - 1}.")


def _is_ready(value: Any, dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> bool:
    """Tells whether a value can be written as it is. Comparing dtypes costs more than `is`."""
    if type(value) is np.ndarray:
        return bool((value.dtype is dtype or value.dtype == dtype) and value.shape == shape)
    return bool(type(value) is dtype.type and shape == ())


def _check(
    columns: Any,
    space: Any,
    row: int,
    value: Any,
    place: Place,
    checked: list[tuple[Any, Any]],
) -> None:
    """Appends every array of the columns, with what is to be written there, to `checked`."""
    if type(columns) is np.ndarray:
        if type(row) is not int or not 0 <= row < len(columns):
            _check_row(columns, row)
        if not _is_ready(value, columns.dtype, space.shape):
            value = fit(value, columns.dtype, columns.shape[1:], space, row, place)
        checked.append((columns, value))
    elif isinstance(space, spaces.Dict):
        for key, part, part_value in dict_parts(value, space, row, place):
            _check(columns[key], part, row, part_value, (place, key), checked)
    elif isinstance(space, spaces.Tuple):
        for key, (part, part_value) in enumerate(tuple_parts(value, space, row, place)):
            _check(columns[key], part, row, part_value, (place, key), checked)
    else:
        raise TypeError(
            f"{named(row, place)}: elements of {space} have no fixed shape and cannot be kept in "
            "columns. Use a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of such."
        )


def dict_parts(
    value: Any, space: spaces.Dict, row: int, place: Place
) -> list[tuple[Any, spaces.Space[Any], Any]]:
    """Takes a Dict space's value apart: key, sub-space and part, in the order of the space.

    Raises:
      MissingPartError: if a key is missing.
      TypeError: if the value is no mapping.
    """
    if type(value) is not dict and not isinstance(value, Mapping):
        refuse_type(value, "a dict", space, row, place)
    parts = space.spaces
    try:
        taken = [(key, part, value[key]) for key, part in parts.items()]
    except KeyError:
        missing = [key for key in parts if key not in value]
        raise MissingPartError(
            f"{named(row, place)}: the value lacks {missing}, it has {list(value)}; the space is "
            f"{space}. Return every key of the space."
        ) from None
    if len(value) != len(parts):
        extra = [key for key in value if key not in parts]
        warnings.warn(
            f"{named(row, place)}: the value has {extra}, which {space} has not; they are dropped. "
            "Add them to the space, or to the info.",
            stacklevel=5,
        )
    return taken


def tuple_parts(
    value: Any, space: spaces.Tuple[Any], row: int, place: Place
) -> list[tuple[spaces.Space[Any], Any]]:
    """Takes a Tuple space's value apart: sub-space and part.

    Raises:
      MissingPartError: if there are too few parts.
      TypeError: if the value is no sequence.
      ValueError: if there are too many parts.
    """
    if not isinstance(value, tuple | list | np.ndarray) or (
        isinstance(value, np.ndarray) and value.ndim == 0
    ):
        refuse_type(value, "a tuple", space, row, place)
    parts = space.spaces
    if len(value) != len(parts):
        error = MissingPartError if len(value) < len(parts) else ValueError
        raise error(
            f"{named(row, place)}: the value has {len(value)} parts, {len(parts)} are needed; the "
            f"space is {space}."
        )
    return list(zip(parts, value, strict=True))


def fit(
    value: Any,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    space: Any,
    row: int,
    place: Place,
    same_kind: bool = False,
) -> Any:
    """Returns a value as an array of the dtype and shape that are needed; refuses what would change.

    Rounding from one float dtype to another is no change.

    Args:
      value: an array, a number or nested lists.
      dtype: of the result.
      shape: of the result, `[*D]`; the value's must be the same.
      space: for the message.
      row: for the message.
      place: for the message.
      same_kind: whether a float is refused by its dtype alone where integers are kept, as
        `np.stack(..., out=...)` does, even if its fraction is zero.

    Raises:
      TypeError: if the value is not made of numbers, or `same_kind` does not hold.
      ValueError: if a shape is wrong or a number does not fit.
    """
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        refuse_type(value, f"an array of {dtype}", space, row, place)
    if array.dtype.kind == "V" and np.can_cast(array.dtype, np.float32):  # bfloat16 and narrower
        array = array.astype(np.float32)
    if array.dtype.kind not in "biuf":
        refuse_type(value, f"an array of {dtype}", space, row, place)
    if array.shape != shape:
        raise ValueError(
            f"{named(row, place)}: the value has shape {array.shape}, {shape} is needed; the space "
            f"is {space}. It would be broadcast or scrambled."
        )
    if array.dtype == dtype or not array.size:
        return array.astype(dtype, copy=False)
    if same_kind and not np.can_cast(array.dtype, dtype, "same_kind"):
        raise TypeError(
            f"{named(row, place)}: cannot cast {array.dtype} to {dtype} with the rule 'same_kind'; "
            f"the space is {space}. Cast the value, or change the dtype of the space."
        )
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(dtype)
        misfits = _misfits(array, cast)
    if misfits is not None and misfits.any():
        _refuse_number(array[misfits].flat[0], dtype, space, row, place)
    return cast


def _misfits(array: Any, cast: Any) -> Any:
    """Finds the numbers that a cast changed by more than rounding, bool `[*D]`; None for none."""
    if cast.dtype.kind == "f":
        infinite = np.isinf(cast)
        return infinite & np.isfinite(array) if infinite.any() else None
    if cast.dtype.kind == "b":
        return (array != 0) & (array != 1)
    limits = np.iinfo(cast.dtype)
    if array.dtype.kind == "f":
        # The greatest integer may be no float; one above it is a power of two, and is. float16
        # has neither.
        wide = array.astype(np.float64)
        inside = (wide >= float(limits.min)) & (wide < float(limits.max) + 1)
        return ~inside | (array != np.floor(array))
    return (array < limits.min) | (array > limits.max)


def _refuse_number(
    number: Any, dtype: np.dtype[Any], space: Any, row: int, place: Place
) -> NoReturn:
    if dtype.kind == "b":
        holds = "False and True"
    elif dtype.kind == "f":
        holds = f"{np.finfo(dtype).min} to {np.finfo(dtype).max}"
    else:
        holds = f"{np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
    raise ValueError(
        f"{named(row, place)}: {number} does not fit {dtype}, which holds {holds}; the space is "
        f"{space}. Return a value of the space, or widen the space."
    )


def refuse_type(value: Any, needed: str, space: Any, row: int, place: Place) -> NoReturn:
    """Raises the TypeError of a value that is of the wrong kind altogether."""
    shown = repr(value)
    if len(shown) > 80:
        shown = shown[:77] + "..."
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(
        f"{named(row, place)}: got {shown} ({kind}), {needed} is needed; the space is {space}."
    )


def named(row: int, place: Place) -> str:
    """Names a row and a place in it, such as `row 3, ["camera"][0]`."""
    path = path_of(place)
    return f"row {row}, {path}" if path else f"row {row}"


def path_of(place: Place) -> str:
    """Writes a place as it would be indexed, such as `["camera"][0]`; "" for the top."""
    path = ""
    while place is not None:
        place, key = place
        path = f"[{key!r}]{path}"
    return path
