"""Faults with real processes: each is named, and afterwards nothing is left of the VecEnv."""

import functools
import gc
import multiprocessing
import os
import pickle
import resource
import sys
import time
import warnings
from pathlib import Path

import cloudpickle
import numpy as np
import pytest

from jaxvec.errors import (
    AlreadyPendingError,
    ClosedError,
    WorkerDiedError,
    WorkerError,
    WorkerTimeoutError,
)
from jaxvec.vec import RayVecEnv, SubprocVecEnv
from tests.vec.host_envs import CountEnv
from tests.vec.ray_processes import actors_of


def traces(on_ray):
    """Returns what must be the same before and after: children, descriptors, shared memory, semaphores.

    Of this process, as it has them mapped: other programs make some of their own meanwhile. Of Ray only
    the actors: a connection to it opens and closes descriptors as it likes.
    """
    gc.collect()
    if on_ray:
        return actors_of(os.getpid())
    descriptors = len(os.listdir("/proc/self/fd"))
    mapped = Path("/proc/self/maps").read_text().splitlines()
    shared = sorted(
        line.split(None, 5)[-1] for line in mapped if "/dev/shm/" in line or "/memfd:" in line
    )
    return len(multiprocessing.active_children()), descriptors, shared


@pytest.fixture(autouse=True)
def nothing_is_left(request):
    if "workers" in request.fixturenames:
        request.getfixturevalue("workers")  # Ray starts before the count too
    on_ray = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    # The servers of multiprocessing stay for the next VecEnv; they are started before the count.
    with SubprocVecEnv([CountEnv]):
        pass
    before = traces(on_ray)
    yield
    after = traces(on_ray)
    deadline = time.monotonic() + (10 if on_ray else 5)  # Ray gives a stopped process five seconds
    while after != before and time.monotonic() < deadline:
        time.sleep(0.05)
        after = traces(on_ray)
    assert after == before


def is_on_ray(venv):
    return isinstance(venv, RayVecEnv)


def pid_of(venv, number):
    """Returns the process id of a worker."""
    crew = venv._pool._crew
    return crew.actors[number].place.pid if is_on_ray(venv) else crew.workers[number].process.pid


class OwnError(Exception):
    """An exception that cannot be rebuilt from its text."""

    def __init__(self, one, other):
        super().__init__(f"{one} and {other}")


def make(fail=None, count=4, bad=2, **options):
    """Returns environments of which one fails."""
    fns = [functools.partial(CountEnv, 100)] * count
    fns[bad] = functools.partial(CountEnv, 100, fail=fail or {}, **options)
    return fns


def reset_and_step(venv):
    venv.reset()
    venv.step([0] * venv.num_envs)


def steps(venv, count):
    for _ in range(count):
        venv.step([0] * venv.num_envs)


def go_round(venv):
    """Sends every row again as soon as it is back."""
    while True:
        rows, *_ = venv.recv(min_envs=1)
        venv.send([0] * len(rows), rows)


def assert_closed(venv, why):
    assert venv.closed
    assert not multiprocessing.active_children()
    for call in (
        venv.reset,
        lambda: venv.step([0] * venv.num_envs),
        lambda: venv.get_attr("length"),
        lambda: venv.env_method("add", 1),
    ):
        with pytest.raises(ClosedError, match=why):
            call()
    started = time.monotonic()
    venv.close()
    venv.close()
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("where", ["reset", "step"])
def test_an_exception_keeps_its_type_and_names_environment_and_traceback(workers, where):
    venv = workers(make({where: FileNotFoundError(2, "no such map")}), count=2)
    with pytest.raises(FileNotFoundError, match="no such map") as caught:
        reset_and_step(venv)
    cause = caught.value.__cause__
    assert isinstance(cause, WorkerError)
    assert cause.env_index == 2
    assert "_maybe_fail" in cause.remote_traceback
    assert "host_envs.py" in str(cause)
    assert f"environment 2 raised FileNotFoundError at `{where}`" in str(cause)
    assert_closed(venv, f"environment 2 raised FileNotFoundError at `{where}`")


def test_an_exception_that_cannot_be_rebuilt_arrives_as_worker_error(workers):
    class Raising(CountEnv):
        def step(self, action):
            raise OwnError(1, 2)

    venv = workers([CountEnv, CountEnv, Raising])
    venv.reset()
    with pytest.raises(WorkerError, match=r"OwnError at `step`: 1 and 2") as caught:
        venv.step([0] * 3)
    assert caught.value.env_index == 2


def test_sys_exit_in_an_environment_does_not_end_the_caller(workers):
    venv = workers(make({"step": SystemExit(3)}))
    venv.reset()
    with pytest.raises(WorkerError, match="SystemExit"):
        venv.step([0] * 4)


def test_an_exception_in_a_constructor_arrives_and_nothing_is_left(workers):
    with pytest.raises(ValueError, match="no licence") as caught:
        workers(make({"init": ValueError("no licence")}), count=2)
    assert caught.value.__cause__.env_index == 2
    with pytest.raises(ValueError, match="of type"):
        workers([CountEnv, dict])


def test_a_worker_that_ends_in_a_constructor_is_named_with_the_guard_it_may_lack(workers):
    with pytest.raises(WorkerDiedError, match=r"code 9.*__main__|actor of env.*`__init__`"):
        workers(make({"init": "exit"}))


@pytest.mark.parametrize(("how", "code"), [("exit", 9), ("kill", -9)])
@pytest.mark.parametrize("where", ["step", "reset"])
def test_a_dead_worker_is_noticed_within_a_second(workers, how, code, where):
    venv = workers(make({where: how}), 4)
    started = time.monotonic()
    if is_on_ray(venv):  # which does not tell the exit code
        message, code = r"actor of environments 2 \(process \d+ on .*died while", None
    else:
        message = f"environments 2 ended with exit code {code}"
    with pytest.raises(WorkerDiedError, match=message) as caught:
        reset_and_step(venv)
    assert time.monotonic() - started < 3  # one second, and a machine that is busy
    assert caught.value.exit_code == code
    assert caught.value.env_index == 2
    assert_closed(venv, "WorkerDiedError")


def test_a_worker_that_died_between_two_calls_is_noticed_by_the_next_one(workers):
    venv = workers(make(), 2)
    venv.reset()
    os.kill(pid_of(venv, 1), 9)
    with pytest.raises(WorkerDiedError, match=r"environments 2-3 (ended with exit code -9|\(pro)"):
        venv.step([0] * 4)
    assert_closed(venv, "WorkerDiedError")


@pytest.mark.parametrize("how", ["stop", "hang"])
def test_a_worker_that_does_not_answer_is_named_after_the_timeout(workers, how):
    venv = workers(make({"step": how}), count=4, timeout=0.7)
    venv.reset()
    with pytest.raises(WorkerTimeoutError, match=r"environments \[2\].*timeout=0.7"):
        venv.step([0] * 4)
    assert_closed(venv, "WorkerTimeoutError")


def test_close_returns_within_its_timeout_and_says_whom_it_killed(workers):
    venv = workers(make({"close": "hang"}), count=4)
    started = time.monotonic()
    with pytest.warns(RuntimeWarning, match=r"\[2\] did not end within 0.5 seconds"):
        venv.close(timeout=0.5)
    assert time.monotonic() - started < 3
    assert_closed(venv, r"close\(\) was called")


def test_an_exception_in_close_is_told_and_every_other_environment_is_closed(workers, tmp_path):
    class Noting(CountEnv):
        def close(self):
            Path(tmp_path / str(os.getpid())).touch()

    fns = make({"close": ValueError("stuck")})
    fns[0] = fns[3] = Noting
    venv = workers(fns, count=4)
    with pytest.warns(RuntimeWarning, match="environment 2 raised ValueError: stuck"):
        venv.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_exceptions_in_calls_leave_the_venv_open(workers):
    good = functools.partial(CountEnv, 9, render_mode="rgb_array")
    bad = functools.partial(good, fail={"render": ValueError("no screen"), "method": KeyError("x")})
    venv = workers([good, bad], count=2)
    venv.reset()
    with pytest.raises(ValueError, match="no screen") as caught:
        venv.render()
    assert caught.value.__cause__.env_index == 1
    with pytest.raises(KeyError):
        venv.env_method("add", 1)
    with pytest.raises(AttributeError, match="nothing"):
        venv.get_attr("nothing")
    with pytest.raises(TypeError):
        venv.env_method("add", 1, wrong=2)
    assert venv.step([0, 0])[0].tolist() == [[1, 1], [1, 1]]
    venv.close()


class Generators(CountEnv):
    def __init__(self):
        super().__init__(9)
        self.generator = (i for i in range(3))


def test_an_attribute_that_cannot_be_pickled_is_a_type_error_of_that_call_alone(workers):
    venv = workers([CountEnv, Generators])
    venv.reset()
    with pytest.raises(TypeError, match="cannot be pickled"):
        venv.get_attr("generator", 1)
    assert venv.env_method("has_wrapper_attr", "generator") == [False, True]
    assert not venv.has_attr("generator")
    assert venv.get_attr("secret") == [5, 5]
    venv.close()
    with workers([Generators] * 2) as venv:
        assert venv.has_attr("generator")


def test_an_info_that_cannot_be_pickled_is_a_type_error_that_names_the_environment(workers):
    class Deep(CountEnv):
        def step(self, action):
            obs, *rest, _ = super().step(action)
            return obs, *rest, {"generator": _Reluctant()}

    venv = workers([CountEnv, Deep], count=1)
    venv.reset()
    with pytest.raises(TypeError, match="cannot be pickled") as caught:
        venv.step([0, 0])
    assert caught.value.__cause__.env_index == 1
    assert_closed(venv, "environment 1 raised TypeError")


class _Reluctant:
    def __reduce__(self):
        raise RuntimeError("not me")

    def __deepcopy__(self, memo):
        return self


def test_infos_of_a_megabyte_arrive_from_every_environment(workers):
    big = {"blob": np.arange(2**17)}
    venv = workers([functools.partial(CountEnv, 3, info=big)] * 4, count=2)
    venv.reset()
    for _ in range(4):
        *_, infos = venv.step([0] * 4)
        assert all(np.array_equal(info["blob"], big["blob"]) for info in infos)
    venv.step_async([0] * 4)
    venv.close()


def test_long_messages_both_ways_do_not_wait_for_each_other(workers):
    big = {"blob": np.zeros(2**18, np.uint8)}
    venv = workers([functools.partial(CountEnv, 3, info=big)] * 2, count=1, timeout=20)
    venv.reset()
    action = np.zeros(2**20, np.uint8)
    venv.send([action], [0])
    for _ in range(5):
        venv.send([action], [1])
        rows, *_ = venv.recv(min_envs=2)
        assert rows.tolist() == [0, 1]
        venv.send([action], [0])
    venv.close()


def test_render_modes_that_differ_are_refused_and_nothing_is_left(workers):
    with pytest.raises(AssertionError, match="render_mode"):
        workers([CountEnv, functools.partial(CountEnv, render_mode="rgb_array")])


def test_a_fork_of_the_caller_does_not_close_its_workers():
    venv = SubprocVecEnv([CountEnv] * 2)
    venv.reset()
    pid = os.fork()
    if pid == 0:
        venv._pool._crew._at_exit()
        os._exit(0)
    os.waitpid(pid, 0)
    assert venv.step([0, 0])[0][0, 0] == 1
    venv.close()


def test_a_value_that_does_not_fit_is_refused_in_a_worker_as_in_one_process(workers):
    venv = workers([CountEnv, functools.partial(CountEnv, reward=None)])
    venv.reset()
    with pytest.raises(TypeError, match="environment 1: the reward is None"):
        venv.step([0, 0])


def test_different_spaces_are_refused_with_the_index_of_the_one_that_differs(workers):
    for count in (1, 2, 3):
        with pytest.raises(ValueError, match="environment 2 has the spaces"):
            workers(
                [CountEnv, CountEnv, functools.partial(CountEnv, space_dtype=np.float64)],
                count=count,
            )


def test_misuse_is_refused_before_anything_is_sent(workers):
    venv = workers([CountEnv] * 2)
    venv.reset()
    for actions in ([0], [0, 0, 0]):
        with pytest.raises(ValueError, match="2 environments"):
            venv.step_async(actions)
    with pytest.raises(TypeError, match="cannot be pickled"):
        venv.set_attr("mark", (i for i in range(2)))
    venv.step_async([0, 0])
    with pytest.raises(AlreadyPendingError):
        venv.step_async([0, 0])
    with pytest.raises(AlreadyPendingError):
        venv.get_attr("secret")
    assert venv.step_wait()[0][0, 0] == 1
    assert venv.get_attr("secret") == [5, 5]
    venv.step_async([0, 0])
    assert venv.reset()[0, 0] == 0
    assert venv.get_attr("steps") == [0, 0]
    venv.close()


def test_what_no_venv_can_be_made_of_is_refused(workers):
    for bad in (0, -1, "all", 1.5):
        with pytest.raises(ValueError, match=f"num_(workers|actors)={bad!r}"):
            workers([CountEnv], bad)
    with pytest.raises(IndexError):
        workers([])
    with pytest.raises(TypeError, match=r"VecEnv: env_fns\[1\] cannot be pickled"):
        workers([CountEnv, functools.partial(CountEnv, info={"a": _Reluctant()})])
    with pytest.raises(ValueError, match="cannot find context"):
        SubprocVecEnv([CountEnv], start_method="teleport")


def test_a_venv_with_a_pending_step_can_be_closed_or_dropped(workers):
    venv = workers([CountEnv] * 2)
    venv.reset()
    venv.step_async([0, 0])
    venv.close()
    assert_closed(venv, r"close\(\) was called")
    venv = workers([CountEnv] * 2)
    venv.reset()
    venv.step_async([0, 0])
    del venv


@pytest.mark.parametrize("start_method", ["fork", "forkserver", "spawn"])
def test_a_venv_that_is_dropped_leaves_nothing(start_method):
    venv = SubprocVecEnv([CountEnv] * 2, start_method)
    venv.reset()
    del venv


def test_many_venvs_can_be_made_under_a_low_limit_of_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 40, hard))
    try:
        for _ in range(300):
            venv = SubprocVecEnv([CountEnv], "fork", num_workers=1)
            venv.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_fault_of_the_callers_own_share_waits_for_the_workers_and_closes():
    venv = SubprocVecEnv(
        make({"step": ValueError("mine")}, bad=0), num_workers=2, caller_steps=True
    )
    venv.reset()
    with pytest.raises(ValueError, match="mine") as caught:
        venv.step([0] * 4)
    assert "environment 0" in caught.value.__notes__[0]
    assert_closed(venv, "environment 0 raised ValueError")


def test_a_fault_in_a_row_that_was_sent_closes(workers):
    venv = workers(make({"step": ValueError("late")}), count=2)
    venv.reset()
    venv.send([0] * 4)
    with pytest.raises(ValueError, match="late"):
        go_round(venv)
    assert_closed(venv, "environment 2 raised ValueError at `rows`")


@pytest.mark.parametrize("where", ["step", "reset"])
def test_a_worker_that_died_is_replaced_and_its_episodes_end_truncated(workers, where):
    fns = make({where: (3 if where == "step" else 2, "kill")})
    fns[2] = functools.partial(
        CountEnv, 100 if where == "step" else 2, fail={where: (3 if where == "step" else 2, "kill")}
    )
    venv = workers(fns, count=2, restart_workers=True)
    venv.set_options({"level": 4}, sticky=True)
    venv.reset()
    lost = 3 if where == "step" else 2
    for _ in range(1, lost):
        assert not venv.step([0] * 4)[2].any()
    with pytest.warns(RuntimeWarning, match=r"\[2, 3\] ended (with exit code -9 )?and"):
        obs, rewards, dones, infos = venv.step([0] * 4)
    assert dones.tolist() == [False, False, True, True]
    assert rewards.tolist() == [1, 1, 0, 0]
    assert obs[:, 0].tolist() == [lost, lost, 0, 0]
    for info in infos[2:]:
        assert info["TimeLimit.truncated"] is True
        assert info["terminal_observation"].tolist() == [lost - 1, lost - 1]
    obs, rewards, dones, _ = venv.step([0] * 4)
    assert obs[:, 0].tolist() == [lost + 1, lost + 1, 1, 1]
    assert rewards.tolist() == [1] * 4
    assert not dones.any()
    assert venv.get_attr("resets", 3) == [[(None, {"level": 4})]]
    venv.close()


def test_a_worker_that_died_between_steps_is_replaced_for_the_call_and_reported_by_the_step(
    workers,
):
    venv = workers([functools.partial(CountEnv, 100)] * 4, count=2, restart_workers=True)
    venv.reset()
    venv.step([0] * 4)
    os.kill(pid_of(venv, 0), 9)
    with pytest.warns(RuntimeWarning, match=r"\[0, 1\]"):
        assert venv.get_attr("steps") == [0, 0, 1, 1]
    venv.send([0, 0], [1, 3])
    rows, obs, rewards, dones, infos = venv.recv()
    assert rows.tolist() == [1, 3]
    assert dones.tolist() == [True, False]
    assert rewards.tolist() == [0, 1]
    assert infos[0]["terminal_observation"].tolist() == [1, 1]
    obs, rewards, dones, infos = venv.step([0] * 4)
    assert dones.tolist() == [True, False, False, False]
    assert obs[:, 0].tolist() == [0, 1, 2, 3]
    assert infos[0]["terminal_observation"].tolist() == [1, 1]
    os.kill(pid_of(venv, 1), 9)
    with pytest.warns(RuntimeWarning, match=r"\[2, 3\]"):
        assert venv.reset().tolist() == [[0, 0]] * 4
    assert not venv.step([0] * 4)[2].any()
    venv.close()


def test_a_worker_that_dies_again_when_it_is_rebuilt_closes_the_venv(workers):
    venv = workers(make({"reset": (2, "kill")}), count=2, restart_workers=True)
    venv.reset()
    venv.set_attr("fail", {"step": "kill"}, 2)
    venv._pool._crew._env_fns = list(map(cloudpickle.dumps, make({"init": "exit"})))
    with pytest.raises(WorkerDiedError, match="while `__init__`"):
        venv.step([0] * 4)
    assert_closed(venv, "WorkerDiedError")


def test_waiting_environments_are_noticed_and_the_better_number_of_workers_is_named():
    class Sleeper(CountEnv):
        def step(self, action):
            time.sleep(0.002)
            return super().step(action)

    venv = SubprocVecEnv([functools.partial(Sleeper, 100)] * 16)
    venv.reset()
    with pytest.warns(UserWarning, match="num_workers=16"):
        steps(venv, 25)
    venv.close()


def test_computing_environments_bring_no_advice():
    class Burner(CountEnv):
        def step(self, action):
            until = time.process_time() + 0.0005
            while time.process_time() < until:
                pass
            return super().step(action)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with SubprocVecEnv([functools.partial(Burner, 100)] * 8) as venv:
            venv.reset()
            for _ in range(25):
                venv.step([0] * 8)


def test_errors_survive_pickling():
    for error in (WorkerError("a", 3, "trace"), WorkerDiedError("a", 3, -9), ClosedError("a")):
        twin = pickle.loads(pickle.dumps(error))
        assert type(twin) is type(error)
        assert str(twin) == "a"
        assert twin.__dict__ == error.__dict__
