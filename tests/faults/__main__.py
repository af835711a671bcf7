"""Prints the table of faults: id, law, and the tests that hold it."""

from tests.faults.table import FAULTS

for id, fault in FAULTS.items():
    print(f"{id:6} {fault.law}")
    for node in fault.tests:
        print(f"       {node}")
print(
    f"{len(FAULTS)} kinds, {len({node for each in FAULTS.values() for node in each.tests})} tests"
)
