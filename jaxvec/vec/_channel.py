"""Messages between the caller and a worker, and exceptions that travel as messages."""

import contextlib
import pickle
import socket
import struct
import sys
import time
import traceback
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from jaxvec.errors import WorkerError

_LENGTH = struct.Struct("<Q")
_CHUNK = 1 << 20  # bytes read at once
_AT_LEAST = 1e-3  # seconds


class Channel:
    """One end of a connection that whole messages travel on.

    Reading can be broken off, by a deadline or by a KeyboardInterrupt, and taken up again later.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = bytearray()

    @classmethod
    def pair(cls) -> tuple["Channel", "Channel"]:
        """Returns both ends of a new connection."""
        one, other = socket.socketpair()
        return cls(one), cls(other)

    def send(self, message: bytes, timeout: float | None = None) -> None:
        """Sends a message that `dumps` made.

        Raises:
          OSError: if nobody reads at the other end (a TimeoutError after `timeout` seconds).
        """
        self.connection.settimeout(timeout)
        self.connection.sendall(_LENGTH.pack(len(message)) + message)

    def recv(self, deadline: float | None = None) -> Any:
        """Waits for a message.

        Args:
          deadline: a time of `time.monotonic`; None waits for ever.

        Raises:
          EOFError: if the other end is closed, or its process gone.
          TimeoutError: if the deadline has passed.
        """
        self._fill(_LENGTH.size, deadline)
        length = _LENGTH.size + _LENGTH.unpack_from(self._received)[0]
        self._fill(length, deadline)
        message = bytes(memoryview(self._received)[_LENGTH.size : length])
        self._received.clear()
        return pickle.loads(message)

    def _fill(self, count: int, deadline: float | None) -> None:
        while len(self._received) < count:
            left = None if deadline is None else deadline - time.monotonic()
            # What has arrived is read also after the deadline.
            self.connection.settimeout(None if left is None else max(left, _AT_LEAST))
            # Never more than this message: what follows may be a descriptor.
            try:
                part = self.connection.recv(min(count - len(self._received), _CHUNK))
            except ConnectionError as error:
                raise EOFError from error
            if not part:
                raise EOFError
            self._received += part

    def close(self) -> None:
        """Closes this end, for every process that has a copy of it."""
        with contextlib.suppress(OSError):  # the other end is gone already
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def dumps(message: Any) -> bytes:
    """Pickles a message; by value (cloudpickle) where pickle cannot, as for lambdas.

    Raises:
      TypeError: if neither can.
    """
    try:
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except Exception:  # pickle raises whatever the object raises
        return dumps_by_value(message)


def dumps_by_value(message: Any) -> bytes:
    """Pickles a message so that no other process needs this one's main module.

    Raises:
      TypeError: if that cannot be done.
    """
    try:
        pickled: bytes = cloudpickle.dumps(message)
    except Exception as error:
        raise TypeError(f"it cannot be pickled: {type(error).__name__}: {error}") from error
    return pickled


class Fault(NamedTuple):
    """An exception of an environment, as it travels."""

    row: int  # which environment raised
    command: str  # what it was asked to do
    kind: tuple[str, str]  # module and qualified name of the exception's class
    text: str
    traceback: str
    pickled: bytes | None  # the exception itself, where it comes back the same


def fault_of(error: BaseException, row: int, command: str) -> Fault:
    """Packs an exception, in the process that it was raised in."""
    kind = (type(error).__module__, type(error).__qualname__)
    text = "".join(traceback.format_exception(error))
    pickled: bytes | None
    try:
        pickled = pickle.dumps(error.with_traceback(None))
        if type(pickle.loads(pickled)) is not type(error):
            pickled = None
    except Exception:  # its class may do anything in its constructor
        pickled = None
    return Fault(row, command, kind, str(error), text, pickled)


def raised(fault: Fault, owner: str) -> Exception:
    """Returns the exception to raise for a fault: of the original type, where that can be rebuilt.

    Its `__cause__` is a WorkerError that has the environment's index and the worker's traceback.

    Args:
      fault: from a worker.
      owner: name of the VecEnv's class, for the message.
    """
    kind = fault.kind[1] if fault.kind[0] == "builtins" else ".".join(fault.kind)
    remote = WorkerError(
        f"{owner}: environment {fault.row} raised {kind} at `{fault.command}`: {fault.text}\n\n"
        f"The worker's traceback:\n{fault.traceback}",
        fault.row,
        fault.traceback,
    )
    error = _rebuilt(fault)
    if error is None:
        return remote
    error.__cause__ = remote
    return error


def _rebuilt(fault: Fault) -> Exception | None:
    if fault.pickled is not None:
        try:
            error = pickle.loads(fault.pickled)
        except Exception:  # a class that only the worker can import
            error = None
        if isinstance(error, Exception):
            return error
    # A class of the caller's main script has a twin in the worker; the caller knows its own.
    found: Any = sys.modules.get(fault.kind[0])
    for name in fault.kind[1].split("."):
        found = getattr(found, name, None)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return None
    try:
        return found(fault.text)
    except Exception:  # it needs other arguments
        return None
