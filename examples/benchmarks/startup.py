"""What it takes to begin: seconds of importing and until a first step, megabytes of a worker.

    python examples/benchmarks/startup.py [--quick] [--rounds 7]

Each figure is of processes that are started for it, in turns. The first step is that of eight CartPoles in
worker processes, counted from the interpreter's start; jaxvec's and SB3's must show the same observations.
Memory is the proportional set size (PSS) of /proc: pages that n processes share count a n-th in each. "Plain"
workers are processes that hold the same environments and nothing else.
"""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from shared import TIME, Effort, LeftOut, Measured, alone, amount, compared, missing

SECTION = "startup"
NUM_ENVS = 8


class Located(gym.Wrapper[Any, Any, Any, Any]):
    """Tells in which process it is."""

    @property
    def pid(self) -> int:
        """The process."""
        return os.getpid()


def make_env() -> gym.Env[Any, Any]:
    """Makes a CartPole."""
    return Located(gym.make("CartPole-v1"))


def sb3(**options: Any) -> Any:
    """Makes SB3's VecEnv."""
    classes: Any = import_module("stable_baselines3.common.vec_env")
    return classes.SubprocVecEnv([make_env] * NUM_ENVS, **options)


def own(**options: Any) -> Any:
    """Makes jaxvec's VecEnv."""
    from jaxvec.vec import SubprocVecEnv

    return SubprocVecEnv([make_env] * NUM_ENVS, **options)


class Plain:
    """As many processes, started the same way, that hold one environment each."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipes, self.processes = [], []
        for _ in range(NUM_ENVS):
            here, there = context.Pipe()
            process = context.Process(target=_held, args=(there,), daemon=True)
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def seed(self, seed: int) -> None:
        """Does nothing: their seed is 0."""

    def reset(self) -> Any:
        """Waits until all have reset their environment."""
        return np.array([pipe.recv() for pipe in self.pipes])

    def step(self, actions: Any) -> Any:
        """Steps all."""
        for pipe, action in zip(self.pipes, actions, strict=True):
            pipe.send(action)
        return [pipe.recv() for pipe in self.pipes]

    def get_attr(self, name: str) -> list[int]:
        """Returns the processes."""
        return [process.pid for process in self.processes if process.pid is not None]

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join()


def _held(pipe: Any) -> None:
    env = make_env()
    pipe.send(env.reset(seed=0)[0])
    while (action := pipe.recv()) is not None:
        pipe.send(env.step(action)[0])


VEC_ENVS: dict[str, Callable[[], Any]] = {
    "jaxvec": own,
    "jaxvec, a worker each": partial(own, num_workers=NUM_ENVS),
    "SB3": sb3,
    "plain": Plain,
}


def begin(name: str, began: float) -> None:
    """What a child process does: prints seconds until the first step, PSS in MB, observations."""
    venv = VEC_ENVS[name]()
    venv.seed(0)
    first = venv.reset()
    venv.step(np.zeros(NUM_ENVS, int))
    seconds = time.time() - began
    for _ in range(20):
        venv.step(np.zeros(NUM_ENVS, int))
    pids = sorted(set(venv.get_attr("pid")))
    memory = [pss(pid) for pid in pids] if Path("/proc/self/smaps_rollup").exists() else []
    venv.close()
    print([seconds, sum(memory) / len(pids) if memory else None, sum(memory), first.tolist()])


def pss(pid: int) -> float:
    """Returns the proportional set size of a process, MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def printed(code: str) -> Any:
    """Runs Python code in a new process, from this folder; returns what it printed, as a value."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path[1:]))},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    from ast import literal_eval

    return literal_eval(done.stdout.strip().splitlines()[-1])


def importing(modules: str) -> float:
    """Returns how long a new process takes to import modules, seconds."""
    code = f"import time; began = time.perf_counter(); import {modules}"
    return float(printed(f"{code}; print(time.perf_counter() - began)"))


def first_step(name: str) -> list[Any]:
    """Returns what `begin` prints, in a new process."""
    found: list[Any] = printed(
        f"import time; began = time.time(); import startup; startup.begin({name!r}, began)"
    )
    return found


def measure(effort: Effort) -> Measured:
    """Measures imports, then first steps and memory."""
    absent = missing(SECTION, "SB3's import, first step and workers", "stable_baselines3")
    yield from absent
    base = "numpy, gymnasium"
    imports = {
        "base": base,
        "jaxvec": f"{base}, jaxvec",
        "jaxvec.vec": f"{base}, jaxvec.vec",
    }
    if not absent:
        imports["SB3"] = "stable_baselines3.common.vec_env"
    times: dict[str, list[float]] = {name: [] for name in imports}
    for lap in range(effort.rounds + 1):
        for name, modules in imports.items():
            seconds = importing(modules)
            if lap:  # the first reads files that may not be in the memory yet
                times[name].append(seconds)
    for name, target in (("jaxvec", 0.25), ("jaxvec.vec", None)):
        what = f"import {name}"
        yield amount(SECTION, what, times[name], "s", target, peer=base, theirs=times["base"])
    if not absent:
        pair = times["jaxvec.vec"], times["SB3"]
        yield compared(SECTION, "import jaxvec.vec", "SB3's vec_env", *pair, (1, "s"))
    yield from with_workers(effort, [name for name in VEC_ENVS if name != "SB3" or not absent])


def with_workers(effort: Effort, names: list[str]) -> Measured:
    """Measures the first step and memory."""
    found: dict[str, list[list[Any]]] = {name: [] for name in names}
    for _ in range(effort.rounds):
        for name in names:
            found[name].append(first_step(name))
    shown = [each[0][3] for name, each in found.items() if name != "plain"]
    for other in shown[1:]:
        np.testing.assert_array_equal(shown[0], other)
    seconds, mean, whole = (
        {name: [one[place] for one in each] for name, each in found.items()} for place in range(3)
    )
    each_its_own = "jaxvec, a worker each"
    if "SB3" in names:
        what = f"first step, {NUM_ENVS} environments in workers"
        yield compared(SECTION, what, "SB3", seconds["jaxvec"], seconds["SB3"], (1, "s"))
    if mean["jaxvec"][0] is None:
        yield LeftOut(SECTION, "memory of workers", "there is no /proc/PID/smaps_rollup")
        return
    pair = {"peer": "plain worker", "theirs": mean["plain"]}
    yield amount(
        SECTION, "memory of a worker, one environment", mean[each_its_own], "MB", 5, **pair
    )
    if "SB3" in names:
        for what, sizes, name in (
            ("memory of a worker, one environment", mean, each_its_own),
            (f"memory of all workers, {NUM_ENVS} environments", whole, "jaxvec"),
        ):
            pair = sizes[name], sizes["SB3"]
            yield compared(SECTION, what, "SB3", *pair, (1, "MB"), kind=TIME)


if __name__ == "__main__":
    alone(SECTION, __doc__, measure)
