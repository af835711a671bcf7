"""Who draws an environment: itself, or gymnasium's class of the same name, fed with one row's state."""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np

from jaxvec.errors import MissingExtraError
from jaxvec.typing import Array, PyTree

Painter = Callable[[PyTree, PyTree], Array]
"""`(state, params) -> uint8 [H, W, 3]`, of one environment."""

_CLASSIC = {
    "CartPole-v1": ("cartpole", "CartPoleEnv", ("length", "x_threshold")),
    "Acrobot-v1": ("acrobot", "AcrobotEnv", ("LINK_LENGTH_1", "LINK_LENGTH_2")),
    "Pendulum-v1": ("pendulum", "PendulumEnv", ()),
    "MountainCar-v0": (
        "mountain_car",
        "MountainCarEnv",
        ("min_position", "max_position", "goal_position"),
    ),
    "MountainCarContinuous-v0": (
        "continuous_mountain_car",
        "Continuous_MountainCarEnv",
        ("min_position", "max_position", "goal_position"),
    ),
}
"""Name to module and class of gymnasium's, and the parameters that show in the picture."""


def is_drawable(env: Any) -> bool:
    """Tells whether `painter_of` has something that draws an environment (a `jaxvec.Env`) here."""
    if env.render is not None:
        return True
    return (env.metadata or {}).get("name") in _CLASSIC and find_spec("pygame") is not None


def painter_of(env: Any) -> Painter | None:
    """Returns what draws an environment; None if nothing is known that does.

    Args:
      env: a `jaxvec.Env`. Its own `render` draws it if it has one; else gymnasium's renderer does, where
        `metadata["name"]` is that of a classic environment.

    Raises:
      MissingExtraError: if gymnasium's renderer needs pygame, and that is not installed.
    """
    if env.render is not None:
        draw = jax.jit(env.render)
        return lambda state, params: np.asarray(draw(state))
    known = _CLASSIC.get((env.metadata or {}).get("name", ""))
    return None if known is None else _classic_painter(*known)


def _classic_painter(module: str, name: str, shown: tuple[str, ...]) -> Painter:
    try:
        import_module("pygame")
    except ImportError as error:
        raise MissingExtraError(
            f"Pictures of {name} are drawn by gymnasium with pygame, which is not installed: install "
            "jaxvec[video], or make the environments without a render_mode."
        ) from error
    # It never steps: its state and what shows of its parameters are put in from outside.
    canvas: Any = getattr(import_module(f"gymnasium.envs.classic_control.{module}"), name)(
        render_mode="rgb_array"
    )

    canvas.reset(seed=0)
    usual = {parameter: getattr(canvas, parameter) for parameter in shown}

    def paint(state: PyTree, params: PyTree) -> Array:
        leaves = [np.ravel(leaf) for leaf in jax.tree.leaves(state)]
        canvas.state = np.concatenate(leaves).astype(np.float64)
        for parameter, value in usual.items():
            given = np.float32(getattr(params, parameter))
            # Rounded to float32 the usual value would move edges by a pixel.
            setattr(canvas, parameter, value if given == np.float32(value) else float(given))
        return np.asarray(canvas.render(), np.uint8)

    return paint
