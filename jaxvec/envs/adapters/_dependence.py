"""Whether a traced function's result can depend on its argument, read off its jaxpr."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Var

from jaxvec.typing import PyTree


def depends(function: Callable[[Any], PyTree], argument: Any) -> bool:
    """Tells whether what a function returns can depend on its argument.

    It may say yes where the answer is no: an operation's results are taken to depend on all that it is
    given, and so are those of a loop. Functions under `jit` and the branches of a `cond` are looked into.

    Args:
      function: of one pytree of arrays; it is traced, not run.
      argument: an example.
    """
    jaxpr = jax.make_jaxpr(function)(argument).jaxpr
    return any(_reached(jaxpr, [True] * len(jaxpr.invars)))


def _reached(jaxpr: Any, given: Sequence[bool]) -> list[bool]:
    """Tells which results depend on one of the arguments that are `given`."""
    marked = {var for var, is_given in zip(jaxpr.invars, given, strict=True) if is_given}

    def is_marked(atom: Any) -> bool:
        return isinstance(atom, Var) and atom in marked

    for equation in jaxpr.eqns:
        read = [is_marked(atom) for atom in equation.invars]
        if any(read):
            found = _results(equation, read)
            marked |= {
                var for var, is_found in zip(equation.outvars, found, strict=True) if is_found
            }
    return [is_marked(atom) for atom in jaxpr.outvars]


def _results(equation: Any, read: list[bool]) -> list[bool]:
    name, params = equation.primitive.name, equation.params
    if name in ("jit", "pjit"):
        return _reached(params["jaxpr"].jaxpr, read)
    if name == "cond" and not read[0]:  # else which branch runs depends on it, and so does all
        branches = [_reached(branch.jaxpr, read[1:]) for branch in params["branches"]]
        return [any(each) for each in zip(*branches, strict=True)]
    return [True] * len(equation.outvars)
