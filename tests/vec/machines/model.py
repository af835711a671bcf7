"""What a VecEnv and the layers above it must return, row by row, in plain Python and float64."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from tests.vec.machines.scripted import Script, ScriptError, told


class Row(NamedTuple):
    """What a step of one row shows."""

    obs: Any
    reward: float
    terminated: bool
    truncated: bool  # never where it terminated
    final: Any  # the last observation of the episode, where one ended
    info: dict[str, Any]  # the environment's, and what layers added

    @property
    def done(self) -> bool:
        """Whether an episode ended."""
        return self.terminated or self.truncated


def mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """Applies a function to the parts of observations of one structure."""
    first = trees[0]
    if isinstance(first, dict):
        return {key: mapped(function, *[tree[key] for tree in trees]) for key in first}
    return function(*trees)


class Layer:
    """The model of a layer; this one changes nothing."""

    def reset(self, rows: Sequence[int], obs: list[Any]) -> list[Any]:
        """Takes the observations of all rows, after a reset of some, and returns this layer's."""
        del rows
        return obs

    def step(self, served: dict[int, Row], obs: list[Any]) -> tuple[dict[int, Row], list[Any]]:
        """Takes what a step showed, of the rows that were served, and the observations of all."""
        return served, obs


class Monitor(Layer):
    """Return and length of each episode."""

    def __init__(self, num_envs: int) -> None:
        self.returns, self.lengths = [0.0] * num_envs, [0] * num_envs
        self.count = 0

    def reset(self, rows: Sequence[int], obs: list[Any]) -> list[Any]:
        """Forgets the running episodes of these rows."""
        for row in rows:
            self.returns[row], self.lengths[row] = 0.0, 0
        return obs

    def step(self, served: dict[int, Row], obs: list[Any]) -> tuple[dict[int, Row], list[Any]]:
        """Adds."""
        out = {}
        for row, each in served.items():
            self.returns[row] += each.reward
            self.lengths[row] += 1
            info = each.info
            if each.done:
                info = {**info, "episode": {"r": self.returns[row], "l": self.lengths[row]}}
                self.returns[row], self.lengths[row] = 0.0, 0
                self.count += 1
            out[row] = each._replace(info=info)
        return out, obs


class Stack(Layer):
    """The last K observations, joined along the last axis, in the dtype of the space below."""

    def __init__(self, num_envs: int, space: Any, num_frames: int) -> None:
        parts = space.spaces if isinstance(space, spaces.Dict) else space
        self._dtypes = mapped(lambda part: part.dtype, parts)
        self._blank = mapped(lambda part: np.zeros(part.shape, part.dtype), parts)
        self._frames = [[self._blank] * num_frames for _ in range(num_envs)]

    def _joined(self, frames: Sequence[Any]) -> Any:
        return mapped(
            lambda dtype, *each: np.concatenate(each, -1).astype(dtype), self._dtypes, *frames
        )

    def _opened(self, row: int, obs: Any) -> None:
        self._frames[row] = [self._blank] * (len(self._frames[row]) - 1) + [obs]

    def _all(self) -> list[Any]:
        return [self._joined(frames) for frames in self._frames]

    def reset(self, rows: Sequence[int], obs: list[Any]) -> list[Any]:
        """Clears the stacks of these rows."""
        for row in rows:
            self._opened(row, obs[row])
        return self._all()

    def step(self, served: dict[int, Row], obs: list[Any]) -> tuple[dict[int, Row], list[Any]]:
        """Pushes; where an episode ended, onto a clear stack, and its last one onto the old."""
        out = {}
        for row, each in served.items():
            final = None
            if each.done:
                final = self._joined([*self._frames[row][1:], each.final])
                self._opened(row, each.obs)
            else:
                self._frames[row] = [*self._frames[row][1:], each.obs]
            out[row] = each._replace(obs=self._joined(self._frames[row]), final=final)
        return out, self._all()


class Moments:
    """Mean and variance as Stable-Baselines3 has them, from count 1e-4 on."""

    def __init__(self, shape: Any) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def learn(self, rows: Sequence[Any]) -> None:
        """Merges a batch."""
        if not len(rows):
            return
        batch = np.asarray(rows, np.float64)
        delta, total = batch.mean(0) - self.mean, self.count + len(rows)
        squares = self.var * self.count + batch.var(0) * len(rows)
        squares = squares + delta**2 * self.count * len(rows) / total
        self.mean = self.mean + delta * len(rows) / total
        self.var, self.count = squares / total, total


class Normalize(Layer):
    """Observations to mean 0 and variance 1, rewards by the spread of the discounted return."""

    gamma, epsilon, clip = 0.99, 1e-8, 10.0

    def __init__(self, num_envs: int, space: Any) -> None:
        parts = space.spaces if isinstance(space, spaces.Dict) else space
        self.moments = mapped(lambda part: Moments(part.shape), parts)
        self.of_returns = Moments(())
        self.returns = [0.0] * num_envs
        self.training = self.norm_reward = True
        self.raw: list[Any] | None = None

    def _learn(self, rows: list[Any]) -> None:
        if self.training and rows:
            mapped(lambda moments, *parts: moments.learn(parts), self.moments, *rows)

    def _scaled(self, obs: Any) -> Any:
        def each(moments: Moments, part: Any) -> Any:
            scaled = (part - moments.mean) / np.sqrt(moments.var + self.epsilon)
            return np.clip(scaled, -self.clip, self.clip).astype(np.float32)

        return mapped(each, self.moments, obs)

    def reset(self, rows: Sequence[int], obs: list[Any]) -> list[Any]:
        """Learns from the first observations of these rows."""
        self.raw = obs
        self._learn([obs[row] for row in rows])
        for row in rows:
            self.returns[row] = 0.0
        return [self._scaled(each) for each in obs]

    def step(self, served: dict[int, Row], obs: list[Any]) -> tuple[dict[int, Row], list[Any]]:
        """Learns from the rows that were served, then applies what it knows."""
        self.raw = obs
        self._learn([each.obs for each in served.values()])
        if self.training:
            for row, each in served.items():
                self.returns[row] = self.returns[row] * self.gamma + each.reward
            self.of_returns.learn([self.returns[row] for row in served])
        scale = np.sqrt(self.of_returns.var + self.epsilon)
        out = {}
        for row, each in served.items():
            reward = each.reward
            if self.norm_reward:
                reward = float(np.clip(reward / scale, -self.clip, self.clip))
            final = self._scaled(each.final) if each.done else None
            out[row] = each._replace(obs=self._scaled(each.obs), reward=reward, final=final)
            if each.done:
                self.returns[row] = 0.0
        return out, [self._scaled(each) for each in obs]


class Rows:
    """The environments, and what is asked of them next.

    Args:
      script: what they do.
      num_envs: N.
      blank: the observation of a row before its first reset.
    """

    def __init__(self, script: Script, num_envs: int, blank: Any) -> None:
        self.script, self.num_envs = script, num_envs
        self.episodes, self.steps = [-1] * num_envs, [0] * num_envs
        self.levels, self.failing = [0] * num_envs, [False] * num_envs
        self.sticky: list[Any] = [{} for _ in range(num_envs)]
        self.seeds: list[Any] = [None] * num_envs
        self.options: list[Any] = [{} for _ in range(num_envs)]
        self.reset_infos: list[Any] = [{} for _ in range(num_envs)]
        self.obs = [blank] * num_envs

    def _told(self, row: int) -> Any:
        return told(self.script.space, row, self.episodes[row], self.steps[row])

    def _begin(self, row: int, seed: Any, options: Any) -> dict[str, Any]:
        self.episodes[row], self.steps[row] = self.episodes[row] + 1, 0
        self.obs[row] = self._told(row)
        return self.script.reset_info(row, self.episodes[row], seed, options)

    def reset(self, rows: Sequence[int]) -> None:
        """Resets rows with the seeds and options that are set; they are then used up."""
        for row in rows:
            options = self.options[row] or self.sticky[row] or None
            self.reset_infos[row] = self._begin(row, self.seeds[row], options)
            self.seeds[row] = None
        self.options = [{} if row in rows else each for row, each in enumerate(self.options)]

    def step(self, actions: dict[int, Any]) -> dict[int, Row]:
        """Steps rows in order, and resets those whose episode ended.

        Raises:
          ScriptError: if one was to fail; those before it have moved.
        """
        served, infos = {}, {}
        for row, action in actions.items():
            if self.failing[row]:
                self.failing[row] = False
                raise ScriptError(f"row {row}")
            self.steps[row] += 1
            at = row, self.episodes[row], self.steps[row]
            reward, terminated, truncated = self.script.transition(*at)
            info, final = self.script.step_info(*at, action), None
            if terminated or truncated:
                final = self._told(row)
                infos[row] = self._begin(row, None, self.sticky[row] or None)
            else:
                self.obs[row] = self._told(row)
            truncated = truncated and not terminated
            served[row] = Row(
                self.obs[row], float(np.float32(reward)), terminated, truncated, final, info
            )
        for row, info in infos.items():
            self.reset_infos[row] = info
        return served
