"""`jaxvec check`: every law of an environment, and why it does not hold where it does not."""

from typing import Any

from rich.console import Console
from rich.text import Text

from jaxvec.cli._device import check_jax
from jaxvec.cli._failure import failing
from jaxvec.cli._targets import load_env


def check(env: str, num_envs: int, num_steps: int, seed: int) -> Any:
    """Returns the `jaxvec.testing.Report` of an environment.

    Raises:
      Failure: if there is no such environment.
    """
    from jaxvec.testing import check_env

    check_jax("what the laws run")
    record = load_env(env)
    with failing(env):
        return check_env(
            record, num_envs=num_envs, num_steps=num_steps, seed=seed, raise_on_failure=False
        )


def print_laws(report: Any) -> None:
    """Prints one line per law; under one that does not hold, what was found and what to do."""
    console = Console()
    for law in report.laws:
        mark = Text("holds  ", "green") if law.holds else Text("BROKEN ", "bold red")
        console.print(mark + Text(law.name, "none" if law.holds else "bold"), soft_wrap=True)
        if law.detail:
            console.print(Text(f"       {law.detail}"), soft_wrap=True)
    for name in report.not_run:
        console.print(Text("not run ", "yellow") + Text(name), soft_wrap=True)
    broken = len(report.failures)
    verdict = (
        f"{broken} of {len(report.laws) + len(report.not_run)} laws are broken"
        if broken
        else "all laws hold"
    )
    console.print(f"{report.subject}: {verdict}", markup=False, highlight=False)
