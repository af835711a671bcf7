"""The command line: `jaxvec rollout`, `jaxvec envs`, `jaxvec check`."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
      arguments: the words after `jaxvec`; None takes those of the process.

    Returns:
      The exit code: 0, 1 for a run or a law that failed, 2 for bad input, 130 after Ctrl-C.
    """
    try:
        from typer import Abort, TyperException

        from jaxvec.cli._app import app
        from jaxvec.cli._failure import FAILED, Failure
    except ModuleNotFoundError as error:
        return _end(f"{error.name} is not installed: pip install 'jaxvec[cli]'.", 2)
    words = None if arguments is None else list(arguments)
    try:
        # What a command returns is its exit code; those without one return None.
        return app(words, prog_name="jaxvec", standalone_mode=False) or 0
    except Failure as error:
        return _end(str(error), error.exit_code)
    except TyperException as error:
        return _end(" ".join(error.format_message().split()), error.exit_code)
    except Abort:
        return FAILED


def _end(message: str, exit_code: int) -> int:
    if message:  # there is none where help was printed instead
        print(f"jaxvec: {message}", file=sys.stderr)
    return exit_code
