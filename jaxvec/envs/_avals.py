"""Shapes and dtypes that stand still: what a step returns must be what it was given.

JAX compiles anew when a leaf's dtype or weak type differs between an environment's reset and its step
(a Python number in a state is enough), and `lax.scan` refuses it. This page finds what every leaf ends
up as, once, before anything runs, and casts to it at the environment's boundary.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxvec.core._xp import is_key, space_tree
from jaxvec.typing import PyTree


def common_avals(
    where: str, first: PyTree, second: PyTree, *, after: tuple[str, str] = ("reset", "step")
) -> PyTree:
    """Returns the dtype that each leaf has after both functions.

    A weak dtype gives way to a fixed one that holds its values (a Python 0 to float32), never to one
    that would cut them off.

    Args:
      where: how the message begins, such as "the state of CartPole".
      first: the tree of `jax.ShapeDtypeStruct` that the first function returns.
      second: the tree that the second returns.
      after: the names of the two functions.

    Returns:
      A tree of dtypes.

    Raises:
      ValueError: if the structures or shapes differ, or dtypes of which neither gives way; it names
        the leaf.
    """
    structure: Any
    other_structure: Any
    paths, structure = jax.tree_util.tree_flatten_with_path(first)
    others, other_structure = jax.tree_util.tree_flatten_with_path(second)
    if structure != other_structure:
        names, other_names = (
            {jax.tree_util.keystr(p) for p, _ in each} for each in (paths, others)
        )
        raise ValueError(
            f"{where} has another structure after {after[1]} than after {after[0]}: only after "
            f"{after[0]} {sorted(names - other_names)}, only after {after[1]} "
            f"{sorted(other_names - names)} ({structure} and {other_structure}). Both must return the "
            "same tree."
        )
    return jax.tree.unflatten(
        structure,
        [
            _common(f"{where}{jax.tree_util.keystr(path)}", leaf, other, after)
            for (path, leaf), (_, other) in zip(paths, others, strict=True)
        ],
    )


def _common(where: str, first: Any, second: Any, after: tuple[str, str]) -> Any:
    if first.shape != second.shape:
        raise ValueError(
            f"{where} has shape {first.shape} after {after[0]} and {second.shape} after {after[1]}; "
            "both must be the same."
        )
    if first.dtype == second.dtype or (second.weak_type and holds(first.dtype, second.dtype)):
        return first.dtype
    if first.weak_type and holds(second.dtype, first.dtype):
        return second.dtype
    raise ValueError(
        f"{where} is {first.dtype} after {after[0]} and {second.dtype} after {after[1]}: cast one of "
        "them."
    )


def holds(dtype: Any, given: Any) -> bool:
    """Tells whether values of a given dtype stay what they are in another: kinds only widen."""
    kinds: tuple[Any, ...] = (jnp.bool_, jnp.integer, jnp.floating, jnp.complexfloating)
    wide, narrow = (
        next((rank for rank, kind in enumerate(kinds) if jnp.issubdtype(each, kind)), -1)
        for each in (dtype, given)
    )
    return wide >= narrow


def strong(avals: PyTree, dtypes: PyTree) -> PyTree:
    """Returns the avals in the dtypes that their leaves have for good."""
    return jax.tree.map(lambda aval, dtype: jax.ShapeDtypeStruct(aval.shape, dtype), avals, dtypes)


def cast(tree: PyTree, dtypes: PyTree) -> PyTree:
    """Casts every leaf to its dtype and makes it strong; typed keys stay as they are."""

    def each(leaf: Any, dtype: Any) -> Any:
        leaf = jnp.asarray(leaf)
        return leaf if is_key(leaf) else leaf.astype(dtype)

    return jax.tree.map(each, tree, dtypes)


def observation_dtypes(where: str, space: spaces.Space[Any], obs: PyTree) -> PyTree:
    """Returns the dtypes that the observation space asks for, as JAX has them.

    Args:
      where: how the message begins, such as "reset of CartPole".
      space: the observation space of ONE environment.
      obs: the tree of `jax.ShapeDtypeStruct` of one observation.

    Raises:
      ValueError: if an observation has another structure or shape than its space, or a dtype that
        cannot be cast to the space's without changing values.
    """
    tree = space_tree(space)
    wanted: Any = jax.tree.structure(jax.tree.map(lambda _: 0, tree))
    found: Any = jax.tree.structure(obs)
    if wanted != found:
        raise ValueError(f"{where} returns an observation {found}, but its space is {space}.")

    def each(path: Any, leaf: Any, part: spaces.Space[Any]) -> Any:
        name = f"{where} returns an observation whose part {jax.tree_util.keystr(path) or 'whole'}"
        if part.shape is not None and tuple(leaf.shape) != tuple(part.shape):
            raise ValueError(f"{name} has shape {leaf.shape}; its space says {part}.")
        if part.dtype is None:
            return leaf.dtype
        dtype = jax.dtypes.canonicalize_dtype(part.dtype)
        weak = leaf.weak_type  # a Python number, whose width means nothing
        if not (holds(dtype, leaf.dtype) if weak else np.can_cast(leaf.dtype, dtype, "same_kind")):
            raise ValueError(
                f"{name} is {leaf.dtype}; its space says {part}, and a cast would change values. "
                "Cast it in the environment, or give the space that dtype."
            )
        return dtype

    return jax.tree_util.tree_map_with_path(each, obs, tree)


def check_returned(where: str, returned: Any, wanted: str) -> None:
    """Refuses what is not a tuple of as many values as `wanted` names.

    Raises:
      ValueError: if it is not.
    """
    count = wanted.count(",") + 1
    if not isinstance(returned, tuple) or len(returned) != count:
        found = f"{len(returned)} values" if isinstance(returned, tuple) else f"{returned!r}"
        raise ValueError(f"{where} returns {found}; it must return {wanted}.")


def check_single(where: str, value: Any) -> None:
    """Refuses a reward or flag that is not one real number.

    Raises:
      ValueError: if it is None or a tree, has several, or is complex.
    """
    if not isinstance(value, jax.ShapeDtypeStruct):
        raise ValueError(f"{where} as {value!r}; it must be one real number or bool.")
    if math.prod(value.shape) != 1 or not (
        jnp.issubdtype(value.dtype, jnp.bool_)
        or jnp.issubdtype(value.dtype, jnp.integer)
        or jnp.issubdtype(value.dtype, jnp.floating)
    ):
        raise ValueError(
            f"{where} as {value.dtype} of shape {value.shape}; it must be one real number or bool."
        )
