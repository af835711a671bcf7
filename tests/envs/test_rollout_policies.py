"""What acts in a rollout: functions, policies with a state, the random policy; and what is refused."""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import Policy, random_policy, rollout, time_fraction, vectorize, wrap
from jaxvec.envs import begin
from jaxvec.random import hash_key
from tests.envs.toys import CounterParams, avals, counter, simple
from tests.modes import in_32_bits

pytestmark = pytest.mark.usefixtures("quick_compilation")

N = 4
KEY = hash_key(3)


def recurrent(start=0):
    """A policy that counts its steps within the episode, with a Python number in its state."""

    def init(key, spec):
        return {"age": jnp.full(spec.num_envs, start), "total": 0, "key": key}

    def act(state, key, obs, first):
        age = jnp.where(first, 0, state["age"]) + 1
        return {**state, "age": age, "total": state["total"] + 1}, jnp.where(age == 3, 2, 0)

    return Policy(init, act)


def test_a_policys_own_state_runs_along_and_is_told_where_episodes_open():
    env, policy = vectorize(counter(params=CounterParams(length=5)), N), recurrent(start=50)
    carry, (_, action, timestep) = rollout(env, policy, KEY, 8)
    np.testing.assert_array_equal(action[:, 0], [0, 0, 2, 0, 0, 2, 0, 0])
    np.testing.assert_array_equal(timestep.done[:, 0], action[:, 0] == 2)
    np.testing.assert_array_equal(carry.policy_state["age"], 2)
    assert carry.policy_state["total"] == 8
    before = avals(begin(env, policy, KEY))
    assert avals(carry) == before
    carry, (_, action, _) = rollout(env, policy, KEY, 2, start=carry)
    np.testing.assert_array_equal(action[:, 0], [2, 0])


def test_in_next_step_mode_first_comes_with_the_reset_and_valid_marks_what_is_no_transition():
    env = vectorize(counter(params=CounterParams(length=5)), N, autoreset_mode="NextStep")
    _, (_, action, timestep) = rollout(env, recurrent(), KEY, 8)
    np.testing.assert_array_equal(timestep.valid[:, 0], [1, 1, 1, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(timestep.first[:, 0], [0, 0, 0, 1, 0, 0, 0, 1])
    np.testing.assert_array_equal(action[timestep.valid[:, 0], 0], [0, 0, 2, 0, 0, 2])


@in_32_bits("a float32 is another type than the float64 of a Python number")
def test_weights_in_a_policys_state_may_change_between_chunks_and_compile_nothing():
    traces = []

    def act(weight, key, obs, first):
        traces.append(1)
        return weight, jnp.where(obs[:, 0] * weight > 2, 2, 0)

    env = vectorize(counter(params=CounterParams(length=99)), N)
    policy = Policy(lambda key, spec: 1.0, act)  # a Python number, as an untrained policy may have
    carry, (_, first, _) = rollout(env, policy, KEY, 4)
    carry = carry._replace(policy_state=jnp.float32(9.0))
    _, (_, second, _) = rollout(env, policy, KEY, 4, start=carry)
    np.testing.assert_array_equal(first[:, 0], [0, 0, 0, 2])
    np.testing.assert_array_equal(second[:, 0], [0, 2, 0, 2])
    assert len(traces) == 1


def test_a_policy_may_close_over_what_is_traced_and_nothing_of_it_is_kept():
    env = vectorize(counter(params=CounterParams(length=99)), N)
    start = begin(env, lambda key, obs: None, KEY)

    @partial(jax.jit, static_argnums=1)
    def run(scale, from_start):
        def policy(key, obs):
            return jnp.where(obs[:, 0] * scale > 2, 2, 0)

        begun = start if from_start else None
        return rollout(env, policy, KEY, 3, start=begun)[1][2].terminated[:, 0]

    with jax.checking_leaks():
        np.testing.assert_array_equal(run(1.5, False), [False, False, True])
        np.testing.assert_array_equal(run(9.0, False), [False, True, False])
        np.testing.assert_array_equal(run(1.5, True), [False, False, True])


SPACES = [
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([2, 3]),
    spaces.Box(np.float32([-1, 2]), np.float32([0, 5])),
    spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.MultiBinary(3)])),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_the_random_policy_draws_every_row_and_step_from_the_action_space(space):
    env = simple(lambda key: 0, lambda key, state: state, action_space=space)
    env = vectorize(env, N)
    _, (_, action, _) = rollout(env, random_policy(env), KEY, 20)
    rows = [
        jax.tree.map(lambda leaf, t=t, row=row: np.asarray(leaf[t, row])[()], action)
        for t in range(20)
        for row in range(N)
    ]
    assert all(space.contains(row) for row in rows)
    leaf = jax.tree.leaves(action)[0]
    assert len(np.unique(leaf[:, 0], axis=0)) > 1
    assert len(np.unique(leaf[0], axis=0)) > 1 or len(np.unique(leaf[1], axis=0)) > 1


def test_a_policy_that_holds_arrays_is_told_where_they_belong():
    @dataclass(frozen=True)
    class Linear:
        weights: jax.Array

        def __call__(self, key, obs):
            return (obs @ self.weights > 0).astype(int)

    env, policy = vectorize(counter(), N), Linear(jnp.ones(3))
    for call in (begin, lambda *arguments: rollout(*arguments, 3)):
        with pytest.raises(TypeError, match=r"policy is Linear, which cannot be hashed"):
            call(env, policy, KEY)
    rollout(env, policy.__call__, KEY, 3)  # as the message says


@pytest.mark.parametrize("policy", [None, "random", 3])
def test_what_cannot_act_is_refused(policy):
    env = vectorize(counter(), N)
    with pytest.raises(
        TypeError, match=rf"^rollout: policy is {policy!r}, .* \(key, obs\) -> action"
    ):
        rollout(env, policy, KEY, 3)
    with pytest.raises(TypeError, match=r"^begin: policy is .* jaxvec\.Policy"):
        begin(env, Policy(recurrent().init, policy), KEY)


@pytest.mark.parametrize(
    ("key", "came"),
    [
        (None, "None"),
        (0, "0"),
        (jax.random.split(jax.random.key(0), 3), r"an array of shape \(3,\) and dtype key"),
        (np.zeros(2), "an array of shape .* float64"),
    ],
    ids=["none", "a number", "three keys", "floats"],
)
def test_what_is_not_one_key_is_refused(key, came):
    env = vectorize(counter(), N)
    with pytest.raises(TypeError, match=rf"^rollout: key is {came}.*, but it must be one key"):
        rollout(env, random_policy(env), key, 3)


def test_a_start_that_is_no_carry_or_another_environments_is_refused():
    bare = vectorize(counter(), N)
    policy = random_policy(bare)
    start = begin(wrap(bare, time_fraction(5)), policy, KEY)
    for other in (start.env_state, (1, 2), 3):
        with pytest.raises(TypeError, match=r"rollout: start is of type .* must be a Carry"):
            rollout(bare, policy, None, 2, start=other)
    with pytest.raises(ValueError, match="rollout: start is a carry of another environment"):
        rollout(bare, policy, None, 2, start=start)


def test_raw_words_are_a_key_too():
    env = vectorize(counter(), N)
    words = jax.random.PRNGKey(3)
    _, (obs, _, _) = rollout(env, random_policy(env), words, 3)
    _, (same, _, _) = rollout(env, random_policy(env), np.asarray(words), 3)
    np.testing.assert_array_equal(obs, same)


def test_a_policy_with_actions_of_another_shape_is_refused():
    env = vectorize(counter(), N)
    with pytest.raises(ValueError, match=r"actions .* of shapes \[\(4, 1\)\] came"):
        rollout(env, lambda key, obs: jnp.zeros((N, 1), jnp.int32), KEY, 3)


def test_a_policy_whose_state_changes_its_type_is_told_so_by_name():
    def act(state, key, obs, first):
        return {"age": state["age"] + jnp.float32(0.5)}, jnp.zeros(N, jnp.int32)

    policy = Policy(lambda key, spec: {"age": jnp.zeros(N, jnp.int32)}, act)
    with pytest.raises(TypeError, match=r"policy_state\['age'\]"):
        rollout(vectorize(counter(), N), policy, KEY, 3)
