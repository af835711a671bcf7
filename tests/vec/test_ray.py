"""RayVecEnv: what Ray alone brings with it. What all workers have in common is tested with SubprocVecEnv."""

import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from jaxvec.errors import MissingExtraError, WorkerDiedError
from jaxvec.vec import DummyVecEnv, Monitor, RayVecEnv, make_vec_env
from tests.vec.host_envs import CountEnv, SpaceEnv, assert_same
from tests.vec.ray_processes import actors_of, descendants

ROOT = Path(__file__).parents[2]

long = pytest.mark.long


class Telling(CountEnv):
    """Tells its process id, and takes its time."""

    def __init__(self, seconds=0.0):
        super().__init__(100)
        self.pid, self.seconds = os.getpid(), seconds

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)

    def heavy(self):
        names = {name.split(".")[0] for name in sys.modules}
        return sorted(names & {"jax", "jaxlib", "flax", "chex", "torch"})


def test_without_ray_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxvec\[ray\]'"):
        RayVecEnv([CountEnv])
    with pytest.raises(MissingExtraError, match=r"SubprocVecEnv"):
        make_vec_env("CartPole-v1", backend="ray")


@pytest.mark.parametrize("name", ["max_restarts", "max_concurrency", "name"])
def test_options_that_would_break_the_promises_are_refused_before_ray_starts(name):
    with pytest.raises(ValueError, match=rf"ray_options has \['{name}'\]"):
        RayVecEnv([CountEnv], ray_options={name: 2})


@long
def test_an_actor_killed_in_the_middle_of_a_step_is_named_and_nothing_is_left(local_ray):
    venv = RayVecEnv([functools.partial(Telling, 60.0)] * 4, num_actors=2)
    pids = venv.get_attr("pid")
    assert len(set(pids)) == 2
    venv.reset()
    venv.step_async([0] * 4)
    time.sleep(0.3)
    os.kill(pids[3], signal.SIGKILL)
    began = time.monotonic()
    message = rf"actor of environments 2-3 \(process {pids[3]} on .*\) died while `step`"
    with pytest.raises(WorkerDiedError, match=message) as caught:
        venv.step_wait()
    assert time.monotonic() - began < 5
    assert caught.value.env_index == 2
    assert venv.closed
    deadline = time.monotonic() + 5
    while actors_of(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not actors_of(os.getpid())
    assert local_ray.is_initialized()


@long
def test_rows_are_in_their_places_whichever_actor_is_first(local_ray):
    fns = [functools.partial(SpaceEnv, gym.spaces.Discrete(1000))] * 2
    slow = [lambda: _Slow(SpaceEnv(gym.spaces.Discrete(1000)), 0.05)] * 2
    with RayVecEnv(slow + fns, num_actors=2) as remote:
        local = DummyVecEnv(fns * 2)
        for venv in (local, remote):
            venv.seed(3)
        assert_same(remote.reset(), local.reset())
        for _ in range(20):
            assert_same(remote.step([0] * 4)[0], local.step([0] * 4)[0])


class _Slow(gym.Wrapper):
    def __init__(self, env, seconds):
        super().__init__(env)
        self.seconds = seconds

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)


@long
def test_a_step_is_one_call_of_each_actor_and_sent_rows_are_as_well(local_ray):
    with RayVecEnv([CountEnv] * 6, num_actors=2) as venv:
        venv.reset()
        venv.step_async([0] * 6)
        assert len(venv._pool._calls) == 2
        venv.step_wait()
        venv.send([0] * 3, [0, 1, 5])
        assert len(venv._pool._calls) == 2
        assert venv.recv()[0].tolist() == [0, 1, 5]


@long
def test_large_observations_arrive_and_may_be_written_to(local_ray):
    image = gym.spaces.Box(0, 255, (300, 300, 3), np.uint8)
    make = functools.partial(SpaceEnv, image)
    local = DummyVecEnv([make] * 3)
    with RayVecEnv([make] * 3, num_actors=2) as remote:
        for venv in (local, remote):
            venv.seed(1)
            venv.reset()
        for _ in range(12):
            ours, theirs = remote.step([0] * 3), local.step([0] * 3)
            for one, other in zip(ours[:3], theirs[:3], strict=True):
                assert_same(one, other)
                one[:] = 0
            for info, other in zip(ours[3], theirs[3], strict=True):
                if "terminal_observation" in info:
                    assert_same(info["terminal_observation"], other["terminal_observation"])


@long
def test_an_actor_has_imported_neither_jax_nor_flax_nor_torch(local_ray):
    with RayVecEnv([Telling] * 2, num_actors=2) as venv:
        venv.reset()
        venv.step([0, 0])
        assert venv.env_method("heavy") == [[], []]


@long
def test_make_vec_env_makes_monitored_environments_in_actors(local_ray):
    options = {"num_actors": 2, "ray_options": {"num_cpus": 0.5}}
    with make_vec_env("CartPole-v1", 4, seed=5, backend="ray", vec_env_kwargs=options) as remote:
        local = make_vec_env("CartPole-v1", 4, seed=5, backend="dummy")
        assert isinstance(remote, RayVecEnv)
        assert remote.env_is_wrapped(Monitor) == [True] * 4
        assert_same(remote.reset(), local.reset())
        for _ in range(40):
            ours, theirs = remote.step([1] * 4), local.step([1] * 4)
            assert_same(ours[0], theirs[0])
            for info, other in zip(ours[3], theirs[3], strict=True):
                assert ("episode" in info) == ("episode" in other)


@long
def test_a_fault_in_one_constructor_does_not_wait_for_the_others(local_ray):
    hang = functools.partial(CountEnv, fail={"init": "hang"})
    bad = functools.partial(CountEnv, fail={"init": ValueError("no licence")})
    began = time.monotonic()
    with pytest.raises(ValueError, match="no licence") as caught:
        RayVecEnv([hang, bad], num_actors=2)
    assert caught.value.__cause__.env_index == 1
    assert time.monotonic() - began < 60


@long
def test_another_address_than_the_one_in_use_is_refused(local_ray):
    with pytest.raises(ValueError, match=r"address='10.0.0.1:1', but this process is connected"):
        RayVecEnv([CountEnv], address="10.0.0.1:1")
    used = local_ray.get_runtime_context().gcs_address
    with RayVecEnv([CountEnv], address=used) as venv:
        assert venv.reset().shape == (1, 2)
    assert local_ray.is_initialized()


def run(folder, body, *, kill=False):
    """Runs a program; returns what it printed, and which processes it had below it when it spoke first."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(body))
    process = subprocess.Popen(
        [sys.executable, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        first = process.stdout.readline()
        below = descendants(process.pid)
        if kill:
            process.kill()
        rest, errors = process.communicate("go on\n", timeout=120)
    finally:
        process.kill()
    assert kill or process.returncode == 0, errors
    # Ray's agents notice after a minute that a caller was killed, and end then; all else ends with it.
    watched = {pid for pid, title in below.items() if not (kill and title.endswith("Agent"))}
    deadline = time.monotonic() + 30
    while any(map(is_running, watched)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return first + rest, [below[pid] for pid in watched if is_running(pid)], below


def is_running(pid):
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rsplit(")", 1)[1].split()[0] != "Z"


@long
def test_a_ray_that_was_not_running_is_started_and_ends_with_the_last_venv(tmp_path):
    pytest.importorskip("ray")
    output, left, below = run(
        tmp_path,
        """
        import ray
        from jaxvec.vec import RayVecEnv
        from tests.vec.host_envs import CountEnv

        one = RayVecEnv([CountEnv] * 2, num_actors=1)
        other = RayVecEnv([CountEnv] * 2, num_actors=1)
        print(one.reset().shape, other.reset().shape, flush=True)
        one.close()
        one.close()
        print(ray.is_initialized(), other.step([0, 0])[0].tolist())
        other.close()
        print(ray.is_initialized())
        one = RayVecEnv([CountEnv] * 2, num_actors=1)
        ray.shutdown()
        other = RayVecEnv([CountEnv] * 2, num_actors=1)
        one.close()  # of another Ray, which has ended
        print(other.reset().shape)
        """,
    )
    assert output.split("\n")[:4] == [
        "(2, 2) (2, 2)",
        "True [[1.0, 1.0], [1.0, 1.0]]",
        "False",
        "(2, 2)",
    ]
    assert sum("GroupActor" in title for title in below.values()) == 2
    assert not left


STEPPING = """
    from jaxvec.vec import RayVecEnv
    from tests.vec.host_envs import CountEnv

    venv = RayVecEnv([CountEnv] * 2, num_actors=2)
    print(venv.reset().shape, flush=True)
    input()  # until somebody has looked
"""


@long
def test_a_program_that_forgets_to_close_ends_by_itself_and_leaves_nothing(tmp_path):
    pytest.importorskip("ray")
    _, left, below = run(tmp_path, STEPPING + "    venv.step_async([0, 0])\n")
    assert sum("GroupActor" in title for title in below.values()) == 2
    assert not left


@long
def test_nothing_outlives_a_caller_that_is_killed(tmp_path):
    pytest.importorskip("ray")
    loop = "    while True:\n        venv.step([0, 0])\n"
    _, left, below = run(tmp_path, STEPPING + loop, kill=True)
    assert sum("GroupActor" in title for title in below.values()) == 2
    assert not left
