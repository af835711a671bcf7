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
_left_out = pytest.StashKey[list[str]]()


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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out the files whose oracle is not installed."""
    if collection_path.suffix != ".py":
        return None
    missing = sorted(filter(_is_missing, _ORACLES & _imports(collection_path)))
    if not missing:
        return None
    left_out = config.stash.setdefault(_left_out, [])
    left_out.append(f"{collection_path.relative_to(config.rootpath)} ({', '.join(missing)})")
    return True


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Names the files that were left out."""
    return [f"left out, not installed: {each}" for each in config.stash.get(_left_out, [])]
