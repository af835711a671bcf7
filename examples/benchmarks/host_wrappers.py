"""What do wrappers cost a step? jaxvec's beside Stable-Baselines3's, over the same canned arrays.

    python examples/benchmarks/host_wrappers.py [--quick] [--only vectors|many|images]

Both sides wrap a VecEnv that returns arrays made beforehand, so that a step is the wrappers' own time; what
the bare VecEnv takes is subtracted. First both are run side by side and must return the same bits (with
`precision="float32"`: the same numbers within 1e-6). Then they take turns in short bursts, in the process's
own time, which other programs on the machine do not take. A ratio is jaxvec's time by SB3's: below 1 is
faster.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import spaces
from shared import TIME, Effort, Measured, Row, alone, compared, missing, turns

import jaxvec.vec as jv
from jaxvec.core import _transform

SECTION = "wrappers"
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


class Playback:
    """What the canned arrays have in common as SB3's VecEnv and as jaxvec's."""

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


@cache
def sb3_canned() -> Any:
    """Returns the class of the canned arrays as SB3's VecEnv."""
    base: Any = import_module("stable_baselines3.common.vec_env").VecEnv

    class SB3Canned(Playback, base):
        def __init__(self, num_envs: int, space: spaces.Box) -> None:
            self.canned = Canned(num_envs, space)
            base.__init__(self, num_envs, space, spaces.Discrete(2))

        def reset(self) -> Any:
            """Begins with the first arrays."""
            self.time = 0
            return self.canned.obs[0]

        def step_wait(self) -> Any:
            """Returns the arrays."""
            canned, time = self.canned, self.time
            infos: list[dict[str, Any]] = [
                {"TimeLimit.truncated": False} for _ in range(self.num_envs)
            ]
            for row in np.flatnonzero(canned.dones[time]):
                infos[row]["terminal_observation"] = canned.obs[time - 1, row]
            return canned.obs[time], canned.rewards[time], canned.dones[time], infos

    return SB3Canned


class JaxvecCanned(Playback, jv.ColumnVecEnv):
    """The canned arrays as jaxvec's VecEnv."""

    def __init__(self, num_envs: int, space: spaces.Box) -> None:
        self.canned = Canned(num_envs, space)
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


TARGETS = {
    ("vectors", "all three"): 0.6,
    ("many", "all three"): 0.3,
    ("images", "all three"): 0.3,
    ("images", "all three, float32"): 0.15,
}
"""By case and stack, for the ratio of times."""

VECTOR = spaces.Box(-np.inf, np.inf, (17,), np.float32)
IMAGE = spaces.Box(0, 255, (84, 84, 1), np.uint8)
CASES = {"vectors": (8, VECTOR), "many": (4096, VECTOR), "images": (8, IMAGE)}


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


def compare(case: str, effort: Effort) -> Iterator[Row]:
    """Yields what each wrapper costs on both sides."""
    num_envs, space = CASES[case]
    theirs_lib = import_module("stable_baselines3.common.vec_env")
    quick = {
        f"{name}, float32": partial(STACKS[name], precision="float32")
        for name in ("VecNormalize", "all three")
    }
    stacks = STACKS | quick
    for name in effort.of(stacks, stacks, ["all three"]):
        wrap = stacks[name]
        ours = wrap(jv, JaxvecCanned(num_envs, space))
        theirs = STACKS[name.removesuffix(", float32")](theirs_lib, sb3_canned()(num_envs, space))
        check_equal(ours, theirs, 1e-6 if name in quick else 0)
        bare = JaxvecCanned(num_envs, space), sb3_canned()(num_envs, space)
        calls = {
            name: partial(venv.step, 0)
            for name, venv in zip(("ours", "theirs", "a", "b"), (ours, theirs, *bare), strict=True)
        }
        times = turns(calls, effort._replace(burst=effort.burst / 4), time.process_time)
        # The cheaper of the two bare ones: what a wrapper of either side costs is not made less by it.
        least = np.minimum(times["a"], times["b"])
        own, sb3s = [
            np.maximum(np.array(times[side]) - least, 1e-9).tolist() for side in ("ours", "theirs")
        ]
        what = f"{name}, N={num_envs} {space.shape}"
        target = TARGETS.get((case, name))
        yield compared(SECTION, what, "SB3", own, sb3s, (1e6, "us"), target, kind=TIME)


def measure(effort: Effort, only: str | None = None) -> Measured:
    """Compares the wrappers over vectors, many vectors, and images."""
    left_out = missing(SECTION, "all of it", "stable_baselines3")
    yield from left_out
    for case in CASES if not left_out else ():
        if only in (None, case):
            yield from compare(case, effort)


if __name__ == "__main__":
    alone(SECTION, __doc__, measure, lambda add: add("--only", choices=tuple(CASES)))
