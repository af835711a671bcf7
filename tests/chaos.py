"""Environments that die, raise, hang and answer nonsense: is every episode accounted for?

    python -m tests.chaos [--minutes 5] [--num-envs 12] [--num-workers 3] [--seed 0]

A SubprocVecEnv with `restart_workers=True` is stepped with random actions. Deaths must be survived: the lost
episode ends truncated, exactly once, with what was seen last, and a new one begins. Other faults must close
the VecEnv with their own exception; another one is made then. Processes, descriptors, blocks and memory
stay as few. Environments write every fault down before they suffer it: what came of it can be counted.
"""

import argparse
import collections
import gc
import multiprocessing
import os
import random
import signal
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from jaxvec.errors import WorkerTimeoutError
from jaxvec.vec import SubprocVecEnv

# How likely each fault is in a step of one environment.
RATES = {"kill": 2e-4, "exit": 2e-4, "raise": 1e-5, "nonsense": 1e-5, "hang": 5e-6}


class AccidentError(RuntimeError):
    """What an environment raises."""


class ChaosEnv(gym.Env[Any, Any]):
    """Counts: the observation is the number of the step; every step gives 1; faults come at random."""

    observation_space = spaces.Box(0, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, rates: dict[str, float], diary: str) -> None:
        self.rates, self.random = rates, random.Random(os.urandom(8))
        self.diary = diary
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begins an episode of a length that is drawn."""
        super().reset(seed=seed)
        self.steps, self.length = 0, self.random.randint(1, 60)
        return np.array([0, self.length], np.float32), {}

    def step(self, action: Any) -> Any:
        """Counts, if nothing happens."""
        draw = self.random.random()
        for fault, rate in self.rates.items():
            if draw < rate:
                return self._suffer(fault)
            draw -= rate
        self.steps += 1
        obs = np.array([self.steps, self.length], np.float32)
        ended = self.steps == self.length
        return obs, 1.0, ended and bool(action), ended and not action, {}

    def _suffer(self, fault: str) -> Any:
        with open(self.diary, "a") as diary:  # short lines in append mode: none is torn
            diary.write(f"{fault}\n")
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "exit":
            os._exit(3)
        if fault == "raise":
            raise AccidentError("as it happens")
        if fault == "hang":
            time.sleep(3600)
        return np.zeros((3, 3)), "much", None, None, []


class Outcome(NamedTuple):
    """What a run has seen."""

    steps: int  # of all environments together
    episodes: int  # that ended by themselves
    lost: int  # that a death ended, each reported once
    injected: dict[str, int]  # faults that environments wrote down
    survived: int  # deaths after which the same VecEnv went on
    faults: dict[str, int]  # closed VecEnvs by exception
    unaccounted: int  # steps of no episode that ended, was lost, or ran when its VecEnv was closed
    leaked_processes: int
    leaked_blocks: int  # of shared memory
    descriptors: tuple[int, int]  # open at the beginning and at the end
    mebibytes: tuple[float, float]  # resident, after the first VecEnv and at the end


def resident() -> float:
    """Returns this process's resident memory, MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def descriptors() -> int:
    """Returns how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))


def shared_blocks() -> int:
    """Returns how many pieces of shared memory this process has mapped."""
    return sum("memfd:" in line for line in Path("/proc/self/maps").read_text().splitlines())


def check_step(before: Any, actions: Any, after: Any, counts: Any) -> tuple[int, int, int]:
    """Holds one step of all environments against the rules.

    Args:
      before: the observations that were seen last, float32 `[N, 2]`.
      actions: `[N]`.
      after: what `step` returned.
      counts: int `[N]`, the steps of each running episode; brought up to date.

    Returns:
      The episodes that ended, those that were lost, and the steps of both together.
    """
    obs, rewards, dones, infos = after
    counts += 1
    ended = lost = told = 0
    for row, info in enumerate(infos):
        if not dones[row]:
            assert rewards[row] == 1, (row, rewards[row])
            assert obs[row, 0] == counts[row] == before[row, 0] + 1, (row, obs[row], counts[row])
            assert obs[row, 1] == before[row, 1], row
            assert "terminal_observation" not in info, row
            continue
        final = info["terminal_observation"]
        assert obs[row, 0] == 0, (row, obs[row])  # a new episode
        assert final[1] == before[row, 1], (row, final, before[row])
        if rewards[row] == 1:
            ended += 1
            assert final[0] == final[1] == counts[row], (row, final, counts[row])
            assert info["TimeLimit.truncated"] == (not actions[row]), row
        else:
            lost += 1
            assert rewards[row] == 0, row
            assert info["TimeLimit.truncated"] is True, row
            assert final[0] == counts[row] - 1 == before[row, 0], (row, final, counts[row])
        told += int(counts[row])
        counts[row] = 0
    return ended, lost, told


def run(seconds: float, num_envs: int, num_workers: int, seed: int, rates: Any = None) -> Outcome:
    """Steps until the time is over.

    Raises:
      AssertionError: if an episode is not accounted for, or an exception is none of those planted.
    """
    rng = np.random.default_rng(seed)
    faults: collections.Counter[str] = collections.Counter()
    steps = episodes = lost = told = survived = 0
    open_before, memory_before, end = 0, 0.0, time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        diary = Path(folder) / "faults"
        diary.touch()
        while time.monotonic() < end:
            env_fns = [partial(ChaosEnv, rates or RATES, str(diary))] * num_envs
            venv = SubprocVecEnv(env_fns, num_workers=num_workers, restart_workers=True, timeout=10)
            seen, counts = venv.reset(), np.zeros(num_envs, int)
            try:
                while time.monotonic() < end:
                    actions = rng.integers(0, 2, num_envs)
                    with warnings.catch_warnings(record=True) as deaths:
                        warnings.simplefilter("always", RuntimeWarning)
                        after = venv.step(actions)
                    survived += len(deaths)
                    ends, losses, in_these = check_step(seen, actions, after, counts)
                    seen = after[0].copy()
                    steps, episodes, lost = steps + num_envs, episodes + ends, lost + losses
                    told += in_these
            except (AccidentError, WorkerTimeoutError, ValueError, TypeError) as error:
                faults[type(error).__name__] += 1
            finally:
                venv.close()
            told += int(counts.sum())  # of the episodes that were running
            del venv
            gc.collect()
            if not open_before:
                open_before, memory_before = descriptors(), resident()
        injected = collections.Counter(diary.read_text().split())
    return Outcome(
        steps,
        episodes,
        lost,
        dict(injected),
        survived,
        dict(faults),
        steps - told,
        len(multiprocessing.active_children()),
        shared_blocks(),
        (open_before, descriptors()),
        (memory_before, resident()),
    )


def hold(outcome: Outcome) -> None:
    """Asserts that nothing was lost and nothing is left."""
    assert outcome.unaccounted == outcome.leaked_processes == outcome.leaked_blocks == 0
    assert outcome.descriptors[1] <= outcome.descriptors[0]
    assert outcome.mebibytes[1] < outcome.mebibytes[0] + 32


def main() -> None:
    """Runs, and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--num-envs", type=int, default=12)
    parser.add_argument("--num-workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    outcome = run(60 * options.minutes, options.num_envs, options.num_workers, options.seed)
    for name, value in outcome._asdict().items():
        print(f"{name:16s} {value}")
    hold(outcome)


if __name__ == "__main__":
    main()
