"""How fast are VecEnvs over classic environments? jaxvec beside Stable-Baselines3, in one run.

    python examples/benchmarks/classic.py [--quick] [--only cartpole|sleep|burn]

Absolute figures move with the machine and the hour; the ratio of two medians that were taken turn by turn
does not. A ratio is the first one's time by this one's: 2 means twice as fast. It is given twice: of whole
runs, and of the median step, which leaves out the steps during which other programs had the cores. Actions
are drawn before, and nobody reads infos, on both sides.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


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


Maker = Callable[[list[Callable[[], Any]]], Any]


def steps_per_second(venv: Any, actions: Any, steps: int) -> tuple[float, float]:
    """Steps a VecEnv; returns environment steps per second, over all steps and by the median one."""
    times = [time.perf_counter()]
    for step in range(steps):
        venv.step(actions[step % len(actions)])
        times.append(time.perf_counter())
    seconds = np.diff(times)
    return float(venv.num_envs / seconds.mean()), float(venv.num_envs / np.median(seconds))


def compare(title: str, make_env: Any, num_envs: int, makers: dict[str, Maker], steps: int) -> None:
    """Prints the medians of several VecEnvs that take turns, and the ratio of each to the first."""
    venvs = {name: make([make_env] * num_envs) for name, make in makers.items()}
    first = next(iter(venvs.values()))
    actions = np.random.default_rng(0).integers(0, first.action_space.n, (64, num_envs))
    for venv in venvs.values():
        venv.seed(0)
        venv.reset()
        steps_per_second(venv, actions, max(steps // 4, 25))
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in venvs}
    for _ in range(REPEATS):
        for name, venv in venvs.items():
            rates[name].append(steps_per_second(venv, actions, steps))
    for venv in venvs.values():
        venv.close()
    medians = {name: np.median(values, axis=0) for name, values in rates.items()}
    base = next(iter(medians.values()))
    for name, (whole, step) in medians.items():
        print(
            f"{title:20} {name:34} {whole:9.0f} steps/s {whole / base[0]:6.2f}x   "
            f"median step {step:9.0f} steps/s {step / base[1]:6.2f}x",
            flush=True,
        )


REPEATS = 5


def main() -> None:
    """Measures what is asked for."""
    from stable_baselines3.common.vec_env import DummyVecEnv as SB3DummyVecEnv
    from stable_baselines3.common.vec_env import SubprocVecEnv as SB3SubprocVecEnv

    from jaxvec.vec import DummyVecEnv, SubprocVecEnv

    # SB3's workers import torch: 64 of them would still load the machine while others are measured.
    multiprocessing.set_forkserver_preload(
        ["stable_baselines3.common.vec_env", "jaxvec.vec._worker"]
    )
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("dummy", "cartpole", "sleep", "burn"))
    asked = parser.parse_args()
    scale = 1 if asked.quick else 4

    def wanted(name: str) -> bool:
        return asked.only in (None, name)

    cartpole = partial(gym.make, "CartPole-v1")
    sb3: dict[str, Maker] = {"SB3 SubprocVecEnv": SB3SubprocVecEnv}
    ours: dict[str, Maker] = {
        "jaxvec SubprocVecEnv": SubprocVecEnv,
        "jaxvec SubprocVecEnv caller_steps": partial(SubprocVecEnv, caller_steps=True),
    }
    if wanted("dummy"):
        dummies: dict[str, Maker] = {
            "SB3 DummyVecEnv": SB3DummyVecEnv,
            "jaxvec DummyVecEnv": DummyVecEnv,
        }
        for num_envs in (1, 8, 64):
            compare(f"CartPole N={num_envs}", cartpole, num_envs, dummies, 1600 * scale // num_envs)
    if wanted("cartpole"):
        for num_envs in (8, 64):
            compare(
                f"CartPole N={num_envs}", cartpole, num_envs, sb3 | ours, 1600 * scale // num_envs
            )
    if wanted("burn"):
        for num_envs in (8, 16, 32):
            compare(
                f"0.2 ms, image N={num_envs}", Burner, num_envs, sb3 | ours, 800 * scale // num_envs
            )
    if wanted("sleep"):
        many: dict[str, Maker] = {
            "jaxvec SubprocVecEnv num_workers=16": partial(SubprocVecEnv, num_workers=16)
        }
        compare("sleeps 5 ms N=16", Sleeper, 16, sb3 | many, 15 * scale)


if __name__ == "__main__":
    main()
