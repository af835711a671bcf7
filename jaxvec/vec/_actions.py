"""Actions are looked at before a device sees them: there, a wrong one would do harm without a word."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._xp import canonical_dtype
from jaxvec.typing import Action, Array

Check = Callable[[Action], Action]
"""Takes the actions of all environments, and returns a copy in the dtype that the device has."""


def action_check(space: spaces.Space[Any], num_envs: int, path: str = "actions") -> Check:
    """Returns what checks and copies actions.

    It takes arrays `[N, *A]`, or what NumPy makes one of, in a Dict or Tuple space dicts or tuples of such.
    It raises a TypeError where they are of the wrong kind, and a ValueError where they have another shape,
    lie outside a space of whole numbers, or are not finite.

    Args:
      space: of one action.
      num_envs: N.
      path: what a message calls them.

    Raises:
      TypeError: if actions of such a space are no arrays.
    """
    low: Any
    high: Any
    if isinstance(space, spaces.Dict):
        return _dict_check(space, num_envs, path)
    if isinstance(space, spaces.Tuple):
        return _tuple_check(space, num_envs, path)
    if isinstance(space, spaces.Box):
        whole = np.issubdtype(space.dtype, np.integer)
        low, high = (space.low, space.high) if whole else (None, None)
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = 0, 1
    else:
        raise TypeError(f"{path}: the action space {space} has no arrays for elements.")
    shape = (num_envs, *(space.shape or ()))
    dtype = canonical_dtype(space.dtype, None)
    if low is None:
        return _float_check(space, shape, dtype, path)
    return _integer_check(space, shape, dtype, (low, high), path)


def _integer_check(
    space: spaces.Space[Any],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    bounds: tuple[Any, Any],
    path: str,
) -> Check:
    low, high = bounds
    kinds = "iub" if isinstance(space, spaces.MultiBinary) else "iu"
    one_bound = np.ndim(low) == 0

    def check(actions: Action) -> Array:
        given = _array(actions, shape, path)
        if given.dtype.kind not in kinds:
            raise TypeError(
                f"step: {path} are of dtype {given.dtype}, as in {_first(given)}; {space} needs whole "
                "numbers."
            )
        if one_bound:  # two numbers to compare, in place of an array
            outside = bool(
                np.minimum.reduce(given, None) < low or np.maximum.reduce(given, None) > high
            )
        else:
            outside = bool(((given < low) | (given > high)).any())
        if outside:
            row = tuple(np.argwhere((given < low) | (given > high))[0])
            raise ValueError(
                f"step: {path} has {given[row]} for environment {row[0]}, which is not in {space}."
            )
        return given.astype(dtype)

    return check


def _float_check(
    space: spaces.Space[Any], shape: tuple[int, ...], dtype: np.dtype[Any], path: str
) -> Check:
    def check(actions: Action) -> Array:
        given = _array(actions, shape, path)
        if given.dtype.kind not in "fiu":
            raise TypeError(
                f"step: {path} are of dtype {given.dtype}, as in {_first(given)}; {space} needs numbers."
            )
        if not np.logical_and.reduce(np.isfinite(given), None):
            row = tuple(np.argwhere(~np.isfinite(given))[0])
            raise ValueError(
                f"step: {path} has {given[row]} for environment {row[0]}; all numbers must be finite. "
                "Look at the policy's parameters."
            )
        if given.dtype == dtype:
            return given.copy()
        return _narrowed(given, dtype, path)

    return check


def _narrowed(given: Array, dtype: np.dtype[Any], path: str) -> Array:
    """Casts to fewer digits, which may round a number but not make it another."""
    with np.errstate(over="ignore", under="ignore"):
        cast = given.astype(dtype)
    lost = ~np.isfinite(cast) | ((cast == 0) & (given != 0))
    if lost.any():
        row = tuple(np.argwhere(lost)[0])
        raise ValueError(
            f"step: {path} has {given[row]} for environment {row[0]}, which {dtype} cannot hold."
        )
    if (cast != given).any():
        warnings.warn(
            f"step: {path} are of dtype {given.dtype} and are rounded to {dtype}, which the environments "
            f"compute in. Pass {dtype} to decide the rounding yourself.",
            stacklevel=5,
        )
    return cast


def _dict_check(space: spaces.Dict, num_envs: int, path: str) -> Check:
    checks = {
        key: action_check(part, num_envs, f"{path}[{key!r}]") for key, part in space.spaces.items()
    }

    def check(actions: Action) -> dict[str, Any]:
        if not isinstance(actions, dict) or actions.keys() != checks.keys():
            found = list(actions) if isinstance(actions, dict) else type(actions).__name__
            raise ValueError(f"step: {path} are {found}; a dict with {list(checks)} is needed.")
        return {key: each(actions[key]) for key, each in checks.items()}

    return check


def _tuple_check(space: "spaces.Tuple[Any]", num_envs: int, path: str) -> Check:
    checks = [
        action_check(part, num_envs, f"{path}[{place}]") for place, part in enumerate(space.spaces)
    ]

    def check(actions: Action) -> tuple[Any, ...]:
        if not isinstance(actions, tuple | list) or len(actions) != len(checks):
            raise ValueError(
                f"step: {path} are {type(actions).__name__} {actions!r}; a tuple of {len(checks)} is "
                "needed, one array [N, ...] each."
            )
        return tuple(each(part) for each, part in zip(checks, actions, strict=True))

    return check


def _array(actions: Action, shape: tuple[int, ...], path: str) -> Array:
    given = np.asarray(actions)
    if given.shape != shape:
        raise ValueError(
            f"step: {path} have shape {given.shape}, but {shape[0]} environments need {shape}: one action "
            "for each. Nothing was stepped."
        )
    return given


def _first(given: Array) -> Any:
    return given.reshape(-1)[0] if given.size else given
