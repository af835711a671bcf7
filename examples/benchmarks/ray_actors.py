"""From what step time on do actors of Ray pay? Beside one process and worker processes, in one run.

    python examples/benchmarks/ray_actors.py [--quick]

Absolute figures move with the machine and the hour; the ratio of two medians that were taken turn by turn
does not. The environments wait in each step, as for a simulator, so that the number of cores does not matter:
eight of them, in four actors or four processes. A ratio is one process's time by this one's: above 1 it pays.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import ray  # pyright: ignore[reportMissingImports]  # as of an extra, it may be missing
from gymnasium import spaces

from jaxvec import DummyVecEnv, RayVecEnv, SubprocVecEnv, rollout_in_actors

NUM_ENVS, NUM_WORKERS, CHUNK = 8, 4, 16


class Waiting(gym.Env[Any, Any]):
    """Waits in each step."""

    observation_space = spaces.Box(-1, 1, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begins an episode."""
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> Any:
        """Waits."""
        if self.seconds:
            time.sleep(self.seconds)
        return np.zeros(4, np.float32), 1.0, False, False, {}


class Nothing:
    """An actor that does nothing."""

    def call(self) -> None:
        """Returns."""


def left(rng: np.random.Generator, obs: Any) -> Any:
    """A policy that costs nothing."""
    return np.zeros(len(obs), int)


def medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Returns the median seconds of each call, all of them made in turn."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return {name: float(np.median(each)) for name, each in seconds.items()}


def empty_call(rounds: int) -> float:
    """Prints what an empty call of one actor and of several costs; returns that of several, seconds."""
    actors = [ray.remote(Nothing).remote() for _ in range(NUM_WORKERS)]
    ray.get([actor.call.remote() for actor in actors])
    cartpole = DummyVecEnv([partial(gym.make, "CartPole-v1")])
    cartpole.reset()
    action = np.zeros(1, int)
    found = medians(
        {
            "one": lambda: ray.get(actors[0].call.remote()),
            "several": lambda: ray.get([actor.call.remote() for actor in actors]),
            "cartpole": lambda: cartpole.step(action),
        },
        rounds,
    )
    for actor in actors:
        ray.kill(actor)
    one, several = found["one"] / found["cartpole"], found["several"] / found["cartpole"]
    print(f"an empty call of one actor: {one:.0f} steps of one CartPole in this process")
    print(f"empty calls of {NUM_WORKERS} actors at once: {several:.0f} of them")
    return found["several"]


def main() -> None:
    """Measures, and prints ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    rounds = 10 if parser.parse_args().quick else 100
    ray.init(include_dashboard=False, log_to_driver=False)
    empty = empty_call(5 * rounds)
    actions = np.zeros(NUM_ENVS, int)
    print(
        "\nmilliseconds a step    processes    actors    actors, 16 steps a call    empty calls a step"
    )
    for milliseconds in (0, 0.3, 1, 3, 10):
        env_fns = [partial(Waiting, milliseconds / 1e3)] * NUM_ENVS
        with (
            SubprocVecEnv(env_fns, num_workers=NUM_WORKERS) as processes,
            RayVecEnv(env_fns, num_actors=NUM_WORKERS) as actors,
        ):
            here = DummyVecEnv(env_fns)
            for venv in (here, processes, actors):
                venv.reset()
                venv.step(actions)
            rollout_in_actors(actors, left, CHUNK)
            found = medians(
                {
                    "here": partial(here.step, actions),
                    "processes": partial(processes.step, actions),
                    "actors": partial(actors.step, actions),
                    "chunk": partial(rollout_in_actors, actors, left, CHUNK),
                },
                rounds,
            )
        base = found["here"]
        ratios = [base / found["processes"], base / found["actors"], base * CHUNK / found["chunk"]]
        cells = "".join(f"{ratio:12.2f}" for ratio in ratios)
        print(
            f"{milliseconds:12.1f}      {cells}{(found['actors'] - base / NUM_WORKERS) / empty:16.1f}"
        )
    ray.shutdown()


if __name__ == "__main__":
    main()
