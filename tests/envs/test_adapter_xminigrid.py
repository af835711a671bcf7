"""XLand-MiniGrid beside xminigrid stepped by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_xminigrid, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
xminigrid = pytest.importorskip("xminigrid")


def test_a_row_steps_as_xminigrid_stepped_by_hand_and_keeps_its_last_observation():
    own, params = xminigrid.make("MiniGrid-Empty-5x5")
    params = params.replace(max_steps=40)
    env = from_xminigrid(own, params)

    def by_hand(key, state, action):
        after = own.step(params, state, action)
        last = after.step_type == 2
        return (
            after.observation,
            after.reward,
            last & (after.discount == 0),
            last & (after.discount == 1),
        )

    assert env.max_episode_steps == 40
    terminated, truncated = assert_equals_the_library(env, by_hand, num_steps=200)
    assert terminated > 0
    assert truncated > 0


def test_rulesets_per_row_give_each_row_its_own_task():
    own, params = xminigrid.make("XLand-MiniGrid-R1-9x9")
    goals = jnp.stack([params.ruleset.goal, params.ruleset.goal.at[1].set(7)])
    rules = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), params.ruleset).replace(goal=goals)
    env = jaxvec.vectorize(from_xminigrid(own, params), 2, params=params.replace(ruleset=rules))
    state, _ = jax.jit(env.reset)(jaxvec.random.keys_from(jax.random.key(0), 2))
    np.testing.assert_array_equal(state.env.state.goal_encoding, goals)


def test_every_law_holds():
    assert_laws_hold(make("xminigrid:MiniGrid-DoorKey-5x5"))


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    assert assert_rolls_out_with_all_layers(make("xminigrid:MiniGrid-Empty-5x5")) > 64


def test_a_wrapper_that_resets_and_what_is_no_environment_are_refused():
    from xminigrid.wrappers import DirectionObservationWrapper, GymAutoResetWrapper

    own, params = xminigrid.make("MiniGrid-Empty-5x5")
    with pytest.raises(TypeError, match="has a GymAutoResetWrapper around it"):
        from_xminigrid(DirectionObservationWrapper(GymAutoResetWrapper(own)), params)
    with pytest.raises(TypeError, match="env=3 has no default_params"):
        from_xminigrid(3)


def test_observations_that_a_wrapper_makes_a_dict_are_one():
    from xminigrid.wrappers import DirectionObservationWrapper

    own, params = xminigrid.make("MiniGrid-Empty-5x5")
    env = from_xminigrid(DirectionObservationWrapper(own), params)
    assert set(env.observation_space.spaces) == {"img", "direction"}
    jaxvec.vectorize(env, 2)
