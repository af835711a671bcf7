"""A rollout is a loop of `env.step`: in chunks, with state, under jit and vmap, from a file, to evaluate."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec import (
    Transform,
    chain,
    episode_statistics,
    frame_stack,
    normalize_observation,
    normalize_reward,
    random_policy,
    rollout,
    set_training,
    vectorize,
    wrap,
)
from jaxvec.envs import begin, make
from jaxvec.random import hash_key
from tests.envs.toys import CounterParams, assert_same, avals, counter, simple
from tests.modes import in_32_bits

pytestmark = pytest.mark.usefixtures("quick_compilation")

N = 4
KEY = hash_key(3)


@cache
def layered():
    """Returns a counter with layers, and a policy that draws and looks."""
    layers = chain(episode_statistics(), frame_stack(2), normalize_observation())
    return wrap(vectorize(counter(), N), layers)


def looks_and_draws(key, obs):
    drawn = jax.random.randint(key, (N,), 0, 4)
    return jnp.where(obs[:, -1] > 0.5, 0, drawn)


@cache
def twelve():
    return rollout(layered(), looks_and_draws, KEY, 12)


def test_a_rollout_is_a_loop_of_steps_to_the_last_bit():
    env, carry = layered(), begin(layered(), looks_and_draws, KEY)
    step, seen = jax.jit(env.step), []
    state, obs, first, key = carry.env_state, carry.obs, carry.first, carry.key
    for _ in range(12):
        key, act_key = jax.random.split(key)
        action = jax.jit(looks_and_draws)(act_key, obs)
        state, timestep = step(state, action)
        seen.append((obs, action, timestep))
        obs, first = timestep.obs, timestep.first
    end, kept = twelve()
    assert_same(kept, jax.tree.map(lambda *leaves: jnp.stack(leaves), *seen))
    assert_same((end.env_state, end.obs, end.first, end.key), (state, obs, first, key))


def test_every_leaf_of_what_is_kept_has_steps_then_rows_in_front():
    _, (obs, action, timestep) = twelve()
    for leaf in jax.tree.leaves((obs, action, timestep)):
        assert leaf.shape[:2] == (12, N)
    assert obs.shape == (12, N, 6)
    np.testing.assert_array_equal(obs[1:], timestep.obs[:-1])


def test_two_chunks_are_one_run_and_the_key_is_not_read_where_a_start_is_given():
    end, kept = twelve()
    carry, early = rollout(layered(), looks_and_draws, KEY, 6)
    carry, late = rollout(layered(), looks_and_draws, None, 6, start=carry)
    assert_same(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), early, late), kept)
    assert_same(carry, end)


def test_begin_is_where_a_rollout_starts():
    start = begin(layered(), looks_and_draws, KEY)
    assert_same(rollout(layered(), looks_and_draws, KEY, 12, start=start), twelve())
    assert start.first.all()
    assert avals(start) == avals(twelve()[0])


def test_three_chunks_with_training_switched_between_are_traced_once():
    traces = {"policy": 0, "step": 0}
    base = counter()

    def step(*arguments):
        traces["step"] += 1
        return base.step(*arguments)

    def policy(key, obs):
        traces["policy"] += 1
        return jnp.zeros(N, jnp.int32)

    layers = chain(normalize_observation(), normalize_reward())
    env = wrap(vectorize(base._replace(step=step), N), layers)
    carry, _ = rollout(env, policy, KEY, 3)
    after_one = dict(traces)
    counts = []
    for training in (False, True):
        state = carry.env_state
        counts.append(float(state.layers[0].statistics.moments.count))
        carry = carry._replace(
            env_state=state._replace(layers=set_training(state.layers, training))
        )
        carry, _ = rollout(env, policy, KEY, 3, start=carry)
    assert traces == after_one
    assert traces["policy"] == 1
    counts.append(float(carry.env_state.layers[0].statistics.moments.count))
    np.testing.assert_allclose(counts, [16.0001, 16.0001, 28.0001], rtol=1e-6)


def test_collect_reduces_each_step_inside_the_scan():
    def collect(obs, action, timestep):
        return {"sum": timestep.reward.sum(), "obs": obs[0], "asked": action}

    carry, kept = rollout(layered(), looks_and_draws, KEY, 12, collect=collect)
    end, (obs, action, timestep) = twelve()
    np.testing.assert_array_equal(kept["sum"], timestep.reward.sum(1))
    np.testing.assert_array_equal(kept["obs"], obs[:, 0])
    np.testing.assert_array_equal(kept["asked"], action)
    assert_same(carry, end)


def test_when_disabled_a_rollout_is_the_first_episode_of_every_row():
    lengths = np.array([1, 3, 2, 6])
    env = vectorize(counter(), N, autoreset_mode="Disabled", params=CounterParams(length=lengths))
    env = wrap(env, episode_statistics())
    _, (_, _, timestep) = rollout(env, lambda key, obs: jnp.zeros(N, jnp.int32), KEY, 7)
    np.testing.assert_array_equal(timestep.valid.sum(0), lengths)
    np.testing.assert_array_equal(timestep.reward.sum(0), lengths * (lengths + 1) / 2)
    np.testing.assert_array_equal(timestep.info["episode"]["l"][-1], lengths)
    np.testing.assert_array_equal(timestep.info["episode"]["r"][-1], lengths * (lengths + 1) / 2)
    assert timestep.done[-1].all()


def test_after_its_first_episode_a_row_can_not_spoil_an_evaluation_with_nan():
    env = simple(
        lambda key: 0,
        lambda key, t: t + 1,
        reward=lambda t: jnp.where(t > 2, jnp.nan, 1.0),
        terminated=lambda t: t == 2,
    )
    env = wrap(vectorize(env, N, autoreset_mode="Disabled"), episode_statistics())
    _, (_, _, timestep) = rollout(env, lambda key, obs: jnp.zeros(N, jnp.int32), KEY, 5)
    np.testing.assert_array_equal(timestep.reward.sum(0), 2)
    np.testing.assert_array_equal(timestep.info["episode"]["r"][-1], 2)


def test_it_runs_under_jit_and_vmap_over_seeds_is_a_loop_over_seeds():
    env = vectorize(counter(), N)
    keys = jax.random.split(KEY, 3)

    def run(key):
        return rollout(env, looks_and_draws, key, 6)

    many = jax.jit(jax.vmap(run))(keys)
    for index in range(3):
        one = run(keys[index])
        assert_same(jax.tree.map(lambda leaf, i=index: leaf[i], many), one)


def test_a_rollout_that_goes_on_from_a_file_is_the_uninterrupted_one(tmp_path):
    carry, _ = rollout(layered(), looks_and_draws, KEY, 6)
    jaxvec.save(tmp_path / "carry.npz", carry)
    like = begin(layered(), looks_and_draws, hash_key(0))
    loaded = jaxvec.load(tmp_path / "carry.npz", like)
    assert_same(loaded, carry)  # the rows' keys among the rest
    going_on, uninterrupted = (
        rollout(layered(), looks_and_draws, None, 6, start=start) for start in (loaded, carry)
    )
    assert_same(going_on, uninterrupted)
    assert_same(going_on[0], twelve()[0])


def test_end_rollout_is_called_once_after_all_steps():
    def counting():
        return Transform(
            lambda spec, keys: {"steps": jnp.int32(0), "ends": jnp.int32(0), "at": jnp.int32(0)},
            lambda state, timestep, mask=None: (state, timestep),
            lambda state, timestep: ({**state, "steps": state["steps"] + 1}, timestep),
            end_rollout=lambda state: {**state, "ends": state["ends"] + 1, "at": state["steps"]},
        )

    env = wrap(vectorize(counter(), N), counting())
    carry, _ = rollout(env, looks_and_draws, KEY, 3)
    assert carry.env_state.layers == {"steps": 3, "ends": 1, "at": 3}
    carry, _ = rollout(env, looks_and_draws, KEY, 3, start=carry)
    assert carry.env_state.layers == {"steps": 6, "ends": 2, "at": 6}


def test_statistics_of_a_rollout_stand_still_within_it_and_then_hold_all_of_it():
    env = wrap(vectorize(counter(), N), normalize_observation(update="rollout", clip=1e9))
    raw, policy = vectorize(counter(), N), lambda key, obs: jnp.zeros(N, jnp.int32)
    start, raw_start = begin(env, policy, KEY), begin(raw, policy, KEY)
    carry, (obs, _, _) = rollout(env, policy, KEY, 9, start=start)
    _, (seen, _, timestep) = rollout(raw, policy, KEY, 9, start=raw_start)
    np.testing.assert_allclose(obs, seen, rtol=1e-6)  # the prior: mean 0, variance 1
    samples = np.concatenate([seen.reshape(-1, 3), timestep.obs[-1]]).astype(np.float64)
    moments = carry.env_state.layers.statistics.moments
    np.testing.assert_allclose(moments.count, len(samples), rtol=1e-5)
    np.testing.assert_allclose(moments.mean, samples.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.var, samples.var(0), rtol=1e-4)


@in_32_bits("the test's own layer would hand out float64")
def test_a_layer_whose_first_observation_is_not_its_state_starts_from_that_observation():
    # From the first step on both are one array; before it they are two.
    def smoothed():
        def update(state, timestep):
            state = 0.5 * state + 0.5 * timestep.obs
            return state, timestep._replace(obs=state)

        return Transform(
            lambda spec, keys: jnp.zeros((N, 3)),
            lambda state, timestep, mask=None: (jnp.zeros_like(state), timestep),
            update,
        )

    raw = vectorize(counter(params=CounterParams(length=99)), N)
    env, policy = wrap(raw, smoothed()), lambda key, obs: jnp.zeros(N, jnp.int32)
    _, (obs, _, timestep) = rollout(env, policy, KEY, 2)
    opening = begin(raw, policy, KEY).obs
    np.testing.assert_array_equal(obs[0], opening)
    np.testing.assert_array_equal(obs[1, :, 1], opening[:, 1] / 2)
    np.testing.assert_array_equal(timestep.obs[1, :, 1], opening[:, 1] * 0.75)


def test_an_episodes_return_in_cart_pole_is_its_length():
    env = wrap(vectorize(make("CartPole-v1"), 16), episode_statistics())
    _, (_, _, timestep) = rollout(env, random_policy(env), KEY, 100)
    ended = np.asarray(timestep.done)
    assert ended.sum() > 20
    episode = timestep.info["episode"]
    np.testing.assert_array_equal(episode["r"][ended], episode["l"][ended])
    previous = np.zeros(16, int)
    for t, row in np.argwhere(ended):  # counted by hand: steps since the row's last end
        assert episode["l"][t, row] == t + 1 - previous[row]
        previous[row] = t + 1


@pytest.mark.parametrize("num_steps", [0, -1, 2.0, True])
def test_a_number_of_steps_that_is_none_is_refused(num_steps):
    with pytest.raises(ValueError, match=f"rollout: num_steps={num_steps}, but it must be a whole"):
        rollout(layered(), looks_and_draws, KEY, num_steps)


def test_a_number_of_steps_may_be_numpys():
    carry, _ = rollout(layered(), looks_and_draws, KEY, np.int64(12))
    assert_same(carry, twelve()[0])
