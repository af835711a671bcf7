"""The seam: where environments live. A pool takes a command, and gives back what came of it.

`HostVecEnv` stands on this alone, so that a fake for a test is ten lines. This page has the pool of the
caller's own process; `_processes.py` has the one of worker processes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gymnasium.spaces import Space

from jaxvec.errors import NotPendingError
from jaxvec.vec._columns import Columns, columns_of
from jaxvec.vec._serve import Group, note_source


class Pool(ABC):
    """N environments somewhere.

    Commands and their payloads:

        step     actions: N of them
        rows     (rows, actions): a step of these rows alone; may be sent again for other rows before
                 `recv`, which then takes `min_rows`
        reset    [(row, seed, options), ...]
        ask      (name, [(row, arguments), ...]): get_attr, has_attr, set_attr, env_method, render,
                 is_wrapped
        sticky   {row: options}: for every reset from now on

    Attributes:
      num_envs: N.
      observation_space: of one environment.
      action_space: of one environment.
      columns: where results are to be read after `recv`, until the next command is sent.
      concurrent: whether environments run between `send` and `recv`.
    """

    num_envs: int
    observation_space: Space[Any]
    action_space: Space[Any]
    columns: Columns
    concurrent: bool

    @property
    @abstractmethod
    def pending(self) -> str | None:
        """The command whose result has not been received; None if there is none."""

    @property
    @abstractmethod
    def rows_under_way(self) -> Sequence[int]:
        """The rows of a command `rows` that have not been received."""

    @abstractmethod
    def send(self, command: str, payload: Any) -> None:
        """Sends a command.

        Raises:
          ClosedError: if the pool is closed.
        """

    @abstractmethod
    def recv(self, min_rows: int | None = None) -> Any:
        """Waits for what came of the command.

        Args:
          min_rows: for `rows`: how many to wait for; None for all.

        Returns:
          `Served` for step, rows and reset; the list of answers, in the order of the requests, for ask.

        Raises:
          Exception: what an environment raised.
        """

    def request(self, command: str, payload: Any) -> Any:
        """Sends a command and waits for what comes of it."""
        self.send(command, payload)
        return self.recv()

    @abstractmethod
    def drop(self) -> None:
        """Forgets the command that is pending; what it led to is lost."""

    @abstractmethod
    def close(self, timeout: float) -> None:
        """Closes the environments; returns within the timeout, seconds."""


def checked_env_fns(env_fns: Iterable[Callable[[], Any]]) -> list[Callable[[], Any]]:
    """Returns constructors as a list.

    Args:
      env_fns: any iterable of at least one function that takes nothing; a generator too.

    Raises:
      IndexError: if there is none.
      TypeError: if it is no iterable, or something in it cannot be called.
    """
    if callable(env_fns) or not isinstance(env_fns, Iterable):
        raise TypeError(
            f"env_fns is {env_fns!r:.200} of type {type(env_fns).__name__}; a list of functions is needed, "
            "one for each environment, as in [lambda: gymnasium.make('CartPole-v1')] * 4."
        )
    functions = list(env_fns)
    if not functions:
        raise IndexError("env_fns is empty: a VecEnv has at least one environment.")
    for row, env_fn in enumerate(functions):
        if not callable(env_fn):
            raise TypeError(
                f"env_fns[{row}] is {env_fn!r:.200} of type {type(env_fn).__name__}; a function that makes "
                "the environment is needed, as in lambda: gymnasium.make('CartPole-v1')."
            )
    return functions


class LocalPool(Pool):
    """Environments in the caller's own process, served one after the other when the result is asked for.

    Args:
      env_fns: build one environment each.
    """

    concurrent = False

    def __init__(self, env_fns: Iterable[Callable[[], Any]]) -> None:
        env_fns = checked_env_fns(env_fns)
        self.group = Group(range(len(env_fns)))
        self.group.build_noting(env_fns)
        first = self.group.envs[0]
        self.num_envs = len(env_fns)
        self.observation_space = first.observation_space
        self.action_space = first.action_space
        self.columns = columns_of(self.observation_space, self.num_envs)
        self.group.bind(self.columns)
        self._command: tuple[str, Any] | None = None
        self._queue: list[tuple[int, Any]] = []

    @property
    def pending(self) -> str | None:
        """The command that waits to be served."""
        return None if self._command is None else self._command[0]

    @property
    def rows_under_way(self) -> Sequence[int]:
        """The rows that wait to be stepped."""
        return [row for row, _ in self._queue]

    def send(self, command: str, payload: Any) -> None:
        """Keeps the command for `recv`."""
        self._command = command, payload
        if command == "rows":
            self._queue += zip(*payload, strict=True)

    def recv(self, min_rows: int | None = None) -> Any:
        """Serves the command."""
        if self._command is None:
            raise NotPendingError("nothing was sent that could be received")
        (command, payload), self._command = self._command, None
        if command == "rows":
            count = len(self._queue) if min_rows is None else min_rows
            now, self._queue = self._queue[:count], self._queue[count:]
            if self._queue:
                self._command = "rows", None
            payload = tuple(zip(*now, strict=True))
        return self.request(command, payload)

    def request(self, command: str, payload: Any) -> Any:
        """Serves a command at once, whatever is pending: a step that waits has not begun."""
        if command == "rows":
            payload = payload[1], payload[0]
        try:
            arguments = payload if command in ("ask", "rows") else (payload,)
            return self.group.do(command, arguments)
        except Exception as error:
            note_source(error, self.group.current, command)
            raise

    def drop(self) -> None:
        """Forgets the command that waits: it has not begun."""
        self._command, self._queue = None, []

    def close(self, timeout: float) -> None:
        """Closes the environments."""
        del timeout
        self.drop()
        self.group.close()
