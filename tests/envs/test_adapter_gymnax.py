"""gymnax's environments beside gymnax stepped by hand; versions 0.0.9 and 1.x."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_gymnax, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

# Deprecations of gymnax's own code under a newer JAX.
pytestmark = [
    pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types"),
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
    pytest.mark.usefixtures("quick_compilation"),
]
gymnax = pytest.importorskip("gymnax")


def merged(env, limit):
    """gymnax's own words, its time limit told apart from the rule by the clock alone."""
    env, params = gymnax.make(env)
    params = params.replace(max_steps_in_episode=limit)

    def by_hand(key, state, action):
        # 0.0.9 merges the limit into the fourth value, 1.x has the rule alone there.
        obs, after, reward, done, _ = env.step_env(key, state, action, params)
        late = after.time >= limit
        endless = params.replace(max_steps_in_episode=10**9)
        terminated = env.step_env(key, state, action, endless)[3]
        assert done.shape == ()
        return obs, reward, terminated, late & ~terminated

    return by_hand


@pytest.mark.parametrize(
    ("name", "limit"),
    [("CartPole-v1", 25), ("Breakout-MinAtar", 20), ("DiscountingChain-bsuite", 100)],
)
def test_a_row_steps_as_gymnax_stepped_by_hand_and_keeps_its_last_observation(name, limit):
    env = from_gymnax(*gymnax.make(name))._replace(max_episode_steps=limit)
    terminated, truncated = assert_equals_the_library(env, merged(name, limit), num_steps=120)
    assert truncated > 0
    assert terminated > 0 or name.startswith("Discounting")


def test_its_time_limit_is_vectorizes_and_can_be_lifted():
    env = from_gymnax("Pendulum-v1")
    assert env.max_episode_steps == 200

    def ends(**options):
        batched = jaxvec.vectorize(env, 2, **options)
        policy = jaxvec.random_policy(batched)
        timestep = jaxvec.rollout(batched, policy, jax.random.key(0), 420)[1][2]
        assert not timestep.terminated.any()
        return np.flatnonzero(timestep.truncated[:, 0]).tolist()

    assert ends() == [199, 399]
    assert ends(max_episode_steps=None) == []


def test_a_row_with_a_limit_of_its_own_is_truncated_at_it():
    env = from_gymnax("Pendulum-v1")
    params = env.params.replace(max_steps_in_episode=jnp.array([3, 5]))
    batched = jaxvec.vectorize(env, 2, params=params)
    timestep = jaxvec.rollout(batched, jaxvec.random_policy(batched), jax.random.key(0), 10)[1][2]
    assert np.flatnonzero(timestep.truncated[:, 0]).tolist() == [2, 5, 8]
    assert np.flatnonzero(timestep.truncated[:, 1]).tolist() == [4, 9]
    assert not timestep.terminated.any()


def test_parameters_per_row_give_each_row_its_own_physics():
    own, params = gymnax.make("CartPole-v1")
    env = from_gymnax(own, params)
    gravity = jnp.array([1.0, 30.0])
    batched = jaxvec.vectorize(env, 2, params=params.replace(gravity=gravity))
    state, _ = batched.reset(jaxvec.random.keys_from(jax.random.key(0), 2))
    before = state.env
    for _ in range(2):
        state, timestep = batched.step(state._replace(env=before), jnp.array([1, 1]))
    for row in range(2):
        one = jax.tree.map(lambda leaf, row=row: leaf[row], before)
        expected = own.step_env(None, one, 1, params.replace(gravity=float(gravity[row])))[0]
        np.testing.assert_allclose(timestep.final_obs[row], expected, rtol=1e-5)


def test_an_observation_that_shows_the_limit_shows_the_one_of_the_parameters():
    env = from_gymnax("DiscountingChain-bsuite")
    state, obs, _ = env.reset(jax.random.PRNGKey(0), env.params)
    assert obs[1] == 0
    _, obs, *_ = env.step(jax.random.PRNGKey(1), state, 0, env.params)
    np.testing.assert_allclose(obs[1], 0.01)


def test_a_space_of_whole_numbers_gets_the_dtype_of_the_observations():
    env = from_gymnax("Catch-bsuite")
    assert env.observation_space.dtype == np.float32
    jaxvec.vectorize(env, 2)


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar"])
def test_every_law_holds(name):
    assert_laws_hold(make(f"gymnax:{name}"))


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    assert assert_rolls_out_with_all_layers(make("gymnax:Breakout-MinAtar")) > 1000


def test_the_same_environment_comes_by_name_by_id_and_from_gymnaxs_own():
    ids = [
        from_gymnax("CartPole-v1"),
        make("gymnax:CartPole-v1"),
        from_gymnax(gymnax.make("CartPole-v1")[0]),
    ]
    for env in ids:
        assert env.metadata["name"] == "gymnax:CartPole-v1"
        assert env.observation_space == ids[0].observation_space
        assert env.max_episode_steps == 500
    other = gymnax.make("CartPole-v1")[1].replace(gravity=1.0)
    assert from_gymnax("CartPole-v1", other).params.gravity == 1.0


def test_what_is_no_gymnax_environment_is_refused():
    with pytest.raises(TypeError, match=r"from_gymnax: env=3 has no step_env"):
        from_gymnax(3)
