"""What pools of workers have in common, whatever a worker is: faults, deaths, what is handed on, the end."""

import contextlib
import time
import warnings
from abc import abstractmethod
from collections.abc import Container, Sequence
from typing import Any, NamedTuple, Protocol

from jaxvec.errors import ClosedError, WorkerDiedError
from jaxvec.vec._channel import Fault, raised
from jaxvec.vec._columns import put_rows
from jaxvec.vec._losses import Losses
from jaxvec.vec._pools import Pool
from jaxvec.vec._running import Ending, timed_out
from jaxvec.vec._serve import Info, Served

STEPS = ("step", "rows", "rollout")
_ENDS_THE_POOL = (*STEPS, "reset")


class NumberedWorker(Protocol):
    """Whoever serves a range of environments under a number."""

    @property
    def number(self) -> int:
        """Which worker."""
        ...

    @property
    def rows(self) -> range:
        """Its environments."""
        ...


class Terms(NamedTuple):
    """What every pool of workers is told."""

    timeout: float | None  # seconds that a command may take
    restart_workers: bool
    owner: str  # name of the VecEnv's class, for messages
    worker: str  # what a worker is, for messages
    workers: str  # what several are
    grace: float  # seconds that workers have to end in after a fault


class WorkerPool(Pool):
    """A pool over workers; a subclass says what these are, what is sent, and what answers mean.

    Args:
      num_envs: N.
      terms: for all pools.
    """

    concurrent = True

    def __init__(self, num_envs: int, terms: Terms) -> None:
        self.num_envs, self._terms, self._owner = num_envs, terms, terms.owner
        self._closed_by: str | None = None
        self._command: str | None = None
        self._rows: Sequence[int] = ()  # that the command concerns
        self._since = 0.0  # when it was sent
        self._mail: dict[
            int, tuple[bytes, Sequence[int]]
        ] = {}  # worker -> message, places of answers
        self._replies: dict[int, Any] = {}  # worker -> its answer, where that is a message
        self._under_way: list[int] = []  # rows
        self._replaced: set[int] = set()  # workers that died of this command
        self._losses = Losses() if terms.restart_workers else None

    @property
    def closed(self) -> bool:
        """Whether it was closed, by `close` or by a fault."""
        return self._closed_by is not None

    @property
    def pending(self) -> str | None:
        """The command whose result has not been received."""
        return self._command

    @property
    def rows_under_way(self) -> Sequence[int]:
        """The rows of a command `rows` that have not been received."""
        return self._under_way

    def _prepare(self, command: str) -> Container[int]:
        """Gets ready for a command; returns the rows that are not to be told, for they were lost.

        Raises:
          ClosedError: if the pool is closed.
        """
        if self._command is not None and not (self._command == command == "rows"):
            with contextlib.suppress(Exception):  # what an interrupt left behind
                self.recv()
        if self._closed_by is not None:
            raise ClosedError(
                f"{self._owner}: `{command}` was called, but this VecEnv is closed: {self._closed_by} "
                "Make a new one."
            )
        lost = self._losses.rows if self._losses is not None else ()
        return lost if command in STEPS else ()

    def _begin(self, command: str, rows: Sequence[int]) -> None:
        """Notes that a command is being sent."""
        self._rows, self._command, self._since = rows, command, time.monotonic()

    def _deadline(self) -> float | None:
        timeout = self._terms.timeout
        return None if timeout is None else self._since + timeout

    def _timed_out(self, rows: Sequence[int]) -> Exception:
        assert self._terms.timeout is not None
        return timed_out(rows, str(self._command), self._terms.timeout, self._owner)

    def _failed(self, error: Exception) -> Exception:
        """Closes the pool and returns the error that says why."""
        self._shut(f"{type(error).__name__} at `{self._command}`.", self._terms.grace)
        return error

    def _lost(self, worker: Any, error: WorkerDiedError) -> None:
        """Replaces a worker that has ended, if that is asked for; otherwise closes the pool.

        Args:
          worker: which one.
          error: says that it has ended.
        """
        if self._losses is None or worker.number in self._replaced:
            raise self._failed(error)
        self._replaced.add(worker.number)
        try:
            new = self._replace(worker)
            sticky = {row: self._losses.sticky.get(row, {}) for row in new.rows}
            self._exchange(new, "sticky", (sticky,))
            served = self._exchange(new, "reset", ([(row, None, {}) for row in new.rows],))
        except Exception as second:
            raise self._failed(second) from error
        self._losses.add(new.rows, served.reset_infos if served is not None else {})
        self._resume(new)
        code = "" if error.exit_code is None else f"with exit code {error.exit_code} "
        warnings.warn(
            f"{self._owner}: the {self._terms.worker} of the environments {list(new.rows)} ended {code}and "
            "was started again; their episodes are reported as truncated.",
            RuntimeWarning,
            stacklevel=4,
        )

    @abstractmethod
    def _replace(self, worker: Any) -> NumberedWorker:
        """Starts a new worker in the place of one that has ended."""

    @abstractmethod
    def _exchange(self, worker: Any, command: str, part: tuple[Any, ...]) -> Any:
        """Tells one worker something, in the middle of another command, and waits for the answer."""

    @abstractmethod
    def _resume(self, worker: Any) -> None:
        """Lets a new worker take its part in the command that is pending.

        A step, of all rows or of some, counts as done: the rows are reported as lost.
        """

    def _settled(self, reply: Any) -> Any:
        """Returns what a worker said outside of a command's answers, its rows put into the columns."""
        if isinstance(reply, Fault):
            raise raised(reply, self._owner)
        if isinstance(reply, Served):
            put_rows(self.columns, reply.carried)
        return reply

    def _served(self, command: str, replies: Sequence[Served], rows: Sequence[int]) -> Served:
        """Joins what the workers said."""
        infos: dict[int, Info] = {}
        reset_infos: dict[int, Info] = {}
        for reply in filter(None, replies):  # the caller's own share may have nothing to say
            infos.update(reply.infos)
            reset_infos.update(reply.reset_infos)
            put_rows(self.columns, reply.carried)
        if self._losses is not None:
            if command == "reset":
                self._losses.forget(rows)
            else:
                reset_infos.update(self._losses.report(self.columns, rows))
            self._losses.remember(self.columns, rows)
        return Served(infos, reset_infos, rows)

    def _finished(self) -> tuple[str, dict[int, Any], dict[int, tuple[bytes, Sequence[int]]]]:
        """Notes that a command is done; returns it, what the workers said, and the mail that they got.

        Raises:
          Exception: what an environment raised.
        """
        command, replies, mail = str(self._command), self._replies, self._mail
        self._command, self._replies, self._mail = None, {}, {}
        self._replaced.clear()
        self._raise_faults(command, list(replies.values()))
        return command, replies, mail

    def _raise_faults(self, command: str, replies: Sequence[Any]) -> None:
        faults = [fault for fault in map(self._fault, replies) if fault is not None]
        if not faults:
            return
        row, error = min(faults, key=lambda fault: fault[0])
        if command in _ENDS_THE_POOL:
            self._shut(
                f"environment {row} raised {type(error).__name__} at `{command}`.",
                2 * self._terms.grace,
            )
        raise error

    def _fault(self, reply: Any) -> tuple[int, Exception] | None:
        """Returns row and exception, if a reply is one."""
        return (reply.row, raised(reply, self._owner)) if isinstance(reply, Fault) else None

    def drop(self) -> None:
        """Waits for what is pending: it is being done, and cannot be undone."""
        while self._command is not None:
            self.recv()

    def close(self, timeout: float) -> None:
        """Ends all workers; those that do not end in time are killed."""
        if self._closed_by is not None:
            return
        ending = self._shut("close() was called.", timeout)
        for fault in ending.faults:
            warnings.warn(
                f"{self._owner}.close: environment {fault.row} raised {fault.kind[1]}: {fault.text}\n"
                f"{fault.traceback}",
                RuntimeWarning,
                stacklevel=3,
            )
        if ending.killed:
            warnings.warn(
                f"{self._owner}.close: the {self._terms.workers} of the environments {ending.killed} did "
                f"not end within {timeout} seconds and were killed.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _shut(self, reason: str, grace: float) -> Ending:
        """Ends everything; from now on every command is refused."""
        self._closed_by = reason
        self._command, self._under_way = None, []
        return self._end(grace)

    @abstractmethod
    def _end(self, grace: float) -> Ending:
        """Ends all workers."""


def in_order(replies: dict[int, Any], mail: dict[int, tuple[bytes, Sequence[int]]]) -> list[Any]:
    """Puts the answers of all workers into the order of the requests.

    Args:
      replies: worker to its answers.
      mail: worker to its message and the places of its answers.
    """
    answers = [None] * sum(len(places) for _, places in mail.values())
    for number, (_, places) in mail.items():
        for place, answer in zip(places, replies[number], strict=True):
            answers[place] = answer
    return answers
