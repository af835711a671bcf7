"""The command line: `jaxvec rollout`, `bench`, `envs`, `check`, `plot`, `stats`, `docs`."""

import contextlib
import os
import sys
from collections.abc import Sequence

_BROKEN_PIPE = 141  # what a shell shows of a program that a closed pipe has ended


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: the words after `jaxvec`; None takes those of the process.

    Returns:
      The exit code: 0, 1 for a run or a law that failed, 2 for bad input, 130 after Ctrl-C, 141 where the
      reader of the output went away.
    """
    try:
        from typer import Abort, TyperException

        from jaxvec.cli._app import app
        from jaxvec.cli._failure import FAILED, Failure, told
    except ModuleNotFoundError as error:
        return _end(f"{error.name} is not installed: pip install 'jaxvec[cli]'.", 2)
    words = None if arguments is None else list(arguments)
    try:
        # What a command returns is its exit code; those without one return None.
        exit_code = app(words, prog_name="jaxvec", standalone_mode=False) or 0
        sys.stdout.flush()  # or a disk that is full would be found when nobody looks any more
        return exit_code
    except Failure as error:
        return _end(str(error), error.exit_code)
    except TyperException as error:
        return _end(" ".join(error.format_message().split()), error.exit_code)
    except Abort:
        return 130
    except OSError as error:
        _silence(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return _BROKEN_PIPE
        return _end(f"cannot write: {told(error)}", FAILED)
    except SystemExit as error:  # typer and rich end so where the reader of a pipe has gone
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _silence(sys.stdout)
        return _BROKEN_PIPE


def _end(message: str, exit_code: int) -> int:
    if message:  # there is none where help was printed instead
        try:
            print(f"jaxvec: {message}", file=sys.stderr, flush=True)
        except OSError:
            _silence(sys.stderr)
    return exit_code


def _silence(stream: object) -> None:
    """Lets the interpreter's last flush of a broken stream go nowhere, where it would fail again."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[attr-defined]
        os.close(nowhere)
