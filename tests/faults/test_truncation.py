"""Termination and truncation: told apart, in every info, whatever the flags are made of."""

import numpy as np
import pytest

from jaxvec.envs import vectorize
from jaxvec.vec import DummyVecEnv, Monitor, VecEnvWrapper, VecFrameStack, VecMonitor, VecNormalize
from tests.envs.toys import BOTH, TERMINATE, TRUNCATE, counter, play
from tests.faults.backends import ALL, HOST, HOST_STACKS, STACKS, Counter, made, stacked

every_stack = pytest.mark.parametrize(("backend", "layer"), STACKS)
every_host_stack = pytest.mark.parametrize(("backend", "layer"), HOST_STACKS)
FLAGS = {
    "both": ((True, True), BOTH, False),
    "terminated": ((True, False), TERMINATE, False),
    "truncated": ((False, True), TRUNCATE, True),
}


@every_host_stack
@pytest.mark.parametrize("flags", FLAGS)
def test_what_terminates_was_not_cut_off_even_if_both_flags_are_up(backend, layer, flags):
    ends, _, is_cut_off = FLAGS[flags]
    with stacked(backend, layer, length=1, ends=ends) as venv:
        venv.reset()
        *_, dones, infos = venv.step([0, 0])
        assert dones.tolist() == [True, True]
        assert [info["TimeLimit.truncated"] for info in infos] == [is_cut_off] * 2


@pytest.mark.parametrize("layer", ["bare", ALL])
@pytest.mark.parametrize("flags", FLAGS)
def test_what_terminates_was_not_cut_off_in_a_compiled_environment_either(layer, flags):
    _, action, is_cut_off = FLAGS[flags]
    with stacked("jax", layer) as venv:
        venv.reset()
        *_, dones, infos = venv.step([action, 0])
        assert dones.tolist() == [True, False]
        assert [info["TimeLimit.truncated"] for info in infos] == [is_cut_off, False]


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
@pytest.mark.parametrize("flags", FLAGS)
def test_a_rollout_shows_one_flag_at_most(mode, flags):
    _, action, is_cut_off = FLAGS[flags]
    steps = play(
        vectorize(counter(), 2, autoreset_mode=mode), 1, actions=np.full((1, 2), action)
    ).steps
    assert steps.truncated.tolist() == [[is_cut_off] * 2]
    assert steps.terminated.tolist() == [[not is_cut_off] * 2]


@every_stack
def test_every_info_of_every_step_says_whether_it_was_cut_off(backend, layer):
    with stacked(backend, layer) as venv:
        venv.reset()
        for step in range(1, 5):
            *_, infos = venv.step([0, 0])
            said = [info["TimeLimit.truncated"] for info in infos]
            # The compiled environment terminates at its end, the others are cut off.
            assert said == [step == 3 and backend != "jax"] * 2
            assert all(type(each) is bool for each in said)


@pytest.mark.parametrize("backend", HOST)
@pytest.mark.parametrize("flag", [int, float, np.bool_, np.float32, np.array], ids=repr)
def test_flags_of_any_kind_arrive_as_bool(backend, flag):
    with made(backend, flag=flag) as venv:
        venv.reset()
        for step in range(1, 4):
            *_, dones, infos = venv.step([0, 0])
            assert dones.dtype == bool
            assert dones.tolist() == [step == 3] * 2
            assert infos[0]["TimeLimit.truncated"] is (step == 3)


class OtherDones(VecEnvWrapper):
    """A VecEnv of others, whose dones are numbers."""

    kind = int

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        return obs, rewards, dones.astype(self.kind), infos


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.uint8])
def test_dones_that_are_numbers_are_no_indices(kind):
    lengths = (9, 2, 9)
    inner = OtherDones(DummyVecEnv([lambda n=n: Counter(n) for n in lengths]))
    inner.kind = kind
    venv = VecMonitor(VecFrameStack(VecNormalize(inner, gamma=1.0), 2))
    venv.reset()
    venv.step([0] * 3)
    assert venv.venv.venv.returns.tolist() == [1, 1, 1]
    assert venv.episode_lengths.tolist() == [1, 1, 1]
    *_, dones, infos = venv.step([0] * 3)
    assert dones.dtype == bool
    assert dones.tolist() == [False, True, False]
    assert venv.venv.venv.returns.tolist() == [2, 0, 2]
    assert venv.episode_lengths.tolist() == [2, 0, 2]
    assert ["episode" in info for info in infos] == [False, True, False]


@pytest.mark.parametrize("ends", [(True, True), (False, True), (True, False)])
def test_a_monitor_ends_an_episode_at_either_flag(ends):
    env = Monitor(Counter(2, ends=ends))
    env.reset()
    assert "episode" not in env.step(0)[4]
    assert env.step(0)[4]["episode"]["l"] == 2
