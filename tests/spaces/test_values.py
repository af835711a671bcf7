"""What is refused before anything is written: wrong shapes, numbers that do not fit, missing keys.

One law for the three ways in: a row of columns, gymnasium's shared memory, and `concatenate`.
"""

import copy
import re

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from jaxvec.spaces import (
    MissingPartError,
    batch_space,
    concatenate,
    create_empty_array,
    create_shared_memory,
    read_from_shared_memory,
    write_row,
    write_to_shared_memory,
)
from tests.spaces.table import FIXED, assert_same, name

NUM_ROWS = 4
ROW = 2
SMALL = Box(0, 255, (2,), np.uint8)
REAL = Box(-np.inf, np.inf, (2,))
NESTED = Dict(a=REAL, b=Tuple([SMALL, Dict(c=Discrete(3, dtype=np.int8))]))
GOOD = {"a": np.float32([1, 2]), "b": (np.uint8([3, 4]), {"c": np.int8(1)})}


def columns_of(space):
    return create_empty_array(space, NUM_ROWS, np.zeros)


def by_row(space, value):
    """Writes a row of columns; returns the columns."""
    columns = columns_of(space)
    return columns, lambda: write_row(columns, space, ROW, value)


def by_shared_memory(space, value):
    memory = create_shared_memory(space, NUM_ROWS)
    columns = read_from_shared_memory(space, memory, NUM_ROWS)
    return columns, lambda: write_to_shared_memory(space, ROW, value, memory)


def by_concatenate(space, value):
    """Puts the value among elements that are fine."""
    columns = columns_of(space)
    fine = next(part for part in [GOOD, plain_zero(space)] if matches(space, part))
    items = [value if row == ROW else fine for row in range(NUM_ROWS)]
    return columns, lambda: concatenate(space, items, columns)


def plain_zero(space):
    if isinstance(space, Dict):
        return {key: plain_zero(part) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(map(plain_zero, space.spaces))
    return np.zeros(space.shape, space.dtype)


def matches(space, value):
    return isinstance(space, Dict) == isinstance(value, dict) and (
        not isinstance(value, dict) or value.keys() == space.spaces.keys()
    )


WAYS = pytest.mark.parametrize(
    "way", [by_row, by_shared_memory, by_concatenate], ids=["row", "shared", "concatenate"]
)
LENIENT = pytest.mark.parametrize("way", [by_row, by_shared_memory], ids=["row", "shared"])

REFUSED = {
    "a shape that would be broadcast": (
        REAL,
        np.float32([1.5]),
        ValueError,
        "(1,), (2,) is needed",
    ),
    "a scalar that would fill the row": (REAL, np.float32(7), ValueError, "(), (2,) is needed"),
    "a number that would fill the row": (REAL, 7.0, ValueError, "(), (2,) is needed"),
    "a shape of the same size": (
        Box(0, 9, (2, 3)),
        np.zeros((3, 2), np.float32),
        ValueError,
        "(3, 2), (2, 3) is needed",
    ),
    "one element too many": (REAL, np.zeros(3, np.float32), ValueError, "(3,), (2,) is needed"),
    "an array for a Discrete": (Discrete(3), np.array([1]), ValueError, "(1,), () is needed"),
    "a list of the wrong length": (REAL, [1.0], ValueError, "(1,), (2,) is needed"),
    "int64 beyond int32": (Box(0, 9, (), np.int32), np.int64(2**40), ValueError, "1099511627776"),
    "int64 beyond int8": (
        Discrete(3, dtype=np.int8),
        np.int64(300),
        ValueError,
        "300 does not fit",
    ),
    "float64 beyond float32": (REAL, np.array([0, 1e300]), ValueError, "1e+300 does not fit"),
    "float32 beyond float16": (
        Box(-1, 1, (), np.float16),
        np.float32(1e6),
        ValueError,
        "1000000.0 does not fit float16",
    ),
    "None": (REAL, None, TypeError, "None"),
    "None for a Discrete": (Discrete(3), None, TypeError, "None"),
    "a string": (REAL, "ab", TypeError, "'ab'"),
    "objects": (REAL, np.array([1, None]), TypeError, "None"),
    "complex numbers": (REAL, np.array([1j, 2]), TypeError, "complex"),
    "lists of two lengths": (Box(0, 9, (2, 2)), [[1], [2, 3]], TypeError, "[[1], [2, 3]]"),
    "a dict for a Box": (REAL, {"a": 1}, TypeError, "{'a': 1}"),
    "a number for a Dict": (Dict(a=REAL), 3, TypeError, "a dict is needed"),
    "a number for a Tuple": (Tuple([REAL]), 3, TypeError, "a tuple is needed"),
    "a missing key": (Dict(a=REAL, b=REAL), {"a": REAL.sample()}, KeyError, "lacks ['b']"),
    "a missing part": (Tuple([REAL, REAL]), (REAL.sample(),), IndexError, "1 parts, 2 are needed"),
    "a part too many": (Tuple([REAL]), (REAL.sample(),) * 2, ValueError, "2 parts, 1 are needed"),
    "a misfit deep inside": (
        NESTED,
        {**GOOD, "b": (np.uint8([3, 4]), {"c": np.int64(300)})},
        ValueError,
        "['b'][1]['c']: 300 does not fit int8",
    ),
    "a shape deep inside": (
        NESTED,
        {**GOOD, "b": (np.uint8([3]), {"c": np.int8(0)})},
        ValueError,
        "['b'][0]: the value has shape (1,)",
    ),
    "a key missing deep inside": (
        NESTED,
        {**GOOD, "b": (np.uint8([3, 4]), {})},
        MissingPartError,
        "['b'][1]: the value lacks ['c']",
    ),
}

# np.stack(out=...) refuses these by their dtype alone, and so does `concatenate`.
REFUSED_BY_VALUE = {
    "numbers that would wrap": (SMALL, np.array([300.0, -1.0]), "300.0 does not fit uint8"),
    "a list that would wrap": (SMALL, [7, -1], "-1 does not fit uint8, which holds 0 to 255"),
    "uint64 beyond int64": (Discrete(3), np.uint64(2**63), "9223372036854775808 does not fit"),
    "a float beyond int64": (Discrete(3), 2.0**63, "does not fit int64"),
    "a fraction": (SMALL, np.array([1.0, 1.5]), "1.5 does not fit uint8"),
    "NaN in integers": (SMALL, np.array([np.nan, 1]), "nan does not fit uint8"),
    "infinity in integers": (SMALL, np.array([1, np.inf]), "inf does not fit uint8"),
    "two as a bool": (Box(0, 1, (2,), np.bool_), np.array([1, 2]), "2 does not fit bool"),
    "minus one as uint32": (Box(0, 9, (), np.uint32), -1, "-1 does not fit uint32"),
    "minus one in a MultiBinary": (MultiBinary(2), np.array([0, 200]), "200 does not fit int8"),
    "a MultiDiscrete": (MultiDiscrete([9, 9], np.int8), [0, 128], "128 does not fit int8"),
}


@WAYS
@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_what_does_not_fit_is_refused_and_nothing_is_written(way, case):
    space, value, error, words = case
    columns, write = way(space, value)
    before = copy.deepcopy(columns)
    with pytest.raises(error, match=re.escape(words)) as caught:
        write()
    assert f"row {ROW}" in str(caught.value)
    assert "Box" in str(caught.value) or "Discrete" in str(caught.value)
    assert_same(columns, before)


@LENIENT
@pytest.mark.parametrize("case", REFUSED_BY_VALUE.values(), ids=REFUSED_BY_VALUE)
def test_a_number_that_would_change_is_refused_by_its_value(way, case):
    space, value, words = case
    columns, write = way(space, value)
    before = copy.deepcopy(columns)
    with pytest.raises(ValueError, match=re.escape(words)):
        write()
    assert_same(columns, before)


@pytest.mark.parametrize("case", REFUSED_BY_VALUE.values(), ids=REFUSED_BY_VALUE)
def test_concatenate_refuses_them_too_by_kind_or_by_value(case):
    space, value, _ = case
    columns, write = by_concatenate(space, value)
    before = copy.deepcopy(columns)
    with pytest.raises((TypeError, ValueError), match=f"row {ROW}"):
        write()
    assert_same(columns, before)


ACCEPTED = {
    "float64 in float32": (REAL, np.array([0.1, 2.0]), np.float32([0.1, 2.0])),
    "infinity and NaN": (REAL, np.array([np.inf, np.nan]), np.float32([np.inf, np.nan])),
    "integers in float32": (REAL, np.array([1, 2]), np.float32([1, 2])),
    "whole floats in uint8": (SMALL, np.array([0.0, 255.0]), np.uint8([0, 255])),
    "a list": (SMALL, [0, 255], np.uint8([0, 255])),
    "bools in int8": (MultiBinary(2), np.array([True, False]), np.int8([1, 0])),
    "ones and zeros as bool": (Box(0, 1, (2,), np.bool_), [1, 0], np.array([True, False])),
    "a Python number": (Discrete(3), 2, np.int64(2)),
    "the greatest int64": (Discrete(3), 2**63 - 1, np.int64(2**63 - 1)),
    "the least int64 as a float": (Discrete(3), -(2.0**63), np.int64(-(2**63))),
    "the greatest uint64": (Box(0, 9, (), np.uint64), 2**64 - 1, np.uint64(2**64 - 1)),
    "another byte order": (REAL, np.array([1, 2], ">f4"), np.float32([1, 2])),
    "an array of JAX": (REAL, jnp.float32([1, 2]), np.float32([1, 2])),
    "bfloat16": (REAL, jnp.bfloat16([1, 2]), np.float32([1, 2])),
    "nothing": (Box(-1, 1, (0,)), [], np.zeros(0, np.float32)),
}


@LENIENT
@pytest.mark.parametrize("case", ACCEPTED.values(), ids=ACCEPTED)
def test_a_value_of_another_type_that_fits_is_cast(way, case):
    space, value, expected = case
    columns, write = way(space, value)
    write()
    assert columns.dtype == space.dtype
    np.testing.assert_array_equal(columns[ROW], expected)


@pytest.mark.parametrize("space", FIXED, ids=name)
def test_a_sample_is_written_into_its_row_and_no_other(space):
    columns, value = columns_of(space), space.sample()
    before = copy.deepcopy(columns)
    write_row(columns, space, ROW, value)
    others = [row for row in range(NUM_ROWS) if row != ROW]
    for column, old, new in leaves(columns, before, value):
        np.testing.assert_array_equal(column[ROW], new)
        np.testing.assert_array_equal(column[others], old[others])


def leaves(columns, before, value):
    if isinstance(columns, dict):
        for key in columns:
            yield from leaves(columns[key], before[key], value[key])
    elif isinstance(columns, tuple):
        for parts in zip(columns, before, value, strict=True):
            yield from leaves(*parts)
    else:
        yield columns, before, value


def test_extra_keys_are_dropped_with_a_warning_that_names_them():
    columns = columns_of(Dict(a=REAL))
    with pytest.warns(UserWarning, match=r"row 2: the value has \['b'\]"):
        write_row(columns, Dict(a=REAL), ROW, {"a": np.float32([1, 2]), "b": 3})
    assert columns["a"][ROW].tolist() == [1, 2]


def test_a_mapping_that_is_no_dict_is_read():
    from types import MappingProxyType

    columns = columns_of(Dict(a=REAL))
    write_row(columns, Dict(a=REAL), ROW, MappingProxyType({"a": np.float32([1, 2])}))
    assert columns["a"][ROW].tolist() == [1, 2]


def test_a_list_stands_for_a_tuple():
    columns = columns_of(Tuple([Discrete(3), Discrete(3)]))
    write_row(columns, Tuple([Discrete(3), Discrete(3)]), ROW, [1, 2])
    assert [column[ROW] for column in columns] == [1, 2]


def test_a_space_without_a_fixed_shape_has_no_columns():
    with pytest.raises(TypeError, match=r"row 0, \['b'\]: elements of Text"):
        write_row({"b": ("",)}, Dict(b=Text(3)), 0, {"b": "x"})


def test_writing_does_not_keep_the_value():
    columns, value = columns_of(REAL), np.float32([1, 2])
    write_row(columns, REAL, ROW, value)
    value[:] = 9
    assert columns[ROW].tolist() == [1, 2]


def test_a_missing_part_says_so_plainly():
    with pytest.raises(MissingPartError) as caught:
        write_row(columns_of(Dict(a=REAL)), Dict(a=REAL), ROW, {})
    assert str(caught.value).startswith("row 2: the value lacks ['a']")
    assert isinstance(caught.value, ValueError)


def test_a_refusal_warns_of_nothing():
    with pytest.raises(ValueError, match="does not fit"):
        write_row(columns_of(REAL), REAL, ROW, np.array([1e300, np.nan]))


@pytest.mark.parametrize(
    ("row", "error", "told"),
    [
        (-1, ValueError, "row -1: there is no such row; the rows are 0 to 3"),
        (4, ValueError, "row 4: there is no such row"),
        (np.int64(-2), ValueError, "row -2: there is no such row"),
        (1.0, TypeError, r"write_row: row=1\.0 is no whole number"),
        (True, TypeError, "write_row: row=True"),
        (None, TypeError, "write_row: row=None"),
        (slice(2), TypeError, "write_row: row=slice"),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("space", "value"), [(REAL, GOOD["a"]), (NESTED, GOOD)], ids=["box", "dict"]
)
def test_a_row_that_is_none_of_the_columns_is_refused_and_nothing_is_written(
    space, value, row, error, told
):
    columns = columns_of(space)
    with pytest.raises(error, match=told):
        write_row(columns, space, row, value)
    assert_same(columns, columns_of(space))


def test_a_row_may_be_numpys_number():
    columns = columns_of(REAL)
    write_row(columns, REAL, np.int32(3), GOOD["a"])
    np.testing.assert_array_equal(columns[3], GOOD["a"])


@pytest.mark.parametrize("n", [-1, 2.5, True, None, "3"])
@pytest.mark.parametrize("space", [REAL, Discrete(3), MultiDiscrete([2, 3]), NESTED], ids=name)
def test_a_number_of_environments_that_cannot_be_is_refused(space, n):
    for function in (batch_space, create_empty_array, create_shared_memory):
        with pytest.raises(
            ValueError, match=rf"{function.__name__}: n=.* a whole number from 0 on"
        ):
            function(space, n)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64"])
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
def test_no_infinity_of_half_precision_is_written_as_a_whole_number(dtype, number):
    limits = np.iinfo(dtype)
    space = Box(limits.min, limits.max, (1,), np.dtype(dtype).type)
    columns = np.zeros((1, 1), dtype)
    with pytest.raises(ValueError, match="does not fit"):
        write_row(columns, space, 0, np.array([number], np.float16))
    assert columns == 0
