"""Elements are written by comparing places: XLA's scatter is not fused with the reset that follows."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn, Literal, jaxpr_as_fun
from jax.lax import GatherScatterMode

from jaxvec.core._xp import is_traced
from jaxvec.typing import Array, PyTree

MOST_ELEMENTS = 4096
"""Up to which size an array is written whole (measured up to here)."""


def caller(array: Array) -> Callable[..., Any]:
    """Returns how an environment's function is called: `call(function, *args)`.

    Args:
      array: one of the program in which it is called.
    """
    if jax.default_backend() == "cpu" and is_traced(array):
        return written_by_comparing
    # Outside of any trace its operations would run one by one.
    return lambda function, *args: function(*args)


def written_by_comparing(function: Callable[..., Any], *args: PyTree) -> Any:
    """Returns `function(*args)`, in which writes such as `board.at[y, x].set(1)` are each a `where`.

    N environments that write to places of their own are one scatter, which XLA's CPU backend runs row after
    row, and copies the board before, as `vectorize` still selects between what was there and a reset: with
    boards of 100, 1024 and 4096 float32 that costs 62, 501 and 2431 ns a row, as a `where`, which is fused
    with the selection, 11, 30 and 54 (alone, where nothing is selected: 16, 22 and 57 against 16, 70 and
    107). The values are the same.

    Args:
      function: of one environment, before vmap; pure.
      *args: trees of arrays.
    """
    leaves, structure = jax.tree.flatten(args)
    closed, shape = jax.make_jaxpr(
        lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), return_shape=True
    )(*leaves)
    return jax.tree.unflatten(jax.tree.structure(shape), _evaluated(closed, leaves))


def _evaluated(closed: Any, arguments: list[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    if not _has_writes(jaxpr):
        return list(jaxpr_as_fun(closed)(*arguments))
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(name: Any) -> Any:
        return name.val if isinstance(name, Literal) else values[name]

    for eqn in jaxpr.eqns:
        if _is_write(eqn):
            outputs = [_written(eqn, *[read(name) for name in eqn.invars])]
        elif eqn.primitive.name in _CALLS:
            outputs = _evaluated(eqn.params["jaxpr"], [read(name) for name in eqn.invars])
        else:
            names = [name for name in eqn.invars if not isinstance(name, Literal)]
            alone = jaxpr.replace(constvars=[], invars=names, outvars=eqn.outvars, eqns=[eqn])
            outputs = jaxpr_as_fun(type(closed)(alone, []))(*[values[name] for name in names])
        values |= dict(zip(eqn.outvars, outputs, strict=True))
    return [read(name) for name in jaxpr.outvars]


_CALLS = ("jit", "pjit")  # one function, under its newer and its older name


def _has_writes(jaxpr: Any) -> bool:
    return any(
        _is_write(eqn) or (eqn.primitive.name in _CALLS and _has_writes(eqn.params["jaxpr"].jaxpr))
        for eqn in jaxpr.eqns
    )


def _is_write(eqn: JaxprEqn) -> bool:
    """Tells whether an operation sets one place of a small array: an element, a row, a whole channel."""
    if eqn.primitive.name != "scatter":
        return False
    avals: Any = [name.aval for name in eqn.invars]
    operand, indices, updates = avals
    numbers = eqn.params["dimension_numbers"]
    if (
        operand.size > MOST_ELEMENTS
        or indices.ndim != 1
        or numbers.operand_batching_dims
        or len(numbers.update_window_dims) != updates.ndim
        or jnp.issubdtype(operand.dtype, jax.dtypes.extended)
    ):
        return False
    indexed = numbers.scatter_dims_to_operand_dims
    wanted = (1 if axis in indexed else size for axis, size in enumerate(operand.shape))
    return _window(operand, updates, numbers) == tuple(wanted)


def _window(operand: Any, updates: Any, numbers: Any) -> tuple[int, ...]:
    """Returns the shape of what is written, with all axes of the operand."""
    widths = iter(updates.shape)
    axes = range(operand.ndim)
    return tuple(1 if axis in numbers.inserted_window_dims else next(widths) for axis in axes)


def _written(eqn: JaxprEqn, operand: Array, indices: Array, updates: Array) -> Array:
    numbers = eqn.params["dimension_numbers"]
    indices = jnp.asarray(indices)
    if indices.dtype.itemsize < 4:  # an axis may be longer than such a number says
        indices = indices.astype(jnp.int32)
    operand, updates = jnp.asarray(operand), jnp.asarray(updates, operand.dtype)
    here: Array = True
    for index, axis in zip(indices, numbers.scatter_dims_to_operand_dims, strict=True):
        if eqn.params["mode"] == GatherScatterMode.CLIP:
            index = jnp.clip(index, 0, operand.shape[axis] - 1)
        # An index that lies outside is equal to none: nothing is written, as a scatter does it.
        here &= jax.lax.broadcasted_iota(indices.dtype, operand.shape, axis) == index
    return jnp.where(here, updates.reshape(_window(operand, updates, numbers)), operand)
