"""The command itself: how it is called, what it loads, and what README says of it."""

import importlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import jaxvec
from jaxvec.cli import main
from jaxvec.envs import available

README = Path(__file__).parents[2] / "README.md"


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


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)


def test_readmes_first_block_is_the_two_commands():
    first, second = readme_blocks("bash")[0].splitlines()
    assert first.startswith("python3 -m venv .venv && ")
    assert all(word in first for word in ("--frame-stack", "--normalize", "--monitor"))
    assert second.endswith(" -m pytest")


def test_readmes_command_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = readme_blocks("bash")[0].splitlines()[0]
    words = shlex.split(first.split("&&")[-1])
    assert words[0] == ".venv/bin/jaxvec"
    assert main(words[1:]) == 0
    assert "1,024,000" in capsys.readouterr().out
    assert (tmp_path / "cartpole.monitor.csv").stat().st_size > 10_000


NAMES = ("rollout", "policy", "sb3_classic", "sb3_compiled", "statistics", "own_environment")


@pytest.mark.parametrize("block", readme_blocks("python"), ids=NAMES)
def test_readmes_python_runs(block, request, tmp_path, monkeypatch, capsys):
    from jaxvec.envs import _registry

    if "stable_baselines3" in block:
        pytest.importorskip("stable_baselines3")
        torch = importlib.import_module("torch")
        # Networks this small are slower on several threads.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        request.addfinalizer(lambda: torch.set_num_threads(threads))
    monkeypatch.chdir(tmp_path)  # it writes files
    monkeypatch.setattr(_registry, "_FACTORIES", dict(_registry._FACTORIES))
    exec(compile(block, str(README), "exec"), {})
    capsys.readouterr()


def readme_commands() -> list[list[str]]:
    """Returns the command lines of README, without those that install."""
    lines = "\n".join(readme_blocks("bash")[1:]).splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith("jaxvec ")]


USERS_MODULE = """
from jaxvec.envs import make

def make_env():
    return make("CartPole-v1")

def act(key, obs):
    return (obs[:, 2] > 0).astype(int)
"""


def test_readmes_files_and_names_exist():
    text = README.read_text()
    linked = re.findall(r"\]\(([^)#:]+)\)", text)
    assert len(linked) > 5
    for path in linked:
        assert (README.parent / path).exists(), path
    dotted = set(re.findall(r"`(jaxvec(?:\.[A-Za-z_]\w*)+)", text))
    assert len(dotted) > 5
    for name in dotted:
        found = jaxvec
        for part in name.split(".")[1:]:
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(f"{found.__name__}.{part}")


@pytest.fixture(scope="module")
def users_folder(tmp_path_factory):
    """A folder with all that README's command lines name."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "my_module.py").write_text(USERS_MODULE)
    for name in "ab":
        (folder / "runs" / name).mkdir(parents=True)
        log = folder / "runs" / name / "0.monitor.csv"
        log.write_text('#{"t_start": 0, "env_id": "E"}\nr,l,t\n1,2,3\n')
    rollout = ("rollout", "CartPole-v1", *FEW, "--backend", "dummy", "--normalize", "--save-stats")
    for name in ("stats.npz", "vecnormalize.pkl"):
        assert main([*rollout, str(folder / name)]) == 0
    return folder


@pytest.mark.parametrize("words", readme_commands(), ids=" ".join)
def test_readmes_other_commands_are_understood(words, users_folder, monkeypatch, capsys):
    """All that they name is found; what takes long is replaced."""
    monkeypatch.chdir(users_folder)
    monkeypatch.syspath_prepend(str(users_folder))
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    short = {"rollout": FEW, "check": ("--num-envs", "2", "--num-steps", "9"), "bench": SHORT}
    assert main([*words[1:], *short.get(words[1], ())]) == 0
    assert capsys.readouterr().out


FEW = ("--num-envs", "2", "--num-steps", "5")
SHORT = ("--seconds", "0.01", "--num-envs", "1")
