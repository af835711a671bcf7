"""stoa's environments beside stoa stepped by hand."""

import jax
import jax.numpy as jnp
import pytest

import jaxvec
from jaxvec.envs import from_stoa
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.usefixtures("quick_compilation"),
]
stoa = pytest.importorskip("stoa")


def walk():
    """A walk of one's own on a line, from a drawn place: 1 to the right, 0 to the left; ends at 10 or 0."""
    from stoa.env_types import StepType, TimeStep
    from stoa.spaces import BoundedArraySpace, DiscreteSpace

    class Walk(stoa.Environment):
        def reset(self, rng_key, env_params=None):
            place = jax.random.randint(rng_key, (), 3, 8)
            return (place, jnp.int32(0)), self._timestep(place, StepType.FIRST, 0.0)

        def step(self, state, action, env_params=None):
            place, time = state[0] + 2 * action - 1, state[1] + 1
            over = (place <= 0) | (place >= 10)
            late = (time >= 15) & ~over
            kind = jnp.where(
                over, StepType.TERMINATED, jnp.where(late, StepType.TRUNCATED, StepType.MID)
            )
            return (place, time), self._timestep(place, kind, (place >= 10).astype(jnp.float32))

        def _timestep(self, place, kind, reward):
            return TimeStep(
                step_type=jnp.asarray(kind, jnp.int8),
                reward=jnp.asarray(reward, jnp.float32),
                discount=jnp.float32(1),
                observation=jnp.asarray(place, jnp.float32)[None],
                extras={"place": place},
            )

        def observation_space(self, env_params=None):
            return BoundedArraySpace((1,), jnp.float32, 0.0, 10.0)

        def action_space(self, env_params=None):
            return DiscreteSpace(2, jnp.int32)

        def state_space(self, env_params=None):
            raise NotImplementedError

        def render(self, state, env_params=None):
            raise NotImplementedError

    return Walk()


def test_a_row_steps_as_stoa_stepped_by_hand_and_keeps_both_kinds_of_ends():
    own = walk()

    def by_hand(key, state, action):
        timestep = own.step(state, action)[1]
        kind = timestep.step_type
        return timestep.observation, timestep.reward, kind == 2, kind == 3

    terminated, truncated = assert_equals_the_library(from_stoa(own), by_hand, num_steps=100)
    assert terminated > 0
    assert truncated > 0


def test_every_law_holds_and_a_thousand_steps_of_64_rows_run_under_all_layers():
    assert_laws_hold(from_stoa(walk()), num_steps=40)
    assert assert_rolls_out_with_all_layers(from_stoa(walk(), max_episode_steps=12)) > 64


def test_extras_are_the_info():
    env = jaxvec.vectorize(from_stoa(walk()), 2)
    _, (_, _, timestep) = jaxvec.rollout(env, jaxvec.random_policy(env), jax.random.key(0), 5)
    assert (timestep.info["place"] == timestep.final_obs[..., 0]).all()


def test_a_wrapper_that_resets_and_what_is_no_environment_are_refused():
    with pytest.raises(TypeError, match="has a AutoResetWrapper around it"):
        from_stoa(stoa.AutoResetWrapper(stoa.AddRNGKey(walk())))
    with pytest.raises(TypeError, match=r"env=3 has no observation_space\(\)"):
        from_stoa(3)
