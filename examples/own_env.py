"""An environment of one's own, checked, and solved.

    python examples/own_env.py

A point on a line is pushed left or right and shall reach the middle. The environment is two pure functions
and two spaces; time limit, reset and batching are not its business. `cross_entropy` is the whole of a learner
that finds a linear policy, in the policy's state, so that new weights compile nothing.
"""

import jax
import jax.numpy as jnp
from gymnasium import spaces

import jaxvec

N, T = 64, 50


def reset(key: jax.Array, params: dict[str, float]) -> tuple[jax.Array, jax.Array, dict]:
    """Starts at rest, anywhere in [-1, 1]."""
    state = jnp.stack([jax.random.uniform(key, minval=-1.0), 0.0])  # position, velocity
    return state, state, {}


def step(
    key: jax.Array, state: jax.Array, action: jax.Array, params: dict[str, float]
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, bool, dict]:
    """Pushes, with friction; out of sight is the end."""
    velocity = 0.9 * state[1] + params["force"] * jnp.clip(action[0], -1, 1)
    state = jnp.stack([state[0] + velocity, velocity])
    return state, state, -jnp.abs(state[0]), jnp.abs(state[0]) > 3, False, {}


point = jaxvec.Env(
    reset=reset,
    step=step,
    params={"force": 0.05},
    observation_space=spaces.Box(-10, 10, (2,)),
    action_space=spaces.Box(-1, 1, (1,)),
    max_episode_steps=T,
)
report = jaxvec.testing.check_env(point)  # raises where a law does not hold
print(*(law.name for law in report.laws), sep="\n")

env = jaxvec.wrap(jaxvec.vectorize(point, N), jaxvec.episode_statistics())


def act(weights: jax.Array, key: jax.Array, obs: jax.Array, first: jax.Array) -> tuple:
    """A linear policy for each row, so that one rollout tries N of them."""
    return weights, (weights * obs).sum(-1, keepdims=True)


policy = jaxvec.Policy(init=lambda key, spec: jnp.zeros((N, 2)), act=act)


def cross_entropy(generations: int) -> tuple[jax.Array, list[float]]:
    """Returns the mean of the last generation's best weights, and all mean returns."""
    mean, deviation, history = jnp.zeros(2), 3 * jnp.ones(2), []
    start = jaxvec.envs.begin(env, policy, jax.random.key(0))
    for generation in range(generations):
        draws = jax.random.normal(jax.random.key(generation), (N, 2))
        tried = start._replace(policy_state=mean + deviation * draws)
        _, (_, _, timestep) = jaxvec.rollout(env, policy, None, T, start=tried)
        first_end = timestep.done.argmax(0)  # each row's first episode counts
        returns = timestep.info["episode"]["r"][first_end, jnp.arange(N)]
        returns = jnp.where(timestep.terminated[first_end, jnp.arange(N)], -1000, returns)
        best = jnp.argsort(returns)[-N // 8 :]
        mean, deviation = tried.policy_state[best].mean(0), tried.policy_state[best].std(0) + 0.1
        history.append(float(jnp.median(returns)))
    return mean, history


weights, history = cross_entropy(15)
print("median return by generation:", [round(each, 1) for each in history])
print("weights of position and velocity:", weights)
assert weights[0] < 0  # it pushes back
assert history[-1] > -8 > history[0]
