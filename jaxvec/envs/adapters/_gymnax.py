"""gymnax's environments, of its versions 0.0.9 and 1.x.

Their `step` resets by itself: it computes a reset in every step, loses the last observation (0.0.9), and
0.0.9 merges the time limit into the termination. Here `step_env` runs with the limit out of its sight, so
that its flag is the environment's own rule alone; the limit goes to `vectorize`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import (
    beyond_own_limit,
    library,
    one_action,
    space_holding,
    space_of,
    zeros_like_result,
)
from jaxvec.envs.adapters._dependence import depends
from jaxvec.typing import Action, Array, Key, Obs, PyTree

_NEVER = 2**31 - 1
_SAID_ELSEWHERE = ("discount", "terminated", "truncated", "final_observation")
_LIMIT = "max_steps_in_episode"


def from_gymnax(
    env: Any,
    params: PyTree = None,
    *,
    observation_space: spaces.Space[Any] | None = None,
) -> Env[Any, Any]:
    """Makes an environment of one of gymnax.

    >>> import gymnax, jaxvec
    >>> env, params = gymnax.make("CartPole-v1")
    >>> batched = jaxvec.vectorize(jaxvec.envs.from_gymnax(env, params), 64)

    Args:
      env: gymnax's environment, or its name for `gymnax.make`.
      params: its parameters; None takes its `default_params`. They become `Env.params`, so that each
        row can have its own. A limit `max_steps_in_episode` that is changed there truncates as well.
      observation_space: in place of gymnax's, which some of its environments leave (Catch, FourRooms,
        GaussianBandit, MemoryChain).

    Returns:
      The environment; its time limit is `params.max_steps_in_episode`. Entries of gymnax's info that
      say what the columns say already (such as "discount") are left out.

    Raises:
      MissingExtraError: if a name came and gymnax is not installed.
      TypeError: if `env` is no environment of gymnax.
    """
    if isinstance(env, str):
        env, made_params = library("from_gymnax", "gymnax", "gymnax").make(env)
        params = made_params if params is None else params
    if not callable(getattr(env, "step_env", None)) or not callable(
        getattr(env, "reset_env", None)
    ):
        raise TypeError(
            f"from_gymnax: env={env!r} has no step_env and reset_env. Pass what gymnax.make(name) "
            "returns first, or its name."
        )
    if params is None:
        params = env.default_params
    limit: Any = getattr(params, _LIMIT, None)  # parameters of a user's own may have none
    action_space = space_of(None, lambda: env.action_space(params))
    observed = limit is not None and _limit_is_observed(env, params, action_space)

    def out_of_sight(params: PyTree) -> PyTree:
        if limit is None:
            return params
        # The limit keeps its kind of number: a parameter of one row may be float32.
        never = jnp.full(jnp.shape(limit), _NEVER, jnp.result_type(limit))
        return params.replace(**{_LIMIT: never})

    def step_raw(key: Key, state: PyTree, action: Action, params: PyTree) -> Any:
        obs, after, reward, terminated, info = env.step_env(
            key, state, action, out_of_sight(params)
        )
        if observed:  # the compiler drops all that is computed twice
            obs = env.step_env(key, state, action, params)[0]
        return obs, after, reward, terminated, _own_info(info)

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        obs, state = env.reset_env(key, params)
        info = zeros_like_result(lambda: step_raw(key, state, one_action(action_space), params)[4])
        return state, obs, info

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, Any, dict[str, Any]]:
        obs, after, reward, terminated, info = step_raw(key, state, action, params)
        truncated: Any = False
        if limit is not None:
            own = getattr(params, _LIMIT)
            truncated = beyond_own_limit(after.time, own, limit)
        return after, obs, reward, terminated, truncated, info

    space = space_of(observation_space, lambda: env.observation_space(params))
    obs = jax.eval_shape(lambda key: env.reset_env(key, params)[0], jax.random.PRNGKey(0))
    return Env(
        reset=reset,
        step=step,
        params=params,
        observation_space=space_holding(space, obs),
        action_space=action_space,
        max_episode_steps=None if limit is None else int(limit),
        metadata={"name": f"gymnax:{env.name}"},
    )


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `gymnax:NAME`; options go to gymnax's environment."""
    env, params = library(f"make('gymnax:{name}')", "gymnax", "gymnax").make(name, **options)
    return from_gymnax(env, params)


def _own_info(info: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in info.items() if key not in _SAID_ELSEWHERE}


def _limit_is_observed(env: Any, params: PyTree, action_space: spaces.Space[Any]) -> bool:
    """Tells whether the limit shows in what is observed, as in DiscountingChain."""

    def observed(limit: Array) -> Obs:
        key = jax.random.PRNGKey(0)
        seen = params.replace(**{_LIMIT: limit})
        _, state = env.reset_env(key, seen)
        return env.step_env(key, state, one_action(action_space), seen)[0]

    return depends(observed, jnp.asarray(getattr(params, _LIMIT)))
