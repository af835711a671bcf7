"""What the benchmarks show: a table with the misses first, JSON, and a plot of the ratios."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared import RATIOS, LeftOut, Row

LIBRARIES = (
    *("jaxvec", "jax", "jaxlib", "numpy", "gymnasium", "flax", "gymnax", "envpool", "torch"),
    *("stable-baselines3", "ale-py", "ray"),
)


def print_table(rows: Sequence[Row | LeftOut]) -> None:
    """Prints all rows as one table, those that miss their target first, and what was left out."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        raise SystemExit("The table needs rich: pip install 'jaxvec[cli]'") from None
    console = Console()
    if not console.is_terminal:
        console = Console(width=170)
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("", "section", "what", "against"):
        table.add_column(name)
    for name in ("jaxvec", "peer", "figure", "quartiles", "target"):
        table.add_column(name, justify="right")
    table.add_column("note")
    for row in in_order(rows):
        verdict, style = _verdict(row)
        numbers = (_number(row.ours, row.unit), _number(row.theirs, row.unit))
        spread = f"{row.low:.3g} - {row.high:.3g}"
        figure = f"{row.figure:.3g} {row.measure}"
        cells = (verdict, row.section, row.what, row.peer, *numbers, figure, spread, _target(row))
        table.add_row(*cells, row.note, style=style)
    if table.rows:
        console.print(table)
    done = [row for row in rows if isinstance(row, Row) and row.target is not None]
    missed = [row for row in done if (row.score or 0) < 1]
    lines = [f"{len(done) - len(missed)} of {len(done)} targets reached."]
    lines += [f"left out: {each.section}: {each.what}: {each.why}" for each in left_out(rows)]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def in_order(rows: Sequence[Row | LeftOut]) -> list[Row]:
    """Returns the rows: missed targets first, the furthest in front, then reached ones, then the rest."""

    def place(row: Row) -> tuple[int, float]:
        score = row.score
        return (2, 0) if score is None else (int(score >= 1), score)

    return sorted((row for row in rows if isinstance(row, Row)), key=place)


def left_out(rows: Sequence[Row | LeftOut]) -> list[LeftOut]:
    """Returns what was left out."""
    return [row for row in rows if isinstance(row, LeftOut)]


def _verdict(row: Row) -> tuple[str, str | None]:
    if row.score is None:
        return "", None
    return ("reached", "green") if row.score >= 1 else ("missed", "bold red")


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{'at least' if row.measure == RATIOS[0] else 'at most'} {row.target:g}"


def as_json(rows: Sequence[Row | LeftOut], run: dict[str, Any]) -> str:
    """Returns figures, machine and versions as text.

    Args:
      rows: of all sections.
      run: what is to be known of the run.
    """
    shown = [{**row._asdict(), "score": row.score} for row in in_order(rows)]
    missed = [row for row in shown if row["score"] is not None and row["score"] < 1]
    document = {
        "run": run,
        "machine": machine(),
        "versions": versions(),
        "missed": [f"{row['section']}: {row['what']}" for row in missed],
        "rows": shown,
        "left_out": [each._asdict() for each in left_out(rows)],
    }
    return json.dumps(document, indent=1) + "\n"


def machine() -> dict[str, Any]:
    """Describes the machine."""
    model = platform.processor()
    try:
        text = Path("/proc/cpuinfo").read_text()
        model = next(line.split(": ")[1] for line in text.splitlines() if "model name" in line)
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    settings = ("NPROC", "OMP_NUM_THREADS", "XLA_FLAGS", "JAX_CPU_ENABLE_ASYNC_DISPATCH")
    return {
        "system": platform.platform(),
        "processor": model,
        "cores": cores,
        "settings": {name: os.environ[name] for name in settings if name in os.environ},
    }


def versions() -> dict[str, str]:
    """Returns the version of each library that is installed."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def plot(rows: Sequence[Row | LeftOut], path: Path) -> None:
    """Draws every ratio as a bar, its quartiles as a line, and its target as a mark."""
    from matplotlib.figure import Figure

    shown = [row for row in in_order(rows) if row.measure in RATIOS][::-1]
    labels = [f"{row.section}: {row.what}, against {row.peer}" for row in shown]
    axes = (
        figure := Figure(figsize=(11, 1.5 + 0.24 * len(shown)), layout="constrained")
    ).subplots()
    colours = {"missed": "tab:red", "reached": "tab:green", "": "tab:gray"}
    for place, row in enumerate(shown):
        faster = row.measure == RATIOS[0]
        low, high = (row.low, row.high) if faster else (1 / row.high, 1 / row.low)
        value = row.times_as_fast or 1
        axes.barh(place, value - 1, left=1, color=colours[_verdict(row)[0]], height=0.7)
        axes.plot([low, high], [place, place], color="black", linewidth=1)
        if row.target is not None:
            target = row.target if faster else 1 / row.target
            axes.plot(target, place, marker="|", color="black", markersize=11, markeredgewidth=2)
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(
        "times as fast as the peer, or as small; upright mark: target, thin line: quartiles"
    )
    figure.suptitle(
        "jaxvec against its peers (red: below the target, green: reached, grey: none is set)"
    )
    figure.savefig(path, dpi=130)
