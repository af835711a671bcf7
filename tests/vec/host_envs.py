"""Environments for the tests of host VecEnvs: deterministic, of every space, and faulty on demand."""

import os
import signal
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

PLAIN_SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-1, 1, (3,), np.float32),
    "box64": spaces.Box(-1, 1, (2, 2), np.float64),
    "image": spaces.Box(0, 255, (4, 5, 3), np.uint8),
    "discrete": spaces.Discrete(5),
    "discrete_start": spaces.Discrete(3, start=-1),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "multi_binary": spaces.MultiBinary(4),
    "dict": spaces.Dict(
        {"image": spaces.Box(0, 255, (2, 2, 1), np.uint8), "speed": spaces.Box(-1, 1, (2,))}
    ),
    "tuple": spaces.Tuple([spaces.Discrete(4), spaces.Box(0, 1, (2,))]),
}
OBJECT_SPACES: dict[str, spaces.Space[Any]] = {
    "text": spaces.Text(6),
    "sequence": spaces.Sequence(spaces.Discrete(3)),
    "graph": spaces.Graph(spaces.Box(0, 1, (2,)), None),
    "dict_with_text": spaces.Dict({"note": spaces.Text(4), "speed": spaces.Box(-1, 1, (2,))}),
}


class SpaceEnv(gym.Env):
    """Draws everything from its seed: observations of a space, rewards, ends of either kind, infos."""

    def __init__(self, space: Any, action_space: Any = None) -> None:
        self.observation_space = space
        self.action_space = action_space or spaces.Discrete(2)
        self.steps = 0

    def _observe(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {"seed": seed, "options": options}

    def step(self, action: Any) -> Any:
        self.steps += 1
        draw = float(self.np_random.random())
        info = {"draw": draw, "action": np.array(action)} if draw > 0.5 else {}
        terminated, truncated = draw < 0.1, draw < 0.05 or self.steps >= 9
        return self._observe(), draw - 0.3, terminated, truncated, info


class CountEnv(gym.Env):
    """The observation is the step counter; the episode is truncated after `length` steps.

    It can hand out one array again and again, return one info again and again, and fail on demand.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 7}  # noqa: RUF012

    def __init__(
        self,
        length: int = 3,
        *,
        reuse: bool = False,
        reward: Any = 1.0,
        fail: dict[str, Any] | None = None,
        space_dtype: Any = np.float32,
        render_mode: str | None = None,
        info: dict[str, Any] | None = None,
        reset_sleep: float = 0.0,
    ) -> None:
        self.observation_space = spaces.Box(-1000, 1000, (2,), space_dtype)
        self.action_space = spaces.Discrete(2)
        self.length, self.reuse, self.reward = length, reuse, reward
        self.fail = fail or {}
        self.buffer = np.zeros(2, np.float32)
        self.render_mode = render_mode
        self.info = info
        self.secret = 5
        self.steps = 0
        self.resets: list[Any] = []
        self.reset_sleep = reset_sleep
        self._maybe_fail("init")

    def _maybe_fail(self, where: str) -> None:
        how = self.fail.get(where)
        if how is None:
            return
        if isinstance(how, tuple):  # (n, how): at the n-th call
            self.fail[where] = (how[0] - 1, how[1]) if how[0] > 1 else how[1]
            if how[0] > 1:
                return
            how = how[1]
        if how == "exit":
            os._exit(9)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        if how == "hang":
            time.sleep(1000)
        raise how

    def _observe(self) -> Any:
        if self.reuse:
            self.buffer[:] = self.steps
            return self.buffer
        return np.full(2, self.steps, np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._maybe_fail("reset")
        if self.resets:
            time.sleep(self.reset_sleep)
        self.resets.append((seed, options))
        self.steps = 0
        return self._observe(), {} if seed is None and not options else {"seed": seed}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self._maybe_fail("step")
        info = {} if self.info is None else self.info
        return self._observe(), self.reward, False, self.steps >= self.length, info

    def render(self) -> Any:
        self._maybe_fail("render")
        return np.full((4, 4, 3), self.steps, np.uint8)

    def close(self) -> None:
        self._maybe_fail("close")

    def add(self, left: int, right: int = 0) -> int:
        self._maybe_fail("method")
        return left + right + self.secret


def actions_for(space: Any, count: int, seed: int) -> Any:
    """Draws the same actions for every implementation under test."""
    rng = np.random.default_rng(seed)
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, space.n, count)
    return rng.normal(size=(count, *space.shape)).astype(space.dtype)


def flat(obs: Any) -> list[Any]:
    """Returns the arrays of an observation, in order."""
    if isinstance(obs, dict):
        return [obs[key] for key in obs]
    return list(obs) if isinstance(obs, tuple) else [obs]


def assert_same(left: Any, right: Any) -> None:
    """Asserts that two observations are equal to the last bit, dtypes included."""
    assert isinstance(left, dict) == isinstance(right, dict)
    if isinstance(left, dict):
        assert list(left) == list(right)
    for one, other in zip(flat(left), flat(right), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype
        if one.dtype == object:  # graphs and texts do not compare
            assert repr(one) == repr(other)
            continue
        np.testing.assert_array_equal(one, other)
