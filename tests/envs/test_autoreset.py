"""When a row that ended starts anew: the three modes, with every column written by hand.

A step's reward is its number within the episode. Actions script the ends: row 0 has episodes of 2 steps,
row 1 of 3.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from jaxvec import (
    episode_statistics,
    normalize_observation,
    normalize_reward,
    vectorize,
    wrap,
)
from jaxvec.envs._resets import RESET_SOURCES
from tests.envs.toys import TERMINATE, CounterParams, assert_same, avals, counter, play, simple

pytestmark = pytest.mark.usefixtures("quick_compilation")

MODES = [mode.value for mode in AutoresetMode]
LONG = CounterParams(length=100)
T, F, X = True, False, -9  # X: the column means nothing there

# Rows 0 and 1, steps 1 to 7. `t` is the count in `obs`. Action 1 truncates, 2 terminates, 3 does both; the
# actions of steps that only reset must not be used, so they would end the new episode.
TABLES = {
    "SameStep": {
        "action": ([0, 2, 0, 1, 0, 3, 0], [0, 0, 1, 0, 0, 2, 0]),
        "t": ([1, 0, 1, 0, 1, 0, 1], [1, 2, 0, 1, 2, 0, 1]),
        "final t": ([1, 2, 1, 2, 1, 2, 1], [1, 2, 3, 1, 2, 3, 1]),
        "info t": ([1, 2, 1, 2, 1, 2, 1], [1, 2, 3, 1, 2, 3, 1]),
        "reward": ([1, 2, 1, 2, 1, 2, 1], [1, 2, 3, 1, 2, 3, 1]),
        "terminated": ([F, T, F, F, F, T, F], [F, F, F, F, F, T, F]),
        "truncated": ([F, F, F, T, F, F, F], [F, F, T, F, F, F, F]),
        "valid": ([T, T, T, T, T, T, T], [T, T, T, T, T, T, T]),
        "first": ([F, T, F, T, F, T, F], [F, F, T, F, F, T, F]),
    },
    "NextStep": {
        "action": ([0, 1, 2, 0, 3, 1, 0], [0, 0, 2, 3, 0, 0, 1]),
        "t": ([1, 2, 0, 1, 2, 0, 1], [1, 2, 3, 0, 1, 2, 3]),
        "final t": ([1, 2, 0, 1, 2, 0, 1], [1, 2, 3, 0, 1, 2, 3]),
        "info t": ([1, 2, X, 1, 2, X, 1], [1, 2, 3, X, 1, 2, 3]),
        "reward": ([1, 2, 0, 1, 2, 0, 1], [1, 2, 3, 0, 1, 2, 3]),
        "terminated": ([F, F, F, F, T, F, F], [F, F, T, F, F, F, F]),
        "truncated": ([F, T, F, F, F, F, F], [F, F, F, F, F, F, T]),
        "valid": ([T, T, F, T, T, F, T], [T, T, T, F, T, T, T]),
        "first": ([F, F, T, F, F, T, F], [F, F, F, T, F, F, F]),
    },
    "Disabled": {
        "action": ([0, 1, 2, 0, 3, 0, 2], [0, 0, 3, 0, 1, 1, 0]),
        "t": ([1, 2, 2, 2, 2, 2, 2], [1, 2, 3, 3, 3, 3, 3]),
        "final t": ([1, 2, 2, 2, 2, 2, 2], [1, 2, 3, 3, 3, 3, 3]),
        "info t": ([1, 2, X, X, X, X, X], [1, 2, 3, X, X, X, X]),
        "reward": ([1, 2, 0, 0, 0, 0, 0], [1, 2, 3, 0, 0, 0, 0]),
        "terminated": ([F, F, F, F, F, F, F], [F, F, T, T, T, T, T]),
        "truncated": ([F, T, T, T, T, T, T], [F, F, F, F, F, F, F]),
        "valid": ([T, T, F, F, F, F, F], [T, T, T, F, F, F, F]),
        "first": ([F, F, F, F, F, F, F], [F, F, F, F, F, F, F]),
    },
}


def scripted(mode):
    """Returns the actions of a table, `[T, N]`."""
    return np.array(TABLES[mode]["action"], np.int32).T


@cache
def played(mode, source="fresh"):
    env = vectorize(counter(params=LONG), 2, autoreset_mode=mode, reset_source=source, pool_size=8)
    return env, play(env, 7, seed=1, actions=scripted(mode))


def columns(steps):
    """Returns the columns of a table as they came."""
    return {
        "t": steps.obs[..., 0],
        "final t": steps.final_obs[..., 0],
        "info t": steps.info["t"],
        "reward": steps.reward,
        "terminated": steps.terminated,
        "truncated": steps.truncated,
        "valid": steps.valid,
        "first": steps.first,
    }


@pytest.mark.parametrize("source", RESET_SOURCES)
@pytest.mark.parametrize("mode", MODES)
def test_every_column_is_as_written_by_hand(mode, source):
    _, (_, first, steps, _) = played(mode, source)
    for name, column in columns(steps).items():
        wanted = np.array(TABLES[mode][name]).T
        np.testing.assert_array_equal(np.where(wanted == X, X, column), wanted, err_msg=name)
    np.testing.assert_array_equal(first.obs[:, 0], 0)
    np.testing.assert_array_equal(first.reward, 0)
    assert first.first.all()
    assert not (first.valid | first.terminated | first.truncated).any()


@pytest.mark.parametrize("source", RESET_SOURCES)
@pytest.mark.parametrize("mode", MODES)
def test_an_episodes_start_is_in_every_observation_and_info_of_it(mode, source):
    # `obs` and `reset_info` speak of the episode that runs, `final_obs` and `info` of the one stepped.
    _, (_, first, steps, _) = played(mode, source)
    running = first.obs[:, 1]
    for t in range(7):
        moved = steps.valid[t]
        np.testing.assert_array_equal(steps.info["start"][t][moved], running[moved])
        opens = steps.first[t]
        stepped = running if mode != "NextStep" else np.where(opens, steps.obs[t, :, 1], running)
        np.testing.assert_array_equal(steps.final_obs[t, :, 1], stepped)
        running = np.where(opens, steps.reset_info["start"][t], running)
        np.testing.assert_array_equal(steps.obs[t, :, 1], running)
        np.testing.assert_array_equal(steps.reset_info["t"][t][opens], 0)


@pytest.mark.parametrize("mode", MODES)
def test_reset_and_step_return_one_tree_of_equal_shapes_and_dtypes(mode):
    env, (opened, first, steps, state) = played(mode)
    assert jax.tree.structure(first) == jax.tree.structure(steps)
    assert avals(first) == [
        (name, shape[1:], dtype, weak) for name, shape, dtype, weak in avals(steps)
    ]
    assert avals(opened) == avals(state)
    assert env.spec.autoreset_mode == AutoresetMode(mode)


@pytest.mark.parametrize("mode", MODES)
def test_returns_and_lengths_of_three_steps_are_three_in_every_mode(mode):
    env = vectorize(counter(reward=lambda t: 1.0), 2, autoreset_mode=mode)
    _, _, steps, _ = play(wrap(env, episode_statistics(totals=True)), 9)
    ended = steps.done & steps.valid
    episodes = {"SameStep": 3, "NextStep": 2, "Disabled": 1}[mode]
    transitions = {"SameStep": 9, "NextStep": 7, "Disabled": 3}[mode]
    np.testing.assert_array_equal(ended.sum(0), episodes)
    np.testing.assert_array_equal(steps.info["episode"]["l"][ended], 3)
    np.testing.assert_array_equal(steps.info["episode"]["r"][ended], 3.0)
    np.testing.assert_array_equal(steps.info["totals"]["steps"][-1], transitions)
    np.testing.assert_array_equal(steps.info["totals"]["episodes"][-1], episodes)


@pytest.mark.parametrize("mode", MODES)
def test_statistics_count_every_observation_and_every_real_step_once(mode):
    env, (_, first, steps, _) = played(mode)
    observations, rewards = normalize_observation(), normalize_reward()
    spec = env.spec._replace(backend="numpy")
    seen, _ = observations.reset(observations.init(spec, None), first, None)
    paid, _ = rewards.reset(rewards.init(spec, None), first, None)
    for t in range(7):
        timestep = jax.tree.map(lambda column, t=t: column[t], steps)
        seen, _ = observations.update(seen, timestep)
        paid, _ = rewards.update(paid, timestep)
    moved = {"SameStep": 14, "NextStep": 14, "Disabled": 5}[mode]
    real = {"SameStep": 14, "NextStep": 11, "Disabled": 5}[mode]
    np.testing.assert_allclose(seen.statistics.moments.count, 2 + moved + 1e-4, rtol=1e-12)
    np.testing.assert_allclose(paid.statistics.moments.count, real + 1e-4, rtol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_an_episode_of_n_steps_shows_n_plus_1_observations(mode):
    _, (_, first, steps, _) = played(mode)
    for row, length in ((0, 2), (1, 3)):
        seen = [first.obs[row, 0]]
        for t in range(7):
            seen.append(steps.final_obs[t, row, 0])
            if steps.done[t, row]:
                break
        assert seen == list(range(length + 1))


@pytest.mark.parametrize(("mode", "wanted"), [("SameStep", [T, T, T]), ("NextStep", [T, F, T])])
def test_an_episode_of_one_step_is_reported_as_ended(mode, wanted):
    env = vectorize(counter(params=CounterParams(length=1)), 2, autoreset_mode=mode)
    _, _, steps, _ = play(env, 3)
    np.testing.assert_array_equal(steps.terminated[:, 0], wanted)
    np.testing.assert_array_equal(steps.final_obs[0, :, 0], 1)


def test_in_next_step_mode_a_manual_reset_leaves_no_reset_pending():
    env = vectorize(counter(), 3, autoreset_mode="NextStep")
    _, _, steps, state = play(env, 3)
    assert steps.done[-1].all()
    mask = np.array([T, F, T])
    state, opened = jax.jit(env.reset_rows)(state, mask)
    np.testing.assert_array_equal(opened.first, mask)
    _, timestep = jax.jit(env.step)(state, jnp.zeros(3, int))
    np.testing.assert_array_equal(timestep.valid, mask)  # row 1's reset is still to come
    np.testing.assert_array_equal(timestep.obs[:, 0], [1, 0, 1])
    np.testing.assert_array_equal(timestep.reward, [1, 0, 1])


def test_when_disabled_a_row_that_ended_stands_still_with_its_state_and_flags():
    env, (_, _, _, state) = played("Disabled")
    again, timestep = jax.jit(env.step)(state, jnp.array([TERMINATE, 0]))
    assert_same(state.env, again.env)
    assert_same(state.obs, again.obs)
    np.testing.assert_array_equal(again.steps, [2, 3])
    np.testing.assert_array_equal(timestep.truncated, [T, F])
    np.testing.assert_array_equal(timestep.terminated, [F, T])
    assert not (timestep.valid | timestep.moved).any()


def test_when_disabled_a_reset_touches_only_the_rows_of_the_mask():
    env, (_, _, _, state) = played("Disabled")
    mask = np.array([F, T])
    after, opened = jax.jit(env.reset_rows)(state, mask)
    for name in ("env", "obs", "steps", "keys", "clock", "ended"):
        before, now = getattr(state, name), getattr(after, name)
        assert_same(jax.tree.map(lambda x: x[0], before), jax.tree.map(lambda x: x[0], now))
    np.testing.assert_array_equal(opened.first, mask)
    np.testing.assert_array_equal(opened.obs[0], state.obs[0])
    np.testing.assert_array_equal(opened.obs[1], after.obs[1])
    assert opened.obs[1, 0] == 0
    _, timestep = jax.jit(env.step)(after, jnp.zeros(2, int))
    np.testing.assert_array_equal(timestep.valid, mask)
    np.testing.assert_array_equal(timestep.truncated, ~mask)
    assert not timestep.terminated.any()
    np.testing.assert_array_equal(timestep.obs[:, 0], [2, 1])


@pytest.mark.parametrize(("given", "lasts"), [("default", 3), (None, 4), (2, 2), (7, 4)], ids=str)
def test_the_time_limit_truncates_what_has_not_terminated(given, lasts):
    env = counter(params=CounterParams(length=4), max_episode_steps=3)
    _, _, steps, _ = play(vectorize(env, 1, max_episode_steps=given), 4)
    steps = jax.tree.map(lambda column: column[:lasts, 0], steps)
    ends = np.arange(1, lasts + 1) == lasts
    np.testing.assert_array_equal(steps.truncated, ends & (lasts < 4))
    np.testing.assert_array_equal(steps.terminated, ends & (lasts == 4))
    assert steps.final_obs[-1, 0] == lasts


def test_what_terminates_at_the_limit_is_not_truncated():
    _, _, steps, _ = play(vectorize(counter(), 2, max_episode_steps=3), 3)
    assert steps.terminated[-1].all()
    assert not steps.truncated.any()


def test_the_limit_of_an_environment_without_any_counts_anew_in_every_episode():
    env = vectorize(counter(params=LONG), 1, max_episode_steps=3)
    _, _, steps, _ = play(env, 9)
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated), [2, 5, 8])


def test_the_time_limit_has_its_own_count_and_leaves_the_environments_info_alone():
    # A clock of that name in the environment counts by 10; a wrapper that shared it would end early.
    env = simple(
        lambda key: {"steps": 0},
        lambda key, state: {"steps": state["steps"] + 10},
        info=lambda state: dict(state),
    )
    _, first, steps, _ = play(vectorize(env, 2, max_episode_steps=3), 6)
    assert set(steps.info) == {"steps"}
    np.testing.assert_array_equal(first.info["steps"], 0)
    np.testing.assert_array_equal(steps.info["steps"][:, 0], [10, 20, 30, 10, 20, 30])
    np.testing.assert_array_equal(np.flatnonzero(steps.truncated[:, 0]), [2, 5])


@pytest.mark.parametrize(("mode", "length", "limit"), [("SameStep", 3, None), ("Disabled", 100, 3)])
def test_a_repeated_action_stops_where_the_episode_ends_and_its_rewards_are_summed(
    mode, length, limit
):
    env = simple(
        lambda key: 0,
        lambda key, t: t + 1,
        observe=lambda t: jnp.float32([t]),
        reward=1.0,
        terminated=lambda t: t >= length,
        info=lambda t: {"t": t, "metrics": {"one": t * 0 + 1, "t": jnp.float32(t)}},
    )
    env = vectorize(env, 2, action_repeat=4, max_episode_steps=limit, autoreset_mode=mode)
    _, _, steps, _ = play(env, 1)
    np.testing.assert_array_equal(steps.reward[0], 3.0)
    np.testing.assert_array_equal(steps.done[0], True)
    np.testing.assert_array_equal(steps.truncated[0], limit is not None)
    np.testing.assert_array_equal(steps.final_obs[0, :, 0], 3)
    np.testing.assert_array_equal(steps.info["t"][0], 3)
    np.testing.assert_array_equal(steps.info["metrics"]["one"][0], 3)
    np.testing.assert_array_equal(steps.info["metrics"]["t"][0], 1 + 2 + 3)


def test_an_action_is_repeated_as_often_as_told_and_the_limit_counts_raw_steps():
    env = vectorize(
        counter(reward=lambda t: 1.0, params=LONG), 1, action_repeat=4, max_episode_steps=10
    )
    _, _, steps, _ = play(env, 6)
    np.testing.assert_array_equal(steps.final_obs[:, 0, 0], [4, 8, 10, 4, 8, 10])
    np.testing.assert_array_equal(steps.reward[:, 0], [4, 4, 2, 4, 4, 2])
    np.testing.assert_array_equal(steps.truncated[:, 0], [F, F, T, F, F, T])
    draws = steps.final_obs[:, 0, 2]
    assert len(set(draws)) == 6  # every repetition draws anew
