"""Stable-Baselines3's VecEnv: N environments that are stepped as one, and everything around them.

Importing this page loads neither jax nor flax nor torch: a worker process imports it.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "_base": ("ColumnVecEnv", "VecEnv"),
    "_classic": ("DummyVecEnv", "SubprocVecEnv"),
    "_host": ("HostVecEnv",),
    "_frame_stack": ("StackedObservations", "VecFrameStack"),
    "_infos": ("Infos",),
    "_jax": ("JaxVecEnv",),
    "_make": ("make_atari_env", "make_vec_env"),
    "_mean_std": ("RunningMeanStd",),
    "_monitor": ("VecMonitor",),
    "_monitor_env": ("Monitor",),
    "_normalize": ("VecNormalize",),
    "_ray": ("RayVecEnv", "rollout_in_actors"),
    "_results": ("LoadMonitorResultsError", "ResultsWriter", "get_monitor_files", "load_results"),
    "_sync": ("sync_envs_normalization", "unwrap_vec_normalize"),
    "_transform": ("VecTransform",),
    "_unwrap": ("is_vecenv_wrapped", "unwrap_vec_wrapper"),
    "_video": ("VecVideoRecorder",),
    "_wrapper": ("VecEnvWrapper",),
    "_wrappers": ("VecCheckNan", "VecExtractDictObs", "VecTransposeImage"),
    "_utils": ("CloudpickleWrapper", "dict_to_obs", "obs_space_info", "tile_images"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME_OF)  # pyright: ignore[reportUnsupportedDunderAll]  # it reads `__init__.pyi`


def __getattr__(name: str) -> Any:
    """Imports the home of a public name when it is first used (PEP 562)."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'jaxvec.vec' has no attribute {name!r}")
    value = getattr(import_module(f"jaxvec.vec.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
