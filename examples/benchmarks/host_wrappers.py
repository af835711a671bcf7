"""What do wrappers cost a step? jaxvec's beside Stable-Baselines3's, over the same canned arrays.

    python examples/benchmarks/host_wrappers.py [--quick] [--only vectors|many|images]

Both sides wrap a VecEnv that returns arrays made beforehand, so that a step is the wrappers' own time; what
the bare VecEnv takes is subtracted. First both are run side by side and must return the same bits (with
`precision="float32"`: the same numbers within 1e-6). Then they take turns in short bursts, in the process's
own time, which other programs on the machine do not take. A ratio is jaxvec's time by SB3's: below 1 is
faster. It is given twice: the median over the turns of the ratio in one turn, and that of the least times,
which a cache that others fill hardly touches. At the end stand the ratios of all three wrappers beside what
was set for them: a gate, and a goal.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import stable_baselines3.common.vec_env as sb3
from gymnasium import spaces

import jaxvec.vec as jv
from jaxvec.core import _transform

LENGTH = 32
"""Steps until the canned arrays repeat."""


class Canned:
    """Observations, rewards and ends of N environments, drawn once."""

    def __init__(self, num_envs: int, space: spaces.Box) -> None:
        rng = np.random.default_rng(0)
        shape = (LENGTH, num_envs, *space.shape)
        if space.dtype == np.uint8:
            self.obs = rng.integers(0, 256, shape).astype(np.uint8)
        else:
            self.obs = rng.normal(size=shape).astype(np.float32)
        # Multiples of 1/8: SB3's float32 sums of them are exact.
        self.rewards = (rng.integers(-8, 9, shape[:2]) / 8).astype(np.float32)
        self.dones = rng.random(shape[:2]) < 0.005


class NoEnvironments:
    """What both VecEnvs do alike."""

    num_envs: int
    time = 0

    def step_async(self, actions: Any) -> None:
        """Goes on to the next arrays."""
        self.time = (self.time + 1) % LENGTH

    def close(self) -> None:
        """There are no environments."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """There are no environments."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """There are no environments."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """There are no environments."""

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """There are no environments."""
        return [False] * self.num_envs


class SB3Canned(NoEnvironments, sb3.VecEnv):
    """The canned arrays as SB3's VecEnv."""

    def __init__(self, num_envs: int, space: spaces.Box) -> None:
        self.canned, self.time = Canned(num_envs, space), 0
        super().__init__(num_envs, space, spaces.Discrete(2))

    def reset(self) -> Any:
        """Begins with the first arrays."""
        self.time = 0
        return self.canned.obs[0]

    def step_wait(self) -> Any:
        """Returns the arrays."""
        canned, time = self.canned, self.time
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        for row in np.flatnonzero(canned.dones[time]):
            infos[row]["terminal_observation"] = canned.obs[time - 1, row]
        return canned.obs[time], canned.rewards[time], canned.dones[time], infos


class JaxvecCanned(NoEnvironments, jv.ColumnVecEnv):
    """The canned arrays as jaxvec's VecEnv."""

    def __init__(self, num_envs: int, space: spaces.Box) -> None:
        self.canned, self.time = Canned(num_envs, space), 0
        super().__init__(num_envs, space, spaces.Discrete(2))
        self.valid = np.ones(num_envs, bool)
        self.never = np.zeros(num_envs, bool)

    def _timestep(self, obs: Any, reward: Any, done: Any, first: Any, valid: Any) -> Any:
        final = np.flatnonzero(done) if done.any() else None
        return _transform.Timestep(
            obs=obs,
            reward=reward,
            terminated=done,
            truncated=self.never,
            valid=valid,
            first=first,
            final_obs=None if final is None else self.canned.obs[self.time - 1, final],
            final_rows=final,
        )

    def _reset_columns(self, indices: Any = None) -> Any:
        self.time = 0
        return self._timestep(
            self.canned.obs[0], self.canned.rewards[0] * 0, self.never, self.valid, self.never
        )

    def _wait_columns(self) -> Any:
        canned, time = self.canned, self.time
        done = canned.dones[time]
        return self._timestep(canned.obs[time], canned.rewards[time], done, done, self.valid)


Stack = Callable[..., Any]


def monitor(lib: Any, venv: Any) -> Any:
    """Returns a VecEnv with a VecMonitor."""
    return lib.VecMonitor(venv)


def stack(lib: Any, venv: Any) -> Any:
    """Returns a VecEnv with stacks of four frames."""
    return lib.VecFrameStack(venv, 4)


def normalize(lib: Any, venv: Any, **options: Any) -> Any:
    """Returns a VecEnv with observations and rewards normalized."""
    return lib.VecNormalize(venv, **options)


def all_three(lib: Any, venv: Any, **options: Any) -> Any:
    """Returns a VecEnv with all three."""
    return normalize(lib, stack(lib, monitor(lib, venv)), **options)


STACKS: dict[str, Stack] = {
    "VecMonitor": monitor,
    "VecFrameStack(4)": stack,
    "VecNormalize": normalize,
    "all three": all_three,
}


GATES = {
    ("vectors", "all three"): (0.8, 0.6),
    ("many", "all three"): (0.4, 0.3),
    ("images", "all three"): (0.4, 0.3),
    ("images", "all three, float32"): (0.2, 0.15),
}
"""By case and stack: a ratio that must be reached, and one that is aimed at."""


def check_equal(ours: Any, theirs: Any, within: float) -> None:
    """Asserts that two VecEnvs return the same, over twice the canned arrays."""
    np.testing.assert_allclose(ours.reset(), theirs.reset(), within, within)
    for _ in range(2 * LENGTH):
        (obs, rewards, dones, infos), (obs2, rewards2, dones2, infos2) = (
            ours.step(0),
            theirs.step(0),
        )
        np.testing.assert_allclose(obs, obs2, within, within)
        np.testing.assert_array_equal(rewards, rewards2)
        np.testing.assert_array_equal(dones, dones2)
        assert obs.dtype == obs2.dtype
        for row in np.flatnonzero(dones):
            final, final2 = (each[row]["terminal_observation"] for each in (infos, infos2))
            np.testing.assert_allclose(final, final2, within, within)
            if "episode" in infos2[row]:
                for key in "rl":
                    assert infos[row]["episode"][key] == infos2[row]["episode"][key]


def burst(venv: Any, steps: int) -> float:
    """Returns microseconds a step."""
    begin = time.process_time()
    for _ in range(steps):
        venv.step(0)
    return (time.process_time() - begin) / steps * 1e6


def compare(
    title: str, num_envs: int, space: spaces.Box, bursts: int
) -> dict[str, tuple[float, float]]:
    """Prints what each wrapper costs on both sides, and returns the ratios: median and of the least."""
    ratios = {}
    quick = {
        f"{name}, float32": partial(STACKS[name], precision="float32")
        for name in ("VecNormalize", "all three")
    }
    for name, wrap in (STACKS | quick).items():
        ours = wrap(jv, JaxvecCanned(num_envs, space))
        theirs = STACKS[name.removesuffix(", float32")](sb3, SB3Canned(num_envs, space))
        check_equal(ours, theirs, 1e-6 if name in quick else 0)
        bare = JaxvecCanned(num_envs, space), SB3Canned(num_envs, space)
        steps = max(3, int(6000 / burst(theirs, 5)))
        runs = np.array(
            [[burst(venv, steps) for venv in (ours, theirs, *bare)] for _ in range(bursts)]
        )
        own, sb3s = (runs[:, :2] - np.minimum.reduce(runs[:, 2:])).T
        least = own.min(), sb3s.min()
        ratios[name] = float(np.median(own / sb3s)), float(least[0] / least[1])
        print(
            f"{title:18} {name:22} jaxvec {np.median(own):7.1f} us  SB3 {np.median(sb3s):7.1f} us  "
            f"ratio {ratios[name][0]:5.2f}   least {least[0]:7.1f} {least[1]:7.1f}  "
            f"ratio {ratios[name][1]:5.2f}",
            flush=True,
        )
    return ratios


def main() -> None:
    """Measures what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("vectors", "many", "images"))
    asked = parser.parse_args()
    bursts = 15 if asked.quick else 60
    vector = spaces.Box(-np.inf, np.inf, (17,), np.float32)
    image = spaces.Box(0, 255, (84, 84, 1), np.uint8)
    cases: dict[str, tuple[int, spaces.Box]] = {
        "vectors": (8, vector),
        "many": (4096, vector),
        "images": (8, image),
    }
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for case, (num_envs, space) in cases.items():
        if asked.only in (None, case):
            ratios = compare(f"N={num_envs} {space.shape}", num_envs, space, bursts)
            found |= {(case, name): ratio for name, ratio in ratios.items()}
    print("\nratio to SB3's time: median (of the least), gate, goal")
    for (case, name), (gate, goal) in GATES.items():
        if (case, name) in found:
            median, least = found[case, name]
            reached = "goal" if median <= goal else "gate" if median <= gate else "not yet"
            print(
                f"{case:8} {name:18} {median:5.2f} ({least:4.2f})  {gate:4.2f}  {goal:4.2f}  {reached}"
            )


if __name__ == "__main__":
    main()
