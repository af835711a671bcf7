"""What a user's type checker says to programs that use jaxvec: mypy, strict, as they run it."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("program", "library"), [("rollouts", "jax"), ("training", "stable_baselines3")]
)
def test_strict_mypy_accepts_a_users_program_and_knows_what_comes_out(program, library):
    pytest.importorskip("mypy")
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    path = f"tests/typed/{program}.py"
    # From here, so that it finds this jaxvec, and what it found out about all others before.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    # What it thinks of jaxvec itself depends on the versions of other libraries, and is checked elsewhere.
    said = [line for line in done.stdout.splitlines() if line.startswith(path)]
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert not said, "\n".join(said)
