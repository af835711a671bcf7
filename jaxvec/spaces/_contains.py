"""Membership in a space as a computation: it runs under jit, vmap and scan."""

from __future__ import annotations  # gymnasium before 1.4 has no Tuple[Any] at run time

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from jaxvec.spaces._device import bounds_within, one_if_uniform, unsupported_on_device
from jaxvec.typing import Array, PyTree


def contains(space: spaces.Space[Any], x: PyTree) -> Array:
    """Tells whether one element lies in a space: gymnasium's `space.contains(x)`, traced.

    Structure, shapes and dtypes are compared while tracing (a dtype must be castable to the space's
    without loss), the numbers when the computation runs. For a batch use `jax.vmap`.

    Args:
      space: a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of such.
      x: the element: arrays, traced or not, and numbers, in dicts and tuples.

    Returns:
      bool `[]`.

    Raises:
      TypeError: if elements of the space have no fixed shape.

    >>> import jax
    >>> box = spaces.Box(0, 1, (2,))
    >>> jax.vmap(lambda x: contains(box, x))(np.float32([[0, 1], [0, 2]])).tolist()
    [True, False]
    """
    import jax.numpy as jnp

    return jnp.asarray(_holds(space, x))


@singledispatch
def _holds(space: Any, x: PyTree) -> Any:
    """Returns a bool, or a traced one. A False that is known while tracing ends the matter."""
    raise unsupported_on_device("contains", space)


@_holds.register
def _(space: spaces.Dict, x: PyTree) -> Any:
    if not isinstance(x, dict) or x.keys() != space.spaces.keys():
        return False
    return _all(_holds(part, x[key]) for key, part in space.spaces.items())


@_holds.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], x: PyTree) -> Any:
    if _is_array(x) and x.ndim > 0:
        x = tuple(x)
    if not isinstance(x, tuple | list) or len(x) != len(space.spaces):
        return False
    return _all(_holds(part, y) for part, y in zip(space.spaces, x, strict=True))


@_holds.register
def _(space: spaces.Discrete, x: PyTree) -> Any:
    low, high = int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(x, int):
        limits = np.iinfo(space.dtype)
        return limits.min <= x <= limits.max and low <= x <= high
    if not isinstance(x, np.generic) and not _is_array(x):
        return False
    if x.shape != () or x.dtype.kind not in "iu" or not _castable(x, space):
        return False
    return _between(x, np.asarray(low), np.asarray(high))


@_holds.register
def _(space: spaces.MultiDiscrete, x: PyTree) -> Any:
    x = _from_list(x)
    if not _is_array(x) or x.shape != space.shape or not _castable(x, space):
        return False
    return _between(x, space.start, space.start + (space.nvec - 1))


@_holds.register
def _(space: spaces.MultiBinary, x: PyTree) -> Any:
    x = _from_list(x)
    if not _is_array(x) or x.shape != space.shape:
        return False
    return ((x == 0) | (x == 1)).all()


@_holds.register
def _(space: spaces.Box, x: PyTree) -> Any:
    if not _is_array(x):
        listed = _from_list(x)
        if not _is_traced(listed):
            try:  # of what came: an array of wider numbers would be cut off
                listed = np.asarray(x, dtype=space.dtype)
            except (ValueError, TypeError, OverflowError):
                return False
        x = listed
    if x.shape != space.shape or not _castable(x, space):
        return False
    return _between(x, space.low, space.high)


def _between(x: Any, low: Any, high: Any) -> Any:
    """Tells whether `low <= x <= high` everywhere, compared without rounding, whatever the dtypes."""
    import jax.numpy as jnp

    if not _is_traced(x):
        return bool(np.all(x >= low) and np.all(x <= high))
    if x.dtype.kind == "b":
        x = x.astype("uint8")
    elif x.dtype.kind not in "iu":
        x = x.astype(np.promote_types(x.dtype, np.float32))
    least, most = bounds_within(x.dtype, low, high)
    if least is None:
        return False
    if x.dtype.kind == "f":
        x, least, most = _ordinal(x), _ordinal(least), _ordinal(most)
    return jnp.all((x >= one_if_uniform(least)) & (x <= one_if_uniform(most)))


def _ordinal(x: Any) -> Any:
    """Numbers the floats by their bits: integers in the same order, NaN beyond both infinities.

    A device may take the least numbers of a dtype for zero where it compares floats.
    """
    import jax

    integer = np.dtype(f"int{8 * x.dtype.itemsize}")
    least = np.iinfo(integer).min
    # Behind the sign bit stands the magnitude; minus zero becomes zero.
    if isinstance(x, np.ndarray):
        bits = x.view(integer)
        return np.where(bits < 0, least - bits, bits)
    traced = jax.lax.bitcast_convert_type(x, integer)
    return jax.numpy.where(traced < 0, least - traced, traced)


def _castable(x: Any, space: Any) -> bool:
    """Tells whether a dtype is within the space's; a traced Python number has none of its own."""
    if _is_traced(x) and x.weak_type:
        return x.dtype.kind in "iub" or space.dtype.kind == "f"
    return bool(np.can_cast(x.dtype, space.dtype))


def _from_list(x: Any) -> Any:
    """Makes an array of a list or tuple, as gymnasium does; leaves anything else."""
    import jax
    import jax.numpy as jnp

    if not isinstance(x, Sequence) or isinstance(x, str):
        return x
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(x)):
        return jnp.asarray(x)
    try:
        return np.array(x)
    except ValueError:  # lists of different lengths
        return x


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray) or _is_traced(x)


def _is_traced(x: Any) -> TypeGuard[Array]:
    """Tells whether JAX computes on `x`: a tracer, or an array on a device."""
    import jax

    return isinstance(x, jax.Array)


def _all(parts: Iterable[Any]) -> Any:
    result: Any = True
    for part in parts:
        if part is False:
            return False
        result = part if result is True else result & part
    return result
