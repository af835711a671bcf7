"""What a pool of processes is made of, and how it waits for them: deaths and timeouts are noticed here."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxvec.vec._advice import Advice
from jaxvec.vec._channel import dumps, fault_of
from jaxvec.vec._crew import GRACE, LOOK, Crew, Options, common_spaces
from jaxvec.vec._own_share import OwnShare
from jaxvec.vec._pools import checked_env_fns
from jaxvec.vec._running import Ending, Worker, died
from jaxvec.vec._starting import shares, usable_cores
from jaxvec.vec._worker import DONE, DONE_WITH_MESSAGE, MESSAGE, PENDING, awaited
from jaxvec.vec._worker_pool import Terms, WorkerPool

_ARRIVAL = 1.0  # seconds that a message has to arrive in once it is announced


class CrewPool(WorkerPool):
    """A pool over worker processes; a subclass says what is sent and what the answers mean.

    Args:
      env_fns: build one environment each.
      options: how.
    """

    def __init__(self, env_fns: Iterable[Callable[[], Any]], options: Options) -> None:
        env_fns = checked_env_fns(env_fns)
        super().__init__(
            len(env_fns),
            Terms(
                options.timeout,
                options.restart_workers,
                options.owner,
                "process",
                "processes",
                GRACE,
            ),
        )
        self._row_replies: dict[int, Any] = {}  # row -> its answer, of the command `rows`
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
            spaces += self._crew.built(worker).spaces(worker.rows.start)
        return common_spaces(spaces, self._owner)

    def _tell(self, worker: Worker, message: bytes) -> None:
        if self._command != "rows":
            self._crew.status[worker.number] = PENDING
        self._crew.words[worker.number] = MESSAGE
        worker.go.release()  # first: a long message waits in the channel until the worker reads it
        try:
            worker.channel.send(message, self._terms.timeout)
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
                self._died(worker)
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

    def _died(self, worker: Worker) -> None:
        """Replaces a worker whose process has ended, if that is asked for; otherwise closes the pool."""
        self._lost(worker, died(worker, str(self._command), self._owner))

    def _replace(self, worker: Worker) -> Worker:
        return self._crew.replace(worker)

    def _resume(self, worker: Worker) -> None:
        if self._command == "rows":
            self._crew.row_status[worker.rows.start : worker.rows.stop] = DONE
        elif self._command != "step":
            self._tell(worker, self._mail[worker.number][0])

    def _exchange(self, worker: Worker, command: str, part: tuple[Any, ...]) -> Any:
        outer, self._command = self._command, command
        self._tell(worker, dumps((command, part)))
        crew, began = self._crew, time.monotonic()
        while crew.status[worker.number] == PENDING:
            if crew.ready.acquire(True, LOOK):
                continue
            if not worker.process.is_alive() and crew.status[worker.number] == PENDING:
                raise died(worker, command, self._owner)
            if self._terms.timeout is not None and time.monotonic() - began > self._terms.timeout:
                raise self._timed_out(list(worker.rows))
        reply = None
        if crew.status[worker.number] == DONE_WITH_MESSAGE:
            reply = worker.channel.recv()
            crew.status[worker.number] = DONE
        self._command = outer
        return self._settled(reply)

    def _end(self, grace: float) -> Ending:
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
