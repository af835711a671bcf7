"""The file: a `.npz` of leaves with one entry of JSON, written whole or not at all, read without pickle."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from jaxvec._version import __version__
from jaxvec.errors import FileFormatError
from jaxvec.io._leaves import Leaf, Pathlike
from jaxvec.io._targets import replacing
from jaxvec.io._trees import named

FORMAT = "jaxvec"
FORMAT_NUMBER = 1

_HEADER = "header"


class _Found:
    """An open file: iterates over the places of its leaves; `found(place)` reads one."""

    def __init__(self, path: Pathlike, arrays: Any) -> None:
        self._path, self._arrays = os.fspath(path), arrays
        if _HEADER not in arrays:
            raise FileFormatError(
                f"{self._path} was not saved by jaxvec: it holds the arrays {arrays.files[:8]}."
            )
        try:
            header = json.loads(self._read(_HEADER).tobytes())
            if header["format"] != FORMAT:
                raise ValueError(f"format {header['format']!r}")
            self._check_number(header["format_number"], header["jaxvec_version"])
            self.kind: str = header["kind"]
            self.metadata: dict[str, Any] = header["metadata"]
            self._kinds: dict[str, tuple[str, str]] = {
                each["path"]: (f"leaf_{i}", each["kind"]) for i, each in enumerate(header["leaves"])
            }
        except FileFormatError:
            raise
        except Exception as error:  # a file may say anything
            raise FileFormatError(
                f"{self._path} was not saved by jaxvec: its header is another's ({error})."
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __call__(self, place: str) -> Leaf:
        entry, kind = self._kinds[place]
        return self._read(entry), kind

    def _check_number(self, number: int, version: str) -> None:
        if number > FORMAT_NUMBER:
            raise FileFormatError(
                f"{self._path} was saved by jaxvec {version} in format {number}; this jaxvec, "
                f"{__version__}, reads up to format {FORMAT_NUMBER}: upgrade it."
            )

    def _read(self, entry: str) -> np.ndarray[Any, Any]:
        with _damage_named(self._path):
            array: np.ndarray[Any, Any] = self._arrays[entry]
            return array


@contextmanager
def opened(path: Pathlike, kind: str | None = None) -> Iterator[_Found]:
    """Opens a file of `save` (kind "tree") or `save_statistics` (kind "statistics").

    Raises:
      OSError: if it cannot be opened.
      FileFormatError: if it is damaged, or of another kind.
    """
    if Path(path).exists() and not Path(path).is_file():
        # To open a pipe would wait for ever.
        raise FileFormatError(
            f"{os.fspath(path)} is no regular file: give the name of a saved one."
        )
    with Path(path).open("rb") as file:
        start = file.read(4)
        if start != b"PK\x03\x04":
            what = f"starts with {start!r}" if start else "is empty"
            pickle = " It looks like a pickle, which could run any code: those are not read here."
            raise FileFormatError(
                f"{os.fspath(path)} is no .npz file: it {what}."
                + pickle * start.startswith(b"\x80")
            )
        file.seek(0)
        with _damage_named(path):
            arrays = np.load(file, allow_pickle=False)
        with arrays:
            found = _Found(path, arrays)
            if kind not in (None, found.kind):
                reader = "load_statistics" if found.kind == "statistics" else "load"
                words = {"statistics": "statistics", "tree": "a tree of `save`"}
                raise FileFormatError(
                    f"{os.fspath(path)} holds {words.get(found.kind, found.kind)}, not {words[str(kind)]}: "
                    f"read it by {reader}."
                )
            yield found


@contextmanager
def _damage_named(path: Pathlike) -> Iterator[None]:
    """Turns what NumPy and zipfile say of a broken file into one error that names it."""
    try:
        yield
    except Exception as error:  # a flipped bit may ask for encryption, or for terabytes of memory
        told = " ".join(str(error).split()).removesuffix(".") or type(error).__name__
        raise FileFormatError(
            f"{os.fspath(path)} is damaged or was cut off: {told}. Take an earlier file."
        ) from error


def write(
    path: Pathlike, kind: str, leaves: dict[str, Leaf], metadata: Mapping[str, Any] | None
) -> None:
    """Writes a file of leaves by their places; `kind` says what reads it."""
    header = {
        "format": FORMAT,
        "format_number": FORMAT_NUMBER,
        "jaxvec_version": __version__,
        "kind": kind,
        "leaves": [{"path": path, "kind": what} for path, (_, what) in leaves.items()],
        "metadata": dict(metadata or {}),
    }
    try:
        text = json.dumps(header)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"save({os.fspath(path)!r}): metadata={metadata!r} is nothing that JSON can hold: {error}. "
            "Give plain numbers, strings, lists and dicts."
        ) from error
    arrays: dict[str, Any] = {_HEADER: np.frombuffer(text.encode(), np.uint8)}
    arrays |= {f"leaf_{i}": array for i, (array, _) in enumerate(leaves.values())}
    with replacing("save", path) as file:
        np.savez(file, **arrays)


def check_same_leaves(path: Pathlike, have: set[str], need: set[str]) -> None:
    """Refuses a file whose leaves are not those that are needed.

    Raises:
      FileFormatError: if one is missing or too much.
    """
    missing, extra = sorted(need - have), sorted(have - need)
    if missing or extra:
        raise FileFormatError(
            f"{os.fspath(path)} does not fit the tree to load into: it was saved from other layers, or "
            f"another environment. Only the file has {_listed(extra)}; only the tree has "
            f"{_listed(missing)}. Build the tree as that of the file was built: a layer goes by its place in "
            "a `chain` (`[0]`), by its name in a `named_chain` (`['name']`), by neither if it is alone."
        )


def _listed(places: list[str], most: int = 4) -> str:
    names = ", ".join(named(place) for place in places[:most]) or "nothing"
    return f"{names} and {len(places) - most} more" if len(places) > most else names
