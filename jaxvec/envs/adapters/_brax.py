"""brax, and MuJoCo Playground and CRAX, whose environments have brax's shape.

Their training wrappers go back to a cached first state at an episode's end, lose the last observation and
take raw keys only. Here the environment beneath them is stepped; `vectorize` does the rest.
"""

import copy
from collections.abc import Sequence
from typing import Any

import jax

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import library
from jaxvec.spaces import space_of_size
from jaxvec.typing import Action, Key, Obs, PyTree

_REPLACED_BY_VECTORIZE = (
    "AutoResetWrapper",
    "BraxAutoResetWrapper",
    "EpisodeWrapper",
    "VmapWrapper",
)


def from_brax(
    env: Any, *, max_episode_steps: int | None = 1000, info_keys: Sequence[str] = ()
) -> Env[Any, Any]:
    """Makes an environment of one of brax.

    >>> import jaxvec
    >>> env = jaxvec.vectorize(jaxvec.envs.from_brax("inverted_pendulum"), 64)  # doctest: +SKIP

    Args:
      env: brax's environment, or its name for `brax.envs.get_environment`. Wrappers that reset, count
        steps or batch are taken off; others stay.
      max_episode_steps: the time limit that `vectorize` sets; 1000 is that of `brax.envs.create`. The
        length of an `EpisodeWrapper` that was taken off goes before it.
      info_keys: entries of brax's `state.info` to hand on; they lie in the state anyway.

    Returns:
      The environment. Its parameters are brax's `System` (where there is one), so that each row can have
      its own masses and frictions. brax's metrics are `info["metrics"]`.

    Raises:
      MissingExtraError: if a name came and brax is not installed.
      TypeError: if `env` is no environment of brax.
      ValueError: if a wrapper that repeats actions came: that is `vectorize(action_repeat=...)`.
    """
    if isinstance(env, str):
        env = library("from_brax", "brax.envs", "brax").get_environment(env)
    return _from_states("brax", env, "sys", max_episode_steps, info_keys)


def from_crax(
    env: Any, *, max_episode_steps: int | None = None, info_keys: Sequence[str] = ()
) -> Env[Any, Any]:
    """Makes an environment of one of CRAX, safe reinforcement learning on brax's physics.

    Args:
      env: CRAX's environment, or its name for `crax.envs.get_environment`. Wrappers that reset, count
        steps or batch are taken off; others stay.
      max_episode_steps: the time limit that `vectorize` sets, if it is not to be the environment's own
        `episode_length` (where it has one).
      info_keys: entries of `state.info` to hand on; they lie in the state anyway.

    Returns:
      The environment; what a step costs is `info["metrics"]["cost"]`. Its parameters are the `System`.

    Raises:
      MissingExtraError: if a name came and CRAX is not installed.
      TypeError: if `env` is no environment of CRAX.
      ValueError: if a wrapper that repeats actions came: that is `vectorize(action_repeat=...)`.
    """
    if isinstance(env, str):
        env = library("from_crax", "crax.envs", "crax").get_environment(env)
    limit = max_episode_steps
    if limit is None:
        limit = getattr(getattr(env, "unwrapped", env), "episode_length", None)
    return _from_states("crax", env, "sys", limit, info_keys)


def from_playground(
    env: Any,
    *,
    max_episode_steps: int | None = None,
    info_keys: Sequence[str] = (),
) -> Env[Any, Any]:
    """Makes an environment of one of MuJoCo Playground.

    Args:
      env: Playground's environment, or its name for `mujoco_playground.registry.load`. Wrappers that
        reset, count steps or batch are taken off; others stay.
      max_episode_steps: the time limit that `vectorize` sets, if it is not to be the `episode_length`
        of the environment's configuration.
      info_keys: entries of `state.info` to hand on; they lie in the state anyway.

    Returns:
      The environment. Its parameters are the MJX model, so that each row can have its own. Metrics
      are `info["metrics"]`.

    Raises:
      MissingExtraError: if a name came and MuJoCo Playground is not installed.
      TypeError: if `env` is no environment of MuJoCo Playground.
      ValueError: if a wrapper that repeats actions came: that is `vectorize(action_repeat=...)`.
    """
    if isinstance(env, str):
        registry = library("from_playground", "mujoco_playground", "playground").registry
        env = registry.load(env)
    limit = max_episode_steps
    if limit is None:
        config = getattr(getattr(env, "unwrapped", env), "_config", {})
        limit = config.get("episode_length")
    return _from_states("playground", env, "_mjx_model", limit, info_keys)


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `brax:NAME`; options go to brax's environment."""
    env = library(f"make('brax:{name}')", "brax.envs", "brax").get_environment(name, **options)
    return from_brax(env)._replace(metadata={"name": f"brax:{name}"})


def make_crax(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `crax:NAME`; options go to `crax.envs.get_environment`, such as `level=2`."""
    env = library(f"make('crax:{name}')", "crax.envs", "crax").get_environment(name, **options)
    return from_crax(env)._replace(metadata={"name": f"crax:{name}"})


def make_playground(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `playground:NAME`; options go to `mujoco_playground.registry.load`."""
    registry = library(f"make('playground:{name}')", "mujoco_playground", "playground").registry
    env = from_playground(registry.load(name, **options))
    return env._replace(metadata={"name": f"playground:{name}"})


def _from_states(
    where: str, env: Any, model: str, limit: int | None, info_keys: Sequence[str]
) -> Env[Any, Any]:
    """Makes an environment of one that goes from state to state; `model` is where its physics lie."""
    if not all(hasattr(type(env), name) for name in ("reset", "step", "action_size")):
        raise TypeError(
            f"from_{where}: env={env!r} is no environment of {where}, which has reset, step and "
            "action_size. Pass one, or its name."
        )
    env, limit = _bare(where, env, limit)
    params = getattr(env.unwrapped, model, None)

    def under(params: PyTree) -> Any:
        return env if params is default else _with_model(env, model, params)

    default = params

    def seen(state: Any) -> tuple[PyTree, Obs, dict[str, Any]]:
        info = {"metrics": dict(state.metrics)} if state.metrics else {}
        obs = state.obs
        obs = dict(obs) if isinstance(space_size, dict) else obs
        return state, obs, {**info, **{key: state.info[key] for key in info_keys}}

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        return seen(under(params).reset(key))

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, bool, dict[str, Any]]:
        del key  # what brax draws after a reset comes from a key in its own state
        after, obs, info = seen(under(params).step(state, action))
        return after, obs, after.reward, after.done > 0.5, False, info

    opened = jax.eval_shape(lambda: env.reset(jax.random.PRNGKey(0)).obs)
    space_size = jax.tree.map(lambda aval: aval.shape, opened)
    if not isinstance(opened, jax.ShapeDtypeStruct):
        space_size = {key: tuple(aval.shape) for key, aval in opened.items()}
    return Env(
        reset=reset,
        step=step,
        params=params,
        observation_space=space_of_size(space_size),
        action_space=space_of_size(env.action_size, -1.0, 1.0),
        max_episode_steps=limit,
        metadata={"name": f"{where}:{type(env.unwrapped).__name__}"},
    )


def _bare(where: str, env: Any, limit: int | None) -> tuple[Any, int | None]:
    """Takes off, from the outside, what `vectorize` does; returns the rest and the time limit."""
    while type(env).__name__ in _REPLACED_BY_VECTORIZE:
        if type(env).__name__ == "EpisodeWrapper":
            limit = int(env.episode_length)
            if env.action_repeat != 1:
                raise ValueError(
                    f"from_{where}: an EpisodeWrapper with action_repeat={env.action_repeat} came; "
                    "pass the environment beneath it, and action_repeat to vectorize."
                )
        env = env.env
    return env, limit


def _with_model(env: Any, name: str, model: PyTree) -> Any:
    """Returns a copy of the environment and its wrappers with other physics; `env` stays as it is."""
    other = copy.copy(env)
    if env.unwrapped is env:
        setattr(other, name, model)
    else:
        other.env = _with_model(env.env, name, model)
    return other
