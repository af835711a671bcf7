"""A user's program in JAX, for type checkers (`tests/test_types.py`). It runs, too."""

from typing import Any, NamedTuple, assert_type

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import jaxvec
from jaxvec.envs import Carry, make
from jaxvec.typing import Action, Array, Key, Obs, PyTree


class Position(NamedTuple):
    """The state of an environment of one's own."""

    x: jax.Array


class Speed(NamedTuple):
    """Its parameters."""

    speed: float


def reset(key: Key, params: Speed) -> tuple[Position, Obs, dict[str, Any]]:
    x = jax.random.uniform(key, (1,), minval=-2.0, maxval=2.0)
    return Position(x), x, {}


def step(
    key: Key, state: Position, action: Action, params: Speed
) -> tuple[Position, Obs, Array, Array, bool, dict[str, Any]]:
    x = state.x + params.speed * (action - 1.0)
    return Position(x), x, 1.0 - jnp.abs(x[0]), jnp.abs(x[0]) > 3.0, False, {}


walk = jaxvec.Env(
    reset=reset,
    step=step,
    params=Speed(0.1),
    observation_space=spaces.Box(-10.0, 10.0, (1,)),
    action_space=spaces.Discrete(3),
    max_episode_steps=100,
)
assert_type(walk, jaxvec.Env[Position, Speed])
assert_type(walk.params.speed, float)
assert_type(make("CartPole-v1"), jaxvec.Env[Any, Any])


class Counted(NamedTuple):
    """The state of a layer of one's own."""

    ends: Array


def count_ends() -> jaxvec.Transform:
    """A layer that counts the ends of episodes."""

    def init(spec: jaxvec.VecSpec, keys: Key | None = None) -> Counted:
        return Counted(jnp.zeros(spec.num_envs, int))

    def begun(
        state: Counted, timestep: jaxvec.Timestep, mask: Array | None = None
    ) -> tuple[Counted, jaxvec.Timestep]:
        return state, timestep

    def update(state: Counted, timestep: jaxvec.Timestep) -> tuple[Counted, jaxvec.Timestep]:
        ended = timestep.terminated | timestep.truncated
        return Counted(state.ends + ended.astype(int)), timestep

    return jaxvec.Transform(init, begun, update)


env = jaxvec.vectorize(walk, 4)
assert_type(env, jaxvec.BatchedEnv)
env = jaxvec.wrap(env, jaxvec.episode_statistics(), count_ends(), jaxvec.frame_stack(2))
assert_type(env, jaxvec.BatchedEnv)
assert_type(env.spec.num_envs, int)


def policy(key: Key, obs: Obs) -> Action:
    return (obs[:, 0] > 0).astype(int)


carry, (obs, action, timestep) = jaxvec.rollout(env, policy, jax.random.key(0), 10)
assert_type(carry, Carry)
assert_type(timestep, jaxvec.Timestep)
assert (timestep.done == timestep.terminated | timestep.truncated).all()


def total(obs: Obs, action: Action, timestep: jaxvec.Timestep) -> dict[str, jax.Array]:
    return {"reward": jnp.sum(timestep.reward)}


carry, sums = jaxvec.rollout(env, policy, None, 10, start=carry, collect=total)
assert_type(sums, dict[str, jax.Array])


class Weights(NamedTuple):
    """The state of a policy."""

    w: jax.Array


def begin(key: Key, spec: jaxvec.VecSpec) -> Weights:
    return Weights(jnp.zeros(2))


def act(weights: Weights, key: Key, obs: Obs, first: Array) -> tuple[PyTree, Action]:
    return weights, (obs @ weights.w > 0).astype(int)


learner = jaxvec.Policy(begin, act)
carry, _ = jaxvec.rollout(env, learner, jax.random.key(1), 10)
carry = jaxvec.set_training(carry, False)
summary = jaxvec.summarize_episodes(timestep)
assert_type(summary, jaxvec.EpisodeSummary)

venv = jaxvec.vec.JaxVecEnv(env)
assert_type(venv.num_envs, int)
venv.reset()
obs, rewards, dones, infos = venv.step(np.zeros(4, int))
print(rewards.mean(), dones.any(), len(infos))

# Each of these is a mistake: strict mypy would say if one of them passed.
mistakes = False
if mistakes:
    jaxvec.rollout(env, policy, jax.random.key(0), "10")  # type: ignore[call-overload]
    jaxvec.rollout(walk, policy, jax.random.key(0), 10)  # type: ignore[call-overload]
    jaxvec.vectorize(walk)  # type: ignore[call-arg]
    jaxvec.frame_stack("4")  # type: ignore[arg-type]
    print(timestep.no_such_field)  # type: ignore[attr-defined]
    print(walk.params.velocity)  # type: ignore[attr-defined]
