"""What SB3's VecEnv page names exists here, and is called in the same way."""

import inspect

import pytest
import stable_baselines3.common.vec_env as sb3
from stable_baselines3.common import env_util, monitor, running_mean_std
from stable_baselines3.common.vec_env import base_vec_env, stacked_observations
from stable_baselines3.common.vec_env.util import dict_to_obs, obs_space_info

import jaxvec.vec as jv

CLASSES = [
    *(sb3.VecEnv, sb3.VecEnvWrapper, sb3.DummyVecEnv, sb3.SubprocVecEnv, sb3.VecNormalize),
    *(sb3.VecMonitor, sb3.VecFrameStack, sb3.VecTransposeImage, sb3.VecCheckNan),
    *(sb3.VecExtractDictObs, sb3.VecVideoRecorder, monitor.Monitor, monitor.ResultsWriter),
    *(running_mean_std.RunningMeanStd, stacked_observations.StackedObservations),
    base_vec_env.CloudpickleWrapper,
]
FUNCTIONS = [
    *(sb3.is_vecenv_wrapped, sb3.unwrap_vec_wrapper, sb3.unwrap_vec_normalize),
    *(sb3.sync_envs_normalization, env_util.make_vec_env, env_util.make_atari_env),
    *(monitor.load_results, monitor.get_monitor_files, base_vec_env.tile_images),
    *(obs_space_info, dict_to_obs),
]


def methods():
    for kind in CLASSES:
        for name, value in inspect.getmembers(kind):
            own = any(
                name in vars(base)
                for base in kind.__mro__
                if "stable_baselines3" in base.__module__
            )
            if own and callable(value) and (name == "__init__" or not name.startswith("_")):
                yield kind, name


def assert_called_alike(ours, theirs):
    """Same names, order and defaults; what jaxvec adds must be passed by keyword, or may be left out."""
    ours, theirs = (list(inspect.signature(each).parameters.values()) for each in (ours, theirs))
    for one, other in zip(ours, theirs, strict=False):
        assert one.name == other.name
        assert one.kind == other.kind
        if other.default is not inspect.Parameter.empty:
            assert one.default == other.default
    assert len(ours) >= len(theirs)
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for added in ours[len(theirs) :]:
        assert added.default is not inspect.Parameter.empty or added.kind in optional


@pytest.mark.parametrize(("kind", "name"), list(methods()), ids=lambda x: getattr(x, "__name__", x))
def test_a_method_is_called_as_sb3s(kind, name):
    ours = getattr(jv, kind.__name__)
    assert_called_alike(getattr(ours, name), getattr(kind, name))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda x: x.__name__)
def test_a_function_is_called_as_sb3s(function):
    assert_called_alike(getattr(jv, function.__name__), function)
