"""Episodes as they end: counted, and written to a file that Stable-Baselines3's `load_results` reads."""

import json
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

import numpy as np
import numpy.typing as npt


class Episodes(NamedTuple):
    """The E episodes that ended in a part of a run, in the order in which they ended."""

    returns: npt.NDArray[np.float32]  # [E], sum of the environment's own rewards
    lengths: npt.NDArray[np.int32]  # [E], steps
    steps: npt.NDArray[np.int64]  # [E], the step of the run in which each ended, counted from 1
    seconds: npt.NDArray[np.float64]  # [E], since the run began


class MonitorFile:
    """A monitor.csv: a header with JSON, the columns' names, and one row per episode.

    Args:
      path: a file, or a folder for a `monitor.csv` in it. ".monitor.csv" is added where the name does not
        end with "monitor.csv", for readers look for that.
      env_id: the environment's name, for the header.
      t_start: when the run began, Unix time, seconds.

    Raises:
      OSError: if it cannot be written.
    """

    def __init__(self, path: Path, env_id: str, t_start: float) -> None:
        self.path = monitor_path(path)
        self._file: TextIO = self.path.open("w", newline="\n", encoding="utf-8")
        self._file.write(f"#{json.dumps({'t_start': t_start, 'env_id': env_id})}\n")
        self._file.write("r,l,t\r\n")

    def write(self, episodes: Episodes) -> None:
        """Adds one row per episode."""
        columns = (
            episodes.returns.astype(np.float64).round(6).tolist(),
            episodes.lengths.tolist(),
            episodes.seconds.round(6).tolist(),
        )
        self._file.writelines(
            f"{total},{length},{time}\r\n" for total, length, time in zip(*columns, strict=True)
        )
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def monitor_path(path: Path) -> Path:
    """Returns the file that `--monitor PATH` means."""
    if path.is_dir():
        return path / "monitor.csv"
    if path.name.endswith("monitor.csv"):
        return path
    return path.with_name(f"{path.name.removesuffix('.csv')}.monitor.csv")


class Tally:
    """Count, mean and extremes of all episodes so far, and the same for equal parts of the run.

    It holds no episode, so that a run may be as long as it likes.

    Args:
      num_steps: T, how many steps the run has.
      num_parts: how many parts it is cut into, for a plot.
    """

    def __init__(self, num_steps: int, num_parts: int = 200) -> None:
        parts = min(num_steps, num_parts)
        self.num_steps = num_steps
        self.counts = np.zeros(parts, np.int64)
        self.sums = np.zeros((2, parts), np.float64)  # of returns and of lengths
        self.lows = np.full((2, parts), np.inf)
        self.highs = np.full((2, parts), -np.inf)

    def add(self, episodes: Episodes) -> None:
        """Counts episodes in."""
        parts = (episodes.steps - 1) * len(self.counts) // self.num_steps
        np.add.at(self.counts, parts, 1)
        for row, values in enumerate((episodes.returns, episodes.lengths)):
            np.add.at(self.sums[row], parts, values)
            np.minimum.at(self.lows[row], parts, values)
            np.maximum.at(self.highs[row], parts, values)

    @property
    def count(self) -> int:
        """How many episodes there were."""
        return int(self.counts.sum())

    def summary(self, row: int) -> dict[str, float | None]:
        """Returns mean, min and max of returns (row 0) or lengths (row 1); None without episodes."""
        if not self.count:
            return {"mean": None, "min": None, "max": None}
        return {
            "mean": float(self.sums[row].sum() / self.count),
            "min": float(self.lows[row].min()),
            "max": float(self.highs[row].max()),
        }
