"""Stable-Baselines3 and lit_sb3: jaxvec's VecEnvs pass for theirs, statistics go from one to the other.

    register                            jaxvec's classes become virtual subclasses of theirs
    export_vec_normalize                statistics to a pickle that SB3's VecNormalize.load reads
    import_vec_normalize                settings and statistics out of such a pickle, or of a `.npz`

Registration needs no call: an `isinstance` check of SB3's on an object of jaxvec's registers the classes,
whichever library was imported first. `register` is for those who ask `issubclass` before any object is
there. Nothing here imports SB3 or torch.
"""

from typing import Any

from jaxvec.vec._normalize_files import FilePath, Saved, load_saved, write_for_sb3
from jaxvec.vec._sb3 import register_loaded

__all__ = ["export_vec_normalize", "import_vec_normalize", "register"]


def register() -> bool:
    """Makes jaxvec's classes virtual subclasses of SB3's and lit_sb3's.

    It happens by itself when an object is checked. It can be called again at any time.

    Returns:
      Whether one of the two libraries is loaded; otherwise nothing was done.
    """
    return register_loaded()


def export_vec_normalize(path: FilePath, normalize: Any) -> None:
    """Writes a VecNormalize to a pickle that SB3's `VecNormalize.load` reads.

    Args:
      path: the file, of any name; `VecNormalize.save` does the same for every name but `.npz`.
      normalize: jaxvec's VecNormalize.
    """
    write_for_sb3(path, normalize)


def import_vec_normalize(path: FilePath, *, trust: bool = False) -> Saved:
    """Reads what a VecNormalize knows, SB3's or jaxvec's, without a VecEnv to put it around.

    Args:
      path: the file.
      trust: run whatever a pickle contains. Otherwise only what SB3 writes is read.

    Returns:
      Settings by name, and `obs_rms` and `ret_rms`, whose `moments` are the records that
      `jaxvec.standardize` and `jaxvec.scale_by_std` take.

    Raises:
      FileFormatError: if it is another kind of file, or a pickle contains something else.
    """
    return load_saved(path, trust)
