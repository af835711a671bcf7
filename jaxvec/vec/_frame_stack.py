"""`VecFrameStack` and `StackedObservations`: the last observations as one, on Stable-Baselines3's face."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._frame_stack import FrameStackState, frame_stack, stack_axis
from jaxvec.core._transform import Timestep, VecSpec
from jaxvec.core._xp import map_obs, no_rows
from jaxvec.typing import Array, Obs
from jaxvec.vec._convert import copy_obs, timestep_of_reset, timestep_of_step
from jaxvec.vec._transform import VecTransform

_NO_ACTIONS = spaces.Discrete(1)
"""Stands in for an action space, which a stack of observations does not ask for."""


class StackedObservations:
    """Stacks of the last observations, fed by hand.

    Args:
      num_envs: N.
      n_stack: how many observations make one stack.
      observation_space: of one observation, a Box or a Dict of them.
      channels_order: "first", "last", or None to decide by the space; a mapping names the keys of a Dict.

    Attributes:
      stacked_observation_space: of one stack.

    Raises:
      TypeError: if a part of the space is no Box, or the mapping is for a space that is no Dict.
      KeyError: if the mapping lacks a key.
    """

    def __init__(
        self,
        num_envs: int,
        n_stack: int,
        observation_space: spaces.Box | spaces.Dict,
        channels_order: str | Mapping[str, str | None] | None = None,
    ) -> None:
        order: Any = channels_order
        if isinstance(order, Mapping) and isinstance(observation_space, spaces.Dict):
            order = {key: order[key] for key in observation_space.spaces}
        self.n_stack = n_stack
        self.observation_space = observation_space
        if not isinstance(observation_space, spaces.Box | spaces.Dict):
            raise TypeError(
                "StackedObservations only supports Box and Dict observation spaces, but "
                f"{observation_space} was given; put VecExtractDictObs or a one-hot encoding below."
            )
        if isinstance(observation_space, spaces.Box) and not isinstance(order, Mapping):
            self.channels_first, self.stack_dimension, self.stacked_shape, self.repeat_axis = (
                self.compute_stacking(n_stack, observation_space, order)
            )
        self._transform = frame_stack(n_stack, channels_order=order)
        spec = VecSpec(num_envs, observation_space, _NO_ACTIONS, backend="numpy")
        self._state: FrameStackState = self._transform.init(spec, None)
        self.stacked_observation_space: Any = self._transform.spec(spec).observation_space

    @property
    def stacked_obs(self) -> Obs:
        """The stacks as they were returned last, `[N, *D]`."""
        return copy_obs(self._state.stack)

    @staticmethod
    def compute_stacking(
        n_stack: int, observation_space: spaces.Box, channels_order: str | None = None
    ) -> tuple[bool, int, tuple[int, ...], int]:
        """Returns how a space is stacked.

        Returns:
          Whether along the first axis, the axis among columns `[N, *D]` (1 or -1), the shape of one stack,
          and the axis of one observation (0 or -1).
        """
        assert channels_order in (None, "first", "last"), (
            f"`channels_order` must be one of following: 'last', 'first'; got {channels_order!r}"
        )
        order: Any = channels_order
        axis = stack_axis(observation_space, order)
        shape = list(observation_space.shape)
        shape[axis] *= n_stack
        first = axis == 0
        return first, 1 if first else -1, tuple(shape), axis

    def reset(self, observation: Obs) -> Obs:
        """Starts all stacks anew with these observations, `[N, *D]`, and returns them."""
        timestep = timestep_of_reset(observation, _num_rows(observation))
        self._state, timestep = self._transform.reset(self._state, timestep, None)
        return copy_obs(timestep.obs)

    def update(
        self, observations: Obs, dones: Array, infos: Sequence[dict[str, Any]]
    ) -> tuple[Obs, Sequence[dict[str, Any]]]:
        """Pushes the observations of a step, `[N, *D]`.

        Args:
          observations: where an episode ended, the next one's first.
          dones: bool `[N]`.
          infos: N dicts; "terminal_observation" in them is replaced by the ended episode's last stack.

        Returns:
          The stacks, and `infos`.
        """
        timestep = timestep_of_step(observations, np.zeros(len(dones), np.float32), dones, infos)
        self._state, timestep = self._transform.update(self._state, timestep)
        warn_if_final_is_lacking(timestep)
        if timestep.final_rows is not None:
            finals = copy_obs(timestep.final_obs)
            for place, row in enumerate(timestep.final_rows):
                infos[row]["terminal_observation"] = _row_of(finals, place)
        return copy_obs(timestep.obs), infos


class VecFrameStack(VecTransform):
    """Stacks the last observations along the channels, the newest at the end.

    An episode's first stack is filled up with zeros. What is an image, and where its channels are, is
    decided as Stable-Baselines3 decides.

    Args:
      venv: the VecEnv inside.
      n_stack: how many observations make one stack.
      channels_order: "first", "last", or None to decide by the space; a mapping names the keys of a Dict.
    """

    _reads = None  # there the last observation is always known

    def __init__(
        self, venv: Any, n_stack: int, channels_order: str | Mapping[str, str] | None = None
    ) -> None:
        space = venv.observation_space
        assert isinstance(space, spaces.Box | spaces.Dict), (
            f"VecFrameStack only works with Box and Dict observation spaces, not {space}"
        )
        self.n_stack = n_stack
        self._stacks = StackedObservations(venv.num_envs, n_stack, space, channels_order)
        super().__init__(venv, self._stacks._transform)

    @property
    def stacked_obs(self) -> StackedObservations:
        """The stacks as they are now; above a JaxVecEnv a copy of those on the device."""
        if self._packed is not None:
            self._stacks._state = FrameStackState(map_obs(np.asarray, self.state.stack))
        return self._stacks

    @property
    def _state(self) -> FrameStackState:
        return self._stacks._state

    @_state.setter
    def _state(self, state: FrameStackState) -> None:
        self._stacks._state = state

    def _after_step(self, timestep: Timestep) -> Timestep:
        warn_if_final_is_lacking(timestep)
        return timestep


def warn_if_final_is_lacking(timestep: Timestep) -> None:
    """Warns where an episode ended and its last observation is not known."""
    if no_rows(timestep.terminated) and no_rows(timestep.truncated):
        return
    done = timestep.done
    known = 0 if timestep.final_rows is None else len(timestep.final_rows)
    if np.count_nonzero(done) != known:
        warnings.warn(
            "VecFrameStack wrapping a VecEnv without terminal_observation info: the last stack of the "
            "episode that ended is not known.",
            stacklevel=3,
        )


def _num_rows(observation: Obs) -> int:
    while isinstance(observation, dict):
        observation = next(iter(observation.values()))
    return len(observation)


def _row_of(columns: Obs, row: int) -> Obs:
    if isinstance(columns, dict):
        return {key: _row_of(column, row) for key, column in columns.items()}
    return columns[row]
