"""Membership under jit equals gymnasium's `contains`, element by element."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from jaxvec.spaces import contains
from tests.spaces.table import FIXED, name

VARIANTS = 24
over_fixed = pytest.mark.parametrize("index", range(len(FIXED)), ids=map(name, FIXED))


def variant(space, generator, change):
    """Draws an element; where `change` says so, moves numbers to and over the edges of the space."""
    if isinstance(space, Dict):
        return {key: variant(part, generator, change) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(variant(part, generator, change) for part in space.spaces)
    element = np.array(space.sample(), space.dtype)
    if not change or not element.size or generator.random() < 0.5:
        return element
    if isinstance(space, Box):
        edges = [space.low, space.high]
    elif isinstance(space, MultiBinary):
        edges = [np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)]
    elif isinstance(space, Discrete):
        edges = [space.start, space.start + (space.n - 1)]
    else:
        edges = [space.start, space.start + (space.nvec - 1)]
    place = tuple(generator.integers(length) for length in element.shape)
    edge = np.asarray(edges[generator.integers(2)])[place]
    if space.dtype.kind == "f":
        steps = [edge, np.nextafter(edge, np.inf), np.nextafter(edge, -np.inf), np.inf, np.nan]
        element[place] = steps[generator.integers(len(steps))]
    elif space.dtype.kind == "b":
        element[place] = ~edge
    else:
        element[place] = edge + np.array(generator.integers(-1, 2)).astype(space.dtype)
    return element


@cache
def elements_and_verdicts():
    """Draws elements of all spaces, and asks one compiled function about all of them."""
    generator = np.random.default_rng(0)
    elements = [
        [variant(space, generator, change=row % 3 > 0) for row in range(VARIANTS)]
        for space in FIXED
    ]
    stacked = [jax.tree.map(lambda *rows: np.stack(rows), *rows) for rows in elements]

    @jax.jit
    def ask_all(batches):
        return [
            jax.vmap(lambda x, space=space: contains(space, x), axis_size=VARIANTS)(batch)
            for space, batch in zip(FIXED, batches, strict=True)
        ]

    with jax.enable_x64(True):  # so that an element keeps its dtype on its way in
        verdicts = [np.asarray(verdict) for verdict in ask_all(stacked)]
    return elements, verdicts


@over_fixed
def test_membership_is_gymnasiums(index):
    elements, verdicts = elements_and_verdicts()
    expected = [FIXED[index].contains(element) for element in elements[index]]
    assert verdicts[index].dtype == np.bool_
    assert verdicts[index].tolist() == expected


def test_the_elements_of_the_test_are_inside_and_outside():
    verdicts = np.concatenate(elements_and_verdicts()[1])
    assert 0.1 < verdicts.mean() < 0.95


CASES = {
    "a float64 in float32": (Box(-1, 1, (2,)), np.zeros(2)),
    "an int16 in float32": (Box(-1, 1, (2,)), np.int16([0, 1])),
    "an int32 in float32": (Box(-1, 1, (2,)), np.int32([0, 1])),
    "a float16 in float32": (Box(-1, 1, (2,)), np.float16([0, 1])),
    "a float in integers": (Box(0, 9, (2,), np.int32), np.float32([0, 1])),
    "a bool in uint8": (Box(0, 9, (2,), np.uint8), np.array([True, False])),
    "a uint8 in int16": (Box(-5, 9, (2,), np.int16), np.uint8([0, 9])),
    "a uint8 beyond int16 bounds": (Box(-5, 9, (2,), np.int16), np.uint8([0, 10])),
    "an int8 in uint8": (Box(0, 9, (2,), np.uint8), np.int8([0, 1])),
    "a wrong shape": (Box(-1, 1, (2,)), np.zeros(3, np.float32)),
    "a scalar": (Box(-1, 1, (2,)), np.array(0, np.float32)),
    "the least number below zero": (Box(0, 1, ()), np.array(-1e-45, np.float32)),
    "minus zero": (Box(0, 1, ()), np.array(-0.0, np.float32)),
    "NaN": (Box(-1, 1, (2,)), np.float32([np.nan, 0])),
    "an int8 in a Discrete": (Discrete(3), np.int8(2)),
    "an int8 outside a Discrete": (Discrete(3), np.int8(3)),
    "an int16 in an int8 Discrete": (Discrete(3, dtype=np.int8), np.int16(2)),
    "a float in a Discrete": (Discrete(3), np.float32(2)),
    "a bool array in a Discrete": (Discrete(3), np.array(True)),
    "a vector in a Discrete": (Discrete(3), np.array([1])),
    "an int8 in a MultiDiscrete": (MultiDiscrete([3, 2]), np.int8([2, 1])),
    "an int64 in an int8 MultiDiscrete": (MultiDiscrete([3, 2], np.int8), np.int32([2, 1])),
    "floats in a MultiBinary": (MultiBinary(2), np.float32([0, 1])),
    "halves in a MultiBinary": (MultiBinary(2), np.float32([0, 0.5])),
    "bools in a MultiBinary": (MultiBinary(2), np.array([True, False])),
    "an array for a Tuple": (
        Tuple([Box(0, 1, (2,)), Box(0, 2, (2,))]),
        np.float32([[1, 1], [2, 2]]),
    ),
    "a list for a Tuple": (Tuple([Discrete(2), Discrete(2)]), [np.int32(1), np.int32(1)]),
    "too few parts": (Tuple([Discrete(2), Discrete(2)]), (np.int32(1),)),
    "a dict for a Tuple": (Tuple([Discrete(2)]), {"a": np.int32(1)}),
    "an array for a Dict": (Dict(a=Discrete(2)), np.int32(1)),
    "another key": (Dict(a=Discrete(2)), {"b": np.int32(1)}),
    "a key too many": (Dict(a=Discrete(2)), {"a": np.int32(1), "b": np.int32(1)}),
    "one part outside": (Dict(a=Discrete(2), b=Discrete(2)), {"a": np.int32(1), "b": np.int32(2)}),
    "all parts inside": (Dict(a=Discrete(2), b=Discrete(2)), {"a": np.int32(1), "b": np.int32(0)}),
    "nothing": (Dict(), {}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_structure_shape_and_dtype_count_as_they_do_for_gymnasium(case):
    space, x = case
    with jax.enable_x64(True):
        verdict = jax.jit(lambda x: contains(space, x))(x)
    assert bool(verdict) == space.contains(x)
    assert bool(contains(space, x)) == space.contains(x)


EAGER = {
    "a number": (Discrete(3), 2),
    "a number outside": (Discrete(3), 3),
    "a number beyond the dtype": (Discrete(3, dtype=np.int8), 300),
    "a string": (Discrete(3), "2"),
    "a list in a MultiDiscrete": (MultiDiscrete([3, 2]), [2, 1]),
    "a list in a MultiBinary": (MultiBinary(2), [1, 0]),
    "a number for a MultiBinary": (MultiBinary(2), 1),
    "lists of two lengths": (MultiBinary([2, 2]), [[1], [1, 0]]),
}


@pytest.mark.parametrize("case", EAGER.values(), ids=EAGER)
def test_python_values_count_as_they_do_for_gymnasium(case):
    space, x = case
    try:
        expected = space.contains(x)
    except ValueError:  # gymnasium cannot make an array of it
        expected = False
    assert bool(contains(space, x)) == expected


@pytest.mark.parametrize(
    ("x", "expected"),
    [([0.5, 1.0], True), ([0.5, 1.5], False), ([0.5], False), (["a", "b"], False), (None, False)],
)
def test_a_list_for_a_box_is_cast_without_gymnasiums_warning(x, expected):
    assert bool(contains(Box(-1, 1, (2,)), x)) == expected


def test_a_python_number_under_jit_has_no_dtype_of_its_own():
    small = jax.jit(lambda x: contains(Discrete(100, dtype=np.int8), x))
    assert [bool(small(x)) for x in (99, 100, 300)] == [True, False, False]
    real = jax.jit(lambda x: contains(Box(-1, 1, (), np.float16), x))
    assert [bool(real(x)) for x in (1.0, 1.0001, 1)] == [True, False, True]


@pytest.mark.parametrize(
    ("space", "inside", "outside"),
    [
        (Box(-0.1, 0.3, (), np.float64), 0.29999998, 0.3),  # float32(0.3) is above 0.3
        (Box(-(2**40), 2**40, (), np.int64), 2**31 - 1, None),
        (Box(2**40, 2**41, (), np.int64), None, 5),
        (Box(0, 2**24, (), np.float64), 2**24, 2**24 + 1),  # float32(2**24 + 1) is 2**24
        (Box(-0.5, 1.5, (), np.float64), 1, 2),
    ],
)
def test_bounds_that_jax_cannot_hold_are_compared_exactly(space, inside, outside):
    ask = jax.jit(lambda x: contains(space, x))
    for x, expected in ((inside, True), (outside, False)):
        if x is not None:
            array = jnp.float32(x) if isinstance(x, float) else jnp.int32(x)
            assert bool(ask(array)) is expected


def test_it_runs_under_vmap_and_scan():
    space = Dict(a=Discrete(3), b=Box(-1, 1, (2,)))
    batch = {"a": jnp.array([0, 3, 2]), "b": jnp.array([[0, 0], [0, 0], [0, 2.0]])}
    mapped = jax.vmap(lambda x: contains(space, x))(batch)
    _, scanned = jax.lax.scan(lambda carry, x: (carry, contains(space, x)), 0, batch)
    assert mapped.tolist() == scanned.tolist() == [True, False, False]


def test_a_space_without_a_fixed_shape_is_refused():
    with pytest.raises(TypeError, match=r"contains: Text.*no elements of a fixed shape"):
        contains(Dict(a=Text(3)), {"a": "x"})
    with pytest.raises(TypeError, match="not a gymnasium space"):
        contains("space", 1)


@pytest.mark.parametrize(
    ("dtype", "number"), [(np.uint8, 300), (np.uint64, -1), (np.int64, 2**63), (np.int8, -129)]
)
def test_a_number_in_a_list_that_the_dtype_cannot_hold_lies_outside(dtype, number):
    limits = np.iinfo(dtype)
    box = Box(limits.min, limits.max, (1,), dtype)
    assert not contains(box, [number])
