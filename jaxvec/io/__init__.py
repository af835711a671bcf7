"""Saving without pickle: a checkpoint (any tree, to go on bit for bit) or its statistics alone.

    save, load                            a checkpoint: everything, the same number of environments
    save_statistics, load_statistics      the moments, for any number of environments, either backend
    read_statistics, read_metadata        what is in a file

A file is a `.npz`: one NumPy array per leaf, and one entry of JSON that says which leaf each is. It is
read into a tree of the same structure (`like`), so that nothing in a file decides what is built; no code
is ever run from it. It gets exactly the name it is given, no suffix is added, and it appears under that
name whole: a crash while saving leaves the file that was there.
"""

from jaxvec.io._checkpoint import load, read_metadata, save
from jaxvec.io._statistics import load_statistics, read_statistics, save_statistics

__all__ = [
    "load",
    "load_statistics",
    "read_metadata",
    "read_statistics",
    "save",
    "save_statistics",
]
