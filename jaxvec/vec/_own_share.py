"""The environments that the caller steps itself while workers step theirs."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxvec.vec._columns import Columns
from jaxvec.vec._serve import Group, note_source


class OwnShare:
    """A group in the caller's process that takes commands as a worker does.

    An exception is kept as the answer, so that the workers' answers are taken before it is raised.

    Args:
      env_fns: build one environment each.
      rows: their numbers among all N.
    """

    def __init__(self, env_fns: Sequence[Callable[[], Any]], rows: range) -> None:
        self.rows = rows
        self.group = Group(rows)
        self._errands: list[tuple[str, tuple[Any, ...]]] = []
        self.group.build_noting(env_fns)

    def spaces(self) -> list[tuple[int, Any, Any]]:
        """Returns row, observation space and action space of each environment."""
        return [
            (row, env.observation_space, env.action_space)
            for row, env in zip(self.rows, self.group.envs, strict=True)
        ]

    def bind(self, columns: Columns) -> None:
        """Says where results go."""
        self.group.bind(columns)

    def put(self, command: str, part: tuple[Any, ...]) -> None:
        """Keeps a command until `run`; a step of several rows as one errand for each."""
        if command == "rows":
            self._errands += [
                (command, ([action], [row])) for action, row in zip(*part, strict=True)
            ]
        else:
            self._errands.append((command, part))

    @property
    def is_due(self) -> bool:
        """Whether there is something to do."""
        return bool(self._errands)

    def next_row(self) -> int:
        """Returns the row of the next errand, which is a step of one row."""
        _, (_, rows) = self._errands[0]
        row: int = rows[0]
        return row

    def run(self) -> Any:
        """Does the next errand and returns the answer, or the exception that it led to."""
        command, part = self._errands.pop(0)
        try:
            return self.group.do(command, part)
        except Exception as error:
            note_source(error, self.group.current, command)
            return error

    def close(self) -> None:
        """Closes the environments."""
        self._errands = []
        self.group.close()
