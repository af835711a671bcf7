"""Whether a traced function's result can depend on its argument, read off its jaxpr."""

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Var

from jaxvec.typing import PyTree


def depends(function: Callable[[Any], PyTree], argument: Any) -> bool:
    """Tells whether what a function returns can depend on its argument.

    It may say yes where the answer is no: an operation's results are taken to depend on all that it is
    given, and so is everything that a nested function returns.

    Args:
      function: of one pytree of arrays; it is traced, not run.
      argument: an example.
    """
    jaxpr = jax.make_jaxpr(function)(argument).jaxpr
    reached = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(isinstance(atom, Var) and atom in reached for atom in equation.invars):
            reached |= set(equation.outvars)
    return any(isinstance(atom, Var) and atom in reached for atom in jaxpr.outvars)
