"""`make_vec_env`: many monitored environments from an id or a constructor, in one call."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

import gymnasium as gym

from jaxvec.core._arguments import check_count, check_one_of
from jaxvec.errors import MissingExtraError
from jaxvec.vec._base import VecEnv
from jaxvec.vec._classic import DummyVecEnv, SubprocVecEnv
from jaxvec.vec._monitor_env import Monitor
from jaxvec.vec._results import FilePath
from jaxvec.vec._serve import adopted

if TYPE_CHECKING:
    from jaxvec.vec._host import HostVecEnv
    from jaxvec.vec._monitor import VecMonitor

Backend = Literal["dummy", "subproc", "ray", "jax"]
EnvId = str | Callable[..., Any] | tuple[Any, ...]
"""An id, what returns an environment, or a jaxvec.Env or BatchedEnv (records, which are tuples)."""

Keywords = dict[str, Any] | None
V = TypeVar("V")


@overload
def make_vec_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: FilePath | None = None,
    wrapper_class: Callable[..., Any] | None = None,
    env_kwargs: Keywords = None,
    vec_env_cls: None = None,
    vec_env_kwargs: Keywords = None,
    monitor_kwargs: Keywords = None,
    wrapper_kwargs: Keywords = None,
    *,
    backend: Literal["jax"],
) -> "VecMonitor": ...


@overload
def make_vec_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: FilePath | None = None,
    wrapper_class: Callable[..., Any] | None = None,
    env_kwargs: Keywords = None,
    *,
    vec_env_cls: Callable[..., V],
    vec_env_kwargs: Keywords = None,
    monitor_kwargs: Keywords = None,
    wrapper_kwargs: Keywords = None,
    backend: None = None,
) -> V: ...


@overload
def make_vec_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: FilePath | None = None,
    wrapper_class: Callable[..., Any] | None = None,
    env_kwargs: Keywords = None,
    vec_env_cls: None = None,
    vec_env_kwargs: Keywords = None,
    monitor_kwargs: Keywords = None,
    wrapper_kwargs: Keywords = None,
    *,
    backend: Literal["dummy", "subproc", "ray"] | None = None,
) -> "HostVecEnv": ...


def make_vec_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: FilePath | None = None,
    wrapper_class: Callable[..., Any] | None = None,
    env_kwargs: Keywords = None,
    vec_env_cls: Callable[..., Any] | None = None,
    vec_env_kwargs: Keywords = None,
    monitor_kwargs: Keywords = None,
    wrapper_kwargs: Keywords = None,
    *,
    backend: Backend | None = None,
) -> Any:
    """Makes a VecEnv of N monitored environments.

    Args:
      env_id: an id that is registered with gymnasium, or something that returns an environment. For
        `backend="jax"` one of jaxvec.envs, a function that returns a jaxvec.Env, or such an environment.
      n_envs: N.
      seed: of the first environment, at its first reset; environment i gets `seed + i`. Its action space gets
        `seed + start_index + i` at once. None draws one from NumPy's global generator.
      start_index: the number of the first environment, in action seeds and names of monitor files.
      monitor_dir: where the monitor files go; None for none. Episodes are monitored in any case.
      wrapper_class: is put around each environment, outside of its Monitor.
      env_kwargs: for the environments. An id is made with `render_mode="rgb_array"` where it takes that.
      vec_env_cls: what to make of the environments' constructors; None for DummyVecEnv.
      vec_env_kwargs: for the VecEnv; for `backend="jax"` those of `vectorize` too.
      monitor_kwargs: for the Monitors.
      wrapper_kwargs: for the wrappers.
      backend: where the environments run, in place of `vec_env_cls`: "dummy" for this process, "subproc" for
        worker processes, "ray" for actors on a cluster, "jax" for one compiled function, which has a
        VecMonitor around it in place of Monitors within, and one monitor file.

    Returns:
      The VecEnv; its first reset takes the seeds.

    Raises:
      ValueError: if both `vec_env_cls` and `backend` are given, there is no such backend, or
        `backend="jax"` is to wrap each environment.
      UnknownEnvError: if `backend="jax"` has no environment of that id.
      TypeError: if `backend="jax"` does not know an option.
      MissingExtraError: if `backend="ray"` and Ray is not installed.
    """
    if backend is not None:
        check_one_of("make_vec_env", "backend", backend, ("dummy", "subproc", "ray", "jax"))
        if vec_env_cls is not None:
            raise ValueError(
                f"make_vec_env: backend={backend!r} and vec_env_cls={vec_env_cls!r} both say where the "
                "environments run; give one of them."
            )
    n_envs = check_count("make_vec_env", "n_envs", n_envs)
    if seed is not None:
        seed = check_count("make_vec_env", "seed", seed, least=0, most=None)
    recipe = _Recipe(
        env_id,
        seed,
        None if monitor_dir is None else Path(monitor_dir),
        wrapper_class,
        env_kwargs or {},
        monitor_kwargs or {},
        wrapper_kwargs or {},
    )
    options = vec_env_kwargs or {}
    if backend == "jax":
        venv = _compiled(recipe, n_envs, start_index, options)
    else:
        ranks = range(start_index, start_index + n_envs)
        make = vec_env_cls or _vec_env_of(backend)
        venv = make([_Make(recipe, rank) for rank in ranks], **options)
    venv.seed(seed)
    return venv


@overload
def make_atari_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: FilePath | None = None,
    wrapper_kwargs: Keywords = None,
    env_kwargs: Keywords = None,
    *,
    vec_env_cls: Callable[..., V],
    vec_env_kwargs: Keywords = None,
    monitor_kwargs: Keywords = None,
    backend: None = None,
) -> V: ...


@overload
def make_atari_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: FilePath | None = None,
    wrapper_kwargs: Keywords = None,
    env_kwargs: Keywords = None,
    vec_env_cls: None = None,
    vec_env_kwargs: Keywords = None,
    monitor_kwargs: Keywords = None,
    *,
    backend: Backend | None = None,
) -> VecEnv: ...


def make_atari_env(
    env_id: EnvId,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: FilePath | None = None,
    wrapper_kwargs: Keywords = None,
    env_kwargs: Keywords = None,
    vec_env_cls: Callable[..., Any] | None = None,
    vec_env_kwargs: Keywords = None,
    monitor_kwargs: Keywords = None,
    *,
    backend: Backend | None = None,
) -> Any:
    """Makes a VecEnv of N Atari games with the usual preprocessing: SB3's AtariWrapper.

    Args:
      env_id: as for `make_vec_env`, of a game without frame skip (`...NoFrameskip-v4`).
      n_envs: N.
      seed: as for `make_vec_env`, like all that follow.
      start_index: the number of the first environment.
      monitor_dir: where the monitor files go.
      wrapper_kwargs: for the AtariWrapper.
      env_kwargs: for the environments.
      vec_env_cls: what to make of the environments' constructors.
      vec_env_kwargs: for the VecEnv.
      monitor_kwargs: for the Monitors.
      backend: where the environments run.

    Raises:
      MissingExtraError: if Stable-Baselines3 is not installed.
    """
    try:
        wrapper = import_module("stable_baselines3.common.atari_wrappers").AtariWrapper
    except ImportError as error:
        raise MissingExtraError(
            "make_atari_env uses SB3's AtariWrapper, and Stable-Baselines3 is not installed: install "
            "jaxvec[sb3], or pass a wrapper of your own to make_vec_env(wrapper_class=...)."
        ) from error
    make: Callable[..., Any] = (
        make_vec_env  # both of the two that no overload takes together are handed on
    )
    return make(
        env_id,
        n_envs=n_envs,
        seed=seed,
        start_index=start_index,
        monitor_dir=monitor_dir,
        wrapper_class=wrapper,
        env_kwargs=env_kwargs,
        vec_env_cls=vec_env_cls,
        vec_env_kwargs=vec_env_kwargs,
        monitor_kwargs=monitor_kwargs,
        wrapper_kwargs=wrapper_kwargs,
        backend=backend,
    )


class _Recipe(NamedTuple):
    """What all environments have in common; worker processes get it."""

    env_id: EnvId
    seed: int | None
    monitor_dir: Path | None
    wrapper_class: Callable[..., Any] | None
    env_kwargs: dict[str, Any]
    monitor_kwargs: dict[str, Any]
    wrapper_kwargs: dict[str, Any]


class _Make:
    """Makes one environment, wherever it is called."""

    def __init__(self, recipe: _Recipe, rank: int) -> None:
        self._recipe, self._rank = recipe, rank

    def __call__(self) -> gym.Env[Any, Any]:
        """Returns the environment, monitored and wrapped."""
        recipe = self._recipe
        env = _made(recipe.env_id, recipe.env_kwargs)
        if recipe.seed is not None:
            env.action_space.seed(recipe.seed + self._rank)
        folder = recipe.monitor_dir
        filename = None if folder is None else folder / str(self._rank)
        env = Monitor(env, filename=filename, **recipe.monitor_kwargs)
        if recipe.wrapper_class is not None:
            env = recipe.wrapper_class(env, **recipe.wrapper_kwargs)
        return env


def _made(env_id: EnvId, env_kwargs: dict[str, Any]) -> gym.Env[Any, Any]:
    if isinstance(env_id, tuple):
        raise TypeError(
            f'make_vec_env: env_id is a {type(env_id).__name__}, which JAX steps: pass backend="jax".'
        )
    if not isinstance(env_id, str):
        return adopted(env_id(**env_kwargs))
    try:
        return gym.make(env_id, **{"render_mode": "rgb_array", **env_kwargs})
    except TypeError:  # the environment takes no render_mode
        return gym.make(env_id, **env_kwargs)


def _vec_env_of(backend: Backend | None) -> Callable[..., Any]:
    if backend == "ray":
        from jaxvec.vec._ray import RayVecEnv

        return RayVecEnv
    return SubprocVecEnv if backend == "subproc" else DummyVecEnv


def _compiled(recipe: _Recipe, num_envs: int, rank: int, options: dict[str, Any]) -> Any:
    """Returns N environments as one compiled function, monitored."""
    if recipe.wrapper_class is not None or recipe.wrapper_kwargs:
        raise ValueError(
            f"make_vec_env: wrapper_class={recipe.wrapper_class!r} wraps gymnasium environments, and "
            'backend="jax" has none: put layers around the VecEnv (VecTransform), or into the environment '
            "(jaxvec.wrap)."
        )
    # Loaded here only: a worker process that makes classic environments must not load jax.
    venv = import_module("jaxvec.vec._jax_make").compiled_vec_env(
        recipe.env_id,
        num_envs,
        env_kwargs=recipe.env_kwargs,
        vec_env_kwargs=options,
        monitor_kwargs=recipe.monitor_kwargs,
        log=None if recipe.monitor_dir is None else recipe.monitor_dir / str(rank),
    )
    if recipe.seed is not None:
        venv.action_space.seed(recipe.seed + rank)
    return venv
