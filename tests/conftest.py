"""Settings that all tests share."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

# Laws about sharding need several devices; this must be said before any backend is first used.
jax.config.update("jax_num_cpu_devices", 4)

# What some test files compare with, beyond `jaxvec[test]`: without it they are left out, and that is said.
_ORACLES = {"stable_baselines3", "torch"}


def _imports(path: Path) -> set[str]:
    """Returns the packages that a file imports when it is loaded."""
    names: set[str] = set()
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Import):
            names |= {alias.name.split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            names.add(statement.module.split(".")[0])
    return names


@pytest.fixture(scope="module")
def quick_compilation() -> Iterator[None]:
    """Compiles a module's programs in half the time, by leaving most optimizations out."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@cache
def _is_missing(package: str) -> bool:
    return find_spec(package) is None


_FORKS = ("tests/vec", "tests/faults")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Forking is tested on purpose: warnings about it, JAX's and ours, are no errors there."""
    for item in items:
        if any(folder in item.path.as_posix() for folder in _FORKS):
            for category, text in (
                ("RuntimeWarning", "os.fork"),
                ("RuntimeWarning", "SubprocVecEnv. start_method=.fork"),
                ("DeprecationWarning", ".*fork"),
            ):
                item.add_marker(pytest.mark.filterwarnings(f"ignore:{text}:{category}"))


@cache
def _oracles_missing(path: Path) -> list[str]:
    return sorted(filter(_is_missing, _ORACLES & _imports(path)))


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the files whose oracle is not installed."""
    is_left_out = collection_path.suffix == ".py" and _oracles_missing(collection_path)
    return True if is_left_out else None


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Names the files that are left out; here, because workers that collect report nothing."""
    files = sorted((config.rootpath / "tests").rglob("test_*.py"))
    missing = {path.relative_to(config.rootpath): _oracles_missing(path) for path in files}
    return [
        f"left out, not installed: {path} ({', '.join(names)})"
        for path, names in missing.items()
        if names
    ]
