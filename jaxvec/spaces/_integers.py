"""Uniform integers from random bits, without the bias of `jax.random.randint`.

That function draws two words and multiplies them modulo the word, which for ranges beyond 2**16 gives
some integers 1.25 times as often as others. Here a word, or two, are read as a fraction and scaled.

References:
  Lemire, Fast Random Integer Generation in an Interval, 2019, section 3.
"""

from typing import Any

import numpy as np

from jaxvec.spaces._device import one_if_uniform
from jaxvec.typing import Array, Key

_ONE_WORD_LIMIT = 1 << 10


def uniform_integers(
    key: Key, shape: tuple[int, ...], low: Any, high: Any, dtype: np.dtype[Any]
) -> Array:
    """Draws from `low` to `high`, both included, whatever part of the dtype's range that is.

    Args:
      key: one key.
      shape: of the result, `[*S]`.
      low: integers that broadcast to `[*S]`.
      high: integers that broadcast to `[*S]`, none less than `low`.
      dtype: of the result; it holds both.
    """
    import jax
    import jax.numpy as jnp

    word = np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)
    room = distance(low, high)
    whole = room == 2 ** (8 * word.itemsize) - 1
    if whole.any():
        offset = jax.random.bits(key, shape, word)
        if not whole.all():
            count = one_if_uniform(np.where(whole, 1, room + np.uint64(1)).astype(word))
            below = integers_below(jax.random.fold_in(key, 1), shape, count)
            offset = jnp.where(whole, offset, below)
    else:
        count = (room + np.uint64(1)).astype(word)
        if np.all(count <= _ONE_WORD_LIMIT):
            count = count.astype(np.uint32)
        offset = integers_below(key, shape, one_if_uniform(count), int(count.max(initial=1)))
    # The sum is taken modulo the word: the offset may be larger than a signed dtype holds.
    base = one_if_uniform(np.asarray(low).astype(word))
    return (base + offset.astype(word)).astype(dtype)


def integers_below(
    key: Key, shape: tuple[int, ...], count: Any, greatest: int | None = None
) -> Array:
    """Draws from 0 to `count - 1`: `floor(count * u)` for a uniform fraction `u` of two words.

    The probability of an integer differs from `1 / count` by less than one part in 2**32 (of one
    word in two) or, where one word is enough, 2**22.

    Args:
      key: one key.
      shape: of the result, `[*S]`.
      count: uint32 or uint64, at least 1, broadcast to `[*S]`; may be traced.
      greatest: no count is larger; one word of 32 bits is drawn where it is 1024 at most.

    Returns:
      `[*S]`, in the dtype of `count`.
    """
    import jax

    if greatest is not None and greatest <= _ONE_WORD_LIMIT:
        return _high_word(jax.random.bits(key, shape, "uint32"), count)
    bits = jax.random.bits(key, (2, *shape), count.dtype)
    # The upper word of count * bits[0] + (count * bits[1] >> width): a carry is what overflowed.
    lower = count * bits[0]
    carry = lower + _high_word(bits[1], count) < lower
    return _high_word(bits[0], count) + carry.astype(count.dtype)


def _high_word(a: Any, b: Any) -> Array:
    """Returns the upper word of the product of two words, from four products of their halves."""
    half = 4 * np.dtype(a.dtype).itemsize
    mask = np.asarray(2**half - 1, a.dtype)
    upper_a, lower_a, upper_b, lower_b = a >> half, a & mask, b >> half, b & mask
    one, other = upper_a * lower_b, lower_a * upper_b
    middle = (lower_a * lower_b >> half) + (one & mask) + (other & mask)
    return upper_a * upper_b + (one >> half) + (other >> half) + (middle >> half)


def distance(low: Any, high: Any) -> Any:
    """Returns `high - low`, uint64, exact for every integer dtype: it wraps into place."""
    return np.asarray(high).astype(np.uint64) - np.asarray(low).astype(np.uint64)
