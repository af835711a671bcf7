"""Random elements of a space, as a function of a key: it runs under jit, vmap and scan.

The distributions are those of gymnasium's `Space.sample`, coordinate by coordinate: uniform between
two bounds, exponential from a single one, standard normal where there is none; a Box of integers is
uniform over both of its ends.
"""

from __future__ import annotations  # gymnasium before 1.4 has no Tuple[Any] at run time

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._xp import is_traced
from jaxvec.spaces._device import (
    device_bounds,
    device_dtype,
    one_if_uniform,
    unsupported_on_device,
)
from jaxvec.spaces._integers import distance, integers_below, uniform_integers
from jaxvec.typing import Array, Key, PyTree


def sample(key: Key, space: spaces.Space[Any], n: int, mask: PyTree = None) -> PyTree:
    """Draws `n` independent elements of a space.

    Args:
      key: one random key of any implementation (typed, or raw uint32 words); it is consumed.
      space: a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of such.
      n: how many, 0 or more; a static number.
      mask: what may be drawn, as for gymnasium's `sample`; None leaves everything. Discrete: int8
        or bool `[k]`, 1 where an element may be drawn (if nowhere, `space.start` is).
        MultiDiscrete: a tuple of such masks, nested as `nvec` is. MultiBinary: the value wanted, 2
        for a free coin. Dict and Tuple: a dict or tuple with a mask, or None, for every part. Each
        array may have one more axis in front, of length `n`: a mask for every row.

    Returns:
      The elements, with a new axis of length `n` in front of every array. A dtype of 64 bits
      becomes one of 32 where JAX has 64 bits switched off.

    Raises:
      TypeError: if a space of this kind has no fixed shape (Text, Graph, Sequence, OneOf, ...), or
        a mask has the wrong type.
      ValueError: if a mask has the wrong shape or keys, or a Box has one, or the space's numbers
        do not fit JAX's dtype.

    >>> import jax
    >>> sample(jax.random.key(0), spaces.Discrete(3, start=5), 4).shape
    (4,)
    """
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise TypeError(f"sample: n={n!r} is not an integer; it says how many elements to draw.")
    if n < 0:
        raise ValueError(f"sample: n={n} is negative; it says how many elements to draw.")
    return _draw(space, key, int(n), mask)


@singledispatch
def _draw(space: Any, key: Key, n: int, mask: PyTree) -> PyTree:
    raise unsupported_on_device("sample", space)


@_draw.register
def _(space: spaces.Dict, key: Key, n: int, mask: PyTree) -> PyTree:
    import jax

    if mask is None:
        mask = dict.fromkeys(space.spaces)
    if not isinstance(mask, Mapping):
        raise TypeError(f"sample: the mask of {space} is {mask!r}; it must be a dict of masks.")
    if mask.keys() != space.spaces.keys():
        raise ValueError(
            f"sample: the mask has the keys {list(mask)}, the space has {list(space.spaces)}; give "
            "None for a part that is not masked."
        )
    return {
        name: _draw(part, jax.random.fold_in(key, index), n, mask[name])
        for index, (name, part) in enumerate(space.spaces.items())
    }


@_draw.register(spaces.Tuple)
def _(space: spaces.Tuple[Any], key: Key, n: int, mask: PyTree) -> PyTree:
    import jax

    if mask is None:
        mask = (None,) * len(space.spaces)
    if not isinstance(mask, tuple):
        raise TypeError(f"sample: the mask of {space} is {mask!r}; it must be a tuple of masks.")
    if len(mask) != len(space.spaces):
        raise ValueError(
            f"sample: the mask has {len(mask)} parts, the space has {len(space.spaces)}; give None "
            "for a part that is not masked."
        )
    return tuple(
        _draw(part, jax.random.fold_in(key, index), n, part_mask)
        for index, (part, part_mask) in enumerate(zip(space.spaces, mask, strict=True))
    )


@_draw.register
def _(space: spaces.Discrete, key: Key, n: int, mask: PyTree) -> Array:
    dtype = device_dtype(space)
    start = np.asarray(space.start)
    last = np.asarray(int(space.start) + int(space.n) - 1)
    device_bounds(space, start, last)
    if mask is None:
        return uniform_integers(key, (n,), start, last, dtype)
    return _masked(key, space, n, mask, int(space.n), int(space.start), dtype)


@_draw.register
def _(space: spaces.MultiDiscrete, key: Key, n: int, mask: PyTree) -> Array:
    import jax
    import jax.numpy as jnp

    dtype = device_dtype(space)
    last = space.start + (space.nvec - 1)
    device_bounds(space, space.start, last)
    if mask is None:
        return uniform_integers(key, (n, *space.shape), space.start, last, dtype)
    parts = [
        _masked(
            jax.random.fold_in(key, index),
            space,
            n,
            _at(space, mask, place),
            int(space.nvec[place]),
            int(space.start[place]),
            dtype,
        )
        for index, place in enumerate(np.ndindex(space.shape))
    ]
    if not parts:
        return jnp.zeros((n, *space.shape), dtype)
    return jnp.stack(parts, axis=1).reshape((n, *space.shape))


@_draw.register
def _(space: spaces.MultiBinary, key: Key, n: int, mask: PyTree) -> Array:
    import jax
    import jax.numpy as jnp

    shape = (n, *space.shape)
    coins = (jax.random.bits(key, shape, "uint32") >> 31).astype(space.dtype)
    if mask is None:
        return coins
    mask = _checked_mask(space, n, mask, space.shape, (0, 1, 2))
    return jnp.where(mask == 2, coins, mask.astype(space.dtype))


@_draw.register
def _(space: spaces.Box, key: Key, n: int, mask: PyTree) -> Array:
    if mask is not None:
        raise ValueError(f"sample: {space} cannot be masked, got {mask!r}; give None for a Box.")
    if space.dtype.kind == "f":
        return _draw_real_box(space, key, n)
    return _draw_integer_box(space, key, n)


def _draw_real_box(space: spaces.Box, key: Key, n: int) -> Array:
    import jax
    import jax.numpy as jnp

    dtype = device_dtype(space)
    # Ten random bits would be few: half precision is drawn in single and rounded.
    wide = np.promote_types(dtype, np.float32)
    shape = (n, *space.shape)
    low, high = device_bounds(space, space.low, space.high)
    low, high = low.astype(wide), high.astype(wide)
    kinds = _kinds_of_interval(space)

    def uniform(key: Key) -> Array:
        u = jax.random.uniform(key, shape, wide)
        least = one_if_uniform(np.where(space.bounded_below, low, 0))
        most = one_if_uniform(np.where(space.bounded_above, high, 0))
        return least * (1 - u) + most * u  # `high - low` might overflow

    draws = {
        "both": uniform,
        "below": lambda key: one_if_uniform(low) + jax.random.exponential(key, shape, wide),
        "above": lambda key: one_if_uniform(high) - jax.random.exponential(key, shape, wide),
        "none": lambda key: jax.random.normal(key, shape, wide),
    }
    x = _by_kind(key, kinds, draws, shape, wide)
    return jnp.clip(x, one_if_uniform(low), one_if_uniform(high)).astype(dtype)


def _draw_integer_box(space: spaces.Box, key: Key, n: int) -> Array:
    import jax
    import jax.numpy as jnp

    dtype = device_dtype(space)
    shape = (n, *space.shape)
    low, high = device_bounds(space, space.low, space.high)
    room = np.minimum(distance(low, high), 1 << 20).astype(np.int32)

    def whole_exponential(key: Key) -> Array:
        x = jnp.floor(jax.random.exponential(key, shape, "float32")).astype("int32")
        return jnp.minimum(x, one_if_uniform(room)).astype(dtype)

    draws = {
        "both": lambda key: uniform_integers(key, shape, low, high, dtype),
        "below": lambda key: one_if_uniform(low) + whole_exponential(key),
        "above": lambda key: one_if_uniform(high) - whole_exponential(key),
        "none": lambda key: jnp.floor(jax.random.normal(key, shape, "float32")).astype(dtype),
    }
    return _by_kind(key, _kinds_of_interval(space), draws, shape, dtype)


def _kinds_of_interval(space: spaces.Box) -> dict[str, Any]:
    below, above = space.bounded_below, space.bounded_above
    return {
        "both": below & above,
        "below": below & ~above,
        "above": ~below & above,
        "none": ~below & ~above,
    }


def _by_kind(
    key: Key, kinds: dict[str, Any], draws: dict[str, Any], shape: tuple[int, ...], dtype: Any
) -> Array:
    """Draws every kind of interval that occurs, and puts each coordinate's own in its place."""
    import jax
    import jax.numpy as jnp

    present = [kind for kind, where in kinds.items() if where.any()]
    if not present:
        return jnp.zeros(shape, dtype)
    if len(present) == 1:
        return draws[present[0]](key)
    x = jnp.zeros(shape, dtype)
    for index, kind in enumerate(present):
        x = jnp.where(kinds[kind], draws[kind](jax.random.fold_in(key, index)), x)
    return x


def _masked(
    key: Key, space: Any, n: int, mask: PyTree, count: int, start: int, dtype: np.dtype[Any]
) -> Array:
    """Draws among the elements that the mask allows; `start` where it allows none."""
    import jax.numpy as jnp

    allowed = _checked_mask(space, n, mask, (count,), (0, 1)) == 1
    rank = jnp.cumsum(allowed, axis=-1, dtype="int32")  # of an element among those allowed, from 1
    choices = jnp.maximum(rank[..., -1], 1)
    choice = integers_below(key, (n,), choices.astype("uint32"), count).astype("int32")
    # argmax finds the first element whose rank exceeds the choice, and 0 where there is none.
    index = jnp.argmax(rank > choice[:, None], axis=-1)
    word = np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)
    base = np.asarray(start).astype(word)
    return (base + index.astype(word)).astype(dtype)


def _checked_mask(
    space: Any, n: int, mask: PyTree, shape: tuple[int, ...], values: tuple[int, ...]
) -> Array:
    import jax

    if not isinstance(mask, np.ndarray | jax.Array) or mask.dtype.kind not in "iub":
        raise TypeError(
            f"sample: the mask of {space} is {mask!r}; it must be an array of int8 or bool, of "
            f"shape {shape}."
        )
    if mask.shape not in (shape, (n, *shape)):
        raise ValueError(
            f"sample: the mask of {space} has shape {mask.shape}; it must be {shape}, or "
            f"{(n, *shape)} with one mask for every row."
        )
    if not is_traced(mask) and not np.isin(np.asarray(mask), values).all():
        raise ValueError(f"sample: the mask of {space} must hold {values} only, got {mask}.")
    return mask


def _at(space: spaces.MultiDiscrete, mask: PyTree, place: tuple[int, ...]) -> PyTree:
    """Takes the mask of one coordinate out of tuples that are nested as `nvec` is."""
    for index, length in zip(place, space.shape, strict=True):
        if not isinstance(mask, tuple):
            raise TypeError(
                f"sample: the mask of {space} must be a tuple of masks, one for each of its "
                f"{length} entries, got {mask!r}."
            )
        if len(mask) != length:
            raise ValueError(
                f"sample: the mask of {space} has {len(mask)} parts where {length} are needed."
            )
        mask = mask[index]
    return mask
