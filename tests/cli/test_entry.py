"""The command itself: how it is called, and what it loads."""

import json
import re
import subprocess
import sys

import pytest

import jaxvec
from jaxvec.cli import main
from jaxvec.envs import available


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)


def test_python_m_jaxvec_is_the_command():
    done = python("-m", "jaxvec", "--version")
    assert (done.returncode, done.stdout) == (0, f"jaxvec {jaxvec.__version__}\n")


def test_help_loads_no_jax():
    code = (
        "import sys; from jaxvec.cli import main; assert main(['rollout', '--help']) == 0; "
        "assert main(['--help']) == 0; sys.exit('jax' in sys.modules)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in ("rollout", "envs", "check"))


def test_bad_input_reaches_the_shell_as_code_2_without_a_traceback():
    done = python("-m", "jaxvec", "rollout", "Nothing-v0")
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"jaxvec: .*no environment 'Nothing-v0'.*\n", done.stderr)


@pytest.mark.parametrize("words", [["fly"], ["--fly"], ["envs", "more"]])
def test_an_unknown_command_or_option_is_one_line_and_code_2(words, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert "Usage: jaxvec" in out + err


def test_envs_lists_every_environment(capsys):
    assert main(["envs"]) == 0
    table = capsys.readouterr().out
    assert all(name in table for name in available())
    assert main(["envs", "--json"]) == 0
    listed = {each["id"]: each for each in json.loads(capsys.readouterr().out)}
    assert sorted(listed) == available()
    assert listed["CartPole-v1"]["action_space"] == "Discrete(2)"
    assert listed["CartPole-v1"]["max_episode_steps"] == 500
