"""Breakout by the rules of MinAtar: a 10 x 10 image environment that compiles.

A ball travels along diagonals, one cell a step. Three rows of bricks hang under the ceiling, a
paddle of one cell guards the floor. A broken brick pays 1; a ball that reaches the floor beside the
paddle ends the episode; three new rows appear when the last brick is gone and the ball comes down.

The rules are Young and Tian's, in the form that gymnax 0.0.9 gives them (`Breakout-MinAtar`): from
equal states the next state, observation, reward and termination are equal. What differs between
these sources:

- *Sticky actions.* MinAtar repeats the last action with probability 0.1 inside the environment.
  gymnax does not and neither does this page: put the `sticky_action` transform on top.
- *Time limit.* MinAtar has none, gymnax ends an episode after 1000 steps as if it had terminated.
  Here it is `Env.max_episode_steps`, so that `vectorize` reports it as a truncation.
- *After the end.* MinAtar stays ended. In gymnax a lost ball flies on below the image, unseen and
  unpaid, if its state is stepped without a reset; so it does here.
- *Observation.* MinAtar gives bool, gymnax float32 (the default here); uint8 holds 0 and 255, which
  SB3 takes for an image. Its default `CnnPolicy` network needs at least 36 x 36 pixels; this one
  wants a network of its own.

References:
  Young and Tian, MinAtar: An Atari-Inspired Testbed for Thorough and Reproducible Reinforcement
  Learning Experiments, 2019.
"""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from gymnasium.spaces import Box, Discrete

from jaxvec.core._arguments import check_one_of
from jaxvec.envs._env import Env
from jaxvec.typing import Array, Key

ImageDtype = Literal["bool", "uint8", "float32"]
SIZE = 10  # cells along a side of the field
FLOOR = SIZE - 1  # the row of the paddle
FIRST_BRICK_ROW, LAST_BRICK_ROW = 1, 3
ALL_BRICKS = (1 << SIZE * (LAST_BRICK_ROW - FIRST_BRICK_ROW + 1)) - 1
PADDLE, BALL, TRAIL, BRICK = range(4)  # the channels of an observation

PIXELS_PER_CELL = 16
BACKGROUND_COLOUR = (16, 16, 24)
COLOURS = {  # RGB, in the order of the channels
    PADDLE: (80, 200, 120),
    BALL: (250, 250, 250),
    TRAIL: (110, 110, 130),
    BRICK: (205, 90, 60),
}


@struct.dataclass
class BreakoutState:
    """One game. Rows count downwards from the ceiling, columns from the left wall."""

    ball_x: Array  # int32 [], column
    ball_y: Array  # int32 [], row
    ball_dx: Array  # int32 [], -1 or 1: columns a step
    ball_dy: Array  # int32 [], -1 (up) or 1 (down): rows a step
    paddle_x: Array  # int32 [], column
    trail_x: Array  # int32 [], the ball's column one step ago
    trail_y: Array  # int32 [], the ball's row one step ago
    bricks: Array  # uint32 [], bit 10 (row - 1) + column is set where a brick hangs; rows 1 to 3
    strike: Array  # bool [], the ball is in a brick: the next one in its way does not break


def breakout(
    image_dtype: ImageDtype = "float32", *, minimal_actions: bool = True
) -> Env[BreakoutState, tuple[()]]:
    """Returns MinAtar's Breakout.

    Observations are `[10, 10, 4]`, channels last: paddle, ball, trail (where the ball was a step
    ago) and bricks, each 0 or 1 (0 or 255 in uint8). It has no parameters, and knows no options:
    what `reset` is given is left alone, as in gymnasium.

    Args:
      image_dtype: `"float32"` (as gymnax), `"bool"` (as MinAtar), or `"uint8"` with the values 0
        and 255 (an image, for frame stacks and convolutional networks).
      minimal_actions: True gives the three actions that do something, 0 stay, 1 left, 2 right
        (gymnax's default). False gives the six that all games of MinAtar share: 0 stay, 1 left,
        2 up, 3 right, 4 down, 5 fire, of which up, down and fire stay.

    Returns:
      The environment; its time limit is gymnax's, 1000 steps.

    Raises:
      ValueError: if `image_dtype` is not one of the three.

    References:
      Young and Tian, MinAtar: An Atari-Inspired Testbed, 2019: the game Breakout.
    """
    check_one_of("breakout", "image_dtype", image_dtype, ("bool", "uint8", "float32"))
    dtype = np.dtype(image_dtype)
    bright = 255 if image_dtype == "uint8" else 1
    right = 2 if minimal_actions else 3

    def reset(
        key: Key, params: tuple[()] = (), options: Any = None
    ) -> tuple[BreakoutState, Array, dict[str, Any]]:
        state = _start(key)
        return state, _image(state, dtype, bright), {}

    def step(
        key: Key, state: BreakoutState, action: Array, params: tuple[()] = ()
    ) -> tuple[BreakoutState, Array, Array, Array, Array, dict[str, Any]]:
        _check_action(action)
        move = jnp.where(action == right, 1, jnp.where(action == 1, -1, 0))
        state, reward, terminated = _play(state, move)
        return state, _image(state, dtype, bright), reward, terminated, jnp.bool_(False), {}

    return Env(
        reset=reset,
        step=step,
        params=(),
        observation_space=Box(0, bright, (SIZE, SIZE, 4), dtype.type),
        action_space=Discrete(3 if minimal_actions else 6),
        max_episode_steps=1000,
        render=render,
        metadata={"render_modes": ["rgb_array"], "render_fps": 10},
    )


def _start(key: Key) -> BreakoutState:
    """Places the ball under the bricks at the left or the right wall, on its way down and inwards."""
    from_right = (jax.random.bits(key, (), jnp.uint32) >> 31).astype(jnp.int32)
    column, row = FLOOR * from_right, jnp.int32(LAST_BRICK_ROW)
    return BreakoutState(
        ball_x=column,
        ball_y=row,
        ball_dx=1 - 2 * from_right,
        ball_dy=jnp.int32(1),
        paddle_x=jnp.int32(4),
        trail_x=column,
        trail_y=row,
        bricks=jnp.uint32(ALL_BRICKS),
        strike=jnp.bool_(False),
    )


def _play(state: BreakoutState, move: Array) -> tuple[BreakoutState, Array, Array]:
    """Moves the paddle by `move` columns, then the ball.

    The ball meets at most one of ceiling, brick and floor, in this order; a wall at its side turns
    it beforehand. Brick and paddle turn it back: it keeps its row, but takes the new column.

    Returns:
      `(state, reward, terminated)`: float32 `[]` and bool `[]`.
    """
    paddle_x = jnp.clip(state.paddle_x + move, 0, SIZE - 1)
    x, y = state.ball_x + state.ball_dx, state.ball_y + state.ball_dy

    at_wall = (x < 0) | (x >= SIZE)
    x = jnp.clip(x, 0, SIZE - 1)
    dx = jnp.where(at_wall, -state.ball_dx, state.ball_dx)

    at_ceiling = y < 0
    y = jnp.maximum(y, 0)

    brick = jnp.uint32(1) << (SIZE * (y - FIRST_BRICK_ROW) + x).astype(jnp.uint32)
    brick = jnp.where((y >= FIRST_BRICK_ROW) & (y <= LAST_BRICK_ROW), brick, jnp.uint32(0))
    in_brick = (state.bricks & brick) != 0
    breaks = in_brick & ~state.strike
    bricks = jnp.where(breaks, state.bricks & ~brick, state.bricks)

    # The floor is no brick's row, so `bricks` is still the wall that the ball came down from.
    at_floor = y == FLOOR
    bricks = jnp.where(at_floor & (bricks == 0), jnp.uint32(ALL_BRICKS), bricks)
    caught = at_floor & (state.ball_x == paddle_x)
    caught_sideways = at_floor & (x == paddle_x) & ~caught

    turned_back = breaks | caught | caught_sideways
    next_state = BreakoutState(
        ball_x=x,
        ball_y=jnp.where(turned_back, state.ball_y, y),
        ball_dx=jnp.where(caught_sideways, -dx, dx),
        ball_dy=jnp.where(turned_back | at_ceiling, -state.ball_dy, state.ball_dy),
        paddle_x=paddle_x,
        trail_x=state.ball_x,
        trail_y=state.ball_y,
        bricks=bricks,
        strike=in_brick,
    )
    return next_state, breaks.astype(jnp.float32), at_floor & ~turned_back


def _image(state: BreakoutState, dtype: np.dtype[Any], bright: int) -> Array:
    """Draws the observation, `[10, 10, 4]`.

    Every element takes its bit from its cell's four: one fused loop without scatter, gather or
    concatenation. Of twenty ways to write it, this was XLA's fastest on the CPU once the image is
    stored (a table of masks takes twice as long).
    """
    cell_bits = 0
    for channel, cells in enumerate(_cells(state)):
        cell_bits |= cells.astype(jnp.int32) << channel
    channels = jax.lax.broadcasted_iota(jnp.int32, (SIZE, SIZE, 4), 2)
    return (((cell_bits >> channels) & 1) * bright).astype(dtype)


def _cells(state: BreakoutState) -> tuple[Array, Array, Array, Array]:
    """Tells which cells hold paddle, ball, trail and bricks: each bool `[10, 10, 1]`."""
    row = jax.lax.broadcasted_iota(jnp.int32, (SIZE, SIZE, 1), 0)
    cell = SIZE * row + jax.lax.broadcasted_iota(jnp.int32, (SIZE, SIZE, 1), 1)
    brick = state.bricks >> (cell - SIZE * FIRST_BRICK_ROW).astype(jnp.uint32)
    return (
        cell == SIZE * FLOOR + state.paddle_x,
        cell == SIZE * state.ball_y + state.ball_x,
        cell == SIZE * state.trail_y + state.trail_x,
        (row >= FIRST_BRICK_ROW) & (row <= LAST_BRICK_ROW) & ((brick & 1) != 0),
    )


def render(state: BreakoutState) -> Array:
    """Draws one game, uint8 `[160, 160, 3]`; what lies on top hides what is beneath it.

    Args:
      state: the state of ONE environment; `jax.vmap` draws more.
    """
    cells = _cells(state)
    picture = jnp.full((SIZE, SIZE, 3), jnp.asarray(BACKGROUND_COLOUR, jnp.uint8))
    for channel in (BRICK, TRAIL, BALL, PADDLE):
        picture = jnp.where(cells[channel], jnp.asarray(COLOURS[channel], jnp.uint8), picture)
    return picture.repeat(PIXELS_PER_CELL, axis=0).repeat(PIXELS_PER_CELL, axis=1)


def _check_action(action: Array) -> None:
    shape, dtype = jnp.shape(action), jnp.result_type(action)
    if shape != ():
        raise ValueError(
            f"breakout: step got an action of shape {shape}, but it plays ONE environment and needs "
            "a scalar, (); use `vectorize` or `jax.vmap` for a batch."
        )
    if not jnp.issubdtype(dtype, jnp.integer):
        raise TypeError(
            f"breakout: step got an action of dtype {dtype}, but needs an integer; "
            "cast it with `action.astype(jnp.int32)`."
        )
