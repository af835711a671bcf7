"""Seeds and options of the resets of compiled environments, row by row."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxvec.core._xp import map_obs
from jaxvec.random import bits_rows, row_words_from_seeds
from jaxvec.typing import Array, PyTree
from jaxvec.vec._jax_edge import merged_rows, option_arrays, same_tree
from jaxvec.vec._program import Groups

_FIRST_WORD, _SECOND_WORD = 0x72657365, 0x74206B65
"""Salts of the two words of a later key."""


class RowKeys:
    """The keys that rows are reset with: those of their seeds, then others that follow from these.

    Args:
      seeds: one for each row.
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._words = row_words_from_seeds(seeds)
        self._resets = np.full(len(seeds), -1)  # since the row got its seed

    def copy(self) -> "RowKeys":
        """Returns one that goes on in the same way."""
        new = RowKeys.__new__(RowKeys)
        new._words, new._resets = self._words.copy(), self._resets.copy()
        return new

    def next(self, rows: Array, seeds: Sequence[int | None]) -> Array:
        """Returns the keys' words for a reset, uint32 `[N, 2]`; to be read in `rows`.

        Args:
          rows: integers, which are reset.
          seeds: for each row the one that was set, or None to go on from its last one.
        """
        seeded = [row for row in rows.tolist() if seeds[row] is not None]
        if seeded:
            given: Any = [seeds[row] for row in seeded]
            self._words[seeded] = row_words_from_seeds(given)
        self._resets[rows] += 1
        self._resets[seeded] = 0
        later = [bits_rows(self._words, self._resets, salt) for salt in (_FIRST_WORD, _SECOND_WORD)]
        first = (self._resets == 0)[:, None]
        keys: Array = np.where(first, self._words, np.stack(later, axis=-1))
        return keys


class ResetInfos:
    """What the last reset of each row told.

    Args:
      num_envs: N.
    """

    def __init__(self, num_envs: int) -> None:
        self._num_envs = num_envs
        self._columns: dict[str, PyTree] = {}

    def keep(self, columns: dict[str, PyTree], mask: Array) -> None:
        """Keeps columns `[N, ...]` where the mask (bool `[N]`) holds."""
        if mask.any():
            new = {key: map_obs(np.asarray, column) for key, column in columns.items()}
            self._columns = map_obs(partial(merged_rows, mask), new, self._columns or new)

    def rows(self) -> list[dict[str, Any]]:
        """Returns N dicts."""
        return [
            map_obs(lambda column, row=row: column[row], self._columns)
            for row in range(self._num_envs)
        ]


def next_resets(
    rows: Array, keys: RowKeys, seeds: Sequence[int | None], options: Sequence[dict[str, Any]]
) -> tuple[Array, Array, Groups]:
    """Returns what a compiled reset of some rows takes.

    Args:
      rows: integers, which are reset.
      keys: of all rows; those that are reset are used up.
      seeds: one for each row, or None to go on from its last one.
      options: one dict for each row.

    Returns:
      Bool `[N]`, which rows are reset; uint32 `[N, 2]`, the words of their keys; and which of them get which
      options.
    """
    num_envs = len(seeds)
    groups = grouped_options(options, rows, num_envs)
    mask = np.zeros(num_envs, bool)
    mask[rows] = True
    return mask, keys.next(rows, seeds), groups


def grouped_options(options: Sequence[dict[str, Any]], rows: Array, num_envs: int) -> Groups:
    """Returns pairs of rows, bool `[N]`, and the options that these get; the rows are `rows` in all.

    Args:
      options: one dict for each row.
      rows: integers, which are reset.
      num_envs: N.

    Raises:
      IndexError: if there are not N dicts.
      TypeError: if an option is no number and no array of numbers.
    """
    if len(options) != num_envs:
        raise IndexError(
            f"reset: set_options got options for {len(options)} environments, but there are {num_envs}; "
            "give one dict for all, or one for each."
        )
    groups: list[tuple[Array, Any]] = []
    for row in rows.tolist():
        arrays = option_arrays(options[row])
        for mask, other in groups:
            if same_tree(arrays, other):
                mask[row] = True
                break
        else:
            mask = np.zeros(num_envs, bool)
            mask[row] = True
            groups.append((mask, arrays))
    return tuple(groups)
