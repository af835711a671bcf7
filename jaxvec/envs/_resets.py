"""Where the next episode's first state comes from: a fresh reset, the row's own first, or a pool."""

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxvec.typing import Array, Key, PyTree

ResetSource = Literal["fresh", "cached", "pool"]
RESET_SOURCES = ("fresh", "cached", "pool")

SHARES = 8
"""Into how many shares rows are counted when a pool is dealt: as many devices can do so by themselves."""


class Opening(NamedTuple):
    """What a reset gives, for as many rows as it was asked for."""

    env: PyTree  # the environments' states
    obs: PyTree
    info: PyTree


class ResetPool(NamedTuple):
    """K openings made once, and what deals them out."""

    openings: Opening  # [K, ...]
    key: Key  # of the deals
    deals: Array  # uint32 []: how many there were


def deal(pool: ResetPool, ended: Array) -> tuple[ResetPool, Opening]:
    """Deals an opening to every row that ended: at random, and no two the same while there are enough.

    The rows are counted in up to eight shares of neighbours, each of which begins at a place of its own
    in the shuffled pool: no two openings are the same while no share needs more than its part of them
    (in one share alone: while it needs no more than K). Counted all together, rows on several devices
    would have to talk in every step.

    Args:
      pool: the K openings.
      ended: bool `[N]`.

    Returns:
      The pool after it, and N openings, to be used where `ended` holds.
    """
    # An observation may be an empty Dict; a state may have leaves without an axis for the rows.
    leaf = jax.tree.leaves((pool.openings.obs, pool.openings.env))[0]
    size, num_rows = leaf.shape[0], ended.shape[0]
    shares = math.gcd(num_rows, SHARES)
    rank = jnp.cumsum(ended.reshape(shares, -1), axis=1, dtype=jnp.uint32) - 1
    if size * num_rows >= 2**32:
        rank = rank % size
    start, stride = _shuffle(jax.random.fold_in(pool.key, pool.deals), size)
    begin = np.arange(shares, dtype=np.uint32)[:, None] * size // shares
    place = (((start + stride * begin) % size + stride * rank) % size).reshape(num_rows)
    # A leaf without an axis for the rows stays as it is: `Rows.select` leaves such a one alone.
    openings = jax.tree.map(
        lambda leaf: leaf[place] if leaf.shape[:1] == (size,) else leaf, pool.openings
    )
    return pool._replace(deals=pool.deals + 1), openings


def _shuffle(key: Key, size: int) -> tuple[Array, Array]:
    """Returns start and stride of a random order of K places: `start + stride i` modulo K, uint32 `[]`.

    Of all orders only those with a fixed stride; a full permutation a step costs more than all else in
    a deal (of 2048 rows, K=64: 2 to 6 us beside 14; K=1024: 140).
    """
    strides = np.array([k for k in range(1, size + 1) if math.gcd(k, size) == 1], np.uint32)
    bits = jax.random.bits(key, (2,), jnp.uint32)
    return bits[0] % size, jnp.asarray(strides)[bits[1] % len(strides)]


def first_resets(
    source: ResetSource,
    pool_size: int,
    reset: Callable[[Key], Opening],
    keys: Key,
    opening: Opening,
) -> Opening | ResetPool | None:
    """Prepares the source at the first reset of all rows.

    Args:
      source: which one.
      pool_size: K.
      reset: makes one opening per key.
      keys: the rows' keys `[N]`, from the first of which the pool's own are drawn.
      opening: the rows' own openings.
    """
    if source == "cached":
        return opening
    if source == "fresh":
        return None
    pool_key, deal_key = jax.random.split(jax.random.fold_in(keys[0], 0x706F6F6C))
    return ResetPool(reset(jax.random.split(pool_key, pool_size)), deal_key, jnp.uint32(0))
