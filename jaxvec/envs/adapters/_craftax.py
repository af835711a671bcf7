"""Craftax and Craftax-Classic."""

from typing import Any

import jax.numpy as jnp

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import (
    beyond_own_limit,
    library,
    one_action,
    space_of,
    zeros_like_result,
)
from jaxvec.typing import Action, Key, Obs, PyTree

_NEVER = 2**31 - 1


def from_craftax(env: Any, params: PyTree = None) -> Env[Any, Any]:
    """Makes an environment of one of Craftax.

    >>> import jaxvec
    >>> env = jaxvec.envs.from_craftax("Craftax-Symbolic-v1")  # doctest: +SKIP
    >>> # A world is dear to make, so that a pool of them is dealt from.
    >>> batched = jaxvec.vectorize(env, 256, reset_source="pool")  # doctest: +SKIP

    Args:
      env: Craftax's environment, with auto-reset or without (it is not used), or its name.
      params: its parameters; None takes its `default_params`. They become `Env.params`, so that each
        row can have its own. A limit `max_timesteps` that is changed there truncates as well.

    Returns:
      The environment; its time limit is `params.max_timesteps`. Craftax's info (its achievements, at
      an episode's end) is handed on.

    Raises:
      MissingExtraError: if a name came and craftax is not installed.
      TypeError: if `env` is no environment of Craftax.
    """
    if isinstance(env, str):
        module = library("from_craftax", "craftax.craftax_env", "craftax")
        env = module.make_craftax_env_from_name(env, auto_reset=False)
    if params is None:
        params = getattr(env, "default_params", None)
    limit: Any = getattr(params, "max_timesteps", None)
    if limit is None or not callable(getattr(env, "step_env", None)):
        raise TypeError(
            f"from_craftax: env={env!r} with params={params!r} has no step_env, or they have no "
            "max_timesteps. Pass what craftax.craftax_env.make_craftax_env_from_name(name, "
            "auto_reset=False) returns, or the name."
        )
    action_space = space_of(None, lambda: env.action_space(params))

    def step_raw(key: Key, state: PyTree, action: Action, params: PyTree) -> Any:
        obs, after, reward, _, info = env.step_env(key, state, action, params)
        never = jnp.full(jnp.shape(limit), _NEVER, jnp.result_type(limit))
        # The same rule without its clock; Craftax keeps no flag in its state.
        terminated = env.is_terminal(after, params.replace(max_timesteps=never))
        return obs, after, reward, terminated, {k: v for k, v in info.items() if k != "discount"}

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        obs, state = env.reset_env(key, params)
        action = one_action(action_space)
        return state, obs, zeros_like_result(lambda: step_raw(key, state, action, params)[4])

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, Any, dict[str, Any]]:
        obs, after, reward, terminated, info = step_raw(key, state, action, params)
        own = params.max_timesteps
        truncated = beyond_own_limit(after.timestep, own, limit)
        return after, obs, reward, terminated, truncated, info

    return Env(
        reset=reset,
        step=step,
        params=params,
        observation_space=space_of(None, lambda: env.observation_space(params)),
        action_space=action_space,
        max_episode_steps=int(limit),
        metadata={"name": f"craftax:{env.name}"},
    )


def make(name: str) -> Env[Any, Any]:
    """Makes `craftax:NAME`, such as `craftax:Craftax-Classic-Symbolic-v1`."""
    return from_craftax(name)._replace(metadata={"name": f"craftax:{name}"})
