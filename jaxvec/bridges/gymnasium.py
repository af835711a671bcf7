"""Gymnasium's VectorEnv, both ways.

to_vector_env      a VecEnv, or N compiled environments, as a gymnasium VectorEnv
from_vector_env    a gymnasium VectorEnv, ale-py's or EnvPool's as a VecEnv
"""

from typing import Any

from gymnasium.vector import AutoresetMode

from jaxvec.bridges._from_envpool import EnvPoolVecEnv, is_envpool
from jaxvec.bridges._from_vector_env import VectorVecEnv, mode_of
from jaxvec.bridges._to_vector_env import BatchedVectorEnv, VecEnvVectorEnv
from jaxvec.envs import BatchedEnv
from jaxvec.vec import VecEnv

__all__ = [
    "BatchedVectorEnv",
    "EnvPoolVecEnv",
    "VecEnvVectorEnv",
    "VectorVecEnv",
    "from_vector_env",
    "to_vector_env",
]


def to_vector_env(env: Any) -> VecEnvVectorEnv | BatchedVectorEnv:
    """Makes a gymnasium VectorEnv, which gymnasium's vector wrappers take.

    >>> import jaxvec
    >>> from jaxvec.bridges.gymnasium import to_vector_env
    >>> envs = to_vector_env(jaxvec.vec.make_vec_env("CartPole-v1", n_envs=2))
    >>> envs.metadata["autoreset_mode"]
    <AutoresetMode.SAME_STEP: 'SameStep'>
    >>> envs.close()

    Args:
      env: a VecEnv, jaxvec's or one with SB3's interface: it resets in the step that ends an episode,
        and so does the result (gymnasium's wrapper NormalizeObservation does not take that). Or a
        `BatchedEnv` of `vectorize` or `wrap`, in whichever autoreset mode it was made ("NextStep" is
        what most of gymnasium's wrappers expect).

    Returns:
      The vector environment. `metadata["autoreset_mode"]` says when it resets, as the wrappers ask.

    Raises:
      TypeError: if `env` is neither.
    """
    if isinstance(env, BatchedEnv):
        return BatchedVectorEnv(env)
    for name in ("num_envs", "step_async", "step_wait", "env_method"):
        if getattr(env, name, None) is None:
            raise TypeError(
                f"to_vector_env: env={env!r} has no {name}; it must be a VecEnv, such as "
                "jaxvec.vec.make_vec_env('CartPole-v1', n_envs=4), or a BatchedEnv, such as "
                "jaxvec.vectorize(env, 4)."
            )
    return VecEnvVectorEnv(env)


def from_vector_env(env: Any, *, autoreset_mode: AutoresetMode | str | None = None) -> VecEnv:
    """Makes a VecEnv of a vector environment, for SB3 and for jaxvec's wrappers.

    Args:
      env: gymnasium's SyncVectorEnv or AsyncVectorEnv, what `gym.make_vec` returns, ale-py's
        AtariVectorEnv, or one of `envpool.make_gymnasium`. The environments that reset in the next step
        are reset at once instead, those rows alone, so that no step without a transition shows: by
        `reset(options={"reset_mask": ...})`, or by EnvPool's `reset(env_ids)`.
      autoreset_mode: when it resets, if its metadata do not say so; None takes these, else "NextStep",
        as gymnasium does.

    Returns:
      The VecEnv. It steps where `env` steps; infos are translated when they are read.

    Raises:
      TypeError: if `env` is no vector environment.
    """
    for name in ("reset", "step", "action_space"):
        if getattr(env, name, None) is None:
            raise TypeError(
                f"from_vector_env: env={env!r} has no {name}; it must be a vector environment, such as "
                "gymnasium.make_vec('CartPole-v1', num_envs=4)."
            )
    mode = mode_of(env, autoreset_mode)
    return EnvPoolVecEnv(env) if is_envpool(env) else VectorVecEnv(env, mode)
