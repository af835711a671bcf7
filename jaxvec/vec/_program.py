"""The compiled functions of a run: environments and the layers above them, in one call.

A run's states come and go as few buffers (`_packing.py`), one set for each owner: the environments, and every
layer. What a call shows comes in two parts. The first is what every caller reads: observations, rewards,
flags. The second is what few read, infos and last observations; it stays on the device until somebody does.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax.extend.core import jaxpr_as_fun

from jaxvec.core._transform import Timestep, Transform
from jaxvec.core._xp import expand_mask, space_tree
from jaxvec.envs import BatchedEnv
from jaxvec.typing import Action, Array, Obs, PyTree
from jaxvec.vec._packing import Buffers, Column, Fetched, Layout

TERMINATED, TRUNCATED = 1, 2
"""The bits of a row's flags."""

Parts = tuple[Buffers, ...]
"""The packed states of a run, the environments' first, then those of the layers from the inside out."""


Groups = tuple[tuple[Array, PyTree], ...]
"""Which rows are reset with which options: pairs of a mask, bool `[N]`, and options or None."""


class Shown(NamedTuple):
    """What a call shows, while it is traced."""

    obs: list[Array]  # leaves [N, *D]
    reward: Array  # float32 [N]
    flags: Array  # uint32 [N]; (done, truncated), bool [N], for callers on the device
    final_obs: list[Array]  # leaves [N, *D]
    info: dict[str, PyTree]
    reset_info: dict[str, PyTree]
    levels: tuple[dict[str, PyTree], ...]  # what each layer's hooks read


class Program:
    """Steps and resets a run.

    Args:
      env: the environments.
      transforms: of the layers, the innermost first.
      reads: for each layer the fields of a timestep that its hooks read.
      info_keys: the entries of the environments' own info that are handed on.
      on_host: whether what is shown goes to NumPy.

    Attributes:
      spec: of the outermost layer.
    """

    def __init__(
        self,
        env: BatchedEnv,
        transforms: tuple[Transform, ...],
        reads: tuple[tuple[str, ...], ...],
        info_keys: tuple[str, ...],
        on_host: bool,
    ) -> None:
        self._env, self._transforms, self._reads = env, transforms, reads
        self._info_keys, self._on_host = info_keys, on_host
        self.spec = env.spec
        for transform in transforms:
            self.spec = transform.spec(self.spec)
        self._calls: dict[Any, Call] = {}

    def step(self, layouts: list[Layout], action: Action) -> "Call":
        """Returns what steps all rows: `(parts, action)`, an action being `[N, *A]`, checked.

        Args:
          layouts: of the parts.
          action: an example.
        """
        return self._call("step", self._step, layouts, (action,))

    def start(self, layouts: list[Layout], keys: Array, groups: Groups) -> "Call":
        """Returns what resets all rows for the first time: `(parts, keys, groups)`.

        It takes the parts of the layers alone, and returns that of the environments in front of them.

        Args:
          layouts: of the parts.
          keys: an example: raw words, uint32 `[N, 2]`.
          groups: an example.
        """
        return self._call("start", self._start, layouts, (keys, groups))

    def reset(
        self, layouts: list[Layout], mask: Array | None, keys: Array, groups: Groups
    ) -> "Call":
        """Returns what resets rows again: `(parts, mask, keys, groups)`.

        Args:
          layouts: of the parts.
          mask: an example: bool `[N]`, or None where all rows are reset.
          keys: an example: raw words, uint32 `[N, 2]`.
          groups: an example.
        """
        return self._call("reset", self._reset, layouts, (mask, keys, groups))

    def _call(
        self, name: str, function: Any, layouts: list[Layout], arguments: tuple[Any, ...]
    ) -> "Call":
        leaves, structure = jax.tree.flatten(arguments)
        avals = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        key = name, structure, avals, tuple(layout.key for layout in layouts)
        if key not in self._calls:
            space = self.spec.observation_space
            self._calls[key] = Call(function, layouts, arguments, space, self._on_host)
        return self._calls[key]

    def _step(self, trees: list[PyTree], action: Action) -> tuple[list[PyTree], Shown]:
        env_state, *states = trees
        for place in reversed(range(len(states))):
            states[place], action = self._transforms[place].action(states[place], action)
        env_state, timestep = self._env.step(env_state, action)
        timestep = self._with_chosen_info(timestep)
        levels = []
        for place, transform in enumerate(self._transforms):
            states[place], timestep = transform.update(states[place], timestep)
            levels.append(self._level(place, timestep))
        return [env_state, *states], self._shown(timestep, levels, stepped=True)

    def _start(
        self, trees: list[PyTree], keys: Array, groups: Groups
    ) -> tuple[list[PyTree], Shown]:
        (_, options), *others = groups
        env_state, timestep = self._env.reset(keys, *_given(options))
        for rows, options in others:
            env_state, other = self._env.reset_rows(env_state, rows, keys, *_given(options))
            timestep = _merged(rows, other, timestep)
        return self._opened(env_state, trees, timestep, None)

    def _reset(
        self, trees: list[PyTree], mask: Array | None, keys: Array, groups: Groups
    ) -> tuple[list[PyTree], Shown]:
        env_state, timestep = trees[0], None
        for rows, options in groups:
            env_state, other = self._env.reset_rows(env_state, rows, keys, *_given(options))
            timestep = other if timestep is None else _merged(rows, other, timestep)
        assert timestep is not None
        return self._opened(env_state, trees[1:], timestep, mask)

    def _opened(
        self, env_state: PyTree, states: list[PyTree], timestep: Timestep, mask: Array | None
    ) -> tuple[list[PyTree], Shown]:
        timestep = self._with_chosen_info(timestep)
        new, levels = [env_state], []
        for place, transform in enumerate(self._transforms):
            state, timestep = transform.reset(states[place], timestep, mask)
            new.append(state)
            levels.append(self._level(place, timestep))
        return new, self._shown(timestep, levels, stepped=False)

    def _with_chosen_info(self, timestep: Timestep) -> Timestep:
        return timestep._replace(
            info={key: timestep.info[key] for key in self._info_keys},
            reset_info={key: timestep.reset_info[key] for key in self._info_keys},
        )

    def _level(self, place: int, timestep: Timestep) -> dict[str, PyTree]:
        return {name: getattr(timestep, name) for name in self._reads[place]}

    def _shown(self, timestep: Timestep, levels: list[dict[str, PyTree]], stepped: bool) -> Shown:
        flags: Any = (timestep.done, timestep.truncated)
        if self._on_host:
            flags = timestep.terminated.astype(np.uint32) * TERMINATED
            flags = flags + timestep.truncated.astype(np.uint32) * TRUNCATED
        space = self.spec.observation_space
        return Shown(
            obs=list(in_order(space, timestep.obs)),
            reward=timestep.reward,
            flags=flags,
            final_obs=list(in_order(space, timestep.final_obs)) if stepped else [],
            info=timestep.info if stepped else {},
            reset_info=timestep.reset_info,
            levels=tuple(levels),
        )


class Call:
    """One compiled function, from packed states to packed states and what is shown.

    Args:
      function: `(trees, *arguments) -> (trees, shown)`.
      layouts: of the trees that it takes.
      arguments: examples of the others.
      space: of what it shows.
      on_host: whether what is shown goes to NumPy: then what every caller reads lies in one buffer.

    Attributes:
      layouts: of the trees that it returns.
      shown: what it shows, with the number of an array in place of each.
      dtypes: of the space's parts, if JAX has others: int32 for int64, as long as x64 is not enabled.
    """

    def __init__(
        self,
        function: Callable[..., tuple[list[PyTree], Shown]],
        layouts: list[Layout],
        arguments: tuple[Any, ...],
        space: spaces.Space[Any],
        on_host: bool,
    ) -> None:
        self.space = space
        self.dtypes = _other_dtypes(space)
        trees = [layout.avals for layout in layouts]
        # Traced once; one array in several places is then one name.
        traced, (states, shown) = jax.make_jaxpr(function, return_shape=True)(trees, *arguments)
        self.layouts = [Layout(state) for state in states]
        check_stands_still(layouts, self.layouts)
        ends = np.cumsum([len(layout.slots) for layout in self.layouts]).tolist()
        every, few = _split(shown)
        first = ends[-1]
        second = first + len(jax.tree.leaves(every))
        names = [id(name) for name in traced.jaxpr.outvars]
        chosen = list(dict.fromkeys(names[second:]))
        sources = [names.index(name, second) for name in chosen]
        self.every = Layout(every) if on_host else Layout(every, large=0)
        leaves = jax.tree.leaves(few)
        self.few = Layout([leaves[source - second] for source in sources])
        self.shown: Shown = jax.tree.unflatten(
            jax.tree.structure(few), [chosen.index(name) for name in names[second:]]
        )
        run = jaxpr_as_fun(traced)

        def packed(parts: Parts, *arguments: Any) -> tuple[Parts, Buffers, Buffers]:
            trees = [layout.unpack(part) for layout, part in zip(layouts, parts, strict=True)]
            leaves = run(*jax.tree.leaves((trees, *arguments)))
            new = tuple(
                layout.pack_leaves(leaves[end - len(layout.slots) : end])
                for layout, end in zip(self.layouts, ends, strict=True)
            )
            shown = self.every.pack_leaves(leaves[first:second])
            return new, shown, self.few.pack_leaves([leaves[source] for source in sources])

        self._run = jax.jit(packed, donate_argnums=0)

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

    __slots__ = ("_call", "_columns", "_every", "_fetched")

    def __init__(self, call: Call, every: Buffers, few: Buffers) -> None:
        self._call = call
        self._every = every
        self._fetched = Fetched(call.few, few)
        self._columns: list[Column] | None = None

    def on_host(self) -> tuple[Obs, Array, Array, Array]:
        """Waits, and returns observations, rewards, dones and which were truncated, as NumPy arrays.

        Nobody else holds them.
        """
        # One copy of a buffer serves all that lies in it: what SB3 writes into rewards must be writable.
        host = [np.array(buffer) for buffer in self._every]
        *leaves, reward, flags = self._call.every.views(host)
        if self._call.dtypes is not None:
            pairs = zip(leaves, self._call.dtypes, strict=True)
            leaves = [leaf.astype(dtype, copy=False) for leaf, dtype in pairs]
        return rebuilt(self._call.space, iter(leaves)), reward, flags != 0, flags == TRUNCATED

    def on_device(self) -> tuple[Obs, Array, Array, Array]:
        """Returns observations, rewards, dones and which were truncated, on the device."""
        *leaves, reward, done, truncated = self._every
        return rebuilt(self._call.space, iter(leaves)), reward, done, truncated

    def final_obs(self) -> Obs:
        """Returns the last observations, as columns that are fetched when they are read."""
        places = self._call.shown.final_obs
        if not places:
            return None
        dtypes: Any = self._call.dtypes or [None] * len(places)
        pairs = zip(places, dtypes, strict=True)
        columns = (Column(self._fetched, place, dtype) for place, dtype in pairs)
        return rebuilt(self._call.space, columns)

    def info(self) -> dict[str, PyTree]:
        """Returns the info of the outermost layer."""
        info: dict[str, PyTree] = self._filled(self._call.shown.info)
        return info

    def reset_info(self) -> dict[str, PyTree]:
        """Returns the info of the resets, to be read where an episode opens."""
        info: dict[str, PyTree] = self._filled(self._call.shown.reset_info)
        return info

    def level(self, place: int) -> dict[str, PyTree]:
        """Returns the fields of a timestep that the hooks of a layer read."""
        fields: dict[str, PyTree] = self._filled(self._call.shown.levels[place])
        return fields

    def is_outermost(self, place: int, key: str) -> bool:
        """Tells whether an entry of a layer's info is that of the outermost one, not replaced since."""
        outermost, own = self._call.shown.info, self._call.shown.levels[place]["info"]
        return bool(own.get(key) == outermost.get(key))

    def _filled(self, places: PyTree) -> PyTree:
        """Returns a tree with the column in place of each number; a column is the same everywhere."""
        if self._columns is None:
            count = len(self._call.few.slots)
            self._columns = [Column(self._fetched, index) for index in range(count)]
        columns = self._columns
        if not places:
            return {}
        return jax.tree.map(lambda place: columns[place], places)


def _given(options: PyTree) -> tuple[PyTree, ...]:
    return () if options is None else (options,)


def _merged(rows: Array, new: Timestep, old: Timestep) -> Timestep:
    """Returns the timestep of a reset of two groups of rows."""

    def chosen(one: Array, other: Array) -> Array:
        return jnp.where(expand_mask(rows, one), one, other)

    merged: Timestep = jax.tree.map(chosen, new, old)
    return merged


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


def _split(shown: Shown) -> tuple[PyTree, PyTree]:
    """Returns what every caller reads, and the rest."""
    flags = shown.flags if isinstance(shown.flags, tuple) else (shown.flags,)
    return [*shown.obs, shown.reward, *flags], shown._replace(obs=[], reward=None, flags=None)


def check_stands_still(before: list[Layout], after: list[Layout]) -> None:
    """Checks that the states of layers have the same structure, shapes and dtypes after a call.

    Args:
      before: the layouts of a call's states.
      after: those of the states that it returns; an environment that starts stands in front.

    Raises:
      ValueError: if they differ: the next call could not take them.
    """
    for place, (old, new) in enumerate(zip(reversed(before), reversed(after), strict=False)):
        if old.structure != new.structure or old.slots != new.slots:
            raise ValueError(
                f"A layer's state must keep its structure, shapes and dtypes. That of layer "
                f"{len(before) - place} (from the inside) was {old.avals}, and became {new.avals}."
            )
