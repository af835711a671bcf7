"""Rows over several devices: the same numbers, each device with a share.

    python examples/multi_device.py

Here the devices are two made of this machine's CPU; with GPUs, leave the first two lines out.
"""

import jax

jax.config.update("jax_num_cpu_devices", 2)  # before JAX is first used

import numpy as np  # noqa: E402

import jaxvec  # noqa: E402
from jaxvec.envs import device_mesh, shard  # noqa: E402

N, T = 1024, 100


def environment() -> jaxvec.BatchedEnv:
    """CartPoles with layers; `update="rollout"` keeps all talk between devices out of the loop."""
    return jaxvec.wrap(
        jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), N),
        jaxvec.episode_statistics(),
        jaxvec.normalize_observation(update="rollout"),
        jaxvec.frame_stack(4),
    )


env, spread = environment(), shard(environment(), device_mesh(2))
policy = jaxvec.random_policy(env)
carry, (_, _, step) = jaxvec.rollout(env, policy, jax.random.key(0), T)
spread_carry, (_, _, spread_step) = jaxvec.rollout(spread, policy, jax.random.key(0), T)

for shard_of in spread_carry.obs.addressable_shards:
    print(shard_of.device, "has rows", shard_of.index[0])
np.testing.assert_array_equal(spread_step.done, step.done)  # the physics is bit-equal
learnt, spread_learnt = (
    each.env_state.layers[1].statistics.moments for each in (carry, spread_carry)
)
np.testing.assert_allclose(spread_learnt.mean, learnt.mean, rtol=1e-6, atol=1e-6)
print("statistics are over all rows of all devices:", spread_learnt.mean)
