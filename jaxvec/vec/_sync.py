"""Normalization found and copied between a training and an evaluation environment."""

from copy import deepcopy
from typing import Any

from jaxvec.vec._normalize import VecNormalize
from jaxvec.vec._sb3 import namesakes
from jaxvec.vec._unwrap import unwrap_vec_wrapper
from jaxvec.vec._wrapper import VecEnvWrapper


def unwrap_vec_normalize(env: Any) -> VecNormalize | None:
    """Returns the outermost VecNormalize, jaxvec's or SB3's; None if there is none."""
    return unwrap_vec_wrapper(env, VecNormalize)


def sync_envs_normalization(env: Any, eval_env: Any) -> None:
    """Copies the statistics of every VecNormalize to the one at the same place in another stack.

    Args:
      env: the one that trains.
      eval_env: the one that evaluates, wrapped in the same way.

    Raises:
      AssertionError: if the wrappers do not correspond, or one normalizes observations and its
        counterpart does not.
    """
    wrapper, normalize = namesakes(VecEnvWrapper), namesakes(VecNormalize)
    while isinstance(env, wrapper):
        assert isinstance(eval_env, wrapper), (
            f"sync_envs_normalization: the training env has the wrapper {type(env).__name__} where the "
            f"evaluation env is {eval_env}, no wrapper. Wrap both in the same way."
        )
        if isinstance(env, normalize):
            assert isinstance(eval_env, normalize), (
                "sync_envs_normalization: the training env has a VecNormalize where the evaluation env "
                f"has {eval_env}. Wrap both in the same way."
            )
            _copy_statistics(env, eval_env)
        env, eval_env = env.venv, eval_env.venv


def _copy_statistics(env: Any, eval_env: Any) -> None:
    assert env.norm_obs == eval_env.norm_obs, (
        f"sync_envs_normalization: the training env has norm_obs={env.norm_obs}, the evaluation env "
        f"{eval_env.norm_obs}: a policy would see observations of another scale."
    )
    if hasattr(env, "obs_rms"):
        eval_env.obs_rms = deepcopy(env.obs_rms)
    eval_env.ret_rms = deepcopy(env.ret_rms)
