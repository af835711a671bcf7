"""navix's rooms beside navix stepped by hand."""

import jax
import jax.numpy as jnp
import pytest

from jaxvec.envs import from_navix, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of what navix imports
    pytest.mark.usefixtures("quick_compilation"),
]
navix = pytest.importorskip("navix", exc_type=ImportError)


def test_a_row_steps_as_navix_stepped_by_hand_and_keeps_its_last_observation():
    own = navix.make("Navix-Empty-5x5-v0", max_steps=30, disable_autoreset=True)
    env = from_navix(own)
    cache = own.reset(jax.random.key(0)).state.cache  # the same walls in every episode

    def by_hand(key, state, action):
        before = state.replace(state=state.state.replace(cache=cache))
        after = own.step(before, action)
        return after.observation, after.reward, after.is_termination(), after.is_truncation()

    assert env.max_episode_steps == 30
    terminated, truncated = assert_equals_the_library(env, by_hand, num_steps=100)
    assert terminated > 0
    assert truncated > 0


def test_the_drawn_background_is_in_the_state_only_where_pictures_are_observed():
    plain = from_navix("Navix-Empty-5x5-v0")
    state = jax.eval_shape(lambda key: plain.reset(key, None)[0], jax.random.PRNGKey(0))
    assert state.state.cache is None
    drawn = from_navix(navix.make("Navix-Empty-5x5-v0", observation_fn=navix.observations.rgb))
    state, obs, _ = jax.eval_shape(lambda key: drawn.reset(key, None), jax.random.PRNGKey(0))
    assert state.state.cache is not None
    assert obs.dtype == jnp.uint8
    assert obs.shape == drawn.observation_space.shape


def test_every_law_holds():
    assert_laws_hold(make("navix:Navix-DoorKey-5x5-v0"))


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    assert assert_rolls_out_with_all_layers(make("navix:Navix-Dynamic-Obstacles-5x5-v0")) > 64


def test_what_is_no_navix_environment_is_refused():
    with pytest.raises(TypeError, match="env=3 has no disable_autoreset"):
        from_navix(3)
