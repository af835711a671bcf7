"""Worker processes and the memory that they share with the caller: started, replaced and ended here."""

import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from typing import Any, Literal, NamedTuple

from jaxvec.vec._answers import Built
from jaxvec.vec._channel import Fault, dumps, raised
from jaxvec.vec._columns import Columns, columns_of, layout_of
from jaxvec.vec._memory import SharedArrays
from jaxvec.vec._running import Ending, Running, Worker, died
from jaxvec.vec._starting import (
    context_of,
    forget_name,
    pickled_env_fns,
    start_worker,
    usable_cores,
)
from jaxvec.vec._utils import same_space
from jaxvec.vec._worker import DONE, Binding, control_layout

LOOK = 0.1  # seconds between looks whether workers are alive
GRACE = 0.5  # seconds that workers have to end in after a fault
_GRACE_AT_EXIT = 1.0  # the same when nobody called close()
# Looks before going to sleep. Each takes a tenth of a microsecond from whoever needs the core, so that
# it pays only where cores are to spare (two workers on two cores: 109 us a step without, 145 with 1000).
_SPIN, _SPIN_IF_CROWDED = 200, 10
_GONE = Columns(None, None, None, None, None, None, {}, frozenset())


class Options(NamedTuple):
    """How a pool of processes is to be; see `SubprocVecEnv`."""

    start_method: str | None = None
    num_workers: int | Literal["auto"] = "auto"
    shared_memory: bool = True
    caller_steps: bool = False
    timeout: float | None = None
    restart_workers: bool = False
    owner: str = "SubprocVecEnv"  # name of the VecEnv's class, for messages


class Crew:
    """The workers of one pool. Nothing of them is left after `end`, or once it is gone itself.

    Args:
      env_fns: of all N environments.
      shares: the environments of each worker.
      options: how.

    Attributes:
      workers: those that run.
      columns: where results are; complete after `bind`.
      words: command words, uint8 `[W]`.
      status: answers, uint8 `[W]`.
      row_status: answers of single rows, uint8 `[N]`.
      measured: what the first steps took, float64 `[W, 3]`.
      ready: semaphore: a worker is done.
      spin: how often to look for it before going to sleep.
    """

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], shares: Sequence[range], options: Options
    ) -> None:
        self._options = options
        self._num_envs = len(env_fns)
        self._context = context_of(options.start_method)
        self._env_fns = pickled_env_fns(env_fns, self._context.get_start_method(), options.owner)
        self._running = Running()
        self._at_exit = weakref.finalize(self, self._running.end, _GRACE_AT_EXIT)
        self.ready = self._context.Semaphore(0)
        self.spin = _SPIN if len(shares) < usable_cores() else _SPIN_IF_CROWDED
        self.columns = _GONE
        resource_tracker.ensure_running()  # before a fork, or every child starts one of its own
        try:
            for number, rows in enumerate(shares):
                self._running.workers.append(self._start(number, rows))
        except BaseException:
            self.end(GRACE)
            raise

    @property
    def workers(self) -> list[Worker]:
        """Those that run."""
        return self._running.workers

    def _start(self, number: int, rows: range) -> Worker:
        own = self._env_fns[rows.start : rows.stop]
        return start_worker(self._context, number, rows, own, self.ready, self.spin)

    def built(self, worker: Worker) -> Built:
        """Waits until a worker's environments stand.

        Raises:
          Exception: what a constructor raised.
          WorkerDiedError: if the process ended.
        """
        while True:
            try:
                message = worker.channel.recv(time.monotonic() + LOOK)
            except TimeoutError:
                if worker.process.is_alive():
                    continue
                raise died(worker, "__init__", self._options.owner) from None
            except EOFError:
                raise died(worker, "__init__", self._options.owner) from None
            if isinstance(message, Fault):
                raise raised(message, self._options.owner)
            forget_name(worker.go)
            built: Built = message
            return built

    def bind(self, observation_space: Any, action_space: Any) -> None:
        """Makes the memory, and gives it to all workers.

        Args:
          observation_space: of one environment.
          action_space: of one environment.
        """
        layout = layout_of(observation_space, action_space, self._num_envs)
        shared = list(layout) if self._options.shared_memory else []
        control = control_layout(len(self.workers), self._num_envs)
        self._binding = Binding(
            self._num_envs, {**control, **{name: layout[name] for name in shared}}, shared
        )
        self._memory = SharedArrays(self._binding.layout)
        arrays = self._memory.arrays
        self.columns = columns_of(
            observation_space, self._num_envs, {name: arrays[name] for name in shared}
        )
        self.words, self.status = arrays["command"], arrays["status"]
        self.row_status, self.measured = arrays["row_status"], arrays["measured"]
        self.status[:] = self.row_status[:] = DONE
        for worker in self.workers:
            self._give_memory(worker)
        if not self._options.restart_workers:  # those that come later need both
            self._memory.seal()
            forget_name(self.ready)
        self._running.closing = arrays["closing"]

    def _give_memory(self, worker: Worker) -> None:
        worker.channel.send(dumps(self._binding))
        self._memory.send(worker.channel.connection)

    def replace(self, worker: Worker) -> Worker:
        """Starts a new process in the place of one that died, with new environments.

        Raises:
          WorkerDiedError: if that one dies as well.
        """
        worker.channel.close()
        worker.process.join()
        worker.process.close()
        new = self._start(worker.number, worker.rows)
        self.workers[self.workers.index(worker)] = new
        self.built(new)
        self._give_memory(new)
        return new

    def end(self, grace: float) -> Ending:
        """Ends all workers and lets go of the memory."""
        self._at_exit.detach()
        ending = self._running.end(grace)
        memory: SharedArrays | None = self.__dict__.pop("_memory", None)
        if memory is not None:
            memory.seal()
        self.columns = _GONE  # the memory goes with the last array of it
        for name in ("words", "status", "row_status", "measured", "ready"):
            self.__dict__.pop(name, None)
        return ending


def common_spaces(several: Sequence[tuple[int, Any, Any]], owner: str) -> tuple[Any, Any]:
    """Returns the spaces that all environments have.

    Args:
      several: row, observation space and action space of each environment that may differ.
      owner: name of the VecEnv's class, for the message.

    Raises:
      ValueError: if one has others than the first.
    """
    _, first_observation, first_action = several[0]
    for row, observation_space, action_space in several:
        if same_space(observation_space, first_observation) and same_space(
            action_space, first_action
        ):
            continue
        raise ValueError(
            f"{owner}: environment {row} has the spaces {observation_space} and {action_space}, "
            f"environment 0 has {first_observation} and {first_action}; all must have the same."
        )
    return first_observation, first_action
