"""How fast are VecEnvs over classic environments? jaxvec beside Stable-Baselines3, in one run.

    python examples/benchmarks/classic.py [--quick] [--only dummy|cartpole|burn|sleep|pong]

Absolute figures move with the machine and the hour; the ratio of two times that were taken turn by turn
does not. At first both sides must return the same bits for the same seeds and actions. Actions are drawn
before, and nobody reads infos, on both sides. Environments that burn 0.2 ms a step are also held against two
processes that step half of them each and never wait for one another: more than that two cores cannot do.
"""

import itertools
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from shared import Effort, Measured, alone, compared, missing, turns

from jaxvec.vec import DummyVecEnv, SubprocVecEnv, VecFrameStack

SECTION = "classic"


class Sleeper(gym.Env[Any, Any]):
    """Waits 5 ms in each step, as for a simulator on another machine."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begins an episode."""
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        """Waits."""
        time.sleep(0.005)
        return np.zeros(4, np.float32), 1.0, False, False, {}


class Burner(gym.Env[Any, Any]):
    """Computes for 0.2 ms in each step, and shows four frames of 84x84."""

    observation_space = spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begins an episode."""
        super().reset(seed=seed)
        return np.zeros((84, 84, 4), np.uint8), {}

    def step(self, action: Any) -> Any:
        """Burns CPU time, not wall time: what another process takes away is not counted."""
        until = time.thread_time() + 2e-4
        while time.thread_time() < until:
            pass
        return np.zeros((84, 84, 4), np.uint8), 1.0, False, False, {}


class Apart:
    """Two processes that step half of the environments each, with no word between a burst's ends."""

    def __init__(self, make_env: Any, num_envs: int) -> None:
        context = multiprocessing.get_context("forkserver")
        self.pipes, self.processes = [], []
        for share in (num_envs // 2, num_envs - num_envs // 2):
            here, there = context.Pipe()
            process = context.Process(
                target=_step_alone, args=(make_env, share, there), daemon=True
            )
            process.start()
            self.pipes.append(here)
            self.processes.append(process)
        self.step(1)

    def step(self, count: int) -> None:
        """Steps all environments so many times."""
        for pipe in self.pipes:
            pipe.send(count)
        for pipe in self.pipes:
            pipe.recv()

    def close(self) -> None:
        """Ends the processes."""
        for pipe in self.pipes:
            pipe.send(0)
        for process in self.processes:
            process.join()


def _step_alone(make_env: Any, num_envs: int, pipe: Any) -> None:
    envs = [make_env() for _ in range(num_envs)]
    for env in envs:
        env.reset(seed=0)
    while count := pipe.recv():
        for _ in range(count):
            for env in envs:
                _, _, terminated, truncated, _ = env.step(0)
                if terminated or truncated:
                    env.reset()
        pipe.send(None)


Maker = Callable[[list[Callable[[], Any]]], Any]
OURS = "jaxvec"
CALLER = "jaxvec, caller_steps"


def check_equal(venvs: dict[str, Any], actions: Any, steps: int) -> None:
    """Asserts that all VecEnvs return the same observations, rewards and dones for the same seeds."""
    shown: dict[str, Any] = {}
    for name, venv in venvs.items():
        venv.seed(0)
        shown[name] = [(venv.reset(),)]
        shown[name] += [venv.step(each)[:3] for each in actions[:steps]]
    first, *others = shown.values()
    for other in others:
        for one, two in zip(first, other, strict=True):
            for left, right in zip(one, two, strict=True):
                np.testing.assert_array_equal(left, right)


def compare(
    make_env: Any, num_envs: int, makers: dict[str, Maker], effort: Effort, *, apart: bool = False
) -> dict[str, list[float]]:
    """Lets several VecEnvs take turns.

    Args:
      make_env: makes one environment.
      num_envs: N.
      makers: of the VecEnvs, by name.
      effort: how much is measured.
      apart: whether two processes without a word between them take part, as "apart".

    Returns:
      Seconds of a step of all environments, a round each.
    """
    venvs = {name: make([make_env] * num_envs) for name, make in makers.items()}
    alone = Apart(make_env, num_envs) if apart else None
    try:
        space = next(iter(venvs.values())).action_space
        actions = np.random.default_rng(0).integers(0, space.n, (64, num_envs))
        check_equal(venvs, actions, effort.of(64, 32, 4))
        calls = {
            name: partial(_stepped, venv.step, itertools.cycle(actions))
            for name, venv in venvs.items()
        }
        if alone is None:
            return turns(calls, effort)
        return _with_apart(calls, alone, effort)
    finally:
        for each in [*venvs.values(), *([] if alone is None else [alone])]:
            each.close()


def _stepped(step: Callable[[Any], Any], actions: Iterator[Any]) -> None:
    step(next(actions))


def _with_apart(
    calls: dict[str, Callable[[], Any]], alone: Apart, effort: Effort
) -> dict[str, list[float]]:
    """Lets bursts take turns that are as long for those who never wait as for the others."""
    began = time.perf_counter()
    alone.step(3)
    count = max(2, int(effort.burst * 3 / (time.perf_counter() - began)))

    def burst(call: Callable[[], Any]) -> None:
        for _ in range(count):
            call()

    bursts = {name: partial(burst, call) for name, call in calls.items()}
    bursts["apart"] = partial(alone.step, count)
    times = turns(bursts, effort._replace(burst=0))
    return {name: [seconds / count for seconds in each] for name, each in times.items()}


def measure(effort: Effort, only: str | None = None) -> Measured:
    """Compares back ends on environments of several kinds."""
    left_out = missing(SECTION, "all of it", "stable_baselines3")
    yield from left_out
    if left_out:
        return
    # SB3's workers import torch: 64 of them would still load the machine while others are measured.
    multiprocessing.set_forkserver_preload(
        ["stable_baselines3.common.vec_env", "jaxvec.vec._worker"]
    )
    theirs: Any = import_module("stable_baselines3.common.vec_env")
    cartpole = partial(gym.make, "CartPole-v1")
    dummies: dict[str, Maker] = {"SB3": theirs.DummyVecEnv, OURS: DummyVecEnv}
    workers: dict[str, Maker] = {"SB3": theirs.SubprocVecEnv, OURS: SubprocVecEnv}
    both = {**workers, CALLER: partial(SubprocVecEnv, caller_steps=True)}

    def wanted(name: str) -> bool:
        return only in (None, name)

    def rows(what: str, times: Any, num_envs: int, targets: Mapping[str, float]) -> Measured:
        scale = 1e6 / num_envs, "us"
        for name in times:
            if name not in ("SB3", "apart"):
                pair, full = (times[name], times["SB3"]), what + name.removeprefix(OURS)
                yield compared(SECTION, full, "SB3", *pair, scale, targets.get(name))

    if wanted("dummy"):
        for n in effort.of((1, 8, 64), (8,), (2,)):
            # As fast, with the tolerance of 5 % that such a comparison has.
            times = compare(cartpole, n, dummies, effort)
            yield from rows(f"DummyVecEnv, CartPole, N={n}", times, n, {OURS: 0.95})
    if wanted("cartpole"):
        for n in effort.of((8, 16, 64), (8, 64), (2,)):
            targets = {8: {OURS: 5, CALLER: 6}, 64: {OURS: 12}}.get(n, {})
            times = compare(cartpole, n, both, effort)
            yield from rows(f"SubprocVecEnv, CartPole, N={n}", times, n, targets)
    if wanted("burn"):
        for n in effort.of((8, 16, 32), (8, 32), (2,)):
            times = compare(Burner, n, both, effort, apart=True)
            what = f"SubprocVecEnv, 0.2 ms and an image, N={n}"
            yield from rows(what, times, n, {OURS: 2.3})
            best = min(OURS, CALLER, key=lambda name: statistics.median(times[name]))
            what, pair = what + best.removeprefix(OURS), (times[best], times["apart"])
            yield compared(SECTION, what, "no waiting", *pair, (1e6 / n, "us"), 0.75)
    if wanted("sleep"):
        many: dict[str, Maker] = {**workers, OURS: partial(SubprocVecEnv, num_workers=16)}
        n = effort.of(16, 16, 2)
        times = compare(Sleeper, n, many, effort)
        yield from rows(
            f"SubprocVecEnv, num_workers=16, sleeps 5 ms, N={n}", times, n, {OURS: 0.95}
        )
    if wanted("pong") and effort.name != "tiny":
        left_out = missing(SECTION, "Atari's Pong", "ale_py", "cv2")
        yield from left_out[:1]
        if not left_out:
            stacked: dict[str, Maker] = {
                "SB3": lambda env_fns: theirs.VecFrameStack(theirs.SubprocVecEnv(env_fns), 4),
                OURS: lambda env_fns: VecFrameStack(SubprocVecEnv(env_fns), 4),
            }
            times = compare(pong, 8, stacked, effort)
            yield from rows("SubprocVecEnv, Atari's Pong, 4 frames, N=8", times, 8, {OURS: 1.7})


def pong() -> Any:
    """Makes Pong as it is trained on: 84 x 84, grey, four frames skipped."""
    import_module("ale_py")
    wrappers: Any = import_module("stable_baselines3.common.atari_wrappers")
    return wrappers.AtariWrapper(gym.make("PongNoFrameskip-v4"))


if __name__ == "__main__":
    kinds = ("dummy", "cartpole", "burn", "sleep", "pong")
    alone(SECTION, __doc__, measure, lambda add: add("--only", choices=kinds))
