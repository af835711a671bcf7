"""What a pool of processes is made of, and how it waits for them: deaths and timeouts are noticed here."""

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxvec.vec._advice import Advice
from jaxvec.vec._channel import Fault, dumps, fault_of, raised
from jaxvec.vec._columns import put_rows
from jaxvec.vec._crew import GRACE, LOOK, Crew, Options, common_spaces
from jaxvec.vec._losses import Losses
from jaxvec.vec._own_share import OwnShare
from jaxvec.vec._pools import Pool, checked_env_fns
from jaxvec.vec._running import Ending, Worker, died, timed_out
from jaxvec.vec._serve import Served
from jaxvec.vec._starting import shares, usable_cores
from jaxvec.vec._worker import DONE, DONE_WITH_MESSAGE, MESSAGE, PENDING, awaited

_ARRIVAL = 1.0  # seconds that a message has to arrive in once it is announced


class CrewPool(Pool):
    """A pool over worker processes; a subclass says what is sent and what the answers mean.

    Args:
      env_fns: build one environment each.
      options: how.
    """

    concurrent = True

    def __init__(self, env_fns: Iterable[Callable[[], Any]], options: Options) -> None:
        env_fns = checked_env_fns(env_fns)
        self.num_envs, self._options, self._owner = len(env_fns), options, options.owner
        self._closed_by: str | None = None
        self._command: str | None = None
        self._rows: Sequence[int] = ()  # that the command concerns
        self._since = 0.0  # when it was sent
        self._mail: dict[
            int, tuple[bytes, Sequence[int]]
        ] = {}  # worker -> message, places of answers
        self._replies: dict[int, Any] = {}  # worker -> its answer, where that is a message
        self._row_replies: dict[int, Any] = {}  # row -> the same, of the command `rows`
        self._under_way: list[int] = []  # rows
        self._replaced: set[int] = set()  # workers that died of this command
        self._losses = Losses() if options.restart_workers else None
        self._own: OwnShare | None = None
        cores = usable_cores()
        parts = _parts(self.num_envs, options, cores)
        self._crew = Crew(env_fns, parts[1:] if options.caller_steps else parts, options)
        try:
            if options.caller_steps:
                self._own = OwnShare(env_fns[: parts[0].stop], parts[0])
            self.observation_space, self.action_space = self._common_spaces()
            self._crew.bind(self.observation_space, self.action_space)
            self.columns = self._crew.columns
            if self._own is not None:
                self._own.bind(self.columns)
        except BaseException:
            self._shut("its construction failed.", GRACE)
            raise
        is_automatic = options.num_workers == "auto"
        self._advice = Advice(self._crew.measured, cores) if is_automatic else None

    def _common_spaces(self) -> tuple[Any, Any]:
        spaces = self._own.spaces() if self._own is not None else []
        for worker in self._crew.workers:
            built = self._crew.built(worker)
            spaces.append((worker.rows.start, built.observation_space, built.action_space))
            spaces += [built.odd] if built.odd else []
        return common_spaces(spaces, self._owner)

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

    def _tell(self, worker: Worker, message: bytes) -> None:
        if self._command != "rows":
            self._crew.status[worker.number] = PENDING
        self._crew.words[worker.number] = MESSAGE
        worker.go.release()  # first: a long message waits in the channel until the worker reads it
        try:
            worker.channel.send(message, self._options.timeout)
        except TimeoutError:
            raise self._failed(self._timed_out(list(worker.rows))) from None
        except OSError:
            pass  # the worker is dead: waiting for its answer will tell

    def _message(self, worker: Worker) -> Any:
        """Reads the message that a worker has announced."""
        deadline = self._deadline()
        if deadline is not None:  # it is being sent: let it arrive
            deadline = max(deadline, time.monotonic() + _ARRIVAL)
        try:
            return worker.channel.recv(deadline)
        except TimeoutError:
            raise self._failed(self._timed_out(list(worker.rows))) from None

    def _sleep(self) -> None:
        """Waits until a worker says that it is done; looks now and then whether all can still say so."""
        ready, deadline = self._crew.ready, self._deadline()
        wait = LOOK if deadline is None else min(LOOK, max(0.0, deadline - time.monotonic()))
        if awaited(ready, self._crew.spin) or ready.acquire(True, wait):
            return
        for worker in list(self._crew.workers):
            # Asked in this order: it may answer, and then end.
            if not worker.process.is_alive() and self._late_rows(worker):
                self._lost(worker)
        late = [row for worker in self._crew.workers for row in self._late_rows(worker)]
        if late and deadline is not None and time.monotonic() >= deadline:
            raise self._failed(self._timed_out(late))

    def _late_rows(self, worker: Worker) -> list[int]:
        """Returns the rows of a worker that have not answered."""
        if self._command != "rows":
            is_late = self._crew.status[worker.number] == PENDING
            return list(worker.rows) if is_late else []
        return [row for row in worker.rows if self._crew.row_status[row] == PENDING]

    def _take_wakeups(self) -> None:
        """Takes the wake-ups that nobody slept through."""
        while self._crew.ready.acquire(False):
            pass

    def _lost(self, worker: Worker) -> None:
        """Replaces a worker whose process has ended, if that is asked for; otherwise closes the pool."""
        error = died(worker, str(self._command), self._owner)
        if self._losses is None or worker.number in self._replaced:
            raise self._failed(error)
        self._replaced.add(worker.number)
        try:
            new = self._crew.replace(worker)
            sticky = {row: self._losses.sticky.get(row, {}) for row in new.rows}
            self._exchange(new, "sticky", (sticky,))
            served = self._exchange(new, "reset", ([(row, None, {}) for row in new.rows],))
        except Exception as second:
            raise self._failed(second) from error
        self._losses.add(new.rows, served.reset_infos if served is not None else {})
        if self._command == "rows":
            self._crew.row_status[new.rows.start : new.rows.stop] = DONE
        elif self._command != "step":
            self._tell(new, self._mail[new.number][0])
        warnings.warn(
            f"{self._owner}: the process of the environments {list(new.rows)} ended with exit code "
            f"{error.exit_code} and was started again; their episodes are reported as truncated.",
            RuntimeWarning,
            stacklevel=4,
        )

    def _exchange(self, worker: Worker, command: str, part: tuple[Any, ...]) -> Any:
        """Tells one worker something, in the middle of another command, and waits for the answer."""
        outer, self._command = self._command, command
        self._tell(worker, dumps((command, part)))
        crew, began = self._crew, time.monotonic()
        while crew.status[worker.number] == PENDING:
            if crew.ready.acquire(True, LOOK):
                continue
            if not worker.process.is_alive() and crew.status[worker.number] == PENDING:
                raise died(worker, command, self._owner)
            if (
                self._options.timeout is not None
                and time.monotonic() - began > self._options.timeout
            ):
                raise self._timed_out(list(worker.rows))
        reply = None
        if crew.status[worker.number] == DONE_WITH_MESSAGE:
            reply = worker.channel.recv()
            crew.status[worker.number] = DONE
        self._command = outer
        if isinstance(reply, Fault):
            raise raised(reply, self._owner)
        if isinstance(reply, Served):
            put_rows(self.columns, reply.carried)
        return reply

    def _deadline(self) -> float | None:
        timeout = self._options.timeout
        return None if timeout is None else self._since + timeout

    def _timed_out(self, rows: Sequence[int]) -> Exception:
        assert self._options.timeout is not None
        return timed_out(rows, str(self._command), self._options.timeout, self._owner)

    def _failed(self, error: Exception) -> Exception:
        """Closes the pool and returns the error that says why."""
        self._shut(f"{type(error).__name__} at `{self._command}`.", GRACE)
        return error

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
                f"{self._owner}.close: the processes of the environments {ending.killed} did not end "
                f"within {timeout} seconds and were killed.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _shut(self, reason: str, grace: float) -> Ending:
        """Ends everything; from now on every command is refused."""
        self._closed_by = reason
        self._command, self._under_way = None, []
        ending = self._crew.end(grace)
        self.columns = self._crew.columns
        if self._own is not None:
            try:
                self._own.close()
            except Exception as error:
                ending.faults.append(fault_of(error, self._own.group.current, "close"))
        return ending


def _parts(num_envs: int, options: Options, cores: int) -> list[range]:
    """Returns the rows of each worker; those of the caller first, where it steps some itself.

    Raises:
      ValueError: if there are no workers.
    """
    count = options.num_workers
    if count == "auto":
        count = max(1, cores - options.caller_steps)
    if not isinstance(count, int | np.integer) or count < 1:
        raise ValueError(
            f"{options.owner}: num_workers={count!r}; give a whole number from 1, or 'auto'."
        )
    return shares(num_envs, min(num_envs, int(count) + options.caller_steps))
