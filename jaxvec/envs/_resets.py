"""Where the next episode's first state comes from: a fresh reset, the row's own first, or a pool."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxvec.typing import Array, Key, PyTree

ResetSource = Literal["fresh", "cached", "pool"]
RESET_SOURCES = ("fresh", "cached", "pool")


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

    Args:
      pool: the K openings.
      ended: bool `[N]`.

    Returns:
      The pool after it, and N openings, to be used where `ended` holds.
    """
    size = jax.tree.leaves(pool.openings.obs)[0].shape[0]
    shift = jax.random.randint(jax.random.fold_in(pool.key, pool.deals), (), 0, size)
    # Neighbours in rank get neighbours in the pool: distinct while no more than K end at once.
    place = (shift + jnp.cumsum(ended) - 1) % size
    # A leaf without an axis for the rows stays as it is: `Rows.select` leaves such a one alone.
    openings = jax.tree.map(
        lambda leaf: leaf[place] if leaf.shape[:1] == (size,) else leaf, pool.openings
    )
    return pool._replace(deals=pool.deals + 1), openings


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
