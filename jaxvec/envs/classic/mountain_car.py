"""The two mountain cars: rock a weak car out of a valley, with three pushes or any force between."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.classic._math import check_action, reset_bounds, sin_cos, to_float32
from jaxvec.typing import Action, Array, Key, Obs

_MIN_POSITION = -1.2
_MAX_POSITION = 0.6
_MAX_SPEED = 0.07


@struct.dataclass
class MountainCarParams:
    """The numbers of a MountainCar, under gymnasium's names. A step is the unit of time."""

    min_position: Array = _MIN_POSITION  # []
    max_position: Array = _MAX_POSITION  # []
    max_speed: Array = _MAX_SPEED  # [], position per step
    goal_position: Array = 0.5  # []
    goal_velocity: Array = 0.0  # [], position per step
    force: Array = 0.001  # [], velocity per step
    gravity: Array = 0.0025  # [], velocity per step


@struct.dataclass
class ContinuousMountainCarParams:
    """The numbers of a MountainCarContinuous, under gymnasium's names (`gravity` has none there)."""

    min_action: Array = -1.0  # []
    max_action: Array = 1.0  # []
    min_position: Array = _MIN_POSITION  # []
    max_position: Array = _MAX_POSITION  # []
    max_speed: Array = _MAX_SPEED  # [], position per step
    goal_position: Array = 0.45  # []: not where the other car's goal is
    goal_velocity: Array = 0.0  # [], position per step
    power: Array = 0.0015  # [], velocity per step
    gravity: Array = 0.0025  # [], velocity per step


@struct.dataclass
class MountainCarState:
    """Where the car is along the valley, and how fast."""

    position: Array  # float32 []
    velocity: Array  # float32 [], position per step


def mountain_car(*, goal_velocity: float = 0.0) -> Env[MountainCarState, MountainCarParams]:
    """Makes gymnasium's `MountainCar-v0`, in which every step costs 1 until the goal is reached.

    Args:
      goal_velocity: how fast the car must at least be at the goal, position per step.

    Returns:
      The environment. Actions: 0 pushes left, 1 does not, 2 pushes right. Observations: float32 `[2]`,
      the state. Options of reset: "low" and "high", between which the position is drawn (-0.6 and
      -0.4); the velocity starts at 0.

    References:
      Moore, Efficient Memory-based Learning for Robot Control, 1990.
      Sutton and Barto, Reinforcement Learning: An Introduction, 2nd edition, 2018, example 10.1.
    """
    return Env(
        reset=_reset,
        step=_step,
        params=to_float32(MountainCarParams(goal_velocity=goal_velocity)),
        observation_space=_observation_space(),
        action_space=spaces.Discrete(3),
        max_episode_steps=200,
        metadata={"render_fps": 30},
    )


def continuous_mountain_car(
    *, goal_velocity: float = 0.0
) -> Env[MountainCarState, ContinuousMountainCarParams]:
    """Makes gymnasium's `MountainCarContinuous-v0`.

    The goal is worth 100, and every step costs `0.1 action^2`: of the action as it came, though the
    car feels it clipped.

    gymnasium rounds this environment's state to float32 after every step, as the dtype here does.

    Args:
      goal_velocity: how fast the car must at least be at the goal, position per step.

    Returns:
      The environment. Actions: float32 `[1]`, the force, clipped to +-1. Observations, and options of
      reset: as `mountain_car`.
    """
    return Env(
        reset=_reset,
        step=_continuous_step,
        params=to_float32(ContinuousMountainCarParams(goal_velocity=goal_velocity)),
        observation_space=_observation_space(),
        action_space=spaces.Box(-1.0, 1.0, shape=(1,), dtype=np.float32),
        max_episode_steps=999,
        metadata={"render_fps": 30},
    )


def _observation_space() -> spaces.Box:
    low = np.array([_MIN_POSITION, -_MAX_SPEED], dtype=np.float32)
    high = np.array([_MAX_POSITION, _MAX_SPEED], dtype=np.float32)
    return spaces.Box(low, high, dtype=np.float32)


def _reset(
    key: Key,
    params: MountainCarParams | ContinuousMountainCarParams,
    options: Mapping[str, Any] | None = None,
) -> tuple[MountainCarState, Obs, dict[str, Any]]:
    del params
    low, high = reset_bounds("mountain_car", options, -0.6, -0.4)
    position = jax.random.uniform(key, (), jnp.float32, low, high)
    state = MountainCarState(position=position, velocity=jnp.zeros_like(position))
    return state, _observe(state), {}


def _step(
    key: Key, state: MountainCarState, action: Action, params: MountainCarParams
) -> tuple[MountainCarState, Obs, Array, Array, Array, dict[str, Any]]:
    del key
    check_action("mountain_car", action, ())
    push = jnp.where(action == 0, -params.force, jnp.where(action == 1, 0.0, params.force))
    state, terminated = _roll(state, push, params)
    return state, _observe(state), jnp.float32(-1.0), terminated, jnp.bool_(False), {}


def _continuous_step(
    key: Key, state: MountainCarState, action: Action, params: ContinuousMountainCarParams
) -> tuple[MountainCarState, Obs, Array, Array, Array, dict[str, Any]]:
    del key
    check_action("continuous_mountain_car", action, (1,))
    push = jnp.clip(action[0], params.min_action, params.max_action) * params.power
    state, terminated = _roll(state, push, params)
    prize = jnp.where(terminated, 100.0, 0.0)
    reward = (prize - 0.1 * (action[0] * action[0])).astype(jnp.float32)
    return state, _observe(state), reward, terminated, jnp.bool_(False), {}


def _roll(
    state: MountainCarState,
    push: Array,
    params: MountainCarParams | ContinuousMountainCarParams,
) -> tuple[MountainCarState, Array]:
    """Moves the car by one step, and tells whether it is at the goal."""
    slope = sin_cos(3.0 * state.position)[1]
    velocity = state.velocity + (push - params.gravity * slope)
    velocity = jnp.clip(velocity, -params.max_speed, params.max_speed)
    position = jnp.clip(state.position + velocity, params.min_position, params.max_position)
    # The left end is a wall that takes all speed; on the right the car may push on.
    at_wall = (position == params.min_position) & (velocity < 0)
    velocity = jnp.where(at_wall, 0.0, velocity)
    terminated = (position >= params.goal_position) & (velocity >= params.goal_velocity)
    return MountainCarState(position=position, velocity=velocity), terminated


def _observe(state: MountainCarState) -> Obs:
    return jnp.stack([state.position, state.velocity], axis=-1).astype(jnp.float32)
