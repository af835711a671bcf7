"""The table of faults names tests that exist, and every test of this folder is there for a kind."""

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.faults.plant import planted
from tests.faults.plants import PLANTS
from tests.faults.table import FAULTS

ROOT = Path(__file__).parents[2]


@cache
def collected_of(file: str) -> set[str]:
    """Returns what pytest collects of a file: test functions, and those of test classes."""
    names: set[str] = set()
    for statement in ast.parse((ROOT / file).read_text()).body:
        if isinstance(statement, ast.FunctionDef):
            names.add(statement.name)
        elif isinstance(statement, ast.ClassDef) and statement.name.startswith("Test"):
            inner = [each for each in statement.body if isinstance(each, ast.FunctionDef)]
            names |= {f"{statement.name}::{each.name}" for each in inner}
    return {name for name in names if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("id", FAULTS)
def test_every_kind_is_held_by_tests_that_exist(id):
    assert FAULTS[id].tests
    for node in FAULTS[id].tests:
        file, _, name = node.partition("::")
        assert name in collected_of(file), f"there is no {node}"


def test_the_table_is_complete_and_in_order():
    counts = {1: 17, 2: 5, 3: 25, 4: 20, 5: 16, 6: 13, 7: 15, 8: 8, 9: 16}
    places = [tuple(map(int, id[1:].split("."))) for id in FAULTS]
    assert places == sorted(places)
    assert len(places) == 110
    assert {section: max(n for s, n in places if s == section) for section in counts} == counts


def test_every_kind_can_be_planted():
    assert [plant.id for plant in PLANTS] == list(FAULTS)
    for plant in PLANTS:
        assert plant.node in FAULTS[plant.id].tests
        source = (ROOT / "jaxvec" / plant.file).read_text()
        assert planted(source, plant) != source  # it raises where the source has moved on
