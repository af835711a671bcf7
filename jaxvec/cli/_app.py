"""The commands and their options. What they do lies beside; jax is loaded by the command that needs it."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from jaxvec._version import __version__
from jaxvec.cli._failure import FAILED, failing
from jaxvec.cli._rollout import Backend, Request, run

app = typer.Typer(
    help="Roll out JAX-native reinforcement-learning environments, thousands at a time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_ENV_HELP = "An id (see `jaxvec envs`), or module:attribute, an Env or a function that makes one."


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
    """Roll a policy out, compiled, with the layers that are asked for.

    Layers, from the environment on: check for NaN and infinity, episode
    statistics, frame stack, normalization of observations, of rewards.
    Returns are sums of the environment's own rewards.
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
    """List the environments that are known by name."""
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
        print_json({"env": env, "holds": not report.failures, "laws": laws})
    else:
        print_laws(report)
    if report.failures:
        raise typer.Exit(FAILED)
