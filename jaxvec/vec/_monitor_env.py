"""`Monitor`: return, length and time of every episode of ONE environment, in its infos and in a file."""

import time
from collections.abc import Sequence
from typing import Any, SupportsFloat

import gymnasium as gym

from jaxvec.vec._results import EXT, FilePath, ResultsWriter
from jaxvec.vec._sb3 import MONITORS, apparent_class


class Monitor(gym.Wrapper[Any, Any, Any, Any]):
    """Puts `{"r": return, "l": length, "t": seconds}` into `info["episode"]` where an episode ends.

    SB3 takes it for its own Monitor.

    Args:
      env: the environment.
      filename: of the log, see `ResultsWriter`; None for no log.
      allow_early_resets: whether the environment may be reset before its episode ended.
      reset_keywords: arguments of `reset` that must be given, and are logged.
      info_keywords: entries of the info at an episode's end to log.
      override_existing: write a new file; otherwise append to the one that is there.

    Attributes:
      episode_returns, episode_lengths, episode_times: of the episodes that ended.
      total_steps: of all episodes.
    """

    EXT = EXT

    def __init__(
        self,
        env: gym.Env[Any, Any],
        filename: FilePath | None = None,
        allow_early_resets: bool = True,
        reset_keywords: Sequence[str] = (),
        info_keywords: Sequence[str] = (),
        override_existing: bool = True,
    ) -> None:
        super().__init__(env)
        self.t_start = time.time()
        self.results_writer: ResultsWriter | None = None
        self.reset_keywords = tuple(reset_keywords)
        self.info_keywords = tuple(info_keywords)
        if filename is not None:
            name = env.spec.id if env.spec is not None else None
            self.results_writer = ResultsWriter(
                filename,
                header={"t_start": self.t_start, "env_id": str(name)},
                extra_keys=self.reset_keywords + self.info_keywords,
                override_existing=override_existing,
            )
        self.allow_early_resets = allow_early_resets
        self.rewards: list[float] = []
        self.needs_reset = True
        self.episode_returns: list[float] = []
        self.episode_lengths: list[int] = []
        self.episode_times: list[float] = []
        self.total_steps = 0
        self.current_reset_info: dict[str, Any] = {}

    # It cannot be assigned, as checkers ask: it follows from what is loaded.
    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The object's class: where SB3 is loaded, one that inherits from SB3's Monitor too."""
        return apparent_class(type(self), MONITORS)

    def __reduce__(self) -> tuple[Any, ...]:
        # Named by its own class: `__class__` may be one that cannot be imported.
        return _rebuilt, (type(self),), self.__dict__

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the environment and begins an episode.

        Raises:
          RuntimeError: if the running episode has not ended, and early resets are not allowed.
          ValueError: if one of `reset_keywords` is not given.
        """
        if not self.allow_early_resets and not self.needs_reset:
            raise RuntimeError(
                f"Tried to reset an environment before done: {len(self.rewards)} steps into an episode. "
                "Step it to its end, or make Monitor(env, allow_early_resets=True)."
            )
        for key in self.reset_keywords:
            if kwargs.get(key) is None:
                raise ValueError(
                    f"Expected you to pass keyword argument {key} into reset: it is one of the Monitor's "
                    f"reset_keywords {self.reset_keywords}, but reset got {sorted(kwargs)}."
                )
            self.current_reset_info[key] = kwargs[key]
        self.rewards = []
        self.needs_reset = False
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Steps the environment.

        Raises:
          RuntimeError: if its episode has ended, or none has begun.
        """
        if self.needs_reset:
            raise RuntimeError(
                "Tried to step environment that needs reset: its episode has ended, or none has begun. "
                "Call reset() first."
            )
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.rewards.append(float(reward))
        self.total_steps += 1
        if terminated or truncated:
            info = {**info, "episode": self._ended(info)}
        return observation, reward, terminated, truncated, info

    def _ended(self, info: dict[str, Any]) -> dict[str, Any]:
        """Notes an episode and returns what is said of it."""
        self.needs_reset = True
        episode_return, length = sum(self.rewards), len(self.rewards)
        elapsed = time.time() - self.t_start
        episode = {"r": round(episode_return, 6), "l": length, "t": round(elapsed, 6)}
        episode.update((key, info[key]) for key in self.info_keywords)
        self.episode_returns.append(episode_return)
        self.episode_lengths.append(length)
        self.episode_times.append(elapsed)
        episode.update(self.current_reset_info)
        if self.results_writer is not None:
            self.results_writer.write_row(episode)
        return episode

    def close(self) -> None:
        """Closes the environment and the log."""
        super().close()
        if self.results_writer is not None:
            self.results_writer.close()

    def get_total_steps(self) -> int:
        """Returns the steps of all episodes."""
        return self.total_steps

    def get_episode_rewards(self) -> list[float]:
        """Returns the returns of the episodes that ended."""
        return self.episode_returns

    def get_episode_lengths(self) -> list[int]:
        """Returns the lengths of the episodes that ended, steps."""
        return self.episode_lengths

    def get_episode_times(self) -> list[float]:
        """Returns when the episodes ended, seconds after the Monitor was made."""
        return self.episode_times


def _rebuilt(cls: type[Monitor]) -> Monitor:
    return cls.__new__(cls)
