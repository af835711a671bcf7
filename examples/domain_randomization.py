"""Every row its own physics: parameters that differ by row, and change with nothing compiled again.

python examples/domain_randomization.py
"""

import jax
import jax.numpy as jnp

import jaxvec
from jaxvec.random import hash_key, keys_from

N, T = 512, 300

pendulum = jaxvec.envs.make("Pendulum-v1")
lengths = jnp.linspace(0.5, 1.5, N)  # m
# A leaf with a leading [N] is per row.
params = pendulum.params.replace(l=lengths, g=jnp.full(N, 10.0))
env = jaxvec.wrap(jaxvec.vectorize(pendulum, N, params=params), jaxvec.episode_statistics())


def hang(key: jax.Array, obs: jax.Array) -> jax.Array:
    """Does nothing."""
    return jnp.zeros((N, 1))


carry, (obs, _, step) = jaxvec.rollout(env, hang, jax.random.key(0), T)
speeds = jnp.abs(obs[..., 2]).mean(0)
short, long = speeds[: N // 4].mean(), speeds[-N // 4 :].mean()
print(f"mean speed: {short:.2f} rad/s with short rods, {long:.2f} rad/s with long ones")
assert short > long

# New physics in the middle of a run: the parameters lie in the state.
inner = carry.env_state.env
inner = inner._replace(params=inner.params.replace(g=jnp.zeros_like(inner.params.g)))
carry = carry._replace(env_state=carry.env_state._replace(env=inner))
_, (obs, _, _) = jaxvec.rollout(env, hang, None, 50, start=carry)
assert bool(jnp.allclose(obs[1:, :, 2], obs[:-1, :, 2], atol=1e-5))  # nothing accelerates it
print("without gravity every pendulum keeps its speed")

# The same by SB3's interface, by row numbers.
venv = jaxvec.vec.JaxVecEnv(env, seed=0)
venv.set_attr("g", 3.7, indices=[0, 2])
print("gravity of rows 0 to 3:", venv.get_attr("g", indices=[0, 1, 2, 3]))
assert abs(venv.get_attr("g", 0)[0] - 3.7) < 1e-6
assert abs(venv.get_attr("g", 1)[0] - 10.0) < 1e-6
venv.close()

# A row's trace depends on its own key and parameters only, whatever the other rows have.
state, _ = env.reset(keys_from(hash_key(7), N))
_, alone = env.step(state, jnp.ones((N, 1)))
one = jaxvec.vectorize(pendulum, 1, params=params.replace(l=lengths[:1], g=params.g[:1]))
state, _ = one.reset(keys_from(hash_key(7), 1))
_, single = one.step(state, jnp.ones((1, 1)))
assert bool(jnp.allclose(alone.obs[0], single.obs[0], atol=1e-6))
