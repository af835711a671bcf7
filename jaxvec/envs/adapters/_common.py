"""What the adapters share: libraries imported when they are needed, infos of resets, spaces given by hand."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxvec.errors import MissingExtraError
from jaxvec.spaces import sample, space_of_size, to_gymnasium_space
from jaxvec.typing import Action, Array, Obs, PyTree


def library(where: str, module: str, extra: str) -> Any:
    """Imports a module of another library.

    Args:
      where: who needs it, for the message.
      module: such as "brax.envs".
      extra: jaxvec's extra that brings the library.

    Raises:
      MissingExtraError: if it, or something it needs itself, is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"{where}: importing {module} failed ({error}). Install what it needs by "
            f"`pip install 'jaxvec[{extra}]'`."
        ) from error


def zeros_like_result(function: Callable[..., PyTree], *arguments: Any) -> PyTree:
    """Returns zeros of the shapes and dtypes that a function would return; it is not run.

    This is what a reset hands on in place of what only a step knows.
    """
    avals = jax.eval_shape(function, *arguments)
    return jax.tree.map(lambda aval: jnp.zeros(aval.shape, aval.dtype), avals)


def space_of_avals(obs: PyTree) -> spaces.Space[Any]:
    """Returns the space of observations of which only shapes and dtypes are known.

    Args:
      obs: an observation, or its avals; dicts of arrays become a Dict.
    """
    if isinstance(obs, Mapping):
        return spaces.Dict({key: space_of_avals(part) for key, part in obs.items()})
    dtype = np.dtype(obs.dtype)
    low, high = -np.inf, np.inf
    if dtype.kind == "b":
        low, high = 0, 1
    elif dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return space_of_size(obs.shape, low, high, dtype)


def one_action(space: spaces.Space[Any]) -> Action:
    """Returns one action, for tracing."""
    return jax.tree.map(lambda leaf: leaf[0], sample(jax.random.key(0), space, 1))


def without_wrappers(where: str, env: Any, names: tuple[str, ...]) -> None:
    """Refuses an environment that is wrapped by something that resets or batches, which is `vectorize`'s.

    Raises:
      TypeError: if one of the wrappers, told by the names of their classes, is around it.
    """
    inner = env
    while inner is not None:
        if type(inner).__name__ in names:
            raise TypeError(
                f"{where}: env={env!r} has a {type(inner).__name__} around it. vectorize does its work, "
                "and keeps the last observation: pass the environment without it."
            )
        inner = vars(inner).get("env", vars(inner).get("_env"))


def as_space(space: spaces.Space[Any], obs: PyTree) -> Obs:
    """Returns an observation in the dicts and tuples of its space; there it may lie in records."""
    if isinstance(space, spaces.Dict):
        of = obs.__getitem__ if isinstance(obs, Mapping) else partial(getattr, obs)
        return {key: as_space(part, of(key)) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(as_space(*each) for each in zip(space, obs, strict=True))
    return obs


def space_of(given: spaces.Space[Any] | None, own: Callable[[], Any]) -> spaces.Space[Any]:
    """Returns the space that the caller gave, else the library's own in gymnasium's words."""
    return to_gymnasium_space(own()) if given is None else given


def space_holding(space: spaces.Space[Any], obs: PyTree) -> spaces.Space[Any]:
    """Returns a space in whose dtypes the observations have room.

    Some libraries declare whole numbers where they hand out floating ones.

    Args:
      space: what the library declares; it is returned as it is where an observation fits.
      obs: one observation, or its avals (`jax.ShapeDtypeStruct`).
    """
    if isinstance(space, spaces.Dict):
        return spaces.Dict({key: space_holding(part, obs[key]) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([space_holding(*each) for each in zip(space, obs, strict=True)])
    if not isinstance(space, spaces.Box) or np.can_cast(obs.dtype, space.dtype, "same_kind"):
        return space
    dtype = np.dtype(obs.dtype).type
    return spaces.Box(space.low.astype(dtype), space.high.astype(dtype), dtype=dtype)


def beyond_own_limit(steps: Array, own: Array, limit: Any) -> Array:
    """Tells whether an episode is at the time limit of its parameters, where somebody has changed that.

    Args:
      steps: `[]`, of the episode so far.
      own: `[]`, the limit that the parameters have now.
      limit: the one that they had when the library's environment was adapted: `vectorize` holds that one.
    """
    return (steps >= own) & jnp.not_equal(own, limit)
