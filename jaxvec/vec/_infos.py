"""The infos of a step: a list of N dicts, each built when it is first read.

A training loop reads a few of them, and only where an episode ended; N dicts built in every step would
cost more than the step. A row reads `{**the environment's own dict, "TimeLimit.truncated": ...,
**columns that transforms added}`, with "terminal_observation" and "episode" where its episode ended.
"""

from collections.abc import Iterable, Iterator, MutableSequence, Sequence
from typing import Any, SupportsIndex, overload

import numpy as np

from jaxvec.core._transform import Timestep
from jaxvec.core._xp import map_obs
from jaxvec.typing import Array, PyTree

Info = dict[str, Any]

_ONLY_WHERE_DONE = ("episode",)


class Infos(MutableSequence[Info]):
    """A list of dicts that is filled when it is read.

    It does what a list does: index, slice, iterate, compare, add, copy, assign, pickle. A row that was
    read stays the same dict, so that what is written into it can be read again. A slice, a sum and a
    copy are plain lists of these same dicts.

    Args:
      timestep: the step whose infos they are; only the columns that an info can show are kept.
      done: `timestep.done`, where it is known already.
    """

    __slots__ = (
        "_columns",
        "_done",
        "_final",
        "_final_at",
        "_on_host",
        "_rows",
        "_sources",
        "_truncated",
    )

    def __init__(self, timestep: Timestep, done: Array = None) -> None:
        # Kept as they are until somebody reads: nobody may.
        self._done: Any = timestep.done if done is None else done
        self._truncated: Any = timestep.truncated
        self._sources: Sequence[Info | None] | None = timestep.rows
        self._columns = timestep.info
        self._final = timestep.final_obs
        self._final_at = timestep.final_rows
        self._rows: list[Info | None] = [None] * len(self._truncated)
        self._on_host = False

    def _row(self, index: int) -> Info:
        row = self._rows[index]
        if row is None:
            row = self._rows[index] = self._built(index)
        return row

    def _built(self, index: int) -> Info:
        if not self._on_host:  # one transfer for all rows, and none where nobody reads
            self._done = np.asarray(self._done).tolist()
            self._truncated = np.asarray(self._truncated).tolist()
            self._columns = map_obs(np.asarray, self._columns)
            self._final = None if self._final is None else map_obs(np.asarray, self._final)
            self._on_host = True
        source = self._sources[index] if self._sources else None
        row: Info = dict(source) if source else {}
        done, truncated = self._done[index], self._truncated[index]
        row["TimeLimit.truncated"] = truncated
        if done:
            place = self._final_place(index)
            if place is not None:
                row["terminal_observation"] = map_obs(
                    lambda column: _element(column, place), self._final
                )
        for key, column in self._columns.items():
            if done or key not in _ONLY_WHERE_DONE:
                row[key] = map_obs(lambda leaf: _element(leaf, index), column)
        return row

    def _final_place(self, index: int) -> int | None:
        """Returns where in `final_obs` the row's last observation is; None if it is not there."""
        if self._final is None or self._final_at is None:
            return None if self._final is None else index
        places = np.flatnonzero(self._final_at == index)
        return int(places[0]) if len(places) else None

    def _all(self) -> list[Info]:
        return [self._row(index) for index in range(len(self._rows))]

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Info: ...
    @overload
    def __getitem__(self, index: slice) -> list[Info]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Info | list[Info]:
        if isinstance(index, slice):
            return [self._row(each) for each in range(len(self._rows))[index]]
        return self._row(range(len(self._rows))[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            self._rows[index] = value
            return
        rows = self._all()
        rows[index] = value
        self._become(rows)

    def __delitem__(self, index: Any) -> None:
        rows = self._all()
        del rows[index]
        self._become(rows)

    def insert(self, index: SupportsIndex, value: Info) -> None:
        """Inserts a dict before `index`, as a list does."""
        rows = self._all()
        rows.insert(index, value)
        self._become(rows)

    def _become(self, rows: list[Info]) -> None:
        """Holds these dicts from now on, whatever the columns say."""
        self._rows = list(rows)

    def __iter__(self) -> Iterator[Info]:
        for index in range(len(self._rows)):
            yield self._row(index)

    def copy(self) -> list[Info]:
        """Returns a list of the same dicts."""
        return self._all()

    def __add__(self, other: Iterable[Info]) -> list[Info]:
        return self._all() + list(other)

    def __radd__(self, other: Iterable[Info]) -> list[Info]:
        return list(other) + self._all()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Infos):
            return self._all() == other._all()
        return self._all() == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[Any, ...]:
        return _infos_of, (self._all(),)


def _infos_of(rows: list[Info]) -> Infos:
    """Returns `Infos` that hold these dicts: what a pickle or a deep copy comes back as."""
    infos = Infos.__new__(Infos)
    infos._done, infos._truncated = [], []
    infos._sources, infos._columns = None, {}
    infos._final = infos._final_at = None
    infos._rows = list(rows)
    infos._on_host = True
    return infos


def _element(column: Any, index: int) -> PyTree:
    """Takes one row out of a column; a copy, so that a kept info keeps no whole column alive."""
    element = column[index]
    return element.copy() if isinstance(element, np.ndarray) else element
