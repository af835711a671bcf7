"""What the laws of environments and of layers share: arguments, leaves in NumPy, a quick compilation."""

from typing import Any

import jax
import numpy as np

from jaxvec.core._arguments import check_count, check_flag
from jaxvec.core._xp import is_key, map_obs
from jaxvec.typing import Obs, PyTree

QUICK: Any = {"xla_backend_optimization_level": 0}
"""Options of the compiler: a few steps are run, so that compiling takes longer than they do."""


def check_trial(
    where: str, num_envs: int, num_steps: int, seed: int, raise_on_failure: bool, least_envs: int
) -> None:
    """Refuses arguments of a check that cannot be: what is checked is not to blame for them.

    Raises:
      ValueError: if one cannot be; the message names it.
    """
    check_count(where, "num_envs", num_envs, least=least_envs)
    check_count(where, "num_steps", num_steps)
    check_count(where, "seed", seed, least=0, most=2**62)
    check_flag(where, "raise_on_failure", raise_on_failure)


def to_numpy(tree: PyTree) -> Any:
    """Returns the tree with every leaf in NumPy; a typed key becomes its words, uint32 `[..., 2]`."""

    def each(leaf: Any) -> Any:
        return np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)

    return jax.tree.map(each, tree)


def row_of(obs: Obs, row: int) -> Any:
    """Returns the observation of one row as its space knows it: arrays, and scalars without axes."""

    def each(leaf: Any) -> Any:
        return leaf[row] if leaf.ndim > 1 else leaf[row][()]

    return map_obs(each, obs)


def same(left: Any, right: Any) -> bool:
    """Tells whether two leaves are equal; NaN equals NaN."""
    left, right = to_numpy((left, right))
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))
