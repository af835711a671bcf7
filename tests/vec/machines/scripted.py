"""Environments that follow a script, so that a model of a few lines knows what every call must return.

An observation tells row, episode and step, in whatever space it is; lengths of episodes, their ends (both
flags at once too) and rewards (NaN and infinity too) are drawn by hypothesis.
"""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from hypothesis import strategies as st


class ScriptError(RuntimeError):
    """What an environment raises when it was told to."""


class Script(NamedTuple):
    """What the environments do; episode e of row r takes entry r + e of each list, in turn."""

    space: spaces.Space[Any]
    lengths: tuple[int, ...]
    ends: tuple[tuple[bool, bool], ...]  # terminated, truncated: one of them at least
    rewards: tuple[float, ...]

    def transition(self, row: int, episode: int, step: int) -> tuple[float, bool, bool]:
        """Returns reward and both flags of the step that leads to the `step`-th observation."""
        turn = row + episode
        reward = self.rewards[(turn + step) % len(self.rewards)]
        if step < self.lengths[turn % len(self.lengths)]:
            return reward, False, False
        return reward, *self.ends[turn % len(self.ends)]

    def step_info(self, row: int, episode: int, step: int, action: Any) -> dict[str, Any]:
        """Returns the info of a step: every third one has none."""
        if (row + episode + step) % 3 == 0:
            return {}
        return {"at": (row, episode, step), "action": int(action)}

    def reset_info(self, row: int, episode: int, seed: Any, options: Any) -> dict[str, Any]:
        """Returns the info of a reset: it tells seed and options; every fourth one has none."""
        if (row + episode) % 4 == 0:
            return {}
        return {"episode": episode, "seed": seed, "options": options}


def told(space: spaces.Space[Any], row: int, episode: int, step: int) -> Any:
    """Returns an element of a space that tells row, episode and step."""
    number = row + 8 * step + 512 * episode + 7
    if isinstance(space, spaces.Box):
        numbers = np.resize([row, episode, step], space.shape)
        return (numbers % 100).astype(space.dtype)
    if isinstance(space, spaces.Discrete):
        return space.start + number % space.n
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(number // 3 ** np.arange(len(space.nvec)) % space.nvec, space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return np.asarray(number >> np.arange(space.shape[0]) & 1, np.int8)
    if isinstance(space, spaces.Text):
        return str(number)[-space.max_length :]
    if isinstance(space, spaces.Dict):
        return {key: told(part, row, episode, step) for key, part in space.spaces.items()}
    assert isinstance(space, spaces.Tuple)
    return tuple(told(part, row, episode, step) for part in space.spaces)


class ScriptEnv(gym.Env[Any, Any]):
    """One row of a script.

    Args:
      script: what all rows do.
      row: which one this is.
    """

    def __init__(self, script: Script, row: int) -> None:
        self.script, self.row = script, row
        self.observation_space, self.action_space = script.space, spaces.Discrete(100)
        self.episode, self.steps = -1, 0
        self.level, self.is_failing = 0, False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begins the next episode."""
        self.episode, self.steps = self.episode + 1, 0
        obs = told(self.observation_space, self.row, self.episode, 0)
        return obs, self.script.reset_info(self.row, self.episode, seed, options)

    def step(self, action: Any) -> Any:
        """Does what the script says, or raises if that was planned."""
        if self.is_failing:
            self.is_failing = False
            raise ScriptError(f"row {self.row}")
        self.steps += 1
        at = self.row, self.episode, self.steps
        obs = told(self.observation_space, *at)
        return obs, *self.script.transition(*at), self.script.step_info(*at, action)

    def plan_failure(self) -> None:
        """Lets the next step raise."""
        self.is_failing = True

    def raise_now(self) -> None:
        """Raises."""
        raise ScriptError(f"row {self.row}")

    def say(self, word: int, *, plus: int = 0) -> tuple[int, int, int]:
        """Returns which row this is, its level, and the word."""
        return self.row, self.level, word + plus


_BOXES = st.builds(
    lambda dtype, shape: (
        spaces.Box(0, 255, shape, dtype)
        if np.issubdtype(dtype, np.integer)
        else spaces.Box(-1e6, 1e6, shape, dtype)
    ),
    st.sampled_from([np.float32, np.float64, np.uint8, np.int32]),
    st.sampled_from([(3,), (1,), (2, 2), (4, 5, 3)]),
)
_PARTS = st.one_of(
    _BOXES,
    st.builds(
        lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 9), st.integers(-2, 2)
    ),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 5), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.integers(1, 5)),
    st.builds(spaces.Text, st.integers(1, 5)),
    st.just(spaces.Box(-1, 1, (), np.float16)),
)
_KEYS = st.sampled_from(["a", "b", "image", "z"])
ANY_SPACE = st.one_of(
    _PARTS,
    st.builds(spaces.Dict, st.dictionaries(_KEYS, _PARTS, min_size=1, max_size=3)),
    st.builds(spaces.Tuple, st.lists(_PARTS, min_size=1, max_size=3)),
)
"""Spaces that a VecEnv may have."""
BOX_SPACE = st.one_of(
    _BOXES, st.builds(spaces.Dict, st.dictionaries(_KEYS, _BOXES, min_size=1, max_size=2))
)
"""Spaces that every layer takes."""


def scripts(space: st.SearchStrategy[Any]) -> st.SearchStrategy[Script]:
    """Returns the strategy of scripts over a strategy of spaces."""
    numbers = st.floats(-3, 3, width=32)
    odd = st.sampled_from([float("nan"), float("inf"), float("-inf")])
    rewards = st.one_of(
        st.lists(numbers, min_size=1, max_size=7), st.lists(numbers | odd, min_size=1, max_size=7)
    )
    ends = st.sampled_from([(True, False), (False, True), (True, True)])
    return st.builds(
        Script,
        space,
        st.lists(st.integers(1, 6), min_size=1, max_size=4).map(tuple),
        st.lists(ends, min_size=1, max_size=4).map(tuple),
        rewards.map(tuple),
    )
