"""Spaces of N environments, and elements of N spaces: the vector utilities that gymnasium documents.

Each is a `functools.singledispatch` function on the space's type: register a type to add a space.
What gymnasium does right is done by gymnasium's own function, registrations there included; the
containers are walked here, so that a space that is registered here is found inside them too.
"""

from __future__ import annotations  # gymnasium before 1.4 has no Tuple[Any] at run time

from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import singledispatch
from inspect import signature
from typing import Any

import gymnasium.vector.utils as gym_utils
import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_count

_KNOWS_KEY_ORDER = (
    "sort_keys" in signature(spaces.Dict).parameters
)  # gymnasium 1.3 and older do not


@singledispatch
def batch_space(space: spaces.Space[Any], n: int = 1) -> spaces.Space[Any]:
    """Returns the space of `n` elements, one for each environment.

    Args:
      space: the space of one environment.
      n: how many.

    Returns:
      For an array-like space one with a new first axis; for a Tuple or Dict the same of batched
      parts; for any other a Tuple of `n` copies.

    Raises:
      ValueError: if `n` is no whole number from 0 on.
      TypeError: if `space` is no gymnasium space.
      ValueError: if a MultiDiscrete reaches beyond its dtype.

    >>> batch_space(spaces.Discrete(3), 2)
    MultiDiscrete([3 3])
    """
    _check_rows("batch_space", space, n)
    return gym_utils.batch_space(space, n)


def _check_rows(where: str, space: Any, n: Any) -> None:
    """Looks at `n`, unless there is no space: that is to be told first."""
    if isinstance(space, spaces.Space):
        check_count(where, "n", n, least=0, most=None)


@batch_space.register(spaces.MultiDiscrete)
def _(space: spaces.MultiDiscrete[Any], n: int = 1) -> spaces.Space[Any]:
    check_count("batch_space", "n", n, least=0, most=None)
    last = space.start.astype(object) + space.nvec.astype(object) - 1
    limit = np.iinfo(space.dtype).max
    if np.any(last > limit):
        raise ValueError(
            f"batch_space: {space} reaches {np.max(last)}, its dtype {space.dtype} ends at {limit}. "
            "Give the space a wider dtype."
        )
    return gym_utils.batch_space(space, n)


@batch_space.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], n: int = 1) -> spaces.Space[Any]:
    parts = tuple(batch_space(part, n=n) for part in space.spaces)
    return spaces.Tuple(parts, seed=_twin_of_generator(space))


@batch_space.register(spaces.Dict)
def _(space: spaces.Dict, n: int = 1) -> spaces.Space[Any]:
    return _dict_like(space, {key: batch_space(part, n=n) for key, part in space.spaces.items()})


def _dict_like(space: spaces.Dict, parts: dict[Any, spaces.Space[Any]]) -> spaces.Dict:
    """Builds a Dict space with other parts, in the key order that gymnasium's own function gives."""
    order: dict[str, Any] = {"sort_keys": space.sort_keys} if _KNOWS_KEY_ORDER else {}
    return spaces.Dict(parts, seed=_twin_of_generator(space), **order)


@singledispatch
def batch_differing_spaces(spaces: Any) -> Any:
    """Returns the space of one element of each of several spaces, of one kind and shape.

    Args:
      spaces: at least one; they may differ in bounds, counts and starts.

    Returns:
      Their batched space. Discrete spaces of several dtypes get one that holds them all.

    Raises:
      TypeError: if the spaces are of several kinds, or of one that is not registered.
      ValueError: if there are none; if dtypes, shapes or keys differ; if no integer dtype holds all
        of them.

    >>> batch_differing_spaces([spaces.Discrete(3), spaces.Discrete(5)])
    MultiDiscrete([3 5])
    """
    if len(spaces) == 0:
        raise ValueError(
            "batch_differing_spaces: no spaces were given; there must be at least one."
        )
    kind = type(spaces[0])
    for place, space in enumerate(spaces):
        if not isinstance(space, kind):
            raise TypeError(
                f"batch_differing_spaces: space {place} is {space!r:.200} of type "
                f"{type(space).__name__}, space 0 is of type {kind.__name__}; only spaces of one kind "
                "make a batch."
            )
    own = batch_differing_spaces.dispatch(kind)
    is_unknown = own is batch_differing_spaces.dispatch(object)
    return gym_utils.batch_differing_spaces(spaces) if is_unknown else own(spaces)


@batch_differing_spaces.register(spaces.Box)
@batch_differing_spaces.register(spaces.MultiDiscrete)
@batch_differing_spaces.register(spaces.MultiBinary)
@batch_differing_spaces.register(spaces.Graph)
@batch_differing_spaces.register(spaces.Text)
@batch_differing_spaces.register(spaces.Sequence)
@batch_differing_spaces.register(spaces.OneOf)
def _(several: Any) -> spaces.Space[Any]:
    kinds = type(several[0]).__mro__  # gymnasium's own function knows the exact types only
    known = next(kind for kind in kinds if kind in gym_utils.batch_differing_spaces.registry)
    return gym_utils.batch_differing_spaces.dispatch(known)(several)


@batch_differing_spaces.register(spaces.Discrete)
def _(several: Any) -> spaces.Space[Any]:
    dtype = np.result_type(*[space.dtype for space in several])
    if dtype.kind not in "iu":
        raise ValueError(
            "batch_differing_spaces: there is no common integer dtype of "
            f"{[str(space.dtype) for space in several]}. Give the Discrete spaces int64."
        )
    # Through Python's integers: those of several dtypes would meet as floats.
    counts = np.array([int(space.n) for space in several], dtype)
    starts = np.array([int(space.start) for space in several], dtype)
    generator = _twin_of_generator(several[0])
    return spaces.MultiDiscrete(counts, dtype.type, generator, starts)


@batch_differing_spaces.register(spaces.Tuple)
def _(several: Any) -> spaces.Space[Any]:
    _check_alike(several, [len(space.spaces) for space in several], "parts")
    columns = zip(*[space.spaces for space in several], strict=True)
    parts = [batch_differing_spaces(list(column)) for column in columns]
    return spaces.Tuple(parts, seed=_twin_of_generator(several[0]))


@batch_differing_spaces.register(spaces.Dict)
def _(several: Any) -> spaces.Space[Any]:
    _check_alike(several, [set(space.spaces) for space in several], "keys")
    first = several[0]
    parts = {}
    for key in first.spaces:
        parts[key] = batch_differing_spaces([space.spaces[key] for space in several])
    return _dict_like(first, parts)


def _check_alike(several: Any, features: list[Any], what: str) -> None:
    """Raises a ValueError that names the first space which differs from space 0 in a feature."""
    for place, feature in enumerate(features):
        if feature != features[0]:
            raise ValueError(
                f"batch_differing_spaces: space {place}, {several[place]}, has the {what} {feature}, space "
                f"0 has {features[0]}; spaces of one batch have the same."
            )


def _twin_of_generator(space: spaces.Space[Any]) -> Any:
    """Copies the generator that a space draws from: the batch then draws as gymnasium's does."""
    return deepcopy(space.np_random)


@singledispatch
def iterate(space: spaces.Space[Any], items: Any) -> Iterator[Any]:
    """Iterates over the elements of a batch.

    Args:
      space: the batched space (`batch_space(single_space, n)`).
      items: an element of it.

    Returns:
      An iterator over `n` elements of the single space: views of the arrays, new dicts and tuples.
      A Dict or Tuple without any array in it does not know its `n`: it has none to iterate over
      where it stands alone, and as many as needed inside another space.

    Raises:
      TypeError: if `space` is no gymnasium space, or no batch (Discrete).
      CustomSpaceError: if `iterate` is not registered for the space.

    >>> list(iterate(spaces.MultiDiscrete([3, 3]), np.array([2, 0])))
    [np.int64(2), np.int64(0)]
    """
    return gym_utils.iterate(space, items)


@iterate.register(spaces.Box)
@iterate.register(spaces.Discrete)
@iterate.register(spaces.MultiDiscrete)
@iterate.register(spaces.MultiBinary)
def _(space: spaces.Space[Any], items: Any) -> Iterator[Any]:
    return gym_utils.iterate(space, items)


@iterate.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], items: Any) -> Iterator[Any]:
    unregistered = iterate.dispatch(object)
    if any(iterate.dispatch(type(part)) is unregistered for part in space.spaces):
        return gym_utils.iterate(space, items)  # a batch of Text, Graph, ...: one space an element
    batches = [
        None if _is_hollow(part) else iterate(part, items[index])
        for index, part in enumerate(space.spaces)
    ]
    return (tuple(row) for row in _rows(space.spaces, batches))


@iterate.register(spaces.Dict)
def _(space: spaces.Dict, items: Any) -> Iterator[Any]:
    parts = space.spaces
    batches = [
        None if _is_hollow(part) else iterate(part, items[key]) for key, part in parts.items()
    ]
    for row in _rows(tuple(parts.values()), batches):
        yield dict(zip(parts, row, strict=True))


def _rows(parts: Iterable[Any], batches: list[Iterator[Any] | None]) -> Iterator[list[Any]]:
    """Zips the batches; a hollow part (None) stands as an empty element in every row."""
    present = [batch for batch in batches if batch is not None]
    for row in zip(*present, strict=True):
        elements = iter(row)
        yield [
            _hollow_element(part) if batch is None else next(elements)
            for part, batch in zip(parts, batches, strict=True)
        ]


def _is_hollow(space: Any) -> bool:
    """Tells whether a space is a Dict or Tuple with nothing but such in it."""
    if isinstance(space, spaces.Dict):
        return all(_is_hollow(part) for part in space.spaces.values())
    return isinstance(space, spaces.Tuple) and all(_is_hollow(part) for part in space.spaces)


def _hollow_element(space: Any) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _hollow_element(part) for key, part in space.spaces.items()}
    return tuple(_hollow_element(part) for part in space.spaces)


@singledispatch
def create_empty_array(
    space: spaces.Space[Any], n: int = 1, fn: Callable[..., Any] = np.zeros
) -> Any:
    """Makes the `out` that `concatenate` fills.

    Args:
      space: the space of one environment.
      n: how many environments.
      fn: makes an array from a shape and `dtype=`.

    Returns:
      Arrays `[n, *D]` in dicts and tuples as the space has them. With `fn=np.zeros` they lie in the
      space: where 0 is out of bounds, the nearest bound stands. For Text, Graph, Sequence and
      OneOf a tuple of placeholders, for any other space None.

    Raises:
      ValueError: if `n` is no whole number from 0 on.
      TypeError: if `space` is no gymnasium space.

    >>> create_empty_array(spaces.Discrete(3, start=5), n=2)
    array([5, 5])
    """
    _check_rows("create_empty_array", space, n)
    return gym_utils.create_empty_array(space, n, fn)


@create_empty_array.register(spaces.Box)
@create_empty_array.register(spaces.Discrete)
@create_empty_array.register(spaces.MultiDiscrete)
@create_empty_array.register(spaces.MultiBinary)
def _(space: Any, n: int = 1, fn: Callable[..., Any] = np.zeros) -> Any:
    check_count("create_empty_array", "n", n, least=0, most=None)
    array: Any = gym_utils.create_empty_array(space, n, fn)
    if fn is not np.zeros or isinstance(space, spaces.MultiBinary):
        return array
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + (space.n - 1)
    else:
        low, high = space.start, space.start + (space.nvec - 1)
    return np.clip(array, low, high) if np.any(low > 0) or np.any(high < 0) else array


@create_empty_array.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], n: int = 1, fn: Callable[..., Any] = np.zeros) -> Any:
    return tuple(create_empty_array(part, n=n, fn=fn) for part in space.spaces)


@create_empty_array.register(spaces.Dict)
def _(space: spaces.Dict, n: int = 1, fn: Callable[..., Any] = np.zeros) -> Any:
    return {key: create_empty_array(part, n=n, fn=fn) for key, part in space.spaces.items()}
