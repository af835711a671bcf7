"""Environments for the tests of JaxVecEnv, and a host environment that steps the same physics."""

from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxvec import Env, vectorize
from jaxvec.random import keys_from_seeds
from jaxvec.spaces import sample
from tests.envs.toys import counter

LIMIT = 9  # steps of an episode that does not end before

SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "matrix16": spaces.Box(-1, 1, (2, 2), np.float16),
    "image": spaces.Box(0, 255, (36, 36, 3), np.uint8),
    "discrete": spaces.Discrete(5),
    "multi_binary": spaces.MultiBinary(4),
    "dict": spaces.Dict(
        [("speed", spaces.Box(-1, 1, (2,))), ("image", spaces.Box(0, 255, (2, 2, 1), np.uint8))]
    ),
    "tuple": spaces.Tuple([spaces.Discrete(4), spaces.Box(0, 1, (2,))]),
}


def draws(space: spaces.Space[Any], **record: Any) -> Env[Any, Any]:
    """Draws everything from its keys: observations of a space, rewards, ends of either kind, infos.

    Its state holds an array for each size of word, and typed keys.
    """

    def observed(key: Any, steps: Any) -> Any:
        first, second, third = (jax.random.clone(key) for _ in range(3))  # it draws the same thrice
        state = {
            "key": first,
            "steps": jnp.int32(steps),
            "half": jnp.float16(0.5) * jnp.float16(steps),
            "byte": jnp.uint8(steps),
            "odd": steps % 2 == 1,
        }
        obs = jax.tree.map(lambda leaf: leaf[0], sample(second, space, 1))
        return state, obs, {"draw": jax.random.uniform(third), "at": {"step": steps}}

    def reset(key: Any, params: Any, options: Any = None) -> Any:
        return observed(key, 0)

    def step(key: Any, state: Any, action: Any, params: Any) -> Any:
        state, obs, info = observed(key, state["steps"] + 1)
        drawn = info["draw"]
        return state, obs, drawn - 0.3, drawn < 0.1, drawn < 0.15, info

    fields = {"action_space": spaces.Discrete(2), "max_episode_steps": LIMIT, "params": None}
    return Env(reset, step, observation_space=space, **{**fields, **record})


class Twin(gym.Env):
    """One environment of JAX's as gymnasium has them; it resets itself to what a row would show.

    Args:
      env: the environment.
      reset: of a batch of one, compiled.
      step: the same.
      info_keys: entries of its info to show.
    """

    def __init__(
        self, env: Env[Any, Any], reset: Any, step: Any, info_keys: tuple[str, ...]
    ) -> None:
        self._reset, self._step = reset, step
        self._last: Any = None
        self._info_keys = info_keys
        self.observation_space = env.observation_space
        self.action_space = env.action_space

    def _row(self, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[0], tree)

    def _chosen(self, info: Any) -> Any:
        return {key: self._row(info[key]) for key in self._info_keys}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None or self._last is None:
            self._state, self._last = self._reset(keys_from_seeds([seed or 0]))
        return self._row(self._last.obs), self._chosen(self._last.reset_info)

    def step(self, action: Any) -> Any:
        actions = jax.tree.map(lambda leaf: np.asarray(leaf)[None], action)
        self._state, self._last = self._step(self._state, actions)
        reward, terminated, truncated = (
            self._row(each)
            for each in (self._last.reward, self._last.terminated, self._last.truncated)
        )
        final = self._row(self._last.final_obs)
        return final, reward, terminated, truncated, self._chosen(self._last.info)


def twins(env: Env[Any, Any], count: int, info_keys: tuple[str, ...] = ()) -> Any:
    """Returns constructors of twins, for a DummyVecEnv."""
    batched = vectorize(env, 1)
    reset, step = jax.jit(batched.reset), jax.jit(batched.step)
    return [lambda: Twin(env, reset, step, info_keys)] * count


def random_actions(space: spaces.Space[Any], num_steps: int, num_envs: int, seed: int = 0) -> Any:
    """Returns actions `[T, N, *A]` of a Box, Discrete, MultiDiscrete or MultiBinary space."""
    space.seed(seed)
    return np.array([[space.sample() for _ in range(num_envs)] for _ in range(num_steps)])


__all__ = ["LIMIT", "SPACES", "counter", "draws", "random_actions", "twins"]
