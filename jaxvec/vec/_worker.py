"""What runs in a worker process: a group of environments, served until the caller closes or dies.

Commands come in two ways. A step of all rows is a word in shared memory and a semaphore; everything else
is a message. An answer is a word and a semaphore too, and a message only where there is something to say
beyond the columns.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from multiprocessing import connection, parent_process
from typing import Any, NamedTuple

import numpy as np

from jaxvec.vec._answers import Answerer, build
from jaxvec.vec._channel import Channel, Fault, dumps, fault_of
from jaxvec.vec._columns import Layout, columns_of
from jaxvec.vec._memory import attached
from jaxvec.vec._serve import Group

# Words of the caller (`command`) and of a worker (`status`, `row_status`).
MESSAGE, STEP = 0, 1
PENDING, DONE, DONE_WITH_MESSAGE = 0, 1, 2

MEASURED_STEPS = 20  # the first ones: do environments compute or wait?
_GRACE = 1.0  # seconds that environments have to close in once the caller is dead


class Job(NamedTuple):
    """What a worker is told when it is started."""

    number: int  # which worker
    rows: range  # its environments
    env_fns: Sequence[Any]  # pickled by value; the functions themselves where it is forked
    channel: Channel
    go: Any  # semaphore: the caller has something to do
    ready: Any  # semaphore of all workers: a worker, or a row, is done
    caller: int  # process id
    forked: bool
    spin: int  # how often to look before going to sleep


class Binding(NamedTuple):
    """Where the results go; the memory itself follows the message."""

    num_envs: int
    layout: Layout
    shared: Sequence[str]  # which of the arrays are columns


def control_layout(num_workers: int, num_envs: int) -> Layout:
    """Returns the arrays that commands and answers travel in."""
    word = np.dtype(np.uint8)
    return {
        "command": ((num_workers,), word),
        "closing": ((num_workers,), word),  # 1: the end; the caller alone writes it
        "status": ((num_workers,), word),
        "row_status": ((num_envs,), word),
        "measured": ((num_workers, 3), np.dtype(np.float64)),  # seconds, CPU seconds, waits
    }


def awaited(semaphore: Any, spin: int) -> bool:
    """Looks a few times whether a semaphore is free: asleep, one wakes up later."""
    acquire = semaphore.acquire
    for _ in range(spin):  # noqa: SIM110  a generator would be slower than the look itself
        if acquire(False):
            return True
    return False


def run_worker(job: Job) -> None:
    """Serves a group of environments: the target of a worker process."""
    # The caller gets the interrupt as well and decides; a traceback of every worker helps nobody. A
    # function, not SIG_IGN, so that programs which an environment starts do not inherit it.
    signal.signal(signal.SIGINT, lambda *_: None)
    threading.Thread(target=_watch_caller, args=(job,), daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the caller has closed its end, or is dead
        _serve(job)


def _watch_caller(job: Job) -> None:
    """Ends this process when the caller's has ended, whatever an environment is doing."""
    if job.forked:  # siblings hold copies of the caller's pipes, which never close
        while os.getppid() == job.caller:
            time.sleep(0.25)
    else:
        caller = parent_process()
        assert caller is not None
        connection.wait([caller.sentinel])
    job.channel.close()
    job.go.release()
    time.sleep(_GRACE)
    os._exit(1)


def _serve(job: Job) -> None:
    group = Group(job.rows)
    try:
        try:
            built = dumps(build(group, job.env_fns))
        except BaseException as error:  # sys.exit() in a constructor too
            job.channel.send(dumps(fault_of(error, group.current, "__init__")))
            return
        job.channel.send(built)
        _Service(job, group).run()
    finally:
        farewell: Fault | None = None
        try:
            group.close()
        except Exception as error:
            farewell = fault_of(error, group.current, "close")
        job.channel.send(dumps(farewell))


class _Service:
    """Takes commands and answers them."""

    def __init__(self, job: Job, group: Group) -> None:
        self._job, self._group = job, group
        binding: Binding = job.channel.recv()
        arrays = attached(job.channel.connection, binding.layout)
        shared = {name: arrays[name] for name in binding.shared}
        space = group.envs[0].observation_space
        self._columns = columns_of(space, binding.num_envs, shared)
        self._command, self._closing = arrays["command"], arrays["closing"]
        self._status = arrays["status"]
        self._row_status = arrays["row_status"]
        self._measure = _Measure(arrays["measured"][job.number])
        self._answerer = Answerer(group, self._columns)
        group.bind(self._columns)

    def run(self) -> None:
        """Serves until the caller says that it is closing, or its end of the channel is gone."""
        job, group, answer = self._job, self._group, self._answerer.answer
        rows = slice(job.rows.start, job.rows.stop)
        while True:
            if not awaited(job.go, job.spin):
                job.go.acquire()
            # Not a command word: those are taken back here, and with one the word of a caller that
            # closes while a step is pending.
            if self._closing[job.number]:
                return
            if self._command[job.number] == STEP:
                assert self._columns.actions is not None
                # A copy: an environment may keep its action, the caller writes the next one there.
                self._step(self._columns.actions[rows].copy())
                continue
            name, payload = job.channel.recv()
            if name == "rows":
                for action, row in zip(*payload, strict=True):
                    message = answer(name, partial(group.step, [action], [row])).message
                    self._answer(self._row_status, row, message)
            elif name == "step":
                self._step(*payload)
            else:
                message = answer(name, partial(group.do, name, payload)).message
                self._answer(self._status, job.number, message)

    def _step(self, actions: Any, rows: Sequence[int] | None = None) -> None:
        # The word is taken back before the answer: the caller writes the next one after it.
        self._command[self._job.number] = MESSAGE
        step = partial(self._answerer.answer, "step", partial(self._group.step, actions, rows))
        answer = self._measure(step) if self._measure.steps_left else step()
        self._answer(self._status, self._job.number, answer.message)

    def _answer(self, status: Any, place: int, message: bytes | None) -> None:
        if message is None:
            status[place] = DONE
            self._job.ready.release()
            return
        # Before it is sent: a long message waits in the channel until the caller reads it.
        status[place] = DONE_WITH_MESSAGE
        self._job.ready.release()
        self._job.channel.send(message)


class _Measure:
    """Finds out over the first steps whether environments compute or wait."""

    def __init__(self, totals: Any) -> None:
        self._totals = totals  # float64 [3]: seconds, CPU seconds, voluntary waits
        self.steps_left = MEASURED_STEPS
        try:
            self._resource: Any = import_module("resource")
        except ImportError:  # no such counters on Windows
            self.steps_left = 0

    def _now(self) -> Any:
        usage = self._resource.getrusage(self._resource.RUSAGE_SELF)
        return np.array((time.perf_counter(), usage.ru_utime + usage.ru_stime, usage.ru_nvcsw))

    def __call__(self, call: Callable[[], Any]) -> Any:
        before = self._now()
        result = call()
        self._totals += self._now() - before
        self.steps_left -= 1
        return result
