"""The floors of the house: who may import whom, how long a page may be, and what `import jaxvec` loads."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "jaxvec"
FILES = sorted(ROOT.rglob("*.py"))

FLOOR = {
    "jaxvec": 6,  # the public face names everything, when asked
    "jaxvec.__main__": 6,
    "jaxvec._version": 0,
    "jaxvec.typing": 0,
    "jaxvec.errors": 0,
    "jaxvec.core": 1,
    "jaxvec.spaces": 1,
    "jaxvec.random": 1,
    "jaxvec.io": 2,  # it knows which parts of a state are statistics
    "jaxvec.envs": 2,
    "jaxvec.render": 2,
    "jaxvec.vec": 3,
    "jaxvec.bridges": 4,
    "jaxvec.testing": 4,
    "jaxvec.cli": 5,
}
# On floor 1 these are the ground that their neighbours stand on. Each may use those before it.
GROUND = (
    "jaxvec.core._xp",
    "jaxvec.core._arguments",
    "jaxvec.core._hash",
    "jaxvec.random",
    "jaxvec.spaces",
)
# Modules that a worker process or a NumPy user loads: jax must wait until a function needs it.
LIGHT = ("jaxvec", "jaxvec.core", "jaxvec.spaces", "jaxvec.random", "jaxvec.io", "jaxvec.cli")
HEAVY = ("jax", "jaxlib", "flax", "chex", "torch", "matplotlib")


def name_of(path: Path) -> str:
    """Returns a file's module, such as `jaxvec.core._xp`; a package's for its `__init__.py`."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def house(module: str) -> str:
    """Returns the package or single module of the table that a module belongs to."""
    return module if module in FLOOR else ".".join(module.split(".")[:2])


def imported(path: Path) -> set[str]:
    """Returns all jaxvec modules that a file imports anywhere, in functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {_module_or_attribute(node.module or "", alias.name) for alias in node.names}
    return {module for module in found if module.split(".")[0] == "jaxvec"}


def _module_or_attribute(module: str, name: str) -> str:
    inner = ROOT.parent.joinpath(*module.split("."), name)
    return f"{module}.{name}" if inner.is_dir() or inner.with_suffix(".py").is_file() else module


def may_import(importer: str, target: str) -> bool:
    """Tells whether the table of floors allows an import."""
    here, there = house(importer), house(target)
    if here == there or FLOOR[there] < FLOOR[here]:
        return True
    if FLOOR[here] == FLOOR[there] == 1 and target.startswith(GROUND):
        rank = {ground: place for place, ground in enumerate(GROUND)}
        mine = next((rank[ground] for ground in GROUND if importer.startswith(ground)), len(GROUND))
        theirs = next(rank[ground] for ground in GROUND if target.startswith(ground))
        return theirs < mine
    return False


def test_every_module_has_a_floor():
    assert {house(name_of(path)) for path in FILES} <= set(FLOOR)


# The public face looks its names up lazily, on all floors.
@pytest.mark.parametrize("path", [path for path in FILES if name_of(path) != "jaxvec"], ids=name_of)
def test_a_module_imports_lower_floors_and_its_own_package_only(path):
    importer = name_of(path)
    # The public face is not a floor to stand on: it would hide what is really imported. The command
    # line and the laws are users of it.
    wrong = {
        target
        for target in imported(path)
        if not may_import(importer, target)
        and not (target == "jaxvec" and FLOOR[house(importer)] >= 4)
    }
    assert not wrong, f"{importer} (floor {FLOOR[house(importer)]}) imports {sorted(wrong)}"


@pytest.mark.parametrize(
    ("importer", "target", "allowed"),
    [
        ("jaxvec.core._episode", "jaxvec.core._moments", True),
        ("jaxvec.core._episode", "jaxvec.typing", True),
        ("jaxvec.core._action", "jaxvec.random", True),
        ("jaxvec.core._action", "jaxvec.io", False),
        ("jaxvec.core._action", "jaxvec.envs._env", False),
        ("jaxvec.random", "jaxvec.core._xp", True),
        ("jaxvec.random", "jaxvec.core._moments", False),
        ("jaxvec.io._statistics", "jaxvec.core._moments", True),
        ("jaxvec.io._files", "jaxvec.envs._env", False),
        ("jaxvec.envs._rollout", "jaxvec.io", False),
        ("jaxvec.core._xp", "jaxvec.random", False),
        ("jaxvec.envs._rollout", "jaxvec.spaces", True),
        ("jaxvec.envs._rollout", "jaxvec.vec._base", False),
        ("jaxvec.errors", "jaxvec.typing", False),
    ],
)
def test_the_table_of_floors_says_what_the_design_says(importer, target, allowed):
    assert may_import(importer, target) is allowed


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_has_at_most_350_lines_and_says_what_it_is_for(path):
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= 350
    assert ast.get_docstring(ast.parse(text)), "a module begins with what it is for"


@pytest.mark.parametrize("module", LIGHT)
def test_importing_a_light_module_loads_no_heavy_library(module):
    code = f"""
import importlib, pkgutil, sys
package = importlib.import_module({module!r})
if {module != "jaxvec"!r} and hasattr(package, "__path__") and {module != "jaxvec.cli"!r}:
    for each in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(each.name)
print(sorted(set({HEAVY!r}) & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
