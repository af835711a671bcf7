"""HostVecEnv over a pool that is none: the seam is all it needs."""

import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.vec import HostVecEnv
from jaxvec.vec._columns import columns_of
from jaxvec.vec._pools import Pool
from jaxvec.vec._posts import posts
from jaxvec.vec._serve import Served
from jaxvec.vec._starting import shares


class FakePool(Pool):
    """Answers from a script, and writes down what it was told."""

    concurrent, pending, rows_under_way = True, None, ()

    def __init__(self, *script):
        self.num_envs = 2
        self.observation_space = self.action_space = spaces.Discrete(5)
        self.columns = columns_of(self.observation_space, 2)
        self.told, self.script = [], [[None, None], *script]

    def send(self, command, payload):
        self.told.append((command, payload))
        self.pending = command

    def recv(self, min_rows=None):
        self.pending = None
        answer = self.script.pop(0)
        return answer(self.columns) if callable(answer) else answer

    def drop(self):
        self.pending = None

    def close(self, timeout):
        self.told.append(("close", timeout))


def test_a_step_is_one_command_and_its_columns_are_copied():
    def ends(columns):
        columns.obs[:], columns.final[:], columns.reward[:] = [3, 4], [1, 2], 0.5
        columns.terminated[1] = True
        return Served({0: {"a": 1}}, {1: {"b": 2}})

    pool = FakePool(ends)
    venv = HostVecEnv(pool)
    obs, rewards, dones, infos = venv.step(np.array([1, 2]))
    assert pool.told[1][0] == "step"
    assert (obs.tolist(), rewards.tolist(), dones.tolist()) == ([3, 4], [0.5, 0.5], [False, True])
    assert infos[0] == {"a": 1, "TimeLimit.truncated": False}
    assert infos[1] == {"TimeLimit.truncated": False, "terminal_observation": 2}
    assert venv.reset_infos == [{}, {"b": 2}]
    pool.columns.obs[:] = 0
    assert obs.tolist() == [3, 4]


def test_a_reset_is_one_command_with_seeds_and_options():
    pool = FakePool(Served({}, {0: {"x": 1}}))
    venv = HostVecEnv(pool)
    venv.seed(4)
    venv.set_options([{}, {"level": 1}])
    venv.reset()
    assert pool.told[1] == ("reset", [(0, 4, {}), (1, 5, {"level": 1})])
    assert venv.reset_infos == [{"x": 1}, {}]
    venv.close(timeout=3)
    assert pool.told[-1] == ("close", 3)


def test_rows_are_shared_out_evenly():
    assert shares(7, 3) == [range(2), range(2, 4), range(4, 7)]
    assert shares(2, 2) == [range(1), range(1, 2)]


@pytest.mark.parametrize(
    ("command", "payload", "expected"),
    [
        ("step", "abcde", [(0, (["a", "b"], [0, 1])), (1, (["c", "d", "e"], [2, 3, 4]))]),
        ("rows", ([3, 0], "xy"), [(0, (["y"], [0])), (1, (["x"], [3]))]),
        ("reset", [(4, 1, {})], [(1, ([(4, 1, {})],))]),
        ("ask", ("f", [(2, ()), (0, (1,))]), [(0, ("f", [(0, (1,))])), (1, ("f", [(2, ())]))]),
        ("sticky", {1: {"a": 1}}, [(0, ({1: {"a": 1}},))]),
    ],
)
def test_a_command_becomes_one_post_for_each_worker_that_it_concerns(command, payload, expected):
    workers = [Someone(range(2)), Someone(range(2, 5))]
    result = [(workers.index(post.to), post.part) for post in posts(workers, command, payload)]
    assert result == expected


class Someone:
    def __init__(self, rows):
        self.rows = rows


def test_rows_that_are_to_be_skipped_are_told_to_nobody():
    (post,) = posts([Someone(range(3))], "step", "abc", skipped={1})
    assert post.part == (["a", "c"], [0, 2])
    assert posts([Someone(range(3))], "step", "abc", skipped={0, 1, 2}) == []
    (post,) = posts([Someone(range(1, 3))], "step", "abc")
    assert post.part == (["b", "c"], [1, 2])
