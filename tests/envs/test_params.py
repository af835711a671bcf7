"""Parameters in the state: per row or shared, set while it runs, kept through every reset."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxvec import random_policy, rollout, vectorize
from jaxvec.envs import begin, make
from jaxvec.envs._resets import RESET_SOURCES
from jaxvec.random import keys_from
from tests.envs.toys import CounterParams, avals, counter, play, simple
from tests.modes import in_32_bits

pytestmark = pytest.mark.usefixtures("quick_compilation")

LENGTHS = np.array([1, 2, 4])


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("source", ["fresh", "cached"])
def test_a_rows_own_parameters_survive_its_resets(source, mode):
    env = vectorize(
        counter(reward=lambda t: 1.0),
        3,
        params=CounterParams(length=LENGTHS, unit=np.array([5.0, 6.0, 7.0])),
        reset_source=source,
        autoreset_mode=mode,
    )
    opened, _, steps, state = play(env, 10)
    period = LENGTHS + (mode == "NextStep")
    for row, (length, unit) in enumerate(zip(LENGTHS, [5, 6, 7], strict=True)):
        ends = np.arange(length - 1, 10, period[row])
        np.testing.assert_array_equal(np.flatnonzero(steps.terminated[:, row]), ends)
        np.testing.assert_array_equal(steps.reward[steps.valid[:, row], row], unit)
    np.testing.assert_array_equal(state.params.length, LENGTHS)
    np.testing.assert_array_equal(opened.params.length, LENGTHS)


@pytest.mark.parametrize("source", RESET_SOURCES)
def test_shared_parameters_lie_in_the_state_for_all_rows_and_sources(source):
    params = CounterParams(length=2, unit=3.0)
    env = vectorize(counter(), 2, params=params, reset_source=source, pool_size=3)
    _, _, steps, state = play(env, 4)
    np.testing.assert_array_equal(steps.reward[:, 1], [3, 6, 3, 6])
    assert state.params.length.shape == ()


def test_some_parameters_may_differ_by_row_and_others_not():
    env = vectorize(counter(), 3, params=CounterParams(length=LENGTHS, unit=2.0))
    _, _, steps, state = play(env, 1)
    np.testing.assert_array_equal(steps.terminated[0], [True, False, False])
    np.testing.assert_array_equal(steps.reward[0], 2.0)
    assert (state.params.length.shape, state.params.unit.shape) == ((3,), ())


def test_a_parameter_of_several_numbers_may_be_shared_or_per_row():
    env = counter()._replace(params={"vector": np.zeros(3)})
    env = env._replace(
        reset=lambda key, params: (params["vector"], jnp.float32(params["vector"]), {}),
        step=lambda key, state, action, params: (state, jnp.zeros(3), 0.0, False, False, {}),
    )
    for vector in (np.arange(3.0), np.arange(6.0).reshape(2, 3)):
        batched = vectorize(env, 2, params={"vector": vector})
        state, first = jax.jit(batched.reset)(keys_from(0, 2))
        np.testing.assert_array_equal(first.obs, np.broadcast_to(vector, (2, 3)))
        assert state.params["vector"].shape == vector.shape


@cache
def counted():
    """Returns an environment with parameters in its state, a compiled step, and how often it was traced."""
    env, traces = vectorize(counter(), 2, params=CounterParams()), []

    @jax.jit
    def step(state, action):
        traces.append(1)
        return env.step(state, action)

    return env, step, traces


@pytest.mark.parametrize("length", [np.int32(1), jnp.int32(2), np.array(3)])
@in_32_bits("an int32 is another type than the int64 of the default")
def test_setting_parameters_between_steps_changes_the_next_step_and_compiles_nothing(length):
    # The defaults are Python numbers: left weak, every strong value would be another type.
    env, step, traces = counted()
    state, _ = jax.jit(env.reset)(keys_from(0, 2))
    state, _ = step(state, np.zeros(2, np.int32))
    params = state.params._replace(length=jnp.asarray(length), unit=jnp.float32(0.5))
    state, timestep = step(state._replace(params=params), np.zeros(2, np.int32))
    assert len(traces) == 1
    np.testing.assert_array_equal(timestep.terminated, length <= 2)
    np.testing.assert_array_equal(timestep.reward, 1.0)


@in_32_bits("with 64 parameters are of 64")
def test_whole_numbers_given_for_a_floating_parameter_leave_room_for_fractions():
    env = vectorize(counter(), 2, params=CounterParams(length=3, unit=np.array([1, 2])))
    state, _ = jax.jit(env.reset)(keys_from(0, 2))
    assert state.params.unit.dtype == jnp.float32
    assert state.params.length.dtype == jnp.int32
    assert not any(weak for *_, weak in avals(state.params))


def test_parameters_set_in_a_carry_count_in_the_next_chunk_and_compile_nothing():
    traces = []
    base = make("CartPole-v1")

    def step(*arguments):
        traces.append(1)
        return base.step(*arguments)

    env = vectorize(base._replace(step=step), 2, params=base.params)
    policy = random_policy(env)
    start = begin(env, policy, jax.random.key(0))
    carry, (same, *_) = rollout(env, policy, start.key, 5, start=start)
    before = len(traces)
    params = start.env_state.params.replace(length=jnp.float32(2.0))
    longer = start._replace(env_state=start.env_state._replace(params=params))
    _, (other, *_) = rollout(env, policy, start.key, 5, start=longer)
    assert len(traces) == before
    np.testing.assert_array_equal(same[0], other[0])
    assert (same[1:] != other[1:]).any()
    assert carry.env_state.params.length == 0.5


def test_compiled_in_parameters_reach_the_environment_as_the_python_values_they_are():
    seen = []

    def reset(key, params):
        seen.append(type(params["fast"]))
        return 0, jnp.zeros(1), {}

    def step(key, state, action, params):
        unit = 2.0 if params["fast"] else 1.0
        return state, jnp.zeros(1), unit, False, False, {}

    env = simple(lambda key: 0, lambda key, state: state)
    env = env._replace(reset=reset, step=step, params={"fast": True})
    batched = vectorize(env, 2)
    assert play(batched, 1).steps.reward.tolist() == [[2.0, 2.0]]
    assert set(seen) == {bool}
    assert play(batched, 1).state.params is None


def test_static_fields_of_parameters_stay_static():
    @struct.dataclass
    class Params:
        gain: Any = 1.0
        double: bool = struct.field(pytree_node=False, default=True)

    def step(key, state, action, params):
        reward = params.gain * 2 if params.double else params.gain
        return state, jnp.zeros(1), reward, False, False, {}

    env = simple(lambda key: 0, lambda key, state: state)._replace(step=step, params=Params())
    batched = vectorize(env, 2, params=Params(gain=np.array([1.0, 2.0])))
    np.testing.assert_array_equal(play(batched, 1).steps.reward[0], [2, 4])


REFUSED = [
    (
        CounterParams(length=np.zeros(4)),
        r"params\.length has shape \(4,\); it needs \(\) .* \(3,\)",
    ),
    (CounterParams(unit=np.zeros((3, 1))), r"params\.unit has shape \(3, 1\)"),
    ({"length": 3}, r"params have the structure .*'length'.*; this environment's are"),
    ((3, 1.0), "params have the structure"),
    (CounterParams(length="long"), r"params\.length is 'long'; it must be a number"),
    (CounterParams(unit=object()), r"params\.unit is <object .*>; it must be a number"),
]


@pytest.mark.parametrize(("params", "message"), REFUSED)
def test_parameters_that_fit_neither_all_rows_nor_each_are_refused_by_name(params, message):
    with pytest.raises(ValueError, match=message):
        vectorize(counter(), 3, params=params)


def test_a_pool_refuses_parameters_that_differ_by_row():
    with pytest.raises(ValueError, match="reset_source='pool' makes states before it knows"):
        vectorize(counter(), 3, params=CounterParams(length=LENGTHS), reset_source="pool")
