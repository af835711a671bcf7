"""The worker processes of one pool: started together, and ended so that nothing of them is left."""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from jaxvec.errors import WorkerDiedError, WorkerTimeoutError
from jaxvec.typing import Array
from jaxvec.vec._channel import Channel, Fault

_KILLED_JOIN = 5.0  # seconds a killed process has to disappear in


@dataclass
class Worker:
    """One process, as the caller sees it."""

    number: int
    rows: range  # its environments
    process: Any
    channel: Channel
    go: Any  # semaphore: it has something to do; None once the process has ended


class Ending(NamedTuple):
    """How the end went."""

    faults: list[Fault]  # exceptions of the environments' `close`
    killed: list[int]  # environments whose process had to be killed


class Running:
    """What a pool has to end: it refers to the pool by nothing, so that it can end it when it is gone.

    Attributes:
      workers: those that run.
      closing: tells them in shared memory, uint8 `[W]`, that it is the end; None until they are bound.
    """

    def __init__(self) -> None:
        self._caller = os.getpid()
        self.workers: list[Worker] = []
        self.closing: Array | None = None

    def end(self, timeout: float) -> Ending:
        """Lets all workers close their environments, and kills those that have not ended in time.

        Args:
          timeout: seconds, for all together.
        """
        deadline = time.monotonic() + timeout
        ending = Ending([], [])
        if os.getpid() != self._caller:  # a fork has a copy of this, but no workers of its own
            return ending
        workers, self.workers = self.workers, []
        closing, self.closing = self.closing, None
        for worker in workers:
            if closing is None:  # some may not be bound to it: they hear that the channel closes
                worker.channel.close()
            else:
                closing[worker.number] = 1
            worker.go.release()
        for worker in workers:
            if closing is not None:
                fault = _farewell(worker.channel, deadline)
                ending.faults.extend([fault] if fault else [])
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                ending.killed.extend(worker.rows)
                worker.process.kill()
                worker.process.join(_KILLED_JOIN)
            worker.channel.close()
            worker.go = None  # a traceback that holds the worker shall not hold a semaphore
            with contextlib.suppress(ValueError):  # a machine so busy that even a kill is late
                worker.process.close()
        return ending


def _farewell(channel: Channel, deadline: float) -> Fault | None:
    """Reads what a worker still had to say, up to its last message: what its `close` raised."""
    while True:
        try:
            message = channel.recv(deadline)
        except Exception:  # it is dead, or too late, or says what cannot be unpickled here
            return None
        if message is None:
            return None
        if isinstance(message, Fault) and message.command == "close":
            return message


GUARD_HINT = (
    "If this is at the start of a script: new processes import the main module, so what the script does "
    "must stand under `if __name__ == '__main__':`."
)


def died(worker: Worker, command: str, owner: str) -> WorkerDiedError:
    """Returns the error that says that a worker's process has ended by itself."""
    worker.process.join(_KILLED_JOIN)
    code = worker.process.exitcode
    rows = worker.rows
    which = f"{rows.start}-{rows.stop - 1}" if len(rows) > 1 else f"{rows.start}"
    hint = (
        GUARD_HINT
        if command == "__init__"
        else "Run the same `env_fns` in a DummyVecEnv to debug the environment."
    )
    return WorkerDiedError(
        f"{owner}: the process of environments {which} ended with exit code {code} while `{command}` was "
        f"pending (-9 is a kill, often for lack of memory). This VecEnv is now closed. {hint}",
        rows.start,
        code,
    )


def timed_out(rows: Sequence[int], command: str, timeout: float, owner: str) -> WorkerTimeoutError:
    """Returns the error that says that workers have not answered in time."""
    return WorkerTimeoutError(
        f"{owner}: the environments {list(rows)} have not answered `{command}` within timeout={timeout} "
        "seconds. This VecEnv is now closed. Give it a longer timeout, or run the same `env_fns` in a "
        "DummyVecEnv to see what they do.",
        rows[0] if rows else None,
    )
