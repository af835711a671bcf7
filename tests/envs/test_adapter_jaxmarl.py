"""JaxMARL's environments beside jaxmarl stepped by hand: a team as one row, agents as rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import agents_as_rows, from_jaxmarl, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.usefixtures("quick_compilation"),
]
jaxmarl = pytest.importorskip("jaxmarl")
SPREAD = "MPE_simple_spread_v3"


def test_a_team_steps_as_jaxmarl_stepped_by_hand_and_its_limit_is_a_truncation():
    own = jaxmarl.make(SPREAD)
    env = from_jaxmarl(own)
    assert env.max_episode_steps == own.max_steps == 25

    def by_hand(key, state, action):
        actions = {f"agent_{place}": action[place] for place in range(3)}
        obs, after, rewards, dones, _ = own.step_env(key, state, actions)
        assert dones["__all__"].shape == ()
        seen = jnp.stack([obs[f"agent_{place}"] for place in range(3)])
        return seen, sum(rewards.values()) / 3, False, after.step == 25

    assert assert_equals_the_library(env, by_hand, num_steps=60) == (0, 16)


def test_agents_are_rows_with_their_own_rewards():
    team = jaxvec.vectorize(from_jaxmarl(SPREAD), 2)
    rows = agents_as_rows(team)
    assert rows.spec.num_envs == 6
    assert rows.spec.action_space.n == 5
    keys = jaxvec.random.keys_from(jax.random.key(0), 6)
    state, opening = jax.jit(rows.reset)(keys)
    team_state, team_opening = jax.jit(team.reset)(keys[::3])
    np.testing.assert_array_equal(opening.obs.reshape(2, 3, -1), team_opening.obs)
    for step in range(27):
        action = (jnp.arange(6) + step) % 5
        state, timestep = jax.jit(rows.step)(state, action)
        team_state, wanted = jax.jit(team.step)(team_state, action.reshape(2, 3))
        np.testing.assert_allclose(
            timestep.final_obs.reshape(2, 3, -1), wanted.final_obs, rtol=1e-5
        )
        np.testing.assert_allclose(
            timestep.reward.reshape(2, 3), wanted.info["agent_reward"], rtol=1e-5
        )
        assert timestep.truncated.all() == (step == 24)
        assert timestep.first.shape == (6,)


def test_agents_as_rows_go_through_layers_and_rollouts():
    rows = agents_as_rows(jaxvec.vectorize(from_jaxmarl(SPREAD), 2))
    env = jaxvec.wrap(rows, jaxvec.normalize_observation(), jaxvec.frame_stack(2))
    _, (obs, action, timestep) = jaxvec.rollout(
        env, jaxvec.random_policy(env), jax.random.key(0), 30
    )
    assert obs.shape == (30, 6, 36)
    assert action.shape == timestep.reward.shape == (30, 6)


def test_every_law_holds():
    assert_laws_hold(make(f"jaxmarl:{SPREAD}"))


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    assert assert_rolls_out_with_all_layers(make(f"jaxmarl:{SPREAD}")) == 64 * 40


def test_agents_that_differ_and_what_is_no_team_are_refused():
    with pytest.raises(ValueError, match="must share it"):
        from_jaxmarl("MPE_simple_tag_v3")
    with pytest.raises(ValueError, match="not one of teams"):
        agents_as_rows(jaxvec.vectorize(make("CartPole-v1"), 2))
    with pytest.raises(TypeError, match="env=3 has no step_env and agents"):
        from_jaxmarl(3)
