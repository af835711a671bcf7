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

from jaxvec.core._xp import is_numpy, namespace
from jaxvec.typing import Array, Key

# What a hash is for is hashed with it, so that a key's bits, its children and what is folded into it
# have nothing to do with each other. Digits of pi.
_SEED, _SPLIT, _FOLD, _BITS = map(np.uint32, (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344))
_ROWS, _SHRINK, _GROW = map(np.uint32, (0xA4093822, 0x299F31D0, 0x082EFA98))

_ZERO, _HALF = np.uint32(0), np.uint32(16)
_GOLDEN = np.uint32(0x9E3779B9)  # 2**32 / golden ratio: sequential counters fall far apart
_UNROLLED_CHILDREN = 8


def pcg4d(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    """Hashes four 32-bit words into four, one to one: the published hash, unchanged.

    Output bit k depends on the input bits up to `k + 16` only. Where all bits must be random it needs
    folding before and behind, as the keys of this module do it.

    Args:
      a: uint32 `[*S]`, NumPy or JAX; the four broadcast.
      b: uint32 `[*S]`.
      c: uint32 `[*S]`.
      d: uint32 `[*S]`.

    Returns:
      Four uint32 arrays `[*S]`.

    Raises:
      TypeError: if a word is not of dtype uint32: a wider one would be cut without a word.

    References:
      Jarzynski and Olano, Hash Functions for GPU Rendering, Journal of Computer Graphics Techniques
      9(3), 2020, `pcg4d`.
    """
    for name, word in zip("abcd", (a, b, c, d), strict=True):
        if isinstance(word, int | float) or word.dtype != np.uint32:
            raise TypeError(f"pcg4d: {name}={word!r} is not of dtype uint32. Convert it first.")
    with np.errstate(over="ignore"):  # NumPy scalars warn when they wrap, and here they should wrap
        multiplier, increment = np.uint32(1664525), np.uint32(1013904223)
        a, b, c, d = (word * multiplier + increment for word in (a, b, c, d))
        a, b, c, d = map(_fold_down, _stir(a, b, c, d))
        return _stir(a, b, c, d)


def _stir(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, Array, Array, Array]:
    a = a + b * d
    b = b + c * a
    c = c + a * b
    d = d + b * c
    return a, b, c, d


def _fold_down(word: Array) -> Array:
    return word ^ (word >> _HALF)


def _hash(words: Array, counter: Array, domain: Array) -> tuple[Array, Array, Array, Array]:
    """Hashes keys' words `[*S, 2]` with a counter (all uint32) into four words `[*S]`."""
    # Bare pcg4d(key, counter, domain) is not good enough. Flipping an input's bit 31 never changes
    # output bits 0 to 14; and where a key's words become 0 in its first product, as 0x25d60fe5 does,
    # all counters give one constant. Folding inputs and outputs mends the first, the counter added to
    # a key word the second: 2700 sets of chi-square tests over such keys pass, and the largest of
    # 49 k avalanche z-scores is 4.2 (bare: 90). A second round passes too, but is slower: 66 against
    # 94 M steps/s in a CartPole scan on one core (bare 100, threefry 23).
    with np.errstate(over="ignore"):
        first, second = _fold_down(words[..., 0]), _fold_down(words[..., 1])
        spread, folded = first + counter * _GOLDEN, _fold_down(counter + domain)
        a, b, c, d = map(_fold_down, pcg4d(spread, second, folded, second + domain))
        return a, b, c, d


def _new_words(words: Array, counter: Array, domain: Array) -> Array:
    hashed = _hash(words, counter, domain)[:2]
    return namespace(hashed[0]).stack(hashed, axis=-1)


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
    return _new_words(namespace(low).stack([low, high], axis=-1), _ZERO, _SEED)


@_jitted(1)
def _split(key: Array, shape: tuple[int, ...]) -> Array:
    num = math.prod(shape)
    if not isinstance(num, int) or not 0 < num <= _UNROLLED_CHILDREN:
        return _new_words(key, _counters(shape), _SPLIT)
    # One by one: XLA sees through their concatenation. What comes out of one stack it hashes anew for
    # every word that is read (115 against 96 M steps/s with four children a row).
    children = [_new_words(key, np.uint32(index), _SPLIT) for index in range(num)]
    return namespace(key).stack(children).reshape(*shape, 2)


@_jitted()
def _fold_in(key: Array, data: Array) -> Array:
    return _new_words(key, data.astype(np.uint32), _FOLD)


@_jitted(1, 2)
def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
    # One hash per element, though it has four words: that vectorizes. To interleave all four was slower
    # (69 against 94 M steps/s with 4 draws a row, 32 against 40 M normals/s in a batch of 2048 x 8).
    low, high, _, _ = _hash(key, _counters(shape), _BITS)
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
      num: number of rows N.
      impl: what `as_impl` takes; the key is converted first. None keeps a key's kind, and makes hash
        keys of a seed.

    Returns:
      Keys `[N]`; uint32 `[N, 2]` where they are raw.

    Raises:
      ValueError: if `key` is several keys.
    """
    import jax

    if np.ndim(key) == 0 and not _is_typed(key):
        key = hash_key(key)
    if np.ndim(key) != (0 if _is_typed(key) else 1):
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
    if seeds.dtype.kind not in "iu":
        raise TypeError(f"seeds: got {seeds!r}; they need to be integers below 2**64.")
    traced = not is_numpy(seeds) and isinstance(seeds, sys.modules["jax"].core.Tracer)
    if not traced and (seeds < 0).any():
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
    if _is_typed(keys) and keys.dtype == dtype:
        return keys
    words = jax.numpy.asarray(key_words(keys))
    if dtype.itemsize == 16:  # four words
        words = jax.numpy.stack(_hash(words, _ZERO, _GROW), axis=-1)
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
    if _is_typed(keys):
        import jax

        words = jax.random.key_data(keys)
    if not np.ndim(words) or words.dtype != np.uint32 or words.shape[-1] not in (2, 4):
        raise TypeError(
            f"key_words: got {keys!r}; it needs keys, typed or raw (uint32 [..., 2] or [..., 4]), "
            "such as keys_from(seed, num_envs)."
        )
    if words.shape[-1] == 2:
        return words
    first = _new_words(words[..., :2], _ZERO, _SHRINK)
    return _new_words(first ^ words[..., 2:], _ZERO, _SHRINK)


def _is_typed(keys: Any) -> bool:
    jax = sys.modules.get("jax")  # whoever has a typed key has loaded it
    if jax is None or not isinstance(keys, jax.Array):
        return False
    return bool(jax.numpy.issubdtype(keys.dtype, jax.dtypes.prng_key))


def bits_rows(words: Array, counter: Array | int, salt: int = 0) -> Array:
    """Draws 32 random bits per row, the same ones with NumPy and with JAX.

    Args:
      words: uint32 `[N, 2]` of `key_words` or `row_words_from_seeds`; they stay from draw to draw.
      counter: the number of the draw, integers `[N]` or one for all rows, modulo 2**32.
      salt: keeps users of the same words apart, `0 <= salt < 2**32`; static.

    Returns:
      uint32 `[N]`.

    Raises:
      ValueError: if the salt is out of range.
    """
    if not 0 <= salt < 2**32:
        raise ValueError(f"bits_rows: salt={salt} is out of range; it needs 0 <= salt < 2**32.")
    number = np.uint32(counter % 2**32) if isinstance(counter, int) else counter.astype(np.uint32)
    # The third word: keys use the first two, so that no salt can repeat what a key draws.
    return _hash(words, number, _ROWS ^ np.uint32(salt))[2]


def uniform_rows(words: Array, counter: Array | int, salt: int = 0) -> Array:
    """Draws a uniform number per row: the upper 24 bits of `bits_rows`, as float32 `[N]` in [0, 1)."""
    upper = bits_rows(words, counter, salt) >> np.uint32(8)
    # By way of int32: before AVX-512 no instruction converts unsigned words.
    return upper.astype(np.int32).astype(np.float32) * np.float32(2**-24)
