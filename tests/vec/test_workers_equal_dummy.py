"""Workers give what DummyVecEnv gives, bit for bit: spaces x workers x start methods x memory x Ray."""

import functools
import warnings

import gymnasium as gym
import numpy as np
import pytest

from jaxvec.vec import DummyVecEnv, RayVecEnv, SubprocVecEnv
from tests.vec.host_envs import (
    OBJECT_SPACES,
    PLAIN_SPACES,
    CountEnv,
    SpaceEnv,
    actions_for,
    assert_same,
)

SPACES = {**PLAIN_SPACES, **OBJECT_SPACES}
N = 5


def same_infos(ours, theirs):
    assert type(ours) is type(theirs)
    for info, other in zip(ours, theirs, strict=True):
        assert list(info) == list(other)
        for key in info:
            if key == "terminal_observation":
                assert_same(info[key], other[key])
            else:
                assert type(info[key]) is type(other[key])
                np.testing.assert_array_equal(info[key], other[key])


def assert_equal_traces(venv, space, action_space=None, steps=60, as_list=False, **options):
    make = functools.partial(SpaceEnv, space, action_space)
    local = DummyVecEnv([make] * N)
    with venv([make] * N, **options) as remote:
        assert remote.observation_space == local.observation_space
        for venv in (local, remote):
            venv.seed(11)
            venv.set_options({"level": 3})
        assert_same(remote.reset(), local.reset())
        assert remote.reset_infos == local.reset_infos
        for step in range(steps):
            actions = actions_for(local.action_space, N, step)
            actions = list(actions) if as_list else actions
            ours, theirs = remote.step(actions), local.step(actions)
            for one, other in zip(ours[:3], theirs[:3], strict=True):
                assert_same(one, other)
            same_infos(ours[3], theirs[3])
            assert remote.reset_infos == local.reset_infos
            if step % 20 == 7:
                assert_same(remote.reset(indices=[3, 0]), local.reset(indices=[3, 0]))


@pytest.mark.parametrize("name", SPACES)
def test_every_space_gives_the_same_trace(workers, name):
    assert_equal_traces(workers, SPACES[name], count=2)


@pytest.mark.parametrize("name", SPACES)
def test_every_space_gives_the_same_trace_through_messages(name):
    assert_equal_traces(SubprocVecEnv, SPACES[name], num_workers=3, shared_memory=False)


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
@pytest.mark.parametrize("count", [1, 2, 9])
def test_every_start_method_and_number_of_workers_gives_the_same_trace(start_method, count):
    options = {"start_method": start_method, "num_workers": count}
    assert_equal_traces(SubprocVecEnv, PLAIN_SPACES["dict"], **options)


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 3, 9, "auto"])
def test_every_number_of_actors_gives_the_same_trace(local_ray, count):
    assert_equal_traces(RayVecEnv, PLAIN_SPACES["dict"], num_actors=count)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_steps_by_the_caller_give_the_same_trace(shared_memory):
    assert_equal_traces(
        SubprocVecEnv,
        PLAIN_SPACES["image"],
        num_workers=2,
        caller_steps=True,
        shared_memory=shared_memory,
    )


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("name", ["box", "box64", "multi_discrete"])
def test_every_kind_of_action_reaches_the_environment_as_in_one_process(workers, name, as_list):
    assert_equal_traces(workers, PLAIN_SPACES["box"], SPACES[name], 30, as_list, count=2)


def test_actions_that_are_no_arrays_reach_the_environment(workers):
    make = functools.partial(SpaceEnv, PLAIN_SPACES["box"], SPACES["text"])
    with workers([make] * 2) as venv:
        venv.seed(0)
        venv.reset()
        seen = set()
        for _ in range(20):
            *_, infos = venv.step(["ab", "cd"])
            seen |= {str(info["action"]) for info in infos if "action" in info}
        assert seen == {"ab", "cd"}


def test_another_action_dtype_than_the_space_says_is_handed_on_as_it_is(workers):
    make = functools.partial(SpaceEnv, PLAIN_SPACES["box"], PLAIN_SPACES["box"])
    with workers([make] * 3, count=2) as venv:
        venv.seed(5)
        venv.reset()
        for _ in range(20):
            *_, infos = venv.step(np.full((3, 3), 0.1))
            for info in infos:
                if "action" in info:
                    assert info["action"].dtype == np.float64
                    assert info["action"].tolist() == [0.1] * 3


def test_cartpole_gives_the_same_trace_under_the_default_start_method(workers):
    fns = [functools.partial(gym.make, "CartPole-v1")] * 8
    local = DummyVecEnv(fns)
    with workers(fns) as remote:
        for venv in (local, remote):
            venv.seed(1)
        assert_same(remote.reset(), local.reset())
        for step in range(200):
            actions = actions_for(local.action_space, 8, step)
            ours, theirs = remote.step(actions), local.step(actions)
            for one, other in zip(ours[:3], theirs[:3], strict=True):
                assert_same(one, other)
            same_infos(ours[3], theirs[3])


def test_attributes_methods_and_wrappers_are_reached_row_by_row(workers):
    makes = [functools.partial(CountEnv, 10 + i, render_mode="rgb_array") for i in range(4)]
    fns = [lambda make=make: gym.wrappers.TimeLimit(make(), 5) for make in makes[:3]] + makes[3:]
    with workers(fns, count=2) as venv:
        assert venv.get_attr("length") == [10, 11, 12, 13]
        assert venv.get_attr("length", [3, 0, 3]) == [13, 10, 13]
        assert venv.get_attr("length", np.array([False, True, False, True])) == [11, 13]
        assert venv.get_attr("length", []) == []
        assert venv.env_method("add", 1, right=2, indices=slice(1, 3)) == [8, 8]
        venv.set_attr("secret", 7, indices=-1)
        venv.set_attr("secret", 8, indices=0, where="unwrapped")
        assert venv.env_method("add", 0) == [8, 5, 5, 7]
        assert venv.has_attr("secret")
        assert not venv.has_attr("nothing")
        assert venv.env_is_wrapped(gym.wrappers.TimeLimit) == [True, True, True, False]
        assert venv.render_mode == "rgb_array"
        assert venv.metadata == {"render_modes": ["human", "rgb_array"]}
        assert venv.render().shape == (8, 8, 3)
        assert [image.shape for image in venv.get_images()] == [(4, 4, 3)] * 4
        with pytest.raises(AttributeError, match="nothing"):
            venv.get_attr("nothing")
        assert venv.get_attr("length", 0) == [10]


def test_sticky_options_reach_automatic_resets_in_workers(workers):
    with workers([functools.partial(CountEnv, 2)] * 2) as venv:
        venv.set_options([{"level": 1}, {}], sticky=True)
        venv.reset()
        venv.step([0, 0]), venv.step([0, 0])
        resets = venv.get_attr("resets")
    assert [options for _, options in resets[0]] == [{"level": 1}] * 2
    assert [options for _, options in resets[1]] == [None] * 2


def test_rows_sent_one_by_one_give_the_trace_of_full_steps(workers):
    assert_rows_give_the_trace_of_full_steps(workers, count=2)


def test_rows_sent_to_the_caller_too_give_the_trace_of_full_steps():
    assert_rows_give_the_trace_of_full_steps(SubprocVecEnv, num_workers=2, caller_steps=True)


def assert_rows_give_the_trace_of_full_steps(venv, **options):
    make = functools.partial(SpaceEnv, PLAIN_SPACES["box"])
    local = DummyVecEnv([make] * 4)
    with venv([make] * 4, **options) as remote:
        for venv in (local, remote):
            venv.seed(2)
            venv.reset()
        trace = [[] for _ in range(4)]
        expected = [[] for _ in range(4)]
        for _ in range(40):
            obs, rewards, dones, infos = local.step([0] * 4)
            for row in range(4):
                expected[row].append((obs[row], rewards[row], dones[row], infos[row]))
        remote.send([0] * 4)
        while any(len(steps) < 40 for steps in trace):
            rows, obs, rewards, dones, infos = remote.recv(min_envs=1)
            for place, row in enumerate(rows):
                trace[row].append((obs[place], rewards[place], dones[place], infos[place]))
            again = [row for row in rows.tolist() if len(trace[row]) < 40]
            remote.send([0] * len(again), again)
        assert str(trace) == str(expected)


def test_one_slow_reset_does_not_hold_the_other_rows(workers):
    fns = [functools.partial(CountEnv, 1, reset_sleep=20.0), *[functools.partial(CountEnv, 99)] * 3]
    venv = workers(fns, 4)
    venv.reset()
    venv.send([0] * 4)
    counts = dict.fromkeys(range(4), 0)
    while sum(counts.values()) < 30:
        rows, *_ = venv.recv(min_envs=1)
        for row in rows.tolist():
            counts[row] += 1
        venv.send([0] * len(rows), rows)
    assert counts[0] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # if it sleeps already, it is killed and that is said
        venv.close(timeout=0.2)


def test_sticky_options_reach_the_rows_that_the_caller_steps():
    make = functools.partial(CountEnv, 1)
    with SubprocVecEnv([make] * 3, num_workers=1, caller_steps=True) as venv:
        venv.set_options({"level": 4}, sticky=True)
        venv.reset()
        venv.step(np.zeros(3, int))
        given = [resets[-1] for resets in venv.get_attr("resets")]
    assert given == [(None, {"level": 4})] * 3
