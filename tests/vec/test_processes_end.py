"""Whole programs: interrupted, killed, without a guard; what they leave, say, and have imported."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

START_METHODS = ["fork", "forkserver", "spawn"]


def write(folder, body):
    """Writes a program that makes a VecEnv and prints the process ids of its workers."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(body))
    return path


started = []


@pytest.fixture(autouse=True)
def programs():
    """Lets programs be interrupted, whoever started the tests, and ends those that a failed test leaves."""
    # What a shell has put into the background ignores interrupts, and so would all that it starts.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)
    while started:
        process = started.pop()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def start(path, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, str(path), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    started.append(process)
    return process


STEPPING = """
    import sys
    from functools import partial
    from jaxvec.vec import SubprocVecEnv
    from tests.vec.host_envs import CountEnv

    def main():
        fail = {"step": (2, "hang")} if sys.argv[2] == "hang" else {}
        fns = [partial(CountEnv, 5, fail=fail)] * 4
        venv = SubprocVecEnv(fns, sys.argv[1], num_workers=2)
        venv.reset()
        print(*[worker.process.pid for worker in venv._pool._crew.workers], flush=True)
        while True:
            venv.step([0] * 4)

    if __name__ == "__main__":
        main()
"""


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


@pytest.mark.parametrize("start_method", START_METHODS)
@pytest.mark.parametrize("what", ["step", "hang"])
def test_no_worker_outlives_a_caller_that_is_killed(tmp_path, start_method, what):
    process = start(write(tmp_path, STEPPING), start_method, what)
    pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    time.sleep(0.2)
    process.kill()
    process.wait()
    assert wait_until(lambda: not any(map(is_running, pids)), 10)
    process.stdout.close()
    process.stderr.close()


def mapped_names(pid):
    """Returns the files in shared memory that a process has mapped, removed ones too."""
    text = Path(f"/proc/{pid}/maps").read_text()
    return set(re.findall(r"/dev/shm/\S+|/memfd:\S+", text))


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_kill_of_all_processes_at_once_leaves_no_semaphore_and_no_memory(tmp_path, start_method):
    process = start(write(tmp_path, STEPPING), start_method, "step")
    pids = [int(pid) for pid in process.stdout.readline().split()]
    names = set.union(*map(mapped_names, pids))
    os.killpg(process.pid, signal.SIGKILL)  # those that would clean up after it as well
    _, errors = process.communicate(timeout=20)
    assert errors == ""
    assert any("memfd" in name for name in names)
    assert sum("sem." in name for name in names) == 3
    assert not [name for name in names if Path(name).exists()]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_a_kill_of_the_caller_alone_leaves_nothing_and_warns_of_nothing(tmp_path, start_method):
    process = start(write(tmp_path, STEPPING), start_method, "step")
    pids = [int(pid) for pid in process.stdout.readline().split()]
    names = set.union(*map(mapped_names, pids))
    process.kill()
    _, errors = process.communicate(timeout=20)  # ends when the last process has ended
    assert errors == ""
    assert not any(map(is_running, pids))
    assert not [name for name in names if Path(name).exists()]


@pytest.mark.parametrize("start_method", START_METHODS)
def test_an_interrupt_raises_once_in_the_caller_and_nowhere_else(tmp_path, start_method):
    process = start(write(tmp_path, STEPPING), start_method, "step")
    pids = [int(pid) for pid in process.stdout.readline().split()]
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert errors.count("KeyboardInterrupt") == 1, errors
    assert errors.count("Traceback") == 1, errors
    assert process.returncode in (1, -signal.SIGINT, 130)
    assert wait_until(lambda: not any(map(is_running, pids)), 5)


def test_after_an_interrupt_the_venv_goes_on_where_it_was(tmp_path):
    path = write(
        tmp_path,
        """
        import os, signal, threading
        from functools import partial
        from jaxvec.vec import SubprocVecEnv
        from tests.vec.host_envs import CountEnv

        class Slow(CountEnv):
            def step(self, action):
                import time
                time.sleep(0.5)
                return super().step(action)

        def main():
            venv = SubprocVecEnv([Slow] * 2, "forkserver")
            venv.reset()
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            venv.step_async([0, 0])
            try:
                venv.step_wait()
            except KeyboardInterrupt:
                print("interrupted", venv.waiting)
            print(venv.step_wait()[0].tolist())
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            try:
                venv.step([0, 0])
            except KeyboardInterrupt:
                print(venv.reset().tolist())
            venv.close()

        if __name__ == "__main__":
            main()
        """,
    )
    output, errors = start(path).communicate(timeout=60)
    assert errors == ""
    assert output.split("\n")[:3] == [
        "interrupted True",
        "[[1.0, 1.0], [1.0, 1.0]]",
        "[[0.0, 0.0], [0.0, 0.0]]",
    ]


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_script_without_a_guard_is_told_so(tmp_path, start_method):
    path = write(
        tmp_path,
        """
        import sys
        import gymnasium
        from jaxvec.vec import SubprocVecEnv

        SubprocVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2, sys.argv[1]).close()
        """,
    )
    process = start(path, start_method)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "__main__" in errors.strip().split("\n")[-1]


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_worker_has_imported_neither_jax_nor_flax_nor_torch(tmp_path, start_method):
    pytest.importorskip("stable_baselines3")
    path = write(
        tmp_path,
        """
        import sys
        import gymnasium
        from jaxvec.vec import SubprocVecEnv

        class Spy(gymnasium.Wrapper):
            def heavy(self):
                names = {name.split(".")[0] for name in sys.modules}
                return sorted(names & {"jax", "jaxlib", "flax", "chex", "torch", "stable_baselines3"})

        def main():
            from stable_baselines3.common.monitor import Monitor
            from stable_baselines3.common.vec_env import VecEnv

            venv = SubprocVecEnv([lambda: Spy(gymnasium.make("CartPole-v1"))] * 2, sys.argv[1])
            venv.reset()
            venv.step([0, 0])
            print(venv.env_is_wrapped(Monitor), venv.env_is_wrapped(Spy))
            print(venv.env_method("heavy"))
            venv.close()

        if __name__ == "__main__":
            main()
        """,
    )
    output, errors = start(path, start_method).communicate(timeout=60)
    assert output == "[False, False] [True, True]\n[[], []]\n", errors


def test_a_program_that_forgets_to_close_ends_by_itself_without_a_word(tmp_path):
    path = write(
        tmp_path,
        """
        from jaxvec.vec import SubprocVecEnv
        from tests.vec.host_envs import CountEnv

        if __name__ == "__main__":
            venv = SubprocVecEnv([CountEnv] * 2)
            venv.reset()
            venv.step_async([0, 0])
        """,
    )
    process = start(path)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, output, errors) == (0, "", "")
