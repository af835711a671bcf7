"""What goes into a `JaxVecEnv` and comes out of it: options, info columns, the caller's kind of array."""

from importlib import import_module
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxvec.core._xp import expand_mask
from jaxvec.envs import BatchedEnv
from jaxvec.errors import MissingExtraError
from jaxvec.typing import Array, PyTree
from jaxvec.vec._call import Hand

Output = Literal["numpy", "jax", "torch"]


def check_info_keys(env: BatchedEnv, info_keys: tuple[str, ...]) -> None:
    """Refuses an info column that the environment does not have.

    Raises:
      KeyError: then, with those that it has.
    """
    words = jax.ShapeDtypeStruct((env.spec.num_envs, 2), np.uint32)
    info = jax.eval_shape(env.reset, words)[1].info
    for key in info_keys:
        if key not in info:
            raise KeyError(
                f"JaxVecEnv: info_keys has {key!r}, but the environment's info has {list(info)}."
            )


def hand_of(output: Output) -> Hand | None:
    """Returns what makes an array on the device what the caller gets; None for NumPy's."""
    if output == "numpy":
        return None
    if output == "jax":
        return lambda array: array
    try:
        torch: Any = import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            "JaxVecEnv: output='torch' needs PyTorch, which is not installed: install torch."
        ) from error
    from_dlpack: Hand = torch.from_dlpack
    return from_dlpack


def option_arrays(options: dict[str, Any]) -> PyTree:
    """Returns options as a compiled reset takes them; None where there are none.

    Raises:
      TypeError: if one is no number and no array of numbers.
    """
    if not options:
        return None
    arrays = jax.tree.map(np.asarray, options)
    for path, leaf in jax.tree_util.tree_leaves_with_path(arrays):
        if leaf.dtype.kind not in "biuf":
            raise TypeError(
                f"set_options: the option {jax.tree_util.keystr(path)} is {leaf!r}; a compiled reset takes "
                "numbers and arrays of numbers only."
            )
    return jax.tree.map(lambda leaf: leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype)), arrays)


def same_tree(one: PyTree, other: PyTree) -> bool:
    """Tells whether two trees hold equal numbers in the same places."""
    structure: Any = jax.tree.structure(one)
    if structure != jax.tree.structure(other):
        return False
    return all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


def merged_rows(mask: Array, new: Array, old: Array) -> Array:
    """Returns `new` in the rows where the mask holds, else `old`; NumPy for NumPy."""
    if isinstance(new, np.ndarray):
        return np.where(expand_mask(mask, new), new, old)
    if isinstance(new, jax.Array):
        return jnp.where(expand_mask(jnp.asarray(mask), new), new, old)
    merged = new.clone()  # torch's
    merged[~mask] = old[~mask]
    return merged
