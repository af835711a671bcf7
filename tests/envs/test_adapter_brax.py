"""brax's environments beside brax stepped by hand."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_brax, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    # brax imports what deprecates itself, and says so of itself.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Brax System"),
    pytest.mark.usefixtures("quick_compilation"),
]
pytest.importorskip("brax")

# Its physics compile in the shortest time.
PENDULUM, OPTIONS = "inverted_pendulum", {"backend": "spring"}


@pytest.fixture(scope="module")
def own():
    with warnings.catch_warnings():  # brax imports what deprecates itself
        warnings.simplefilter("ignore")
        from brax import envs
    return envs.get_environment(PENDULUM, **OPTIONS)


def test_a_row_steps_as_brax_stepped_by_hand_and_keeps_its_last_observation(own):
    env = from_brax(own, max_episode_steps=12)

    def by_hand(key, state, action):
        after = own.step(state, action)
        return after.obs, after.reward, after.done == 1, False

    def with_clock(key, state, action):
        obs, reward, terminated, _ = by_hand(key, state, action)
        return obs, reward, terminated, terminated

    terminated, truncated = assert_equals_the_library(
        env._replace(max_episode_steps=None), by_hand, num_steps=40
    )
    assert terminated > 0
    assert truncated == 0
    with pytest.raises(AssertionError, match="truncated"):  # the comparison can fail
        assert_equals_the_library(env._replace(max_episode_steps=None), with_clock, num_steps=40)


def test_each_episode_starts_from_a_state_of_its_own_and_the_limit_truncates(own):
    env = jaxvec.vectorize(from_brax(own, max_episode_steps=3), 2)
    _, (_, _, timestep) = jaxvec.rollout(env, jaxvec.random_policy(env), jax.random.key(0), 9)
    assert timestep.truncated[:, 0].tolist() == [False, False, True] * 3
    starts = np.asarray(timestep.obs)[np.asarray(timestep.first)]
    assert len(np.unique(starts, axis=0)) == len(starts) == 6


def test_systems_per_row_give_each_row_its_own_physics(own):
    env = from_brax(own)
    gravity = jnp.stack([own.sys.gravity, own.sys.gravity * 3])
    batched = jaxvec.vectorize(env, 2, params=own.sys.replace(gravity=gravity))
    state, _ = jax.jit(batched.reset)(jaxvec.random.keys_from(jax.random.key(0), 2))
    before = state.env
    timestep = jax.jit(batched.step)(state, jnp.zeros((2, 1)))[1]
    for row in range(2):
        one = jax.tree.map(lambda leaf, row=row: leaf[row], before)
        heavy = type(own)(**OPTIONS)
        heavy.sys = own.sys.replace(gravity=gravity[row])
        expected = jax.jit(heavy.step)(one, jnp.zeros(1)).obs
        np.testing.assert_allclose(timestep.final_obs[row], expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(own.sys.gravity, gravity[1])


def test_wrappers_that_vectorize_replaces_are_taken_off_and_their_limit_is_kept(own):
    from brax.envs.wrappers import training

    wrapped = training.wrap(own, episode_length=77)
    env = from_brax(wrapped)
    assert env.max_episode_steps == 77
    _, obs, info = jax.eval_shape(lambda key: env.reset(key, env.params), jax.random.key(0))
    assert obs.shape == env.observation_space.shape
    assert set(info) <= {"metrics"}
    with pytest.raises(ValueError, match="action_repeat=2"):
        from_brax(training.wrap(own, action_repeat=2))


def test_every_law_holds(own):
    assert_laws_hold(from_brax(own))


def test_a_thousand_steps_of_64_rows_run_under_all_layers(own):
    assert assert_rolls_out_with_all_layers(from_brax(own)) > 64


def test_an_environment_comes_by_id():
    env = make(f"brax:{PENDULUM}", **OPTIONS)
    assert env.metadata["name"] == f"brax:{PENDULUM}"
    assert env.max_episode_steps == 1000
    assert env.action_space.shape == (1,)


def test_what_is_no_brax_environment_is_refused():
    with pytest.raises(TypeError, match="from_brax: env=3 is no environment of brax"):
        from_brax(3)
