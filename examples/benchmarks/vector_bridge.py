"""What does `from_vector_env` cost over EnvPool's own step?

    python examples/benchmarks/vector_bridge.py [--quick] [--num-envs 256] [--num-threads 1] [--rounds 7]

    bare       EnvPool's `step` alone: rows that ended spend their next step on a reset
    by hand    no such step shows: rows that ended are reset in the same step, by EnvPool's `reset(env_id)`,
               and their last observations kept; the least that SB3's way of resetting can cost
    jaxvec     `from_vector_env`: the same, as a VecEnv

The three step pools of CartPole in turns; by hand and jaxvec must first show the same. A random policy ends
episodes in nearly every step of 256 rows, the other one (the sign of the pole's angle and speed) far fewer.

A reset in the same step is one more round trip to the threads, whoever makes it: that is what "by
hand" costs over "bare".
"""

import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from shared import TIME, Effort, Measured, alone, compared, missing, turns

from jaxvec.bridges.gymnasium import from_vector_env

SECTION = "bridge"
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


def contestants(num_envs: int, num_threads: int) -> dict[str, Any]:
    """Returns the three, each over a pool of its own with the same seed."""
    make: Any = import_module("envpool").make_gymnasium
    return {
        name: kind(make("CartPole-v1", num_envs=num_envs, num_threads=num_threads, seed=0))
        for name, kind in (("bare", Bare), ("by hand", ByHand), ("jaxvec", Jaxvec))
    }


def check_equal(num_envs: int = 8) -> None:
    """Asserts that by hand and jaxvec show the same observations, through resets."""
    found = contestants(num_envs, 1)
    hand, ours = found["by hand"], found["jaxvec"]
    drawn = np.random.default_rng(0).integers(0, 2, (60, num_envs))
    for actions in drawn:
        np.testing.assert_array_equal(hand.obs, ours.obs)
        hand.step(actions)
        ours.step(actions)
    assert hand.ended == ours.ended > 0


def measure(effort: Effort, num_envs: int = 256, num_threads: int = 1) -> Measured:
    """Compares the three, with a policy that ends many episodes and one that ends few."""
    warnings.simplefilter("ignore")  # EnvPool's spaces are of float64 bounds
    left_out = missing(SECTION, "all of it", "envpool")
    yield from left_out
    if left_out:
        return
    check_equal()
    drawn = np.random.default_rng(0).integers(0, 2, (200, num_envs))
    policies: dict[str, Act] = {
        "random": lambda index, obs: drawn[index % len(drawn)],
        "balancing": lambda index, obs: (obs[:, 2] + obs[:, 3] > 0).astype(np.int64),
    }
    for name, act in policies.items():
        found = contestants(num_envs, num_threads)
        calls = {
            who: partial(_stepped, each, act, itertools.count()) for who, each in found.items()
        }
        times = turns(calls, effort)
        for peer in ("by hand", "bare"):
            pair, what = (
                (times["jaxvec"], times[peer]),
                f"from_vector_env, N={num_envs}, {name} policy",
            )
            yield compared(SECTION, what, f"EnvPool {peer}", *pair, (1e6, "us"), kind=TIME)


def _stepped(each: Bare, act: Act, index: Iterator[int]) -> None:
    each.step(act(next(index), each.obs))


if __name__ == "__main__":
    alone(
        SECTION,
        __doc__,
        measure,
        lambda add: (
            add("--num-envs", type=int, default=256),
            add("--num-threads", type=int, default=1),
        ),
    )
