"""What all sections of the benchmarks share: turns, rows of the table, missing peers, a section run alone.

A section is a page beside this one with a function `measure(effort)`. It yields a `Row` for each figure, and
a `LeftOut` for each peer that is not installed. `run.py` runs them all; each runs alone, too.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

T = TypeVar("T")

HOW_TO_INSTALL = {
    "gymnax": "pip install gymnax==0.0.9 six",
    "envpool": "pip install envpool",
    "stable_baselines3": "pip install torch==2.13.0, then pip install stable-baselines3==2.9.2",
    "ale_py": "pip install 'jaxvec[atari]'",
    "cv2": "pip install 'jaxvec[atari]'",
    "ray": "pip install 'jaxvec[ray]'",
}


class Effort(NamedTuple):
    """How much is measured."""

    name: str  # "full", "quick", or "tiny", whose figures say nothing
    rounds: int  # how many turns each contestant has
    burst: float  # seconds of one turn, about

    def of(self, full: T, quick: T, tiny: T) -> T:
        """Returns the one that is meant for this effort."""
        return {"full": full, "quick": quick, "tiny": tiny}[self.name]


EFFORTS = {
    "full": Effort("full", 7, 0.3),
    "quick": Effort("quick", 3, 0.06),
    "tiny": Effort("tiny", 2, 0.001),
}

FASTER, TIME = "x as fast", "x the peer's"
RATIOS = (FASTER, TIME)


class Row(NamedTuple):
    """One figure: the median over the rounds, and what it should be."""

    section: str
    what: str
    peer: str  # what it is compared with
    ours: float  # median, in `unit`
    theirs: float | None  # median, in `unit`
    unit: str
    figure: float  # median over the rounds
    low: float  # its lower quartile
    high: float  # its upper one
    measure: (
        str  # of the figure: `FASTER`, where more is better; `TIME` or another unit, where less is
    )
    target: float | None
    rounds: int
    note: str = ""

    @property
    def score(self) -> float | None:
        """The figure by its target, 1 and above where it is reached; None without a target."""
        if self.target is None:
            return None
        if self.measure == FASTER:
            return self.figure / self.target
        return self.target / self.figure if self.figure > 0 else float("inf")

    @property
    def times_as_fast(self) -> float | None:
        """The figure as a ratio of speeds, where it is one of times."""
        return {FASTER: self.figure, TIME: 1 / self.figure}.get(self.measure)


class LeftOut(NamedTuple):
    """What could not be measured, and why."""

    section: str
    what: str
    why: str


Measured = Iterator[Row | LeftOut]


def compared(
    section: str,
    what: str,
    peer: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    scale: tuple[float, str],
    target: float | None = None,
    *,
    kind: str = FASTER,
    note: str = "",
) -> Row:
    """Returns a row about two times, round by round.

    Args:
      section: its name.
      what: was done.
      peer: what it is compared with.
      ours: seconds in each round.
      theirs: seconds in each round, of the peer.
      scale: a factor and the unit that it turns seconds into.
      target: at least this, or for a ratio of times, at most.
      kind: of ratio: `FASTER` or `TIME`.
      note: stands at the end of the row.
    """
    ratios = np.asarray(ours) / np.asarray(theirs)
    if kind == FASTER:
        ratios = 1 / ratios
    low, figure, high = np.percentile(ratios, (25, 50, 75)).tolist()
    factor, unit = scale
    return Row(
        *(
            section,
            what,
            peer,
            factor * statistics.median(ours),
            factor * statistics.median(theirs),
        ),
        *(unit, figure, low, high, kind, target, len(ours), note),
    )


def amount(
    section: str,
    what: str,
    ours: Sequence[float],
    unit: str,
    target: float | None = None,
    *,
    peer: str = "",
    theirs: Sequence[float] | None = None,
    note: str = "",
) -> Row:
    """Returns a row about an amount, such as seconds; beside a peer's it is what ours has more."""
    figures = np.asarray(ours) if theirs is None else np.asarray(ours) - np.asarray(theirs)
    low, figure, high = np.percentile(figures, (25, 50, 75)).tolist()
    other = None if theirs is None else statistics.median(theirs)
    return Row(
        *(section, what, peer, statistics.median(ours), other, unit, figure, low, high),
        *(unit if theirs is None else f"{unit} more", target, len(ours), note),
    )


def turns(
    calls: Mapping[str, Callable[[], Any]],
    effort: Effort,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Lets all take turns, in short bursts; who begins changes from round to round.

    Args:
      calls: what is timed, by name. Each must wait until its work is done.
      effort: how many rounds, and how long a burst is.
      clock: returns seconds.

    Returns:
      For each the seconds of one call, a round each.
    """
    counts = {}
    for name, call in calls.items():
        call()  # what is compiled, is compiled here
        counts[name] = int(np.clip(effort.burst / max(_burst(call, 2, clock), 1e-7), 1, 100_000))
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for lap in range(effort.rounds):
        first = lap % len(names)
        for name in names[first:] + names[:first]:
            times[name].append(_burst(calls[name], counts[name], clock))
    return times


def _burst(call: Callable[[], Any], count: int, clock: Callable[[], float]) -> float:
    began = clock()
    for _ in range(count):
        call()
    return (clock() - began) / count


def missing(section: str, what: str, *libraries: str) -> list[LeftOut]:
    """Returns what is left out because these libraries are not there; nothing if all are."""
    return [
        LeftOut(section, what, f"{library} is not installed: {HOW_TO_INSTALL[library]}")
        for library in libraries
        if find_spec(library) is None
    ]


def check_cart_poles(obs: Any, actions: Any, new_obs: Any, done: Any) -> None:
    """Asserts that steps of CartPoles are those of gymnasium's environment, from the same states.

    Args:
      obs: float32 `[N, 4]`, before.
      actions: int `[N]`.
      new_obs: float32 `[N, 4]`, after; not looked at where an episode ended.
      done: bool `[N]`, whether it did.
    """
    import gymnasium

    oracle: Any = gymnasium.make("CartPole-v1").unwrapped
    oracle.reset(seed=0)
    for row in range(len(obs)):
        oracle.state, oracle.steps_beyond_terminated = np.asarray(obs[row], float), None
        want, _, terminated, _, _ = oracle.step(int(actions[row]))
        assert bool(done[row]) == terminated, (row, obs[row], want)
        if not terminated:
            np.testing.assert_allclose(new_obs[row], want, rtol=1e-4, atol=1e-5)


def alone(
    section: str,
    text: str | None,
    measure: Callable[..., Measured],
    options: Callable[[Callable[..., Any]], Any] | None = None,
) -> None:
    """Runs one section as a program.

    Args:
      section: its name.
      text: what its page says.
      measure: `(effort, **options)`.
      options: adds the section's own options, given `add_argument`.
    """
    title, _, details = (text or "").partition("\n")
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=title, epilog=details, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    parser.add_argument("--rounds", type=int, help="how many turns each has")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)  # for tests
    parser.add_argument("--lines", type=Path, help=argparse.SUPPRESS)  # for run.py: where rows go
    if options is not None:
        options(parser.add_argument)
    chosen = vars(parser.parse_args())
    lines = chosen.pop("lines")
    effort = EFFORTS["tiny" if chosen.pop("tiny") else "quick" if chosen.pop("quick") else "full"]
    chosen.pop("quick", None)
    if rounds := chosen.pop("rounds"):
        effort = effort._replace(rounds=rounds)
    rows = []
    for row in measure(effort, **chosen):
        rows.append(row)
        if lines is not None:
            with lines.open("a") as file:
                file.write(json.dumps([type(row).__name__, row._asdict()]) + "\n")
    if lines is None:
        from report import print_table

        print_table(rows)
