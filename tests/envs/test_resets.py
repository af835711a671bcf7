"""Where the next episode comes from: fresh, cached or from a pool; by hand; and what survives it."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxvec import vectorize
from jaxvec.envs._resets import RESET_SOURCES, Opening, ResetPool, deal
from jaxvec.random import hash_key, keys_from
from tests.envs.toys import CounterParams, assert_same, counter, play, simple, words

pytestmark = pytest.mark.usefixtures("quick_compilation")

ONE_STEP = CounterParams(length=1)


@cache
def starts(source, mode="SameStep"):
    """Returns the first states' draws `[N]`, and those of the episodes after, `[T, N]`."""
    env = vectorize(
        counter(params=ONE_STEP), 4, autoreset_mode=mode, reset_source=source, pool_size=6
    )
    opened, first, steps, _ = play(env, 40)
    return first.obs[:, 1], steps.obs[..., 1], opened


def test_every_episode_starts_from_a_fresh_draw_of_its_own():
    first, later, _ = starts("fresh")
    drawn = [*first, *later.ravel()]
    assert len(set(drawn)) == len(drawn)  # 164 of 2^20: a chance repetition is not in this seed


def test_cached_resets_go_back_to_the_rows_own_first_state():
    first, later, _ = starts("cached")
    assert len(set(first)) == 4
    np.testing.assert_array_equal(later, np.broadcast_to(first, later.shape))


def test_a_pools_resets_are_dealt_from_its_k_states():
    first, later, opened = starts("pool")
    pool = opened.resets.openings.env.start
    assert pool.shape == (6,)
    assert len({*pool, *first}) == 10  # drawn apart from the rows' own
    assert set(later.ravel()) == set(pool.astype(np.float32))
    np.testing.assert_array_equal(opened.resets.openings.obs[:, 1], pool)


def test_cached_and_pool_resets_draw_no_key_so_that_steps_go_on_drawing_the_same():
    for source in ("cached", "pool"):
        env = vectorize(counter(params=ONE_STEP), 4, reset_source=source, pool_size=6)
        _, _, steps, _ = play(env, 40)
        draws = steps.final_obs[..., 2]
        assert len(np.unique(draws)) == draws.size


def test_a_pool_deals_no_state_twice_at_once_while_there_are_enough():
    ended = np.random.default_rng(0).random((200, 8)) < 0.5
    ended[0], ended[1] = True, False
    pool = ResetPool(Opening(jnp.arange(8), jnp.arange(8), {}), hash_key(3), jnp.uint32(0))
    after, dealt = jax.jit(partial(jax.lax.scan, deal))(pool, ended)
    for row, mask in zip(np.asarray(dealt.env), ended, strict=True):
        assert len(set(row[mask])) == mask.sum()
    assert after.deals == 200
    np.testing.assert_array_equal(dealt.env, dealt.obs)


def test_a_pool_smaller_than_the_ended_rows_deals_all_of_it_as_evenly_as_it_can():
    pool = ResetPool(Opening(jnp.arange(3), jnp.arange(3), {}), hash_key(3), jnp.uint32(0))
    _, dealt = deal(pool, jnp.ones(8, bool))
    assert sorted(np.bincount(dealt.env)) == [2, 3, 3]


def test_a_pool_of_states_without_an_observation_is_dealt():
    pool = ResetPool(Opening(jnp.arange(4), {}, {}), hash_key(5), jnp.uint32(0))
    _, dealt = deal(pool, jnp.ones(4, bool))
    assert sorted(np.asarray(dealt.env)) == [0, 1, 2, 3]


def test_a_pools_deals_are_uniform_in_every_row():
    # Chi-square with 9 degrees of freedom, 4000 deals a row: 27.9 is passed once in a thousand.
    ended = np.random.default_rng(1).random((4000, 5)) < 0.7
    pool = ResetPool(Opening(jnp.arange(10), jnp.arange(10), {}), hash_key(5), jnp.uint32(0))
    _, dealt = jax.jit(partial(jax.lax.scan, deal))(pool, ended)
    for row in range(5):
        counts = np.bincount(np.asarray(dealt.env)[ended[:, row], row], minlength=10)
        expected = counts.sum() / 10
        assert ((counts - expected) ** 2 / expected).sum() < 27.9


def dealt_to(ended, size, seed=5):
    """Returns the places in a pool of K that are dealt, `[T, N]`, in order and compiled once."""
    places = jnp.arange(size)
    pool = ResetPool(Opening(places, places, {}), hash_key(seed), jnp.uint32(0))
    return np.asarray(jax.jit(partial(jax.lax.scan, deal))(pool, ended)[1].env)


def test_no_two_rows_of_a_share_get_the_same_state_while_there_are_enough():
    # 64 rows in 8 shares of 8, and 8 states: each share by itself never needs more.
    ended = np.random.default_rng(2).random((300, 64)) < 0.6
    for places, mask in zip(dealt_to(ended, 8), ended, strict=True):
        for share, own in zip(places.reshape(8, 8), mask.reshape(8, 8), strict=True):
            assert len(set(share[own])) == own.sum()


def test_no_two_rows_at_all_get_the_same_state_while_no_share_needs_more_than_its_part():
    # 32 states in 8 parts of 4: up to 4 of the 16 rows of each share end.
    rng = np.random.default_rng(3)
    ended = np.zeros((200, 8, 16), bool)
    for step, share in np.ndindex(200, 8):
        ended[step, share, rng.permutation(16)[: rng.integers(5)]] = True
    ended = ended.reshape(200, 128)
    for places, mask in zip(dealt_to(ended, 32), ended, strict=True):
        assert len(set(places[mask])) == mask.sum()


@pytest.mark.parametrize(("rows", "size"), [(64, 12), (6, 7), (1, 3), (48, 1)])
def test_in_every_share_a_pools_deals_are_uniform(rows, size):
    # Chi-square, 3000 deals a row: with its degrees of freedom it is far below these once in 10^5.
    ended = np.random.default_rng(4).random((3000, rows)) < 0.5
    places = dealt_to(ended, size)
    worst = 0.0
    for row in range(rows):
        counts = np.bincount(places[ended[:, row], row], minlength=size)
        expected = counts.sum() / size
        worst = max(worst, ((counts - expected) ** 2 / expected).sum())
    assert worst < {12: 43, 7: 34, 3: 24, 1: 1e-9}[size]


@pytest.mark.parametrize("rows", [2, 3])  # in two shares, and in one
def test_neighbours_are_not_dealt_neighbours_but_places_at_any_distance(rows):
    # 7 is prime, so that every distance but 0 is as likely. Chi-square with 5 degrees of freedom: 30 is
    # passed once in 10^5.
    places = dealt_to(np.ones((6000, rows), bool), 7)
    apart = np.bincount((places[:, 1] - places[:, 0]) % 7, minlength=7)
    assert apart[0] == 0
    assert ((apart[1:] - 1000) ** 2 / 1000).sum() < 30


def test_one_row_ending_takes_one_state_and_leaves_the_other_rows_alone():
    # As many states as rows and only one row ends: nothing else may be replaced.
    env = vectorize(counter(), 8, reset_source="pool", pool_size=4)
    actions = np.zeros((1, 8), np.int32)
    actions[0, 5] = 2
    opened, first, steps, _ = play(env, 1, actions=actions)
    others = np.arange(8) != 5
    np.testing.assert_array_equal(steps.first[0], ~others)
    np.testing.assert_array_equal(steps.obs[0, others, 0], 1)
    np.testing.assert_array_equal(steps.obs[0, others, 1], first.obs[others, 1])
    assert steps.obs[0, 5, 1] in opened.resets.openings.env.start


@pytest.mark.parametrize("source", RESET_SOURCES)
def test_the_whole_state_is_replaced_so_that_a_clock_in_a_nested_info_starts_anew(source):
    def ticked(key, state):
        return {"info": {"clock": state["info"]["clock"] + 1}, "key": key}

    env = simple(
        lambda key: {"info": {"clock": 0}, "key": key},
        ticked,
        terminated=lambda state: state["info"]["clock"] == 3,
        info=lambda state: state["info"],
    )
    _, _, steps, state = play(vectorize(env, 2, reset_source=source, pool_size=2), 10)
    np.testing.assert_array_equal(np.flatnonzero(steps.terminated[:, 0]) + 1, [3, 6, 9])
    np.testing.assert_array_equal(steps.info["clock"][:, 0], [1, 2, 3] * 3 + [1])
    np.testing.assert_array_equal(state.env["info"]["clock"], 1)


class Learner(NamedTuple):
    """What a curriculum keeps: how many episodes there were, through all resets."""

    t: Any
    episodes: Any


def learner(length=2):
    def kept(ended, fresh):
        return fresh._replace(episodes=ended.episodes + 1)

    return simple(
        lambda key: Learner(0, 0),
        lambda key, state: state._replace(t=state.t + 1),
        observe=lambda state: jnp.float32([state.t]),
        terminated=lambda state: state.t >= length,
        info=lambda state: {"episodes": state.episodes},
        persistent=kept,
    )


@pytest.mark.parametrize("source", RESET_SOURCES)
def test_what_an_environment_declares_persistent_survives_every_automatic_reset(source):
    env = vectorize(learner(), 2, reset_source=source, pool_size=3)
    _, _, steps, state = play(env, 7)
    np.testing.assert_array_equal(steps.info["episodes"][:, 0], [0, 0, 1, 1, 2, 2, 3])
    np.testing.assert_array_equal(state.env.episodes, 3)
    np.testing.assert_array_equal(state.env.t, 1)


def test_what_is_persistent_survives_next_step_and_manual_resets_of_its_row_only():
    env = vectorize(learner(), 2, autoreset_mode="NextStep")
    _, _, steps, state = play(env, 6)
    np.testing.assert_array_equal(steps.info["episodes"][steps.valid[:, 0], 0], [0, 0, 1, 1])
    state, _ = jax.jit(env.reset_rows)(state, np.array([True, False]))
    np.testing.assert_array_equal(state.env.episodes, [3, 2])
    np.testing.assert_array_equal(state.env.t, [0, 0])
    fresh, _ = jax.jit(env.reset)(keys_from(0, 2))
    np.testing.assert_array_equal(fresh.env.episodes, 0)


@cache
def running():
    """Returns an environment of 4 rows, and its state after one step."""
    env = vectorize(counter(), 4)
    return env, play(env, 1).state


def test_a_row_that_is_reset_by_hand_starts_as_a_full_reset_with_that_key_would():
    env, state = running()
    mask, keys = np.array([True, False, False, True]), keys_from(hash_key(77), 4)
    after, opened = jax.jit(env.reset_rows)(state, mask, keys)
    whole, first = jax.jit(env.reset)(keys)
    chosen = np.flatnonzero(mask)
    np.testing.assert_array_equal(opened.first, mask)
    np.testing.assert_array_equal(opened.obs[chosen], first.obs[chosen])
    for name in ("env", "steps", "keys", "clock"):
        for new, old, full in zip(
            *map(
                jax.tree.leaves, (getattr(after, name), getattr(state, name), getattr(whole, name))
            ),
            strict=True,
        ):
            np.testing.assert_array_equal(words(new)[mask], words(full)[mask])
            np.testing.assert_array_equal(words(new)[~mask], words(old)[~mask])


def test_without_keys_a_reset_by_hand_draws_anew_every_time_and_the_key_stays():
    _, state = running()
    mask = np.array([True, False, False, True])
    seen = [state.env.start]
    for _ in range(3):
        state, _ = running_reset()(state, mask)
        seen.append(state.env.start)
    seen = np.stack(seen)
    assert all(len(set(seen[:, row])) == 4 for row in (0, 3))
    assert all(len(set(seen[:, row])) == 1 for row in (1, 2))
    assert_same(words(state.keys), words(running()[1].keys))


@cache
def running_reset():
    return jax.jit(running()[0].reset_rows)


@pytest.mark.parametrize("source", RESET_SOURCES)
def test_after_a_reset_of_all_rows_with_new_keys_nothing_follows_from_the_old_ones(source):
    env = vectorize(counter(params=ONE_STEP), 4, reset_source=source, pool_size=6)
    keys, action = keys_from(hash_key(77), 4), np.zeros(4, np.int32)

    @jax.jit
    def both(old_keys):
        old, _ = env.reset(old_keys)
        renewed, _ = env.reset_rows(old, np.ones(4, bool), keys)
        return env.step(renewed, action), env.step(env.reset(keys)[0], action)

    (_, renewed), (_, whole) = both(keys_from(0, 4))
    assert_same(renewed, whole)


def test_a_row_that_is_reset_with_a_new_key_caches_its_new_start_and_the_others_theirs():
    env = vectorize(counter(params=ONE_STEP), 4, reset_source="cached")
    state, first = env.reset(keys_from(0, 4))
    mask = np.array([True, False, False, True])
    state, opened = env.reset_rows(state, mask, keys_from(hash_key(77), 4))
    _, timestep = env.step(state, np.zeros(4, np.int32))
    wanted = np.where(mask, opened.obs[:, 1], first.obs[:, 1])
    np.testing.assert_array_equal(timestep.obs[:, 1], wanted)


def test_a_reset_by_hand_of_no_row_changes_nothing():
    _, state = running()
    after, opened = running_reset()(state, np.zeros(4, bool))
    assert_same(after, state)
    assert not opened.first.any()


@pytest.mark.parametrize(
    "mask",
    [
        None,
        [0, 1, 1, 0],
        True,
        np.ones(3, bool),
        np.array([0, 2]),
        np.ones((4, 1), bool),
        np.zeros(4, int),
    ],
)
def test_a_mask_that_is_no_bool_per_row_is_refused(mask):
    env, state = running()
    with pytest.raises(ValueError, match=r"(?s)reset_rows: mask=.* must be bool of shape \(4,\)"):
        env.reset_rows(state, mask)


def test_options_reach_the_resets_that_are_asked_for_and_no_automatic_one():
    env = vectorize(counter(params=ONE_STEP), 2)
    state, first = jax.jit(env.reset)(keys_from(0, 2), {"start": 7})
    np.testing.assert_array_equal(first.obs[:, 1], 7)
    state, timestep = jax.jit(env.step)(state, np.zeros(2, int))
    assert (timestep.obs[:, 1] != 7).all()
    _, opened = jax.jit(env.reset_rows)(state, np.array([True, False]), None, {"start": 8})
    assert opened.obs[0, 1] == 8


def test_options_are_refused_where_the_environment_takes_none():
    env = vectorize(learner(), 2)
    with pytest.raises(ValueError, match=r"options=\{'start': 7\} came, but .* takes none"):
        env.reset(keys_from(0, 2), {"start": 7})
