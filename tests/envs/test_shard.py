"""`shard`: rows over a mesh of devices, and what it refuses."""

import textwrap

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh

from jaxvec import episode_statistics, frame_stack, normalize_observation, rollout, vectorize, wrap
from jaxvec.envs import device_mesh, make, random_policy, shard
from jaxvec.random import hash_key, keys_from
from tests.envs.toys import assert_same
from tests.processes import run_two_processes

pytestmark = pytest.mark.usefixtures("quick_compilation")
N = 8


def environment(num_envs=N, update="rollout"):
    return wrap(
        vectorize(make("CartPole-v1"), num_envs),
        episode_statistics(),
        normalize_observation(update=update),
        frame_stack(2),
    )


def rows_per_device(leaf):
    return leaf.sharding.shard_shape(leaf.shape)[0]


@pytest.mark.parametrize("devices", [2, 4])
def test_a_rollout_lies_on_the_mesh_from_its_first_state_on_and_is_the_same(devices):
    env = environment()
    policy = random_policy(env)
    sharded = shard(env, device_mesh(devices))
    carry, (_, action, timestep) = rollout(sharded, policy, hash_key(0), 20)
    plain_carry, (_, plain_action, plain_timestep) = rollout(env, policy, hash_key(0), 20)
    np.testing.assert_array_equal(action, plain_action)
    np.testing.assert_array_equal(timestep.done, plain_timestep.done)
    assert_same(carry.env_state.env, plain_carry.env_state.env)
    assert (
        rows_per_device(carry.obs)
        == rows_per_device(carry.env_state.env.env.vector)
        == N // devices
    )
    moments, plain = (each.env_state.layers[1].statistics.moments for each in (carry, plain_carry))
    np.testing.assert_allclose(moments.mean, plain.mean, rtol=1e-6, atol=1e-6)
    assert moments.mean.sharding.is_fully_replicated


def test_single_steps_and_partial_resets_stay_on_the_mesh_without_a_jit_around():
    env, sharded = (f(vectorize(make("CartPole-v1"), 4)) for f in (lambda e: e, shard))
    keys = keys_from(hash_key(3), 4)
    state, timestep = sharded.reset(keys)
    assert rows_per_device(timestep.obs) == 1
    state, timestep = sharded.step(state, np.array([0, 1, 0, 1]))
    state, timestep = sharded.reset_rows(state, np.array([True, False, False, True]))
    assert rows_per_device(timestep.obs) == rows_per_device(state.env.vector) == 1
    plain, _ = env.step(env.reset(keys)[0], np.array([0, 1, 0, 1]))
    plain, _ = env.reset_rows(plain, np.array([True, False, False, True]))
    np.testing.assert_array_equal(state.env.vector, plain.env.vector)


def test_a_mesh_of_explicit_axes_will_do():
    mesh = jax.make_mesh((4,), ("env",), axis_types=(AxisType.Explicit,))
    _, timestep = shard(environment(), mesh).reset(keys_from(hash_key(0), N))
    assert rows_per_device(timestep.obs) == N // 4


def test_rows_are_spread_over_the_named_axis_and_copied_over_the_others():
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("seed", "env"))
    _, timestep = shard(environment(), mesh).reset(keys_from(hash_key(0), N))
    assert rows_per_device(timestep.obs) == N // 2
    _, timestep = shard(environment(), mesh, axis=("seed", "env")).reset(keys_from(hash_key(0), N))
    assert rows_per_device(timestep.obs) == N // 4


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((lambda: None, None), TypeError, "shard: env is .*function"),
        ((environment(), "all"), TypeError, "shard: mesh is of type str"),
        ((environment(6), None), ValueError, "6 environments do not divide among 4.*4 or 8 would"),
        ((environment(2), None), ValueError, "2 environments do not divide among 4.*4 would"),
        ((environment(), None, "row"), ValueError, "axis 'row' came.*\\['env'\\]"),
    ],
)
def test_what_cannot_be_laid_out_is_refused_before_anything_runs(arguments, error, words):
    with pytest.raises(error, match=words):
        shard(*arguments)


@pytest.mark.parametrize("count", [0, -1, 5, 2.5])
def test_devices_that_do_not_exist_are_refused(count):
    with pytest.raises(ValueError, match=f"device_mesh: num_devices={count}"):
        device_mesh(count)


PROCESS = textwrap.dedent(
    """
    from jax.experimental.multihost_utils import process_allgather

    from jaxvec import normalize_observation, rollout, vectorize, wrap
    from jaxvec.envs import device_mesh, make, random_policy, shard
    from jaxvec.random import hash_key

    env = wrap(vectorize(make("CartPole-v1"), 8), normalize_observation())
    env = shard(env, device_mesh(4))
    policy = random_policy(env)
    carry, (_, action, timestep) = rollout(env, policy, hash_key(5), 30)
    moments = carry.env_state.layers.statistics.moments
    np.savez(
        sys.argv[3],
        mean=np.asarray(moments.mean),
        var=np.asarray(moments.var),
        count=np.asarray(moments.count),
        done=process_allgather(timestep.done, tiled=True),
        vector=process_allgather(carry.env_state.env.env.vector, tiled=True),
    )
    """
)


def test_two_processes_learn_the_statistics_that_one_learns(tmp_path):
    first, second = run_two_processes(PROCESS, tmp_path)
    env = wrap(vectorize(make("CartPole-v1"), 8), normalize_observation())
    policy = random_policy(env)
    carry, (_, _, timestep) = rollout(env, policy, hash_key(5), 30)
    moments = carry.env_state.layers.statistics.moments
    for name in ("mean", "var", "count"):
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_allclose(first[name], getattr(moments, name), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(first["done"], timestep.done)
    np.testing.assert_array_equal(first["vector"], carry.env_state.env.env.vector)
