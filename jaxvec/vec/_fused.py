"""Layers over a compiled environment as one: a run, which one compiled call steps.

An unbroken run of `VecTransform`s above a `JaxVecEnv` is stepped by whoever is called, down to the
environments, in one call. Every layer owns its state, before and after. A wrapper of any other kind ends the
run: layers above it work on NumPy. Nothing here imports jax: layers over classic environments load this page.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from jaxvec.core._transform import Timestep, Transform
from jaxvec.core._xp import map_obs
from jaxvec.errors import AlreadyPendingError
from jaxvec.typing import Action, Array, Obs, PyTree
from jaxvec.vec._convert import StepReturn, everywhere, opened, rows_of
from jaxvec.vec._indices import Indices
from jaxvec.vec._infos import Info, Infos

_STEPPING = frozenset(
    ("reset", "step", "step_async", "step_wait", "reset_arrays", "wait_arrays", "step_arrays")
)
"""Whoever overrides one of these must be called, so that a run ends there."""


class Fusable:
    """What can be part of a run: the environments at its bottom, and layers.

    A subclass that says nothing else can be passed by the layers above it, unless it overrides a method
    that steps or resets.
    """

    _passes: ClassVar[bool] = False
    _run: Any = None  # the Run that a layer above goes on
    _packed: Any = None  # its state on the device, where it is part of a run

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_passes" not in vars(cls):
            cls._passes = cls._passes and not _STEPPING & vars(cls).keys()


class Layer(Fusable):
    """What a run must know of a layer."""

    _run: "Run | None" = None
    _reads: ClassVar[tuple[str, ...] | None] = ()
    """The fields of a timestep that `_after_step` and `_after_reset` read, besides its flags: a compiled
    run hands out these and no others. ("info",) alone: `_after_step` has nothing to do unless an episode
    ended. None: in a compiled run the hooks have nothing to do."""

    @property
    @abstractmethod
    def transform(self) -> Transform:
        """What the layer does."""

    def _before_step(self, actions: Action) -> None:
        """Does what only the host can, before a step."""

    def _after_reset(self, timestep: Timestep) -> None:
        """Does what only the host can, after a reset; the timestep is this layer's."""

    def _after_step(self, timestep: Timestep) -> Timestep:
        """Does what only the host can, after a step; the timestep is this layer's.

        In a compiled run nothing but `info` can be changed.
        """
        return timestep


def run_over(venv: Any) -> "Run | None":
    """Returns the run that a layer around `venv` goes on; None where a layer works on NumPy."""
    run: Run | None = venv._run if isinstance(venv, Fusable) and venv._passes else None
    return run


class Run:
    """A compiled environment and the layers above it, seen from the outermost.

    Args:
      base: the `JaxVecEnv`.
      layers: the innermost first.
    """

    def __init__(self, base: Any, layers: tuple[Layer, ...]) -> None:
        self.base = base
        self._layers = layers
        self._owners: tuple[Any, ...] = (base, *layers)
        self._reads = tuple(type(layer)._reads or () for layer in layers)
        self._guards = _overriding(layers[::-1], "_before_step")
        self._hooks = _overriding(layers, "_after_step")
        self._reset_hooks = _overriding(layers, "_after_reset")
        self._transforms: tuple[Transform, ...] | None = None
        self._program: Any = None
        self._check: Callable[[Action], Action] = lambda actions: actions
        self._step: Any = None

    def extended(self, layer: Layer) -> "Run":
        """Returns the run with one more layer."""
        return Run(self.base, (*self._layers, layer))

    def step_async(self, actions: Action) -> None:
        """Starts a step: checks the actions, hands them to the device, and returns."""
        base = self.base
        if base._pending is not None or base._latest is None:
            base._check_can_step()
        self._prepare()
        for _, layer in self._guards:
            layer._before_step(actions)
        actions = base._placed(self._check(actions))
        if self._step is None:
            self._step = self._program.step([each._packed.layout for each in self._owners], actions)
        base._pending = self, self._called(self._step, self._owners, actions)

    def wait(self) -> StepReturn:
        """Finishes the step, and returns SB3's tuple in the form that the base's `output` says."""
        results = self.base._take(self)
        infos = RunInfos(results)  # before the results are waited for
        acts = bool(self._hooks) or results.has_reset_info
        obs, reward, done = results.handed_out(acts)
        if acts:
            self._act_on_host(results, infos)
        return obs, reward, done, infos

    def _act_on_host(self, results: Any, infos: "RunInfos") -> None:
        """Lets the layers do what only the host can."""
        done, truncated = results.flags()
        ended = 1 in done.tobytes()  # a tenth of what `any` costs
        if ended and results.has_reset_info:
            self.base._keep_reset_infos(results, done)
        timestep = None
        for place, layer in self._hooks:
            reads = self._reads[place]
            if reads == ("info",) and not ended:
                continue
            if timestep is None:
                timestep = _flagged(done, truncated)
            own = timestep._replace(**_fields(results, place, reads))
            after = layer._after_step(own).info
            if after is not own.info:
                infos.changed |= {
                    key: value
                    for key, value in after.items()
                    if value is not own.info.get(key) and results.is_outermost(place, key)
                }

    def wait_arrays(self) -> Timestep:
        """Finishes the step, and returns columns of NumPy arrays."""
        obs, reward, _, infos = self.wait()
        timestep: Timestep = infos.timestep(map_obs(np.asarray, obs), np.asarray(reward))
        return timestep

    def reset_arrays(self, indices: Indices) -> Timestep:
        """Resets environments, and returns columns of NumPy arrays."""
        obs, mask = self.reset(indices)
        return opened(map_obs(np.asarray, obs), mask, list(self.base.reset_infos))

    def reset(self, indices: Indices = None) -> tuple[Obs, Array]:
        """Resets environments.

        Args:
          indices: which ones; None for all.

        Returns:
          The observations of all, in the form that the base's `output` says, and bool `[N]`: where it
          reset.
        """
        base = self.base
        indices = self._rows_to_reset(indices)
        if indices is not None:
            base._ensure_started()
        self._prepare()
        old = None if indices is None else base._last_obs(self)
        mask, keys, groups = base._next_resets(indices)
        base._drop()  # all that is refused was refused before
        if not groups:  # the base keeps the old ones: the caller may write into its own
            return old if base._hand else map_obs(np.copy, old), mask
        some = base._placed(None if indices is None else mask)
        keys, groups = base._placed((keys, groups))
        if base._packed is None:
            layouts = [layer._packed.layout for layer in self._layers]
            call = self._program.start(layouts, keys, groups)
            base._begin(call.layouts[0])
            results = self._called(call, self._layers, keys, groups)
        else:
            layouts = [owner._packed.layout for owner in self._owners]
            call = self._program.reset(layouts, some, keys, groups)
            results = self._called(call, self._owners, some, keys, groups)
        obs = base._after_opening(self, results, mask, old)
        for place, layer in self._reset_hooks:
            fields = _fields(results, place, self._reads[place])
            layer._after_reset(opened(None, mask)._replace(**fields))
        return obs, mask

    def _rows_to_reset(self, indices: Indices) -> Indices:
        """Returns which rows are to be reset, None for all, if no step of the others is lost by it."""
        base = self.base
        base._check_open()
        if indices is None:
            return None
        # Processes that share a mesh must call the same function: whatever another one resets, it is some.
        if len(set(base._get_indices(indices))) == base.num_envs and not base._placement.is_partial:
            return None
        if base._pending is not None:
            raise AlreadyPendingError(
                "JaxVecEnv.reset: all environments are being stepped: what the step of those that are not "
                "to be reset led to would be lost. Finish it by step_wait() first. Nothing was reset."
            )
        return indices

    def _prepare(self) -> None:
        """Finds the program of the layers' present transforms."""
        transforms = tuple([layer.transform for layer in self._layers])
        if transforms != self._transforms:
            self._program = self.base._program_of(transforms, self._reads)
            spec = self._program.spec
            self._check = self.base._check_of(spec.action_space)
            self._transforms, self._step = transforms, None

    def _called(self, call: Any, owners: tuple[Any, ...], *arguments: Any) -> Any:
        """Calls a compiled function on the states of some, and hands back the new ones to all."""
        parts, results = call(tuple([owner._packed.buffers for owner in owners]), *arguments)
        for owner, buffers in zip(self._owners, parts, strict=True):
            owner._packed.buffers = buffers
        return results


class RunInfos(Infos):
    """The infos of a compiled step: nothing is fetched from the device until one is read.

    Args:
      results: what the step has shown.

    Attributes:
      changed: entries that the host has put in place of the device's.
    """

    __slots__ = ("_results", "changed")

    def __init__(self, results: Any) -> None:
        self._rows = [None] * results.num_envs
        self._results = results
        self.changed: dict[str, Any] = {}

    def _built(self, index: int) -> Info:
        self._fetch()
        return super()._built(index)

    def _fetch(self) -> None:
        results = self._results
        if results is not None:
            self._results = None
            self._done, self._truncated = results.flags()
            self._sources = self._final_at = None
            self._columns = {**results.info(), **self.changed}
            self._final = results.final_obs()
            self._on_host = False

    def timestep(self, obs: Obs, reward: Array) -> Timestep:
        """Returns the step as columns of NumPy arrays; final observations where there are any."""
        self._fetch()
        rows = np.flatnonzero(self._done)
        final = None
        if len(rows) and self._final is not None:
            final = rows_of(map_obs(np.asarray, self._final), rows)
        return _flagged(self._done, self._truncated)._replace(
            obs=obs,
            reward=reward,
            final_obs=final,
            final_rows=None if final is None else rows,
            info=map_obs(np.asarray, self._columns),
        )


def _fields(results: Any, place: int, reads: tuple[str, ...]) -> dict[str, PyTree]:
    """Returns the fields of a timestep that a layer's hooks read; `info` is fetched when it is read."""
    if not reads:
        return {}
    fields: dict[str, PyTree] = results.level(place)
    return {
        name: fields[name] if name == "info" else map_obs(np.asarray, fields[name])
        for name in reads
    }


def _flagged(done: Array, truncated: Array) -> Timestep:
    """Returns the timestep of a step of which nothing but the flags is known."""
    return Timestep(
        obs=None,
        reward=None,
        terminated=done ^ truncated,
        truncated=truncated,
        valid=everywhere(len(done)),
        first=done,
    )


def _overriding(layers: tuple[Layer, ...], name: str) -> list[tuple[int, Layer]]:
    """Returns the layers that override a method that does nothing, with their places."""
    return [
        (place, layer)
        for place, layer in enumerate(layers)
        if type(layer)._reads is not None and getattr(type(layer), name) is not getattr(Layer, name)
    ]
