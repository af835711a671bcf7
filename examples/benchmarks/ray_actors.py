"""From what step time on do actors of Ray pay? Beside one process and worker processes, in one run.

    python examples/benchmarks/ray_actors.py [--quick]

Absolute figures move with the machine and the hour; the ratio of two times that were taken turn by turn
does not. The environments wait in each step, as for a simulator, so that the number of cores does not matter:
eight of them, in four actors or four processes. A ratio is one process's time by this one's: above 1 it pays.
All must first show the same.
"""

import time
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from shared import TIME, Effort, Measured, alone, compared, missing, turns

from jaxvec import DummyVecEnv, RayVecEnv, SubprocVecEnv, rollout_in_actors

SECTION = "ray"
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


def empty_calls(ray: Any, effort: Effort) -> Measured:
    """Yields what an empty call of one actor and of several costs, beside a step of one CartPole here."""
    actors = [ray.remote(Nothing).remote() for _ in range(NUM_WORKERS)]
    ray.get([actor.call.remote() for actor in actors])
    cartpole = DummyVecEnv([partial(gym.make, "CartPole-v1")])
    cartpole.reset()
    times = turns(
        {
            "one": lambda: ray.get(actors[0].call.remote()),
            "several": lambda: ray.get([actor.call.remote() for actor in actors]),
            "cartpole": partial(cartpole.step, np.zeros(1, int)),
        },
        effort,
    )
    for actor in actors:
        ray.kill(actor)
    for name, what in (("one", "of one actor"), ("several", f"of {NUM_WORKERS} actors at once")):
        pair = times[name], times["cartpole"]
        yield compared(
            SECTION, f"empty call {what}", "a step of CartPole here", *pair, (1e6, "us"), kind=TIME
        )


def measure(effort: Effort) -> Measured:
    """Compares actors and processes with one process, by how long a step waits."""
    left_out = missing(SECTION, "all of it", "ray")
    yield from left_out
    if left_out:
        return
    ray: Any = import_module("ray")
    ray.init(include_dashboard=False, log_to_driver=False)
    yield from empty_calls(ray, effort)
    actions = np.zeros(NUM_ENVS, int)
    for milliseconds in effort.of((0, 0.3, 1, 3, 10), (1,), (0,)):
        env_fns = [partial(Waiting, milliseconds / 1e3)] * NUM_ENVS
        with (
            SubprocVecEnv(env_fns, num_workers=NUM_WORKERS) as processes,
            RayVecEnv(env_fns, num_actors=NUM_WORKERS) as actors,
        ):
            here = DummyVecEnv(env_fns)
            venvs = {"here": here, "SubprocVecEnv": processes, "RayVecEnv": actors}
            first, *others = ([venv.reset(), *venv.step(actions)[:3]] for venv in venvs.values())
            for other in others:
                for one, two in zip(first, other, strict=True):
                    np.testing.assert_array_equal(one, two)
            times = turns(
                {name: partial(venv.step, actions) for name, venv in venvs.items()}
                | {"chunk": partial(rollout_in_actors, actors, left, CHUNK)},
                effort,
            )
        times[f"rollout_in_actors, {CHUNK} steps a call"] = [s / CHUNK for s in times.pop("chunk")]
        for name in list(times)[1:]:
            pair, what = (times[name], times["here"]), f"{name}, a step waits {milliseconds} ms"
            yield compared(SECTION, what, "DummyVecEnv", *pair, (1e3, "ms"))
    ray.shutdown()


def left(rng: np.random.Generator, obs: Any) -> Any:
    """A policy that costs nothing."""
    return np.zeros(len(obs), int)


if __name__ == "__main__":
    alone(SECTION, __doc__, measure)
