"""Runs gymnasium's own tests of its vector utilities against `jaxvec.spaces`, as they are.

    python .ci/gymnasium_tests.py [CHECKOUT]

CHECKOUT is a copy of gymnasium's repository; the environment variable GYMNASIUM_SOURCE names one as well.
Without one the source distribution of the installed version is downloaded. (Those of 0.29.1, 1.0.0 and
1.4.0 hold no tests of the vector utilities: then nothing is run, and the last line says SKIPPED.)

The tests import `gymnasium.vector.utils`: for them that name stands for a module with jaxvec's functions in
place of gymnasium's namesakes, whereas jaxvec goes on building on gymnasium's own. An id that fails is run
once more with gymnasium's own functions and forgiven where it fails there too (a test that is newer than
the installed gymnasium). Exit code 0: nothing that gymnasium passes is failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import types
from importlib.metadata import version
from pathlib import Path

import pytest

TESTS = ("tests/vector/utils/test_space_utils.py", "tests/vector/utils/test_shared_memory.py")
NEEDED = (*TESTS, "tests/vector/utils/utils.py", "tests/spaces/utils.py")


def main() -> int:
    """Finds the files, runs them against jaxvec, and those ids that fail against gymnasium."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        source = find_source(work)
        absent = [name for name in NEEDED if not (source / name).is_file()]
        if absent:
            print(
                f"SKIPPED: {source.name} has no {', '.join(absent)}; name a checkout of gymnasium."
            )
            return 0
        lay_out(source, work / "run")
        failed = run_in_process_of_its_own(work / "run", list(TESTS), "jaxvec")
        if not failed:
            return 0
        lost = sorted(
            set(failed) - set(run_in_process_of_its_own(work / "run", failed, "gymnasium"))
        )
        print(
            f"{len(failed)} failed, {len(failed) - len(lost)} of them with gymnasium's own functions too"
        )
        print(*[f"LOST {name}" for name in lost], sep="\n")
        return 1 if lost else 0


def find_source(work: Path) -> Path:
    """Returns a folder that holds gymnasium's repository, or its source distribution."""
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("GYMNASIUM_SOURCE")
    if given:
        return Path(given).resolve()
    name = f"gymnasium-{version('gymnasium')}"
    options = ["--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(work)]
    command = [sys.executable, "-m", "pip", "download", *options, name.replace("-", "==")]
    subprocess.run(command, check=True)
    with tarfile.open(work / f"{name}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    return work / name


def lay_out(source: Path, run: Path) -> None:
    """Copies what the tests need into a tree of packages of its own."""
    for name in NEEDED:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, run / name)
    for package in {Path(name).parent for name in NEEDED} | {Path("tests"), Path("tests/vector")}:
        (run / package / "__init__.py").touch()


def run_in_process_of_its_own(run: Path, ids: list[str], functions: str) -> list[str]:
    """Runs tests with the functions of a library; returns the ids that failed."""
    failed = run / "failed.txt"
    failed.unlink(missing_ok=True)
    # A process of its own: what the tests have imported once stays as it was.
    done = subprocess.run(
        [sys.executable, __file__, "--run", functions, *ids], cwd=run, check=False
    )
    if done.returncode not in (0, 1) or not failed.is_file():
        raise SystemExit(f"pytest ended with {done.returncode} before any test ran")
    return failed.read_text().splitlines()


class Recorder:
    """Writes down which ids failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes note of one phase of one test."""
        if report.failed:
            self.failed.append(report.nodeid)


def run_here(functions: str, ids: list[str]) -> int:
    """Runs tests in this process, in the current folder."""
    sys.path.insert(0, "")
    if functions == "jaxvec":
        substitute()
    recorder = Recorder()
    code = pytest.main(
        ["-q", "--tb=short", "-p", "no:cacheprovider", "--rootdir=.", *ids], [recorder]
    )
    Path("failed.txt").write_text("\n".join(recorder.failed))
    return int(code)


def substitute() -> None:
    """Puts a module with jaxvec's functions in the place of `gymnasium.vector.utils`."""
    import gymnasium.vector.utils as theirs

    import jaxvec.spaces as ours

    both = sorted(set(theirs.__all__) & set(ours.__all__))
    module = types.ModuleType(theirs.__name__, theirs.__doc__)
    vars(module).update(vars(theirs))
    vars(module).update({name: getattr(ours, name) for name in both})
    sys.modules[theirs.__name__] = module
    print("jaxvec's:", *both)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        sys.exit(run_here(sys.argv[2], sys.argv[3:]))
    sys.exit(main())
