"""What the layers that map observations share: lifting a function to a Transform, keys, one-hot codes.

Only `init` and `spec` see the spaces; `reset` and `update` see arrays. What they must know of the spaces
lies in the state: as arrays, or as marks without an array, which belong to the structure of the state.
"""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import (
    Namespace,
    canonical_dtype,
    is_integer_or_bool,
    map_obs,
    namespace,
    space_tree,
    tree_space,
)
from jaxvec.typing import Array, Key, Obs, PyTree

Space = spaces.Space[Any]

CHOSEN = ()
"""Marks a leaf to work on, as None marks one to leave alone. Neither holds an array: JAX counts both to
the structure of the state, which is known while it traces."""


def observation_layer(
    plan: Callable[[VecSpec], PyTree],
    apply: Callable[[Obs, PyTree], Obs],
    space: Callable[[VecSpec], Space],
) -> Transform:
    """Returns the transform that maps observations, and whose state is what it knows of the spaces.

    Args:
      plan: makes the state.
      apply: maps the observations of any number of rows.
      space: makes the new observation space; it raises where `plan` would.
    """

    def init(spec: VecSpec, keys: Key | None = None) -> PyTree:
        del keys
        space(spec)
        return plan(spec)

    def update(state: PyTree, timestep: Timestep) -> tuple[PyTree, Timestep]:
        final = timestep.final_obs
        if final is not None:
            final = apply(final, state)
        return state, timestep._replace(obs=apply(timestep.obs, state), final_obs=final)

    def reset(
        state: PyTree, timestep: Timestep, mask: Array | None = None
    ) -> tuple[PyTree, Timestep]:
        del mask
        return update(state, timestep)

    def spec(spec: VecSpec) -> VecSpec:
        return spec._replace(observation_space=space(spec))

    return Transform(init, reset, update, spec=spec)


def leaf_layer(
    leaves: Callable[[VecSpec], PyTree], function: Callable[[Array], Array]
) -> Transform:
    """Returns the transform that maps some leaves of an observation by themselves.

    Args:
      leaves: makes the tree of the leaves' new spaces, None where a leaf stays as it is.
      function: maps such a leaf, `[B, ...]`.
    """

    def plan(spec: VecSpec) -> PyTree:
        return map_obs(lambda leaf: None if leaf is None else CHOSEN, leaves(spec))

    def apply(obs: Obs, plan: PyTree) -> Obs:
        return map_obs(lambda x, mark: x if mark is None else function(x), obs, plan)

    def space(spec: VecSpec) -> Space:
        tree = map_obs(_or_old, space_tree(spec.observation_space), leaves(spec))
        new: Space = tree_space(tree)
        return new

    return observation_layer(plan, apply, space)


def _or_old(old: Space, new: Space | None) -> Space:
    return old if new is None else new


def check_keys(where: str, keys: Sequence[Any] | None) -> None:
    """Refuses what does not list keys: one string would count as its letters.

    Raises:
      ValueError: if `keys` is neither None nor a collection such as a list.
    """
    if keys is not None and (isinstance(keys, str) or not isinstance(keys, Collection)):
        raise ValueError(
            f"{where}: keys={keys!r}, but it must be a list of keys, such as [{keys!r}], or None."
        )


def named_branches(tree: PyTree, keys: Sequence[Any], where: str) -> dict[Any, PyTree]:
    """Returns the branches of a tree by key or index, after a look that `keys` are among them."""
    if not isinstance(tree, dict | tuple):
        raise ValueError(
            f"{where}: keys={list(keys)!r} are given, but the observation space {tree} has no keys: "
            "leave them out."
        )
    branches = tree if isinstance(tree, dict) else dict(enumerate(tree))
    missing = [key for key in keys if key not in branches]
    if missing:
        raise ValueError(
            f"{where}: the observation has no {missing!r}; choose among {list(branches)!r}."
        )
    return branches


def only_named(tree: PyTree, keys: Sequence[Any], where: str) -> PyTree:
    """Returns the tree with None for the branches that are not named."""
    branches = {
        key: branch if key in keys else map_obs(lambda leaf: None, branch)
        for key, branch in named_branches(tree, keys, where).items()
    }
    return branches if isinstance(tree, dict) else tuple(branches.values())


def categories(space: Space, xp: Namespace) -> tuple[Array, ...] | None:
    """Returns the values of every number of a Discrete or MultiDiscrete space; None for others."""
    if isinstance(space, spaces.Discrete):
        starts, sizes = [space.start], [space.n]
    elif isinstance(space, spaces.MultiDiscrete):
        starts, sizes = space.start.ravel().tolist(), space.nvec.ravel().tolist()
    else:
        return None
    dtype = canonical_dtype(space.dtype, xp)
    return tuple(
        xp.asarray(np.arange(start, start + size), dtype=dtype)
        for start, size in zip(starts, sizes, strict=True)
    )


def encode_one_hot(x: Array, values: tuple[Array, ...], dtype: Any) -> Array:
    """Returns where each number of `x` (`[B, ...]`, M numbers a row) has each of its values: `[B, K]`."""
    numbers = x.reshape(x.shape[0], len(values))
    hits = [numbers[:, i : i + 1] == column for i, column in enumerate(values)]
    return namespace(hits[0]).concatenate(hits, 1).astype(dtype)


def flat_rows(x: Array) -> Array:
    """Returns `[B, ...]` as `[B, D]`; B may be 0."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:]))


def box_bounds(box: spaces.Box, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Returns the bounds of a Box in another dtype: none where it has none, or the dtype ends before."""
    if dtype == box.dtype:
        return box.low, box.high
    if is_integer_or_bool(dtype):
        limits = np.iinfo(dtype)
        low, high = (np.clip(x, limits.min, limits.max) for x in (box.low, box.high))
        return low.astype(dtype), high.astype(dtype)
    # A Box of whole numbers holds its dtype's ends where it has no bounds.
    low, high = (
        np.where(box.bounded_below, box.low, -np.inf),
        np.where(box.bounded_above, box.high, np.inf),
    )
    with np.errstate(over="ignore"):
        return low.astype(dtype), high.astype(dtype)
