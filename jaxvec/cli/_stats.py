"""`jaxvec stats`: what a normalization has learnt, as a table and a picture; from SB3's files, too."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from jaxvec.cli._failure import Failure, failing
from jaxvec.cli._outputs import check_outputs

_MOST_ROWS = 32  # numbers of one kind that a table shows one by one


class Moments(NamedTuple):
    """Mean and spread of what stands at one place."""

    place: str
    mean: npt.NDArray[np.float64]  # [*D]
    std: npt.NDArray[np.float64]  # [*D]
    samples: float  # how many it has seen


class Found(NamedTuple):
    """What is in a file."""

    path: Path
    moments: list[Moments]
    metadata: dict[str, Any]


def read_stats(path: Path | None, from_sb3: Path | None, trust: bool, plot: Path | None) -> Found:
    """Reads a file of statistics; converts one of Stable-Baselines3's first, where that is asked for.

    Args:
      path: the file; the one to write, if `from_sb3` is given (None: beside it, as `.npz`).
      from_sb3: a pickle of SB3's VecNormalize.
      trust: run whatever is in that pickle.
      plot: the picture to draw; it is only looked at here.

    Raises:
      Failure: if a file is not what it should be.
    """
    if from_sb3 is not None:
        path = path or from_sb3.with_suffix(".npz")
        check_outputs(npz=path, plot=plot)
        _convert(from_sb3, path, trust)
    else:
        check_outputs(plot=plot)
    if path is None:
        raise Failure("name a file of statistics, or --from-sb3 FILE.")
    if trust and from_sb3 is None:
        raise Failure("--trust is for --from-sb3; a .npz file holds nothing that runs.")
    if not path.exists():
        raise Failure(f"there is no file {path}.")
    from jaxvec.io import read_metadata, read_statistics

    with failing(""):
        found = read_statistics(path)
        metadata = read_metadata(path)
    return Found(path, [_plain(place, each) for place, each in found.items()], metadata)


def _convert(source: Path, target: Path, trust: bool) -> None:
    from jaxvec.bridges.sb3 import import_vec_normalize
    from jaxvec.vec._normalize_files import write_saved

    with failing(""):
        write_saved(target, import_vec_normalize(source, trust=trust))


def _plain(place: str, moments: Any) -> Moments:
    """Returns moments in float64, of both of their words."""
    mean, var, count = (
        np.asarray(high, np.float64) + np.asarray(low, np.float64)
        for high, low in zip(moments[:3], moments[3:], strict=True)
    )
    name = place.removesuffix(".statistics").removeprefix(".layers") or "statistics"
    return Moments(name, mean, np.sqrt(var), float(count))


def as_json(found: Found) -> dict[str, Any]:
    """Returns what `--json` prints."""
    return {
        "file": str(found.path),
        "metadata": found.metadata,
        "statistics": {
            each.place: {
                "count": each.samples,
                "mean": each.mean.tolist(),
                "std": each.std.tolist(),
            }
            for each in found.moments
        },
    }


def print_stats(found: Found) -> None:
    """Prints a table: number by number, or, of images, the range."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=str(found.path), title_justify="left")
    table.add_column("what", overflow="fold")
    for title in ("index", "samples", "mean", "standard deviation"):
        table.add_column(title, justify="right")
    for each in found.moments:
        few = each.mean.size <= _MOST_ROWS
        for row, index in enumerate(np.ndindex(each.mean.shape) if few else [()]):
            size = "" if each.mean.shape == () else f"all {list(each.mean.shape)}"
            place = f"[{', '.join(map(str, index))}]" if index else size
            name, samples = (_named(each.place), f"{each.samples:,.0f}") if row == 0 else ("", "")
            values = [_shown(column[index] if few else column) for column in (each.mean, each.std)]
            table.add_row(Text(name), Text(place), samples, *values)
    console = Console()
    console.print(table)
    for name, value in found.metadata.items():
        console.print(f"{name}: {value}", markup=False, highlight=False, soft_wrap=True)


def _named(place: str) -> str:
    """Returns a place without the marks around names: "inner.reward" for "['inner']['reward']"."""
    return re.sub(r"\['(\w+)'\]", r".\1", place).removeprefix(".")


def _shown(values: Any) -> str:
    """Returns a number, or from where to where numbers go."""
    low, high = np.min(values), np.max(values)
    return f"{low:,.6g}" if np.size(values) == 1 else f"{low:,.4g} to {high:,.4g}"


def plot_stats(path: Path, found: Found) -> None:
    """Draws mean and standard deviation, number by number.

    Args:
      path: the picture; its ending says of what kind.
      found: what to draw.

    Raises:
      Failure: if it cannot be written.
    """
    from matplotlib.figure import Figure

    from jaxvec.cli._plot import save_figure

    rows = len(found.moments)
    figure: Any = Figure(figsize=(8, 1 + 2.5 * rows), layout="constrained")
    for axes, each in zip(figure.subplots(rows, squeeze=False).flat, found.moments, strict=True):
        mean, std = each.mean.ravel(), each.std.ravel()
        if mean.size <= _MOST_ROWS:
            axes.errorbar(range(mean.size), mean, std, fmt="o", capsize=4)
            axes.set_xticks(range(mean.size))
        else:
            axes.fill_between(range(mean.size), mean - std, mean + std, alpha=0.3, linewidth=0)
            axes.plot(mean, linewidth=0.8)
        axes.set_title(
            f"{_named(each.place)}: mean and standard deviation of {each.samples:,.0f} samples"
        )
        axes.grid(alpha=0.3)
    with failing(f"--plot {path}"):
        save_figure(path, figure)
