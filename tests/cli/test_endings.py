"""How commands end when something is wrong: one clear line, a code, no traceback, no file touched."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from jaxvec.cli import main

MODULE = """
    import sys
    import jax.numpy as jnp
    from gymnasium import spaces
    from jaxvec import Env

    def discrete():
        def reset(key, params):
            return jnp.int32(0), jnp.int32(0), {}

        def step(key, state, action, params):
            return state + 1, (state + 1) % 3, 1.0, state > 5, False, {}

        return Env(reset, step, (), spaces.Discrete(3), spaces.Discrete(2), metadata=None)

    def ends():
        sys.exit(3)
"""
FEW = ("--num-envs", "2", "--num-steps", "3")
QUICK = ("rollout", "Pendulum-v1", *FEW)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current directory with two modules of a user's in it."""
    (tmp_path / "odd_module.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "dying_module.py").write_text("import sys\nsys.exit('bye')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "odd_module", raising=False)
    return tmp_path


def ended(capsys, *words: object, code: int = 2) -> str:
    """Runs a command that fails; returns its one line."""
    assert main([str(word) for word in words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("jaxvec: ")
    assert "Traceback" not in err
    return err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--normalize",), "normalize_observation: the observation holds Discrete(3)"),
        (("--frame-stack", 2), "frame_stack: Discrete(3) cannot be stacked"),
        (("--normalize", "--backend", "jax-vec"), "VecNormalize only supports Box"),
        (("--frame-stack", 2, "--backend", "jax-vec"), "VecFrameStack only works with Box"),
    ],
)
def test_layers_that_do_not_fit_the_observation_are_named(words, said, capsys):
    assert said in ended(capsys, "rollout", "odd_module:discrete", *FEW, *words)


@pytest.mark.usefixtures("here")
def test_an_environment_without_metadata_runs(capsys):
    assert main(["rollout", "odd_module:discrete", *FEW]) == 0
    assert main(["rollout", "odd_module:discrete", *FEW, "--backend", "jax-vec"]) == 0
    assert "odd_module:discrete" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("rollout", "dying_module:x"),
            "dying_module.py:2: it ends the program by sys.exit('bye')",
        ),
        (("rollout", "odd_module:ends"), "it ends the program by sys.exit(3)"),
        (("rollout", "dying_module:x", "--backend", "dummy"), "sys.exit('bye')"),
        (("rollout", "CartPole-v1", "--policy", "dying_module:x"), "sys.exit('bye')"),
        (("check", "dying_module:x"), "sys.exit('bye')"),
        (("bench", "dying_module:x"), "sys.exit('bye')"),
    ],
)
def test_a_module_that_ends_the_program_is_named(words, said, capsys):
    assert said in ended(capsys, *words)


def test_jax_without_a_device_is_not_the_seeds_fault(monkeypatch, capsys):
    import jax

    def no_devices():
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr(jax, "devices", no_devices)
    line = ended(capsys, *QUICK)
    assert "JAX finds no device" in line
    assert "Unable to initialize" in line
    assert "--seed" not in line


@pytest.mark.parametrize(
    "words", [QUICK, (*QUICK, "--backend", "jax-vec"), ("check", "Acrobot-v1")]
)
def test_without_compiling_the_compiled_commands_say_so(words, capsys):
    import jax

    with jax.disable_jit():
        assert "JAX_DISABLE_JIT is set" in ended(capsys, *words)


# --- Files ---------------------------------------------------------------------------------------

WRITING = ("--monitor", "--plot", "--save-stats")
NAME = {"--monitor": "x.monitor.csv", "--plot": "x.png", "--save-stats": "x.npz"}


@pytest.fixture
def no_run(monkeypatch):
    """Fails a test in which a run begins."""

    def begin(*args):
        pytest.fail("the run has begun")

    monkeypatch.setattr("jaxvec.cli._rollout.started", begin)


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize("option", WRITING)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("pipe", "is a named pipe"),
        ("link to a folder", "is a folder"),
        ("no folder", "there is no folder"),
        ("not writable", "not writable"),
    ],
)
def test_what_cannot_be_written_is_found_before_the_run_and_stays(
    option, kind, said, here, monkeypatch, capsys
):
    path = here / NAME[option]
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to a folder":
        (here / "folder").mkdir()
        path.symlink_to("folder")
    elif kind == "no folder":
        path = here / "nowhere" / path.name
    else:
        monkeypatch.setattr(os, "access", lambda where, mode: False)
    if (option, kind) == ("--monitor", "link to a folder"):
        (here / "folder" / "monitor.csv").mkdir()  # else a folder is what it takes
        path = here / "folder"
    before = sorted((each.name, each.lstat().st_mode) for each in here.iterdir())
    line = ended(capsys, *QUICK, "--normalize", option, path)
    assert said in line
    assert option in line
    assert sorted((each.name, each.lstat().st_mode) for each in here.iterdir()) == before


@pytest.mark.usefixtures("no_run", "here")
@pytest.mark.parametrize(
    "words",
    [
        ("--plot", "x.png", "--save-stats", "x.png"),
        ("--plot", "x.png", "--save-stats", "./x.png"),
        ("--monitor", "x", "--save-stats", "x.monitor.csv"),
    ],
)
def test_two_files_of_one_name_are_refused(words, capsys):
    line = ended(capsys, *QUICK, "--normalize", *words)
    assert f"{words[0]} and --save-stats are both" in line


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize("command", ["plot", "stats"])
def test_the_other_commands_replace_no_pipe_either(command, here, capsys):
    os.mkfifo(here / "pipe.png")
    (here / "x.monitor.csv").write_text('#{"t_start": 0}\nr,l,t\n1,2,3\n')
    words = {
        "plot": ("plot", "x.monitor.csv", "--output", "pipe.png"),
        "stats": ("stats", "x.npz", "--plot", "pipe.png"),
    }
    assert "is a named pipe" in ended(capsys, *words[command])
    assert (here / "pipe.png").is_fifo()


def test_a_disk_that_fills_up_under_the_log_is_one_line(here, monkeypatch, capsys):
    from jaxvec.vec import ResultsWriter

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ResultsWriter, "write_rows", full)
    line = ended(capsys, *QUICK, "--monitor", here / "m", code=1)
    assert f"--monitor {here / 'm'}: " in line
    assert "No space left on device" in line


class _Broken:
    """A standard output that takes nothing."""

    def __init__(self, number: int) -> None:
        self.number = number

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        raise OSError(self.number, os.strerror(self.number))

    def fileno(self) -> int:
        raise OSError("no file")

    def isatty(self) -> bool:
        return False


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 1), (errno.EPIPE, 141)])
def test_an_output_that_takes_nothing_is_found_at_the_end(number, code, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", _Broken(number))
    assert main(["envs", "--json"]) == code
    err = capsys.readouterr().err
    assert ("cannot write: " in err and "No space left" in err) == (code == 1)
    assert err.count("\n") == (code == 1)


@pytest.mark.parametrize("words", [("envs",), ("envs", "--json"), ("--help",), ("--version",)])
def test_a_reader_that_goes_away_ends_the_command_without_a_word(words):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "jaxvec", *words],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_limit_on_the_size_of_files_is_one_line_in_a_shell_too(here):
    """What a full disk does, in a process of its own."""
    code = (
        "import resource, sys; from jaxvec.cli import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); sys.exit(main(['envs', '--json']))"
    )
    with open(here / "out", "w") as out:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=Path(__file__).parents[2],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == f"jaxvec: cannot write: [Errno {errno.EFBIG}] File too large\n"
