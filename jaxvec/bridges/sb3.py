"""Stable-Baselines3 and lit_sb3: jaxvec's VecEnvs pass for theirs, statistics go from one to the other.

    register                            jaxvec's classes become virtual subclasses of theirs
    export_vec_normalize                statistics to a pickle that SB3's VecNormalize.load reads
    import_vec_normalize                settings and statistics out of such a pickle, or of a `.npz`
    log_episodes                        a callback: quantiles of returns and lengths into SB3's logger

Registration needs no call: an `isinstance` check of SB3's on an object of jaxvec's registers the classes,
whichever library was imported first. `register` is for those who ask `issubclass` before any object is
there. Nothing here imports SB3 or torch.
"""

from collections import deque
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from jaxvec.core._arguments import check_count
from jaxvec.core._summary import check_levels, summarize
from jaxvec.errors import MissingExtraError
from jaxvec.typing import Array
from jaxvec.vec._normalize_files import FilePath, Saved, load_saved, write_for_sb3
from jaxvec.vec._sb3 import register_loaded

__all__ = ["export_vec_normalize", "import_vec_normalize", "log_episodes", "register"]


def register() -> bool:
    """Makes jaxvec's classes virtual subclasses of SB3's and lit_sb3's.

    It happens by itself when an object is checked. It can be called again at any time.

    Returns:
      Whether one of the two libraries is loaded; otherwise nothing was done.
    """
    return register_loaded()


def export_vec_normalize(path: FilePath, normalize: Any) -> None:
    """Writes a VecNormalize to a pickle that SB3's `VecNormalize.load` reads.

    Args:
      path: the file, of any name; `VecNormalize.save` does the same for every name but `.npz`.
      normalize: jaxvec's VecNormalize.
    """
    write_for_sb3(path, normalize)


def import_vec_normalize(path: FilePath, *, trust: bool = False) -> Saved:
    """Reads what a VecNormalize knows, SB3's or jaxvec's, without a VecEnv to put it around.

    Args:
      path: the file.
      trust: run whatever a pickle contains. Otherwise only what SB3 writes is read.

    Returns:
      Settings by name, and `obs_rms` and `ret_rms`, whose `moments` are the records that
      `jaxvec.standardize` and `jaxvec.scale_by_std` take.

    Raises:
      FileFormatError: if it is another kind of file, or a pickle contains something else.
    """
    return load_saved(path, trust)


def log_episodes(
    window: int = 100, quantiles: Sequence[float] = (0.25, 0.5, 0.75), prefix: str = "episodes"
) -> Any:
    """Makes a callback for `learn` that logs how returns and lengths of episodes are spread.

    SB3 itself logs their means. This adds extremes and quantiles, at the end of each rollout, to the same
    logger, so that they go where that goes: the table, and TensorBoard with `tensorboard_log=` (which needs
    `jaxvec[tensorboard]`).

    >>> from jaxvec.bridges.sb3 import log_episodes
    >>> model.learn(100_000, callback=log_episodes())  # doctest: +SKIP

    Args:
      window: how many of the last episodes are summed up.
      quantiles: numbers from 0 to 1.
      prefix: what stands before the slash in the logger's names, such as `episodes/return_min`.

    Returns:
      One of SB3's `BaseCallback`, for any VecEnv whose infos have episodes (a VecMonitor, or Monitors).

    Raises:
      MissingExtraError: if Stable-Baselines3 is not installed.
      ValueError: if a quantile is not from 0 to 1, or `window` no whole number from 1.
    """
    window = check_count("log_episodes", "window", window)
    levels = check_levels("log_episodes", quantiles)
    try:
        base = import_module("stable_baselines3.common.callbacks").BaseCallback
    except ImportError as error:
        raise MissingExtraError(
            "log_episodes makes a callback of Stable-Baselines3's, which is not installed: pip install "
            "'jaxvec[sb3]'."
        ) from error
    return type("EpisodeLogger", (_EpisodeLogger, base), {})(window, levels, prefix)


class _EpisodeLogger:
    """What the callback does; SB3's base class is only there once SB3 is."""

    locals: dict[str, Any]  # the training loop's variables, set by SB3
    logger: Any

    def __init__(self, window: int, levels: Array, prefix: str) -> None:
        super().__init__()
        self._levels, self._prefix = levels, prefix
        self._episodes: deque[tuple[float, float]] = deque(maxlen=window)
        self._count = 0

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        for row in np.flatnonzero(self.locals["dones"]).tolist():
            episode = infos[row].get("episode")
            if episode is not None:
                self._episodes.append((episode["r"], episode["l"]))
                self._count += 1
        return True

    def _on_rollout_end(self) -> None:
        if not self._episodes:
            return
        returns, lengths = np.array(self._episodes, np.float32).T
        summary = summarize(returns, lengths, np.ones(len(returns), bool), self._levels)
        record = self.logger.record
        record(f"{self._prefix}/count", self._count)
        for name, spread in (("return", summary.returns), ("length", summary.lengths)):
            for number in ("mean", "min", "max"):
                record(f"{self._prefix}/{name}_{number}", float(getattr(spread, number)))
            for level, value in zip(self._levels, spread.quantiles, strict=True):
                record(f"{self._prefix}/{name}_{level:.0%}".replace("%", "pct"), float(value))
