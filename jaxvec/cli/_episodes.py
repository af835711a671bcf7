"""Episodes as they end: counted, and written to a log."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxvec.vec._results import ResultsWriter


class Episodes(NamedTuple):
    """The E episodes that ended in a part of a run, in the order in which they ended."""

    returns: npt.NDArray[np.float32]  # [E], sum of the environment's own rewards
    lengths: npt.NDArray[np.int32]  # [E], steps
    steps: npt.NDArray[np.int64]  # [E], the step of the run in which each ended, counted from 1
    seconds: npt.NDArray[np.float64]  # [E], since the run began


def write_episodes(log: ResultsWriter, episodes: Episodes) -> None:
    """Adds one row per episode to a log."""
    log.write_rows(
        {
            "r": episodes.returns.astype(np.float64).round(6).tolist(),
            "l": episodes.lengths.tolist(),
            "t": episodes.seconds.round(6).tolist(),
        }
    )


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
