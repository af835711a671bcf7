"""Sums of many steps on the device against float64; `python -m tests.soak` takes as many as one likes."""

import pytest

from tests.soak import BOUNDS, many_rows, one_row


@pytest.mark.long
def test_ten_million_steps_add_up_as_in_float64():
    errors = one_row(10**7, seed=1) | many_rows(10**7, seed=1)
    assert errors.keys() == BOUNDS.keys()
    assert {name: error for name, error in errors.items() if error > BOUNDS[name]} == {}
