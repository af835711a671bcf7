"""jumanji's environments beside jumanji stepped by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_jumanji, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
jumanji = pytest.importorskip("jumanji")


def plain(obs):
    """jumanji's records as dicts, written for this test."""
    return {
        name: plain(part) if hasattr(part, "_asdict") else part
        for name, part in obs._asdict().items()
    }


@pytest.mark.parametrize(
    ("name", "options"), [("Snake-v1", {"time_limit": 25}), ("Maze-v0", {"time_limit": 25})]
)
def test_a_row_steps_as_jumanji_stepped_by_hand_and_a_limit_is_a_truncation(name, options):
    own = jumanji.make(name, **options)
    endless = jumanji.make(name, time_limit=10**6)

    def by_hand(key, state, action):
        timestep = own.step(state.env, action)[1]
        ended = endless.step(state.env, action)[1].last()
        # At the limit jumanji's own discount is 0, as if the task had ended.
        return plain(timestep.observation), timestep.reward, ended, timestep.last() & ~ended

    env = from_jumanji(own)
    assert env.max_episode_steps == 25
    terminated, truncated = assert_equals_the_library(env, by_hand, num_steps=60)
    assert truncated > 0
    assert terminated > 0 or name == "Maze-v0"


def test_the_last_observation_at_the_limit_lies_in_the_space():
    env = from_jumanji(jumanji.make("Snake-v1", time_limit=2))
    batched = jaxvec.vectorize(env, 16)
    timestep = jaxvec.rollout(batched, jaxvec.random_policy(batched), jax.random.key(1), 4)[1][2]
    final, truncated = jax.device_get((timestep.final_obs, timestep.truncated))
    step, row = np.argwhere(truncated)[0]
    last = jax.tree.map(lambda leaf: leaf[step, row], final)
    assert last["step_count"] == 2
    assert env.observation_space.contains(last)


def test_masks_are_a_column_of_the_info_and_a_method():
    env = make("jumanji:Game2048-v1")
    state, obs, info = env.reset(jax.random.key(0), None)
    np.testing.assert_array_equal(info["action_mask"], obs["action_mask"])
    np.testing.assert_array_equal(env.methods["action_masks"](state, None), obs["action_mask"])
    state, obs, *_, info = env.step(jax.random.key(0), state, jnp.argmax(info["action_mask"]), None)
    np.testing.assert_array_equal(env.methods["action_masks"](state, None), obs["action_mask"])
    assert "highest_tile" in info


def test_an_environment_without_masks_has_no_such_method():
    env = from_jumanji(jumanji.make("RubiksCube-v0"))
    assert env.methods == {}
    state, _, info = jax.eval_shape(lambda key: env.reset(key, None), jax.random.PRNGKey(0))
    assert state.action_mask is None
    assert "action_mask" not in info


def test_every_law_holds():
    assert_laws_hold(make("jumanji:Game2048-v1"))


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    assert assert_rolls_out_with_all_layers(make("jumanji:Game2048-v1"), num_steps=1000) > 64


def test_a_wrapper_that_resets_and_what_is_no_environment_are_refused():
    from jumanji.wrappers import AutoResetWrapper

    with pytest.raises(TypeError, match="has a AutoResetWrapper around it"):
        from_jumanji(AutoResetWrapper(jumanji.make("Game2048-v1")))
    with pytest.raises(TypeError, match="env=3 has no reset, step and observation_spec"):
        from_jumanji(3)
