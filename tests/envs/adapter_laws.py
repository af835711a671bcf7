"""What holds for the environments of every library: tested by stepping the library by hand beside jaxvec."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxvec
from jaxvec.spaces import sample
from jaxvec.testing import check_env


def assert_equals_the_library(env, by_hand, *, num_steps=60, num_envs=8, rtol=1e-5, **options):
    """Steps N rows of `vectorize(env)`, and each row's state by hand with the row's own key.

    `by_hand(key, state, action) -> (obs, reward, terminated, truncated)` are the library's own words.
    Returns how many episodes terminated and how many were truncated.
    """
    batched = jaxvec.vectorize(env, num_envs, **options)

    def body(state, key):
        action = sample(key, env.action_space, num_envs)
        keys = jax.vmap(jax.random.fold_in)(state.keys, 2 * (state.clock + 1))
        expected = jax.vmap(by_hand)(keys, state.env, action)
        state, timestep = batched.step(state, action)
        ends = timestep.terminated, timestep.truncated
        return state, (expected, (timestep.final_obs, timestep.reward, *ends))

    @jax.jit
    def run(key):
        state, _ = batched.reset(jaxvec.random.keys_from(key, num_envs))
        return jax.lax.scan(body, state, jax.random.split(key, num_steps))[1]

    expected, found = jax.device_get(run(jax.random.key(3)))
    names = "final_obs", "reward", "terminated", "truncated"
    for name, wanted, got in zip(names, expected, found, strict=True):
        jax.tree.map(
            lambda want, have, name=name: np.testing.assert_allclose(
                np.asarray(have, float), np.asarray(want, float), rtol, rtol, err_msg=name
            ),
            wanted,
            got,
        )
    return int(found[2].sum()), int(found[3].sum())


def assert_rolls_out_with_all_layers(env, *, num_steps=1000, num_envs=64, **options):
    """Rolls N rows out under the full chain, in one compiled scan; returns how many episodes ended."""
    layers = (
        jaxvec.episode_statistics(),
        jaxvec.flatten_observation(),
        jaxvec.cast_observation("float32"),
        jaxvec.normalize_observation(),
        jaxvec.normalize_reward(),
        jaxvec.frame_stack(2),
        jaxvec.check_finite(),
    )
    batched = jaxvec.wrap(jaxvec.vectorize(env, num_envs, **options), *layers)
    policy = jaxvec.random_policy(batched)

    def collect(obs, action, timestep):
        done = timestep.done
        finite = jnp.isfinite(timestep.obs).all() & jnp.isfinite(timestep.final_obs).all()
        return finite & jnp.isfinite(timestep.reward).all(), done.sum()

    carry, (finite, ended) = jaxvec.rollout(
        batched, policy, jax.random.key(0), num_steps, collect=collect
    )
    assert bool(finite.all())
    assert carry.obs.shape == (num_envs, *batched.spec.observation_space.shape)
    return int(ended.sum())


def assert_laws_hold(env, *, num_envs=4, num_steps=20):
    """Holds an environment against the laws of `jaxvec.testing`."""
    assert len(check_env(env, num_envs=num_envs, num_steps=num_steps).laws) == 10
