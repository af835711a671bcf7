"""What a check found, law by law."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxvec.errors import CheckError


class Law(NamedTuple):
    """One law, and whether it holds.

    Attributes:
      name: a sentence.
      holds: whether it does.
      detail: where it does not hold, what was found and what to do; else a remark.
    """

    name: str  # a sentence
    holds: bool
    detail: str = ""  # where it does not hold, what was found and what to do; else a remark


class Report(NamedTuple):
    """What a check found.

    Attributes:
      subject: what was checked.
      laws: those that could be examined.
      not_run: the others, which what broke an earlier one kept from it.
    """

    subject: str
    laws: tuple[Law, ...]  # those that could be examined
    not_run: tuple[str, ...] = ()  # the others, which what broke an earlier one kept from it

    @property
    def failures(self) -> tuple[Law, ...]:
        """The laws that do not hold."""
        return tuple(law for law in self.laws if not law.holds)


class Broken(Exception):  # noqa: N818  an internal signal, never seen by a user
    """Raised by a law that does not hold, with the detail.

    Attributes:
      ends: whether no later law can be examined where this one does not hold.
    """

    def __init__(self, detail: str, *, ends: bool = False) -> None:
        super().__init__(detail)
        self.ends = ends


def examine(
    subject: str,
    laws: Sequence[tuple[str, Callable[..., str | None]]],
    *arguments: Any,
    raise_on_failure: bool,
) -> Report:
    """Runs laws one after the other; what one raises does not keep the others from being run.

    What is found twice in the same words is one mistake: the first law is reported as broken, the others
    as not run. Where one ends the examination, so are all after it.

    Args:
      subject: what is examined, as messages name it.
      laws: sentences, each with the function that raises `Broken` where it does not hold, and
        may return a remark where it does.
      *arguments: what each function is called with.
      raise_on_failure: whether to raise at the end, if some law does not hold.

    Raises:
      CheckError: then, with every failure in its message.
    """
    results: list[Law] = []
    not_run: list[str] = []
    found: set[str] = set()
    ended = False
    for name, law in laws:
        if ended:
            not_run.append(name)
            continue
        detail, holds = "", True
        try:
            detail = law(*arguments) or ""
        except Broken as broken:
            detail, holds, ended = str(broken), False, broken.ends
        except Exception as error:  # the subject's code may raise anything
            first = str(error).strip().split("\n")[0]
            detail, holds = f"it raised {type(error).__name__}: {first}", False
        if not holds and detail in found:
            not_run.append(name)
            continue
        results.append(Law(name, holds, detail))
        if not holds:
            found.add(detail)
    report = Report(subject, tuple(results), tuple(not_run))
    if raise_on_failure and report.failures:
        raise CheckError(_message(report))
    return report


def _message(report: Report) -> str:
    found = "\n".join(f"  - {law.name}: {law.detail}" for law in report.failures)
    text = f"{report.subject} breaks {len(report.failures)} of its laws:\n{found}"
    if report.not_run:
        names = "; ".join(report.not_run)
        text += f"\nThat kept {len(report.not_run)} others from being examined: {names}."
    return text
