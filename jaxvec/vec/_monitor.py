"""`VecMonitor`: return, length and time of every episode, in the infos and in a file."""

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxvec.core._episode import episode_statistics
from jaxvec.core._transform import Timestep
from jaxvec.core._xp import no_rows
from jaxvec.typing import Array
from jaxvec.vec._infos import Infos
from jaxvec.vec._monitor_env import Monitor
from jaxvec.vec._results import FilePath, ResultsWriter
from jaxvec.vec._sb3 import MONITORS, loaded
from jaxvec.vec._transform import VecTransform, obs_is_fresh


class VecMonitor(VecTransform):
    """Puts `{"r": return, "l": length, "t": seconds}` into `info["episode"]` where an episode ends.

    The return is summed in float64 and reported as float32. Rewards are those that arrive from below:
    put it under VecNormalize to report true returns.

    Args:
      venv: the VecEnv inside.
      filename: of the log, see `ResultsWriter`; None for no log.
      info_keywords: entries of the info at an episode's end to add and to log.

    Attributes:
      episode_count: how many episodes have ended.
      t_start: when it was made, seconds since the epoch.
    """

    _reads = ("info",)

    def __init__(
        self, venv: Any, filename: FilePath | None = None, info_keywords: Sequence[str] = ()
    ) -> None:
        if _is_monitored(venv):
            warnings.warn(
                "The environment is already wrapped with a `Monitor` wrapper but you are wrapping it with "
                "a VecMonitor: the info then holds the VecMonitor's statistics in place of the Monitor's. "
                "Drop one of them.",
                stacklevel=2,
            )
        super().__init__(venv, episode_statistics())
        self.episode_count = 0
        self.t_start = time.time()
        self.info_keywords = tuple(info_keywords)
        self.results_writer: ResultsWriter | None = None
        if filename:
            header = {"t_start": self.t_start, "env_id": str(_env_id(venv))}
            self.results_writer = ResultsWriter(filename, header, self.info_keywords)

    @property
    def episode_returns(self) -> Array:
        """The running episodes' returns so far, float32 `[N]`."""
        state = self.state
        return (np.asarray(state.returns) + np.asarray(state.returns_low)).astype(np.float32)

    @property
    def episode_lengths(self) -> Array:
        """The running episodes' lengths so far, int32 `[N]`."""
        return np.array(self.state.lengths)

    def _after_step(self, timestep: Timestep) -> Timestep:
        if no_rows(timestep.terminated) and no_rows(timestep.truncated):
            return timestep
        done = np.asarray(timestep.done)
        elapsed = round(time.time() - self.t_start, 6)
        episode = {**timestep.info["episode"], "t": np.full(self.num_envs, elapsed)}
        if self.info_keywords or self.results_writer is not None:
            self._report(timestep, episode, np.flatnonzero(done).tolist())
        self.episode_count += int(np.count_nonzero(done))
        return timestep.with_info({**timestep.info, "episode": episode})

    def _report(self, timestep: Timestep, episode: dict[str, Any], ended: list[int]) -> None:
        """Adds the entries that were asked for to an episode's columns, and writes its rows to the log."""
        infos: Any = Infos(timestep) if self.info_keywords else ()
        for key in self.info_keywords:
            column = np.empty(self.num_envs, object)
            for row in ended:
                column[row] = infos[row][key]
            episode[key] = column
        if self.results_writer is not None:
            self.results_writer.write_rows(
                {key: np.asarray(column)[ended] for key, column in episode.items()}
            )

    def _obs_is_fresh(self) -> bool:
        return obs_is_fresh(self.venv)

    def close(self) -> None:
        """Closes the log and the VecEnv inside."""
        if self.results_writer is not None:
            self.results_writer.close()
        super().close()


def _is_monitored(venv: Any) -> bool:
    """Tells whether an environment has a Monitor, jaxvec's or SB3's."""
    try:
        kinds = (Monitor, *loaded("Monitor", MONITORS))
        return any(any(venv.env_is_wrapped(kind)) for kind in kinds)
    except AttributeError:  # some VecEnvs of others have no such method
        return False


def _env_id(venv: Any) -> str | None:
    spec = getattr(venv, "spec", None)
    return None if spec is None else spec.id
