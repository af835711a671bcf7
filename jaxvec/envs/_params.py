"""Parameters that lie in the state: which of them differ by row, and dtypes that stand still."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxvec.core._xp import is_array
from jaxvec.typing import PyTree


def params_axes(default: PyTree, params: PyTree, num_envs: int) -> PyTree:
    """Returns 0 for every parameter that has one value per row, None for a shared one.

    Raises:
      ValueError: if a parameter is no number, or has neither its default's shape nor that with a
        leading N.
    """
    wanted: Any = jax.tree.structure(default)
    given: Any = jax.tree.structure(params)
    if wanted != given:
        raise ValueError(
            f"vectorize: params have the structure {given}; this environment's are {wanted}. Start "
            "from env.params and replace fields."
        )

    def each(path: Any, wanted: Any, given: Any) -> int | None:
        if not is_array(given) and np.asarray(given).dtype.kind not in "biufc":
            raise ValueError(
                f"vectorize: params{jax.tree_util.keystr(path)} is {given!r}; it must be a number."
            )
        shape, got = jnp.shape(wanted), np.shape(given)
        if got == shape:
            return None
        if got == (num_envs, *shape):
            return 0
        raise ValueError(
            f"vectorize: params{jax.tree_util.keystr(path)} has shape {got}; it needs {shape} for all "
            f"rows together, or {(num_envs, *shape)} for one value per row."
        )

    return jax.tree_util.tree_map_with_path(each, default, params)


def strong_params(default: PyTree, params: PyTree) -> PyTree:
    """Returns the parameters as arrays that compile nothing again when another value is set.

    No weak types: they would give way to the type of the next value. And floating where the default is,
    so that a whole number set first does not make a fraction another type.
    """
    return jax.tree.map(
        lambda wanted, given: jnp.asarray(given).astype(jnp.result_type(wanted, given)),
        default,
        params,
    )


def one_of_params(params: PyTree, axes: PyTree) -> PyTree:
    """Returns the parameters of row 0."""
    return jax.tree.map(
        lambda leaf, axis: leaf if axis is None else leaf[0],
        params,
        axes,
        is_leaf=lambda x: x is None,
    )
