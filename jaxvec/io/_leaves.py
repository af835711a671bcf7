"""One leaf as plain numbers, and back as whatever stands in its place in a tree."""

import os
import sys
from typing import Any

import numpy as np

from jaxvec.core._xp import is_key
from jaxvec.errors import FileFormatError
from jaxvec.io._trees import named
from jaxvec.typing import Array

Pathlike = str | os.PathLike[str]
Leaf = tuple[np.ndarray[Any, Any], str]  # its numbers, and what they are (see `encode`)

_REGISTERED = 2  # `dtype.isbuiltin` of the dtypes that other libraries add to NumPy's


def encode(where: str, leaf: Any) -> Leaf:
    """Returns a leaf's numbers, and what they are: "array", "key:<implementation>" or a dtype.

    A dtype is named where NumPy's format has none (bfloat16): its bits are kept as whole numbers.
    """
    if is_key(leaf):
        import jax

        return np.asarray(jax.random.key_data(leaf)), f"key:{jax.random.key_impl(leaf)}"
    if not (isinstance(leaf, np.ndarray | np.generic | int | float) or _is_jax(leaf)):
        raise _no_leaf("save", where, leaf)
    array = np.asarray(leaf)
    if array.dtype.hasobject:
        raise TypeError(
            f"save: {named(where)} has the dtype object, which only a pickle could hold: give it a "
            "dtype of numbers."
        )
    if array.dtype.isbuiltin == _REGISTERED:
        return array.view(f"u{array.dtype.itemsize}"), array.dtype.name
    return array, "array"


def decode(path: Pathlike, where: str, saved: Leaf, like: Any) -> Any:
    """Returns a saved leaf as what `like` is, after a look that it is one of its kind."""
    array: Any = saved[0]
    kind = saved[1]
    if is_key(like):
        import jax

        # The implementation is that of `like`, not one looked up by the name in the file.
        impl = jax.random.key_impl(jax.numpy.empty((), like.dtype))
        if kind != f"key:{impl}":
            raise _misfit(path, where, kind, f"key:{impl}")
        words = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), like.dtype))
        if array.dtype != words.dtype or array.shape[array.ndim - words.ndim :] != words.shape:
            raise _misfit(path, where, _described(array), f"words of {impl}")
        array = jax.random.wrap_key_data(array, impl=impl)
    elif kind not in ("array", str(getattr(like, "dtype", None))):
        raise _misfit(path, where, kind, _described(like))
    elif kind != "array":
        if array.dtype.itemsize != like.dtype.itemsize:
            raise _misfit(path, where, _described(array), f"the bits of {like.dtype}")
        array = array.view(like.dtype)
    if isinstance(like, bool | int | float) and not isinstance(like, np.generic):
        kinds = {bool: "b", int: "iu", float: "fiu"}[type(like)]
        if array.shape != () or array.dtype.kind not in kinds:
            raise _misfit(path, where, _described(array), f"a Python {type(like).__name__}")
        return type(like)(array)
    if not (isinstance(like, np.ndarray | np.generic) or _is_jax(like)):
        raise _no_leaf("load", where, like)
    if array.shape != like.shape or array.dtype != like.dtype:
        raise _misfit(path, where, _described(array), _described(like))
    if isinstance(like, np.ndarray):
        return array
    return array[()] if isinstance(like, np.generic) else _on_device(array, like)


def _on_device(array: Any, like: Any) -> Array:
    """Puts an array where `like` is, if that place was chosen."""
    import jax

    chosen = like.sharding is not None and getattr(like, "committed", True)
    if chosen:
        return jax.device_put(array, like.sharding)
    return array if isinstance(array, jax.Array) else jax.numpy.array(array)


def _is_jax(leaf: Any) -> bool:
    """Tells whether a leaf is JAX's; if JAX was never imported, there is none."""
    if "jax" not in sys.modules:
        return False
    import jax

    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)


def _no_leaf(where_from: str, where: str, leaf: Any) -> TypeError:
    return TypeError(
        f"{where_from}: {named(where)} is {leaf!r}, a {type(leaf).__name__}, but a leaf must be an "
        "array, a number or a random key. Make it a static field, or hand it over as metadata."
    )


def _described(leaf: Any) -> str:
    dtype = getattr(leaf, "dtype", type(leaf).__name__)
    return f"{dtype} {list(getattr(leaf, 'shape', ()))}"


def _misfit(path: Pathlike, where: str, got: str, need: str) -> FileFormatError:
    return FileFormatError(
        f"{os.fspath(path)}: {named(where)} is {got} in the file, but the tree to load into needs "
        f"{need}. Was it saved with other options, another number of environments or another backend?"
    )
