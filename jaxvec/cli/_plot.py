"""Pictures of a run, drawn without a screen."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxvec.cli._episodes import Tally
from jaxvec.errors import MissingExtraError
from jaxvec.io._targets import replacing


def check_plot(path: Path) -> None:
    """Finds what would keep a plot from being drawn.

    Raises:
      MissingExtraError: if matplotlib is missing.
      ValueError: if it does not know the file's ending.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ModuleNotFoundError:
        raise MissingExtraError(
            "matplotlib is not installed: pip install 'jaxvec[plot]'."
        ) from None
    endings = sorted(FigureCanvasAgg.get_supported_filetypes())
    if path.suffix[1:].lower() not in endings:
        raise ValueError(f"{path} must end with one of the kinds of picture: {', '.join(endings)}.")


def plot_returns(path: Path, tally: Tally, env: str, num_envs: int) -> None:
    """Draws the returns of the episodes over the environment steps at which they ended.

    Args:
      path: the picture; its ending says of what kind.
      tally: all episodes of the run.
      env: the environment's name, for the title.
      num_envs: N.
    """
    from matplotlib.figure import Figure

    ended = tally.counts > 0
    edges = np.arange(len(tally.counts)) + 0.5
    env_steps = edges[ended] * tally.num_steps / len(tally.counts) * num_envs
    mean = tally.sums[0][ended] / tally.counts[ended]

    # A Figure of its own, not pyplot's: no screen, no state left behind.
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(
        env_steps,
        tally.lows[0][ended],
        tally.highs[0][ended],
        alpha=0.2,
        linewidth=0,
        label="smallest to largest",
    )
    axes.plot(env_steps, mean, marker="." if ended.sum() < 40 else None, label="mean")
    axes.set_xlim(0, tally.num_steps * num_envs)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return of the episodes that ended there")
    axes.set_title(f"{env}: {tally.count:,} episodes of {num_envs:,} environments")
    axes.ticklabel_format(axis="x", style="sci", scilimits=(-3, 5))
    axes.grid(alpha=0.3)
    if ended.any():
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    else:
        axes.text(0.5, 0.5, "no episode ended", ha="center", transform=axes.transAxes)
    save_figure(path, figure)


def save_figure(path: Path, figure: Any) -> None:
    """Writes a picture, whole or not at all; the ending of its name says of what kind."""
    with replacing("savefig", path) as file:
        figure.savefig(file, dpi=150, format=path.suffix[1:].lower())
