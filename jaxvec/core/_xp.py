"""NumPy or JAX? The only page that asks; and what both lack: row masks, observation trees, dtypes.

An observation is an array, or a dict or tuple of observations. Its tree is walked by plain recursion:
`jax.tree` costs 11 microseconds a call, which a host loop would pay several times a step.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.typing import Array, Obs

Namespace = Any
"""The module `numpy` or `jax.numpy`."""


def is_numpy(x: Array) -> bool:
    """Tells whether `x` is computed by NumPy: an array or scalar of its own, or a Python number."""
    return type(x) is np.ndarray or isinstance(x, np.ndarray | np.generic | int | float)


def is_array(x: object) -> bool:
    """Tells whether `x` is an array, of NumPy or JAX (tracers too): no number, no list."""
    if isinstance(x, np.ndarray):
        return True
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def namespace(x: Array) -> Namespace:
    """Returns the module whose functions compute on `x`: `numpy`, or `jax.numpy` (tracers too)."""
    return np if is_numpy(x) else sys.modules["jax"].numpy


def is_traced(x: object) -> bool:
    """Tells whether `x` has no value yet, because JAX is tracing."""
    jax = sys.modules.get("jax")  # whoever traces has loaded it
    return jax is not None and isinstance(x, jax.core.Tracer)


def is_key(x: Any) -> bool:
    """Tells whether `x` holds typed keys of JAX's, or is the shape and dtype of such."""
    jax = sys.modules.get("jax")  # whoever has a typed key has loaded it
    if jax is None or not isinstance(x, jax.Array | jax.ShapeDtypeStruct):
        return False
    return bool(jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key))


def backend_namespace(backend: str) -> Namespace:
    """Returns the module that makes the arrays of a `VecSpec.backend`.

    Raises:
      ValueError: if it is neither "numpy" nor "jax".
    """
    if backend == "numpy":
        return np
    if backend != "jax":
        raise ValueError(f"backend={backend!r} does not exist; choose 'numpy' or 'jax'.")
    import jax.numpy as jnp

    return jnp


def map_obs(function: Callable[..., Any], obs: Obs, *rest: Any) -> Any:
    """Applies `function` to every array of an observation, and to what stands there in `rest`.

    Args:
      function: takes one array, and one value from each tree of `rest`.
      obs: the observation that gives the structure.
      rest: trees with that structure at the least.

    Returns:
      A tree of the same structure. Dicts become plain dicts, in the order of `obs`.
    """
    if isinstance(obs, dict):
        return {key: map_obs(function, obs[key], *(tree[key] for tree in rest)) for key in obs}
    if isinstance(obs, tuple):
        return tuple(map_obs(function, *branches) for branches in zip(obs, *rest, strict=True))
    return function(obs, *rest)


def obs_leaves(obs: Obs, path: str = "") -> Iterator[tuple[str, Array]]:
    """Yields every array of an observation with its path, such as `["camera"][0]`."""
    if isinstance(obs, dict):
        for key, branch in obs.items():
            yield from obs_leaves(branch, f"{path}[{key!r}]")
    elif isinstance(obs, tuple):
        for index, branch in enumerate(obs):
            yield from obs_leaves(branch, f"{path}[{index}]")
    else:
        yield path, obs


def expand_mask(mask: Array, like: Array) -> Array:
    """Reshapes a mask `[N]` to `[N, 1, ...]`, as many axes as `like` has."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - 1))


def where_rows(mask: Array, chosen: Array, other: Array) -> Array:
    """Takes the rows of `chosen` where `mask` holds, else those of `other`.

    A `where`, never a product with `1 - mask`: what is not chosen may be infinite or NaN.

    Args:
      mask: bool `[N]`.
      chosen: `[N, ...]`, or anything that broadcasts to `other`.
      other: `[N, ...]`; its dtype is kept.
    """
    xp = namespace(other)
    return xp.where(expand_mask(mask, other), xp.asarray(chosen, dtype=other.dtype), other)


def take_rows(x: Array, rows: Array | None) -> Array:
    """Takes the rows that a sparse `final_obs` holds; all of them where it is dense (`rows` None)."""
    return x if rows is None else x[rows]


def dense_rows(obs: Obs, rows: Array | None, like: Array) -> Obs:
    """Spreads a sparse `final_obs` over all rows, zeros elsewhere; the inverse of `take_rows`.

    Args:
      obs: leaves `[F, *D]` of the rows `rows`, or `[N, *D]` where `rows` is None: returned as it is.
      rows: integers `[F]`, which rows they are.
      like: any array `[N]`.
    """

    def spread(x: Array) -> Array:
        dense = np.zeros((len(like), *x.shape[1:]), x.dtype)
        dense[rows] = x
        return dense

    return obs if rows is None else map_obs(spread, obs)


def all_rows(mask: Array) -> bool:
    """Tells whether a host mask holds everywhere. For a traced mask nobody can know: False."""
    return isinstance(mask, np.ndarray) and 0 not in mask.tobytes()  # a tenth of what `all` costs


def no_rows(mask: Array) -> bool:
    """Tells whether a host mask holds nowhere. For a traced mask nobody can know: False."""
    return isinstance(mask, np.ndarray) and 1 not in mask.tobytes()


def moment_dtype(backend: str) -> np.dtype[Any]:
    """Returns the dtype that statistics are kept in: float64, where JAX has it switched on too."""
    if backend == "numpy":
        return np.dtype(np.float64)
    import jax

    return np.dtype(jax.dtypes.canonicalize_dtype(np.float64))


def is_integer_or_bool(dtype: Any) -> bool:
    """Tells whether a dtype's numbers are whole: they must be cast before they are subtracted."""
    return np.dtype(dtype).kind in "biu"


def space_tree(space: Any) -> Any:
    """Returns a space as the tree that its observations form; the leaves are the plain spaces."""
    if isinstance(space, spaces.Dict):
        return {key: space_tree(each) for key, each in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(space_tree(each) for each in space.spaces)
    return space


def tree_space(tree: Any) -> Any:
    """Returns the space of a tree of plain spaces: the inverse of `space_tree`."""
    if isinstance(tree, dict):
        # Pairs keep their order, which `flatten` follows; a plain dict would be sorted.
        return spaces.Dict([(key, tree_space(branch)) for key, branch in tree.items()])
    if isinstance(tree, tuple):
        return spaces.Tuple([tree_space(branch) for branch in tree])
    return tree


def replace_rows(mask: Array, new: Array, old: Array) -> Array:
    """Returns `new` where `mask` holds, else `old`; `new` itself where a host mask holds everywhere."""
    return new if all_rows(mask) else where_rows(mask, new, old)


def canonical_dtype(dtype: Any, xp: Namespace) -> np.dtype[Any]:
    """Returns the dtype that arrays of a space's dtype have: JAX without x64 holds 32 bits at most."""
    held: np.dtype[Any] = np.dtype(dtype)
    if xp is not np:
        import jax

        held = np.dtype(jax.dtypes.canonicalize_dtype(held))
    return held
