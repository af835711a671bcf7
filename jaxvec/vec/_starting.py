"""How a worker process is started."""

import itertools
import multiprocessing as mp
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from multiprocessing import util
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from jaxvec.vec._channel import Channel
from jaxvec.vec._running import GUARD_HINT, Worker
from jaxvec.vec._worker import Job, run_worker


def pickled_env_fns(
    env_fns: Sequence[Callable[[], Any]], start_method: str, owner: str
) -> list[Any]:
    """Pickles the constructors by value; those of forked workers are inherited as they are.

    Args:
      env_fns: the constructors.
      start_method: of multiprocessing, or "ray".
      owner: name of the VecEnv's class, for the message.

    Raises:
      TypeError: if one cannot be pickled.
    """
    if start_method == "fork":
        return list(env_fns)
    pickled = []
    for row, env_fn in enumerate(env_fns):
        try:
            pickled.append(cloudpickle.dumps(env_fn))
        except Exception as error:
            raise TypeError(
                f"{owner}: env_fns[{row}] cannot be pickled ({type(error).__name__}: {error}), so it "
                "cannot be sent to another process. Build everything the environment needs inside the "
                "function, or use a DummyVecEnv, or SubprocVecEnv with start_method='fork'."
            ) from error
    return pickled


def start_worker(
    context: Any, number: int, rows: range, env_fns: Sequence[Any], ready: Any, spin: int
) -> Worker:
    """Starts the process of some environments.

    Raises:
      RuntimeError: if the start method cannot start one.
    """
    ours, theirs = Channel.pair()
    go = context.Semaphore(0)
    forked = context.get_start_method() == "fork"
    job = Job(number, rows, env_fns, theirs, go, ready, os.getpid(), forked, spin)
    process = context.Process(
        target=run_worker, args=(job,), daemon=True, name=f"jaxvec-worker-{number}"
    )
    try:
        process.start()
    except BaseException as error:
        ours.close()
        if isinstance(error, EOFError | ConnectionError):
            raise RuntimeError(
                f"SubprocVecEnv: no process could be started by {context.get_start_method()!r} "
                f"({type(error).__name__}). {GUARD_HINT}"
            ) from error
        raise
    finally:
        theirs.connection.close()
    return Worker(number, rows, process, ours, go)


def forget_name(semaphore: Any) -> None:
    """Takes a semaphore's name out of the system, once every process that needs it has it.

    Otherwise the name is there until the semaphore is gone, and a caller that is killed leaves it behind.
    """
    # multiprocessing registers the removal for the object's end; here it is done now, and once.
    for finalizer in list(util._finalizer_registry.values()):  # type: ignore[attr-defined]
        reference = vars(finalizer).get("_weakref")  # some belong to no object
        if reference is not None and reference() is semaphore:
            finalizer()


def usable_cores() -> int:
    """Returns how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else (os.cpu_count() or 1)


def context_of(start_method: str | None) -> Any:
    """Returns the multiprocessing context; by default forkserver, or spawn where there is none.

    Raises:
      ValueError: if there is no such start method.
    """
    if start_method is None:
        known = mp.get_all_start_methods()
        start_method = "forkserver" if "forkserver" in known else "spawn"
    return mp.get_context(start_method)


def warn_of_fork(start_method: str | None) -> None:
    """Warns where worker processes are to be forked from one that has loaded JAX.

    Args:
      start_method: what was asked for.
    """
    if start_method == "fork" and "jax" in sys.modules:
        warnings.warn(
            "SubprocVecEnv: start_method='fork' copies this process, in which JAX is loaded, but not JAX's "
            "threads; a worker that waits for one of them stands still for ever. Leave start_method out (it "
            "is then 'forkserver', or 'spawn'), or make the VecEnv before JAX is imported.",
            RuntimeWarning,
            stacklevel=3,
        )


def shares(num_envs: int, parts: int) -> list[range]:
    """Splits N environments into ranges whose lengths differ by one at most."""
    bounds = [num_envs * part // parts for part in range(parts + 1)]
    return [range(start, stop) for start, stop in itertools.pairwise(bounds)]
