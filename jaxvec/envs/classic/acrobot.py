"""Acrobot: two links hang from a joint; a torque between them swings the free end up."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces
from jax import lax

from jaxvec.core._arguments import check_one_of
from jaxvec.envs._env import Env
from jaxvec.envs.classic._math import (
    check_action,
    reset_bounds,
    sin_cos,
    to_float32,
    wrap_angle,
)
from jaxvec.typing import Action, Array, Key, Obs

_MAX_VEL_1 = 4 * math.pi
_MAX_VEL_2 = 9 * math.pi


@struct.dataclass
class AcrobotParams:
    """The numbers of an Acrobot, under gymnasium's names where it has one; the last is fixed."""

    dt: Array = 0.2  # [], s: the time between two states
    LINK_LENGTH_1: Array = 1.0  # [], m
    LINK_LENGTH_2: Array = 1.0  # [], m: only for the picture
    LINK_MASS_1: Array = 1.0  # [], kg
    LINK_MASS_2: Array = 1.0  # [], kg
    LINK_COM_POS_1: Array = 0.5  # [], m: from the joint to the centre of mass
    LINK_COM_POS_2: Array = 0.5  # [], m
    LINK_MOI: Array = 1.0  # [], kg m^2: the moment of inertia of either link
    MAX_VEL_1: Array = _MAX_VEL_1  # [], rad/s
    MAX_VEL_2: Array = _MAX_VEL_2  # [], rad/s
    AVAIL_TORQUE: Array = field(  # [3], N m: the torque of each action
        default_factory=lambda: np.array([-1.0, 0.0, 1.0])
    )
    torque_noise_max: Array = 0.0  # [], N m: noise is drawn between -this and this
    gravity: Array = 9.8  # [], m/s^2
    book_or_nips: str = struct.field(pytree_node=False, default="book")


@struct.dataclass
class AcrobotState:
    """Both angles and their velocities."""

    theta1: Array  # float32 [], rad in [-pi, pi]: 0 hangs down
    theta2: Array  # float32 [], rad in [-pi, pi]: relative to the first link
    dtheta1: Array  # float32 [], rad/s
    dtheta2: Array  # float32 [], rad/s


def acrobot(*, book_or_nips: str = "book") -> Env[AcrobotState, AcrobotParams]:
    """Makes gymnasium's `Acrobot-v1`.

    Every step costs 1 until the free end is one link's length above the joint.

    Args:
      book_or_nips: the equations of the book, or those of the conference paper, where a term is missing.

    Returns:
      The environment. Actions: 0, 1, 2 for a torque of -1, 0, 1 N m. Observations: float32 `[6]`,
      cosine and sine of both angles, and their velocities. Options of reset: "low" and "high", between
      which the state is drawn (-0.1 and 0.1).

    Raises:
      ValueError: if there are no such equations.

    References:
      Sutton and Barto, Reinforcement Learning: An Introduction, 1st edition, 1998, figure 11.4.
      Sutton, Generalization in Reinforcement Learning: Successful Examples Using Sparse Coarse
      Coding, 1996.
    """
    check_one_of("acrobot", "book_or_nips", book_or_nips, ("book", "nips"))
    high = np.array([1.0, 1.0, 1.0, 1.0, _MAX_VEL_1, _MAX_VEL_2], dtype=np.float32)
    return Env(
        reset=_reset,
        step=_step,
        params=to_float32(AcrobotParams(book_or_nips=book_or_nips)),
        observation_space=spaces.Box(-high, high, dtype=np.float32),
        action_space=spaces.Discrete(3),
        max_episode_steps=500,
        metadata={"render_fps": 15},
    )


def _reset(
    key: Key, params: AcrobotParams, options: Mapping[str, Any] | None = None
) -> tuple[AcrobotState, Obs, dict[str, Any]]:
    del params
    low, high = reset_bounds("acrobot", options, -0.1, 0.1)
    draws = jax.random.uniform(key, (4,), jnp.float32, low, high)
    state = AcrobotState(theta1=draws[0], theta2=draws[1], dtheta1=draws[2], dtheta2=draws[3])
    obs, _ = _observe(state)
    return state, obs, {}


def _step(
    key: Key, state: AcrobotState, action: Action, params: AcrobotParams
) -> tuple[AcrobotState, Obs, Array, Array, Array, dict[str, Any]]:
    check_action("acrobot", action, ())
    low, middle, high = (params.AVAIL_TORQUE[index] for index in range(3))
    torque = jnp.where(action == 0, low, jnp.where(action == 1, middle, high))
    torque = torque + _noise(key, params.torque_noise_max)

    # The state is advanced by the classical Runge-Kutta method, with the torque held constant.
    dt = params.dt
    motion = _Motion(state.theta1, state.theta2, state.dtheta1, state.dtheta2)
    slope1 = _derivative(motion, torque, params)
    slope2 = _derivative(_advance(motion, 0.5 * dt, slope1), torque, params)
    slope3 = _derivative(_advance(motion, 0.5 * dt, slope2), torque, params)
    slope4 = _derivative(_advance(motion, dt, slope3), torque, params)
    slopes = zip(slope1, slope2, slope3, slope4, strict=True)
    total = _Motion(*(a + 2.0 * (b + c) + d for a, b, c, d in slopes))
    motion = _advance(motion, dt / 6.0, total)

    state = AcrobotState(
        theta1=wrap_angle(motion.theta1),
        theta2=wrap_angle(motion.theta2),
        dtheta1=jnp.clip(motion.dtheta1, -params.MAX_VEL_1, params.MAX_VEL_1),
        dtheta2=jnp.clip(motion.dtheta2, -params.MAX_VEL_2, params.MAX_VEL_2),
    )
    obs, height = _observe(state)
    terminated = height > 1.0
    reward = jnp.where(terminated, jnp.float32(0.0), jnp.float32(-1.0))
    return state, obs, reward, terminated, jnp.bool_(False), {}


class _Motion(NamedTuple):
    """A state, or its derivative by time."""

    theta1: Array
    theta2: Array
    dtheta1: Array
    dtheta2: Array


def _advance(motion: _Motion, time: Array, slope: _Motion) -> _Motion:
    return _Motion(*(each + time * rate for each, rate in zip(motion, slope, strict=True)))


def _derivative(motion: _Motion, torque: Array, params: AcrobotParams) -> _Motion:
    """The equations of motion, as two linear equations in the accelerations.

        d1 a1 + d2 a2 = -phi1,    d2 a1 + d3 a2 = drive

    gymnasium eliminates `a1` first, with four divisions; Cramer's rule needs two. The sine of
    `theta1 + theta2` comes from the addition theorem.
    """
    length, mass = params.LINK_LENGTH_1, params.LINK_MASS_2
    centre1, centre2 = params.LINK_COM_POS_1, params.LINK_COM_POS_2
    inertia = params.LINK_MOI
    arm = mass * length * centre2
    d3 = mass * (centre2 * centre2) + inertia
    d1_constant = params.LINK_MASS_1 * (centre1 * centre1) + mass * (length * length) + d3 + inertia
    weight1 = (params.LINK_MASS_1 * centre1 + mass * length) * params.gravity
    weight2 = mass * centre2 * params.gravity

    sine1, cosine1 = sin_cos(motion.theta1)
    sine2, cosine2 = sin_cos(motion.theta2)
    d1 = d1_constant + 2.0 * arm * cosine2
    d2 = d3 + arm * cosine2
    swing = arm * sine2
    phi2 = weight2 * (sine1 * cosine2 + cosine1 * sine2)
    phi1 = weight1 * sine1 + phi2 - swing * motion.dtheta2 * (motion.dtheta2 + 2.0 * motion.dtheta1)
    drive = torque - phi2
    if params.book_or_nips == "book":
        drive = drive - swing * (motion.dtheta1 * motion.dtheta1)

    # Two divisions, not one reciprocal: XLA's CPU compiler repeats products and sums in every kernel
    # that reads them, each stage's in the next, but never a division. With one reciprocal, a rollout
    # that keeps its observations took thirty times as long.
    determinant = d1 * d3 - d2 * d2
    return _Motion(
        theta1=motion.dtheta1,
        theta2=motion.dtheta2,
        dtheta1=-(d2 * drive + d3 * phi1) / determinant,
        dtheta2=(d1 * drive + d2 * phi1) / determinant,
    )


def _noise(key: Key, largest: Array) -> Array:
    # A `cond`, since random numbers cost more than the physics and by default nobody wants any. It
    # stays one under `vmap` where all rows share their parameters.
    return lax.cond(
        largest > 0,
        lambda: jax.random.uniform(key, (), jnp.float32, -1.0, 1.0) * largest,
        lambda: jnp.zeros_like(largest * jnp.float32(1.0)),
    )


def _observe(state: AcrobotState) -> tuple[Obs, Array]:
    """Returns the observation, and the height of the free end above the joint, in links."""
    sine1, cosine1 = sin_cos(state.theta1)
    sine2, cosine2 = sin_cos(state.theta2)
    columns = [cosine1, sine1, cosine2, sine2, state.dtheta1, state.dtheta2]
    height = -cosine1 - (cosine1 * cosine2 - sine1 * sine2)
    return jnp.stack(columns, axis=-1).astype(jnp.float32), height
