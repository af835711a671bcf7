"""Plants a fault of every kind, one after the other, and looks whether a test of that kind fails.

    python -m tests.faults.plant [A1.1 A4.7 ...]

The faults are those of `plants.py`; they are planted in a copy of this tree in a temporary folder. A test
that does not end in time counts as failed: some faults make a VecEnv wait for ever.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.plants import PLANTS, Plant
from tests.faults.table import FAULTS

ROOT = Path(__file__).parents[2]
TIMEOUT = 180.0  # seconds
FAILED = 1  # pytest's exit code where tests failed


def planted(text: str, plant: Plant) -> str:
    """Returns a source file with the fault in it.

    Raises:
      ValueError: if the text to replace is not there exactly once.
    """
    if text.count(plant.old) != 1:
        raise ValueError(
            f"{plant.id}: in jaxvec/{plant.file} this is there {text.count(plant.old)} times, not once: "
            f"{plant.old!r}"
        )
    return text.replace(plant.old, plant.new)


def outcome(tree: Path, plant: Plant) -> str:
    """Plants one fault, runs its test, takes the fault out again, and says how the test ended."""
    source = tree / "jaxvec" / plant.file
    good = source.read_text()
    source.write_text(planted(good, plant))
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", ""]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [*command, plant.node],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as run:
        try:
            said = run.communicate(timeout=TIMEOUT)[0]
        except subprocess.TimeoutExpired:
            said = ""
        finally:
            source.write_text(good)
            with contextlib.suppress(ProcessLookupError):  # its workers, too
                os.killpg(run.pid, signal.SIGKILL)
    if not said:
        return "red (it does not end)"
    if run.returncode == FAILED:
        return "red"
    return f"NOT NOTICED (exit code {run.returncode}): {said.strip().splitlines()[-1]}"


def main(ids: list[str]) -> int:
    """Plants the faults of these kinds, or of all; returns how many were not noticed."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for name in ("jaxvec", "tests"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, tree / name)
        for plant in PLANTS:
            if ids and plant.id not in ids:
                continue
            said = outcome(tree, plant)
            missed += not said.startswith("red")
            print(f"{plant.id:6} {said:24} {FAULTS[plant.id].law}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
