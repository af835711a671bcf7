"""Threads: VecEnvs side by side, VecEnvs that change hands, and a warning where threads would be forked."""

import copy
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from jaxvec import vectorize
from jaxvec.envs import make
from jaxvec.vec import (
    DummyVecEnv,
    JaxVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecMonitor,
)
from tests.vec.host_envs import PLAIN_SPACES, SpaceEnv

N, STEPS = 3, 60


def host_env() -> SpaceEnv:
    """Makes an environment whose space, which it draws from, is no other's."""
    return SpaceEnv(copy.deepcopy(PLAIN_SPACES["box"]))


MAKERS: dict[str, Callable[[], Any]] = {
    "dummy": lambda: DummyVecEnv([host_env] * N),
    "subproc": lambda: SubprocVecEnv([host_env] * N, num_workers=2),
    "caller": lambda: SubprocVecEnv([host_env] * N, num_workers=1, caller_steps=True),
    "jax": lambda: JaxVecEnv(vectorize(make("CartPole-v1"), N)),
}


def layered(backend: str) -> Any:
    return VecFrameStack(VecMonitor(MAKERS[backend]()), 2)


def trace(venv: Any, seed: int) -> list[Any]:
    """Returns all that a few steps show, but for times."""
    venv.seed(seed)
    shown = [venv.reset().tolist()]
    rng = np.random.default_rng(seed)
    for _ in range(STEPS):
        obs, rewards, dones, infos = venv.step(rng.integers(0, 2, N))
        episodes = [info["episode"]["r"] for info in infos if "episode" in info]
        shown.append((obs.tolist(), rewards.tolist(), dones.tolist(), episodes))
    return shown


def in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Starts a thread; what is returned waits for what its function returned, or raises what it raised."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()

    def wait() -> Any:
        thread.join(120)
        assert not thread.is_alive(), "it stands still"
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    return wait


@pytest.mark.parametrize(
    ("first", "second"),
    [("dummy", "jax"), ("subproc", "caller"), ("jax", "jax"), ("dummy", "dummy")],
)
def test_two_vec_envs_in_two_threads_do_not_disturb_each_other(first: str, second: str) -> None:
    """Each shows what it shows alone."""
    venvs = layered(first), layered(second)
    waits = [in_thread(partial(trace, venv, seed)) for seed, venv in enumerate(venvs)]
    together = [wait() for wait in waits]
    assert together == [trace(venv, seed) for seed, venv in enumerate(venvs)]
    for venv in venvs:
        venv.close()


@pytest.mark.parametrize("backend", list(MAKERS))
def test_a_vec_env_can_be_made_stepped_and_closed_in_three_threads(backend: str) -> None:
    venv = in_thread(partial(layered, backend))()
    assert in_thread(partial(trace, venv, 5))() == trace(venv, 5)
    venv.step_async(np.zeros(N, int))  # a step may change hands too
    assert len(in_thread(venv.step_wait)()[1]) == N
    in_thread(venv.close)()
    venv.close()


FORKING = """
import warnings
{setup}
from jaxvec.vec import SubprocVecEnv
from tests.vec.host_envs import CountEnv

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    venv = SubprocVecEnv([CountEnv] * 2, "{method}", num_workers=2)
venv.close()
print([str(each.message) for each in caught if "SubprocVecEnv" in str(each.message)])
"""


def forked(setup: str, method: str = "fork") -> str:
    """Runs a program that makes a SubprocVecEnv, and returns which of its warnings came."""
    code = FORKING.format(setup=setup, method=method)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_forking_with_jax_at_work_warns_and_names_the_remedy() -> None:
    warned = forked("import jax.numpy as jnp; jnp.zeros(3).block_until_ready()")
    assert "forkserver" in warned
    assert "JAX" in warned
    assert warned.count("SubprocVecEnv") == 1, "once, not once a worker"


@pytest.mark.parametrize(("setup", "method"), [("", "fork"), ("import jax", "forkserver")])
def test_forking_without_jax_or_by_a_server_warns_of_nothing(setup: str, method: str) -> None:
    assert forked(setup, method) == "[]"
