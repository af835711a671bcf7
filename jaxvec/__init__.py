"""jaxvec: many reinforcement-learning environments behave as one.

    jaxvec.core      the layers: pure functions over columns, NumPy or JAX (also named here)
    jaxvec.envs      JAX-native environments: make, register, vectorize, rollout
    jaxvec.vec       Stable-Baselines3's VecEnv and its wrappers (also named here)
    jaxvec.bridges   to and from other libraries
    jaxvec.spaces    batched spaces, shared memory, sampling under jit
    jaxvec.random    cheap random keys
    jaxvec.testing   the laws that a transform and an environment must hold

Importing this page loads neither jax nor flax: a name is looked up when it is first used.
"""

from importlib import import_module
from typing import Any

from jaxvec._version import __version__

# The table of public names; `__init__.pyi` holds the same for type checkers (a test compares them).
_HOMES = {
    "core._action": ("clip_action", "rescale_action", "sticky_action"),
    "core._append": ("append_last_action", "time_fraction"),
    "core._checks": ("check_finite", "raise_if_not_finite"),
    "core._episode": ("episode_statistics",),
    "core._frame_stack": ("frame_stack",),
    "core._moments": (
        "RunningMoments",
        "init_moments",
        "merge_moments",
        "scale_by_std",
        "standardize",
        "unstandardize",
        "update_moments",
    ),
    "core._normalize": ("normalize_observation", "normalize_reward", "set_training"),
    "core._observation": (
        "cast_observation",
        "extract_key",
        "flatten_observation",
        "one_hot",
        "transpose_image",
    ),
    "core._reward": ("clip_reward", "scale_reward"),
    "core._summary": ("EpisodeSummary", "Spread", "summarize_episodes"),
    "core._transform": ("Timestep", "Transform", "VecSpec", "chain", "named_chain"),
    "envs._env": ("BatchedEnv", "Env"),
    "envs._rollout": ("Policy", "random_policy", "rollout"),
    "envs._shard": ("device_mesh", "shard"),
    "envs._vectorize": ("vectorize",),
    "envs._wrap": ("wrap",),
    "io": ("load", "save"),
    "vec._base": (
        "ColumnVecEnv",
        "VecEnv",
    ),
    "vec._classic": (
        "DummyVecEnv",
        "SubprocVecEnv",
    ),
    "vec._frame_stack": (
        "StackedObservations",
        "VecFrameStack",
    ),
    "vec._host": ("HostVecEnv",),
    "vec._infos": ("Infos",),
    "vec._make": (
        "make_atari_env",
        "make_vec_env",
    ),
    "vec._mean_std": ("RunningMeanStd",),
    "vec._monitor": ("VecMonitor",),
    "vec._monitor_env": ("Monitor",),
    "vec._normalize": ("VecNormalize",),
    "vec._ray": (
        "RayVecEnv",
        "rollout_in_actors",
    ),
    "vec._results": (
        "LoadMonitorResultsError",
        "ResultsWriter",
        "get_monitor_files",
        "load_results",
    ),
    "vec._sync": (
        "sync_envs_normalization",
        "unwrap_vec_normalize",
    ),
    "vec._transform": ("VecTransform",),
    "vec._unwrap": (
        "is_vecenv_wrapped",
        "unwrap_vec_wrapper",
    ),
    "vec._utils": (
        "CloudpickleWrapper",
        "dict_to_obs",
        "obs_space_info",
        "tile_images",
    ),
    "vec._video": ("VecVideoRecorder",),
    "vec._wrapper": ("VecEnvWrapper",),
    "vec._wrappers": (
        "VecCheckNan",
        "VecExtractDictObs",
        "VecTransposeImage",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_MODULES = (
    *("bridges", "core", "envs", "errors", "io", "random", "spaces", "testing", "typing", "vec"),
)

# Type checkers read `__init__.pyi`.
__all__ = ["__version__", *_MODULES, *_HOME_OF]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Imports the home of a public name when it is first used (PEP 562)."""
    if name in _MODULES:
        return import_module(f"jaxvec.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'jaxvec' has no attribute {name!r}")
    value = getattr(import_module(f"jaxvec.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
