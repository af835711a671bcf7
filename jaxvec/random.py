"""Cheap random keys: a counter-based hash behind ordinary `jax.random` keys, and for NumPy too.

A threefry key per row and step costs a compiled CPU rollout several times the physics. Here a key's
64 bits and a counter go through `pcg4d`: a few products in plain elementwise code, which XLA fuses
with its user. A generator for simulation, not for secrets.

Two ways in: typed keys for all of `jax.random` (`hash_key`, `keys_from`, `keys_from_seeds`), and
`bits_rows` / `uniform_rows` on bare key words, the same bits with NumPy and with JAX.
"""

import functools
import math
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from jaxvec.core._arguments import check_count
from jaxvec.core._hash import hash_words, new_words, pcg4d
from jaxvec.core._xp import is_array, is_key, is_numpy, is_traced, namespace
from jaxvec.typing import Array, Key

__all__ = [
    "as_impl",
    "bits_rows",
    "hash_impl",
    "hash_key",
    "key_words",
    "keys_from",
    "keys_from_seeds",
    "pcg4d",
    "row_words_from_seeds",
    "uniform_rows",
]

# What a hash is for is hashed with it, so that a key's bits, its children and what is folded into it
# have nothing to do with each other. Digits of pi.
_SEED, _SPLIT, _FOLD, _BITS = map(np.uint32, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344))
_ROWS, _SHRINK, _GROW = map(np.uint32, (0xA4093822, 0x299F31D0, 0x082EFA98))

_ZERO = np.uint32(0)
_UNROLLED_CHILDREN = 8


def _jitted(*static: int) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Decorates with a `jax.jit` made at the first call. Eager draws dispatch one call then, not sixty."""

    def decorate(function: Callable[..., Array]) -> Callable[..., Array]:
        @functools.cache
        def make() -> Any:
            return sys.modules["jax"].jit(function, static_argnums=static, inline=True)

        return functools.wraps(function)(lambda *arguments: make()(*arguments))

    return decorate


# The implementation behind typed keys. Its functions stand at module level: keys pickle, and threads
# that define it at the same time define equal ones.


@functools.cache
def hash_impl() -> Hashable:
    """Returns the key implementation, as `jax.random.key` and `wrap_key_data` take it for `impl`.

    All of `jax.random` works with it, except what JAX has for threefry only (`jax.random.poisson`
    raises NotImplementedError).
    """
    from jax.extend.random import define_prng_impl

    parts = {"seed": _seed, "split": _split, "random_bits": _random_bits, "fold_in": _fold_in}
    return define_prng_impl(key_shape=(2,), name="jaxvec_hash", tag="jxh", **parts)


@_jitted()
def _seed(seed: Array) -> Array:
    return _seed_words(seed)


def _seed_words(seed: Array) -> Array:
    """Makes a key's words `[*S, 2]` from integers `[*S]`, NumPy or JAX, all of whose bits count."""
    low = seed.astype(np.uint32)
    high = (seed >> 32).astype(np.uint32) if seed.dtype.itemsize > 4 else low & _ZERO
    return new_words(namespace(low).stack([low, high], axis=-1), _ZERO, _SEED)


@_jitted(1)
def _split(key: Array, shape: tuple[int, ...]) -> Array:
    num = math.prod(shape)
    if not isinstance(num, int) or not 0 < num <= _UNROLLED_CHILDREN:
        return new_words(key, _counters(shape), _SPLIT)
    # One by one: XLA sees through their concatenation. What comes out of one stack it hashes anew for
    # every word that is read (115 against 96 M steps/s with four children a row).
    children = [new_words(key, np.uint32(index), _SPLIT) for index in range(num)]
    return namespace(key).stack(children).reshape(*shape, 2)


@_jitted()
def _fold_in(key: Array, data: Array) -> Array:
    return new_words(key, data.astype(np.uint32), _FOLD)


@_jitted(1, 2)
def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    # One hash per element, though it has four words: that vectorizes. To interleave all four was slower
    # (69 against 94 M steps/s with 4 draws a row, 32 against 40 M normals/s in a batch of 2048 x 8).
    low, high, _, _ = hash_words(key, _counters(shape), _BITS)
    if bit_width == 64:
        return (high.astype(np.uint64) << 32) | low.astype(np.uint64)
    return low.astype(f"uint{bit_width}")


def _counters(shape: tuple[int, ...]) -> Array:
    """Numbers the elements of a shape, uint32; no reshape, so that it shards."""
    import jax

    size = math.prod(shape)
    if isinstance(size, int) and size > 2**32:
        raise ValueError(f"hash keys: {shape} is over 2**32 elements. Draw with several keys.")
    counters = jax.numpy.zeros(shape, np.uint32)
    for axis, length in enumerate(shape):  # under symbolic export a length may be a symbol
        counters *= jax.numpy.asarray(length, np.uint32)
        counters += jax.lax.broadcasted_iota(np.uint32, shape, axis)
    return counters


def hash_key(seed: int) -> Key:
    """Makes a typed key of the hash; equal to `jax.random.key(seed, impl=hash_impl())`.

    That call cuts a seed to 32 bits where JAX's 64-bit numbers are off; here all its bits count.

    Raises:
      TypeError: if the seed is not an integer, or not below 2**64.
      ValueError: if it is negative, or not one number.
    """
    if np.ndim(seed):
        raise ValueError(f"hash_key: seed={seed!r} is not one number. Use keys_from_seeds.")
    return keys_from_seeds(seed)


def keys_from(key: Key | int, num: int, *, impl: Hashable = None) -> Key:
    """Makes a key per row. Row i's is `fold_in(key, i)`: it does not depend on how many there are.

    >>> from jaxvec.random import keys_from
    >>> keys_from(0, 2048).shape
    (2048,)

    Args:
      key: one key, typed (of any implementation) or raw (uint32 `[2]`), or an integer seed.
      num: number of rows N, 0 or more; static.
      impl: what `as_impl` takes; the key is converted first. None keeps a key's kind, and makes hash
        keys of a seed.

    Returns:
      Keys `[N]`; uint32 `[N, 2]` where they are raw.

    Raises:
      TypeError: if `key` is no key and no integer seed.
      ValueError: if `key` is several keys, or `num` no whole number from 0 to 2**32 - 1.
    """
    import jax

    num = check_count("keys_from", "num", num, least=0, most=2**32 - 1)
    if np.ndim(key) == 0 and not is_key(key):
        key = hash_key(key)
    if np.ndim(key) != (0 if is_key(key) else 1):
        raise ValueError(f"keys_from: key has shape {np.shape(key)}; it needs ONE key.")
    key = key if impl is None else as_impl(key, impl)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, jax.numpy.arange(num, dtype=np.uint32))


def keys_from_seeds(seeds: Array | Sequence[int]) -> Key:
    """Makes typed hash keys `[*S]` of what `row_words_from_seeds` takes, each of its own seed only."""
    return as_impl(row_words_from_seeds(seeds), "hash")


def row_words_from_seeds(seeds: Array | Sequence[int]) -> Array:
    """Makes the words of `keys_from_seeds(seeds)`, without JAX where the seeds come without it.

    Args:
      seeds: integers `[*S]`, `0 <= seed < 2**64`. Of traced ones nobody can know the sign: there a
        negative seed counts as the unsigned number of the same bits.

    Returns:
      uint32 `[*S, 2]`.

    Raises:
      TypeError: if the seeds are not integers, or too large.
      ValueError: if one is negative.
    """
    if isinstance(seeds, Sequence) or is_numpy(seeds):
        whole = np.asarray(seeds, dtype=object)  # [1, 2**63] alone would become float64
        fits = all(isinstance(seed, int) and 0 <= seed < 2**64 for seed in whole.flat)
        seeds = whole.astype(np.uint64) if fits else np.asarray(seeds)
    if not is_array(seeds) or seeds.dtype.kind not in "iu":
        raise TypeError(f"seeds: got {seeds!r}; they need to be integers below 2**64.")
    if not is_traced(seeds) and (seeds < 0).any():
        raise ValueError(f"seeds: got {seeds!r} with a negative one; they need to be 0 or more.")
    return _seed_words(seeds)


def as_impl(keys: Key, impl: Hashable) -> Key:
    """Converts keys to another kind by way of their words; keys of that kind come back as they are.

    Args:
      keys: keys `[*S]`, typed or raw (uint32 `[*S, 2]`).
      impl: `"hash"`, `"raw"` (uint32 `[*S, 2]`, as threefry's raw keys are), or what `jax.random.key`
        takes for `impl`, such as `"threefry2x32"`.

    Returns:
      Keys `[*S]`. Among kinds of two words the words stay, so converting back gives the same keys.

    Raises:
      TypeError: if `keys` are no keys.
      ValueError: if JAX knows no such implementation.
    """
    import jax

    if impl == "raw":
        return jax.numpy.asarray(key_words(keys))
    impl = hash_impl() if impl == "hash" else impl
    dtype = _key_dtype(impl)
    if is_key(keys) and keys.dtype == dtype:
        return keys
    words = jax.numpy.asarray(key_words(keys))
    if dtype.itemsize == 16:  # four words
        words = jax.numpy.stack(hash_words(words, _ZERO, _GROW), axis=-1)
    return jax.random.wrap_key_data(words, impl=impl)


@functools.cache
def _key_dtype(impl: Hashable) -> Any:
    import jax

    return jax.eval_shape(lambda: jax.random.key(0, impl=impl)).dtype


def key_words(keys: Key) -> Array:
    """Returns two words of every key: all that a row's own randomness needs.

    Args:
      keys: keys `[*S]`, typed or raw (uint32 `[*S, 2]` or `[*S, 4]`, NumPy or JAX).

    Returns:
      uint32 `[*S, 2]`, NumPy for NumPy keys. Keys of four words (rbg) are hashed down to two.

    Raises:
      TypeError: if `keys` are no keys.
    """
    words = keys
    if is_key(keys):
        import jax

        words = jax.random.key_data(keys)
    if not is_array(words) or words.dtype != np.uint32 or words.shape[-1:] not in ((2,), (4,)):
        raise TypeError(
            f"key_words: got {keys!r}; it needs keys, typed or raw (uint32 [..., 2] or [..., 4]), "
            "such as keys_from(seed, num_envs)."
        )
    if words.shape[-1] == 2:
        return words
    first = new_words(words[..., :2], _ZERO, _SHRINK)
    return new_words(first ^ words[..., 2:], _ZERO, _SHRINK)


def bits_rows(words: Array, counter: Array | int, salt: int = 0) -> Array:
    """Draws 32 random bits per row, the same ones with NumPy and with JAX.

    Args:
      words: uint32 `[N, 2]` of `key_words` or `row_words_from_seeds`; they stay from draw to draw.
      counter: the number of the draw, integers `[N]` or one for all rows, modulo 2**32.
      salt: keeps users of the same words apart, `0 <= salt < 2**32`; static.

    Returns:
      uint32 `[N]`.

    Raises:
      ValueError: if the salt is no whole number, or out of range.
      TypeError: if the words are none, or the counter is no integer.
    """
    salt = check_count("bits_rows", "salt", salt, least=0, most=2**32 - 1)
    if not is_array(words) or words.dtype != np.uint32 or words.shape[-1:] != (2,):
        raise TypeError(
            f"bits_rows: words={words!r}, but they must be uint32 [N, 2], as key_words(keys) gives them."
        )
    number: Array = counter % 2**32 if isinstance(counter, int) else counter
    number = number if is_array(number) else np.asarray(number)
    if number.dtype.kind not in "iu":
        raise TypeError(f"bits_rows: counter={counter!r}, but it must be of integers.")
    number = number.astype(np.uint32)
    # The third word: keys use the first two, so that no salt can repeat what a key draws.
    return hash_words(words, number, _ROWS ^ np.uint32(salt))[2]


def uniform_rows(words: Array, counter: Array | int, salt: int = 0) -> Array:
    """Draws a uniform number per row: the upper 24 bits of `bits_rows`, as float32 `[N]` in [0, 1)."""
    upper = bits_rows(words, counter, salt) >> np.uint32(8)
    # By way of int32: before AVX-512 no instruction converts unsigned words.
    return upper.astype(np.int32).astype(np.float32) * np.float32(2**-24)
