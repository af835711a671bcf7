"""Craftax-Classic beside craftax stepped by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_craftax, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types"),
    pytest.mark.usefixtures("quick_compilation"),
]
pytest.importorskip("craftax")
CLASSIC = "Craftax-Classic-Symbolic-v1"


@pytest.fixture(scope="module")
def own():
    from craftax.craftax_env import make_craftax_env_from_name

    return make_craftax_env_from_name(CLASSIC, auto_reset=False)


def test_a_row_steps_as_craftax_stepped_by_hand_and_its_merged_end_is_told_apart(own):
    limit = 150
    params = own.default_params.replace(max_timesteps=limit)
    env = from_craftax(own, params)

    def by_hand(key, state, action):
        obs, after, reward, done, _ = own.step_env(key, state, action, params)
        # The rule of a death, and the clock, by the fields of the state.
        dead = after.player_health <= 0
        assert done.shape == ()
        return (
            obs,
            reward,
            done & (dead | (after.timestep < limit)),
            done & ~dead & (after.timestep >= limit),
        )

    assert env.max_episode_steps == limit
    terminated, truncated = assert_equals_the_library(
        env, by_hand, num_steps=320, num_envs=16, reset_source="cached"
    )
    assert terminated > 0
    assert truncated > 0


def test_a_row_with_a_limit_of_its_own_is_truncated_at_it(own):
    env = from_craftax(own)
    params = env.params.replace(max_timesteps=jnp.array([3, 50]))
    batched = jaxvec.vectorize(env, 2, params=params, reset_source="cached")
    timestep = jaxvec.rollout(batched, jaxvec.random_policy(batched), jax.random.key(0), 6)[1][2]
    assert np.flatnonzero(timestep.truncated[:, 0]).tolist() == [2, 5]
    assert not timestep.truncated[:, 1].any()


def test_every_law_holds(own):
    assert_laws_hold(from_craftax(own), num_envs=3, num_steps=8)


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    env = make(f"craftax:{CLASSIC}")
    assert env.max_episode_steps == 10_000
    assert assert_rolls_out_with_all_layers(env, reset_source="pool", pool_size=4) > 64


def test_what_is_no_craftax_environment_is_refused():
    with pytest.raises(TypeError, match="env=3 with params=None has no step_env"):
        from_craftax(3)
