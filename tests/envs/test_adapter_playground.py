"""MuJoCo Playground's environments beside Playground stepped by hand."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_playground
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.usefixtures("quick_compilation"),
]
pytest.importorskip("mujoco_playground")


@pytest.fixture(scope="module")
def own():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mujoco_playground import registry

        return registry.load("CartpoleBalance")


def test_a_row_steps_as_playground_stepped_by_hand_and_the_limit_truncates(own):
    env = from_playground(own)
    assert env.max_episode_steps == 1000

    def by_hand(key, state, action):
        after = own.step(state, action)
        return after.obs, after.reward, after.done == 1, False

    expected = assert_equals_the_library(env, by_hand, num_steps=10, num_envs=2, rtol=1e-4)
    assert expected == (0, 0)
    batched = jaxvec.vectorize(env, 2, max_episode_steps=3)
    _, (_, _, timestep) = jaxvec.rollout(
        batched, jaxvec.random_policy(batched), jax.random.key(0), 6
    )
    assert timestep.truncated[:, 0].tolist() == [False, False, True] * 2
    starts = np.asarray(timestep.obs)[np.asarray(timestep.first)]
    assert len(np.unique(starts, axis=0)) == 4
    assert not np.allclose(timestep.final_obs[2], timestep.obs[2])


def test_models_per_row_give_each_row_its_own_physics(own):
    env = from_playground(own)
    gravity = jnp.stack([own.mjx_model.opt.gravity, own.mjx_model.opt.gravity * 5])
    model = own.mjx_model.replace(opt=own.mjx_model.opt.replace(gravity=gravity))
    batched = jaxvec.vectorize(env, 2, params=model)
    state, opening = jax.jit(batched.reset)(jaxvec.random.keys_from(jax.random.key(0), 2))
    same = jax.tree.map(
        lambda leaf: leaf.at[1].set(leaf[0]) if leaf.shape[:1] == (2,) else leaf, state.env
    )
    step = jax.jit(batched.step)
    state = state._replace(env=same)
    for _ in range(5):
        state, timestep = step(state, jnp.zeros((2, 1)))
    assert opening.obs.shape == timestep.obs.shape
    assert not np.allclose(timestep.obs[0], timestep.obs[1])


def test_every_law_holds(own):
    assert_laws_hold(from_playground(own), num_envs=3, num_steps=6)


def test_a_thousand_steps_of_64_rows_run_under_all_layers(own):
    env = from_playground(own, max_episode_steps=100)
    assert assert_rolls_out_with_all_layers(env) == 640


def test_wrappers_that_vectorize_replaces_are_taken_off(own):
    from mujoco_playground import wrapper

    wrapped = wrapper.wrap_for_brax_training(own, episode_length=55)
    env = from_playground(wrapped)
    assert env.max_episode_steps == 55
    _, obs, _ = jax.eval_shape(lambda key: env.reset(key, env.params), jax.random.key(0))
    assert obs.shape == env.observation_space.shape
