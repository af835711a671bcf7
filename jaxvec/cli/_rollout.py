"""`jaxvec rollout`: the environment with its layers, the run piece by piece, and what became of it.

The layers, from the environment on: a check for NaN and infinity, episode statistics, the frame stack, the
normalization of observations and of rewards. Episode statistics lie under the normalization, so that they
report the environment's own rewards.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxvec.cli._failure import FAILED, Failure, failing
from jaxvec.cli._monitor import Episodes, MonitorFile, Tally
from jaxvec.cli._targets import load_env, load_policy


class Request(NamedTuple):
    """The options of `jaxvec rollout`."""

    env: str
    num_envs: int
    num_steps: int
    frame_stack: int | None
    normalize: bool
    time_limit: int | None
    seed: int
    policy: str
    monitor: Path | None
    plot: Path | None
    save_stats: Path | None


class Report(NamedTuple):
    """What became of a rollout; `_asdict` is the object that `--json` prints."""

    env: str
    num_envs: int
    num_steps: int
    seed: int
    policy: str
    layers: list[str]  # from the environment on
    env_steps: int
    seconds: float  # on the device, without compiling
    steps_per_second: float  # environment steps by these seconds
    compile_seconds: float
    episodes: int
    returns: dict[str, float | None]  # mean, min, max
    lengths: dict[str, float | None]  # mean, min, max; steps
    files: dict[str, str]  # what was written where


def run(request: Request, console: Any) -> Report:
    """Rolls out, and writes the files that are asked for.

    Args:
      request: what to do.
      console: a `rich.console.Console` for progress and warnings.

    Raises:
      Failure: for bad input, and when the run fails.
    """
    _check_files(request)
    layers = _layers(request)
    todo = _compiled(request, layers, console)
    tally, files = Tally(request.num_steps), {}
    with contextlib.ExitStack() as stack:
        record = tally.add
        if request.monitor is not None:
            with failing(f"--monitor {request.monitor}"):
                monitor = MonitorFile(request.monitor, request.env, time.time())
            stack.enter_context(monitor)
            files["monitor"] = str(monitor.path)

            def record(episodes: Episodes) -> None:
                tally.add(episodes)
                monitor.write(episodes)

        advance = stack.enter_context(_progress(console, request))
        seconds = 0.0
        for piece in todo.pieces():
            seconds += piece.seconds
            record(piece.episodes)
            advance(piece.length * request.num_envs)
    if request.plot is not None:
        from jaxvec.cli._plot import plot_returns

        with failing(f"--plot {request.plot}", FAILED):
            plot_returns(request.plot, tally, request.env, request.num_envs)
        files["plot"] = str(request.plot)
    if request.save_stats is not None:
        from jaxvec.io import save_statistics

        with failing(f"--save-stats {request.save_stats}", FAILED):
            save_statistics(request.save_stats, todo.carry.env_state)
        files["statistics"] = str(request.save_stats)

    env_steps = request.num_steps * request.num_envs
    return Report(
        env=request.env,
        num_envs=request.num_envs,
        num_steps=request.num_steps,
        seed=request.seed,
        policy=request.policy,
        layers=list(layers),
        env_steps=env_steps,
        seconds=seconds,
        steps_per_second=env_steps / max(seconds, 1e-9),
        compile_seconds=todo.compile_seconds,
        episodes=tally.count,
        returns=tally.summary(0),
        lengths=tally.summary(1),
        files=files,
    )


def _compiled(request: Request, layers: dict[str, Any], console: Any) -> Any:
    """Returns the run that is ready to advance."""
    from jaxvec import named_chain
    from jaxvec.cli._run import Run
    from jaxvec.envs import vectorize
    from jaxvec.random import hash_key

    with failing(f"--seed {request.seed}"):
        key = hash_key(request.seed)
    env = load_env(request.env)
    if request.time_limit is not None:
        env = env._replace(max_episode_steps=request.time_limit)
    waiting = console.status("compiling") if console.is_terminal else contextlib.nullcontext()
    with waiting, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        with failing(request.env):
            bare = vectorize(env, request.num_envs)
        policy = load_policy(request.policy, bare)
        todo = Run(bare, named_chain(**layers), policy, key, request.num_steps)
    for warning in caught:
        line = f"warning: {warning.message}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return todo


def _layers(request: Request) -> dict[str, Any]:
    """Returns the layers by name, the first nearest to the environment."""
    from jaxvec import (
        check_finite,
        episode_statistics,
        frame_stack,
        normalize_observation,
        normalize_reward,
    )

    layers = {"check_finite": check_finite(), "episode_statistics": episode_statistics()}
    if request.frame_stack is not None:
        layers["frame_stack"] = frame_stack(request.frame_stack)
    if request.normalize:
        layers["normalize_observation"] = normalize_observation()
        layers["normalize_reward"] = normalize_reward()
    return layers


def _check_files(request: Request) -> None:
    """Finds what cannot be written before anything runs."""
    if request.save_stats is not None and not request.normalize:
        raise Failure("--save-stats has nothing to save without --normalize.")
    if request.plot is not None:
        with failing("--plot"):
            from jaxvec.cli._plot import check_plot

            check_plot(request.plot)
    for option, path in (
        ("--monitor", request.monitor),
        ("--plot", request.plot),
        ("--save-stats", request.save_stats),
    ):
        if path is not None and not path.parent.is_dir():
            raise Failure(f"{option} {path}: there is no folder {path.parent}.")


@contextlib.contextmanager
def _progress(console: Any, request: Request) -> Iterator[Callable[[int], None]]:
    """Shows a bar in environment steps, with their rate and the time that is left, on a terminal.

    Yields:
      What to call with the environment steps of each piece.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            rate = task.finished_speed or task.speed
            return Text("" if rate is None else f"{rate:,.0f} steps/s", style="progress.data.speed")

    if not console.is_terminal:
        yield lambda steps: None
        return
    columns = (TaskProgressColumn(), RateColumn(), TimeRemainingColumn())
    title = TextColumn("{task.description}", markup=False)
    with Progress(title, BarColumn(), *columns, console=console, transient=True) as bar:
        task = bar.add_task(request.env, total=request.num_steps * request.num_envs)
        yield lambda steps: bar.advance(task, steps)
