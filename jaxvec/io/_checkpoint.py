"""A checkpoint: every leaf of a tree, to go on from bit for bit."""

from collections.abc import Mapping
from typing import Any

from jaxvec.io._files import check_same_leaves, opened, write
from jaxvec.io._leaves import Pathlike, decode, encode
from jaxvec.io._trees import leaves_by_path, map_leaves
from jaxvec.typing import PyTree


def save(path: Pathlike, tree: PyTree, *, metadata: Mapping[str, Any] | None = None) -> None:
    """Writes every leaf of a tree to a file.

    Args:
      path: the file's name, as it is; one of that name is replaced once the new one is whole.
      tree: arrays, numbers and random keys in dicts, lists, tuples, records and dataclasses (their
        static fields are not saved), or any node that JAX knows. None holds nothing.
      metadata: what JSON can hold: settings, steps so far; `read_metadata` returns it.

    Raises:
      TypeError: if a leaf is no array, number or key, or `metadata` is nothing that JSON can hold.
    """
    leaves = {where: encode(where, leaf) for where, leaf in leaves_by_path(tree).items()}
    write(path, "tree", leaves, metadata)


def load(path: Pathlike, like: PyTree) -> PyTree:
    """Reads a file of `save` into a tree of the same structure.

    >>> import tempfile
    >>> import numpy as np
    >>> name = tempfile.mkdtemp() + "/counts.npz"
    >>> save(name, {"steps": 3, "x": np.arange(2)})
    >>> load(name, {"steps": 0, "x": np.zeros(2, int)})
    {'steps': 3, 'x': array([0, 1])}

    Args:
      path: the file's name.
      like: the structure, shapes and dtypes to read, such as a fresh state; the values do not count. A
        leaf is read as what `like` has there: NumPy's or JAX's (with its sharding, and a
        `jax.ShapeDtypeStruct` will do), a number, or a key of the implementation that `like` has.

    Returns:
      A new tree; what is no leaf (static fields) is that of `like`.

    Raises:
      FileFormatError: if the file is damaged, no file of `save`, written by a newer format, or does not
        have the leaves of `like`, with their shapes and dtypes.
    """
    with opened(path, "tree") as found:
        check_same_leaves(path, set(found), set(leaves_by_path(like)))
        return map_leaves(lambda where, leaf: decode(path, where, found(where), leaf), like)


def read_metadata(path: Pathlike) -> dict[str, Any]:
    """Returns what was given as `metadata` when a file was saved.

    Raises:
      FileFormatError: if the file is damaged or not one of jaxvec's.
    """
    with opened(path) as found:
        return found.metadata
