"""N copies of one environment: types that stand still, rows that know nothing of each other, refusals."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from jax.interpreters import batching

from jaxvec import Env, vectorize
from jaxvec.envs import available, make
from jaxvec.random import keys_from
from tests.envs.toys import (
    CounterParams,
    assert_same,
    avals,
    counter,
    observing,
    play,
    simple,
)
from tests.modes import in_32_bits

pytestmark = pytest.mark.usefixtures("quick_compilation")

KEYS = keys_from(0, 2)
NO_ACTION = np.zeros(2, np.int32)


def weak():
    """Returns an environment as one writes it first: Python numbers everywhere."""
    return simple(
        lambda key: {"t": 0, "ret": 0, "nested": [0.0, False], "big": jnp.int32(0)},
        lambda key, state: {
            "t": state["t"] + 1,
            "ret": state["ret"] + 0.5,
            "nested": [state["ret"], state["t"] > 1],
            "big": state["big"] + 1,
        },
        observe=lambda state: jnp.stack([1.0 * state["t"]]),
        reward=lambda state: state["t"] == 2,
        terminated=lambda state: 1.0 * (state["t"] >= 3),
        info=lambda state: {"t": state["t"], "half": 0.5 * state["t"]},
    )


@in_32_bits("with 64 they become types of 64")
def test_python_numbers_become_strong_types_that_hold_every_value_they_take():
    _, first, steps, state = play(vectorize(weak(), 2), 2)
    np.testing.assert_array_equal(state.env["ret"], 1.0)  # an int32 would have stayed 0
    np.testing.assert_array_equal(state.env["nested"][0], 0.5)  # and so what follows from it
    assert state.env["ret"].dtype == state.env["nested"][0].dtype == np.float32
    assert state.env["t"].dtype == state.env["big"].dtype == np.int32
    assert state.env["nested"][1].dtype == bool
    np.testing.assert_array_equal(steps.info["half"][:, 0], [0.5, 1])
    assert first.info["half"].dtype == np.float32


@pytest.mark.parametrize("mode", [mode.value for mode in AutoresetMode])
def test_a_step_is_compiled_once_whatever_its_state_comes_from(mode):
    # A compiled reset, one that is not, a step, a reset of some rows: all give equal types.
    env, traces = vectorize(weak(), 2, autoreset_mode=mode), []

    @jax.jit
    def step(state, action):
        traces.append(1)
        return env.step(state, action)

    compiled, _ = jax.jit(env.reset)(KEYS)
    plain, first = env.reset(KEYS)
    stepped, timestep = step(compiled, NO_ACTION)
    partly, opened = env.reset_rows(stepped, np.array([True, False]))
    for state in (plain, stepped, partly):
        step(state, NO_ACTION)
    assert len(traces) == 1
    assert avals(compiled) == avals(plain) == avals(stepped) == avals(partly)
    assert avals(first) == avals(timestep) == avals(opened)
    assert not any(weak for *_, weak in avals((plain, first)))


def stepped(**parts):
    """Returns the first step's timestep of an environment of these parts."""
    env = vectorize(simple(lambda key: 0, lambda key, state: state, **parts), 2)
    return env.step(env.reset(KEYS)[0], NO_ACTION)[1]


@pytest.mark.parametrize(
    "reward", [True, 3, 1.5, jnp.bool_(True), jnp.int8(3), jnp.ones(1), jnp.float16(2)], ids=repr
)
def test_rewards_leave_as_float32_whatever_they_came_as(reward):
    found = stepped(reward=reward).reward
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.float32(reward).reshape(()).repeat(2))


@pytest.mark.parametrize(
    "flag", [True, 1, 1.0, jnp.float32(1), jnp.ones(1), jnp.uint8(1)], ids=repr
)
def test_flags_leave_as_bool_whatever_they_came_as(flag):
    timestep = stepped(terminated=lambda state: flag)
    for found in (timestep.terminated, timestep.truncated, timestep.done, timestep.first):
        assert (found.dtype, found.shape) == (bool, (2,))
    assert timestep.terminated.all()
    assert not stepped(terminated=lambda state: flag * 0).done.any()


U8 = spaces.Box(0, 255, (2,), np.uint8)
OBSERVED = [
    (U8, jnp.uint8([3, 4]), np.uint8),
    (spaces.Box(0, 1, (2,), np.float32), jnp.float16([0.5, 1]), np.float32),
    (spaces.Box(0, 1, (2,), np.float32), jnp.int32([0, 1]), np.float32),
    (spaces.Box(0, 1, (2,), np.float64), jnp.float32([0, 1]), np.float32),  # as JAX has it
    (spaces.Discrete(5), 3, np.int32),  # int64 in gymnasium
    (spaces.MultiBinary(2), jnp.array([True, False]), np.int8),
]


@pytest.mark.parametrize(("space", "obs", "dtype"), OBSERVED, ids=str)
@in_32_bits("with 64 JAX has the dtypes of all spaces")
def test_observations_leave_in_the_dtype_of_their_space(space, obs, dtype):
    env = vectorize(observing(space, obs), 2)
    state, first = env.reset(KEYS)
    _, timestep = env.step(state, NO_ACTION)
    for found in (first.obs, timestep.obs, timestep.final_obs):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.broadcast_to(obs, found.shape))


def test_observations_may_be_nested_dicts_and_tuples():
    space = spaces.Dict(a=spaces.Tuple([U8, spaces.Discrete(2)]), b=spaces.Box(-1, 1, ()))
    env = vectorize(observing(space, {"a": (jnp.uint8([3, 4]), 1), "b": 0.5}), 2)
    state, _ = env.reset(KEYS)
    _, timestep = env.step(state, NO_ACTION)
    assert timestep.obs["a"][0].shape == (2, 2)
    assert timestep.obs["b"].dtype == np.float32
    np.testing.assert_array_equal(timestep.obs["a"][1], [1, 1])


def test_the_spec_says_what_was_made():
    env, options = counter(), {"autoreset_mode": AutoresetMode.NEXT_STEP}
    batched = vectorize(env, np.int64(5), **options)
    assert batched.spec.num_envs == 5
    assert batched.spec.backend == "jax"
    assert batched.spec.autoreset_mode is AutoresetMode.NEXT_STEP
    assert batched.spec.observation_space is env.observation_space
    assert batched.env is env


class Vmappable:
    """A part of a simulator that batches by a rule of its own: `table` gets no axis for the rows."""

    def __init__(self, t: Any, table: Any) -> None:
        self.t, self.table = t, table


jax.tree_util.register_pytree_node(
    Vmappable, lambda data: ((data.t, data.table), None), lambda _, parts: Vmappable(*parts)
)
batching.register_vmappable(
    Vmappable,
    int,
    int,
    lambda cont, get_idx, data, axis: Vmappable(cont(data.t, axis), data.table),
    lambda cont, size, data, axis: Vmappable(cont(size, data.t, axis), data.table),
    None,
)


@pytest.mark.skipif(
    jax.__version_info__ < (0, 10), reason="older JAX looks for rows in every leaf of such a part"
)
@pytest.mark.parametrize("source", ["fresh", "cached", "pool"])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_a_leaf_that_has_no_axis_for_the_rows_stays_as_it_is(mode, source):
    env = simple(
        lambda key: Vmappable(jnp.int32(0), jnp.float32([5, 6, 7])),
        lambda key, data: Vmappable(data.t + 1, data.table),
        observe=lambda data: data.table[data.t][None],
        terminated=lambda data: data.t == 2,
    )
    env = vectorize(env, 2, autoreset_mode=mode, reset_source=source, pool_size=3, action_repeat=2)
    _, first, steps, state = play(env, 3)
    np.testing.assert_array_equal(first.obs, 5)
    np.testing.assert_array_equal(steps.final_obs[0], 7)
    np.testing.assert_array_equal(state.env.table, [5, 6, 7])
    assert state.env.t.shape == (2,)


@cache
def trace(num_envs):
    """Returns 12 steps of an environment that ends at random, by actions that depend on the row alone."""
    actions = np.random.default_rng(3).integers(0, 4, (12, 64))[:, :num_envs]
    return play(vectorize(counter(), num_envs), 12, seed=9, actions=actions)


@pytest.mark.parametrize("num_envs", [1, 2, 7])
def test_a_row_does_the_same_to_the_last_bit_however_many_there_are(num_envs):
    few, many = trace(num_envs), trace(64)
    assert_same(few.first, jax.tree.map(lambda leaf: leaf[:num_envs], many.first))
    assert_same(few.steps, jax.tree.map(lambda leaf: leaf[:, :num_envs], many.steps))


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar-v1"])
def test_a_row_of_a_real_environment_does_the_same_however_many_there_are(name):
    assert name in available()
    actions = np.random.default_rng(3).integers(0, 2, (8, 16))
    few, many = (
        play(vectorize(make(name), num), 8, seed=4, actions=actions[:, :num]) for num in (3, 16)
    )
    np.testing.assert_allclose(few.steps.obs, many.steps.obs[:, :3], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(few.steps.done, many.steps.done[:, :3])


def test_rows_draw_apart_and_other_keys_draw_other_things():
    first = trace(64).first.obs[:, 1]
    assert len(set(first)) == 64
    other = play(vectorize(counter(), 64), 1, seed=10).first.obs[:, 1]
    assert not set(first) & set(other)


def test_an_environment_runs_outside_of_any_compilation_as_it_does_within():
    env = vectorize(counter(params=CounterParams(length=2)), 2)
    _, first, steps, _ = play(env, 3)
    state, opened = env.reset(KEYS)
    assert_same(jax.tree.map(np.asarray, opened), first)
    for t in range(3):
        state, timestep = env.step(state, NO_ACTION)
        assert_same(
            jax.tree.map(np.asarray, timestep), jax.tree.map(lambda leaf, t=t: leaf[t], steps)
        )


def test_a_reset_may_be_a_partial_or_compiled_function():
    def reset(key, scale, params):
        return 0, jnp.float32([scale]), {}

    env = simple(lambda key: 0, lambda key, state: state)
    for function in (partial(reset, scale=3), jax.jit(partial(reset, scale=3))):
        made: Env[Any, Any] = env._replace(
            reset=lambda key, params, f=function: f(key, params=params)
        )
        assert vectorize(made, 2).reset(KEYS)[1].obs[0] == 3
