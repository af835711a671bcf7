"""Chunks of T steps: what groups step by themselves is what one process steps, and goes on where it was."""

import functools
import os
import warnings

import numpy as np
import pytest

from jaxvec.errors import AlreadyPendingError, WorkerDiedError, WorkerError
from jaxvec.vec import DummyVecEnv, RayVecEnv, VecMonitor, rollout_in_actors
from jaxvec.vec._chunk import dense_final, joined, roll_out
from jaxvec.vec._columns import columns_of
from jaxvec.vec._serve import Group
from tests.vec.host_envs import OBJECT_SPACES, PLAIN_SPACES, CountEnv, SpaceEnv, assert_same

SPACES = {**PLAIN_SPACES, **OBJECT_SPACES}
T, N = 25, 5


def parity(rng, obs):
    """A policy that depends on the observations alone, row by row."""
    leaf = next(iter(obs.values())) if isinstance(obs, dict) else obs
    leaf = leaf[0] if isinstance(leaf, tuple) else leaf
    return [len(repr(row)) % 2 for row in leaf]


def by_steps(venv, obs, num_steps):
    """Returns what `step` gives with that policy: observations, rewards, dones and infos of each step."""
    found = []
    for _ in range(num_steps):
        actions = parity(None, obs)
        after = venv.step(actions)
        found.append((obs, actions, after))
        obs = after[0]
    return found


def assert_is(found, obs, actions, reward, terminated, truncated, final, rows):
    """Asserts that columns `[T, N, ...]` are what single steps have given."""

    def at(tree, step):
        if isinstance(tree, dict):
            return {key: column[step] for key, column in tree.items()}
        return tuple(column[step] for column in tree) if isinstance(tree, tuple) else tree[step]

    for step, (before, taken, (_, rewards, dones, infos)) in enumerate(found):
        assert_same(at(obs, step), dict(before) if isinstance(before, dict) else before)
        assert actions[step].tolist() == taken
        np.testing.assert_array_equal(reward[step], rewards)
        np.testing.assert_array_equal(terminated[step] | truncated[step], dones)
        for row, info in enumerate(infos):
            assert info["TimeLimit.truncated"] == (
                truncated[step, row] and not terminated[step, row]
            )
            ours = rows(step, row) or {}
            assert set(ours) == set(info) - {"TimeLimit.truncated", "terminal_observation"}
            if dones[row]:
                assert repr(at(at(final, step), row)) == repr(
                    dict(info["terminal_observation"])
                    if isinstance(info["terminal_observation"], dict)
                    else info["terminal_observation"]
                )


@pytest.mark.parametrize("name", SPACES)
def test_groups_that_step_themselves_are_one_process_that_steps_them(name):
    make = functools.partial(SpaceEnv, SPACES[name])
    venv = DummyVecEnv([make] * N)
    venv.seed(4)
    first = venv.reset()
    columns = columns_of(SPACES[name], N)
    groups = [Group(range(2)), Group(range(2, N))]
    for group in groups:
        group.build([make] * len(group.rows))
        group.bind(columns)
        group.reset([(row, 4 + row, {}) for row in group.rows])
    for _ in range(2):  # the second chunk goes on where the first one ended
        parts = [(group.rows, roll_out(group, columns, parity, T, None)) for group in groups]
        chunk = joined(columns, venv.action_space, T, parts)
        found = by_steps(venv, first, T)
        first = found[-1][2][0]
        assert chunk.valid.all()
        assert_is(
            found,
            *chunk[:5],
            dense_final(chunk),
            lambda step, row, chunk=chunk: chunk.infos.get((step, row)),
        )
        assert any(dones.any() for _, _, (_, _, dones, _) in found)


def test_a_policy_may_write_into_what_it_gets():
    def rude(rng, obs):
        obs[:] = -1
        return [0] * len(obs)

    group = Group(range(2))
    group.build([CountEnv] * 2)
    columns = columns_of(group.envs[0].observation_space, 2)
    group.bind(columns)
    group.reset([(0, None, {}), (1, None, {})])
    chunk = roll_out(group, columns, rude, 4, None)
    assert chunk.obs[:, 0, 0].tolist() == [0, 1, 2, 0, 1]


def test_only_a_ray_vec_env_rolls_out_in_actors():
    with pytest.raises(TypeError, match="got a DummyVecEnv"):
        rollout_in_actors(DummyVecEnv([CountEnv]), parity, 3)
    with pytest.raises(TypeError, match=r"got a VecMonitor.*do not see steps in actors"):
        rollout_in_actors(VecMonitor(DummyVecEnv([CountEnv])), parity, 3)


@pytest.mark.long
@pytest.mark.parametrize("name", ["box", "dict", "tuple", "text"])
def test_a_rollout_in_actors_is_the_steps_of_one_process(local_ray, name):
    make = functools.partial(SpaceEnv, SPACES[name])
    local = DummyVecEnv([make] * N)
    with RayVecEnv([make] * N, num_actors=2) as remote:
        for venv in (local, remote):
            venv.seed(4)
            first = venv.reset()
        obs, actions, timestep = rollout_in_actors(remote, parity, T)
        found = by_steps(local, first, T)
        columns = (timestep.reward, timestep.terminated, timestep.truncated, timestep.final_obs)
        assert_is(found, obs, actions, *columns, lambda step, row: timestep.rows[step][row])
        assert timestep.valid.all()
        assert timestep.reward.shape == (T, N)
        assert remote.reset_infos == local.reset_infos
        ours, theirs = remote.step([0] * N), local.step([0] * N)  # and it goes on from there
        assert_same(ours[0], theirs[0])


@pytest.mark.long
def test_random_numbers_of_a_policy_start_anew_with_a_seed_and_go_on_without(local_ray):
    with RayVecEnv([functools.partial(CountEnv, 100)] * 4, num_actors=2) as venv:
        venv.reset()

        def actions(num_steps, seed=None):
            return rollout_in_actors(
                venv, lambda rng, obs: rng.integers(0, 2, len(obs)), num_steps, seed=seed
            )[1]

        whole = actions(20, seed=3)
        again = np.concatenate([actions(8, seed=3), actions(12)])
        np.testing.assert_array_equal(whole, again)
        assert (actions(20, seed=4) != whole).any()
        assert (whole[:, :2] != whole[:, 2:]).any()  # actors differ


@pytest.mark.long
def test_faults_of_a_policy_arrive_and_close(local_ray):
    def broken(rng, obs):
        raise FileNotFoundError(2, "no weights")

    venv = RayVecEnv([CountEnv] * 4, num_actors=2)
    venv.reset()
    venv.step_async([0] * 4)
    with pytest.raises(AlreadyPendingError):
        rollout_in_actors(venv, broken, 3)
    venv.step_wait()
    for bad in (0, 2.5, True):
        with pytest.raises(ValueError, match=f"num_steps={bad!r}"):
            rollout_in_actors(venv, broken, bad)
    with pytest.raises(TypeError, match="cannot be pickled"):
        rollout_in_actors(venv, (i for i in range(3)), 3)
    with pytest.raises(FileNotFoundError, match="no weights") as caught:
        rollout_in_actors(venv, broken, 3)
    assert isinstance(caught.value.__cause__, WorkerError)
    assert "in broken" in caught.value.__cause__.remote_traceback
    assert venv.closed
    with RayVecEnv([CountEnv] * 4, num_actors=2) as venv:
        venv.reset()
        with pytest.raises(ValueError, match="3 actions for 2 environments"):
            rollout_in_actors(venv, lambda rng, obs: [0] * 3, 3)


@pytest.mark.long
def test_a_large_policy_is_stored_once_and_arrives(local_ray):
    weights = np.arange(100_000)
    with RayVecEnv([CountEnv] * 4, num_actors=2) as venv:
        venv.reset()
        policy = lambda rng, obs: [int(weights[-1]) % 2] * len(obs)  # noqa: E731
        assert rollout_in_actors(venv, policy, 3)[1].tolist() == [[1] * 4] * 3


@pytest.mark.long
def test_an_actor_that_dies_in_a_chunk_ends_its_episodes_in_the_first_step(local_ray):
    fns = [functools.partial(CountEnv, 100)] * 4
    fns[3] = functools.partial(CountEnv, 100, fail={"step": (5, "kill")})
    venv = RayVecEnv(fns, num_actors=2)
    venv.reset()
    with pytest.raises(WorkerDiedError, match=r"environments 2-3 .* died while `rollout`"):
        rollout_in_actors(venv, parity, 10)
    assert venv.closed

    venv = RayVecEnv(fns, num_actors=2, restart_workers=True)
    venv.reset()
    venv.step([0] * 4)
    with pytest.warns(RuntimeWarning, match=r"\[2, 3\] ended and was started again"):
        obs, _, timestep = rollout_in_actors(venv, parity, 6)
    assert timestep.valid.tolist() == [[True] * 4] + [[True, True, False, False]] * 5
    assert timestep.truncated.tolist() == [[False, False, True, True]] + [[False] * 4] * 5
    assert timestep.reward[:, 2:].tolist() == [[0, 0]] * 6
    assert obs[:, 0, 0].tolist() == [1, 2, 3, 4, 5, 6]
    assert obs[:, 3, 0].tolist() == [1, 0, 0, 0, 0, 0]
    assert timestep.final_obs[0, 2:, 0].tolist() == [1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert venv.step([0] * 4)[0][:, 0].tolist() == [8, 8, 1, 1]
    pid = venv._pool._crew.actors[0].place.pid
    os.kill(pid, 9)
    with pytest.warns(RuntimeWarning, match=r"\[0, 1\]"):
        assert venv.get_attr("steps") == [0, 0, 1, 1]
    _, _, timestep = rollout_in_actors(venv, parity, 2)
    assert timestep.truncated.tolist() == [[True, True, False, False], [False] * 4]
    assert timestep.valid.tolist() == [[True] * 4, [False, False, True, True]]
    assert timestep.final_obs[0, 0].tolist() == [8, 8]
    venv.close()
