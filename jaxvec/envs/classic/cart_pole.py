"""CartPole: a cart on a track balances a pole, pushed left or right with one fixed force."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium import spaces

from jaxvec.core._arguments import check_one_of
from jaxvec.envs._env import Env
from jaxvec.envs.classic._math import check_action, reset_bounds, sin_cos, to_float32
from jaxvec.typing import Action, Array, Key, Obs

_INTEGRATORS = ("euler", "semi-implicit euler")
_X_THRESHOLD = 2.4
_THETA_THRESHOLD = 12 * 2 * math.pi / 360


def _fixed(default: Any) -> Any:
    return struct.field(pytree_node=False, default=default)


@struct.dataclass
class CartPoleParams:
    """The numbers of a CartPole, under gymnasium's names; the last two are fixed when it compiles.

    gymnasium keeps `total_mass` and `polemass_length` as attributes of their own, which go stale when
    a mass is set; here they follow.
    """

    gravity: Array = 9.8  # [], m/s^2
    masscart: Array = 1.0  # [], kg
    masspole: Array = 0.1  # [], kg
    length: Array = 0.5  # [], m: HALF the pole's length
    force_mag: Array = 10.0  # [], N
    tau: Array = 0.02  # [], s: the time between two states
    theta_threshold_radians: Array = _THETA_THRESHOLD  # [], rad
    x_threshold: Array = _X_THRESHOLD  # [], m
    kinematics_integrator: str = _fixed("euler")
    sutton_barto_reward: bool = _fixed(False)

    @property
    def total_mass(self) -> Array:
        """The mass of cart and pole, `[]`, kg."""
        return self.masscart + self.masspole

    @property
    def polemass_length(self) -> Array:
        """The pole's mass times half its length, `[]`, kg m."""
        return self.masspole * self.length


@struct.dataclass
class CartPoleState:
    """Where cart and pole are, and how fast they move.

    One vector, which is the observation too: a compiled step then resets and keeps it once (a scan of
    2048 rows with every layer on takes 12 % less time than with four scalars).
    """

    vector: Array  # float32 [4]: x (m), its speed (m/s), the pole's angle (rad, 0 is upright), its speed


def cart_pole(
    *, sutton_barto_reward: bool = False, kinematics_integrator: str = "euler"
) -> Env[CartPoleState, CartPoleParams]:
    """Makes gymnasium's `CartPole-v1`.

    The episode ends when the pole leans more than 12 degrees or the cart leaves the track.

    Args:
      sutton_barto_reward: reward 0 a step and -1 for the fall, instead of 1 for every step.
      kinematics_integrator: "euler", or "semi-implicit euler", where positions move with the new
        velocities.

    Returns:
      The environment. Actions: 0 pushes left, 1 pushes right. Observations: float32 `[4]`, the state.
      Options of reset: "low" and "high", between which all four are drawn (-0.05 and 0.05).

    Raises:
      ValueError: if there is no such integrator.

    References:
      Barto, Sutton and Anderson, Neuronlike Adaptive Elements That Can Solve Difficult Learning
      Control Problems, 1983.
      Florian, Correct Equations for the Dynamics of the Cart-Pole System, 2007, eq. 23 and 24.
    """
    check_one_of("cart_pole", "kinematics_integrator", kinematics_integrator, _INTEGRATORS)
    params = CartPoleParams(
        kinematics_integrator=kinematics_integrator, sutton_barto_reward=sutton_barto_reward
    )
    # Twice the thresholds, so that the observation of a fall lies inside.
    high = np.array([2 * _X_THRESHOLD, np.inf, 2 * _THETA_THRESHOLD, np.inf], dtype=np.float32)
    return Env(
        reset=_reset,
        step=_step,
        params=to_float32(params),
        observation_space=spaces.Box(-high, high, dtype=np.float32),
        action_space=spaces.Discrete(2),
        max_episode_steps=500,
        metadata={"render_fps": 50},
    )


def _reset(
    key: Key, params: CartPoleParams, options: Mapping[str, Any] | None = None
) -> tuple[CartPoleState, Obs, dict[str, Any]]:
    del params
    low, high = reset_bounds("cart_pole", options, -0.05, 0.05)
    vector = jax.random.uniform(key, (4,), jnp.float32, low, high)
    return CartPoleState(vector), vector, {}


def _step(
    key: Key, state: CartPoleState, action: Action, params: CartPoleParams
) -> tuple[CartPoleState, Obs, Array, Array, Array, dict[str, Any]]:
    del key
    check_action("cart_pole", action, ())
    # Reciprocals of parameters alone: one division per call, where all rows share their parameters.
    per_mass = 1.0 / params.total_mass
    pole_per_mass = params.polemass_length * per_mass

    force = jnp.where(action == 1, params.force_mag, -params.force_mag)
    x, x_dot, theta, theta_dot = (state.vector[axis] for axis in range(4))
    sine, cosine = sin_cos(theta)
    push = force * per_mass + pole_per_mass * (theta_dot * theta_dot * sine)
    inertia = params.length * (4.0 / 3.0 - params.masspole * per_mass * (cosine * cosine))
    theta_acc = (params.gravity * sine - cosine * push) / inertia
    x_acc = push - pole_per_mass * (theta_acc * cosine)

    next_x_dot = x_dot + params.tau * x_acc
    next_theta_dot = theta_dot + params.tau * theta_acc
    if params.kinematics_integrator != "euler":
        x_dot, theta_dot = next_x_dot, next_theta_dot
    x = x + params.tau * x_dot
    theta = theta + params.tau * theta_dot
    terminated = (jnp.abs(x) > params.x_threshold) | (
        jnp.abs(theta) > params.theta_threshold_radians
    )
    if params.sutton_barto_reward:
        reward = jnp.where(terminated, jnp.float32(-1.0), jnp.float32(0.0))
    else:
        reward = jnp.float32(1.0)
    vector = jnp.stack([x, next_x_dot, theta, next_theta_dot])
    obs = vector.astype(jnp.float32)  # itself, unless x64 is enabled
    return CartPoleState(vector), obs, reward, terminated, jnp.bool_(False), {}
