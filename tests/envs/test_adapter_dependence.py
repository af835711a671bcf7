"""Whether a function's result depends on its argument: through operations, jit, cond and loops."""

import jax
import jax.numpy as jnp
import pytest

from jaxvec.envs.adapters._dependence import depends


def swap(x, y):
    return jax.jit(lambda x, y: (y, x + 1))(x, y)


def chosen(x, y):
    return jax.lax.cond(y > 0, lambda x, y: (x, y), lambda x, y: (x + 1, y * 2), x, y)


ONE = jnp.float32(1)
FUNCTIONS = {
    "an operation": (lambda x: x * 2, True),
    "the argument itself": (lambda x: x, True),
    "a constant": (lambda x: jnp.ones(3), False),
    "what was computed and dropped": (lambda x: [x * 2, jnp.ones(3)][1], False),
    "the result of jit that has it": (lambda x: swap(x, ONE)[1], True),
    "the result of jit that has it not": (lambda x: swap(x, ONE)[0], False),
    "the branch result that has it": (lambda x: chosen(x, ONE)[0], True),
    "the branch result that has it not": (lambda x: chosen(x, ONE)[1], False),
    "a choice by it": (lambda x: chosen(ONE, x)[0], True),
    "a loop": (lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y + 1, x), True),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_dependence_is_what_the_function_says(name):
    function, expected = FUNCTIONS[name]
    assert depends(function, ONE) is expected


def test_one_part_of_a_tree_is_enough():
    assert depends(lambda tree: tree["a"], {"a": ONE, "b": ONE})
