"""Kinetix beside kinetix stepped by hand. It needs a JAX below 0.10, in an environment of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_kinetix
from tests.envs.adapter_laws import assert_equals_the_library, assert_rolls_out_with_all_layers

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("quick_compilation"),
]
kinetix = pytest.importorskip("kinetix.environment.env")


@pytest.fixture(scope="module")
def own():
    from kinetix.environment.env_state import StaticEnvParams
    from kinetix.environment.spaces import ActionType, ObservationType
    from kinetix.environment.utils import create_empty_env

    static = StaticEnvParams()
    return kinetix.make_kinetix_env(
        ActionType.CONTINUOUS,
        ObservationType.SYMBOLIC_FLAT,
        lambda key: create_empty_env(static),
        auto_reset=False,
    )


def test_a_row_steps_as_kinetix_stepped_by_hand_and_its_merged_limit_is_a_truncation(own):
    params = own.default_params.replace(max_timesteps=5)
    env = from_kinetix(own, params)

    def by_hand(key, state, action):
        obs, after, reward, done, _ = own.step_env(key, state, action, params)
        late = after.timestep >= 5
        return obs, reward, done & ~late, done & late

    assert assert_equals_the_library(env, by_hand, num_steps=12, num_envs=2) == (0, 4)


def test_a_row_with_a_limit_of_its_own_is_truncated_at_it(own):
    env = from_kinetix(own)
    params = env.params.replace(max_timesteps=jnp.array([3, 50]))
    batched = jaxvec.vectorize(env, 2, params=params)
    timestep = jaxvec.rollout(batched, jaxvec.random_policy(batched), jax.random.key(0), 6)[1][2]
    assert np.flatnonzero(timestep.truncated[:, 0]).tolist() == [2, 5]
    assert not timestep.truncated[:, 1].any()


def test_rows_run_under_all_layers(own):
    env = from_kinetix(own)._replace(max_episode_steps=20)
    ended = assert_rolls_out_with_all_layers(env, num_steps=100, num_envs=8, reset_source="cached")
    assert ended == 40


def test_what_is_no_kinetix_environment_is_refused():
    with pytest.raises(TypeError, match="env=3 has no engine_step"):
        from_kinetix(3)
