"""Columns of a compiled call that are brought to the host when somebody reads them."""

from typing import Any

import numpy as np

from jaxvec.typing import Array
from jaxvec.vec._packing import Buffers, Layout


class Fetched:
    """The leaves of buffers, brought to the host when the first of them is read.

    Args:
      layout: where they lie.
      buffers: on the device.
    """

    __slots__ = ("_buffers", "_host", "layout")

    def __init__(self, layout: Layout, buffers: Buffers) -> None:
        self.layout = layout
        self._buffers = buffers
        self._host: list[Array] | None = None

    def leaf(self, index: int) -> Array:
        """Returns a leaf as NumPy has it; not to be written to."""
        if self._host is None:
            self._host = [self.layout.placement.fetch(buffer) for buffer in self._buffers]
            self._buffers = ()
        return self.layout.view(self._host, index)


class Column:
    """An array that is on the host once somebody reads it.

    Args:
      source: where it is.
      index: which leaf.
      dtype: of the array that is read; None for the leaf's.
    """

    __slots__ = ("_dtype", "_index", "_source")

    def __init__(self, source: Fetched, index: int, dtype: Any = None) -> None:
        self._source = source
        self._index = index
        self._dtype = dtype

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._source.leaf(self._index), dtype=dtype or self._dtype, copy=copy)

    def cast(self, dtype: Any) -> "Column":
        """Returns the same column in another dtype."""
        return Column(self._source, self._index, dtype)
