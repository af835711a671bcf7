"""Computed once: a barrier that keeps XLA's CPU backend from computing the physics again and again."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Var, jaxpr_as_fun

from jaxvec.core._xp import is_traced
from jaxvec.typing import Array, PyTree


def computed_once(function: Callable[..., Any], always: Array, *args: PyTree) -> Any:
    """Returns `function(*args)`, each of its arrays computed by one kernel and kept.

    On a CPU, XLA computes cheap operations anew in every kernel that reads them, the whole physics in
    each of several; a condition it cannot foresee makes it keep the results (Acrobot 91 to 40 ns a step
    and row, Pendulum 50 to 9, with observations collected at N=16384). Arrays that the function returns
    twice (an observation that is the whole state) leave the condition once: XLA would compute both.

    Args:
      function: pure.
      always: bool `[]`, True, but not so that a compiler could tell.
      *args: trees of arrays.
    """
    # Outside of any trace the condition would be compiled anew for every single step.
    if jax.default_backend() != "cpu" or not is_traced(always):
        return function(*args)
    leaves, structure = jax.tree.flatten(args)
    closed, shape = jax.make_jaxpr(
        lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), return_shape=True
    )(*leaves)
    first_of: dict[Any, int] = {}
    sources = [first_of.setdefault(name, i) for i, name in enumerate(_names(closed.jaxpr))]
    distinct = sorted(set(sources))
    compute = jaxpr_as_fun(closed)

    def results(*leaves: Any) -> list[Array]:
        every = compute(*leaves)
        return [every[index] for index in distinct]

    def never(*_: Any) -> list[Array]:
        return [jnp.zeros(closed.out_avals[i].shape, closed.out_avals[i].dtype) for i in distinct]

    kept = jax.lax.cond(always, results, never, *leaves)
    place = dict(zip(distinct, kept, strict=True))
    return jax.tree.unflatten(jax.tree.structure(shape), [place[source] for source in sources])


def _names(jaxpr: Any) -> list[Any]:
    """Returns a name for each output; outputs of the same operations on the same inputs share one.

    vmap brings every output's rows to the front by an operation of its own, so that a value returned
    twice comes out as two.
    """
    same: dict[Any, Any] = {}
    first: dict[Any, Any] = {}
    for eqn in jaxpr.eqns:
        inputs = tuple(same.get(v, v) if isinstance(v, Var) else id(v) for v in eqn.invars)
        operation = (eqn.primitive, inputs, tuple(sorted(eqn.params.items())))
        try:
            twin = first.setdefault(operation, eqn)
        except TypeError:  # a parameter that cannot be compared: taken for unlike all others
            continue
        if not eqn.effects:
            same.update(zip(eqn.outvars, (same.get(v, v) for v in twin.outvars), strict=True))
    return [same.get(v, v) if isinstance(v, Var) else id(v) for v in jaxpr.outvars]
