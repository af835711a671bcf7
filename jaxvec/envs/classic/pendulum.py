"""Pendulum: swing a pole up and hold it there, with a torque too weak to lift it at once."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.classic._math import (
    check_action,
    reset_option,
    sin_cos,
    to_float32,
    wrap_angle,
)
from jaxvec.typing import Action, Array, Key, Obs

_MAX_SPEED = 8.0
_MAX_TORQUE = 2.0


@struct.dataclass
class PendulumParams:
    """The numbers of a Pendulum, under gymnasium's names."""

    max_speed: Array = _MAX_SPEED  # [], rad/s
    max_torque: Array = _MAX_TORQUE  # [], N m
    dt: Array = 0.05  # [], s: the time between two states
    g: Array = 10.0  # [], m/s^2
    m: Array = 1.0  # [], kg
    l: Array = 1.0  # noqa: E741  [], m


@struct.dataclass
class PendulumState:
    """The pole's angle and velocity. The angle counts whole turns, as gymnasium's does."""

    theta: Array  # float32 [], rad: 0 is upright
    theta_dot: Array  # float32 [], rad/s


def pendulum(*, g: float = 10.0) -> Env[PendulumState, PendulumParams]:
    """Makes gymnasium's `Pendulum-v1`, which has no end but its time limit.

    The reward is `-(angle^2 + 0.1 theta_dot^2 + 0.001 torque^2)`, of the state BEFORE the step, with
    the angle within half a turn and the torque as it was clipped.

    Args:
      g: the acceleration of gravity, m/s^2.

    Returns:
      The environment. Actions: float32 `[1]`, the torque in N m, clipped to +-2. Observations: float32
      `[3]`, cosine and sine of the angle, and the velocity. Options of reset: "x_init" and "y_init",
      the largest angle (pi) and velocity (1) that are drawn.
    """
    high = np.array([1.0, 1.0, _MAX_SPEED], dtype=np.float32)
    return Env(
        reset=_reset,
        step=_step,
        params=to_float32(PendulumParams(g=g)),
        observation_space=spaces.Box(-high, high, dtype=np.float32),
        action_space=spaces.Box(-_MAX_TORQUE, _MAX_TORQUE, shape=(1,), dtype=np.float32),
        max_episode_steps=200,
        metadata={"render_fps": 30},
    )


def _reset(
    key: Key, params: PendulumParams, options: Mapping[str, Any] | None = None
) -> tuple[PendulumState, Obs, dict[str, Any]]:
    del params
    largest_angle = reset_option("pendulum", options, "x_init", math.pi)
    largest_velocity = reset_option("pendulum", options, "y_init", 1.0)
    draws = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
    state = PendulumState(
        theta=draws[0] * jnp.asarray(largest_angle, jnp.float32),
        theta_dot=draws[1] * jnp.asarray(largest_velocity, jnp.float32),
    )
    return state, _observe(state), {}


def _step(
    key: Key, state: PendulumState, action: Action, params: PendulumParams
) -> tuple[PendulumState, Obs, Array, Array, Array, dict[str, Any]]:
    del key
    check_action("pendulum", action, (1,))
    torque = jnp.clip(action[0], -params.max_torque, params.max_torque)
    angle = wrap_angle(state.theta)
    cost = angle * angle + 0.1 * (state.theta_dot * state.theta_dot) + 0.001 * (torque * torque)

    pull = 3.0 * params.g / (2.0 * params.l)
    per_inertia = 3.0 / (params.m * (params.l * params.l))
    acceleration = pull * sin_cos(state.theta)[0] + per_inertia * torque
    theta_dot = state.theta_dot + acceleration * params.dt
    theta_dot = jnp.clip(theta_dot, -params.max_speed, params.max_speed)
    state = PendulumState(theta=state.theta + theta_dot * params.dt, theta_dot=theta_dot)
    never = jnp.bool_(False)
    return state, _observe(state), -cost.astype(jnp.float32), never, never, {}


def _observe(state: PendulumState) -> Obs:
    sine, cosine = sin_cos(state.theta)
    return jnp.stack([cosine, sine, state.theta_dot], axis=-1).astype(jnp.float32)
