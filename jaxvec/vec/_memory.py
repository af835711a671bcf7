"""Arrays that processes share, in memory without a name: nothing is left behind, however they end.

The worker processes tell the spaces, so the memory is made when they run already and its descriptor is
sent to them; `jaxvec.spaces.SharedBlock` is for memory that is made before the processes.
"""

import mmap
import os
import secrets
import socket
import sys
import tempfile
from typing import Any

import numpy as np

from jaxvec.typing import Array
from jaxvec.vec._columns import Layout

_ALIGNMENT = 64  # bytes: workers that write neighbouring arrays do not share a cache line
_HAS_DESCRIPTORS = sys.platform != "win32"


class SharedArrays:
    """Named arrays of zeros that other processes can attach to.

    Args:
      layout: shape and dtype of each.

    Attributes:
      arrays: by name. The memory is freed when the last array and the last process are gone.
    """

    def __init__(self, layout: Layout) -> None:
        size = _size(layout)
        self._tag = f"jaxvec-{secrets.token_hex(8)}"
        self._descriptor: int | None = None
        if _HAS_DESCRIPTORS:
            self._descriptor = _memory_file(size)
        self.arrays = _views(layout, _mapped(self._descriptor, size, self._tag))

    def send(self, connection: socket.socket) -> None:
        """Lets the process at the other end attach, by `attached`."""
        if self._descriptor is not None:
            socket.send_fds(connection, [b"m"], [self._descriptor])
        else:
            connection.sendall(self._tag.encode())

    def seal(self) -> None:
        """Gives up what only attaching needs; call it when every process has been sent to."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def attached(connection: socket.socket, layout: Layout) -> dict[str, Array]:
    """Returns the arrays that the process at the other end sends."""
    descriptor, tag = None, ""
    if _HAS_DESCRIPTORS:
        _, (descriptor, *_), _, _ = socket.recv_fds(connection, 1, 1)
    else:
        tag = connection.recv(len("jaxvec-") + 16, socket.MSG_WAITALL).decode()
    memory = _mapped(descriptor, _size(layout), tag)
    if descriptor is not None:
        os.close(descriptor)
    return _views(layout, memory)


def _mapped(descriptor: int | None, size: int, tag: str) -> Any:
    if descriptor is not None:
        return mmap.mmap(descriptor, size)
    return mmap.mmap(-1, size, tagname=tag)  # type: ignore[call-arg, unused-ignore]


def _memory_file(size: int) -> int:
    """Returns the descriptor of a file without a name, of `size` zero bytes."""
    create = getattr(os, "memfd_create", None)
    if create is not None:
        descriptor: int = create("jaxvec")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        if sys.platform == "linux":
            os.posix_fallocate(descriptor, 0, size)  # lack of memory shows now, not as a bus error
        else:
            os.ftruncate(descriptor, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _num_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _size(layout: Layout) -> int:
    return sum(_padded(_num_bytes(*array)) for array in layout.values()) or _ALIGNMENT


def _views(layout: Layout, memory: Any) -> dict[str, Array]:
    """Builds the arrays; each keeps the memory alive."""
    views, offset = {}, 0
    for name, (shape, dtype) in layout.items():
        count = int(np.prod(shape, dtype=np.int64))
        views[name] = np.frombuffer(memory, dtype, count, offset).reshape(shape)
        offset += _padded(_num_bytes(shape, dtype))
    return views
