"""`jaxvec plot`: learning curves from logs of episodes, several runs in one picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxvec.cli._failure import Failure, failing
from jaxvec.cli._outputs import check_outputs
from jaxvec.vec._results import EXT, Log, get_monitor_files, read_log

Axis = Literal["steps", "episodes", "time"]

_TITLES = {
    "steps": "environment steps",
    "episodes": "episodes",
    "time": "hours since the first run began",
}
_MOST_DOTS = 2000  # of one run: more are a grey block, and a large file


class Curve(NamedTuple):
    """One run, ready to be drawn."""

    label: str
    x: npt.NDArray[np.float64]  # [E]
    returns: npt.NDArray[np.float64]  # [E]
    smooth: npt.NDArray[np.float64]  # [E], mean of the last episodes
    window: int  # how many


def draw_curves(
    paths: Sequence[Path], out: Path, *, axis: Axis = "steps", window: int | None = None
) -> list[Curve]:
    """Draws the returns of logged episodes, one colour for each run.

    Args:
      paths: monitor files, or folders: the files of one folder are one run.
      out: the picture; its ending says of what kind.
      axis: what the returns are drawn over.
      window: how many episodes a point of the line is the mean of; None chooses by their number.

    Returns:
      What was drawn.

    Raises:
      Failure: if a file is no log, no episode has ended, or the picture cannot be written.
    """
    check_outputs(plot=out)
    runs = [_read(path) for path in paths]
    origin = min(log.header.get("t_start", 0.0) for log in runs)
    labels = _labels(paths)
    curves = [
        _curve(label, log, axis, origin, window) for label, log in zip(labels, runs, strict=True)
    ]
    if not any(len(curve.x) for curve in curves):
        raise Failure(f"no episode has ended in {', '.join(map(str, paths))}: nothing to draw.")
    names = sorted({str(log.header.get("env_id")) for log in runs})
    _draw(curves, out, ", ".join(names), _TITLES[axis])
    return curves


def _read(path: Path) -> Log:
    """Returns a log; those of a folder become one, in the order in which episodes ended."""
    with failing(""):
        if not path.exists():
            raise Failure(f"there is no file {path}.")
        if not path.is_dir():
            return read_log(path)
        files = sorted(get_monitor_files(path))
        if not files:
            raise Failure(f"there is no file *{EXT} in the folder {path}.")
        return _merged([read_log(each) for each in files])


def _merged(logs: list[Log]) -> Log:
    starts = [float(log.header.get("t_start", 0.0)) for log in logs]
    times = np.concatenate(
        [log.times + start - min(starts) for log, start in zip(logs, starts, strict=True)]
    )
    order = np.argsort(times, kind="stable")
    returns, lengths = (
        np.concatenate([getattr(log, name) for log in logs])[order]
        for name in ("returns", "lengths")
    )
    return Log({**logs[0].header, "t_start": min(starts)}, returns, lengths, times[order])


def _curve(label: str, log: Log, axis: Axis, origin: float, window: int | None) -> Curve:
    count = len(log.returns)
    x = {
        "steps": np.cumsum(log.lengths),
        "episodes": np.arange(1.0, count + 1),
        "time": (log.times + log.header.get("t_start", 0.0) - origin) / 3600,
    }[axis]
    wide = window or max(1, min(100, count // 20))
    return Curve(label, x, log.returns, trailing_mean(log.returns, wide), wide)


def trailing_mean(values: npt.NDArray[np.float64], window: int) -> npt.NDArray[np.float64]:
    """Returns the mean of the last `window` values at each place; of all so far at the beginning.

    >>> trailing_mean(np.array([1.0, 3.0, 5.0, 7.0]), 2).tolist()
    [1.0, 2.0, 4.0, 6.0]
    """
    # Sums from the mean on: those of a million large returns would lose the digits of one.
    level = values.mean() if len(values) else 0.0
    sums = np.concatenate([[0.0], np.cumsum(values - level)])
    stop = np.arange(1, len(values) + 1)
    start = np.maximum(stop - window, 0)
    mean: npt.NDArray[np.float64] = (sums[stop] - sums[start]) / (stop - start) + level
    return mean


def _labels(paths: Sequence[Path]) -> list[str]:
    """Returns a short name for each run: what is left without the parts that all share."""
    names = [str(path.resolve()).removesuffix(f".{EXT}").split("/") for path in paths]
    shared = 0
    while len(names) > 1 and all(len(each) > shared + 1 for each in names):
        if len({each[shared] for each in names}) > 1:
            break
        shared += 1
    return ["/".join(each[shared:] if len(names) > 1 else each[-1:]) for each in names]


def _draw(curves: list[Curve], out: Path, title: str, x_title: str) -> None:
    from matplotlib.figure import Figure

    from jaxvec.cli._plot import save_figure

    figure: Any = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for number, curve in enumerate(curves):
        colour = f"C{number % 10}"
        stride = max(1, len(curve.x) // _MOST_DOTS)
        dots = slice(None, None, stride)
        axes.plot(*(curve.x[dots], curve.returns[dots], "."), color=colour, alpha=0.35, ms=4, mew=0)
        label = f"{curve.label} ({len(curve.x):,} episodes, mean of {curve.window})"
        axes.plot(curve.x, curve.smooth, color=colour, label=label)
    axes.set_xlabel(x_title)
    axes.set_ylabel("return of an episode")
    axes.set_title(title)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=1 if len(curves) < 4 else 2, frameon=False)
    with failing(f"--output {out}"):
        save_figure(out, figure)
