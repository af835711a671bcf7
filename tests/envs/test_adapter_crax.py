"""CRAX's environments beside crax stepped by hand."""

import jax
import pytest

import jaxvec
from jaxvec.envs import from_crax, make
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("quick_compilation"),
]
envs = pytest.importorskip("crax.envs")

# Its physics compile in the shortest time.
PENDULUM, OPTIONS = "inverted_pendulum", {"backend": "spring"}


@pytest.fixture(scope="module")
def own():
    return envs.get_environment(PENDULUM, **OPTIONS)


def test_a_row_steps_as_crax_stepped_by_hand_and_keeps_its_last_observation(own):
    env = from_crax(own, max_episode_steps=12)

    def by_hand(key, state, action):
        after = own.step(state, action)
        return after.obs, after.reward, after.done == 1, False

    ends = assert_equals_the_library(env._replace(max_episode_steps=None), by_hand, num_steps=40)
    assert ends[0] > 0


def test_wrappers_that_vectorize_replaces_are_taken_off_and_their_limit_truncates():
    env = from_crax(envs.create(PENDULUM, episode_length=3, **OPTIONS))
    assert env.max_episode_steps == 3
    batched = jaxvec.vectorize(env, 2)
    _, (_, _, timestep) = jaxvec.rollout(
        batched, jaxvec.random_policy(batched), jax.random.key(0), 6
    )
    assert timestep.truncated[:, 0].tolist() == [False, False, True] * 2


def test_what_a_step_costs_is_among_the_metrics(own):
    env = from_crax(own)
    key = jax.random.key(0)
    state, _, info = env.reset(key, env.params)
    *_, stepped = env.step(key, state, env.action_space.sample(), env.params)
    assert {"cost"} <= set(info["metrics"]) == set(stepped["metrics"])


def test_every_law_holds(own):
    assert_laws_hold(from_crax(own))


def test_a_thousand_steps_of_64_rows_run_under_all_layers(own):
    assert assert_rolls_out_with_all_layers(from_crax(own)) > 64


def test_an_environment_comes_by_id_and_its_limit_is_the_librarys():
    env = make(f"crax:{PENDULUM}", **OPTIONS)
    assert env.metadata["name"] == f"crax:{PENDULUM}"
    assert env.max_episode_steps == getattr(
        envs.get_environment(PENDULUM, **OPTIONS).unwrapped, "episode_length", None
    )
    assert env.action_space.shape == (1,)


def test_what_is_no_crax_environment_is_refused():
    with pytest.raises(TypeError, match="from_crax: env=3 is no environment of crax"):
        from_crax(3)
