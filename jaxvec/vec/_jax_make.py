"""`make_vec_env(..., backend="jax")`: environments of JAX's with the arguments that SB3's users know."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym

from jaxvec.envs import BatchedEnv, Env, make, vectorize
from jaxvec.errors import UnknownEnvError
from jaxvec.render import is_drawable
from jaxvec.vec._jax import JaxVecEnv
from jaxvec.vec._monitor import VecMonitor

Keywords = Mapping[str, Any]


def compiled_vec_env(
    env_id: Any,
    num_envs: int,
    *,
    env_kwargs: Keywords,
    vec_env_kwargs: Keywords,
    monitor_kwargs: Keywords,
    log: Path | None,
) -> VecMonitor:
    """Makes N environments that are one compiled function, with a VecMonitor around them.

    Args:
      env_id: an id of jaxvec.envs, an `Env`, a `BatchedEnv` of N, or a function that returns either.
      num_envs: N.
      env_kwargs: for what makes the environment. With an id, `render_mode` and `max_episode_steps` are
        taken out of them, as gymnasium.make does; without a `render_mode` there are pictures where
        something can draw them.
      vec_env_kwargs: options of `vectorize` and of `JaxVecEnv`.
      monitor_kwargs: those of a Monitor; of them only `info_keywords` can differ from the default.
      log: the monitor's file; None for none.

    Returns:
      The VecMonitor; its reset still waits for seeds.

    Raises:
      UnknownEnvError: if there is no such id.
      TypeError: if there is no such option, or something else than an environment was made.
      ValueError: if a BatchedEnv has another number of rows, or the Monitor's option is none here.
    """
    options, rest = _split(vec_env_kwargs)
    keywords = _info_keywords(monitor_kwargs)
    if isinstance(env_id, str):
        env_kwargs = dict(env_kwargs)
        for name, target in (("render_mode", rest), ("max_episode_steps", options)):
            if name in env_kwargs:
                target.setdefault(name, env_kwargs.pop(name))
    env = _batched(_made(env_id, env_kwargs), num_envs, options)
    if keywords:
        rest["info_keys"] = tuple(dict.fromkeys((*rest.get("info_keys", ()), *keywords)))
    if "render_mode" not in rest and env.env is not None and is_drawable(env.env):
        rest["render_mode"] = "rgb_array"
    return VecMonitor(JaxVecEnv(env, **rest), log, keywords)


def _made(env_id: Any, env_kwargs: Keywords) -> Any:
    if isinstance(env_id, str):
        try:
            return make(env_id, **env_kwargs)
        except UnknownEnvError as error:
            where = (
                "is an environment of gymnasium's, and" if env_id in gym.registry else "may be one,"
            )
            raise UnknownEnvError(
                f'make_vec_env: backend="jax" has no environment {env_id!r}. It {where} Python steps '
                f'gymnasium\'s: pass backend="dummy" or "subproc". ({error})'
            ) from None
    if not isinstance(env_id, Env | BatchedEnv):
        return env_id(**env_kwargs)
    if env_kwargs:
        raise TypeError(
            f"make_vec_env: env_kwargs={dict(env_kwargs)} are for what makes an environment, but env_id is "
            f"one already ({type(env_id).__name__}). Give them to its maker."
        )
    return env_id


def _batched(env: Any, num_envs: int, options: Keywords) -> BatchedEnv:
    if isinstance(env, Env):
        return vectorize(env, num_envs, **options)
    if not isinstance(env, BatchedEnv):
        raise TypeError(
            f'make_vec_env: env_id made {type(env).__name__}, but backend="jax" needs a jaxvec.Env, or a '
            'BatchedEnv; for a gymnasium.Env pass backend="dummy" or "subproc".'
        )
    if options:
        raise TypeError(
            f"make_vec_env: vec_env_kwargs has {list(options)} for vectorize, but env_id is vectorized "
            "already. Give them there."
        )
    if env.spec.num_envs != num_envs:
        raise ValueError(
            f"make_vec_env: n_envs={num_envs}, but env_id is a BatchedEnv of {env.spec.num_envs} rows; "
            "pass that number."
        )
    return env


def _split(vec_env_kwargs: Keywords) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the options of `vectorize` and those of `JaxVecEnv`."""
    ours, others = (
        [name for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY]
        for parameters in (inspect.signature(each).parameters for each in (vectorize, JaxVecEnv))
    )
    ours.remove("autoreset_mode")  # a VecEnv has one mode only
    unknown = [name for name in vec_env_kwargs if name not in (*ours, *others)]
    if unknown:
        raise TypeError(
            f'make_vec_env: vec_env_kwargs has {unknown}; with backend="jax" it may have {others} for '
            f"JaxVecEnv and {ours} for vectorize."
        )
    options = {name: value for name, value in vec_env_kwargs.items() if name in ours}
    return options, {name: value for name, value in vec_env_kwargs.items() if name in others}


def _info_keywords(monitor_kwargs: Keywords) -> tuple[str, ...]:
    """Returns a Monitor's `info_keywords`; its other options, a VecMonitor does not have."""
    usual = {"allow_early_resets": True, "reset_keywords": (), "override_existing": True}
    for name, value in monitor_kwargs.items():
        if name not in ("info_keywords", *usual):
            raise TypeError(
                f"make_vec_env: monitor_kwargs has {name!r}, but a Monitor has info_keywords, "
                f"{', '.join(usual)}."
            )
        if name in usual and usual[name] != (tuple(value) if name == "reset_keywords" else value):
            raise ValueError(
                f'make_vec_env: monitor_kwargs has {name}={value!r}, but with backend="jax" a VecMonitor '
                f"stands in for the Monitors, and it knows {name}={usual[name]!r} only."
            )
    return tuple(monitor_kwargs.get("info_keywords", ()))
