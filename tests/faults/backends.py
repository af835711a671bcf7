"""Where environments may live, and what may be put around them: the laws of this folder hold for all."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.vec import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

HOST = {
    "dummy": DummyVecEnv,
    "subproc": partial(SubprocVecEnv, num_workers=2),
    "messages": partial(SubprocVecEnv, num_workers=1, shared_memory=False),
    "caller": partial(SubprocVecEnv, num_workers=1, caller_steps=True),
}
"""VecEnvs of gymnasium environments: in one process, in workers, by messages, and partly by the caller."""


class Counter(gym.Env[Any, Any]):
    """Observes how many steps it has taken, in every number; an episode has `length` steps.

    Args:
      length: of an episode, steps.
      space: of the observation; a Dict has an image and a vector.
      ends: the flags of an episode's last step.
      flag: what the flags are made with: bool, int, np.float32.
      reward: of every step.
      reuse: hand out one array and one info again and again.
    """

    def __init__(
        self,
        length: int = 3,
        *,
        space: Any = None,
        ends: tuple[bool, bool] = (False, True),
        flag: Any = bool,
        reward: Any = 1.0,
        reuse: bool = False,
    ) -> None:
        self.observation_space = space or spaces.Box(-1000, 1000, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.length, self.ends, self.flag, self.reward, self.reuse = (
            length,
            ends,
            flag,
            reward,
            reuse,
        )
        self.secret = 5
        self.steps = 0
        self.resets: list[Any] = []
        self._buffer = filled(self.observation_space, 0)
        self._info: dict[str, Any] = {"step": 0, "deep": [0]}

    def _observe(self) -> Any:
        if not self.reuse:
            return filled(self.observation_space, self.steps)
        parts = self._buffer.values() if isinstance(self._buffer, dict) else [self._buffer]
        for part in parts:
            part[...] = self.steps
        return self._buffer

    def _inform(self) -> dict[str, Any]:
        if not self.reuse:
            return {"step": self.steps, "deep": [self.steps]}
        self._info["step"] = self._info["deep"][0] = self.steps
        return self._info

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.resets.append((seed, dict(options) if options else options))
        if options:
            options.clear()  # an environment may do with its options what it likes
        self.steps = 0
        return self._observe(), self._inform()

    def step(self, action: Any) -> Any:
        self.steps += 1
        terminated, truncated = (
            self.flag(flag and self.steps >= self.length) for flag in self.ends
        )
        return self._observe(), self.reward, terminated, truncated, self._inform()

    def peek(self) -> dict[str, Any]:
        """Returns the info that it holds itself."""
        return self._info


def filled(space: Any, value: int) -> Any:
    """Returns an element of a Box or of a Dict of them that has one value everywhere."""
    if isinstance(space, spaces.Dict):
        return {key: filled(part, value) for key, part in space.spaces.items()}
    return np.full(space.shape, value, space.dtype)


def parts(obs: Any) -> list[Any]:
    """Returns the arrays of an observation."""
    if isinstance(obs, dict):
        return [part for branch in obs.values() for part in parts(branch)]
    return [obs]


def compiled(length: int = 3, count: int = 2) -> Any:
    """Returns a JaxVecEnv that counts as `Counter` does: column 0 is the step, 1 what the reset drew."""
    from jaxvec.envs import vectorize
    from jaxvec.vec import JaxVecEnv
    from tests.envs.toys import CounterParams, counter

    env = counter(params=CounterParams(length), reward=lambda t: t * 0 + 1)
    return JaxVecEnv(vectorize(env, count), info_keys=("t",))


class InSB3sStyle(VecEnvWrapper):
    """A layer of a user's, which overrides what SB3's own do; it changes nothing."""

    def reset(self) -> Any:
        return self.venv.reset()

    def step_wait(self) -> Any:
        return self.venv.step_wait()


LAYERS: dict[str, Any] = {
    "bare": lambda venv: venv,
    "monitor": VecMonitor,
    "stack": lambda venv: VecFrameStack(venv, 2),
    "normalize": VecNormalize,
    "check": VecCheckNan,
    "user": InSB3sStyle,
    "monitor, normalize, stack": lambda venv: VecFrameStack(VecNormalize(VecMonitor(venv)), 2),
}
"""What may be put around a VecEnv of vectors."""


def made(backend: str, length: int = 3, count: int = 2, **options: Any) -> Any:
    """Returns N environments that count, of a backend by name; options are those of `Counter`."""
    if backend == "jax":
        return compiled(length, count)
    return HOST[backend]([partial(Counter, length, **options)] * count)


BACKENDS = [*HOST, "jax"]
COMPILED = pytest.param("jax", marks=pytest.mark.long)
"""For laws that other tests hold for compiled layers too: to compile them again takes seconds."""

ALL = "monitor, normalize, stack"
HOST_STACKS = [
    *(("dummy", layer) for layer in LAYERS),
    *((backend, layer) for backend in HOST if backend != "dummy" for layer in ("bare", ALL)),
]
# A law about one layer is one about three: processes take time to start, and programs to compile.
STACKS = [*HOST_STACKS, ("jax", "bare"), ("jax", ALL)]
"""Backend and layer, by their names."""


@cache
def _compiled_stack(layer: str) -> Any:
    return LAYERS[layer](compiled())


@contextmanager
def stacked(backend: str, layer: str, **options: Any) -> Iterator[Any]:
    """Gives N environments that count, with layers around them; it is to be reset first.

    What is compiled is compiled once for all tests, and stays open.
    """
    if backend == "jax":
        yield _compiled_stack(layer)
        return
    with LAYERS[layer](made(backend, **options)) as venv:
        yield venv
