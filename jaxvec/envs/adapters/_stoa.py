"""stoa: a common interface that brings adapters of its own."""

from typing import Any

from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import (
    as_space,
    one_action,
    space_of,
    without_wrappers,
    zeros_like_result,
)
from jaxvec.typing import Action, Key, Obs, PyTree

_REPLACED_BY_VECTORIZE = (
    "AutoResetWrapper",
    "CachedAutoResetWrapper",
    "OptimisticResetVmapWrapper",
    "VmapWrapper",
)


def from_stoa(
    env: Any,
    params: PyTree = None,
    *,
    max_episode_steps: int | None = None,
    observation_space: spaces.Space[Any] | None = None,
) -> Env[Any, Any]:
    """Makes an environment of one of stoa.

    Args:
      env: stoa's environment, without a wrapper that resets or batches.
      params: what its `reset` and `step` get as `env_params`; they become `Env.params`.
      max_episode_steps: the time limit that `vectorize` sets, beside one of stoa's own.
      observation_space: in place of stoa's.

    Returns:
      The environment. What stoa truncates is truncated, what it calls extras is the info.

    Raises:
      TypeError: if `env` is no environment of stoa, or a wrapper that resets or batches.
    """
    if not callable(getattr(env, "observation_space", None)):
        raise TypeError(
            f"from_stoa: env={env!r} has no observation_space(). Pass an instance of stoa.Environment."
        )
    without_wrappers("from_stoa", env, _REPLACED_BY_VECTORIZE)
    space = space_of(observation_space, lambda: env.observation_space(params))
    action_space = space_of(None, lambda: env.action_space(params))

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        state, timestep = env.reset(key, params)
        action = one_action(action_space)
        stepped = zeros_like_result(lambda: env.step(state, action, params)[1].extras)
        info = {**stepped, **timestep.extras}
        return state, as_space(space, timestep.observation), info

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, Any, dict[str, Any]]:
        del key  # stoa's states hold what they draw from
        after, timestep = env.step(state, action, params)
        obs = as_space(space, timestep.observation)
        ends = timestep.terminated(), timestep.truncated()
        return after, obs, timestep.reward, *ends, dict(timestep.extras)

    return Env(
        reset=reset,
        step=step,
        params=params,
        observation_space=space,
        action_space=action_space,
        max_episode_steps=max_episode_steps,
        metadata={"name": f"stoa:{type(env.unwrapped).__name__}"},
    )
