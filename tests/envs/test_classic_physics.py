"""The classic environments against gymnasium's own classes, step by step from the same states."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxvec.envs import classic
from jaxvec.envs._env import Env

TRANSITIONS = 10_000
TOLERANCE = 1e-5  # relative; absolute below the scale of a variable
AT_THRESHOLD = 1e-6  # a float64 value this near (relative) to a threshold may fall to either side


@dataclass(frozen=True)
class Case:
    """One environment, and how to test it."""

    id: str
    make: Callable[..., Env[Any, Any]]
    states: Callable[
        [np.random.Generator, int], np.ndarray
    ]  # float32 [n, k], boundaries among them
    actions: Callable[[np.random.Generator, int], np.ndarray]
    scale: tuple[float, ...]  # of each state variable: where its relative error starts to count
    near: Callable[[Any, np.ndarray], np.ndarray]  # (gymnasium's, next states) -> bool [n]
    ranges: tuple[tuple[float, float], ...]  # the reset's, for each state variable
    options: dict[str, float]
    option_ranges: tuple[tuple[float, float], ...]
    periodic: tuple[int, ...] = ()  # variables that are angles wrapped at pi
    sensitive: bool = False  # some steps multiply the rounding of their own start by a thousand
    rounds: bool = False  # gymnasium rounds this one's state to float32
    fixed: tuple[str, ...] = ()  # parameters that gymnasium hard-codes

    def __str__(self):
        return self.id


def around(rng: np.random.Generator, n: int, *values: float) -> np.ndarray:
    """Draws values at, just below and just above the given ones, at distances of every magnitude."""
    distance = 10.0 ** rng.uniform(-5, -1, n) * rng.choice([-1.0, 1.0], n)
    return rng.choice(values, n) * (1.0 + distance)


def cart_pole_states(rng, n):
    limits = 2.4, 12 * 2 * math.pi / 360
    states = rng.uniform([-2.6, -3, -0.3, -4], [2.6, 3, 0.3, 4], (n, 4))
    states[: n // 10, 2] = rng.uniform(-10, 10, n // 10)
    third, tau = n // 3, 0.02
    # The next position or angle, not this one, is what lies near its threshold.
    states[-third:, 0] = around(rng, third, -limits[0], limits[0]) - tau * states[-third:, 1]
    states[-2 * third : -third, 2] = (
        around(rng, third, -limits[1], limits[1]) - tau * states[-2 * third : -third, 3]
    )
    return states


def cart_pole_near(env, states):
    thresholds = np.array([env.x_threshold, env.theta_threshold_radians])
    return (np.abs(np.abs(states[:, [0, 2]]) / thresholds - 1) < AT_THRESHOLD).any(axis=1)


def pendulum_states(rng, n):
    states = rng.uniform([-10 * math.pi, -8], [10 * math.pi, 8], (n, 2))
    third = n // 3
    states[:third, 0] = around(rng, third, math.pi, -math.pi, 3 * math.pi, 2 * math.pi)
    states[third : 2 * third, 1] = around(rng, third, -8, 8)
    states[:2] = [[0, 0], [math.pi, 0]]
    return states


def pendulum_actions(rng, n):
    actions = rng.uniform(-3, 3, (n, 1))
    actions[: n // 4, 0] = around(rng, n // 4, -2, 2)
    return actions.astype(np.float32)


def acrobot_states(rng, n):
    fastest = np.array([4 * math.pi, 9 * math.pi])
    states = rng.uniform(-1, 1, (n, 4)) * [math.pi, math.pi, *fastest]
    quarter = n // 4
    states[:quarter, :2] = around(rng, 2 * quarter, -math.pi, math.pi).reshape(-1, 2)
    states[:quarter, :2] = np.clip(states[:quarter, :2], -math.pi, math.pi)
    states[quarter : 2 * quarter, 2:] = (
        around(rng, 2 * quarter, -1, 1).reshape(-1, 2).clip(-1, 1) * fastest
    )
    # Slow ones whose free end is near the target height: -cos(a) - cos(a + b) = height.
    slow = slice(2 * quarter, 3 * quarter)
    first = rng.uniform(math.pi / 2, math.pi, quarter) * rng.choice([-1, 1], quarter)
    height = around(rng, quarter, 1.0)
    states[slow, 0] = first
    states[slow, 1] = np.arccos(np.clip(-height - np.cos(first), -1, 1)) - first
    states[slow, 1] = (states[slow, 1] + math.pi) % (2 * math.pi) - math.pi
    states[slow, 2:] *= 10.0 ** rng.uniform(-4, -1, (quarter, 2))
    return states


def acrobot_near(env, states):
    height = -np.cos(states[:, 0]) - np.cos(states[:, 0] + states[:, 1])
    return np.abs(height - 1.0) < AT_THRESHOLD


def mountain_car_states(goal):
    def states(rng, n):
        states = rng.uniform([-1.2, -0.07], [0.6, 0.07], (n, 2))
        fifth = n // 5
        wall, speed, target, slow = (slice(i * fifth, (i + 1) * fifth) for i in range(4))
        states[wall, 0] = around(rng, fifth, -1.2) - states[wall, 1]
        states[speed, 1] = around(rng, fifth, -0.07, 0.07)
        states[target, 0] = around(rng, fifth, goal, 0.6) - states[target, 1]
        # At the goal with a speed that the step brings to about zero, the least that counts.
        states[slow, 0] = rng.uniform(goal, 0.6, fifth)
        states[slow, 1] = 0.0025 * np.cos(3 * states[slow, 0]) + rng.uniform(-2e-3, 2e-3, fifth)
        states[:2] = [[-1.2, 0], [-1.2, -0.07]]
        return states

    return states


def mountain_car_near(env, states):
    position, velocity = states.T
    edges = np.array([[env.min_position], [env.goal_position]])
    # On the wall itself the position was clipped to it, which no rounding can change.
    clipped = (position == env.min_position) | (position == np.float32(env.min_position))
    at_edge = (np.abs(position - edges) < AT_THRESHOLD * np.abs(edges)) & ~clipped
    at_speed = np.abs(velocity - env.goal_velocity) < AT_THRESHOLD * env.max_speed
    return at_edge.any(axis=0) | (at_speed & (position >= env.goal_position))


def discrete(count):
    return lambda rng, n: rng.integers(0, count, n)


def continuous_car_actions(rng, n):
    actions = rng.uniform(-2, 2, (n, 1))
    actions[::4, 0] = around(rng, len(actions[::4]), -1, 1)
    return actions.astype(np.float32)


CASES = [
    Case(
        id="CartPole-v1",
        make=classic.cart_pole,
        states=cart_pole_states,
        actions=discrete(2),
        scale=(1, 1, 1, 1),
        near=cart_pole_near,
        ranges=((-0.05, 0.05),) * 4,
        options={"low": -0.2, "high": 0.1},
        option_ranges=((-0.2, 0.1),) * 4,
    ),
    Case(
        id="Pendulum-v1",
        make=classic.pendulum,
        states=pendulum_states,
        actions=pendulum_actions,
        scale=(1, 1),
        near=lambda env, states: np.zeros(len(states), bool),
        ranges=((-math.pi, math.pi), (-1.0, 1.0)),
        options={"x_init": 0.5, "y_init": 3.0},
        option_ranges=((-0.5, 0.5), (-3.0, 3.0)),
    ),
    Case(
        id="Acrobot-v1",
        make=classic.acrobot,
        states=acrobot_states,
        actions=discrete(3),
        scale=(1, 1, 1, 1),
        near=acrobot_near,
        ranges=((-0.1, 0.1),) * 4,
        options={"low": 0.0, "high": 0.3},
        option_ranges=((0.0, 0.3),) * 4,
        periodic=(0, 1),
        sensitive=True,
        fixed=("gravity",),
    ),
    Case(
        id="MountainCar-v0",
        make=classic.mountain_car,
        states=mountain_car_states(0.5),
        actions=discrete(3),
        scale=(1, 0.07),
        near=mountain_car_near,
        ranges=((-0.6, -0.4), (0.0, 0.0)),
        options={"low": -0.9, "high": 0.1},
        option_ranges=((-0.9, 0.1), (0.0, 0.0)),
    ),
    Case(
        id="MountainCarContinuous-v0",
        make=classic.continuous_mountain_car,
        states=mountain_car_states(0.45),
        actions=continuous_car_actions,
        scale=(1, 0.07),
        near=mountain_car_near,
        ranges=((-0.6, -0.4), (0.0, 0.0)),
        options={"low": -0.9, "high": 0.1},
        option_ranges=((-0.9, 0.1), (0.0, 0.0)),
        rounds=True,
        fixed=("gravity",),
    ),
]
every = pytest.mark.parametrize("case", CASES, ids=str)


def gymnasium_env(case: Case, **options: Any) -> Any:
    return gym.make(case.id, disable_env_checker=True, **options).unwrapped


def gymnasium_step(env: Any, state: np.ndarray, action: np.ndarray) -> tuple:
    """One step of gymnasium's class in float64: (state, obs, reward, terminated, truncated)."""
    env.state = np.array(state, np.float64)
    env.steps_beyond_terminated = None  # CartPole counts steps after the end, and then pays nothing
    obs, reward, *flags, _ = env.step(action.astype(np.float64) if action.ndim else action)
    return np.array(env.state, np.float64), obs, float(reward), *flags


def gymnasium_steps(env: Any, states: np.ndarray, actions: np.ndarray) -> list[np.ndarray]:
    pairs = zip(states, actions, strict=True)
    rows = [gymnasium_step(env, state, action) for state, action in pairs]
    return [np.array(column) for column in zip(*rows, strict=True)]


def packed(state: Any) -> np.ndarray:
    """A state record as an array, `[..., k]`."""
    columns = [getattr(state, field.name) for field in fields(state)]
    return np.asarray(columns[0]) if len(columns) == 1 else np.stack(columns, axis=-1)


def unpacked(env: Env[Any, Any], states: Any) -> Any:
    """An array as a state record."""
    shape, _, _ = jax.eval_shape(env.reset, jax.random.key(0), env.params)
    structure = jax.tree.structure(shape)
    if structure.num_leaves == 1:
        return jax.tree.unflatten(structure, [states])
    leaves = [states[..., index] for index in range(states.shape[-1])]
    return jax.tree.unflatten(structure, leaves)


def steps(env: Env[Any, Any], states: np.ndarray, actions: np.ndarray, params=None, rows=None):
    """Our steps from the same states, compiled: `(state, obs, reward, terminated, truncated)`."""
    keys = jax.random.split(jax.random.key(0), len(states))
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, rows)))
    params = env.params if params is None else params
    state, *rest, info = step(keys, unpacked(env, states), actions, params)
    assert info == {}
    return [packed(state), *map(np.asarray, rest)]


def difference(case: Case, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What lies between two arrays of states, or of observations."""
    between = left.astype(np.float64) - right
    if between.shape[-1] == len(case.scale):
        for index in case.periodic:
            # At the seam pi and -pi are one angle; elsewhere the numbers themselves must agree.
            seam = np.abs(np.abs(right[:, index]) - math.pi) < 1e-4
            wrapped = (between[:, index] + math.pi) % (2 * math.pi) - math.pi
            between[:, index] = np.where(seam, wrapped, between[:, index])
    return np.abs(between)


def sensitivity(case: Case, reference: Any, states: np.ndarray, actions: np.ndarray) -> list:
    """How far gymnasium's own next states and observations move when one unit in the last place of
    each variable of the (float32) start does."""
    start = gymnasium_steps(reference, states, actions)[:2]
    moved = [np.zeros(each.shape) for each in start]
    for index in range(states.shape[-1]):
        nudged = states.copy()
        nudged[:, index] = np.nextafter(nudged[:, index], np.float32(np.inf))
        for total, new, old in zip(
            moved, gymnasium_steps(reference, nudged, actions)[:2], start, strict=True
        ):
            total += difference(case, new, old)
    return moved


def assert_same_steps(case: Case, reference: Any, states, actions, ours: list) -> list[np.ndarray]:
    """Holds our steps, float32, against gymnasium's, float64; returns the latter."""
    theirs = gymnasium_steps(reference, states, actions)
    assert ours[0].dtype == ours[1].dtype == ours[2].dtype == np.float32
    keep = ~case.near(reference, theirs[0])
    assert np.mean(~keep) < 1e-3

    for column, scale in enumerate((case.scale, 1.0)):
        bound = TOLERANCE * np.maximum(np.abs(theirs[column]), scale)
        errors = difference(case, ours[column], theirs[column])
        over = keep & (errors > bound).any(axis=1)
        if case.sensitive:
            # At full speed a link turns by five radians in a step. Then float32 cannot do better, nor
            # can gymnasium's formulas in float32; what can be asked is not to be worse than a few
            # roundings of the start.
            assert over.sum() <= 3 + 0.02 * len(over)
            if over.any():
                moved = sensitivity(case, reference, states[over], actions[over])[column]
                assert (errors[over] <= bound[over] + 10 * moved).all()
        else:
            assert not over.any()
    for column in (2, 3, 4):
        np.testing.assert_allclose(
            ours[column][keep], theirs[column][keep], rtol=TOLERANCE, atol=TOLERANCE
        )
    return theirs


@every
def test_ten_thousand_single_steps_are_gymnasiums(case):
    rng = np.random.default_rng(2024)
    states = case.states(rng, TRANSITIONS).astype(np.float32)
    actions = case.actions(rng, TRANSITIONS)
    ours = steps(case.make(), states, actions)
    theirs = assert_same_steps(case, gymnasium_env(case), states, actions, ours)
    if case.id != "Pendulum-v1":  # the boundaries were reached from both sides
        assert 0.02 < theirs[3].mean() < 0.98


@every
def test_parameters_that_differ_by_row_give_what_gymnasium_gives_with_each(case):
    env, rng = case.make(), np.random.default_rng(5)
    count, each = 8, 50
    factors = {field.name: rng.uniform(0.7, 1.3, count) for field in fields(env.params)}
    for name in case.fixed:
        factors[name] = np.ones(count)
    leaves = {
        field.name: np.stack([getattr(env.params, field.name) * f for f in factors[field.name]])
        for field in fields(env.params)
        if not isinstance(getattr(env.params, field.name), bool | str)
    }
    leaves = {name: leaf.astype(np.float32) for name, leaf in leaves.items()}
    for name in ("goal_velocity", "torque_noise_max"):
        if name in leaves:  # zero by default, where a factor changes nothing
            leaves[name] = np.full(count, 0.01 if name == "goal_velocity" else 0.0, np.float32)

    states = case.states(rng, count * each).astype(np.float32)
    actions = case.actions(rng, count * each)
    params = env.params.replace(**{name: np.repeat(v, each, 0) for name, v in leaves.items()})
    ours = steps(env, states, actions, params, rows=0)
    for row in range(count):
        reference = gymnasium_env(case)
        for name, leaf in leaves.items():
            if name not in case.fixed:
                value = leaf[row].astype(np.float64)
                setattr(reference, name, value if value.ndim else float(value))
        if case.id == "CartPole-v1":
            reference.total_mass = reference.masspole + reference.masscart
            reference.polemass_length = reference.masspole * reference.length
        part = slice(row * each, (row + 1) * each)
        columns = [column[part] for column in ours]
        assert_same_steps(case, reference, states[part], actions[part], columns)


@pytest.mark.parametrize("case", [case for case in CASES if case.fixed], ids=str)
def test_gravity_that_gymnasium_hard_codes_is_a_parameter_here(case):
    env = case.make()
    states = np.full((2, len(case.scale)), 0.03, np.float32)
    actions = np.zeros((2, *env.action_space.shape), env.action_space.dtype)
    params = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), env.params)
    params = params.replace(gravity=params.gravity * np.float32([1.0, 0.0]))
    with_gravity, without = steps(env, states, actions, params, rows=0)[0]
    assert np.abs(with_gravity - without).max() > 1e-4


@pytest.mark.parametrize("integrator", ["euler", "semi-implicit euler"])
@pytest.mark.parametrize("sutton_barto_reward", [False, True])
def test_cart_poles_options_are_gymnasiums(integrator, sutton_barto_reward):
    case, rng = CASES[0], np.random.default_rng(3)
    reference = gymnasium_env(case, sutton_barto_reward=sutton_barto_reward)
    reference.kinematics_integrator = integrator
    states = case.states(rng, 1000).astype(np.float32)
    actions = case.actions(rng, 1000)
    env = case.make(sutton_barto_reward=sutton_barto_reward, kinematics_integrator=integrator)
    ours = steps(env, states, actions)
    theirs = assert_same_steps(case, reference, states, actions, ours)
    assert set(theirs[2]) == ({0.0, -1.0} if sutton_barto_reward else {1.0})


def test_acrobots_equations_of_the_paper_are_gymnasiums():
    case, rng = CASES[2], np.random.default_rng(3)
    reference = gymnasium_env(case)
    reference.book_or_nips = "nips"
    states = case.states(rng, 1000).astype(np.float32)
    actions = case.actions(rng, 1000)
    ours = steps(case.make(book_or_nips="nips"), states, actions)
    assert_same_steps(case, reference, states, actions, ours)
    book = gymnasium_steps(gymnasium_env(case), states, actions)
    assert np.abs(ours[0] - book[0]).max() > 0.1


def test_the_options_of_make_reach_the_parameters():
    assert classic.pendulum(g=9.81).params.g == np.float32(9.81)
    assert classic.mountain_car(goal_velocity=0.05).params.goal_velocity == np.float32(0.05)
    made = classic.continuous_mountain_car(goal_velocity=0.1)
    assert made.params.goal_velocity == np.float32(0.1)


def test_options_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="kinematics_integrator='rk4'"):
        classic.cart_pole(kinematics_integrator="rk4")
    with pytest.raises(ValueError, match="book_or_nips='java'"):
        classic.acrobot(book_or_nips="java")


def test_acrobots_torque_noise_is_uniform_and_none_by_default():
    env, count = classic.acrobot(), 5000
    keys = jax.random.split(jax.random.key(1), count)
    rest = unpacked(env, np.zeros((count, 4), np.float32))
    step = jax.jit(jax.vmap(env.step, in_axes=(0, 0, 0, None)))
    # From how two hanging links move in an instant follows the torque; the entries of the mass matrix:
    dt, d1, d2, d3 = 1e-3, 4.5, 1.75, 1.25

    def torques(**changes: float) -> np.ndarray:
        params = env.params.replace(dt=np.float32(dt), **changes)
        state, *_ = step(keys, rest, np.full(count, 2), params)
        return np.asarray(state.dtheta2) * (d1 * d3 - d2 * d2) / (d1 * dt)

    np.testing.assert_allclose(torques(), 1.0, rtol=1e-4)
    noisy = torques(torque_noise_max=np.float32(0.5))
    assert stats.kstest(noisy, stats.uniform(0.5, 1.0).cdf).pvalue > 1e-3


@every
def test_spaces_time_limit_and_frame_rate_are_gymnasiums(case):
    env, reference = case.make(), gym.make(case.id)
    assert env.observation_space == reference.observation_space
    assert env.action_space == reference.action_space
    assert env.max_episode_steps == reference.spec.max_episode_steps
    assert env.metadata["render_fps"] == reference.metadata["render_fps"]


@every
def test_default_parameters_are_gymnasiums_attributes(case):
    params, reference = case.make().params, gymnasium_env(case)
    for field in fields(params):
        ours = getattr(params, field.name)
        if field.name == "sutton_barto_reward" or field.name in case.fixed:
            continue
        theirs = getattr(reference, field.name)
        if isinstance(ours, str):
            assert ours == theirs
        else:
            assert ours.dtype == np.float32
            np.testing.assert_array_equal(ours, np.asarray(theirs, np.float32))


def test_cart_poles_derived_masses_follow_what_they_are_derived_from():
    params, reference = classic.cart_pole().params, gymnasium_env(CASES[0])
    assert params.total_mass == pytest.approx(reference.total_mass)
    assert params.polemass_length == pytest.approx(reference.polemass_length)
    assert params.replace(masscart=np.float32(2.0)).total_mass == pytest.approx(2.1)


def resets(case: Case, count: int, options: Any = None) -> np.ndarray:
    env = case.make()
    keys = jax.random.split(jax.random.key(11), count)
    reset = jax.jit(jax.vmap(env.reset, in_axes=(0, None, None)))
    state, obs, info = reset(keys, env.params, options)
    assert info == {}
    assert obs.shape == (count, *env.observation_space.shape)
    return packed(state)


@every
@pytest.mark.parametrize("with_options", [False, True])
def test_resets_are_drawn_as_gymnasium_draws_them(case, with_options):
    options = case.options if with_options else None
    ranges = case.option_ranges if with_options else case.ranges
    ours = resets(case, 20_000, options)
    reference = gymnasium_env(case)
    reference.reset(seed=0)
    theirs = []
    for _ in range(4000):
        reference.reset(options=options)
        theirs.append(np.array(reference.state, np.float64))
    for mine, other, (low, high) in zip(ours.T, np.array(theirs).T, ranges, strict=True):
        if low == high:
            assert (mine == low).all()
            continue
        assert np.float32(low) <= mine.min()
        assert mine.max() <= np.float32(high)
        assert stats.kstest(mine, stats.uniform(low, high - low).cdf).pvalue > 1e-3
        assert stats.ks_2samp(mine, other).pvalue > 1e-3


@every
def test_what_a_reset_draws_is_independent_from_variable_to_variable(case):
    drawn = np.array([low < high for low, high in case.ranges])
    correlation = np.corrcoef(resets(case, 20_000)[:, drawn], rowvar=False)
    assert np.abs(np.atleast_2d(correlation) - np.eye(drawn.sum())).max() < 0.03


@every
def test_the_first_observation_is_gymnasiums_of_that_state(case):
    env, reference = case.make(), gymnasium_env(case)
    state, obs, _ = jax.jit(env.reset)(jax.random.key(3), env.params)
    reference.state = packed(state).astype(np.float64)
    observe = {"Pendulum-v1": "_get_obs", "Acrobot-v1": "_get_ob"}.get(case.id)
    expected = getattr(reference, observe)() if observe else packed(state)
    np.testing.assert_allclose(obs, expected, rtol=0, atol=1e-7)
    assert env.observation_space.contains(np.asarray(obs))


def test_one_option_alone_leaves_the_other_at_its_default():
    angles, velocities = resets(CASES[1], 2000, {"y_init": 3.0}).T
    assert 3.0 < np.abs(angles).max() <= math.pi
    assert 2.9 < np.abs(velocities).max() <= 3.0
    for case, (low, high) in ((CASES[0], (-0.2, 0.05)), (CASES[3], (-0.9, -0.4))):
        column = resets(case, 2000, {"low": low})[:, 0]
        assert low <= column.min() < low + 0.01
        assert high - 0.01 < column.max() <= np.float32(high)


def test_bounds_the_wrong_way_round_are_refused():
    for case in CASES:
        env = case.make()
        if "low" in case.options:
            with pytest.raises(ValueError, match="must not be above high"):
                env.reset(jax.random.key(0), env.params, {"low": 1.0, "high": 0.5})


@every
def test_actions_of_another_shape_are_refused(case):
    env = case.make()
    state = unpacked(env, np.zeros(len(case.scale), np.float32))
    wrong = np.zeros((2,), env.action_space.dtype)
    with pytest.raises(ValueError, match="step: the action has shape"):
        env.step(jax.random.key(0), state, wrong, env.params)


def avals(tree: Any) -> list:
    return [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in jax.tree.leaves(tree)]


@every
@pytest.mark.parametrize("params_as_arguments", [False, True])
def test_every_array_is_strong_and_the_same_after_reset_and_step(case, params_as_arguments):
    env, key = case.make(), jax.random.key(0)
    # As vectorize has it both ways: compiled in, or a part of the traced state.
    params = jax.tree.map(jnp.asarray, env.params) if params_as_arguments else env.params
    action = jax.ShapeDtypeStruct(
        env.action_space.shape, jax.dtypes.canonicalize_dtype(env.action_space.dtype)
    )
    reset = lambda: env.reset(key, params)  # noqa: E731
    state, obs, info = jax.eval_shape(reset)
    stepped = jax.eval_shape(lambda s, a: env.step(key, s, a, params), state, action)
    next_state, next_obs, reward, terminated, truncated, next_info = stepped
    assert jax.tree.structure((state, obs, info)) == jax.tree.structure(
        (next_state, next_obs, next_info)
    )
    assert avals((state, obs)) == avals((next_state, next_obs))
    assert all(dtype == np.float32 and not weak for _, dtype, weak in avals((state, obs)))
    assert avals(reward) == [((), np.dtype(np.float32), False)]
    assert avals((terminated, truncated)) == [((), np.dtype(bool), False)] * 2


@every
def test_a_step_compiles_once_from_reset_through_a_rollout(case):
    env, traces = case.make(), []

    @jax.jit
    def step(key, state, action, params):
        traces.append(1)
        return env.step(key, state, action, params)

    keys = jax.random.split(jax.random.key(0), 4)
    state, _, _ = jax.jit(env.reset)(keys[0], env.params)
    for key in keys:
        state, *_ = step(key, state, env.action_space.sample(), env.params)
    assert len(traces) == 1


def exact_params(env: Env[Any, Any]) -> Any:
    """The default parameters in float64, as they are written and not rounded to float32."""
    return jax.tree.map(np.float64, type(env.params)())


@every
@pytest.mark.parametrize("seed", range(3))
def test_a_rollout_in_float64_follows_gymnasiums_trajectory(case, seed):
    # As long as an episode may be. (A pendulum near its top is chaotic: after 450 steps a difference
    # of 1e-16 has become 1e-9.)
    length = gym.spec(case.id).max_episode_steps
    reference = gymnasium_env(case)
    reference.reset(seed=seed)
    start = np.array(reference.state, np.float64)
    actions = case.actions(np.random.default_rng(seed), length)
    theirs, state = [], start
    for action in actions:
        state, *rest = gymnasium_step(reference, state, action)
        theirs.append((state, *rest))
    states, obs, rewards, terminated, _ = (np.array(each) for each in zip(*theirs, strict=True))

    with jax.enable_x64(True):
        env = case.make()
        params = exact_params(env)

        def advance(state, action):
            state, obs, reward, terminated, _, _ = env.step(
                jax.random.key(0), state, action, params
            )
            if case.rounds:
                state = jax.tree.map(
                    lambda leaf: leaf.astype(jnp.float32).astype(leaf.dtype), state
                )
            return state, (state, obs, reward, terminated)

        actions = actions.astype(np.float64) if actions.ndim > 1 else actions
        _, ours = jax.jit(lambda s, a: jax.lax.scan(advance, s, a))(unpacked(env, start), actions)
        trajectory = packed(ours[0])
    assert trajectory.dtype == np.float64
    np.testing.assert_allclose(trajectory, states, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours[1], obs, rtol=2e-7, atol=2e-7)
    np.testing.assert_allclose(ours[2], rewards, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(ours[3], terminated)
    assert np.ptp(trajectory, axis=0).min() > 1e-2  # it went somewhere
