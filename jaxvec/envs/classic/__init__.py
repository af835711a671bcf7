"""Gymnasium's classic control environments, written for JAX: same physics, spaces and rewards.

Each factory gives one environment; `vectorize` makes N of it and sets the time limit.
"""

from jaxvec.envs.classic.acrobot import AcrobotParams, AcrobotState, acrobot
from jaxvec.envs.classic.cart_pole import CartPoleParams, CartPoleState, cart_pole
from jaxvec.envs.classic.mountain_car import (
    ContinuousMountainCarParams,
    MountainCarParams,
    MountainCarState,
    continuous_mountain_car,
    mountain_car,
)
from jaxvec.envs.classic.pendulum import PendulumParams, PendulumState, pendulum

__all__ = [
    "AcrobotParams",
    "AcrobotState",
    "CartPoleParams",
    "CartPoleState",
    "ContinuousMountainCarParams",
    "MountainCarParams",
    "MountainCarState",
    "PendulumParams",
    "PendulumState",
    "acrobot",
    "cart_pole",
    "continuous_mountain_car",
    "mountain_car",
    "pendulum",
]
