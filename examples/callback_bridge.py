"""Classic environments inside a compiled program: the policy loop of the JAX ones, unchanged.

python examples/callback_bridge.py
"""

import gymnasium as gym
import jax
import jax.numpy as jnp

import jaxvec
from jaxvec.bridges.callback import from_vec_env

N, T = 8, 200


def policy(key: jax.Array, obs: jax.Array) -> jax.Array:
    """Pushes to the side that the pole leans to."""
    return (obs[:, 2] > 0).astype(int)


def mean_return(env: jaxvec.BatchedEnv) -> jax.Array:
    """Rolls out, whatever the environments are made of."""
    env = jaxvec.wrap(env, jaxvec.episode_statistics())
    _, (_, _, step) = jaxvec.rollout(env, policy, jax.random.key(0), T)
    returns = step.info["episode"]["r"]
    return jnp.where(step.done, returns, 0).sum() / step.done.sum()


venv = jaxvec.vec.DummyVecEnv([lambda: gym.make("CartPole-v1")] * N)
classic = mean_return(from_vec_env(venv))
native = mean_return(jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), N))
venv.close()
print(f"mean return: {classic:.1f} in gymnasium's CartPole, {native:.1f} in jaxvec's")
assert 35 < float(classic) < 50
assert abs(float(classic) - float(native)) < 5
