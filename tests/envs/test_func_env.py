"""Gymnasium's functional environments, adapted: against their own functions, from equal states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.phys2d.cartpole import CartPoleFunctional
from gymnasium.envs.phys2d.pendulum import PendulumFunctional
from gymnasium.envs.tabular.blackjack import BlackjackFunctional
from gymnasium.envs.tabular.cliffwalking import CliffWalkingFunctional
from gymnasium.experimental.functional import FuncEnv

import jaxvec
from jaxvec.envs import from_gymnasium_func
from jaxvec.random import keys_from
from tests.modes import in_32_bits

pytestmark = pytest.mark.usefixtures("quick_compilation")

N = 500


def cart_pole_states(random):
    """Returns states all over the track, a part of them around each threshold."""
    states = random.uniform(-1, 1, (N, 4)) * [2.3, 3.0, 0.2, 3.0]
    states[:100, 0] = random.choice([-2.4, 2.4], 100) + random.normal(0, 0.02, 100)
    states[100:200, 2] = random.choice([-0.2095, 0.2095], 100) + random.normal(0, 0.01, 100)
    return states


CASES = [
    (CartPoleFunctional, cart_pole_states, lambda random: random.integers(0, 2, N)),
    (
        PendulumFunctional,
        lambda random: random.uniform(-1, 1, (N, 2)) * [7.0, 8.0],
        lambda random: random.uniform(-2, 2, (N, 1)).astype(np.float32),
    ),
]


@pytest.mark.parametrize(("kind", "states", "actions"), CASES, ids=["CartPole", "Pendulum"])
@in_32_bits("gymnasium's CartPoleFunctional mixes 32 and 64")
def test_a_step_is_what_the_functions_themselves_give_from_equal_states(kind, states, actions):
    random = np.random.default_rng(0)
    states, actions = jnp.asarray(states(random), jnp.float32), jnp.asarray(actions(random))
    func_env = kind()
    env = jaxvec.vectorize(from_gymnasium_func(func_env), N)

    state, _ = jax.jit(env.reset)(keys_from(jax.random.key(0), N))
    _, timestep = jax.jit(env.step)(state._replace(env=states), actions)

    params = func_env.default_params
    key = jax.random.key(1)  # neither environment draws in a step
    after = jax.vmap(lambda s, a: func_env.transition(s, a, key, params))(states, actions)
    rewards = jax.vmap(lambda s, a, n: func_env.reward(s, a, n, key, params))
    observations = jax.vmap(lambda s: func_env.observation(s, key, params))(after)
    # Compiled and uncompiled float32 differ by rounding.
    np.testing.assert_allclose(timestep.final_obs, observations, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(timestep.reward, rewards(states, actions, after), rtol=1e-6)
    ended = [bool(func_env.terminal(one, key, params)) for one in after]
    np.testing.assert_array_equal(timestep.terminated, ended)
    assert not timestep.truncated.any()
    if kind is CartPoleFunctional:
        assert 50 < sum(ended) < 450


@in_32_bits("gymnasium's CartPoleFunctional mixes 32 and 64")
def test_all_rows_move_while_one_starts_anew():
    # Where gymnasium's own vector environment loses the other rows' transitions.
    func_env = CartPoleFunctional()
    env = jaxvec.vectorize(from_gymnasium_func(func_env), 2)
    state, _ = jax.jit(env.reset)(keys_from(jax.random.key(0), 2))
    before = jnp.array([[2.39, 3.0, 0.0, 0.0], [0.0, 0.0, 0.1, 0.0]])
    state, timestep = jax.jit(env.step)(state._replace(env=before), jnp.array([1, 1]))
    assert timestep.terminated.tolist() == [True, False]
    moved = func_env.transition(before[1], 1, None, func_env.default_params)
    np.testing.assert_allclose(state.env[1], moved, rtol=1e-6, atol=1e-6)


@in_32_bits("gymnasium's CartPoleFunctional mixes 32 and 64")
def test_parameters_may_differ_by_row():
    func_env = CartPoleFunctional()
    params = func_env.default_params.replace(length=jnp.array([0.5, 2.0]))
    env = jaxvec.vectorize(from_gymnasium_func(func_env), 2, params=params)
    state, _ = jax.jit(env.reset)(keys_from(jax.random.key(0), 2))
    before = jnp.array([[0.0, 0.1, 0.05, 0.2]] * 2)
    _, timestep = jax.jit(env.step)(state._replace(env=before), jnp.array([1, 1]))
    for row, length in enumerate((0.5, 2.0)):
        own = func_env.default_params.replace(length=length)
        expected = func_env.transition(before[row], 1, None, own)
        np.testing.assert_allclose(timestep.final_obs[row], expected, rtol=1e-6, atol=1e-6)


def test_blackjack_with_its_record_of_weak_numbers_runs_and_compiles_once():
    env = jaxvec.vectorize(from_gymnasium_func(BlackjackFunctional()), 16)
    traces = []

    def policy(key, obs):
        traces.append(1)
        return (obs[:, 0] < 17).astype(jnp.int32)

    carry, (_, action, timestep) = jaxvec.rollout(env, policy, jax.random.key(0), 50)
    jaxvec.rollout(env, policy, carry.key, 50, start=carry)
    assert len(traces) == 1
    sums, stuck = np.asarray(timestep.final_obs[..., 0]), np.asarray(action == 0)
    np.testing.assert_array_equal(timestep.terminated, stuck | (sums > 21))
    assert set(np.unique(timestep.reward)) <= {-1.0, 0.0, 1.0, 1.5}
    assert (np.asarray(timestep.reward)[~np.asarray(timestep.terminated)] == 0).all()


class Noise(FuncEnv):
    """Hands out what each function draws, so that equal keys would show."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(2)

    def initial(self, rng, params=None):
        return jax.random.uniform(rng, (1,))

    def transition(self, state, action, rng, params=None):
        return jax.random.uniform(rng, (1,))

    def observation(self, state, rng, params=None):
        return jax.random.uniform(rng, (1,))

    def reward(self, state, action, next_state, rng, params=None):
        return jax.random.uniform(rng, (1,))[0]

    def terminal(self, state, rng, params=None):
        return jax.random.uniform(rng, (1,))[0] < 0.5

    def state_info(self, state, params=None):
        return {"state": state}

    def transition_info(self, state, action, next_state, params=None):
        return {"moved": next_state - state, "action": action}


def test_each_function_draws_from_a_key_of_its_own():
    env = from_gymnasium_func(Noise())
    state, obs, _ = env.reset(jax.random.key(0), None)
    assert state != obs
    ends = set()
    for seed in range(20):
        after, obs, reward, terminated, truncated, _ = env.step(
            jax.random.key(seed), state, 0, None
        )
        assert len({float(after[0]), float(obs[0]), float(reward)}) == 3
        assert not truncated
        ends.add((bool(terminated), bool(after[0] < 0.5)))
    assert len(ends) == 4


def test_state_and_transition_info_are_one_tree_that_is_zero_after_a_reset():
    env = from_gymnasium_func(Noise())
    state, _, info = env.reset(jax.random.key(0), None)
    assert sorted(info) == ["action", "moved", "state"]
    assert info["state"] == state
    assert info["moved"].shape == (1,)
    assert not info["moved"].any()
    after, *_, info = env.step(jax.random.key(1), state, 1, None)
    assert (info["state"] == after).all()
    assert (info["moved"] == after - state).all()
    assert info["action"] == 1
    jaxvec.vectorize(env, 2)  # which holds the trees of reset and step against each other


def test_a_time_limit_is_vectorizes():
    env = from_gymnasium_func(PendulumFunctional(), max_episode_steps=3)
    batched = jaxvec.vectorize(env, 2)
    _, (_, _, timestep) = jaxvec.rollout(
        batched, jaxvec.random_policy(batched), jax.random.key(0), 6
    )
    assert timestep.truncated[:, 0].tolist() == [False, False, True] * 2


def test_cliff_walkings_state_that_changes_its_shape_is_refused_by_the_name_of_its_part():
    env = from_gymnasium_func(CliffWalkingFunctional())
    with pytest.raises(
        ValueError,
        match=r"the state of CliffWalkingFunctional\.fallen has shape \(\) after reset and \(1,\)",
    ):
        jaxvec.vectorize(env, 4)


@in_32_bits("the message names the dtypes")
def test_a_function_that_fails_is_named_with_what_it_was_given():
    class Indexing(Noise):
        def transition(self, state, action, rng, params=None):
            return state * action[0]

    env = from_gymnasium_func(Indexing())
    with pytest.raises(
        ValueError, match=r"(?s)Indexing\.transition failed.*int32\[\].*Discrete\(2\)"
    ):
        jaxvec.vectorize(env, 4)


def test_a_class_in_place_of_an_instance_is_refused():
    with pytest.raises(TypeError, match="Pass an instance"):
        from_gymnasium_func(CartPoleFunctional)


def test_a_function_with_other_arguments_is_refused():
    class Odd(Noise):
        def observation(self, state):
            return state

    with pytest.raises(TypeError, match=r"Odd\.observation takes \(state\)"):
        from_gymnasium_func(Odd())
