"""How a command ends early: one clear line on standard error, and an exit code; never a traceback."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jaxvec

BAD_INPUT = 2
FAILED = 1

# Where code lies that is not the user's own.
_LIBRARIES = (
    *("site-packages", "dist-packages", "<"),
    *(str(Path(file).parent) for file in (traceback.__file__, jaxvec.__file__)),
)
# Kinds of error that say nothing beside their message.
_PLAIN = (ValueError, TypeError, KeyError, AssertionError, OSError, jaxvec.errors.JaxvecError)


class Failure(Exception):  # noqa: N818  it is how a command ends, not a kind of error
    """Ends a command.

    Args:
      message: the line for the user.
      exit_code: 2 for bad input, 1 for a run that failed.
    """

    def __init__(self, message: str, exit_code: int = BAD_INPUT) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@contextmanager
def failing(doing: str, exit_code: int = BAD_INPUT) -> Iterator[None]:
    """Turns any exception of the body, and a call of `sys.exit`, into a `Failure` that says what was done.

    Args:
      doing: how the line begins; "" where the exception's message says enough.
      exit_code: the code to end with.
    """
    try:
        yield
    except Failure:
        raise
    except (Exception, SystemExit) as error:  # a user's own code may raise anything
        raise Failure(f"{doing}: {told(error)}" if doing else told(error), exit_code) from error


def told(error: BaseException) -> str:
    """Returns an exception as one line: where in the user's code, its kind, its message.

    Messages of jaxvec's own, a mistake in an option for instance, stand for themselves.
    """
    message = " ".join(str(error).split())
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in _LIBRARIES)
        and "<frozen" not in frame.filename
    ]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else ""
    kind = type(error).__name__
    if isinstance(error, SystemExit):
        return f"{place}it ends the program by sys.exit({', '.join(map(repr, error.args))})"
    if not place and isinstance(error, _PLAIN) and message:
        return message
    return f"{place}{kind}: {message}" if message else f"{place}{kind}"
