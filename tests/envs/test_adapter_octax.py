"""Octax's games beside octax stepped by hand."""

import jax
import numpy as np
import pytest

from jaxvec.envs import from_octax, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("quick_compilation"),
]
games = pytest.importorskip("octax.environments")

# One instruction of the emulator a step: all kinds of instruction are computed for each.
QUICK = {"instruction_frequency": 60, "frame_skip": 1}


def by_hand_of(own, limit):
    def by_hand(key, state, action):
        after, obs, reward, terminated, truncated, _ = own.step(state, action)
        late = after.time >= limit
        return obs, reward, terminated, (truncated | late) & ~terminated

    return by_hand


def test_a_row_steps_as_octax_stepped_by_hand_and_ends_as_it_does():
    own, _ = games.create_environment("brix", max_num_steps_per_episodes=20)
    env = from_octax(own)
    assert env.max_episode_steps == 20
    terminated, truncated = assert_equals_the_library(
        env, by_hand_of(own, 20), num_steps=45, num_envs=4
    )
    assert terminated > 0
    assert truncated > 0


def test_the_observation_is_the_library_own_and_so_are_its_score_and_its_picture():
    own, _ = games.create_environment("pong")
    env = from_octax(own)
    state, obs, info = env.reset(jax.random.key(0), None)
    np.testing.assert_array_equal(obs, own.reset(jax.random.PRNGKey(0))[1])
    assert env.observation_space.contains(np.asarray(obs))
    assert info["score"] == own.cached_reset_state.current_score
    assert env.render is None
    picture = np.asarray(make("octax:pong").render(state))
    assert picture.shape == (256, 512, 3)
    assert picture.dtype == np.uint8


def test_every_law_holds():
    assert_laws_hold(make("octax:brix", **QUICK))


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    env = make("octax:brix", **QUICK)._replace(max_episode_steps=100)
    assert assert_rolls_out_with_all_layers(env) == 640


def test_a_game_comes_by_its_name_and_by_id():
    for env in (from_octax("tetris"), make("octax:tetris")):
        assert env.metadata["name"] == "octax:tetris"
        assert env.observation_space.shape == (4, 64, 32)
        assert env.observation_space.dtype.kind == "b"


def test_what_is_no_octax_environment_is_refused():
    with pytest.raises(TypeError, match="env=3 has no terminated_fn"):
        from_octax(3)
