"""`jaxvec bench`: the back ends that fit an environment side by side, and the fastest one.

Each runs what `jaxvec rollout` runs, for some seconds: random actions, and the layers that look at every
observation and reward, so that nothing that was computed goes unread. What is compiled and what starts is
done before the clock runs.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jaxvec.cli._device import check_jax
from jaxvec.cli._failure import Failure
from jaxvec.cli._rollout import Backend, Request, started
from jaxvec.cli._targets import classic_maker, load_env
from jaxvec.vec._starting import usable_cores

_NO_END = 2**31 - 1  # more steps than fit into the time


class Setting(NamedTuple):
    """One way of stepping an environment."""

    backend: Backend
    num_envs: int
    num_workers: int | None  # of "subproc"

    def __str__(self) -> str:
        """Returns how a table calls it."""
        if self.num_workers is None:
            return self.backend
        return f"{self.backend}, {self.num_workers} worker{'s' * (self.num_workers > 1)}"


class Result(NamedTuple):
    """What a setting has shown."""

    setting: Setting
    env_steps: int
    seconds: float  # of stepping
    steps_per_second: float
    start_seconds: float  # until the first step: making, compiling


class Comparison(NamedTuple):
    """All settings that were run, and why others were not."""

    env: str
    results: list[Result]
    left_out: dict[str, str]  # back ends by name: why

    @property
    def fastest(self) -> Result:
        """The result with the most steps a second."""
        return max(self.results, key=lambda result: result.steps_per_second)

    def as_json(self) -> dict[str, Any]:
        """Returns what `--json` prints."""

        def flat(result: Result) -> dict[str, Any]:
            return {**result.setting._asdict(), **result._asdict(), "setting": str(result.setting)}

        return {
            "env": self.env,
            "cores": usable_cores(),
            "results": [flat(result) for result in self.results],
            "fastest": flat(self.fastest),
            "left_out": self.left_out,
        }


def bench(env: str, seconds: float, num_envs: Sequence[int], console: Any) -> Comparison:
    """Runs all settings that fit, one after the other.

    Args:
      env: the environment's id, or "module:attribute".
      seconds: how long each is timed.
      num_envs: the numbers of environments to try, N.
      console: a `rich.console.Console` for progress.

    Raises:
      Failure: if there is no such environment, or a run fails.
    """
    check_jax("what is timed")
    backends, left_out = _fitting(env)
    settings = _settings(backends, num_envs, usable_cores())
    results = []
    with _progress(console, len(settings)) as (say, advance):
        for setting in settings:
            say(f"{setting}, {setting.num_envs:,} environments")
            results.append(_timed(env, setting, seconds, console))
            advance()
    return Comparison(env, results, left_out)


def _fitting(env: str) -> tuple[list[Backend], dict[str, str]]:
    """Returns the back ends that can step an environment, and why others cannot."""
    backends: list[Backend] = []
    left_out = {}
    for pair, load in (
        (("scan", "jax-vec"), load_env),
        (("dummy", "subproc"), lambda text: classic_maker(text, None)),
    ):
        try:
            load(env)
            backends += pair  # type: ignore[arg-type]
        except Failure as failure:
            left_out[" and ".join(pair)] = str(failure)
    if not backends:
        raise Failure("; ".join(f"{names}: {why}" for names, why in left_out.items()))
    return backends, left_out


def _settings(backends: list[Backend], num_envs: Sequence[int], most: int) -> list[Setting]:
    """Returns every back end with every N; workers from 1 to the cores, in powers of two."""
    workers = sorted({*(2**i for i in range(most.bit_length())), most})
    return [
        Setting(backend, n, count)
        for n in dict.fromkeys(num_envs)
        for backend in ("dummy", "subproc", "jax-vec", "scan")
        if backend in backends
        for count in ([w for w in workers if w <= n] if backend == "subproc" else [None])
    ]


def _timed(env: str, setting: Setting, seconds: float, console: Any) -> Result:
    backend, num_envs, workers = setting
    request = Request(env, num_envs, _NO_END, backend=backend, num_workers=workers)
    begun = time.perf_counter()
    with contextlib.closing(started(request, console)) as todo:
        start_seconds = time.perf_counter() - begun
        steps, spent = 0, 0.0
        for number, piece in enumerate(todo.pieces()):
            # The first pieces are short, and the first calls of a program are slow.
            if number >= 2:
                steps, spent = steps + piece.length, spent + piece.seconds
            if spent >= seconds:
                break
    rate = steps * num_envs / max(spent, 1e-9)
    return Result(setting, steps * num_envs, spent, rate, start_seconds)


@contextlib.contextmanager
def _progress(console: Any, total: int) -> Iterator[tuple[Any, Any]]:
    """Shows on a terminal which setting runs, and how many are done.

    Yields:
      What to call with the name of a setting, and what to call when it is done.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    if not console.is_terminal:
        yield lambda text: None, lambda: None
        return
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda text: bar.update(task, description=text), lambda: bar.advance(task)


def print_comparison(comparison: Comparison) -> None:
    """Prints the table, and which setting is the fastest on this machine."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{comparison.env} on {usable_cores()} cores", title_justify="left")
    table.add_column("back end", no_wrap=True)
    for title in ("environments", "steps/s", "of the fastest", "start"):
        table.add_column(title, justify="right")
    best = comparison.fastest
    for result in comparison.results:
        table.add_row(
            str(result.setting),
            f"{result.setting.num_envs:,}",
            f"{result.steps_per_second:,.0f}",
            f"{result.steps_per_second / best.steps_per_second:.1%}",
            f"{result.start_seconds:.1f} s",
            style="bold" if result is best else None,
        )
    console = Console()
    console.print(table)
    lines = [f"fastest here: {_described(best)}"]
    stepped = [each for each in comparison.results if each.setting.backend != "scan"]
    if best.setting.backend == "scan" and stepped:
        fastest = max(stepped, key=lambda result: result.steps_per_second)
        lines.append(f"fastest as a VecEnv: {_described(fastest)}")
    lines += [f"not run: {names}: {why}" for names, why in comparison.left_out.items()]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _described(result: Result) -> str:
    backend, num_envs, workers = result.setting
    option = "" if workers is None else f" --num-workers {workers}"
    return f"--backend {backend}{option} --num-envs {num_envs} ({result.steps_per_second:,.0f} steps/s)"
