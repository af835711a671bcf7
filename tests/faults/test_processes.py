"""Commands and answers never get out of step, whatever is called, on which backend, through which layer."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.vec import DummyVecEnv, SubprocVecEnv, VecMonitor
from tests.faults.backends import (
    BACKENDS,
    HOST,
    HOST_STACKS,
    LAYERS,
    STACKS,
    Counter,
    made,
    stacked,
)

every_stack = pytest.mark.parametrize(("backend", "layer"), STACKS)
every_host_stack = pytest.mark.parametrize(("backend", "layer"), HOST_STACKS)
every_host = pytest.mark.parametrize("backend", HOST)


def steps_taken(venv, backend):
    """Asks the environments themselves."""
    if backend == "jax":
        return [int(state.t) for state in venv.get_attr("state")]
    return venv.get_attr("steps")


@every_stack
def test_a_second_step_is_refused_and_the_first_one_arrives(backend, layer):
    with stacked(backend, layer) as venv:
        venv.reset()
        venv.step_async([0, 0])
        with pytest.raises(AlreadyPendingError):
            venv.step_async([0, 0])
        venv.step_wait()
        with pytest.raises(NotPendingError):
            venv.step_wait()
        assert steps_taken(venv, backend) == [1, 1]


@every_stack
def test_a_reset_finishes_the_step_that_is_pending_and_forgets_it(backend, layer):
    with stacked(backend, layer) as venv:
        first = venv.reset()
        venv.step_async([0, 0])
        again = venv.reset()
        assert again.shape == first.shape
        assert steps_taken(venv, backend) == [0, 0]
        venv.step([0, 0])
        assert steps_taken(venv, backend) == [1, 1]


@every_stack
@pytest.mark.parametrize("actions", [[0], [0, 0, 0]], ids=["too few", "too many"])
def test_a_wrong_number_of_actions_steps_nobody(backend, layer, actions):
    with stacked(backend, layer) as venv:
        venv.reset()
        if backend == "dummy" and len(actions) > 2:  # SB3's way: the last ones are left out
            venv.step(actions)
            assert steps_taken(venv, backend) == [1, 1]
            return
        with pytest.raises(ValueError, match=r"2 environments|shape"):
            venv.step(actions)
        assert steps_taken(venv, backend) == [0, 0]
        venv.step([0, 0])
        assert steps_taken(venv, backend) == [1, 1]


class Lacking(Counter):
    """Has an attribute in some rows only."""

    def __init__(self, has_it):
        super().__init__()
        if has_it:
            self.rare = 7


@every_host
def test_an_attribute_that_the_first_environment_lacks_leaves_no_answer_behind(backend):
    with HOST[backend]([partial(Lacking, row > 0) for row in range(3)]) as venv:
        assert not venv.has_attr("rare")
        assert venv.get_attr("secret") == [5, 5, 5]
        assert venv.get_attr("rare", [1, 2]) == [7, 7]
        with pytest.raises(AttributeError, match="rare"):
            venv.get_attr("rare")
        assert venv.get_attr("secret") == [5, 5, 5]
        assert venv.has_attr("secret")


class Noting(Counter):
    """Leaves a file when it is closed."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def close(self):
        Path(self.path).touch()


@every_host_stack
def test_closing_reaches_every_environment_through_every_layer(backend, layer, tmp_path):
    paths = [str(tmp_path / str(row)) for row in range(3)]
    venv = LAYERS[layer](HOST[backend]([partial(Noting, path) for path in paths]))
    venv.close()
    assert all(map(os.path.exists, paths))
    venv.close()


@every_stack
def test_what_is_closed_is_closed_twice_without_a_word_and_steps_no_more(backend, layer):
    venv = LAYERS[layer](made(backend))
    venv.reset()
    venv.close()
    venv.close()
    if backend == "dummy":  # as SB3's: the environments are there still
        venv.step([0, 0])
        return
    for call in (venv.reset, lambda: venv.step([0, 0]), lambda: venv.get_attr("secret")):
        with pytest.raises(ClosedError):
            call()


class Raising(Counter):
    """Raises in its second step."""

    def step(self, action):
        if self.steps == 1:
            raise FileNotFoundError(2, "no such map")
        return super().step(action)


@every_host_stack
def test_an_exception_arrives_as_itself_through_every_layer(backend, layer):
    venv = LAYERS[layer](HOST[backend]([Counter, Raising]))
    venv.reset()
    venv.step([0, 0])
    with pytest.raises(FileNotFoundError, match="no such map") as caught:
        venv.step([0, 0])
    cause = caught.value.__cause__
    said = [*getattr(caught.value, "__notes__", ()), str(cause) if cause else ""]
    assert any("environment 1" in each for each in said)
    venv.close()
    venv.close()


def test_without_a_word_about_it_processes_are_not_forked():
    with SubprocVecEnv([Counter]) as venv:
        assert venv._pool._crew._context.get_start_method() == "forkserver"


def test_spaces_that_differ_are_refused_in_processes_and_those_of_the_first_hold_in_one():
    other = partial(Counter, space=gym.spaces.Box(-1000, 1000, (2,), np.float64))
    for backend in HOST:
        if backend == "dummy":
            continue
        with pytest.raises(ValueError, match="environment 1 has the spaces"):
            HOST[backend]([Counter, other])
    with DummyVecEnv([Counter, other]) as venv:  # as SB3's
        assert venv.reset().dtype == np.float32
        assert venv.step([0, 0])[0].tolist() == [[1, 1], [1, 1]]


class Drawing(Counter):
    """Draws a number at each reset, from its own generator or from NumPy's global one."""

    def __init__(self, own):
        super().__init__(1)
        self.own = own

    def _inform(self):
        drawn = self.np_random.random() if self.own else np.random.rand()  # noqa: NPY002
        return {"drawn": drawn}


def test_environments_that_draw_from_their_own_generator_are_alike_on_every_backend():
    drawn = []
    for backend in HOST:
        with HOST[backend]([partial(Drawing, True)] * 3) as venv:
            venv.seed(4)
            venv.reset()
            venv.step([0] * 3)
            drawn.append([info["drawn"] for info in venv.reset_infos])
    assert drawn[0] == drawn[1] == drawn[2] == drawn[3]
    assert len(set(drawn[0])) == 3
    # A global generator cannot be made right from outside: that is said where one looks.
    assert "self.np_random" in SubprocVecEnv.__doc__


def test_a_log_that_is_closed_says_so_when_an_episode_ends(tmp_path):
    venv = VecMonitor(made("dummy"), str(tmp_path / "log"))
    venv.reset()
    venv.close()
    venv.step([0, 0])
    venv.step([0, 0])
    with pytest.raises(ClosedError, match="after the monitor was closed"):
        venv.step([0, 0])


def test_the_backends_of_this_folder_are_all_there_are():
    assert BACKENDS == ["dummy", "subproc", "messages", "caller", "jax"]


def test_importing_what_a_worker_needs_starts_no_process():
    script = (
        "import jaxvec.vec._worker, multiprocessing, sys; "
        "sys.exit(len(multiprocessing.active_children()))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
