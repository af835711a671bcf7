"""Records tell their fields where `help` shows it: in the docstring, name by name."""

import inspect
import re

import pytest

import jaxvec

PACKAGES = (jaxvec, jaxvec.envs, jaxvec.testing)
RECORDS = {
    value
    for package in PACKAGES
    for name in package.__all__
    if hasattr(value := getattr(package, name), "_fields")
} | {jaxvec.testing.check_env.__annotations__["return"]}


@pytest.mark.parametrize("record", sorted(RECORDS, key=repr), ids=lambda record: record.__name__)
def test_every_field_is_described(record):
    # Without the class's own indentation: Python 3.13 takes it off by itself.
    _, _, described = inspect.cleandoc(record.__doc__).partition("Attributes:\n")
    assert tuple(re.findall(r"^ {2}(\w+): \S", described, re.MULTILINE)) == record._fields
