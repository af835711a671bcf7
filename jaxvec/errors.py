"""The exceptions that jaxvec raises beside Python's own.

    JaxvecError
    ├── MissingExtraError      an optional library is not installed   (also an ImportError)
    ├── UnknownEnvError        no environment of that id              (also a KeyError)
    ├── MissingPartError       a value lacks a part of its space      (also a ValueError, a LookupError)
    ├── FileFormatError        a file is not what it should be        (also a ValueError)
    ├── CheckError             a public law does not hold             (also an AssertionError)
    ├── ClosedError            a VecEnv that is closed was used       (also a RuntimeError)
    ├── AlreadyPendingError    a step is under way already            (also a RuntimeError)
    ├── NotPendingError        nothing is under way to wait for       (also a RuntimeError)
    └── WorkerError            an environment raised in a worker      (also a RuntimeError)
        ├── WorkerDiedError    a worker process ended by itself
        └── WorkerTimeoutError a worker did not answer in time        (also a TimeoutError)

A static mistake in a call (shape, dtype, structure, option) is a plain `ValueError` or `TypeError`.
"""


class JaxvecError(Exception):
    """The root of the tree: `except JaxvecError` catches all that is jaxvec's own."""


class MissingExtraError(JaxvecError, ImportError):
    """A library that only one feature needs is not installed; the message names the extra."""


class _NotFoundError(JaxvecError, KeyError):
    def __str__(self) -> str:
        """Returns the message as it is: a KeyError would show its repr."""
        return str(self.args[0]) if self.args else ""


class UnknownEnvError(_NotFoundError):
    """No environment is registered under that id; the message lists the nearest ones."""


class MissingPartError(_NotFoundError, ValueError, IndexError):
    """A value lacks a key or a part that its space has, or names one that it has not."""


class FileFormatError(JaxvecError, ValueError):
    """A file is damaged, of another format, or does not fit the tree it is loaded into."""


class CheckError(JaxvecError, AssertionError):
    """A law of `jaxvec.testing` does not hold; the message says which, where and what was found."""


class ClosedError(JaxvecError, RuntimeError):
    """A VecEnv was used after it was closed; the message says what closed it."""


class AlreadyPendingError(JaxvecError, RuntimeError):
    """A call cannot be served while a step is pending; nothing was sent."""


class NotPendingError(JaxvecError, RuntimeError):
    """There is no pending step whose result could be waited for."""


class WorkerError(JaxvecError, RuntimeError):
    """An environment raised in a worker process.

    It stands in for an exception that cannot be rebuilt in this process; where it can be, the
    original type is raised and this error is its `__cause__`.

    Attributes:
      env_index: the environment that raised, or the first one of the worker; None if unknown.
      remote_traceback: the traceback as the worker saw it; empty if there was none.
    """

    def __init__(
        self, message: str, env_index: int | None = None, remote_traceback: str = ""
    ) -> None:
        super().__init__(message)
        self.env_index = env_index
        self.remote_traceback = remote_traceback


class WorkerDiedError(WorkerError):
    """A worker process ended by itself: killed, out of memory, or by `os._exit`.

    Attributes:
      exit_code: of the process; the negative number of a signal if one killed it.
    """

    def __init__(
        self, message: str, env_index: int | None = None, exit_code: int | None = None
    ) -> None:
        super().__init__(message, env_index)
        self.exit_code = exit_code


class WorkerTimeoutError(WorkerError, TimeoutError):
    """A worker did not answer within the `timeout` of its VecEnv."""
