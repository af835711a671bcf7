"""What a check found, law by law."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxvec.errors import CheckError


class Law(NamedTuple):
    """One law, and whether it holds."""

    name: str  # a sentence
    holds: bool
    detail: str = ""  # where it does not hold, what was found and what to do; else a remark


class Report(NamedTuple):
    """What a check found."""

    subject: str
    laws: tuple[Law, ...]

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

    Where one ends the examination, the report holds the laws up to it.

    Args:
      subject: what is examined, as messages name it.
      laws: sentences, each with the function that raises `Broken` where it does not hold, and
        may return a remark where it does.
      *arguments: what each function is called with.
      raise_on_failure: whether to raise at the end, if some law does not hold.

    Raises:
      CheckError: then, with every failure in its message.
    """
    results = []
    for name, law in laws:
        try:
            remark = law(*arguments)
        except Broken as broken:
            results.append(Law(name, False, str(broken)))
            if broken.ends:
                break
        except Exception as error:  # the subject's code may raise anything
            first = str(error).strip().split("\n")[0]
            results.append(Law(name, False, f"it raised {type(error).__name__}: {first}"))
        else:
            results.append(Law(name, True, remark or ""))
    report = Report(subject, tuple(results))
    if raise_on_failure and report.failures:
        found = "\n".join(f"  - {law.name}: {law.detail}" for law in report.failures)
        raise CheckError(f"{subject} breaks {len(report.failures)} of its laws:\n{found}")
    return report
