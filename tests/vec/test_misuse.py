"""What environments and callers get wrong: refused by name, with the environment, in either backend."""

import math
import os
import subprocess
import sys
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.vec import DummyVecEnv, RayVecEnv, SubprocVecEnv
from tests.vec.host_envs import CountEnv


@pytest.fixture(params=["dummy", "subproc", pytest.param("ray", marks=pytest.mark.long)])
def backend(request):
    if request.param == "ray":
        request.getfixturevalue("local_ray")
        return partial(RayVecEnv, num_actors=1)
    return {
        "dummy": DummyVecEnv,
        "subproc": partial(SubprocVecEnv, start_method="fork", num_workers=1),
    }[request.param]


UINT8 = spaces.Box(0, 255, (2,), np.uint8)
DICT = spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.Discrete(3))
PAIR = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (2,))])
ZEROS = np.zeros(2, np.float32)


class Returns(CountEnv):
    """A step returns what one says, a reset too; anything else is as it should be."""

    def __init__(self, step=None, reset=None, space=None, **parts):
        super().__init__(5)
        self.returned_step, self.returned_reset, self.parts = step, reset, parts
        self.observation_space = space or self.observation_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        good = (self.observation_space.sample(), self.parts.get("reset_info", {}))
        return good if self.returned_reset is None else self.returned_reset

    def step(self, action):
        if self.returned_step is not None:
            return self.returned_step
        obs, reward, terminated, truncated, info = super().step(action)
        parts = {"obs": obs, "reward": reward, "terminated": terminated, "info": info, **self.parts}
        return parts["obs"], parts["reward"], parts["terminated"], truncated, parts["info"]


def outcome(backend, **wrong):
    """Steps two environments of which the second returns something wrong."""
    space = wrong.get("space")
    fine = {"space": space, **({"obs": space.sample()} if space is not None else {})}
    with backend([partial(Returns, **fine), partial(Returns, **wrong)]) as venv:
        venv.reset()
        return venv.step([0, 0])


@pytest.mark.parametrize(
    ("reward", "error", "match"),
    [
        (None, TypeError, "environment 1: the reward is None"),
        ("x", TypeError, "environment 1: the reward is 'x'"),
        (1j, TypeError, "environment 1: the reward is 1j"),
        (np.zeros(2), ValueError, r"environment 1: .*shape \(2,\); one number"),
        (np.zeros(0), ValueError, r"environment 1: .*shape \(0,\); one number"),
        (1e39, ValueError, r"environment 1: the reward 1e\+39 does not fit float32"),
        (-(10**400), ValueError, "environment 1: the reward -10+ does not fit float32"),
        (np.float64(1e300), ValueError, "environment 1: .*does not fit float32"),
    ],
    ids=repr,
)
def test_a_reward_that_is_no_number_is_refused(backend, reward, error, match):
    with pytest.raises(error, match=match):
        outcome(backend, reward=reward)


@pytest.mark.parametrize(
    ("reward", "value"),
    [(np.ones(1), 1), ([[2.0]], 2), (True, 1), (np.int8(3), 3), (math.inf, math.inf)],
    ids=repr,
)
def test_a_reward_of_one_number_arrives_as_float32(backend, reward, value):
    rewards = outcome(backend, reward=reward)[1]
    assert rewards.tolist() == [1, value]
    assert rewards.dtype == np.float32


def test_a_reward_that_is_nan_arrives_for_vec_check_nan_to_find(backend):
    assert np.isnan(outcome(backend, reward=math.nan)[1]).tolist() == [False, True]


@pytest.mark.parametrize("info", [None, [], "abc", 5, [("a", 1)]], ids=repr)
def test_an_info_that_is_no_dict_is_refused(backend, info):
    with pytest.raises(TypeError, match=r"environment 1: the info is .*; a dict is needed"):
        outcome(backend, info=info)
    with pytest.raises(TypeError, match=r"environment 1: the info is .*; a dict is needed"):
        outcome(backend, reset_info=info)


@pytest.mark.parametrize(
    ("obs", "error", "match"),
    [
        (np.zeros(3, np.float32), ValueError, r"row 1: .*shape \(3,\), \(2,\) is needed"),
        (np.zeros((2, 1), np.float32), ValueError, r"row 1: .*shape \(2, 1\), \(2,\) is needed"),
        (np.float32(7), ValueError, r"row 1: .*shape \(\), \(2,\) is needed"),
        (None, TypeError, "row 1: got None"),
        ({"a": 1}, TypeError, "row 1: got {'a': 1}"),
        (np.array(["a", "b"]), TypeError, "row 1: got .*array of <U1"),
        (np.array([1e39, 0]), ValueError, r"row 1: 1e\+39 does not fit float32"),
    ],
    ids=repr,
)
def test_an_observation_of_the_wrong_shape_or_kind_is_refused(backend, obs, error, match):
    with pytest.raises(error, match=match):
        outcome(backend, obs=obs)


@pytest.mark.parametrize(
    ("space", "obs", "error", "match"),
    [
        (UINT8, np.array([300, 1]), ValueError, "row 1: 300 does not fit uint8"),
        (UINT8, [-1, 1], ValueError, "row 1: -1 does not fit uint8"),
        (UINT8, np.array([1.5, 1]), ValueError, "row 1: 1.5 does not fit uint8"),
        (DICT, {"a": ZEROS}, LookupError, r"row 1: the value lacks \['b'\]"),
        (DICT, {"a": np.zeros(3), "b": 1}, ValueError, r"row 1, \['a'\]: .*shape \(3,\)"),
        (DICT, {"a": ZEROS, "b": 1.5}, ValueError, r"row 1, \['b'\]: 1.5 does not fit int64"),
        (DICT, ZEROS, TypeError, "row 1: got .* a dict is needed"),
        (PAIR, (1,), LookupError, "row 1: the value has 1 parts, 2 are needed"),
        (PAIR, (1, np.zeros(3)), ValueError, r"row 1, \[1\]: .*shape \(3,\)"),
    ],
    ids=repr,
)
def test_an_observation_that_is_not_of_the_space_is_refused_with_row_and_key(
    backend, space, obs, error, match
):
    with pytest.raises(error, match=match):
        outcome(backend, obs=obs, space=space)


@pytest.mark.parametrize("result", [None, 5, (ZEROS, 0.0, False, {})], ids=repr)
def test_a_step_of_another_form_is_refused_with_the_form_that_is_needed(backend, result):
    class Old(Returns):
        def step(self, action):
            return result

    with backend([Returns, Old]) as venv:
        venv.reset()
        with pytest.raises(
            TypeError, match=r"environment 1: step\(\) returned .*terminated, trunc"
        ):
            venv.step([0, 0])


@pytest.mark.parametrize("result", [ZEROS, {"a": 1, "b": 2}, (ZEROS, {}, 3)], ids=repr)
def test_a_reset_of_another_form_is_refused_even_if_it_has_two_parts(backend, result):
    with (
        pytest.raises(TypeError, match=r"environment 1: reset\(\) returned .*observation, info"),
        backend([Returns, partial(Returns, reset=result)]) as venv,
    ):
        venv.reset()


def test_any_iterable_of_functions_makes_a_venv(backend):
    for env_fns in ((CountEnv, CountEnv), (CountEnv for _ in range(2))):
        with backend(env_fns) as venv:
            assert venv.num_envs == 2
            assert venv.reset().shape == (2, 2)


def test_what_is_no_list_of_functions_is_refused_by_name(backend):
    with pytest.raises(IndexError, match="env_fns is empty"):
        backend([])
    with pytest.raises(IndexError, match="env_fns is empty"):
        backend(iter(()))
    with pytest.raises(TypeError, match="a list of functions is needed"):
        backend(CountEnv)
    with pytest.raises(TypeError, match="a list of functions is needed"):
        backend(5)
    with pytest.raises(TypeError, match=r"env_fns\[1\] is <.*CountEnv.* a function that makes"):
        backend([CountEnv, CountEnv()])
    with pytest.raises(TypeError, match=r"env_fns\[0\] is 'C' of type str"):
        backend("CartPole-v1")


def test_steps_and_sent_rows_do_not_mix(backend):
    with backend([CountEnv] * 3) as venv:
        venv.reset()
        venv.send([0], [1])
        with pytest.raises(AlreadyPendingError):
            venv.step([0] * 3)
        with pytest.raises(NotPendingError):
            venv.step_wait()
        assert venv.recv()[0].tolist() == [1]
        assert venv.step([0] * 3)[0][:, 0].tolist() == [1, 2, 1]
        venv.step_async([0] * 3)
        with pytest.raises(AlreadyPendingError):
            venv.send([0], [1])
        with pytest.raises(NotPendingError):
            venv.recv()
        assert venv.step_wait()[0][:, 0].tolist() == [2, 0, 2]
        venv.send([0, 0], [0, 2])
        venv.seed(3)
        assert venv.reset().tolist() == np.zeros((3, 2)).tolist()
        with pytest.raises(NotPendingError):
            venv.recv()
        assert venv.get_attr("resets", 0)[0][-1][0] == 3


def test_a_reset_of_some_rows_loses_no_step_of_the_others(backend):
    with backend([CountEnv] * 3) as venv:
        venv.reset()
        venv.send([0, 0], [0, 2])
        with pytest.raises(AlreadyPendingError, match=r"\[0\] are being stepped"):
            venv.reset([1, 2])
        assert venv.recv()[1][:, 0].tolist() == [1, 1]
        venv.send([0, 0], [0, 2])
        assert venv.reset([0, 2])[:, 0].tolist() == [0, 0, 0]
        venv.step_async([0] * 3)
        with pytest.raises(AlreadyPendingError, match=r"\[0, 1\] are being stepped"):
            venv.reset(2)
        assert venv.step_wait()[0][:, 0].tolist() == [1, 1, 1]
        assert venv.reset(2)[:, 0].tolist() == [1, 1, 0]


def test_a_reset_that_is_refused_loses_no_step(backend):
    with backend([CountEnv] * 2) as venv:
        venv.reset()
        venv.step_async([0, 0])
        venv.set_options([{"level": 1}])
        with pytest.raises(IndexError, match="Nothing was reset"):
            venv.reset()
        assert venv.step_wait()[0][:, 0].tolist() == [1, 1]


def test_an_attribute_that_is_set_while_a_step_is_pending_is_not_lost(backend):
    with backend([CountEnv] * 2) as venv:
        venv.reset()
        venv.step_async([0, 0])
        try:
            venv.set_attr("secret", 9)
        except AlreadyPendingError:
            venv.step_wait()
            venv.set_attr("secret", 9)
            venv.step_async([0, 0])
        venv.step_wait()
        assert venv.get_attr("secret") == [9, 9]


def test_a_closed_venv_of_processes_refuses_every_call_by_name(backend):
    venv = backend([CountEnv] * 2)
    venv.close()
    venv.close()
    if backend is DummyVecEnv:  # SB3's goes on: its environments are still there
        assert venv.env_method("add", 1) == [6, 6]
        return
    for call in (
        lambda: venv.env_method("add", 1),
        lambda: venv.get_attr("secret"),
        lambda: venv.set_attr("secret", 1),
        lambda: venv.has_attr("secret"),
        lambda: venv.env_is_wrapped(gym.Wrapper),
        lambda: venv.reset(),
        lambda: venv.step([0, 0]),
        lambda: venv.send([0, 0]),
    ):
        with pytest.raises(ClosedError, match=r"close\(\) was called"):
            call()


class Forking(CountEnv):
    """Starts programs and forks while it steps, as simulators do."""

    def step(self, action):
        done = subprocess.run(
            [sys.executable, "-c", "print(3)"], capture_output=True, check=True, text=True
        )
        child = os.fork()
        if child == 0:
            os._exit(int(done.stdout))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        obs, _, *rest = super().step(action)
        return obs, code, *rest


def test_an_environment_may_fork_and_start_programs(backend):
    with backend([Forking] * 2) as venv:
        venv.reset()
        assert venv.step([0, 0])[1].tolist() == [3, 3]
        assert venv.step([0, 0])[0][:, 0].tolist() == [2, 2]


def test_a_thousand_environments_step_in_few_workers(backend):
    with backend([partial(CountEnv, 3)] * 1000) as venv:
        venv.reset()
        for _ in range(3):
            obs, rewards, dones, infos = venv.step(np.zeros(1000, int))
        assert dones.all()
        assert rewards.sum() == 1000
        assert not obs.any()
        assert [info["terminal_observation"][0] for info in infos] == [3] * 1000
