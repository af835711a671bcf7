"""Where a file may be written: looked at before the work, and taken by name once the file is whole."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


def check_target(where: str, path: str | os.PathLike[str]) -> Path:
    """Finds what would keep a file from being written, before there is anything to write.

    Args:
      where: whom a message is to name, such as "save".
      path: the file's name; it need not exist. A link stands for what it leads to.

    Returns:
      The path behind all links.

    Raises:
      FileNotFoundError: if its folder does not exist.
      IsADirectoryError: if it is a folder.
      FileExistsError: if it is anything else that is no regular file: a pipe, a device. A file in its
        place would cut off whoever uses that.
      PermissionError: if no file can be made in its folder, or the one that is there is not to be changed.
    """
    named, target = os.fspath(path), Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        kind = _KINDS.get(stat.S_IFMT(target.stat().st_mode), "no regular file")
        problem = IsADirectoryError if target.is_dir() else FileExistsError
        raise problem(
            f"{where}: {named!r} is {kind}, but a file is to be written: give the name of a regular "
            "file, or one that does not exist yet."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"{where}: there is no folder {os.path.dirname(named) or str(target.parent)!r} for {named!r}: "
            "make it."
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{where}: no file can be made in the folder {str(target.parent)!r} of {named!r} (it is not "
            "writable): choose another one, or change its permissions."
        )
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(
            f"{where}: {named!r} is there and not writable: choose another name, or change its permissions."
        )
    return target


@contextmanager
def replacing(where: str, path: str | os.PathLike[str]) -> Iterator[Any]:
    """Gives a binary file to write, which takes its name once it is whole and on the disk.

    Args:
      where: whom a message is to name.
      path: the name that it takes; one of that name is replaced then. If the body raises, or the process
        dies, nothing has changed.

    Raises:
      OSError: as `check_target`, or if the disk is full.
    """
    target = check_target(where, path)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name, too, must outlive a power cut
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
