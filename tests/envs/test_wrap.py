"""Layers on top of N environments: order, keys, partial resets, and what an episode's end shows."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import (
    Transform,
    append_last_action,
    cast_observation,
    chain,
    clip_reward,
    episode_statistics,
    frame_stack,
    normalize_observation,
    normalize_reward,
    rescale_action,
    scale_reward,
    sticky_action,
    vectorize,
    wrap,
)
from jaxvec.random import keys_from
from tests.envs.toys import CounterParams, assert_same, avals, counter, play

pytestmark = pytest.mark.usefixtures("quick_compilation")

ACTIONS = np.random.default_rng(0).choice(4, (20, 3), p=[0.55, 0.15, 0.15, 0.15]).astype(np.int32)


@cache
def bare():
    return vectorize(counter(), 3)


@cache
def bare_played():
    return play(bare(), 20, actions=ACTIONS)


LAYERS = (
    episode_statistics(),
    frame_stack(2),
    normalize_observation(),
    normalize_reward(),
    sticky_action(0.9),
)


@cache
def all_played():
    return play(wrap(bare(), *LAYERS), 20, actions=ACTIONS)


def test_wraps_of_wraps_are_a_chain():
    nested = bare()
    for layer in LAYERS:
        nested = wrap(nested, layer)
    _, first, steps, _ = play(nested, 20, actions=ACTIONS)
    assert_same(first, all_played().first)
    assert_same(steps, all_played().steps)
    chained = wrap(bare(), chain(*LAYERS))
    assert nested.spec.observation_space == chained.spec.observation_space
    assert nested.spec.observation_space.shape == (6,)


def stepped(env, num_steps):
    """Returns all timesteps of a few steps, without compiling; NumPy."""
    state, timestep = env.reset(keys_from(0, 3))
    timesteps = [timestep]
    for t in range(num_steps):
        state, timestep = env.step(state, ACTIONS[t] * 0)
        timesteps.append(timestep)
    return jax.tree.map(np.asarray, timesteps)


def test_no_layers_leave_everything_as_it_is():
    empty = wrap(bare())
    assert_same(stepped(empty, 1), stepped(bare(), 1))
    assert empty.spec == bare().spec
    assert empty.env is bare().env


def test_layers_draw_independently_of_the_environment():
    # A layer that draws must not change what the environment draws, nor draw the same.
    never = play(wrap(bare(), sticky_action(0.0)), 20, actions=ACTIONS)
    assert_same(never.steps, bare_played().steps)
    # Whatever vectorize folds into a row's key, the layers' words are none of what comes of it.
    layers = {tuple(words) for words in np.asarray(never.opened.layers.words).tolist()}
    keys = never.opened.env.keys
    folded = jax.vmap(jax.vmap(jax.random.fold_in, (None, 0)), (0, None))(keys, np.arange(1, 100))
    taken = np.concatenate([jax.random.key_data(each).reshape(-1, 2) for each in (keys, folded)])
    assert len(layers) == 3
    assert not layers & {tuple(words) for words in taken.tolist()}


def test_a_sticky_action_is_what_the_environment_was_given():
    _, _, steps, _ = all_played()
    executed, asked = steps.info["action"], ACTIONS
    stuck = executed != asked
    assert 0.05 < stuck.mean() < 0.6
    opens = np.concatenate([np.ones((1, 3), bool), steps.first[:-1]])
    assert not (stuck & opens).any()  # an episode's first action is never replaced
    np.testing.assert_array_equal(executed[1:][stuck[1:]], executed[:-1][stuck[1:]])


def test_actions_pass_the_layers_from_the_outermost_down():
    # [-1, 1] is rescaled to the Box that the environment has.
    box = spaces.Box(0, 10, (1,), np.float32)
    env = counter(action_space=box)
    env = env._replace(
        step=lambda key, state, action, params: counter().step(key, state, action[0], params),
        reset=lambda key, params: (
            *counter().reset(key, params)[:2],
            {"t": 0, "start": 0, "action": jnp.float32(-1)},
        ),
    )
    env = wrap(vectorize(env, 2), rescale_action())
    assert env.spec.action_space == spaces.Box(-1, 1, (1,), np.float32)
    _, _, steps, _ = play(env, 1, actions=np.float32([[[-1], [0.5]]]))
    np.testing.assert_array_equal(steps.info["action"][0], [0, 7.5])


def test_rewards_and_observations_pass_the_layers_from_the_nearest_up():
    scaled_first = wrap(bare(), scale_reward(10.0), clip_reward(-15.0, 15.0))
    clipped_first = wrap(bare(), clip_reward(-1.5, 1.5), scale_reward(10.0))
    for env in (scaled_first, clipped_first):
        assert [each.reward[0] for each in stepped(env, 2)] == [0, 10, 15]
    clipped_first = wrap(bare(), clip_reward(-15.0, 15.0), scale_reward(10.0))
    assert [each.reward[0] for each in stepped(clipped_first, 2)] == [0, 10, 20]


def test_statistics_nearest_to_the_environment_report_its_own_rewards():
    for layers, total in (
        ((episode_statistics(), scale_reward(100.0)), 3),
        ((scale_reward(100.0), episode_statistics()), 300),
    ):
        last = stepped(wrap(bare(), *layers), 2)[-1]
        np.testing.assert_array_equal(last.info["episode"]["r"], total)


def test_the_stack_of_an_ended_row_is_old_frames_and_its_last_and_the_next_starts_from_zeros():
    env = wrap(vectorize(counter(params=CounterParams(length=3)), 1), frame_stack(3))
    _, first, steps, _ = play(env, 4)
    clock = steps.obs[:, 0, ::3]  # every third number is the count
    final = steps.final_obs[:, 0, ::3]
    np.testing.assert_array_equal(first.obs[0, ::3], [0, 0, 0])
    np.testing.assert_array_equal(clock, [[0, 0, 1], [0, 1, 2], [0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(final, [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 1]])
    starts = steps.obs[2, 0, 1::3]
    np.testing.assert_array_equal(starts[:2], 0)  # no frame of the ended episode
    assert starts[2] == steps.reset_info["start"][2, 0] > 0


def test_the_last_observation_is_stacked_and_normalized_by_the_same_statistics_as_the_others():
    env = wrap(
        vectorize(counter(params=CounterParams(length=3)), 4),
        frame_stack(2),
        normalize_observation(clip=1e9),
    )
    raw = play(wrap(vectorize(counter(params=CounterParams(length=3)), 4), frame_stack(2)), 7)
    _, _, steps, _ = play(env, 7)
    # float64 by the definition: the statistics learn what is handed out, then normalize both.
    seen = raw.first.obs.astype(np.float64)
    for t in range(7):
        seen = np.concatenate([seen, raw.steps.obs[t]])
        count = len(seen) + 1e-4
        mean = seen.sum(0) / count
        var = ((seen - mean) ** 2).sum(0) / count + 1e-4 * (1 + mean**2) / count
        for name in ("obs", "final_obs"):
            wanted = (getattr(raw.steps, name)[t] - mean) / np.sqrt(var + 1e-8)
            np.testing.assert_allclose(
                getattr(steps, name)[t], wanted, rtol=2e-4, atol=2e-5, err_msg=f"{name} {t}"
            )


def test_a_full_reset_starts_statistics_anew_and_a_partial_one_keeps_them():
    env = wrap(bare(), *LAYERS)
    state = all_played().state
    mask = np.array([True, False, True])
    after, opened = jax.jit(env.reset_rows)(state, mask, keys_from(5, 3))
    np.testing.assert_array_equal(opened.first, mask)
    # Statistics go on: they count the two new observations.
    old, new = (each.layers[2].statistics.moments for each in (state, after))
    assert new.count == old.count + 2
    # Rows that were not reset keep their stack, return and running statistics; the others are new.
    for layer, name in ((0, "lengths"), (0, "returns"), (3, "returns")):
        before, now = (np.asarray(getattr(each.layers[layer], name)) for each in (state, after))
        np.testing.assert_array_equal(now[~mask], before[~mask])
        np.testing.assert_array_equal(now[mask], 0)
    stack = np.asarray(after.layers[1].stack)
    np.testing.assert_array_equal(stack[1], np.asarray(state.layers[1].stack)[1])
    np.testing.assert_array_equal(stack[mask, :3], 0)
    np.testing.assert_array_equal(stack[mask, 3:], opened_raw(mask))
    fresh, _ = jax.jit(env.reset)(keys_from(5, 3))
    np.testing.assert_allclose(fresh.layers[2].statistics.moments.count, 3 + 1e-4, rtol=1e-7)
    assert avals(fresh) == avals(after) == avals(state)


def opened_raw(mask):
    _, first = bare().reset(keys_from(5, 3))
    return np.asarray(first.obs)[mask]


def test_options_reach_the_environment_through_the_layers():
    env = wrap(bare(), frame_stack(2), normalize_reward())
    state, first = env.reset(keys_from(0, 3), {"start": 6})
    np.testing.assert_array_equal(first.obs[:, 4], 6)
    _, opened = env.reset_rows(state, np.array([True, False, False]), None, {"start": 7})
    assert opened.obs[0, 4] == 7


def test_the_spec_is_that_above_the_layers():
    env = wrap(bare(), frame_stack(2), cast_observation(np.float16), append_last_action())
    for timestep in stepped(env, 2):
        assert all(env.spec.observation_space.contains(obs) for obs in timestep.obs)
    assert (env.spec.num_envs, env.spec.backend) == (3, "jax")


def test_end_of_a_rollout_reaches_every_layer_through_nested_wraps():
    def counting(salt):
        return Transform(
            lambda spec, keys: jnp.int32(0),
            lambda state, timestep, mask=None: (state, timestep),
            lambda state, timestep: (state, timestep),
            end_rollout=lambda state: state + salt,
        )

    env = wrap(wrap(bare(), counting(1)), counting(2), counting(3))
    state, _ = env.reset(keys_from(0, 3))
    state = env.end_rollout(env.end_rollout(state))
    assert state.layers == (4, 6)
    assert state.env.layers == 2


@pytest.mark.parametrize("layers", [(frame_stack,), (frame_stack(2), normalize_reward)])
def test_a_layers_function_that_was_not_called_is_refused(layers):
    with pytest.raises(TypeError, match=r"is not a Transform\. Call the layer's function first"):
        wrap(bare(), *layers)
