"""Writes by comparing beside the scatters that they replace: the same values, wherever an index points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs._scatter import MOST_ELEMENTS, written_by_comparing
from tests.envs.toys import counter

pytestmark = pytest.mark.usefixtures("quick_compilation")

BOARD = jnp.arange(4 * 5 * 3, dtype=jnp.float32).reshape(4, 5, 3)

WRITES = {
    "an element": lambda b, i: b.at[i, 1, 2].set(-1),
    "three indices of the data": lambda b, i: b.at[i, i + 1, -i].set(7.5),
    "a row": lambda b, i: b.at[i].set(jnp.full((5, 3), 9)),
    "a channel": lambda b, i: b.at[:, :, i].set(b[:, :, 0] * 2),
    "a line through the middle": lambda b, i: b.at[:, i].set(jnp.arange(12).reshape(4, 3)),
    "a broadcast number": lambda b, i: b.at[2, i].set(i),
    "dropped outside": lambda b, i: b.at[i, 0, 0].set(1, mode="drop"),
    "clipped outside": lambda b, i: b.at[i, 0, i].set(1, mode="clip"),
    "small indices": lambda b, i: b.at[i.astype(jnp.int8), 1].set(1),
    "without a sign": lambda b, i: b.at[i.astype(jnp.uint32), 1, 1].set(1),
    "one write after another": lambda b, i: b.at[i, 0, 0].set(1).at[0, i, 0].set(2),
    "in a function of its own": lambda b, i: jax.jit(lambda b: b.at[i, 0, 0].set(1) + i)(b),
    "bools": lambda b, i: (b > 7).at[i, i, 1].set(True),
    "selected": lambda b, i: jax.lax.select(i > 1, b.at[i, 0, 0].set(0), b),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_gives_what_the_scatter_gives_inside_and_outside_of_the_array(name):
    write = WRITES[name]
    indices = jnp.array([0, 1, 2, 3, 4, 5, 77, -1, -3, -4, -5, -9])

    def both(index):
        return write(BOARD, index), written_by_comparing(write, BOARD, index)

    wanted, found = jax.jit(jax.vmap(both))(indices)
    np.testing.assert_array_equal(found, wanted)
    assert found.dtype == wanted.dtype
    assert "scatter" in str(jax.make_jaxpr(write)(BOARD, indices[0]))
    assert "scatter" not in str(
        jax.make_jaxpr(lambda b, i: written_by_comparing(write, b, i))(BOARD, indices[0])
    )


@pytest.mark.parametrize(
    "write",
    [
        lambda b, i: b.at[i, 0, 0].add(1),
        lambda b, i: b.at[jnp.array([0, 2]), i].set(1),
        lambda b, i: b.at[1:3].set(1),
        lambda b, i: jnp.zeros(MOST_ELEMENTS + 1).at[i].set(1),
        lambda b, i: jax.random.key_data(jax.random.split(jax.random.key(0)).at[i].set(jax.random.key(3))),
        lambda b, i: jax.lax.fori_loop(0, 2, lambda k, b: b.at[i, k, 0].set(k), b),
    ],
)  # fmt: skip
def test_what_is_another_kind_of_write_stays_as_it_is(write):
    found = jax.jit(lambda b, i: written_by_comparing(write, b, i))
    np.testing.assert_array_equal(found(BOARD, 1), write(BOARD, 1))
    assert "scatter" in str(jax.make_jaxpr(found)(BOARD, 1))


def test_trees_gradients_and_what_is_no_array_go_through():
    def function(state, i):
        return {"board": state["board"].at[i, 0, 0].set(state["x"] ** 2), "flag": False, "n": 3}, ()

    state = {"board": BOARD, "x": jnp.float32(3)}
    assert jax.tree.structure(written_by_comparing(function, state, 1)) == jax.tree.structure(
        function(state, 1)
    )
    slope = jax.grad(
        lambda x: written_by_comparing(function, {**state, "x": x}, 1)[0]["board"].sum()
    )
    assert slope(3.0) == 6


def test_a_compiled_environment_has_no_scatter_where_it_writes_one_element():
    env = counter()

    def step(key, state, action, params):
        state, obs, *rest = env.step(key, state, action, params)
        return (state, obs.at[action % 1].set(5), *rest)

    batched = jaxvec.vectorize(env._replace(step=step), 3)
    state, _ = batched.reset(jaxvec.random.keys_from(jax.random.key(0), 3))
    traced = jax.make_jaxpr(batched.step)(state, jnp.zeros(3, int))
    found = "scatter" in str(traced)
    assert found == (jax.default_backend() != "cpu")
    final_obs = jax.jit(batched.step)(state, jnp.zeros(3, int))[1].final_obs
    assert final_obs[:, 0].tolist() == [5, 5, 5]
