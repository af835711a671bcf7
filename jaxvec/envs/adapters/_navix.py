"""navix: MiniGrid's rooms in JAX."""

from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import library, one_action, space_of, zeros_like_result
from jaxvec.envs.adapters._dependence import depends
from jaxvec.typing import Action, Key, Obs, PyTree


def from_navix(env: Any, *, observation_space: spaces.Space[Any] | None = None) -> Env[Any, Any]:
    """Makes an environment of one of navix.

    >>> import jaxvec
    >>> env = jaxvec.vectorize(jaxvec.envs.from_navix("Navix-Empty-8x8-v0"), 64)  # doctest: +SKIP

    Args:
      env: navix's environment, or its id for `navix.make`. Its own reset, which takes a step of its own,
        is switched off.
      observation_space: in place of navix's.

    Returns:
      The environment; its time limit is `max_steps`. Its state is navix's timestep, without the drawn
      background where no observation is a picture: that would be the largest part of it. navix's info
      is handed on.

    Raises:
      MissingExtraError: if an id came and navix is not installed.
      TypeError: if `env` is no environment of navix.
    """
    if isinstance(env, str):
        env = library("from_navix", "navix", "navix").make(env)
    if getattr(env, "disable_autoreset", None) is None:
        raise TypeError(
            f"from_navix: env={env!r} has no disable_autoreset. Pass what navix.make(id) returns, or "
            "the id."
        )
    env = env.replace(disable_autoreset=True)
    action_space = space_of(None, lambda: env.action_space)
    opened = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    draws = _cache_is_read(env, action_space)

    def seen(timestep: Any) -> tuple[PyTree, Obs, dict[str, Any]]:
        kept = timestep if draws else _with_cache(timestep, None)
        return kept, timestep.observation, dict(timestep.info)

    def step_raw(timestep: Any, action: Action) -> Any:
        if not draws:
            nothing = jax.tree.map(
                lambda aval: jnp.zeros(aval.shape, aval.dtype), opened.state.cache
            )
            timestep = _with_cache(timestep, nothing)
        return env.step(timestep, action)

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        del params
        timestep, obs, info = seen(env.reset(key))
        stepped = zeros_like_result(lambda: step_raw(timestep, one_action(action_space)).info)
        info = {**stepped, **info}
        return timestep.replace(info=info), obs, info

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, bool, dict[str, Any]]:
        del key, params  # navix's state holds a key of its own
        after = step_raw(state, action)
        kept, obs, info = seen(after)
        # Whether the time is up is vectorize's to say.
        return kept, obs, after.reward, after.is_termination(), False, info

    return Env(
        reset=reset,
        step=step,
        params=None,
        observation_space=space_of(observation_space, lambda: env.observation_space),
        action_space=action_space,
        max_episode_steps=int(env.max_steps),
        metadata={"name": f"navix:{type(env).__name__}"},
    )


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `navix:ID`; options go to `navix.make`."""
    env = library(f"make('navix:{name}')", "navix", "navix").make(name, **options)
    return from_navix(env)._replace(metadata={"name": f"navix:{name}"})


def _with_cache(timestep: Any, cache: PyTree) -> Any:
    return timestep.replace(state=timestep.state.replace(cache=cache))


def _cache_is_read(env: Any, action_space: spaces.Space[Any]) -> bool:
    """Tells whether anything but the drawn background itself follows from it."""
    key = jax.random.PRNGKey(0)
    cache = jax.eval_shape(env.reset, key).state.cache

    def all_else(cache: PyTree) -> PyTree:
        timestep = _with_cache(env.reset(key), cache)
        return _with_cache(env.step(timestep, one_action(action_space)), None)

    return depends(all_else, cache)
