"""The ctypes form of shared memory, held against gymnasium's own and used by real processes."""

import re

import gymnasium.vector.utils as gym_utils
import numpy as np
import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Box, Dict, Discrete, Graph, OneOf, Text, Tuple

from jaxvec.spaces import (
    MissingPartError,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)
from tests.spaces.processes import METHODS, run_script
from tests.spaces.table import SPACES, Word, assert_same, has_arrays, name, plain


def is_shareable(space):
    if isinstance(space, Dict):
        return all(map(is_shareable, space.spaces.values()))
    if isinstance(space, Tuple | OneOf):
        return all(map(is_shareable, space.spaces))
    return isinstance(space, Text) or space.shape is not None


SHAREABLE = [space for space in SPACES if is_shareable(space)]


@pytest.mark.parametrize("space", SHAREABLE, ids=name)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_what_is_read_is_what_gymnasium_reads(space, n):
    samples = [space.sample() for _ in range(n)]
    memory, gym_memory = create_shared_memory(space, n), gym_utils.create_shared_memory(space, n)
    for row, sample in enumerate(samples):
        write_to_shared_memory(space, row, sample, memory)
        gym_utils.write_to_shared_memory(space, row, sample, gym_memory)
    got = read_from_shared_memory(space, memory, n)
    if not (isinstance(space, OneOf) and any(isinstance(part, Dict) for part in space.spaces)):
        # (gymnasium indexes the batch of a Dict with the row)
        assert_same(got, gym_utils.read_from_shared_memory(space, gym_memory, n))
    if has_arrays(space):
        batched = gym_utils.batch_space(space, n)
        assert_same(plain(list(iterate(batched, got))), plain(samples))


@pytest.mark.parametrize("space", SHAREABLE, ids=name)
def test_memory_made_by_gymnasium_can_be_written_and_read(space):
    sample = space.sample()
    memory = gym_utils.create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, sample, memory)
    ours, theirs = create_shared_memory(space, 2), gym_utils.create_shared_memory(space, 2)
    assert str(types_of(ours)) == str(types_of(theirs))


def types_of(memory):
    if isinstance(memory, dict):
        return {key: types_of(part) for key, part in memory.items()}
    if isinstance(memory, tuple):
        return tuple(map(types_of, memory))
    return type(memory), type(memory.get_obj())


@pytest.mark.parametrize("space", [space for space in SPACES if not is_shareable(space)], ids=name)
def test_what_has_no_fixed_size_is_refused_as_gymnasium_does(space):
    with pytest.raises((TypeError, CustomSpaceError)) as expected:
        gym_utils.create_shared_memory(space, 2)
    with pytest.raises(expected.type, match=re.escape(str(expected.value))):
        create_shared_memory(space, 2)


def test_arrays_that_are_read_are_the_memory_itself():
    space = Dict(a=Box(-1, 1, (2,)))
    memory = create_shared_memory(space, 3)
    view = read_from_shared_memory(space, memory, 3)["a"]
    write_to_shared_memory(space, 1, {"a": np.float32([0.25, 0.5])}, memory)
    assert view[1].tolist() == [0.25, 0.5]


def test_a_text_that_nobody_wrote_is_empty():
    space = Tuple([Text(5), Dict(a=Text(3))])
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, ("ab", {"a": "c"}), memory)
    assert read_from_shared_memory(space, memory, 2) == (("", "ab"), {"a": ("", "c")})


def test_a_shorter_text_leaves_nothing_of_a_longer_one():
    space = Text(5)
    memory = create_shared_memory(space, 1)
    for text in ("abcde", "z"):
        write_to_shared_memory(space, 0, text, memory)
    assert read_from_shared_memory(space, memory, 1) == ("z",)


@pytest.mark.parametrize(
    ("text", "words"),
    [("abcdef", "has 6 characters, at most 3"), ("a?", r"characters \['\?'\]")],
)
def test_a_text_outside_the_space_is_refused(text, words):
    memory = create_shared_memory(Dict(a=Box(0, 1, ()), b=Text(3)), 2)
    with pytest.raises(ValueError, match=r"row 1, \['b'\].*" + words):
        write_to_shared_memory(
            Dict(a=Box(0, 1, ()), b=Text(3)), 1, {"a": np.float32(1), "b": text}, memory
        )
    assert read_from_shared_memory(Box(0, 1, ()), memory["a"], 2).tolist() == [0, 0]


def test_a_text_that_is_no_string_is_refused():
    with pytest.raises(TypeError, match="a str is needed"):
        write_to_shared_memory(Text(3), 0, 5, create_shared_memory(Text(3), 1))


def test_elements_of_a_choice_are_copies():
    space = OneOf([Discrete(3), Dict(a=Box(-1, 1, (2,)), b=Tuple([Box(0, 1, (1,))]))])
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, (1, {"a": np.float32([1, 1]), "b": (np.ones(1),)}), memory)
    before = read_from_shared_memory(space, memory, 1)[0]
    write_to_shared_memory(space, 0, (1, {"a": np.float32([0, 0]), "b": (np.zeros(1),)}), memory)
    assert before[1]["a"].tolist() == [1, 1]
    assert before[1]["b"][0].tolist() == [1]
    assert type(before[0]) is np.int64


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        ((2, 0), MissingPartError, "chooses space 2, there are 2"),
        ((-1, 0), MissingPartError, "chooses space -1"),
        ((0,), MissingPartError, "has 1 parts, 2 are needed"),
        ((0.0, 0), TypeError, "an integer"),
        (5, TypeError, "a tuple"),
        ((1, np.zeros(3, np.float32)), ValueError, r"\[1\]: the value has shape \(3,\)"),
    ],
)
def test_a_choice_that_is_none_is_refused(value, error, words):
    space = OneOf([Discrete(3), Box(-1, 1, (2,))])
    memory = create_shared_memory(space, 1)
    write_to_shared_memory(space, 0, (0, 2), memory)
    with pytest.raises(error, match=words):
        write_to_shared_memory(space, 0, value, memory)
    assert read_from_shared_memory(space, memory, 1) == ((0, 2),)


@pytest.mark.parametrize("space", [Box(-1, 1, (2,)), Discrete(3), Text(2), OneOf([Discrete(2)])])
@pytest.mark.parametrize("index", [-1, 3])
def test_a_row_that_does_not_exist_is_refused(space, index):
    memory = create_shared_memory(space, 3)
    with pytest.raises(ValueError, match=f"row {index}: there is no such row"):
        write_to_shared_memory(space, index, space.sample(), memory)


def test_a_user_can_add_a_space():
    class Card(Word):
        pass

    create_shared_memory.register(Card, lambda space, n=1, ctx=None: [""] * n)
    read_from_shared_memory.register(Card, lambda space, memory, n=1: tuple(memory))

    @write_to_shared_memory.register(Card)
    def _(space, index, value, memory):
        memory[index] = value

    space = Dict(card=Card(), number=Discrete(3))
    memory = create_shared_memory(space, 2)
    write_to_shared_memory(space, 1, {"card": "ace", "number": 2}, memory)
    got = read_from_shared_memory(space, memory, 2)
    assert got["card"] == ("", "ace")
    with pytest.raises(ValueError, match="does not fit"):
        write_to_shared_memory(space, 1, {"card": "king", "number": 2.5}, memory)
    assert memory["card"][1] == "ace"


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (create_shared_memory, ()),
        (read_from_shared_memory, (None, 1)),
        (write_to_shared_memory, (0, None, None)),
    ],
)
def test_errors_about_the_space_itself_are_gymnasiums(function, arguments):
    with pytest.raises(TypeError, match=f"`{function.__name__}` is not a gymnasium Space instance"):
        function("space", *arguments)
    with pytest.raises(CustomSpaceError, match=f"registered `{function.__name__}` function"):
        function(Word(), *arguments)
    if function is create_shared_memory:
        with pytest.raises(TypeError, match="dynamic shape"):
            function(Dict(a=Graph(Discrete(2), None)))


@pytest.mark.parametrize("method", METHODS)
def test_processes_of_every_start_method_write_their_rows(method):
    assert run_script("shared", method) == "ok"


def test_counts_of_numpy_make_shared_memory_too():
    space = Box(0, 1, (3,))
    memory = create_shared_memory(space, np.int64(2))
    assert read_from_shared_memory(space, memory, np.int64(2)).shape == (2, 3)


@pytest.mark.parametrize("index", [True, 0.5, "a", None])
def test_an_index_that_is_no_whole_number_is_refused(index):
    space = Box(0, 1, (1,))
    memory = create_shared_memory(space, 2)
    with pytest.raises(TypeError, match="no whole number"):
        write_to_shared_memory(space, index, np.ones(1, np.float32), memory)
    assert not read_from_shared_memory(space, memory, 2).any()
