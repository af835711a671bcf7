"""XLand-MiniGrid: rooms with rules that differ by task."""

from typing import Any

import jax
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import library, space_of_avals, without_wrappers
from jaxvec.typing import Action, Key, Obs, PyTree

_REPLACED_BY_VECTORIZE = ("GymAutoResetWrapper", "DmEnvAutoResetWrapper")


def from_xminigrid(env: Any, params: PyTree = None) -> Env[Any, Any]:
    """Makes an environment of one of XLand-MiniGrid.

    >>> import xminigrid, jaxvec  # doctest: +SKIP
    >>> env = jaxvec.envs.from_xminigrid(*xminigrid.make("MiniGrid-Empty-8x8"))  # doctest: +SKIP
    >>> batched = jaxvec.vectorize(env, 64)  # doctest: +SKIP

    Args:
      env: xminigrid's environment, without a wrapper that resets, or its id for `xminigrid.make`.
      params: its parameters; None takes those of `xminigrid.make` or the environment's defaults. They
        become `Env.params`: a ruleset in them can differ by row, sizes and the time limit cannot.

    Returns:
      The environment; its time limit is `params.max_steps`. Its state is xminigrid's timestep.

    Raises:
      MissingExtraError: if an id came and xminigrid is not installed.
      TypeError: if `env` is no environment of xminigrid, or a wrapper that resets.
    """
    if isinstance(env, str):
        env, made_params = library("from_xminigrid", "xminigrid", "xminigrid").make(env)
        params = made_params if params is None else params
    if not callable(getattr(env, "default_params", None)):
        raise TypeError(
            f"from_xminigrid: env={env!r} has no default_params. Pass what xminigrid.make(id) returns "
            "first, or the id."
        )
    without_wrappers("from_xminigrid", env, _REPLACED_BY_VECTORIZE)
    if params is None:
        params = env.default_params()

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        timestep = env.reset(params, key)
        return timestep, timestep.observation, {}

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, bool, dict[str, Any]]:
        del key  # nothing is drawn after a reset
        after = env.step(params, state, action)
        # At the time limit the discount stays 1; when that is, is vectorize's to say.
        terminated = after.last() & (after.discount == 0)
        return after, after.observation, after.reward, terminated, False, {}

    opened = jax.eval_shape(lambda: env.reset(params, jax.random.PRNGKey(0)).observation)
    return Env(
        reset=reset,
        step=step,
        params=params,
        observation_space=space_of_avals(opened),
        action_space=spaces.Discrete(int(env.num_actions(params))),
        max_episode_steps=None if params.max_steps is None else int(params.max_steps),
        metadata={"name": f"xminigrid:{type(env).__name__}"},
    )


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `xminigrid:ID`; options go to `xminigrid.make`."""
    module = library(f"make('xminigrid:{name}')", "xminigrid", "xminigrid")
    env = from_xminigrid(*module.make(name, **options))
    return env._replace(metadata={"name": f"xminigrid:{name}"})
