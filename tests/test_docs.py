"""What README and the documentation say: code runs, commands and names exist, the reference is whole."""

import ast
import importlib
import inspect
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import jaxvec
from jaxvec.cli import main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "jaxvec" / "docs" / "pages"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (README, *PAGES)}
GUIDES = {name: text for name, text in TEXTS.items() if "```python" in text and name != "README.md"}
COMMANDS = "jaxvec/docs/pages/command-line.md"
LONG = {"README", "start-jax", "start-sb3", "faults", "migration"}  # they train, or compile much
OPTIONAL = {"stable_baselines3", "gymnax", "imageio_ffmpeg"}
LANGUAGES = ("python", "bash", "text")


class Block(NamedTuple):
    """One fenced block.

    Attributes:
      language: what stands behind the fence.
      title: the file that it is to be, if it says so.
      line: of the page, where its text begins; counted from 0.
      text: what is in it.
    """

    language: str
    title: str | None
    line: int
    text: str


def blocks(page: str, language: str) -> list[Block]:
    """Returns the blocks of a page in one language."""
    found = []
    pattern = r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$'
    for match in re.finditer(pattern, TEXTS[page], re.DOTALL | re.MULTILINE):
        line = TEXTS[page][: match.start(3)].count("\n")
        found.append(Block(match[1], match[2], line, match[3]))
    return [block for block in found if block.language == language]


def command_lines(page: str) -> list[list[str]]:
    """Returns the words of every line of a page's blocks for the shell."""
    lines = "".join(block.text for block in blocks(page, "bash")).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("page", TEXTS)
def test_every_block_is_of_a_language_that_is_tested(page):
    opening = re.findall(r"^```(\w*).*\n(?:.*\n)*?^```$", TEXTS[page], re.MULTILINE)
    assert set(opening) <= set(LANGUAGES)
    assert len(opening) == sum(len(blocks(page, language)) for language in LANGUAGES)
    assert TEXTS[page].count("```") == 2 * len(opening)


def needed(page: str) -> set[str]:
    """Returns the optional libraries that a page's code imports."""
    names = {"imageio_ffmpeg"} if "VecVideoRecorder(" in TEXTS[page] else set()
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names & OPTIONAL


def skip_without_libraries(page: str) -> None:
    """Skips a test where a page needs what is not installed."""
    missing = sorted(name for name in needed(page) if find_spec(name) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def script(page: str) -> str:
    """Returns the code of a page's blocks, each at the lines where it stands in the page."""
    lines = [""] * TEXTS[page].count("\n")
    for block in blocks(page, "python"):
        if block.title is None:
            code = block.text.splitlines()
            lines[block.line : block.line + len(code)] = code
    return "\n".join(lines) + "\n"


def run_python(words: list[str], folder: Path) -> None:
    """Runs Python in a folder, with this jaxvec and few threads."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# A page's code runs as if typed into a prompt: worker processes find no script to import again.
RUN = "import sys; exec(compile(open(sys.argv[1]).read(), sys.argv[2], 'exec'))"


def pages(names: Iterable[str]) -> list[Any]:
    """Returns pages as parameters of a test, some of them marked as long."""
    return [
        pytest.param(name, marks=[pytest.mark.long] * (Path(name).stem in LONG)) for name in names
    ]


@pytest.mark.parametrize("page", pages(GUIDES))
def test_the_code_of_a_page_runs(page, tmp_path):
    skip_without_libraries(page)
    (tmp_path / "page.py").write_text(script(page))
    run_python(["-c", RUN, "page.py", page], tmp_path)


@pytest.mark.parametrize("page", pages(page for page in TEXTS if "```python title=" in TEXTS[page]))
def test_the_files_of_a_page_run_as_its_commands_say(page, tmp_path):
    skip_without_libraries(page)
    titles = [block.title for block in blocks(page, "python") if block.title]
    for block in blocks(page, "python"):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    commands = [words for words in command_lines(page) if set(words) & set(titles)]
    assert commands
    for words in commands:
        assert words[0] == "python"
        run_python([word.replace("9911", port) for word in words[1:]], tmp_path)


@pytest.mark.parametrize("page", TEXTS)
def test_commands_are_understood(page):
    for words in command_lines(page):
        program = Path(words[0]).name
        if program == "jaxvec":
            command = typer.main.get_command(importlib.import_module("jaxvec.cli._app").app)
            command.commands[words[1]].make_context(words[1], words[2:])
        elif program == "pip":
            wanted = {extra for word in words for extra in re.findall(r"^\.\[(.*)\]$", word)}
            project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
            assert {each for one in wanted for each in one.split(",")} <= set(
                project["optional-dependencies"]
            )
        elif program == "python" and words[1].startswith("examples/"):
            text = (ROOT / words[1]).read_text()
            assert all(word in text for word in words[2:] if word.startswith("--"))
        elif page != "README.md" or words[0] not in ("python3", "."):  # README's first two: below
            assert program == "python"
            assert f'title="{words[1]}"' in TEXTS[page]


@pytest.mark.parametrize("page", TEXTS)
def test_names_and_files_exist(page):
    text = TEXTS[page]
    folder = (ROOT / page).parent
    for path in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (folder / path).exists(), path
    for path in re.findall(r"`(examples/[\w./]*)`", text):
        assert (ROOT / path).exists(), path
    dotted = re.findall(r"`(jaxvec(?:\.[A-Za-z_]\w*)+)", text)
    for name in (*dotted, *re.findall(r"^::: (.*)$", text, re.MULTILINE)):
        found = jaxvec
        for part in name.split(".")[1:]:
            try:
                found = getattr(found, part)
            except AttributeError:
                found = importlib.import_module(f"{found.__name__}.{part}")


def public_names() -> set[int]:
    """Returns the ids of all public functions, classes and records."""
    packages = (
        *(jaxvec, jaxvec.envs, jaxvec.vec, jaxvec.spaces, jaxvec.random, jaxvec.io),
        *(jaxvec.testing, jaxvec.render, jaxvec.bridges.gymnasium),
    )
    found = {f"{package.__name__}.{name}" for package in packages for name in package.__all__}
    for module in (jaxvec.bridges.sb3, jaxvec.bridges.callback):
        found |= {
            f"{module.__name__}.{name}"
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ and name[0] != "_"
        }
    return {
        name for name in found if not inspect.ismodule(eval(name)) and "__version__" not in name
    }


def test_the_reference_holds_every_public_name_once():
    shown = [name for text in TEXTS.values() for name in re.findall(r"^::: (\S+)$", text, re.M)]
    assert len(set(shown)) == len(shown)
    values = {id(eval(name)) for name in shown}
    errors = {id(value) for value in vars(jaxvec.errors).values()}
    missing = {name for name in public_names() if id(eval(name)) not in values | errors}
    assert not missing


def test_readmes_first_block_is_the_two_commands():
    first, second = blocks("README.md", "bash")[0].text.splitlines()
    assert first.startswith("python3 -m venv .venv && ")
    assert all(word in first for word in ("--frame-stack", "--normalize", "--monitor"))
    assert " -m pytest " in second


def test_readmes_command_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    first = blocks("README.md", "bash")[0].text.splitlines()[0]
    words = shlex.split(first.split("&&")[-1])
    assert words[0] == ".venv/bin/jaxvec"
    assert main(words[1:]) == 0
    assert "1,024,000" in capsys.readouterr().out
    assert (tmp_path / "cartpole.monitor.csv").stat().st_size > 10_000


@pytest.mark.parametrize(
    "block",
    [block for block in blocks("README.md", "python") if not block.title],
    ids=lambda block: f"line{block.line}",
)
def test_readmes_python_runs(block, request, tmp_path, monkeypatch, capsys):
    """Each block by itself: a reader takes one of them."""
    from jaxvec.envs import _registry

    if "stable_baselines3" in block.text:
        pytest.importorskip("stable_baselines3")
        torch = importlib.import_module("torch")
        # Networks this small are slower on several threads.
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        request.addfinalizer(lambda: torch.set_num_threads(threads))
    monkeypatch.chdir(tmp_path)  # it writes files
    monkeypatch.setattr(_registry, "_FACTORIES", dict(_registry._FACTORIES))
    exec(compile("\n" * block.line + block.text, str(README), "exec"), {})
    capsys.readouterr()


USERS_MODULE = """
from jaxvec.envs import make

def make_env():
    return make("CartPole-v1")

def act(key, obs):
    return (obs[:, 2] > 0).astype(int)
"""
FEW = ("--num-envs", "2", "--num-steps", "5")
SHORT = ("--seconds", "0.01", "--num-envs", "1")


@pytest.fixture(scope="module")
def users_folder(tmp_path_factory):
    """A folder with all that the page of the command line names."""
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


@pytest.mark.parametrize(
    "words",
    [words for words in command_lines(COMMANDS) if words[0] == "jaxvec" and words[1] != "docs"],
    ids=" ".join,
)
def test_the_commands_of_the_page_of_commands_run(words, users_folder, monkeypatch, capsys):
    """All that they name is found; what takes long is replaced."""
    monkeypatch.chdir(users_folder)
    monkeypatch.syspath_prepend(str(users_folder))
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    short = {"rollout": FEW, "check": ("--num-envs", "2", "--num-steps", "9"), "bench": SHORT}
    assert main([*words[1:], *short.get(words[1], ())]) == 0
    assert capsys.readouterr().out
