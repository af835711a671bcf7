"""Thousands of CartPoles in one compiled scan: layers, what comes out, and how to go on.

    python examples/scan_rollout.py

The chunks after the first compile nothing, a seed axis is one `vmap`, and `collect` keeps only what is
asked for.
"""

import jax
import jax.numpy as jnp

import jaxvec

N, T = 1024, 200

env = jaxvec.wrap(
    jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), N),
    jaxvec.episode_statistics(),
    jaxvec.normalize_observation(),
    jaxvec.normalize_reward(),
    jaxvec.frame_stack(4),
)


def policy(key: jax.Array, obs: jax.Array) -> jax.Array:
    """Pushes to the side that the pole leans to, in the last of four frames."""
    return (obs[:, 14] > 0).astype(int)


def episodes(obs: jax.Array, action: jax.Array, step: jaxvec.Timestep) -> jax.Array:
    """Keeps two numbers of a step instead of `[N, ...]`: how many episodes ended, and their returns' sum."""
    returns = step.info["episode"]["r"]
    return jnp.stack([step.done.sum(), jnp.where(step.done, returns, 0).sum()])


# Everything of every step: leaves are [T, N, ...].
carry, (obs, action, step) = jaxvec.rollout(env, policy, jax.random.key(0), T)
assert obs.shape == (T, N, 16)
assert step.done.shape == (T, N)
print(f"{int(step.done.sum())} episodes ended in {N * T} steps")

# What a step led to is never lost to a reset: the last frame of `final_obs` is not the next episode's first.
ended = step.done[:-1]
assert bool((step.final_obs[:-1] != obs[1:]).any(-1)[ended].all())

# Chunks: the same program again, from where it stood.
for chunk in range(3):
    carry, kept = jaxvec.rollout(env, policy, None, T, start=carry, collect=episodes)
    count, total = kept.sum(0)
    print(f"chunk {chunk}: {int(count)} episodes, mean return {total / count:.1f}")

# Eight seeds at once.
seeds = jax.vmap(lambda key: jaxvec.rollout(env, policy, key, T, collect=episodes)[1].sum(0))
counts, totals = seeds(jax.random.split(jax.random.key(1), 8)).T
print("mean returns of eight seeds:", (totals / counts).round(1))
assert counts.shape == (8,)
assert 30 < float((totals / counts).mean()) < 60
