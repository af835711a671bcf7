"""One compiled function of a run, and what a call of it shows.

A run's states come and go as few buffers (`_packing.py`), one set for each owner: the environments, and every
layer. What a call shows comes in two parts. The first is what every caller reads: observations, rewards,
dones. The second is what few read, infos and last observations; it stays on the device until somebody does.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces
from jax.extend.core import jaxpr_as_fun

from jaxvec.core._transform import VecSpec
from jaxvec.core._xp import space_tree
from jaxvec.typing import Array, Obs, PyTree
from jaxvec.vec._fetched import Column, Fetched
from jaxvec.vec._packing import LARGE, Buffers, Layout
from jaxvec.vec._placement import Placement

Parts = tuple[Buffers, ...]
"""The packed states of a run, the environments' first, then those of the layers from the inside out."""

Hand = Callable[[Array], Any]
"""Makes an array on the device what the caller gets."""


class Shown(NamedTuple):
    """What a call shows, while it is traced."""

    obs: list[Array]  # leaves [N, *D], in the order of the space
    reward: Array  # float32 [N]
    done: Array  # bool [N]
    truncated: Array  # bool [N]
    final_obs: list[Array]  # leaves [N, *D]
    info: dict[str, PyTree]
    reset_info: dict[str, PyTree]
    levels: tuple[dict[str, PyTree], ...]  # what each layer's hooks read


class Call:
    """One compiled function, from packed states to packed states and what is shown.

    Args:
      function: `(trees, *arguments) -> (trees, shown)`.
      layouts: of the trees that it takes.
      arguments: examples of the others.
      spec: of the outermost layer.
      hand: what makes an array what the caller gets, for callers on the device. None for NumPy's: then what
        every caller reads lies in one buffer.
      placement: where its arrays lie.

    Attributes:
      layouts: of the trees that it returns.
      every: the layout of what every caller reads: observations, reward, and flags or dones.
      few: the layout of the rest.
      shown: what is shown, with the number of its array in `few` in place of each.
      dtypes: of the space's parts, if JAX has others: int32 for int64, as long as x64 is not enabled.
    """

    def __init__(
        self,
        function: Callable[..., tuple[list[PyTree], Shown]],
        layouts: list[Layout],
        arguments: tuple[Any, ...],
        spec: VecSpec,
        hand: Hand | None,
        placement: Placement,
    ) -> None:
        self.num_envs = len(placement.row_numbers(spec.num_envs))
        self.space, self.hand, self.copy = spec.observation_space, hand, placement.copy
        self.dtypes = None if hand else _other_dtypes(self.space)
        self.is_plain = not isinstance(self.space, spaces.Dict | spaces.Tuple)
        trees = [layout.avals for layout in layouts]
        # Traced once; one array in several places is then one name.
        traced, (states, shown) = jax.make_jaxpr(function, return_shape=True)(trees, *arguments)
        self.layouts = _laid_as(layouts, states, placement)
        _check_stands_still(layouts, self.layouts)
        ends = np.cumsum([len(layout.slots) for layout in self.layouts]).tolist()
        first = ends[-1]
        leaves: list[Any] = jax.tree.leaves(shown)
        structure: Any = jax.tree.structure(shown)
        where: Shown = jax.tree.unflatten(structure, range(len(leaves)))
        everybody = [*where.obs, where.reward, where.done]
        later = where._replace(obs=[], reward=None, done=None)
        if hand is None:
            later = later._replace(truncated=None)
        names = [id(name) for name in traced.jaxpr.outvars[first:]]
        wanted: list[int] = jax.tree.leaves(later)
        sources = list({names[place]: place for place in reversed(wanted)}.values())[::-1]
        at = {names[place]: number for number, place in enumerate(sources)}
        self.few = Layout([leaves[place] for place in sources], placement=placement)
        self.shown: Shown = jax.tree.map(lambda place: at[names[place]], later)
        avals = [leaves[place] for place in everybody]
        if hand is None:
            avals[-1] = jax.ShapeDtypeStruct(avals[-1].shape, np.uint32)
        self.every = Layout(avals, LARGE if hand is None else 0, placement)
        run = jaxpr_as_fun(traced)

        def packed(parts: Parts, *arguments: Any) -> tuple[Parts, Buffers, Buffers]:
            trees = [layout.unpack(part) for layout, part in zip(layouts, parts, strict=True)]
            leaves = run(*jax.tree.leaves((trees, *arguments)))
            new = tuple(
                layout.pack_leaves(leaves[end - len(layout.slots) : end])
                for layout, end in zip(self.layouts, ends, strict=True)
            )
            leaves = leaves[first:]
            every = [leaves[place] for place in everybody]
            if hand is None:
                every[-1] = _flags(every[-1], leaves[where.truncated])
            few = [leaves[source] for source in sources]
            return new, self.every.pack_leaves(every), self.few.pack_leaves(few)

        options = placement.jit_options(
            lambda: (
                tuple(layout.shardings() for layout in self.layouts),
                self.every.shardings(),
                self.few.shardings(),
            )
        )
        self._run = jax.jit(packed, donate_argnums=0, **options)

    def __call__(self, parts: Parts, *arguments: Any) -> tuple[Parts, "Results"]:
        parts, every, few = self._run(parts, *arguments)
        return parts, Results(self, every, few)


class Results:
    """What a call has shown; it may still be under way on the device.

    Args:
      call: which one.
      every: the buffers of what every caller reads.
      few: the buffers of the rest.
    """

    __slots__ = ("_call", "_columns", "_every", "_few", "_flags")

    def __init__(self, call: Call, every: Buffers, few: Buffers) -> None:
        self._call = call
        self._every = every
        self._few = few
        self._columns: list[Column] | None = None
        self._flags: tuple[Array, Array] | None = None

    @property
    def num_envs(self) -> int:
        """N."""
        return self._call.num_envs

    @property
    def has_reset_info(self) -> bool:
        """Whether there is info of resets."""
        return bool(self._call.shown.reset_info)

    def handed_out(self, keep_flags: bool = False) -> tuple[Obs, Array, Array]:
        """Returns observations, rewards and dones for the caller to keep.

        NumPy arrays are copies that nobody else holds; this waits for them.

        Args:
          keep_flags: whether `flags` is asked for next: it then has them from here.
        """
        call = self._call
        if call.hand is not None:
            *leaves, reward, done = map(call.hand, self._every)
            return rebuilt(call.space, iter(leaves)), reward, done
        # One copy of a buffer serves all that lies in it: what SB3 writes into rewards must be writable.
        host = [call.copy(buffer) for buffer in self._every]
        *leaves, reward, flags = call.every.views(host)
        if keep_flags:
            self._flags = _byte(flags, 0).copy(), _byte(flags, 1).copy()
        if call.is_plain and call.dtypes is None:
            return leaves[0], reward, _byte(flags, 0)
        if call.dtypes is not None:
            pairs = zip(leaves, call.dtypes, strict=True)
            leaves = [leaf.astype(dtype, copy=False) for leaf, dtype in pairs]
        return rebuilt(call.space, iter(leaves)), reward, _byte(flags, 0)

    def flags(self) -> tuple[Array, Array]:
        """Waits, and returns dones and which were truncated, NumPy bool `[N]`; not to be written to."""
        if self._flags is not None:
            return self._flags
        call = self._call
        where, fetch = call.every.slots[-1].buffer, call.every.placement.fetch
        flags = call.every.view({where: fetch(self._every[where])}, -1)
        if call.hand is not None:
            return flags, np.asarray(self._all_columns()[call.shown.truncated])
        return _byte(flags, 0), _byte(flags, 1)

    def final_obs(self) -> Obs:
        """Returns the last observations, as columns that are fetched when they are read."""
        places = self._call.shown.final_obs
        if not places:
            return None
        columns = iter([self._all_columns()[place] for place in places])
        if self._call.dtypes is not None:
            pairs = zip(columns, self._call.dtypes, strict=True)
            columns = iter([column.cast(dtype) for column, dtype in pairs])
        return rebuilt(self._call.space, columns)

    def info(self) -> dict[str, PyTree]:
        """Returns the info of the outermost layer."""
        return self._filled(self._call.shown.info)

    def reset_info(self) -> dict[str, PyTree]:
        """Returns the info of the resets, to be read where an episode opens."""
        return self._filled(self._call.shown.reset_info)

    def level(self, place: int) -> dict[str, PyTree]:
        """Returns the fields of a timestep that the hooks of a layer read."""
        return self._filled(self._call.shown.levels[place])

    def is_outermost(self, place: int, key: str) -> bool:
        """Tells whether an entry of a layer's info is that of the outermost one, not replaced since."""
        outermost, own = self._call.shown.info, self._call.shown.levels[place]["info"]
        return bool(own.get(key) == outermost.get(key))

    def _filled(self, places: dict[str, PyTree]) -> dict[str, PyTree]:
        """Returns a tree with the column in place of each number."""
        if not places:
            return {}
        filled: dict[str, PyTree] = _columns_at(places, self._all_columns())
        return filled

    def _all_columns(self) -> list[Column]:
        if self._columns is None:
            source = Fetched(self._call.few, self._few)
            self._few = ()
            self._columns = [Column(source, place) for place in range(len(self._call.few.slots))]
        return self._columns


def _columns_at(places: PyTree, columns: list[Column]) -> PyTree:
    """Returns a tree with a column in place of each number; plain recursion is a tenth of `jax.tree`."""
    if type(places) is int:
        return columns[places]
    if type(places) is dict:
        return {key: _columns_at(each, columns) for key, each in places.items()}
    return jax.tree.map(lambda place: columns[place], places)


def in_order(space: spaces.Space[Any], obs: Obs) -> Iterator[Array]:
    """Yields the arrays of an observation in the order of its space."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from in_order(part, obs[key])
    elif isinstance(space, spaces.Tuple):
        for part, branch in zip(space.spaces, obs, strict=True):
            yield from in_order(part, branch)
    else:
        yield obs


def rebuilt(space: spaces.Space[Any], leaves: Iterator[Any]) -> Obs:
    """Puts an observation together of its arrays: the inverse of `in_order`."""
    if isinstance(space, spaces.Dict):
        return {key: rebuilt(part, leaves) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rebuilt(part, leaves) for part in space.spaces)
    return next(leaves)


def _other_dtypes(space: spaces.Space[Any]) -> list[np.dtype[Any]] | None:
    """Returns the dtypes of a space's parts; None if they are those that JAX has too."""
    dtypes = [np.dtype(part.dtype) for part in in_order(space, space_tree(space))]
    same = all(jax.dtypes.canonicalize_dtype(dtype) == dtype for dtype in dtypes)
    return None if same else dtypes


def _flags(done: Array, truncated: Array) -> Array:
    """Returns words with dones in their first byte and which were truncated in their second."""
    return done.astype(np.uint32) | truncated.astype(np.uint32) << 8


def _byte(words: Array, which: int) -> Array:
    """Returns a byte of each word as bool `[N]`: a view, which costs less than a comparison."""
    return np.ndarray(words.shape, np.bool_, words.data, which, words.strides)


def _laid_as(layouts: list[Layout], states: list[PyTree], placement: Placement) -> list[Layout]:
    """Returns the layouts of the states that a call returns: what had rows still has.

    Args:
      layouts: of the states that it takes; environments which start have none.
      states: the others', with shapes and dtypes.
      placement: where they lie.
    """
    known: list[Layout | None] = [None] * (len(states) - len(layouts))
    found = []
    for state, old in zip(states, known + list(layouts), strict=True):
        same = old is not None and len(jax.tree.leaves(state)) == len(old.slots)
        spread = [slot.spread for slot in old.slots] if old is not None and same else None
        found.append(Layout(state, placement=placement, spread=spread))
    return found


def _check_stands_still(before: list[Layout], after: list[Layout]) -> None:
    """Checks that the states of layers have the same structure, shapes and dtypes after a call.

    Args:
      before: the layouts of a call's states.
      after: those of the states that it returns; that of environments which start stands in front.

    Raises:
      ValueError: if they differ: the next call could not take them.
    """
    for place, (old, new) in enumerate(zip(reversed(before), reversed(after), strict=False)):
        if old.key != new.key:
            number = len(after) - 1 - place
            owner = f"layer {number} (from the inside)" if number else "the environments"
            raise ValueError(
                f"The state of {owner} must keep its structure, shapes and dtypes: it was {old.avals}, and "
                f"became {new.avals}."
            )
