"""Which environments are meant: integers, slices and masks."""

from collections.abc import Iterable
from typing import Any

import numpy as np

Indices = None | int | Iterable[int] | slice
"""Which environments: None is all of them; an int, a slice, integers, or a bool mask `[N]`."""


def row_indices(indices: Indices, num_envs: int) -> list[int]:
    """Returns the environments that are meant, each as an int from 0 to N - 1.

    Args:
      indices: None for all; an int (-1 is the last), a slice, integers, or a bool mask `[N]`.
      num_envs: N.

    Raises:
      IndexError: if there is no such environment, or a mask has another length than N.
      TypeError: if something in it is no integer.
    """
    if indices is None:
        return list(range(num_envs))
    if isinstance(indices, slice):
        return list(range(num_envs))[indices]
    if isinstance(indices, int | np.integer | np.bool_):
        return [_row_index(indices, num_envs)]
    chosen = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
    if chosen.dtype == bool:
        if chosen.shape != (num_envs,):
            raise IndexError(
                f"indices: a mask of shape {chosen.shape} for {num_envs} environments."
            )
        rows: list[int] = np.flatnonzero(chosen).tolist()
        return rows
    return [_row_index(each, num_envs) for each in chosen.reshape(-1).tolist()]


def _row_index(index: Any, num_envs: int) -> int:
    if not isinstance(index, int | np.integer | np.bool_):
        raise TypeError(
            f"indices: {index!r} is of type {type(index).__name__}, but environments are numbered by "
            "integers, 0 to N - 1."
        )
    if not -num_envs <= int(index) < num_envs:
        raise IndexError(
            f"indices: there is no environment {index}; there are {num_envs}, numbered from 0."
        )
    return int(index) % num_envs
