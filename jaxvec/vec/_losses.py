"""Episodes that a dead process took with it: what is said about them, once, when it was started again."""

from collections.abc import Iterable, Sequence
from typing import Any

from jaxvec.core._xp import map_obs
from jaxvec.typing import Obs
from jaxvec.vec._columns import Columns
from jaxvec.vec._convert import copy_obs


class Losses:
    """The rows that were started again and not stepped since.

    At their next step they are not stepped: their episode is reported as truncated, with reward 0 and
    the observation that was seen last as its final one, beside the first one of a new episode.

    Attributes:
      rows: which ones.
      sticky: the options of every reset by row: a new process has to be told them.
    """

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.sticky: dict[int, dict[str, Any]] = {}
        self._reset_infos: dict[int, Any] = {}
        self._seen: Obs = None

    def remember(self, columns: Columns, rows: Sequence[int] | None) -> None:
        """Keeps the observations that are handed out now, of all rows or of some."""
        if rows is None or self._seen is None:
            self._seen = copy_obs(columns.obs)
            return

        def keep(seen: Any, column: Any) -> None:
            seen[rows] = column[rows]

        map_obs(keep, self._seen, columns.obs)

    def add(self, rows: Iterable[int], reset_infos: dict[int, Any]) -> None:
        """Notes rows whose process was started again, and the infos of their reset."""
        self.rows.update(rows)
        self._reset_infos.update(reset_infos)

    def forget(self, rows: Iterable[int]) -> None:
        """Notes that rows were reset on purpose: there is nothing to say any more."""
        self.rows.difference_update(rows)

    def report(self, columns: Columns, rows: Iterable[int]) -> dict[int, Any]:
        """Writes the end of the lost episodes into the columns.

        Args:
          columns: of the pool.
          rows: whose step is being reported.

        Returns:
          The infos of the resets, by row.
        """
        lost = sorted(self.rows.intersection(rows))
        if not lost:
            return {}
        self.rows.difference_update(lost)
        columns.reward[lost] = 0
        columns.terminated[lost] = False
        columns.truncated[lost] = True

        def end(final: Any, seen: Any) -> None:
            final[lost] = seen[lost]

        map_obs(end, columns.final, columns.obs if self._seen is None else self._seen)
        return {row: self._reset_infos.pop(row) for row in lost if row in self._reset_infos}
