"""Pickles of Stable-Baselines3's VecNormalize: written without SB3, and read without running what they say.

A pickle is a program. It is read here by an unpickler that knows a short list of names and refuses any
other; SB3's two classes become plain records.
"""

import io
import os
import pickle
from typing import IO, Any

from jaxvec.errors import FileFormatError

VEC_NORMALIZE = ("stable_baselines3.common.vec_env.vec_normalize", "VecNormalize")
MEAN_STD = ("stable_baselines3.common.running_mean_std", "RunningMeanStd")

RECORDS = {
    VEC_NORMALIZE,
    MEAN_STD,
    ("lit_sb3.vec_env.vec_normalize", "VecNormalize"),
    ("lit_sb3.core.running_mean_std", "RunningMeanStd"),
}
"""Classes that are read as `Record`."""

ALLOWED = {
    ("builtins", "frozenset"),
    ("builtins", "set"),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    *(("numpy", name) for name in ("bool", "bool_", "float16", "float32", "float64")),
    *(("numpy", f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *((f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")),
    *((f"numpy.{core}.multiarray", "scalar") for core in ("core", "_core")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    ("numpy.random._pickle", "__generator_ctor"),
    ("numpy.random._pickle", "__bit_generator_ctor"),
    ("numpy.random._pcg64", "PCG64"),
    ("numpy.random.bit_generator", "__pyx_unpickle_SeedSequence"),
    ("numpy.random.bit_generator", "SeedSequence"),
    *(
        (f"gymnasium.spaces.{name.lower()}", name)
        for name in ("Box", "Discrete", "Dict", "Tuple", "Text", "Graph", "Sequence")
    ),
    ("gymnasium.spaces.multi_discrete", "MultiDiscrete"),
    ("gymnasium.spaces.multi_binary", "MultiBinary"),
    ("jaxvec.vec._normalize", "VecNormalize"),
    ("jaxvec.vec._mean_std", "RunningMeanStd"),
    ("jaxvec.vec._mean_std", "_holding"),
    ("jaxvec.core._moments", "RunningMoments"),
}
"""Names that a pickle may use: arrays, spaces, and jaxvec's own records."""


class Record:
    """Stands for an object of a class of SB3's: its attributes, and none of its methods."""

    sb3_class = MEAN_STD


class NormalizeRecord(Record):
    """Stands for a VecNormalize."""

    sb3_class = VEC_NORMALIZE


class _Pickler(pickle._Pickler):
    """Writes records under the names of SB3's classes, which need not be importable."""

    def save_global(self: Any, obj: Any, name: str | None = None) -> None:
        if obj in (Record, NormalizeRecord):
            for word in obj.sb3_class:
                self.save(word)
            self.write(pickle.STACK_GLOBAL)
            self.memoize(obj)
        else:
            super().save_global(obj, name)  # type: ignore[misc]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], name: str) -> None:
        super().__init__(file)
        self._name = name

    def find_class(self, module_name: str, global_name: str) -> Any:
        """Returns what a name in the pickle stands for, if it is on the list."""
        if (module_name, global_name) in RECORDS:
            return Record if global_name == "RunningMeanStd" else NormalizeRecord
        if (module_name, global_name) not in ALLOWED:
            raise FileFormatError(
                f"{self._name}: the pickle uses {module_name}.{global_name}, which no statistics of "
                "VecNormalize need, and a pickle can run any code. If you trust where it comes from, pass "
                "trust=True; better, save it as .npz there."
            )
        return super().find_class(module_name, global_name)


def write_pickle(state: dict[str, Any]) -> bytes:
    """Returns a pickle that SB3's VecNormalize comes out of.

    Args:
      state: its attributes; `Record`s in it become SB3's RunningMeanStd.
    """
    record, file = NormalizeRecord(), io.BytesIO()
    vars(record).update(state)
    _Pickler(file, protocol=4).dump(record)
    return file.getvalue()


def read_pickle(path: str | os.PathLike[str], trust: bool) -> Any:
    """Returns what is in a pickle: a `NormalizeRecord`, or what jaxvec's VecNormalize was pickled as.

    Args:
      path: the file.
      trust: run whatever it contains.

    Raises:
      FileFormatError: if it is no pickle, or uses a name that is not on the list.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        try:
            return pickle.load(file) if trust else _Unpickler(file, name).load()
        except FileFormatError:
            raise
        except Exception as error:
            raise FileFormatError(
                f"{name} cannot be read as a pickle of VecNormalize ({type(error).__name__}: {error}). "
                "Pass a file of VecNormalize.save, jaxvec's or SB3's."
            ) from error
