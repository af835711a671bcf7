"""pgx's games beside pgx stepped by hand: one seat, both seats, and against a policy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import from_pgx, make
from jaxvec.spaces import sample
from tests.envs.adapter_laws import (
    assert_equals_the_library,
    assert_laws_hold,
    assert_rolls_out_with_all_layers,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
pgx = pytest.importorskip("pgx")


def first_legal(key, state):
    del key
    return jnp.argmax(state.legal_action_mask)


@pytest.mark.parametrize(("name", "limit"), [("2048", 30), ("minatar-breakout", 15)])
def test_a_row_steps_as_pgx_stepped_by_hand_and_keeps_its_last_observation(name, limit):
    own = pgx.make(name)

    def by_hand(key, state, action):
        after = own.step(state, action, key)
        late = after._step_count >= limit
        return after.observation, after.rewards[0], after.terminated, late & ~after.terminated

    env = from_pgx(own, max_episode_steps=limit)
    terminated, truncated = assert_equals_the_library(env, by_hand, num_steps=80)
    assert terminated > 0
    assert truncated > 0


def test_with_both_seats_the_reward_is_that_of_who_moved():
    own = pgx.make("tic_tac_toe")

    def by_hand(key, state, action):
        after = own.step(state, action, key)
        return after.observation, after.rewards[state.current_player], after.terminated, False

    assert assert_equals_the_library(from_pgx(own), by_hand)[0] > 0


def test_an_opponent_moves_until_the_turn_comes_back():
    own = pgx.make("tic_tac_toe")
    env = from_pgx(own, first_legal, seat=1)
    step = jax.jit(env.step)
    opponent_began = set()
    for seed in range(8):
        state, _, info = env.reset(jax.random.key(seed), None)
        taken = int((~state.legal_action_mask).sum())
        opponent_began.add(taken)
        assert state.current_player == 1
        if taken:
            assert not state.legal_action_mask[0]
        np.testing.assert_array_equal(info["action_mask"], state.legal_action_mask)
        marks = np.zeros(9, bool)
        for _ in range(5):
            # The last legal square, against one who takes the first.
            action = 8 - int(jnp.argmax(state.legal_action_mask[::-1]))
            by_hand = own.step(state, action)
            reward = by_hand.rewards[1]
            if not by_hand.terminated:
                by_hand = own.step(by_hand, first_legal(None, by_hand))
                reward = reward + by_hand.rewards[1]
            state, obs, got, terminated, truncated, _ = step(
                jax.random.key(seed), state, action, None
            )
            assert (got, terminated, truncated) == (reward, by_hand.terminated, False)
            np.testing.assert_array_equal(state.legal_action_mask, by_hand.legal_action_mask)
            # Plane 0 holds the seat's own marks, whoever has the turn at the end.
            np.testing.assert_array_equal(obs, own._observe(by_hand, 1))
            marks[action] = True
            np.testing.assert_array_equal(obs[..., 0].ravel(), marks)
            if terminated:
                break
        assert terminated
    assert opponent_began == {0, 1}


def test_a_random_opponent_plays_legal_moves_only():
    env = jaxvec.vectorize(from_pgx("connect_four", "random"), 16)

    def legal(key, mask):
        return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf))

    @jax.jit
    def run(key):
        state, _ = env.reset(jaxvec.random.keys_from(key, 16))

        def body(state, key):
            state, timestep = env.step(state, legal(key, state.env.legal_action_mask))
            return state, (timestep.reward, timestep.done, state.env.current_player)

        return jax.lax.scan(body, state, jax.random.split(key, 60))[1]

    reward, done, player = jax.device_get(run(jax.random.key(0)))
    assert (player == 0).all()
    assert done.sum() > 20
    wins, losses = (reward == 1).sum(), (reward == -1).sum()
    # Nobody ends a game by an illegal move, so both win about as often.
    assert min(wins, losses) > 5
    assert not reward[~done].any()


def test_masks_reach_env_method_as_maskable_policies_ask_for_them():
    venv = jaxvec.vec.JaxVecEnv(
        jaxvec.vectorize(make("pgx:tic_tac_toe"), 2), info_keys=["action_mask"]
    )
    venv.reset()
    masks = np.stack(venv.env_method("action_masks"))
    assert masks.shape == (2, 9)
    assert masks.all()
    _, _, _, infos = venv.step(np.array([4, 7]))
    masks = np.stack(venv.env_method("action_masks"))
    for row, square in enumerate((4, 7)):
        assert np.flatnonzero(~masks[row]).tolist() == [square]
        np.testing.assert_array_equal(infos[row]["action_mask"], masks[row])
    venv.close()


@pytest.mark.parametrize("options", [{}, {"opponent": "random"}])
def test_every_law_holds(options):
    assert_laws_hold(make("pgx:tic_tac_toe", **options))


def test_a_thousand_steps_of_64_rows_run_under_all_layers():
    assert assert_rolls_out_with_all_layers(make("pgx:minatar-breakout")) > 1000


def test_a_seat_or_an_opponent_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match=r"seat=2 and an opponent came, but tic_tac_toe has 2"):
        from_pgx("tic_tac_toe", "random", seat=2)
    with pytest.raises(ValueError, match=r"2048 has 1 player"):
        from_pgx("2048", "random")
    with pytest.raises(ValueError, match="opponent='best'"):
        from_pgx("tic_tac_toe", "best")
    with pytest.raises(TypeError, match="env=3 has no init and observe"):
        from_pgx(3)


def test_actions_of_an_opponent_are_drawn_among_the_legal_ones_alone():
    env = from_pgx("tic_tac_toe")
    state = env.reset(jax.random.key(0), None)[0]
    state = state.replace(legal_action_mask=jnp.arange(9) % 4 == 1)
    draws = jax.vmap(lambda key: jaxvec.envs.adapters._pgx.random_legal_move(key, state))(
        jax.random.split(jax.random.key(1), 200)
    )
    assert set(np.unique(draws)) == {1, 5}
    assert sample(jax.random.key(0), env.action_space, 3).shape == (3,)
