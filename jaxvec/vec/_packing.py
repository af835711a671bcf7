"""A tree of arrays in few buffers: what a compiled call takes and returns costs by the array.

One array in or out of a compiled call takes a microsecond or more, as much as a small environment's whole
arithmetic, and a state has dozens. Small arrays therefore lie end to end in one buffer for each size of
element; large ones, which would be copied for nothing, stay by themselves.
"""

from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxvec.core._xp import is_key
from jaxvec.typing import Array, PyTree
from jaxvec.vec._placement import ONE_DEVICE, Placement

LARGE = 16384
"""Bytes from which on an array stays by itself: where a copy costs what handing an array over costs."""

Buffers = tuple[Array, ...]


class Slot(NamedTuple):
    """Where one leaf lies."""

    buffer: int  # which one
    start: int  # elements
    stop: int
    shape: tuple[int, ...]  # of the leaf; of its words, where it is typed keys
    dtype: np.dtype[Any]
    impl: Any  # of typed keys; None for numbers
    alone: bool  # whether the buffer is the leaf itself
    spread: bool  # whether it is the rows of several devices


class Layout:
    """How the leaves of a tree lie in buffers.

    Args:
      avals: a tree of arrays, typed keys, or `jax.ShapeDtypeStruct`.
      large: bytes from which on a leaf gets a buffer of its own.
      placement: where the buffers lie.
      spread: for each leaf, whether it has rows to spread over devices; None for what its shape says. Such a
        leaf gets a buffer of its own.

    Attributes:
      slots: one for each leaf.
      structure: of the tree.
      avals: the tree with shape and dtype in place of each leaf.
      key: equal for equal layouts.
    """

    def __init__(
        self,
        avals: PyTree,
        large: int = LARGE,
        placement: Placement = ONE_DEVICE,
        spread: list[bool] | None = None,
    ) -> None:
        leaves, structure = jax.tree.flatten(avals)
        self.structure: Any = structure
        self.avals = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), avals)
        impls = [_impl_of(leaf) if is_key(leaf) else None for leaf in leaves]
        words = [
            leaf if impl is None else jax.eval_shape(jax.random.key_data, leaf)
            for leaf, impl in zip(leaves, impls, strict=True)
        ]
        self.placement = placement
        if spread is None:
            spread = [placement.has_rows(leaf) for leaf in leaves]
        alone = [
            rows or _stays_alone(leaf, large) for leaf, rows in zip(words, spread, strict=True)
        ]
        sizes = [_word_size(leaf.dtype) for leaf in words]
        # First the shared buffers, one for each size of element, then the large leaves in their order.
        self._shared = sorted({size for size, own in zip(sizes, alone, strict=True) if not own})
        fill, own_buffers = dict.fromkeys(self._shared, 0), len(self._shared)
        self.slots: list[Slot] = []
        for leaf, impl, own, size, rows in zip(words, impls, alone, sizes, spread, strict=True):
            start = 0 if own else fill[size]
            stop = start + leaf.size
            buffer = own_buffers if own else self._shared.index(size)
            shape, dtype = tuple(leaf.shape), np.dtype(leaf.dtype)
            self.slots.append(Slot(buffer, start, stop, shape, dtype, impl, own, rows))
            if own:
                own_buffers += 1
            else:
                fill[size] = stop
        self.key = (structure, tuple(self.slots))
        self._views = [
            (slot.buffer, slot.shape, slot.dtype, None)
            if slot.alone
            else (slot.buffer, slot.shape, slot.dtype, slot.start * slot.dtype.itemsize)
            for slot in self.slots
        ]

    def pack_leaves(self, leaves: list[Array]) -> Buffers:
        """Lays leaves, in the order of the tree, end to end; for use in a compiled function."""
        shared: list[list[Array]] = [[] for _ in self._shared]
        large = []
        for leaf, slot in zip(leaves, self.slots, strict=True):
            if slot.impl is not None:
                leaf = jax.random.key_data(leaf)
            if slot.alone:
                large.append(leaf)
            else:
                shared[slot.buffer].append(_as_words(leaf).reshape(-1))
        return (*(jnp.concatenate(parts) for parts in shared), *large)

    def unpack(self, buffers: Buffers) -> PyTree:
        """Takes a tree out of its buffers; for use in a compiled function."""
        leaves = []
        for slot in self.slots:
            leaf = buffers[slot.buffer]
            if not slot.alone:
                leaf = _from_words(leaf[slot.start : slot.stop].reshape(slot.shape), slot.dtype)
            leaves.append(leaf if slot.impl is None else _keys_of(leaf, slot.impl))
        return jax.tree.unflatten(self.structure, leaves)

    def view(self, host: Any, index: int) -> Array:
        """Returns a leaf of buffers that are NumPy arrays: a view, or a copy where it is bool.

        Args:
          host: the buffers, by number.
          index: which leaf.
        """
        slot = self.slots[index]
        buffer = host[slot.buffer]
        if slot.alone:
            return buffer
        if slot.dtype == np.bool_:
            return buffer[slot.start : slot.stop].reshape(slot.shape) != 0
        return np.ndarray(slot.shape, slot.dtype, buffer, slot.start * slot.dtype.itemsize)

    def views(self, host: list[Array]) -> list[Array]:
        """Returns views of all leaves of buffers that are NumPy arrays; none of them may be bool."""
        return [
            host[buffer] if offset is None else np.ndarray(shape, dtype, host[buffer], offset)
            for buffer, shape, dtype, offset in self._views
        ]

    def read(self, buffers: Buffers) -> PyTree:
        """Returns a tree of arrays on the device that share nothing with the buffers."""
        host = [self.placement.fetch(buffer) for buffer in buffers]
        leaves = []
        for index, slot in enumerate(self.slots):
            leaf = jnp.asarray(np.array(self.view(host, index)))
            leaves.append(leaf if slot.impl is None else _keys_of(leaf, slot.impl))
        return jax.tree.unflatten(self.structure, leaves)

    def write(self, tree: PyTree) -> Buffers:
        """Returns buffers that hold a tree and share nothing with it.

        Raises:
          ValueError: if it has another structure, or a leaf another shape.
        """
        shared: list[list[Array]] = [[] for _ in self._shared]
        large = []
        for leaf, slot in zip(self._leaves(tree), self.slots, strict=True):
            words = jax.random.key_data(leaf) if slot.impl is not None else leaf
            words = np.array(words, slot.dtype)
            shape = self.shape_here(slot)
            if words.shape != shape:
                raise ValueError(
                    f"state: a leaf of shape {words.shape} came where one of {shape} is."
                )
            if slot.alone:
                large.append(self.placement.put(words, slot.spread))
                continue
            shared[slot.buffer].append(_host_words(words))
        return (*(self.placement.put(np.concatenate(parts)) for parts in shared), *large)

    def shape_here(self, slot: Slot) -> tuple[int, ...]:
        """Returns the shape of what this process sees of a leaf."""
        return self.placement.shape_here(slot.shape) if slot.spread else slot.shape

    def shardings(self) -> tuple[Any, ...]:
        """Returns how each buffer lies on a mesh."""
        spread = [slot.spread for slot in self.slots if slot.alone]
        return tuple(map(self.placement.sharding, [False] * len(self._shared) + spread))

    def _leaves(self, tree: PyTree) -> list[Array]:
        leaves: list[Array]
        structure: Any
        leaves, structure = jax.tree.flatten(tree)
        if structure != self.structure:
            raise ValueError(
                f"state: the structure {structure} came where {self.structure} is needed. Start from "
                "the state as it is read, and replace leaves."
            )
        return leaves


class Packed:
    """A tree of arrays that is kept in buffers, which a compiled call may be given for good.

    Args:
      layout: where its leaves lie.
      buffers: the arrays; whoever puts others in their place keeps the layout.
    """

    __slots__ = ("buffers", "layout")

    def __init__(self, layout: Layout, buffers: Buffers = ()) -> None:
        self.layout = layout
        self.buffers = buffers

    @classmethod
    def holding(
        cls, tree: PyTree, placement: Placement = ONE_DEVICE, whole: PyTree | None = None
    ) -> Self:
        """Returns one that holds a copy of a tree, whose structure, shapes and dtypes stay.

        What is int64 or float64 gets the dtype that steps on the device will give it.

        Args:
          tree: as this process sees it.
          placement: where it is to lie.
          whole: the tree of all processes; shapes suffice. None: it is the same.
        """
        whole, spread = tree if whole is None else whole, None
        if placement.is_partial:
            pairs = zip(*map(jax.tree.leaves, (tree, whole)), strict=True)
            spread = [np.shape(mine) != np.shape(of_all) for mine, of_all in pairs]
        avals = jax.tree.map(_as_device_has_it, whole)
        layout = Layout(avals, placement=placement, spread=spread)
        return cls(layout, layout.write(tree))

    def read(self) -> PyTree:
        """Returns the tree; a copy, which no step changes."""
        return self.layout.read(self.buffers)

    def write(self, tree: PyTree) -> None:
        """Holds another tree, of which it takes a copy."""
        self.buffers = self.layout.write(tree)

    def places(self) -> PyTree:
        """Returns the tree with the number of each leaf in its place."""
        return jax.tree.unflatten(self.layout.structure, range(len(self.layout.slots)))

    def leaf(self, index: int, row: int | None = None) -> Array:
        """Returns one leaf, or one row of it, as NumPy has it (typed keys as words); a copy."""
        slot = self.layout.slots[index]
        buffer = self.buffers[slot.buffer]
        if slot.alone and row is not None:
            return self.layout.placement.row(buffer, row)
        leaf = self.layout.view({slot.buffer: self.layout.placement.fetch(buffer)}, index)
        return np.array(leaf if row is None else leaf[row])

    def put(self, index: int, value: Array) -> None:
        """Puts another value in place of one leaf; nothing is compiled for it.

        Raises:
          ValueError: if it has another shape.
        """
        slot = self.layout.slots[index]
        value = np.array(value, slot.dtype)
        shape, placement = self.layout.shape_here(slot), self.layout.placement
        if value.shape != shape:
            raise ValueError(f"A value of shape {value.shape} came where one of {shape} is.")
        if not slot.alone:
            buffer = np.array(placement.fetch(self.buffers[slot.buffer]))
            buffer[slot.start : slot.stop] = _host_words(value)
            value = buffer
        buffers = list(self.buffers)
        buffers[slot.buffer] = placement.put(value, slot.spread)
        self.buffers = tuple(buffers)


def _as_device_has_it(leaf: Array) -> Any:
    """Returns shape and dtype of a leaf on the device: int32 for int64, as long as x64 is not enabled."""
    if is_key(leaf):
        return leaf
    return jax.ShapeDtypeStruct(np.shape(leaf), jax.dtypes.canonicalize_dtype(leaf.dtype))


def _impl_of(keys: Any) -> Any:
    """Returns the implementation of typed keys of which no more than shape and dtype may be known."""
    found: list[Any] = []
    jax.eval_shape(lambda traced: found.append(jax.random.key_impl(traced)), keys)
    return found[0]


def _stays_alone(leaf: Any, large: int) -> bool:
    """Tells whether a leaf gets a buffer of its own: it is large, or its elements are no plain words."""
    plain = leaf.dtype.kind in "biuf" or leaf.dtype == jnp.bfloat16
    return not plain or bool(leaf.size * leaf.dtype.itemsize >= large)


def _word_size(dtype: Any) -> int:
    """Returns the bytes of the word that an element is kept in: flags lie among the numbers."""
    return 4 if dtype == np.bool_ else int(np.dtype(dtype).itemsize)


def _as_words(leaf: Array) -> Array:
    if leaf.dtype == np.bool_:
        return leaf.astype(np.uint32)
    return jax.lax.bitcast_convert_type(leaf, f"uint{8 * leaf.dtype.itemsize}")


def _host_words(leaf: Array) -> Array:
    words = leaf.astype(np.uint32) if leaf.dtype == np.bool_ else leaf
    return words.reshape(-1).view(f"uint{8 * words.dtype.itemsize}")


def _from_words(words: Array, dtype: np.dtype[Any]) -> Array:
    return words != 0 if dtype == np.bool_ else jax.lax.bitcast_convert_type(words, dtype)


def _keys_of(words: Array, impl: Any) -> Array:
    return jax.random.wrap_key_data(words, impl=impl)
