"""MinAtar's Breakout: single positions by hand, and every transition against gymnax."""

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from jaxvec.envs.minatar_breakout import (
    ALL_BRICKS,
    BACKGROUND_COLOUR,
    COLOURS,
    BreakoutState,
    breakout,
)
from tests.modes import in_32_bits

STAY, LEFT, RIGHT = 0, 1, 2
PADDLE, BALL, TRAIL, BRICK = range(4)
ENV = breakout()
RESET, STEP = jax.jit(ENV.reset), jax.jit(ENV.step)


def position(ball, direction, *, paddle=0, bricks=ALL_BRICKS, strike=False):
    """One game: ball is (row, column), direction (rows, columns) a step, the trail is far away."""
    integer = partial(np.asarray, dtype=np.int32)
    return BreakoutState(
        ball_x=integer(ball[1]),
        ball_y=integer(ball[0]),
        ball_dx=integer(direction[1]),
        ball_dy=integer(direction[0]),
        paddle_x=integer(paddle),
        trail_x=integer(9),
        trail_y=integer(0),
        bricks=np.asarray(bricks, np.uint32),
        strike=np.asarray(strike, bool),
    )


def play(state, action=STAY):
    state, obs, reward, terminated, truncated, info = STEP(jax.random.key(0), state, action, ())
    assert not truncated
    assert info == {}
    return state, np.asarray(obs), float(reward), bool(terminated)


def ball_of(state):
    """(row, column), (rows, columns) a step."""
    place = int(state.ball_y), int(state.ball_x)
    return place, (int(state.ball_dy), int(state.ball_dx))


def brick_bit(row, column):
    return 1 << (10 * (row - 1) + column)


# By hand -------------------------------------------------------------------------------------


def test_a_game_starts_at_either_wall_with_all_bricks_and_the_paddle_in_the_middle():
    starts = set()
    for seed in range(20):
        state, obs, info = RESET(jax.random.key(seed), ())
        starts.add(ball_of(state))
        expected = np.zeros((10, 10, 4), np.float32)
        expected[9, 4, PADDLE] = 1
        expected[3, int(state.ball_x), [BALL, TRAIL]] = 1
        expected[1:4, :, BRICK] = 1
        np.testing.assert_array_equal(obs, expected)
        assert info == {}
    assert starts == {((3, 0), (1, 1)), ((3, 9), (1, -1))}


def test_half_of_the_games_start_at_the_right_wall():
    keys = jax.random.split(jax.random.key(0), 10_000)
    state, _, _ = jax.jit(jax.vmap(lambda key: ENV.reset(key, ())))(keys)
    # The standard deviation of the share is 0.005.
    assert np.mean(np.asarray(state.ball_x) == 9) == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("direction", [(-1, -1), (-1, 1), (1, -1), (1, 1)])
def test_the_ball_flies_along_a_diagonal_and_leaves_a_trail(direction):
    state, obs, reward, terminated = play(position((6, 5), direction))
    assert ball_of(state) == ((6 + direction[0], 5 + direction[1]), direction)
    assert np.argwhere(obs[..., BALL]).tolist() == [[6 + direction[0], 5 + direction[1]]]
    assert np.argwhere(obs[..., TRAIL]).tolist() == [[6, 5]]
    assert (reward, terminated) == (0, False)


@pytest.mark.parametrize(("column", "columns"), [(0, -1), (9, 1)])
def test_a_side_wall_turns_the_ball_which_stays_in_its_column(column, columns):
    state, *_ = play(position((6, column), (1, columns)))
    assert ball_of(state) == ((7, column), (1, -columns))


def test_the_ceiling_turns_the_ball_which_stays_in_its_row():
    state, *_ = play(position((0, 4), (-1, 1)))
    assert ball_of(state) == ((0, 5), (1, 1))


@pytest.mark.parametrize(("column", "columns"), [(0, -1), (9, 1)])
def test_an_upper_corner_turns_the_ball_around(column, columns):
    state, *_ = play(position((0, column), (-1, columns)))
    assert ball_of(state) == ((0, column), (1, -columns))


def test_a_brick_breaks_pays_one_and_turns_the_ball_which_stays_in_its_row():
    state, obs, reward, terminated = play(position((4, 4), (-1, 1)))
    assert (reward, terminated) == (1, False)
    assert ball_of(state) == ((4, 5), (1, 1))
    assert int(state.bricks) == ALL_BRICKS & ~brick_bit(3, 5)
    assert obs[3, 5, BRICK] == 0
    assert obs[..., BRICK].sum() == 29
    assert state.strike


def test_a_brick_breaks_from_above_too():
    state, _, reward, _ = play(position((0, 4), (1, -1), bricks=brick_bit(1, 3)))
    assert reward == 1
    assert ball_of(state) == ((0, 3), (-1, -1))
    assert int(state.bricks) == 0


def test_a_ball_that_struck_flies_through_the_next_brick():
    state, _, reward, _ = play(position((4, 4), (-1, 1), strike=True))
    assert reward == 0
    assert ball_of(state) == ((3, 5), (-1, 1))
    assert int(state.bricks) == ALL_BRICKS
    assert state.strike


def test_a_ball_in_the_open_may_strike_again():
    state, *_ = play(position((4, 4), (1, 1), strike=True))
    assert not state.strike
    state, *_ = play(position((0, 4), (-1, 1), strike=True))
    assert not state.strike


@pytest.mark.parametrize("columns", [-1, 1])
def test_a_paddle_beneath_the_ball_returns_it_upwards(columns):
    state, _, reward, terminated = play(position((8, 4), (1, columns), paddle=4))
    assert ball_of(state) == ((8, 4 + columns), (-1, columns))
    assert (reward, terminated) == (0, False)


@pytest.mark.parametrize("columns", [-1, 1])
def test_a_paddle_where_the_ball_arrives_returns_it_whence_it_came(columns):
    state, _, _, terminated = play(position((8, 4), (1, columns), paddle=4 + columns))
    assert ball_of(state) == ((8, 4 + columns), (-1, -columns))
    assert not terminated


@pytest.mark.parametrize(("column", "columns"), [(0, -1), (9, 1)])
def test_a_paddle_in_the_corner_returns_a_ball_that_the_wall_turned(column, columns):
    state, _, _, terminated = play(position((8, column), (1, columns), paddle=column))
    assert ball_of(state) == ((8, column), (-1, -columns))
    assert not terminated


def test_the_paddle_moves_before_the_ball_so_that_a_step_may_save_or_lose_it():
    assert not play(position((8, 4), (1, 1), paddle=3), RIGHT)[3]
    assert play(position((8, 4), (1, 1), paddle=3), STAY)[3]
    assert play(position((8, 4), (1, 1), paddle=4), LEFT)[3]
    assert not play(position((8, 4), (1, 1), paddle=6), LEFT)[3]


def test_a_ball_beside_the_paddle_ends_the_game_on_the_floor():
    state, obs, reward, terminated = play(position((8, 4), (1, 1), paddle=0))
    assert (reward, terminated) == (0, True)
    assert ball_of(state) == ((9, 5), (1, 1))
    assert obs[9, 5, BALL] == 1


def test_new_rows_appear_when_the_ball_comes_down_after_the_last_brick():
    state, obs, reward, _ = play(position((4, 4), (-1, 1), paddle=7, bricks=brick_bit(3, 5)))
    assert reward == 1
    assert int(state.bricks) == 0
    assert obs[..., BRICK].sum() == 0
    for _ in range(4):
        assert int(state.bricks) == 0
        state, obs, reward, terminated = play(state)
    assert ball_of(state) == ((8, 9), (1, 1))
    state, obs, reward, terminated = play(state, RIGHT)
    assert (reward, terminated) == (0, True)
    assert int(state.bricks) == ALL_BRICKS
    np.testing.assert_array_equal(obs[..., BRICK].sum(axis=1), [0, 10, 10, 10, 0, 0, 0, 0, 0, 0])


def test_a_catch_brings_new_rows_only_where_none_is_left():
    assert int(play(position((8, 4), (1, 1), paddle=4, bricks=0))[0].bricks) == ALL_BRICKS
    assert int(play(position((8, 4), (1, 1), paddle=4, bricks=1))[0].bricks) == 1


def test_the_paddle_stops_at_the_walls():
    assert [int(play(position((5, 5), (1, 1), paddle=0), a)[0].paddle_x) for a in range(3)] == [
        *(0, 0, 1)
    ]
    assert [int(play(position((5, 5), (1, 1), paddle=9), a)[0].paddle_x) for a in range(3)] == [
        *(9, 8, 9)
    ]


def test_of_six_actions_only_left_and_right_move_the_paddle():
    env = breakout(minimal_actions=False)
    assert env.action_space == Discrete(6)
    start, key = position((5, 5), (1, 1), paddle=4), jax.random.key(0)
    step = jax.jit(env.step)
    columns = [int(step(key, start, action, ())[0].paddle_x) for action in range(6)]
    assert columns == [4, 3, 4, 5, 4, 4]


# The record ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("image_dtype", "bright"), [("float32", 1), ("bool", 1), ("uint8", 255)])
def test_images_of_every_dtype_show_the_same_game_and_lie_in_their_space(image_dtype, bright):
    env = breakout(image_dtype)
    start = position((8, 4), (1, 1), paddle=4, bricks=brick_bit(2, 7))
    _, obs, *_ = env.step(jax.random.key(0), start, LEFT, ())
    expected = np.zeros((10, 10, 4), image_dtype)
    expected[9, 3, PADDLE] = expected[9, 5, BALL] = expected[8, 4, TRAIL] = bright
    expected[2, 7, BRICK] = bright
    assert obs.dtype == image_dtype
    np.testing.assert_array_equal(obs, expected)
    assert env.observation_space.contains(np.asarray(obs))
    assert env.observation_space == Box(0, bright, (10, 10, 4), np.dtype(image_dtype).type)


def test_the_uint8_image_is_an_image_to_sb3():
    preprocessing = pytest.importorskip(
        "stable_baselines3.common.preprocessing", reason="stable-baselines3 is not installed"
    )
    space = breakout("uint8").observation_space
    assert preprocessing.is_image_space(space, check_channels=True)
    assert not preprocessing.is_image_space_channels_first(space)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("image_dtype", ["float32", "bool", "uint8"])
def test_reset_and_step_give_the_same_strong_types(image_dtype, x64):
    env = breakout(image_dtype)
    with jax.enable_x64(x64):
        key = jax.random.key(0)
        first = jax.eval_shape(env.reset, key, ())
        then = jax.eval_shape(env.step, key, first[0], jax.ShapeDtypeStruct((), np.int32), ())
    assert jax.tree.map(str, first[:2]) == jax.tree.map(str, then[:2])
    described = [(leaf.shape, leaf.dtype.name) for leaf in jax.tree.leaves(first[0])]
    assert described == [((), "int32")] * 7 + [((), "uint32"), ((), "bool")]
    reward, terminated, truncated = then[2:5]
    assert (reward.dtype, terminated.dtype, truncated.dtype) == (np.float32, bool, bool)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves((first, then)))


def test_a_step_is_traced_once_for_states_of_reset_and_of_step():
    traces = []

    @jax.jit
    def step(key, state, action):
        traces.append(state)
        return ENV.step(key, state, action, ())

    key = jax.random.key(0)
    state, _, _ = RESET(key, ())
    for action in (1, 2, 0):
        state, *_ = step(key, state, jnp.int32(action))
    assert len(traces) == 1


def test_a_raw_key_starts_a_game():
    state, _, _ = RESET(jax.random.PRNGKey(0), ())
    assert int(state.ball_x) in (0, 9)


def test_the_record_holds_the_limit_and_the_picture():
    assert ENV.max_episode_steps == 1000
    assert ENV.params == ()
    assert ENV.render is not None
    assert ENV.action_space == Discrete(3)


def test_an_unknown_image_dtype_is_refused():
    with pytest.raises(ValueError, match="image_dtype='float64' is not an option"):
        breakout("float64")


def test_an_action_of_another_shape_or_kind_is_refused():
    start = position((5, 5), (1, 1))
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        ENV.step(jax.random.key(0), start, np.zeros(2, np.int32), ())
    with pytest.raises(TypeError, match="dtype float32"):
        ENV.step(jax.random.key(0), start, np.float32(1), ())


def test_the_picture_shows_every_cell_in_the_colour_of_what_lies_on_top():
    start = position((8, 5), (1, 1), paddle=5, bricks=brick_bit(2, 0) | brick_bit(3, 9))
    start = start.replace(trail_y=np.int32(7), trail_x=np.int32(4))
    picture = np.asarray(ENV.render(start))
    assert (picture.shape, picture.dtype) == ((160, 160, 3), np.uint8)
    expected = np.full((10, 10, 3), BACKGROUND_COLOUR)
    expected[9, 5], expected[8, 5], expected[7, 4] = COLOURS[0], COLOURS[1], COLOURS[2]
    expected[2, 0] = expected[3, 9] = COLOURS[3]
    for corner in (0, 15):
        np.testing.assert_array_equal(picture[corner::16, corner::16], expected)
    assert len({BACKGROUND_COLOUR, *COLOURS.values()}) == 5


def test_the_ball_hides_its_trail_and_the_brick_it_flies_through():
    state, *_ = RESET(jax.random.key(0), ())
    picture = np.asarray(ENV.render(state))
    assert tuple(picture[3 * 16, int(state.ball_x) * 16]) == COLOURS[BALL]


# Against gymnax --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def peer():
    """gymnax's environment with its raw step, over `[N]` states of ours."""
    gymnax_breakout = pytest.importorskip(
        "gymnax.environments.minatar.breakout", reason="gymnax (the extra `envs`) is not installed"
    )
    env = gymnax_breakout.MinBreakout()

    @jax.jit
    @jax.vmap
    def step(state, action):
        return env.step_env(jax.random.key(0), state, action, env.default_params)

    def step_quietly(state, action):
        with warnings.catch_warnings():
            # gymnax writes integers into a bool image while it is traced.
            warnings.filterwarnings("ignore", "scatter inputs have incompatible", FutureWarning)
            return step(peer_state(gymnax_breakout.EnvState, state), action)

    return env, step_quietly


def peer_state(record, state):
    """Writes `[N]` states of ours in gymnax's words."""
    rows = len(state.bricks)
    walls = np.zeros((rows, 10, 10), np.float32)
    bits = np.asarray(state.bricks)[:, None] >> np.arange(30, dtype=np.uint32) & 1
    walls[:, 1:4] = bits.reshape(rows, 3, 10)
    right, down = np.asarray(state.ball_dx) > 0, np.asarray(state.ball_dy) > 0
    return record(
        ball_y=state.ball_y,
        ball_x=state.ball_x,
        # Clockwise from the upper left.
        ball_dir=np.where(down, np.where(right, 2, 3), np.where(right, 1, 0)).astype(np.int32),
        pos=state.paddle_x,
        brick_map=walls,
        strike=state.strike,
        last_y=state.trail_y,
        last_x=state.trail_x,
        time=np.zeros(rows, np.int32),
        terminal=np.zeros(rows, bool),
    )


@jax.jit
@jax.vmap
def our_step(state, action):
    return ENV.step(jax.random.key(0), state, action, ())


def assert_equal_transitions(peer, state, action):
    _, step = peer
    obs, theirs, reward, terminated, _ = step(state, action)
    ours = our_step(state, action)
    expected = peer_state(type(theirs), ours[0])
    for name in expected.__dataclass_fields__:
        if name not in ("time", "terminal"):  # ours lie outside of the state
            np.testing.assert_array_equal(getattr(theirs, name), getattr(expected, name), name)
    np.testing.assert_array_equal(ours[1], obs)
    np.testing.assert_array_equal(ours[2], reward)
    np.testing.assert_array_equal(ours[3], terminated)
    assert (ours[1].dtype, ours[2].dtype) == (obs.dtype, reward.dtype)
    assert not np.any(ours[4])
    return ours


def test_the_spaces_and_the_time_limit_are_those_of_gymnax(peer):
    env, _ = peer
    theirs = env.observation_space(env.default_params)
    assert ENV.observation_space == Box(theirs.low, theirs.high, theirs.shape, theirs.dtype)
    assert ENV.action_space.n == env.action_space().n
    assert breakout(minimal_actions=False).action_space.n == type(env)(False).action_space().n
    assert ENV.max_episode_steps == env.default_params.max_steps_in_episode


@pytest.mark.parametrize("bricks", ["all", "none", "some", "few"])
@in_32_bits("gymnax's own step mixes 32 and 64")
def test_every_place_direction_paddle_strike_and_action_steps_as_in_gymnax(peer, bricks):
    """24000 transitions a case: all there are but for the bricks and the trail."""
    grid = np.meshgrid(*map(np.arange, (10, 10, 2, 2, 10, 2, 3)), indexing="ij")
    y, x, down, right, paddle, strike, action = (axis.ravel().astype(np.int32) for axis in grid)
    random = np.random.default_rng(0)
    drawn = random.integers(0, 1 << 30, (3, len(x)), dtype=np.uint32)
    state = BreakoutState(
        ball_x=x,
        ball_y=y,
        ball_dx=2 * right - 1,
        ball_dy=2 * down - 1,
        paddle_x=paddle,
        trail_x=random.integers(0, 10, len(x), dtype=np.int32),
        trail_y=random.integers(0, 10, len(x), dtype=np.int32),
        bricks={
            "all": np.full(len(x), ALL_BRICKS, np.uint32),
            "none": np.zeros(len(x), np.uint32),
            "some": drawn[0],
            "few": drawn[0] & drawn[1] & drawn[2],
        }[bricks],
        strike=strike.astype(bool),
    )
    assert len(x) == 24_000
    assert_equal_transitions(peer, state, action)


@in_32_bits("gymnax's own step mixes 32 and 64")
def test_the_last_brick_breaks_as_in_gymnax_wherever_it_hangs(peer):
    place, direction = np.meshgrid(np.arange(30), np.arange(4), indexing="ij")
    place, direction = place.ravel(), direction.ravel()
    dy, dx = direction // 2 * 2 - 1, direction % 2 * 2 - 1
    column = place % 10 - dx
    inside = (column >= 0) & (column <= 9)
    place, dy, dx, column = place[inside], dy[inside], dx[inside], column[inside]
    one = position((0, 0), (1, 1))
    state = jax.tree.map(lambda leaf: np.full(len(place), leaf, leaf.dtype), one).replace(
        ball_x=column.astype(np.int32),
        ball_y=(1 + place // 10 - dy).astype(np.int32),
        ball_dx=dx.astype(np.int32),
        ball_dy=dy.astype(np.int32),
        bricks=(np.uint32(1) << place.astype(np.uint32)),
    )
    after, _, reward, _, _, _ = assert_equal_transitions(
        peer, state, np.zeros(len(place), np.int32)
    )
    assert np.all(np.asarray(reward) == 1)
    assert not np.any(np.asarray(after.bricks))


@jax.jit
def play_games(key):
    """128 games of 500 steps, begun anew where they end; half of the rows chase the ball."""
    games, steps = 128, 500
    reset_key, action_key = jax.random.split(key)
    fresh, _, _ = jax.vmap(lambda key: ENV.reset(key, ()))(jax.random.split(reset_key, games))

    def body(state, drawn):
        ahead = state.ball_x - state.paddle_x
        chase = jnp.where(ahead > 0, RIGHT, jnp.where(ahead < 0, LEFT, STAY))
        action = jnp.where(jnp.arange(games) % 2 == 0, chase, drawn)
        after, _, _, ended, _, _ = our_step(state, action)
        return jax.tree.map(partial(jnp.where, ended), fresh, after), (state, action)

    drawn = jax.random.randint(action_key, (steps, games), 0, 3)
    _, visited = jax.lax.scan(body, fresh, drawn)
    return jax.tree.map(lambda leaf: leaf.reshape(games * steps), visited)


@in_32_bits("gymnax's own step mixes 32 and 64")
def test_whole_games_run_as_in_gymnax_whoever_plays(peer):
    state, action = jax.tree.map(np.asarray, play_games(jax.random.key(2)))
    assert len(action) == 64_000
    after, _, _, terminated, _, _ = assert_equal_transitions(peer, state, action)
    assert np.sum(terminated) > 100
    assert np.any((state.bricks == 0) & (np.asarray(after.bricks) == ALL_BRICKS))


@in_32_bits("gymnax's own step mixes 32 and 64")
def test_a_lost_ball_flies_on_beneath_the_image_as_in_gymnax(peer):
    state = jax.tree.map(lambda leaf: leaf[None], position((8, 4), (1, 1)))
    for _ in range(4):
        state, *_ = assert_equal_transitions(peer, state, np.zeros(1, np.int32))
    assert int(state.ball_y[0]) == 12
