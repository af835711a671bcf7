"""Wrappers found in a stack of them, be they jaxvec's or Stable-Baselines3's."""

from typing import Any, TypeVar

from jaxvec.vec._sb3 import namesakes
from jaxvec.vec._wrapper import VecEnvWrapper

Wrapper = TypeVar("Wrapper")


def unwrap_vec_wrapper(env: Any, vec_wrapper_class: type[Wrapper]) -> Wrapper | None:
    """Returns the outermost wrapper of a class.

    Args:
      env: where to look, from the outside in.
      vec_wrapper_class: jaxvec's class (SB3's of that name counts too), or SB3's.

    Returns:
      The wrapper; None if there is none.
    """
    wrapper, wanted = namesakes(VecEnvWrapper), namesakes(vec_wrapper_class)
    while isinstance(env, wrapper):
        if isinstance(env, wanted):
            found: Wrapper = env
            return found
        env = env.venv
    return None


def is_vecenv_wrapped(env: Any, vec_wrapper_class: type[Any]) -> bool:
    """Tells whether one of a VecEnv's wrappers is of a class; see `unwrap_vec_wrapper`."""
    return unwrap_vec_wrapper(env, vec_wrapper_class) is not None
