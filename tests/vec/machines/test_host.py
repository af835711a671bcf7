"""No sequence of calls gives a wrong row, gets out of step, hangs or leaves a process: host environments."""

import gc
import multiprocessing
import os
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from jaxvec.vec import DummyVecEnv, HostVecEnv, SubprocVecEnv
from tests.vec.machines.fake_pool import FakePool
from tests.vec.machines.host import HostMachine
from tests.vec.machines.scripted import Script, ScriptEnv


class SeamMachine(HostMachine):
    """HostVecEnv and its layers over a pool that holds them to the contract."""

    def build(self, script: Script, num_envs: int, choice: int) -> Any:
        """Makes the VecEnv over a fake."""
        self.pool = FakePool(script, num_envs)
        return HostVecEnv(self.pool)

    def ready_next(self, order: int) -> None:
        """Lets rows become ready in another order."""
        self.pool.order = order


class DummyMachine(HostMachine):
    """DummyVecEnv and the layers."""

    concurrent = False

    def build(self, script: Script, num_envs: int, choice: int) -> Any:
        """Makes the VecEnv."""
        return DummyVecEnv([partial(ScriptEnv, script, row) for row in range(num_envs)])


class SubprocMachine(HostMachine):
    """SubprocVecEnv over real processes, and the layers: nothing of them may be left."""

    is_warm = False

    def build(self, script: Script, num_envs: int, choice: int) -> Any:
        """Makes the VecEnv: few workers or many, memory shared or not, the caller at work or not."""
        if not self.is_warm:  # the server that starts processes stays, and its descriptors
            SubprocVecEnv([partial(ScriptEnv, script, 0)]).close()
            type(self).is_warm = True
        gc.collect()
        self._open = len(os.listdir("/proc/self/fd"))
        return SubprocVecEnv(
            [partial(ScriptEnv, script, row) for row in range(num_envs)],
            num_workers=1 + choice % 3,
            shared_memory=choice % 2 == 0,
            caller_steps=choice % 5 == 0 and num_envs > 1,
            restart_workers=choice % 7 == 0,
            timeout=60.0,
        )

    def teardown(self) -> None:
        """Closes, and looks for what is left."""
        super().teardown()
        if not hasattr(self, "levels"):
            return
        del self.levels
        gc.collect()
        assert not [
            each for each in multiprocessing.active_children() if each.name.startswith("jaxvec")
        ]
        assert len(os.listdir("/proc/self/fd")) <= self._open


def run(machine: type[HostMachine], examples: int, steps: int) -> None:
    """Runs a machine; what failed once is told as the calls that lead there."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_calls_in_any_order_over_the_seam():
    run(SeamMachine, 50, 40)


def test_calls_in_any_order_in_this_process():
    run(DummyMachine, 50, 40)


def test_calls_in_any_order_over_processes():
    run(SubprocMachine, 5, 40)


@pytest.mark.long
def test_thousands_of_sequences_over_the_seam():
    run(SeamMachine, 2000, 50)


@pytest.mark.long
def test_thousands_of_sequences_in_this_process():
    run(DummyMachine, 2000, 50)


@pytest.mark.long
def test_many_sequences_over_processes():
    run(SubprocMachine, 50, 60)
