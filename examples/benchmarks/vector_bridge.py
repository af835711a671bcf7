"""What does `from_vector_env` cost over EnvPool's own step?

    python examples/benchmarks/vector_bridge.py [--num-envs 256] [--num-threads 1] [--rounds 21]

    bare       EnvPool's `step` alone: rows that ended spend their next step on a reset
    by hand    no such step shows: rows that ended are reset in the same step, by EnvPool's `reset(env_id)`,
               and their last observations kept; the least that SB3's way of resetting can cost
    jaxvec     `from_vector_env`: the same, as a VecEnv

The three step pools of CartPole in turns. A random policy ends episodes in nearly every step of 256 rows, the
other one (the sign of the pole's angle and speed) far fewer. Figures are medians over the turns: microseconds
a step, by the clock and by this process's processors, and ratios, each of two neighbours in time.

A reset in the same step is one more round trip to the threads, whoever makes it: that is what "by
hand" costs over "bare".
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from jaxvec.bridges.gymnasium import from_vector_env

Act = Callable[[int, Any], Any]


class Bare:
    """EnvPool's own step; also counts how many rows ended."""

    def __init__(self, pool: Any) -> None:
        self.pool, self.ended = pool, 0
        self.obs = pool.reset()[0]

    def step(self, actions: Any) -> None:
        """Steps all rows."""
        self.obs, _, terminated, truncated, _ = self.pool.step(actions)
        self.ended += int((terminated | truncated).sum())


class ByHand(Bare):
    """EnvPool's own step, and its own reset of the rows that ended."""

    def step(self, actions: Any) -> None:
        """Steps all rows."""
        obs, _, terminated, truncated, _ = self.pool.step(actions)
        done = terminated | truncated
        if done.any():
            rows = np.flatnonzero(done).astype(np.int32)
            self.last = obs[rows]
            obs[rows] = self.pool.reset(rows)[0]
            self.ended += len(rows)
        self.obs = obs


class Jaxvec(Bare):
    """The pool as a VecEnv."""

    def __init__(self, pool: Any) -> None:
        self.venv, self.ended = from_vector_env(pool), 0
        self.obs = self.venv.reset()

    def step(self, actions: Any) -> None:
        """Steps all rows."""
        self.obs, _, done, _ = self.venv.step(actions)
        self.ended += int(done.sum())


def compare(num_envs: int, num_threads: int, rounds: int, act: Act) -> None:
    """Lets the three take turns, and prints what each took."""
    make: Any = import_module("envpool").make_gymnasium
    found = {
        name: kind(make("CartPole-v1", num_envs=num_envs, num_threads=num_threads, seed=0))
        for name, kind in (("bare", Bare), ("by hand", ByHand), ("jaxvec", Jaxvec))
    }
    clocks = {"clock": time.perf_counter, "processors": time.process_time}
    times: dict[Any, list[float]] = {(name, clock): [] for name in found for clock in clocks}
    steps = 200
    for lap in range(rounds + 1):
        for name, each in found.items():
            began = {clock: now() for clock, now in clocks.items()}
            for index in range(steps):
                each.step(act(index, each.obs))
            for clock, now in clocks.items():
                if lap:  # the first warms up
                    times[name, clock].append(1e6 * (now() - began[clock]) / steps)
    for clock in clocks:
        print(f"  microseconds a step of the {clock}:")
        for name, each in found.items():
            own = times[name, clock]
            over = [a / b for a, b in zip(own, times["bare", clock], strict=True)]
            print(
                f"    {name:8} {statistics.median(own):8.1f}   / bare {statistics.median(over):5.3f}"
                f"   rows ended a step {each.ended / steps / (rounds + 1):5.2f}"
            )
        pairs = zip(times["jaxvec", clock], times["by hand", clock], strict=True)
        print(f"    jaxvec / by hand {statistics.median([a / b for a, b in pairs]):.3f}")


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--num-envs", type=int, default=256)
    parser.add_argument("--num-threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # EnvPool's spaces are of float64 bounds
    drawn = np.random.default_rng(0).integers(0, 2, (200, options.num_envs))
    policies: dict[str, Act] = {
        "random": lambda index, obs: drawn[index],
        "balancing": lambda index, obs: (obs[:, 2] + obs[:, 3] > 0).astype(np.int64),
    }
    for name, act in policies.items():
        print(f"\nCartPole, N = {options.num_envs}, threads: {options.num_threads}, policy: {name}")
        compare(options.num_envs, options.num_threads, options.rounds, act)


if __name__ == "__main__":
    main()
