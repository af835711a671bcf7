"""`VecTransform`: a transform and its state, as a layer around a VecEnv.

Every layer owns its state, and all that it does to a step is in its transform: so layers above a compiled
environment can run as one call. What only the host can do (a file, a warning, a video) a layer does after
that, in `_after_reset` and `_after_step`.
"""

from collections.abc import Sequence
from copy import deepcopy
from functools import cache, partial
from typing import Any, ClassVar, Literal

import numpy as np

from jaxvec.core._transform import Timestep, Transform, VecSpec, passthrough
from jaxvec.random import row_words_from_seeds
from jaxvec.typing import Action, Obs, PyTree
from jaxvec.vec._base import ColumnVecEnv, VecEnv
from jaxvec.vec._convert import (
    StepReturn,
    copy_obs,
    step_return,
    timestep_of_reset,
    timestep_of_step,
)
from jaxvec.vec._fused import Layer, Run, run_over
from jaxvec.vec._indices import Indices
from jaxvec.vec._wrapper import VecEnvWrapper


# `reset_infos` is VecEnvWrapper's property.
class VecTransform(  # pyright: ignore[reportIncompatibleVariableOverride]
    Layer, ColumnVecEnv, VecEnvWrapper
):
    """A VecEnv with a transform around it.

    Above a `JaxVecEnv` it is part of one compiled step, with the layers between; see `_fused.py`.

    Args:
      venv: the VecEnv inside; anything that has SB3's API, SB3's own VecEnvs too.
      transform: what is done to each step and reset, such as `frame_stack(4)`.
      seed: of the transform's own random numbers; row i draws from `seed + i`. None for one that has none.
    """

    _passes = True
    _guards_steps: ClassVar[bool] = False  # whether `_before_step` does anything

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._guards_steps = cls._before_step is not Layer._before_step

    def __init__(self, venv: Any, transform: Transform, *, seed: int | None = None) -> None:
        below, spec = run_over(venv), spec_of(venv)
        outside = transform.spec(spec)
        self._transform = transform
        if below is None:
            self._state = first_state(transform, spec, seed)
        else:
            self._run = below.extended(self)
            self._packed = packed_state(below, transform, spec, seed)
        super().__init__(venv, outside.observation_space, outside.action_space)

    @property
    def transform(self) -> Transform:
        """What this layer does."""
        return self._transform

    @property
    def state(self) -> PyTree:
        """The transform's state: a copy, which no step changes. It can be assigned."""
        return deepcopy(self._state) if self._packed is None else self._packed.read()

    @state.setter
    def state(self, state: PyTree) -> None:
        if self._packed is None:
            self._state = deepcopy(state)
        else:
            self._packed.write(state)

    def reset(self, indices: Indices = None) -> Obs:
        """Resets all environments, or some; see `ColumnVecEnv.reset`."""
        if self._run is not None:
            return self._run.reset(indices)[0]
        return self._handed_out(self._reset_columns(indices).obs)

    def step_wait(self) -> StepReturn:
        """Finishes the step that was started; see `VecEnv.step_wait`."""
        if self._run is not None:
            return self._run.wait()
        obs, rewards, dones, infos = step_return(self._wait_columns())
        return obs if self._obs_is_fresh() else copy_obs(obs), rewards, dones, infos

    def reset_arrays(self, indices: Indices = None) -> Timestep:
        """Resets, and returns columns: what the layer above calls."""
        return self._reset_columns(indices)

    def wait_arrays(self) -> Timestep:
        """Finishes the pending step, and returns columns: what the layer above calls."""
        return self._wait_columns()

    def step_async(self, actions: Action) -> None:
        """Starts a step; see `VecEnv.step_async`."""
        if self._run is not None:
            self._run.step_async(actions)
            return
        if self._guards_steps:
            self._before_step(actions)
        if self._transform.action is not passthrough:
            given = actions if isinstance(actions, dict | tuple) else np.asarray(actions)
            self._state, actions = self.transform.action(self._state, given)
        self.venv.step_async(actions)

    def send(self, actions: Action, indices: Indices = None) -> None:
        """Starts a step of some environments; see `HostVecEnv.send`.

        Raises:
          NotImplementedError: if the transform changes actions: it needs those of all rows.
        """
        if self.transform.action is not passthrough:
            raise NotImplementedError(
                f"{type(self).__name__} works on the actions of all environments, so it cannot send some "
                "of them; use step_async and step_wait, or put the layer inside the environments."
            )
        self.venv.send(actions, indices)

    def recv_arrays(self, min_envs: int | None = None) -> Timestep:
        """Waits for some of the environments sent; the rows that were ready are `valid`."""
        return self._updated(self.venv.recv_arrays(min_envs))

    def _reset_columns(self, indices: Indices = None) -> Timestep:
        if self._run is not None:
            return self._run.reset_arrays(indices)
        timestep = reset_columns(self.venv, indices)
        mask = None if indices is None else timestep.first
        self._state, timestep = self.transform.reset(self._state, timestep, mask)
        self._after_reset(timestep)
        return timestep

    def _wait_columns(self) -> Timestep:
        if self._run is not None:
            return self._run.wait_arrays()
        # As `_updated(wait_columns(...))`, written out: layers do this in every step.
        venv: Any = self.venv
        kind: Any = type(venv)
        timestep = venv.wait_arrays() if _speaks_columns(kind) else wait_columns(venv)
        self._state, timestep = self.transform.update(self._state, timestep)
        return self._after_step(timestep)

    def _updated(self, timestep: Timestep) -> Timestep:
        self._state, timestep = self.transform.update(self._state, timestep)
        return self._after_step(timestep)

    def _handed_out(self, obs: Obs) -> Obs:
        """Returns observations that nobody else holds."""
        return obs if self._obs_is_fresh() else copy_obs(obs)

    def _obs_is_fresh(self) -> bool:
        """Tells whether no state, of this layer or one below, holds the observations that it returns."""
        return False


def obs_is_fresh(venv: Any) -> bool:
    """Tells whether no state of a layer holds the observations that a VecEnv returns."""
    return not issubclass(type(venv), VecTransform) or venv._obs_is_fresh()


def spec_of(venv: Any) -> VecSpec:
    """Returns what a transform around a VecEnv must know of it."""
    backend: Literal["numpy", "jax"] = "numpy" if run_over(venv) is None else "jax"
    return VecSpec(venv.num_envs, venv.observation_space, venv.action_space, backend=backend)


def first_state(
    transform: Transform, spec: VecSpec, seed: int | None, rows: Sequence[int] | None = None
) -> PyTree:
    """Returns a transform's state for some rows, each with a seed of its own; None for all N."""
    rows = range(spec.num_envs) if rows is None else rows
    keys = None if seed is None else row_words_from_seeds([seed + row for row in rows])
    return transform.init(spec._replace(num_envs=len(rows)), keys)


def packed_state(below: Run, transform: Transform, spec: VecSpec, seed: int | None = None) -> Any:
    """Returns a transform's state as the run below keeps those of its layers."""
    state: Any = below.base._packed_state(partial(first_state, transform, spec, seed))
    return state


def reset_columns(venv: Any, indices: Indices) -> Timestep:
    """Resets a VecEnv, jaxvec's or any with SB3's API, and returns columns.

    Raises:
      NotImplementedError: if it can only reset all of its environments.
    """
    kind: Any = type(venv)
    if _speaks_columns(kind):
        timestep: Timestep = venv.reset_arrays(indices)
        return timestep
    if indices is not None:
        raise NotImplementedError(
            f"reset: {type(venv).__name__} resets all of its environments at once; `indices` needs a "
            "VecEnv of jaxvec."
        )
    return timestep_of_reset(venv.reset(), venv.num_envs, getattr(venv, "reset_infos", None))


def wait_columns(venv: Any) -> Timestep:
    """Finishes the pending step of a VecEnv, jaxvec's or any with SB3's API, and returns columns."""
    kind: Any = type(venv)
    if _speaks_columns(kind):
        timestep: Timestep = venv.wait_arrays()
        return timestep
    return timestep_of_step(*venv.step_wait())


@cache
def _speaks_columns(kind: type[Any]) -> bool:
    return issubclass(kind, VecEnv)
