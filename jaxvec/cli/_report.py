"""Tables and JSON on standard output."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from jaxvec.cli._rollout import Report


def print_json(value: Any) -> None:
    """Prints one JSON value, and nothing else, on standard output."""
    print(json.dumps(value, allow_nan=False))


def print_report(report: Report) -> None:
    """Prints the closing table of a rollout."""
    title = f"{report.env}, {report.num_envs:,} environments, {report.backend}"
    table = Table(title=title, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    table.show_header = False
    table.add_row("layers", ", ".join(report.layers))
    table.add_row("environment steps", f"{report.env_steps:,}")
    before = "compiling" if report.backend == "scan" else "starting"
    rate = report.steps_per_second
    table.add_row(
        f"steps/s, without {before}", "too few to tell" if rate is None else f"{rate:,.0f}"
    )
    table.add_row(f"time, {before}", f"{report.compile_seconds:.2f} s")
    table.add_row("time, stepping", f"{report.seconds:.2f} s")
    table.add_row("episodes", f"{report.episodes:,}")
    table.add_row("return, mean (min to max)", _spread(report.returns))
    table.add_row("length, mean (min to max)", _spread(report.lengths))
    for what, path in report.files.items():
        table.add_row(what, path)
    Console().print(table)


def _spread(summary: dict[str, float | None]) -> str:
    if summary["mean"] is None:
        return "no episode ended"
    return f"{summary['mean']:,.2f} ({summary['min']:,.6g} to {summary['max']:,.6g})"


def print_envs(envs: list[Any]) -> None:
    """Prints the table of environments."""
    table = Table()
    table.add_column("id", no_wrap=True)
    for title in ("observation", "action"):
        table.add_column(title)
    table.add_column("time limit", justify="right")
    for env in envs:
        limit = "none" if env.max_episode_steps is None else f"{env.max_episode_steps:,}"
        spaces = (env.observation_space, env.action_space)
        table.add_row(env.metadata["name"], *map(_short, spaces), limit)
    Console().print(table)


def _short(space: Any) -> str:
    """Returns a space without the bounds of its numbers, which fill a table."""
    from gymnasium.spaces import Box

    return f"Box {space.dtype} {space.shape}" if isinstance(space, Box) else str(space)
