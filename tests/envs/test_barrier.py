import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxvec.envs._barrier import computed_once


def twice(x, y):
    rows = jax.vmap(lambda a, b: (jnp.stack([a, b]),) * 2, out_axes=(0, 0))(x, y)
    return {"state": rows[0], "obs": rows[1], "sum": x + y}


def conditions(jaxpr):
    return [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "cond"]


@pytest.fixture(scope="module")
def columns():
    return jnp.arange(3.0), jnp.ones(3)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other backends need no barrier")
def test_an_array_returned_twice_leaves_the_condition_once(columns):
    traced = jax.make_jaxpr(lambda always, *a: computed_once(twice, always, *a))(True, *columns)
    (condition,) = conditions(traced.jaxpr)
    assert sorted(out.aval.shape for out in condition.outvars) == [(3,), (3, 2)]
    plain = jax.make_jaxpr(twice)(*columns)
    assert len(plain.jaxpr.outvars) == 3


def test_the_results_are_the_function_s_own(columns):
    got = jax.jit(lambda always, *a: computed_once(twice, always, *a))(True, *columns)
    for name, value in twice(*columns).items():
        np.testing.assert_array_equal(got[name], value)


def test_different_results_are_not_taken_for_one(columns):
    def function(x, y):
        return x + y, y + x, x + 1, x + 2, jnp.where(x > 1, x, y), jnp.where(x > 1, y, x)

    got = jax.jit(lambda always, *a: computed_once(function, always, *a))(True, *columns)
    for one, other in zip(got, function(*columns), strict=True):
        np.testing.assert_array_equal(one, other)


def test_outside_a_trace_there_is_no_condition(columns):
    got = computed_once(twice, jnp.bool_(True), *columns)
    np.testing.assert_array_equal(got["obs"], np.stack([*map(np.asarray, columns)], -1))


def test_keys_in_a_state_pass(columns):
    def function(x, y):
        return jax.random.split(jax.random.key(0), 3), x + y

    keys, total = jax.jit(lambda always, *a: computed_once(function, always, *a))(True, *columns)
    wanted = jax.random.key_data(jax.random.split(jax.random.key(0), 3))
    np.testing.assert_array_equal(jax.random.key_data(keys), wanted)
    np.testing.assert_array_equal(total, columns[0] + columns[1])
