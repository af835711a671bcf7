"""`jaxvec rollout`: the environment with its layers, the run piece by piece, and what became of it.

The layers, from the environment on: a check for NaN and infinity, episode statistics, the frame stack, the
normalization of observations and of rewards. Episode statistics lie under the normalization, so that they
report the environment's own rewards. All back ends have the same layers: "scan" as one compiled loop, the
others as VecEnv and its wrappers.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jaxvec.cli._device import check_jax, make_devices
from jaxvec.cli._episodes import Episodes, Tally, write_episodes
from jaxvec.cli._failure import FAILED, Failure, failing
from jaxvec.cli._outputs import check_outputs, opened_log
from jaxvec.cli._targets import classic_maker, load_env, load_policy
from jaxvec.vec._results import monitor_filename

Backend = Literal["scan", "jax-vec", "dummy", "subproc"]


class Request(NamedTuple):
    """The options of `jaxvec rollout`."""

    env: str
    num_envs: int = 1024
    num_steps: int = 1000
    frame_stack: int | None = None
    normalize: bool = False
    time_limit: int | None = None
    seed: int = 0
    policy: str = "random"
    monitor: Path | None = None
    plot: Path | None = None
    save_stats: Path | None = None
    video: Path | None = None
    backend: Backend = "scan"
    num_workers: int | None = None  # of "subproc"; None for one per core
    devices: int | None = None  # of "scan" and "jax-vec": how many share the rows; None for no mesh


class Report(NamedTuple):
    """What became of a rollout; `_asdict` is the object that `--json` prints."""

    env: str
    backend: str
    num_envs: int
    num_steps: int
    seed: int
    policy: str
    layers: list[str]  # from the environment on
    env_steps: int
    seconds: float  # of stepping, without what comes before
    steps_per_second: float | None  # environment steps by these seconds; None for too few to tell
    compile_seconds: (
        float  # before: compiling, and, of a VecEnv, making it, its reset and its first step
    )
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
    if request.save_stats is not None and not request.normalize:
        raise Failure("--save-stats has nothing to save without --normalize.")
    if request.num_workers is not None and request.backend != "subproc":
        raise Failure(f"--num-workers is for --backend subproc, not for {request.backend}.")
    if request.devices is not None and request.backend not in ("scan", "jax-vec"):
        raise Failure(f"--devices is for --backend scan and jax-vec, not for {request.backend}.")
    if request.video is not None and request.backend not in ("scan", "jax-vec"):
        raise Failure(f"--video is for --backend scan and jax-vec, not for {request.backend}.")
    check_outputs(
        monitor=request.monitor,
        plot=request.plot,
        save_stats=request.save_stats,
        video=request.video,
    )
    tally, files = Tally(request.num_steps), {}
    with contextlib.ExitStack() as stack:
        todo = started(request, console)
        stack.callback(todo.close)
        if request.video is not None:
            _record(request, console)
            files["video"] = str(request.video)
        record = tally.add
        if request.monitor is not None:
            log = stack.enter_context(opened_log(request.monitor, request.env))
            files["monitor"] = monitor_filename(request.monitor)

            def record(episodes: Episodes) -> None:
                tally.add(episodes)
                with failing(f"--monitor {request.monitor}", FAILED):
                    write_episodes(log, episodes)

        stack.enter_context(_warnings_told(console))
        advance = stack.enter_context(_progress(console, request))
        seconds, timed = 0.0, 0
        for piece in todo.pieces():
            seconds += piece.seconds
            timed += piece.length * (piece.seconds > 0)
            record(piece.episodes)
            advance(piece.length * request.num_envs)
        if request.save_stats is not None:
            with failing(f"--save-stats {request.save_stats}", FAILED):
                todo.save_statistics(request.save_stats)
            files["statistics"] = str(request.save_stats)
    if request.plot is not None:
        from jaxvec.cli._plot import plot_returns

        with failing(f"--plot {request.plot}", FAILED):
            plot_returns(request.plot, tally, request.env, request.num_envs)
        files["plot"] = str(request.plot)

    return Report(
        env=request.env,
        backend=request.backend,
        num_envs=request.num_envs,
        num_steps=request.num_steps,
        seed=request.seed,
        policy=request.policy,
        layers=_layer_names(request),
        env_steps=request.num_steps * request.num_envs,
        seconds=seconds,
        steps_per_second=timed * request.num_envs / seconds if timed else None,
        compile_seconds=todo.compile_seconds,
        episodes=tally.count,
        returns=tally.summary(0),
        lengths=tally.summary(1),
        files=files,
    )


def started(request: Request, console: Any) -> Any:
    """Returns the run that is ready to advance: a `Run`, or a `VecRun` that has made its first step.

    Raises:
      Failure: if environment, layers and policy do not fit together.
    """
    compiles = request.backend in ("scan", "jax-vec")
    if request.devices is not None:
        make_devices(request.devices)
    check_jax(f"--backend {request.backend}" if compiles else None)
    with _warnings_told(console), _waiting(console, "compiling"):
        return _compiled(request) if request.backend == "scan" else _stepped(request)


def _record(request: Request, console: Any) -> None:
    from jaxvec.cli._video import MOST_ENVS, MOST_STEPS, record_video

    assert request.video is not None
    with _warnings_told(console), _waiting(console, "recording"):
        record_video(
            request.video,
            _vectorized(request._replace(num_envs=min(request.num_envs, MOST_ENVS))),
            load_policy(request.policy),
            request.seed,
            min(request.num_steps, MOST_STEPS),
            stack=request.frame_stack,
            normalize=request.normalize,
        )


def _waiting(console: Any, doing: str) -> contextlib.AbstractContextManager[Any]:
    """Shows on a terminal what takes a while."""
    waiting: contextlib.AbstractContextManager[Any] = (
        console.status(doing) if console.is_terminal else contextlib.nullcontext()
    )
    return waiting


@contextlib.contextmanager
def _warnings_told(console: Any) -> Iterator[None]:
    """Prints the warnings of the body after it, one line each."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        yield
    for warning in caught:
        line = f"warning: {' '.join(str(warning.message).split())}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _compiled(request: Request) -> Any:
    from jaxvec import named_chain
    from jaxvec.cli._run import Run
    from jaxvec.random import hash_key

    with failing(f"--seed {request.seed}"):
        key = hash_key(request.seed)
    bare = _vectorized(request)
    policy = load_policy(request.policy)
    layers, mesh = named_chain(**_layers(request)), _mesh(request)
    return Run(bare, layers, policy, key, request.num_steps, mesh)


def _mesh(request: Request) -> Any:
    """Returns the mesh of --devices, or None.

    Raises:
      Failure: if there are fewer devices, or the environments do not divide among them.
    """
    from jaxvec.envs import device_mesh

    if request.devices is None:
        return None
    if request.num_envs % request.devices:
        raise Failure(
            f"--num-envs {request.num_envs} does not divide among --devices {request.devices}."
        )
    with failing(f"--devices {request.devices}"):
        return device_mesh(request.devices)


def _vectorized(request: Request) -> Any:
    """Returns N environments, without layers."""
    from jaxvec.envs import vectorize

    env = load_env(request.env)
    if request.time_limit is not None:
        env = env._replace(max_episode_steps=request.time_limit)
    with failing(request.env):
        return vectorize(env, request.num_envs)


def _stepped(request: Request) -> Any:
    from jaxvec.cli._vec_run import VecRun
    from jaxvec.random import hash_key

    with failing(f"--seed {request.seed}"):
        hash_key(request.seed)
    return VecRun(
        _vec_env_maker(request),
        load_policy(request.policy),
        request.seed,
        request.num_steps,
        stack=request.frame_stack,
        normalize=request.normalize,
    )


def _vec_env_maker(request: Request) -> Callable[[], Any]:
    """Returns what makes the VecEnv, without layers."""
    from jaxvec import shard, vec

    if request.backend == "jax-vec":
        bare, mesh = _vectorized(request), _mesh(request)
        if mesh is not None:
            bare = shard(bare, mesh)
        return lambda: vec.JaxVecEnv(bare)
    env_fns = [classic_maker(request.env, request.time_limit)] * request.num_envs
    if request.backend == "dummy":
        return lambda: vec.DummyVecEnv(env_fns)
    return lambda: vec.SubprocVecEnv(env_fns, num_workers=request.num_workers or "auto")


def _layers(request: Request) -> dict[str, Any]:
    """Returns the layers by name, the first nearest to the environment."""
    from jaxvec import (
        check_finite,
        episode_statistics,
        frame_stack,
        normalize_observation,
        normalize_reward,
    )

    make = {
        "check_finite": check_finite,
        "episode_statistics": episode_statistics,
        "frame_stack": lambda: frame_stack(request.frame_stack or 1),
        "normalize_observation": normalize_observation,
        "normalize_reward": normalize_reward,
    }
    return {name: make[name]() for name in _layer_names(request)}


def _layer_names(request: Request) -> list[str]:
    return [
        *("check_finite", "episode_statistics"),
        *["frame_stack"] * (request.frame_stack is not None),
        *["normalize_observation", "normalize_reward"] * request.normalize,
    ]


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
