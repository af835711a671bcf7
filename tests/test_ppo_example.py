"""examples/ppo_scan.py in all its ways: its claims, and one loop over environments of either kind."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples" / "ppo_scan.py"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(find_spec("optax") is None, reason="needs jaxvec[examples]"),
]


def lines(*options: str) -> list[str]:
    """Runs the example; it asserts what it claims."""
    command = [sys.executable, str(SCRIPT), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def numbers(line: str) -> list[float]:
    """Returns what stands between a line's last brackets."""
    return [float(each) for each in line.rpartition("[")[2].rstrip("]").split()]


def test_five_trainings_of_half_a_million_steps_solve_cart_pole():
    *_, last = lines("--num-steps", "500000", "--seeds", "5")
    greedy = numbers(last)
    assert len(greedy) == 5
    assert min(greedy) >= 475


def test_the_same_loop_learns_in_gymnasiums_environments_in_worker_processes():
    *_, last = lines("--backend", "callback", "--num-steps", "50000")
    assert numbers(last)[0] >= 150


def test_actions_of_a_box_are_learnt_and_the_curve_is_drawn(tmp_path):
    options = ("--env", "Pendulum-v1", "--num-steps", "300000", "--plot", str(tmp_path / "a.png"))
    *_, greedy = lines(*options)
    assert numbers(greedy)[0] > -700  # random actions bring -1200
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_the_settings_of_the_baseline_learn_too():
    _, thirds, _ = lines("--purejaxrl", "--num-steps", "200000")
    assert numbers(thirds)[0] > 100
