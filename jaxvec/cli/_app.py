"""The commands and their options. What they do lies beside; jax is loaded by the command that needs it."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from jaxvec._version import __version__
from jaxvec.cli._curves import Axis
from jaxvec.cli._failure import FAILED, failing
from jaxvec.cli._rollout import Backend, Request, run

app = typer.Typer(
    help="Roll out reinforcement-learning environments, thousands at a time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_ENV_HELP = "An id (see `jaxvec envs`), library:id, or module:attribute, an Env or a function that makes one."


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"jaxvec {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


@app.command()
def rollout(
    env: Annotated[str, typer.Argument(help=_ENV_HELP)],
    num_envs: Annotated[int, typer.Option(min=1, help="How many environments, N.")] = 1024,
    num_steps: Annotated[int, typer.Option(min=1, help="How many steps each takes, T.")] = 1000,
    frame_stack: Annotated[
        int | None, typer.Option(min=1, metavar="K", help="Stack the last K observations.")
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Normalize observations and rewards.")
    ] = False,
    time_limit: Annotated[
        int | None,
        typer.Option(min=1, metavar="T", help="Truncate episodes at T steps, not where ENV would."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same run.")] = 0,
    backend: Annotated[
        Backend,
        typer.Option(
            help="One compiled loop (scan), or a VecEnv: of JAX's environments (jax-vec), or of "
            "gymnasium's in this process (dummy) or in workers (subproc)."
        ),
    ] = "scan",
    num_workers: Annotated[
        int | None, typer.Option(min=1, help="Processes of --backend subproc; one for each core.")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(min=1, help="Spread the environments over so many devices; a CPU makes them."),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            metavar="random|MODULE:FUNCTION",
            help="Random actions, or a function (key, obs) -> action over all environments.",
        ),
    ] = "random",
    monitor: Annotated[
        Path | None,
        typer.Option(
            help="Write one row per episode, as Stable-Baselines3's Monitor does, which adds "
            ".monitor.csv to names that do not end so."
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the episodes' returns.")] = None,
    video: Annotated[
        Path | None,
        typer.Option(
            help="Record the first steps (500 at most) of the first environments (9 at most), tiled, "
            "as .mp4."
        ),
    ] = None,
    save_stats: Annotated[
        Path | None,
        typer.Option(
            help="Save the statistics of --normalize: for jaxvec.io.load_statistics, or from a VecEnv "
            "for VecNormalize.load (.npz, else a pickle that Stable-Baselines3 loads too)."
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Roll a policy out, with the layers that are asked for.

    Layers, from the environment on: check for NaN and infinity, episode
    statistics, frame stack, normalization of observations, of rewards.
    Returns are sums of the environment's own rewards. With --backend dummy or
    subproc, ENV is one of gymnasium's: an id, or module:attribute, a function
    or class that makes a gymnasium.Env.
    """
    from jaxvec.cli._report import print_json, print_report

    request = Request(
        env=env,
        num_envs=num_envs,
        num_steps=num_steps,
        frame_stack=frame_stack,
        normalize=normalize,
        time_limit=time_limit,
        seed=seed,
        backend=backend,
        policy=policy,
        monitor=monitor,
        plot=plot,
        save_stats=save_stats,
        video=video,
        num_workers=num_workers,
        devices=devices,
    )
    report = run(request, Console(stderr=True))
    if json:
        print_json(report._asdict())
    else:
        print_report(report)


@app.command()
def envs(
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON list instead of the table.")
    ] = False,
) -> None:
    """List the environments that are known by name.

    Those of an installed library have it before a colon: gymnax:Breakout-MinAtar.
    """
    from jaxvec.cli._report import print_envs, print_json
    from jaxvec.envs import available, make

    found = []
    for name in available():
        with failing(name, FAILED):
            found.append(make(name))
    if json:
        print_json([_as_json(env) for env in found])
    else:
        print_envs(found)


def _as_json(env: Any) -> dict[str, Any]:
    return {
        "id": env.metadata["name"],
        "observation_space": str(env.observation_space),
        "action_space": str(env.action_space),
        "max_episode_steps": env.max_episode_steps,
    }


@app.command()
def check(
    env: Annotated[str, typer.Argument(help=_ENV_HELP)],
    num_envs: Annotated[int, typer.Option(min=2, help="How many copies act at random.")] = 32,
    num_steps: Annotated[int, typer.Option(min=1, help="How many steps each takes.")] = 200,
    seed: Annotated[int, typer.Option(help="Of keys and actions.")] = 0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the list.")
    ] = False,
) -> None:
    """Check an environment against the laws of jaxvec.testing.

    The exit code is 1 if one of them does not hold.
    """
    from jaxvec.cli._check import check as run
    from jaxvec.cli._check import print_laws
    from jaxvec.cli._report import print_json

    report = run(env, num_envs, num_steps, seed)
    if json:
        laws = [law._asdict() for law in report.laws]
        holds, not_run = not report.failures, report.not_run
        print_json({"env": env, "holds": holds, "laws": laws, "not_run": not_run})
    else:
        print_laws(report)
    if report.failures:
        raise typer.Exit(FAILED)


@app.command()
def bench(
    env: Annotated[str, typer.Argument(help=_ENV_HELP)],
    seconds: Annotated[float, typer.Option(min=0.01, help="How long each setting is timed.")] = 2.0,
    num_envs: Annotated[
        list[int] | None,
        typer.Option(min=1, help="How many environments; may be given several times. [16, 1024]"),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Time the back ends that fit an environment, and name the fastest.

    These are DummyVecEnv, SubprocVecEnv with workers from one to the number
    of cores, JaxVecEnv, and the compiled loop. ENV is looked up with
    gymnasium for the first two, with jaxvec for the others.
    """
    from jaxvec.cli._bench import bench as run
    from jaxvec.cli._bench import print_comparison
    from jaxvec.cli._report import print_json

    comparison = run(env, seconds, num_envs or [16, 1024], Console(stderr=True))
    if json:
        print_json(comparison.as_json())
    else:
        print_comparison(comparison)


@app.command()
def plot(
    files: Annotated[list[Path], typer.Argument(help="Monitor files, or folders: one is one run.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The picture: .png, .svg, .pdf.")
    ] = Path("returns.png"),
    over: Annotated[Axis, typer.Option(help="What the returns are drawn over.")] = "steps",
    smooth: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Draw the mean of the last K episodes."),
    ] = None,
) -> None:
    """Draw learning curves from monitor files, one colour for each run."""
    from jaxvec.cli._curves import draw_curves

    curves = draw_curves(files, output, axis=over, window=smooth)
    episodes = sum(len(curve.x) for curve in curves)
    print(f"{output}: {episodes:,} episodes of {len(curves)} run{'s' * (len(curves) > 1)}")


@app.command()
def stats(
    file: Annotated[
        Path | None, typer.Argument(help="A file of --save-stats, or of VecNormalize.save (.npz).")
    ] = None,
    from_sb3: Annotated[
        Path | None,
        typer.Option(
            metavar="PICKLE",
            help="Convert a VecNormalize of Stable-Baselines3's into FILE first (the same name with "
            ".npz, unless FILE is given).",
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run whatever is in that pickle: if you made it.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw them, too.")] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Show the statistics that a normalization has learnt."""
    from jaxvec.cli._report import print_json
    from jaxvec.cli._stats import as_json, plot_stats, print_stats, read_stats

    found = read_stats(file, from_sb3, trust, plot)
    if plot is not None:
        plot_stats(plot, found)
    if json:
        print_json(as_json(found))
    else:
        print_stats(found)


@app.command()
def docs(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The folder to build; a site that is there is replaced."
        ),
    ] = Path("site"),
) -> None:
    """Build the documentation as a web site: OUTPUT/index.html."""
    from jaxvec.cli._docs import build_docs

    build_docs(output)
    print(output / "index.html")
