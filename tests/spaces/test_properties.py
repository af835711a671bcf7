"""Laws over random nested spaces and values."""

from typing import Any

import gymnasium.vector.utils as gym_utils
import jax
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from jaxvec.spaces import (
    SharedBlock,
    batch_space,
    concatenate,
    contains,
    create_empty_array,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_row,
    write_to_shared_memory,
)
from tests.spaces.table import assert_same, has_arrays, plain

law = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
compiled_law = settings(law, max_examples=15)  # each example is a compilation

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
REALS = st.sampled_from([np.float16, np.float32, np.float64])
INTEGERS = st.sampled_from(
    [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    shape = draw(SHAPES)
    if draw(st.booleans()):
        dtype = draw(REALS)
        width = 8 * np.dtype(dtype).itemsize
        bounds = st.floats(width=width, allow_nan=False)
    else:
        dtype = draw(INTEGERS)
        # Box itself cannot have the last integers of 64 bits for bounds.
        low, high = max(np.iinfo(dtype).min, -(2**62)), min(np.iinfo(dtype).max, 2**62)
        bounds = st.integers(int(low), int(high))
    one = draw(arrays.arrays(dtype, shape, elements=bounds))
    other = draw(arrays.arrays(dtype, shape, elements=bounds))
    return Box(np.minimum(one, other), np.maximum(one, other), dtype=dtype)


@st.composite
def discretes(draw: st.DrawFn) -> Discrete[Any]:
    dtype = draw(INTEGERS)
    limits = np.iinfo(dtype)
    start = draw(st.integers(int(limits.min), int(limits.max) // 2))
    n = draw(st.integers(1, int(limits.max) // 2))
    return Discrete(n, start=start, dtype=dtype)


@st.composite
def multi_discretes(draw: st.DrawFn) -> MultiDiscrete[Any]:
    dtype, shape = draw(INTEGERS), draw(SHAPES)
    half = int(np.iinfo(dtype).max) // 2
    nvec = draw(arrays.arrays(dtype, shape, elements=st.integers(1, half)))
    start = draw(arrays.arrays(dtype, shape, elements=st.integers(0, half)))
    return MultiDiscrete(nvec, dtype=dtype, start=start)


LEAVES = st.one_of(
    boxes(),
    discretes(),
    multi_discretes(),
    st.lists(st.integers(1, 3), min_size=1, max_size=2).map(MultiBinary),
)
KEYS = st.text("abcxyz", min_size=1, max_size=3)


def nested(leaves: Any) -> Any:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3).map(Tuple)
            | st.dictionaries(KEYS, inner, max_size=3).map(Dict)
        ),
        max_leaves=5,
    )


FIXED = nested(LEAVES)
WITH_TEXT = nested(LEAVES | st.integers(0, 6).map(lambda n: Text(n, min_length=0, charset="abc")))


def element_of(draw: st.DrawFn, space: Any, inside: bool = True) -> Any:
    """Draws an element; if it need not be inside, any element of the dtypes and shapes."""
    if isinstance(space, Dict):
        return {key: element_of(draw, part, inside) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(element_of(draw, part, inside) for part in space.spaces)
    if isinstance(space, Text):
        return draw(st.text("abc", max_size=space.max_length))
    if not inside and draw(st.booleans()):
        return draw(arrays.arrays(space.dtype, space.shape))
    if isinstance(space, Box):
        low, high = space.low, space.high
    elif isinstance(space, MultiBinary):
        low, high = np.zeros(space.shape, np.int8), np.ones(space.shape, np.int8)
    elif isinstance(space, MultiDiscrete):
        low, high = space.start, space.start + (space.nvec - 1)
    else:
        low, high = np.asarray(space.start), np.asarray(space.start + (space.n - 1))
    element = np.empty(space.shape, space.dtype)
    for place in np.ndindex(space.shape):
        if space.dtype.kind == "f":
            width = 8 * space.dtype.itemsize
            number = st.floats(float(low[place]), float(high[place]), width=width)
        else:
            number = st.integers(int(low[place]), int(high[place]))
        element[place] = draw(number)
    return element


@st.composite
def spaces_and_elements(draw: st.DrawFn, kinds: Any = FIXED) -> tuple[Any, list[Any]]:
    space = draw(kinds)
    return space, [element_of(draw, space) for _ in range(draw(st.integers(1, 4)))]


@law
@given(spaces_and_elements(WITH_TEXT))
def test_iterating_over_what_was_concatenated_gives_the_elements(case):
    space, elements = case
    batch = concatenate(space, elements, create_empty_array(space, len(elements)))
    batched = batch_space(space, len(elements))
    assert batched.contains(batch)
    if has_arrays(space):
        assert_same(plain(list(iterate(batched, batch))), plain(elements))


@law
@given(spaces_and_elements(WITH_TEXT))
def test_shared_memory_gives_the_elements_back(case):
    space, elements = case
    memory = create_shared_memory(space, len(elements))
    for row, element in enumerate(elements):
        write_to_shared_memory(space, row, element, memory)
    got = read_from_shared_memory(space, memory, len(elements))
    batched = batch_space(space, len(elements))
    assert batched.contains(got)
    if has_arrays(space):
        assert_same(plain(list(iterate(batched, got))), plain(elements))


@law
@given(spaces_and_elements())
def test_a_shared_block_gives_the_elements_back(case):
    space, elements = case
    with SharedBlock(space, len(elements)) as block:
        for row, element in enumerate(elements):
            write_row(block.values, space, row, element)
        assert batch_space(space, len(elements)).contains(block.values)
        if has_arrays(space):
            batched = batch_space(space, len(elements))
            assert_same(plain(list(iterate(batched, block.values))), plain(elements))


@law
@given(FIXED, st.integers(1, 4))
def test_batched_spaces_and_empty_arrays_are_gymnasiums_or_in_the_space(space, n):
    batched = batch_space(space, n)
    assert batched == gym_utils.batch_space(space, n)
    assert batched.contains(create_empty_array(space, n))


@compiled_law
@given(FIXED, st.data())
def test_compiled_membership_is_gymnasiums(space, data):
    elements = [element_of(data.draw, space, inside=row % 2 == 0) for row in range(6)]
    with jax.enable_x64(True):
        ask = jax.jit(lambda x: contains(space, x))
        verdicts = [bool(ask(element)) for element in elements]
    assert verdicts == [space.contains(element) for element in elements]
