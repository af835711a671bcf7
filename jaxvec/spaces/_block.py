"""One block of shared memory for the columns of a whole space: what SubprocVecEnv keeps them in.

On Linux the block has no name at all: it is a memory file whose descriptor is handed to a process
while that is started, so that there is nothing to clean up, however the processes end. Elsewhere it
is a `multiprocessing.shared_memory` whose name `seal` takes away once every worker has attached.
"""

import mmap
import multiprocessing.context
import multiprocessing.reduction
import os
import sys
import tempfile
import weakref
from collections.abc import Mapping
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_count
from jaxvec.spaces._values import Place, path_of

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register
_UNTRACKED: dict[str, Any] = {"track": False} if sys.version_info >= (3, 13) else {}


class SharedBlock:
    """The columns of a space, and named arrays beside them, in memory that processes share.

    Every process that has the block sees the same bytes; no array is copied or built to read them.
    Give it to a process as an argument when that is started (by fork, forkserver or spawn); it
    cannot be sent to one that runs already. A process that is not forked attaches when it unpickles
    the block. Once all have, call `seal`.

    Nothing remains when all processes are gone: after `close`, after a crash and after a kill (of a
    named block only once it is sealed).

    >>> block = SharedBlock(spaces.Box(0, 1, (3,)), 4, {"reward": ((4,), np.float32)})
    >>> block.values.shape, block.extra["reward"].shape
    ((4, 3), (4,))
    >>> block.close()
    """

    def __init__(
        self,
        space: spaces.Space[Any],
        num_rows: int,
        extra: Mapping[str, tuple[tuple[int, ...], Any]] | None = None,
        *,
        named: bool = sys.platform != "linux",
    ) -> None:
        """Makes a block of zeros.

        Args:
          space: of one row: a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of
            such. A Dict of spaces puts several into one block.
          num_rows: how many rows, `N`.
          extra: further arrays: name -> (shape, dtype).
          named: whether it is shared by name instead of by descriptor.

        Raises:
          ValueError: if `num_rows`, or a length of a shape, is no whole number from 0 on.
          TypeError: if elements of the space have no fixed shape.
          OSError: if there is no room for it (a MemoryError if there cannot be).
        """
        num_rows = check_count("SharedBlock", "num_rows", num_rows, least=0, most=None)
        layout = _Layout()
        self._slots = (
            layout.columns(space, num_rows, None),
            {name: layout.slot(*array) for name, array in (extra or {}).items()},
        )
        self._size = max(layout.size, 1)
        self._handle: Any
        self._release: Any
        memory: Any
        if named:
            memory = SharedMemory(create=True, size=self._size)
            self._handle = memory.name
            self._release = weakref.finalize(self, _unlink, memory, os.getpid())
        else:
            self._handle = _memory_file(self._size)
            memory = mmap.mmap(self._handle, self._size)
            self._release = weakref.finalize(self, os.close, self._handle)
        self._arrays = _views(self._slots, _bytes_of(memory))

    @property
    def values(self) -> Any:
        """The columns: arrays `[N, *D]`, in dicts and tuples as the space has them."""
        return self._open()[0]

    @property
    def extra(self) -> dict[str, Any]:
        """The further arrays, by name."""
        extra: dict[str, Any] = self._open()[1]
        return extra

    def _open(self) -> Any:
        if self._arrays is None:
            raise ValueError("SharedBlock: this block is closed; make a new one.")
        return self._arrays

    def seal(self) -> None:
        """Lets no further process attach, and gives up the name or descriptor kept for that.

        Call it once every worker has attached: the name of a named block outlives a kill until
        then.
        """
        if self._release is not None:
            self._release()

    def close(self) -> None:
        """Seals the block and lets go of it. The memory is freed with the last array of it."""
        self.seal()
        self._arrays = None

    def __enter__(self) -> "SharedBlock":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        """Hands the block to a process that is being started.

        Raises:
          RuntimeError: if no process is being started.
          ValueError: if the block is sealed or closed, or was handed to this process itself.
        """
        multiprocessing.context.assert_spawning(self)
        if self._release is None or not self._release.alive:
            raise ValueError(
                "SharedBlock: no further process can attach to this block, it is sealed or closed or "
                "belongs to another process. Start every process before `seal`."
            )
        handle = self._handle
        if not isinstance(handle, str):
            handle = multiprocessing.reduction.DupFd(handle)
        return self._slots, self._size, handle

    def __setstate__(self, state: Any) -> None:
        """Attaches to the block, in the process that was started."""
        self._slots, self._size, handle = state
        self._handle = self._release = None
        memory: Any
        if isinstance(handle, str):
            memory = SharedMemory(name=handle, **_UNTRACKED)
        else:
            descriptor = handle.detach()
            memory = mmap.mmap(descriptor, self._size)  # keeps a descriptor of its own
            os.close(descriptor)
        self._arrays = _views(self._slots, _bytes_of(memory))


class _Slot(NamedTuple):
    """Where one array lies in the block."""

    offset: int  # bytes from the start, a multiple of `_ALIGNMENT`
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class _Layout:
    """Places arrays one after the other, each on a cache line of its own."""

    def __init__(self) -> None:
        self.size = 0  # bytes

    def slot(self, shape: tuple[int, ...], dtype: Any) -> _Slot:
        """Places one array."""
        lengths = (check_count("SharedBlock", "shape", each, least=0, most=None) for each in shape)
        slot = _Slot(self.size, tuple(lengths), np.dtype(dtype))
        if slot.dtype.hasobject:
            raise TypeError(f"SharedBlock: an array of {slot.dtype} cannot be shared, use numbers.")
        num_bytes = int(np.prod(slot.shape, dtype=object)) * slot.dtype.itemsize
        self.size += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return slot

    def columns(self, space: Any, num_rows: int, place: Place) -> Any:
        """Places the columns of a space; returns their slots in dicts and tuples like the space."""
        if isinstance(space, spaces.Dict):
            return {
                key: self.columns(part, num_rows, (place, key))
                for key, part in space.spaces.items()
            }
        if isinstance(space, spaces.Tuple):
            return tuple(
                self.columns(part, num_rows, (place, index))
                for index, part in enumerate(space.spaces)
            )
        kinds = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
        if not isinstance(space, kinds):
            path = path_of(place)
            raise TypeError(
                f"SharedBlock: {space}{' at ' if path else ''}{path} has no elements of a fixed shape. "
                "Use a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of such."
            )
        shape: Any = space.shape
        return self.slot((num_rows, *shape), space.dtype)


class _NamedBytes:
    """The bytes of a `SharedMemory` as NumPy sees them.

    An array of it keeps this object, and so the mapping, alive. An array of `memory.buf` would not
    keep `memory`, whose finalizer then complains that the buffer is still in use.
    """

    def __init__(self, memory: SharedMemory) -> None:
        self._memory = memory
        data: Any = memory.buf
        self.__array_interface__ = np.frombuffer(data, np.uint8).__array_interface__


def _bytes_of(memory: Any) -> Any:
    """Views a mapping as an array of bytes, uint8 `[size]`, which keeps it alive."""
    if isinstance(memory, SharedMemory):
        return np.asarray(_NamedBytes(memory))
    return np.frombuffer(memory, np.uint8)


def _views(slots: Any, data: Any) -> Any:
    """Builds the arrays of a tree of slots."""
    if isinstance(slots, _Slot):
        num_bytes = int(np.prod(slots.shape, dtype=object)) * slots.dtype.itemsize
        part = data[slots.offset : slots.offset + num_bytes]
        return part.view(slots.dtype).reshape(slots.shape)
    if isinstance(slots, dict):
        return {key: _views(part, data) for key, part in slots.items()}
    return tuple(_views(part, data) for part in slots)


def _memory_file(size: int) -> int:
    """Returns the descriptor of a file without a name, in memory, of `size` zero bytes."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if size > physical:  # the kernel would try, and end processes to get there
        raise MemoryError(f"SharedBlock: {size} bytes are needed, the machine has {physical}.")
    create = getattr(os, "memfd_create", None)  # lacking where Python was built on an old glibc
    if create is not None:
        descriptor: int = create("jaxvec", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile(dir="/dev/shm") as file:
            descriptor = os.dup(file.fileno())
    try:
        os.posix_fallocate(descriptor, 0, size)  # a full /dev/shm shows now, not as a bus error
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _unlink(memory: SharedMemory, owner: int) -> None:
    """Takes the name away, in the process that made it (a fork has this finalizer too)."""
    if os.getpid() == owner:
        memory.unlink()
