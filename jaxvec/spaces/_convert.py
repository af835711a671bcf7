"""The spaces of other JAX libraries as gymnasium spaces, told by their attributes: none is imported.

| library | what it has |
|---|---|
| gymnax, craftax, kinetix, jaxmarl | `Discrete(n)`, `Box(low, high, shape, dtype)`, `Dict`, `Tuple` |
| kinetix, jaxmarl | `MultiDiscrete`, each with a name of its own for the counts |
| jumanji, dm_env | specs: `Array`, `BoundedArray`, `DiscreteArray`, `MultiDiscreteArray`, nested ones |
| navix | `Discrete` and `Continuous`: `shape`, `dtype`, `minimum`, `maximum` |
| gym | the ancestors of gymnasium's own |
| brax, playground, pgx, xminigrid | sizes and shapes only: `space_of_size` |
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_count
from jaxvec.core._xp import is_array
from jaxvec.spaces._device import clipped


def to_gymnasium_space(space: Any) -> spaces.Space[Any]:
    """Converts a space, or a spec, of another library.

    Discrete and MultiDiscrete get gymnasium's own int64, which holds every index. Bounds that are
    infinite where integers are kept become the ends of the dtype.

    Args:
      space: a space of gymnasium (returned as it is), gymnax, craftax, kinetix, jaxmarl, jumanji,
        dm_env, navix or gym; or a dict or tuple of such.

    Returns:
      The gymnasium space with the same elements. A nested jumanji spec becomes a Dict.

    Raises:
      TypeError: if nothing of a space is recognized.
    """
    if isinstance(space, spaces.Space):
        return space
    parts = space if isinstance(space, Mapping | tuple | list) else _first(space, "spaces")
    if parts is None:
        parts = _first(space, "_specs") or None  # a jumanji spec of one array has none
    if parts is not None:
        if isinstance(parts, Mapping):
            return spaces.Dict({key: to_gymnasium_space(part) for key, part in parts.items()})
        return spaces.Tuple([to_gymnasium_space(part) for part in parts])
    # The order tells them apart: a navix Discrete has `n` and bounds, a jumanji DiscreteArray bounds
    # and `num_values`, and a kinetix MultiDiscrete the sum of its counts as `n`.
    counts = _first(
        space, "num_values", "nvec", "number_of_dims_per_distribution", "num_categories"
    )
    if counts is not None:
        return _discrete(np.asarray(counts), 0)
    shape, dtype = _first(space, "shape"), _first(space, "dtype")
    if shape is not None and dtype is not None:
        low, high = _first(space, "minimum", "low"), _first(space, "maximum", "high")
        if low is not None and high is not None:
            if type(space).__name__ == "Discrete" and shape == ():
                return _discrete(np.asarray(high) - np.asarray(low) + 1, int(low))
            return _box(low, high, shape, dtype)
    count = _first(space, "n")
    if count is not None:
        if type(space).__name__ == "MultiBinary":
            return spaces.MultiBinary(_shape(shape))
        return _discrete(np.asarray(count), int(_first(space, "start") or 0))
    if shape is not None and dtype is not None:
        return _box(-np.inf, np.inf, shape, dtype)
    raise TypeError(
        f"to_gymnasium_space: {space!r} of type {type(space).__module__}.{type(space).__name__} is no "
        "space that is known here. Pass a gymnasium space, or an object with `n`, with `low`, `high`, "
        "`shape` and `dtype`, with `minimum`, `maximum`, `shape` and `dtype`, or with `spaces`."
    )


def space_of_size(
    size: Any, low: float = -np.inf, high: float = np.inf, dtype: Any = np.float32
) -> spaces.Space[Any]:
    """Makes a Box of what libraries without spaces tell: a size or a shape, or a dict of such.

    Args:
      size: how many numbers (brax's `observation_size`), or a shape (pgx's `observation_shape`), or
        a dict of either (playground's).
      low: the least value of all numbers.
      high: the greatest one.
      dtype: of the numbers.

    Returns:
      A Box, or a Dict of such.

    >>> space_of_size(3, -1.0, 1.0)
    Box(-1.0, 1.0, (3,), float32)
    """
    if isinstance(size, Mapping):
        return spaces.Dict(
            {key: space_of_size(part, low, high, dtype) for key, part in size.items()}
        )
    return _box(low, high, size, dtype)


def _first(space: Any, *names: str) -> Any:
    """Returns the first of the attributes that the object has, None if it has none."""
    for name in names:
        value = getattr(space, name, None)
        if value is not None:
            return value
    return None


def _shape(shape: Any) -> tuple[int, ...]:
    """Returns a shape as a tuple; some libraries give a number for one axis."""
    single = isinstance(shape, str) or not isinstance(shape, Sequence)
    lengths: list[Any] = [shape] if single else list(shape)
    # Whole numbers of other libraries may be arrays without axes.
    plain = [each.item() if is_array(each) else each for each in lengths]
    return tuple(check_count("shape", "length", each, least=0, most=None) for each in plain)


def _discrete(counts: Any, start: int) -> spaces.Space[Any]:
    if counts.ndim == 0:
        return spaces.Discrete(int(counts), start=start)
    return spaces.MultiDiscrete(counts.astype(np.int64))


def _box(low: Any, high: Any, shape: Any, dtype: Any) -> spaces.Box:
    shape, dtype = _shape(shape), np.dtype(dtype)
    return spaces.Box(
        _bound(low, shape, dtype), _bound(high, shape, dtype), shape=shape, dtype=dtype.type
    )


def _bound(bound: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Spreads a bound over the shape, in the dtype of the Box or in one that Box reads unharmed."""
    bound = np.broadcast_to(np.asarray(bound), shape)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return bound.astype(dtype)
    if dtype.kind == "b":
        return np.clip(bound, 0, 1).astype(dtype)
    if dtype.kind == "i" and bound.dtype.kind == "f" and np.isinf(bound).any():
        return bound.astype(np.float64)  # Box notes where a signed integer is unbounded
    return clipped(dtype, bound)
