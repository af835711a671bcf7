"""The functions of a run, to be compiled: environments and the layers above them, in one call."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxvec.core._transform import Timestep, Transform
from jaxvec.core._xp import expand_mask
from jaxvec.envs import BatchedEnv
from jaxvec.random import as_impl
from jaxvec.typing import Action, Array, PyTree
from jaxvec.vec._call import Call, Hand, Shown, in_order
from jaxvec.vec._packing import Layout
from jaxvec.vec._placement import Placement

Groups = tuple[tuple[Array, PyTree], ...]
"""Which rows are reset with which options: pairs of a mask, bool `[N]`, and options or None."""


class Program:
    """Steps and resets a run.

    Args:
      env: the environments.
      transforms: of the layers, the innermost first.
      reads: for each layer the fields of a timestep that its hooks read.
      info_keys: the entries of the environments' own info that are handed on.
      hand: as for `Call`.
      placement: where arrays lie.

    Attributes:
      spec: of the outermost layer.
    """

    def __init__(
        self,
        env: BatchedEnv,
        transforms: tuple[Transform, ...],
        reads: tuple[tuple[str, ...], ...],
        info_keys: tuple[str, ...],
        hand: Hand | None,
        placement: Placement,
    ) -> None:
        self._placement = placement
        self._env, self._transforms, self._reads = env, transforms, reads
        self._info_keys, self._hand = info_keys, hand
        self.spec = env.spec
        for transform in transforms:
            self.spec = transform.spec(self.spec)
        self._calls: dict[Any, Call] = {}

    def step(self, layouts: list[Layout], action: Action) -> Call:
        """Returns what steps all rows: `(parts, action)`, an action being `[N, *A]`, checked.

        Args:
          layouts: of the parts.
          action: an example.
        """
        return self._call("step", self._step, layouts, (action,))

    def start(self, layouts: list[Layout], keys: Array, groups: Groups) -> Call:
        """Returns what resets all rows for the first time: `(parts, keys, groups)`.

        It takes the parts of the layers alone, and returns that of the environments in front of them.

        Args:
          layouts: of the parts.
          keys: an example: raw words, uint32 `[N, 2]`.
          groups: an example.
        """
        return self._call("start", self._start, layouts, (keys, groups))

    def reset(self, layouts: list[Layout], mask: Array | None, keys: Array, groups: Groups) -> Call:
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
    ) -> Call:
        leaves, structure = jax.tree.flatten(arguments)
        avals = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        key = name, structure, avals, tuple(layout.key for layout in layouts)
        if key not in self._calls:
            self._calls[key] = Call(
                function, layouts, arguments, self.spec, self._hand, self._placement
            )
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
        keys = as_impl(keys, "hash")
        env_state, timestep = self._env.reset(jax.random.clone(keys), *_given(options))
        for rows, options in others:
            # No key serves twice: of each group only its own rows are taken.
            again = jax.random.clone(keys)
            env_state, other = self._env.reset_rows(env_state, rows, again, *_given(options))
            timestep = _merged(rows, other, timestep)
        return self._opened(env_state, trees, timestep, None)

    def _reset(
        self, trees: list[PyTree], mask: Array | None, keys: Array, groups: Groups
    ) -> tuple[list[PyTree], Shown]:
        env_state, timestep, keys = trees[0], None, as_impl(keys, "hash")
        for rows, options in groups:
            again = jax.random.clone(keys)
            env_state, other = self._env.reset_rows(env_state, rows, again, *_given(options))
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
        # What layers within the environment add to the info, a reset may not have.
        info, reset_info = (
            {key: given[key] for key in self._info_keys if key in given}
            for given in (timestep.info, timestep.reset_info)
        )
        return timestep._replace(info=info, reset_info=reset_info)

    def _level(self, place: int, timestep: Timestep) -> dict[str, PyTree]:
        return {name: getattr(timestep, name) for name in self._reads[place]}

    def _shown(self, timestep: Timestep, levels: list[dict[str, PyTree]], stepped: bool) -> Shown:
        space = self.spec.observation_space
        return Shown(
            obs=list(in_order(space, timestep.obs)),
            reward=timestep.reward,
            done=timestep.done,
            truncated=timestep.truncated,
            final_obs=list(in_order(space, timestep.final_obs)) if stepped else [],
            info=timestep.info if stepped else {},
            reset_info=timestep.reset_info,
            levels=tuple(levels),
        )


def _given(options: PyTree) -> tuple[PyTree, ...]:
    return () if options is None else (options,)


def _merged(rows: Array, new: Timestep, old: Timestep) -> Timestep:
    """Returns the timestep of a reset of two groups of rows."""

    def chosen(one: Array, other: Array) -> Array:
        return jnp.where(expand_mask(rows, one), one, other)

    merged: Timestep = jax.tree.map(chosen, new, old)
    return merged
