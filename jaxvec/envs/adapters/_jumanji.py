"""jumanji's environments.

All but one of them report their time limit as a termination. Here they run without it, so that what ends
an episode is the task; the limit goes to `vectorize`.
"""

import copy
from inspect import signature
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import (
    as_space,
    library,
    one_action,
    space_of,
    without_wrappers,
    zeros_like_result,
)
from jaxvec.spaces import to_gymnasium_space
from jaxvec.typing import Action, Array, Key, Obs, PyTree

_NEVER = 2**31 - 1
_REPLACED_BY_VECTORIZE = ("AutoResetWrapper", "VmapWrapper", "VmapAutoResetWrapper")


class JumanjiState(NamedTuple):
    """jumanji's own state, and which actions are legal in it."""

    env: PyTree
    action_mask: Array | None  # bool, of the shape that jumanji gives it; None where it has none


def from_jumanji(
    env: Any,
    *,
    observation_space: spaces.Space[Any] | None = None,
) -> Env[Any, Any]:
    """Makes an environment of one of jumanji.

    Observations become dicts. Where they hold an `action_mask` it is `info["action_mask"]` and
    `env_method("action_masks")` too. What jumanji calls extras goes into the info.

    >>> import jaxvec
    >>> env = jaxvec.vectorize(jaxvec.envs.from_jumanji("Game2048-v1"), 64)  # doctest: +SKIP

    Args:
      env: jumanji's environment, without its auto-reset wrapper, or its id for `jumanji.make`.
      observation_space: in place of jumanji's.

    Returns:
      The environment; its time limit is jumanji's `time_limit`, where that is an attribute of it.

    Raises:
      MissingExtraError: if an id came and jumanji is not installed.
      TypeError: if `env` is no environment of jumanji, or a wrapper that resets.
    """
    if isinstance(env, str):
        env = library("from_jumanji", "jumanji", "jumanji").make(env)
    if not all(hasattr(type(env), name) for name in ("reset", "step", "observation_spec")):
        raise TypeError(
            f"from_jumanji: env={env!r} has no reset, step and observation_spec. Pass what "
            "jumanji.make(id) returns, or the id."
        )
    without_wrappers("from_jumanji", env, _REPLACED_BY_VECTORIZE)
    limit = getattr(env, "time_limit", None)
    action_space = space_of(None, lambda: env.action_spec)
    space = space_of(observation_space, lambda: _with_room(env.observation_spec, limit))
    endless = env if limit is None else _with_limit(env, _NEVER)
    rewards_limit = limit is not None and _limit_is_rewarded(env)

    def seen(state: PyTree, timestep: Any) -> tuple[JumanjiState, Obs, dict[str, Any]]:
        mask = getattr(timestep.observation, "action_mask", None)
        info = dict(timestep.extras or {})
        if mask is not None:
            info["action_mask"] = mask
        return JumanjiState(state, mask), as_space(space, timestep.observation), info

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        del params
        state, obs, info = seen(*endless.reset(key))
        # Some extras exist after a step only.
        stepped = zeros_like_result(
            lambda: seen(*endless.step(state.env, one_action(action_space)))[2]
        )
        return state, obs, {**stepped, **info}

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, Any, dict[str, Any]]:
        del key, params  # jumanji's state holds a key of its own
        after, timestep = endless.step(state.env, action)
        reward = timestep.reward
        if rewards_limit:
            reward = env.step(state.env, action)[1].reward
        last = timestep.last()
        over = jnp.all(timestep.discount == 0)
        after, obs, info = seen(after, timestep)
        return after, obs, reward, last & over, last & ~over, info

    opened = jax.eval_shape(lambda: env.reset(jax.random.PRNGKey(0))[1].observation)
    masked = getattr(opened, "action_mask", None) is not None
    return Env(
        reset=reset,
        step=step,
        params=None,
        observation_space=space,
        action_space=action_space,
        max_episode_steps=None if limit is None else int(limit),
        methods={"action_masks": lambda state, params: state.action_mask} if masked else {},
        metadata={"name": f"jumanji:{type(env).__name__}"},
    )


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `jumanji:ID`; options go to `jumanji.make`."""
    env = library(f"make('jumanji:{name}')", "jumanji", "jumanji").make(name, **options)
    return from_jumanji(env)._replace(metadata={"name": f"jumanji:{name}"})


def _with_limit(env: Any, limit: Any) -> Any:
    """Returns a copy of the environment and its wrappers with another time limit."""
    other = copy.copy(env)
    if env.unwrapped is env:
        other.time_limit = limit
    else:
        other._env = _with_limit(env._env, limit)
    return other


def _with_room(spec: Any, limit: int | None) -> spaces.Space[Any]:
    """Returns the space of a spec; some count the steps, and leave the last one of an episode out."""
    space = to_gymnasium_space(spec)
    if isinstance(space, spaces.Dict):
        count = space.spaces.get("step_count")
        if isinstance(count, spaces.Discrete) and count.n == limit:
            return spaces.Dict({**space.spaces, "step_count": spaces.Discrete(int(count.n) + 1)})
    return space


def _limit_is_rewarded(env: Any) -> bool:
    """Tells whether the rewards are scaled by the limit, as in SearchAndRescue."""
    reward_function = getattr(env.unwrapped, "_reward_fn", None)
    return callable(reward_function) and "time_limit" in signature(reward_function).parameters
