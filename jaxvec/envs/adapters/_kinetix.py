"""Kinetix: tasks of two-dimensional physics, drawn by a function of the user's."""

from typing import Any

import jax.numpy as jnp
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import (
    as_space,
    beyond_own_limit,
    one_action,
    space_of,
    zeros_like_result,
)
from jaxvec.typing import Action, Key, Obs, PyTree

_NEVER = 2**31 - 1


def from_kinetix(
    env: Any, params: PyTree = None, *, observation_space: spaces.Space[Any] | None = None
) -> Env[Any, Any]:
    """Makes an environment of one of Kinetix.

    Its resets are dear where they draw a level: `vectorize(..., reset_source="pool")` draws some once.

    Args:
      env: what `kinetix.environment.make_kinetix_env` returns, with a `reset_fn`; whether it resets by
        itself makes no difference, as its raw step is used.
      params: its parameters; None takes its `default_params`. They become `Env.params`, so that each
        row can have its own. A limit `max_timesteps` that is changed there truncates as well.
      observation_space: in place of Kinetix's.

    Returns:
      The environment; its time limit is `params.max_timesteps`, which Kinetix merges into its
      termination. Kinetix's info is handed on.

    Raises:
      TypeError: if `env` is no environment of Kinetix.
    """
    if not callable(getattr(env, "engine_step", None)):
        raise TypeError(
            f"from_kinetix: env={env!r} has no engine_step. Pass what "
            "kinetix.environment.make_kinetix_env(...) returns."
        )
    if params is None:
        params = env.default_params
    limit: Any = params.max_timesteps
    action_space = space_of(None, lambda: env.action_space(params))
    space = space_of(observation_space, lambda: env.observation_space(params))

    def step_raw(key: Key, state: PyTree, action: Action, params: PyTree) -> Any:
        # Out of the step's sight, so that what it calls done is the task's own end.
        never = jnp.full(jnp.shape(limit), _NEVER, jnp.result_type(limit))
        return env.step_env(key, state, action, params.replace(max_timesteps=never))

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        obs, state = env.reset_env(key, params, None)
        action = one_action(action_space)
        info = zeros_like_result(lambda: step_raw(key, state, action, params)[4])
        return state, as_space(space, obs), dict(info)

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, Any, dict[str, Any]]:
        obs, after, reward, terminated, info = step_raw(key, state, action, params)
        own = params.max_timesteps
        truncated = beyond_own_limit(after.timestep, own, limit)
        return after, as_space(space, obs), reward, terminated, truncated, dict(info)

    return Env(
        reset=reset,
        step=step,
        params=params,
        observation_space=space,
        action_space=action_space,
        max_episode_steps=int(limit),
        metadata={"name": f"kinetix:{type(env).__name__}"},
    )
