"""Rows spread over devices: the same numbers, and no talk between devices inside the loop."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxvec import (
    episode_statistics,
    frame_stack,
    normalize_observation,
    normalize_reward,
    rollout,
    vectorize,
    wrap,
)
from jaxvec.envs import begin, make
from jaxvec.random import hash_key
from tests.envs.toys import assert_same

pytestmark = pytest.mark.usefixtures("quick_compilation")
N, STEPS, KEY = 16, 25, hash_key(1)


@cache
def environment(update):
    """Returns CartPole without layers (None, "pool"), or with all and statistics of that update policy."""
    if update == "pool":
        # Often reset: every episode ends within 6 steps.
        return vectorize(
            make("CartPole-v1"), N, reset_source="pool", pool_size=5, max_episode_steps=6
        )
    env = vectorize(make("CartPole-v1"), N)
    if update is None:
        return env
    return wrap(
        env,
        episode_statistics(),
        frame_stack(2),
        normalize_observation(update=update),
        normalize_reward(update=update),
    )


def balancing(key, obs):
    """Draws, and looks at its own row."""
    drawn = jax.random.randint(key, (N,), 0, 2)
    return jnp.where(drawn == 0, 0, (obs[:, -2] > 0).astype(jnp.int32))


def random_actions(key, obs):
    return jax.random.randint(key, (N,), 0, 2)


def sharded(carry, devices):
    """Lays every leaf with an axis of N rows over some devices, and copies the others to each."""
    mesh = Mesh(np.array(jax.devices()[:devices]), ("env",))

    def place(leaf):
        rows = leaf.ndim > 0 and leaf.shape[0] == N
        spec = PartitionSpec("env") if rows else PartitionSpec()
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    return jax.tree.map(place, carry)


@cache
def start(update, devices):
    carry = begin(environment(update), policy(update), KEY)
    return sharded(carry, devices) if devices > 1 else carry


def policy(update):
    # Normalized by every step, observations differ in their last bits, and a policy that looks might turn.
    return random_actions if update == "step" else balancing


@cache
def run(update, devices):
    return rollout(environment(update), policy(update), KEY, STEPS, start=start(update, devices))


@pytest.mark.parametrize("devices", [2, 4])
@pytest.mark.parametrize("source", [None, "pool"])
def test_the_environment_on_several_devices_does_what_it_does_on_one_to_the_last_bit(
    source, devices
):
    carry, kept = run(source, devices)
    assert kept[2].done.sum() > 10
    assert_same(kept, run(source, 1)[1])
    assert_same(carry, run(source, 1)[0])


@pytest.mark.parametrize("devices", [2, 4])
def test_rows_stay_on_their_devices_so_that_the_next_chunk_goes_on_there(devices):
    carry, (obs, _, timestep) = run(None, devices)
    for leaf in (carry.obs, carry.first, carry.env_state.env.vector, carry.env_state.keys):
        assert leaf.sharding.shard_shape(leaf.shape)[0] == N // devices
    for leaf in (obs, timestep.final_obs):
        assert leaf.sharding.shard_shape(leaf.shape)[1] == N // devices


@pytest.mark.parametrize(("update", "devices"), [("step", 2), ("rollout", 4)])
def test_statistics_are_over_all_rows_of_all_devices(update, devices):
    (carry, kept), (alone_carry, alone) = run(update, devices), run(update, 1)
    np.testing.assert_array_equal(kept[1], alone[1])
    np.testing.assert_array_equal(kept[2].done, alone[2].done)
    np.testing.assert_array_equal(kept[2].info["episode"]["r"], alone[2].info["episode"]["r"])
    np.testing.assert_allclose(kept[0], alone[0], rtol=1e-4, atol=1e-5)
    for layer in (2, 3):
        found, wanted = (
            each.env_state.layers[layer].statistics.moments for each in (carry, alone_carry)
        )
        for name in ("mean", "var", "count"):
            np.testing.assert_allclose(
                getattr(found, name), getattr(wanted, name), rtol=1e-6, atol=1e-6, err_msg=name
            )


def talks(update):
    """Returns how many collectives a rollout on 4 devices has in its loop, and how many outside."""
    env = environment(update)
    compiled = (
        jax.jit(lambda carry: rollout(env, policy(update), KEY, STEPS, start=carry))
        .lower(start(update, 4))
        .compile()
    )
    inside = outside = 0
    for computation in re.split(r"\n(?=%|ENTRY)", compiled.as_text()):
        collectives = len(
            re.findall(r"= .*\b(?:all-|reduce-scatter|collective-)[\w-]*\(", computation)
        )
        if computation.startswith("ENTRY"):
            outside += collectives
        else:
            inside += collectives
    return inside, outside


def test_the_loop_of_a_rollout_without_statistics_needs_no_talk_between_devices():
    assert talks(None) == (0, 0)


def test_a_pool_is_dealt_without_talk_between_devices():
    assert talks("pool") == (0, 0)


def test_statistics_that_are_merged_after_the_rollout_need_no_talk_inside_its_loop():
    inside, outside = talks("rollout")
    assert inside == 0
    assert outside > 0
    assert talks("step")[0] > 0  # which shows that talk is seen
