"""The vector utilities held against gymnasium's own, space by space."""

import copy
import re

import gymnasium.vector.utils as gym_utils
import numpy as np
import pytest
from gymnasium.error import CustomSpaceError
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Text, Tuple

from jaxvec.spaces import (
    batch_differing_spaces,
    batch_space,
    concatenate,
    create_empty_array,
    iterate,
)
from tests.spaces.table import SPACES, MyBox, Word, assert_same, has_arrays, name, plain

over_spaces = pytest.mark.parametrize("space", SPACES, ids=name)
over_n = pytest.mark.parametrize("n", [1, 2, 7])
PURE = [space for space in SPACES if has_arrays(space)]


def generator_state(space):
    return space.np_random.bit_generator.state


def test_the_table_holds_at_least_sixty_spaces():
    assert len(SPACES) >= 60
    assert len({str(space) for space in SPACES}) >= 60


@over_spaces
@over_n
def test_a_batched_space_is_gymnasiums(space, n):
    space.seed(5)
    got, expected = batch_space(space, n), gym_utils.batch_space(space, n)
    assert type(got) is type(expected)
    assert got == expected
    assert str(got) == str(expected)
    assert generator_state(got) == generator_state(expected) == generator_state(space)
    assert got.np_random is not space.np_random
    assert_same(got.sample(), expected.sample())


@over_spaces
@over_n
def test_a_batch_of_samples_lies_in_the_batched_space(space, n):
    samples = [space.sample() for _ in range(n)]
    batch = concatenate(space, samples, create_empty_array(space, n))
    batched = batch_space(space, n)
    assert batched.contains(batch)
    if has_arrays(space):
        assert_same(plain(list(iterate(batched, batch))), plain(samples))


@over_spaces
@over_n
def test_several_equal_spaces_batch_as_one_space_does(space, n):
    several = [copy.deepcopy(space) for _ in range(n)]
    if isinstance(space, Word) or space == Tuple([Word(), Discrete(2)]):
        with pytest.raises(TypeError, match="registered"):
            batch_differing_spaces(several)
    else:
        assert batch_differing_spaces(several) == batch_space(space, n)


@pytest.mark.parametrize(
    "several",
    [
        [Box(0, 1, (2,)), Box(np.float32([2, 3]), np.float32([4, 9]))],
        [Discrete(3), Discrete(5, start=2)],
        [Discrete(2, dtype=np.int16), Discrete(3, dtype=np.int32)],
        [MultiDiscrete([2, 3]), MultiDiscrete([4, 5], start=[1, 2])],
        [MultiBinary(3), MultiBinary(3)],
        [Text(3), Text(5, charset="ab")],
        [Graph(Discrete(2), None), Graph(Discrete(3), None)],
        [Tuple([Discrete(2), Box(0, 1)]), Tuple([Discrete(4), Box(0, 3)])],
        [Dict(a=Discrete(2), b=Dict(c=Box(0, 1))), Dict(a=Discrete(9), b=Dict(c=Box(1, 2)))],
        [Dict({"b": Discrete(2), "a": Box(0, 1)}, sort_keys=False)] * 2,
    ],
    ids=name,
)
def test_differing_spaces_batch_as_gymnasiums_do(several):
    for space in several:
        space.seed(7)
    got, expected = batch_differing_spaces(several), gym_utils.batch_differing_spaces(several)
    assert str(got) == str(expected)
    assert got == expected
    assert generator_state(got) == generator_state(expected)
    assert_same(got.sample(), expected.sample())


@pytest.mark.parametrize("space", PURE, ids=name)
@over_n
def test_iterating_gives_what_gymnasiums_gives(space, n):
    batched = batch_space(space, n)
    batch = batched.sample()
    assert_same(list(iterate(batched, batch)), list(gym_utils.iterate(batched, batch)))


@over_spaces
@over_n
@pytest.mark.parametrize("once", [False, True], ids=["list", "generator"])
def test_concatenating_gives_what_gymnasiums_gives(space, n, once):
    samples = [space.sample() for _ in range(n)]
    out, gym_out = (gym_utils.create_empty_array(space, n) for _ in range(2))
    got = concatenate(space, iter(samples) if once else samples, out)
    assert_same(got, gym_utils.concatenate(space, samples, gym_out))
    assert_same(out, gym_out)


@over_spaces
@over_n
@pytest.mark.parametrize("fn", [np.zeros, np.ones])
def test_empty_arrays_are_gymnasiums_moved_into_the_space(space, n, fn):
    got, expected = create_empty_array(space, n, fn), gym_utils.create_empty_array(space, n, fn)
    if fn is not np.zeros or batch_space(space, n).contains(expected):
        assert_same(got, expected)
    elif batch_space(space, n).contains(got):
        assert type(got) is type(expected)
    else:  # placeholders of Graph, Sequence, OneOf and unknown spaces are in no space
        assert_same(got, expected)


def test_an_empty_array_of_a_discrete_space_holds_its_first_element():
    assert_same(create_empty_array(Discrete(3, start=5), 2), np.array([5, 5]))
    assert_same(create_empty_array(Discrete(3, start=-9), 2), np.array([-7, -7]))
    assert_same(create_empty_array(Box(1, 2, (1,)), 2), np.float32([[1], [1]]))


def test_concatenate_writes_into_out_and_returns_it():
    out = np.zeros((2, 3), np.float32)
    assert concatenate(Box(-1, 1, (3,)), np.ones((2, 3), np.float32), out) is out
    assert out.sum() == 6


def test_concatenate_fills_an_out_that_is_not_contiguous():
    out = np.zeros((3, 4, 2), np.float32)[:, ::2]
    items = [np.full((2, 2), index, np.float32) for index in range(3)]
    concatenate(Box(0, 9, (2, 2)), items, out)
    np.testing.assert_array_equal(out, np.stack(items))


def test_concatenate_without_out_stacks():
    items = [np.float32([1, 2]), np.float32([3, 4])]
    assert_same(concatenate(Box(0, 9, (2,)), items, None), np.stack(items))


def test_a_subclass_of_box_in_a_tuple_is_iterated_as_a_box():
    space = Tuple([MyBox(-1, 1, (2,)), Discrete(3)])
    samples = [space.sample() for _ in range(4)]
    batch = concatenate(space, samples, create_empty_array(space, 4))
    parts = Tuple([MyBox(-1, 1, (4, 2)), MultiDiscrete([3] * 4)])
    assert_same(list(iterate(parts, batch)), samples)


def test_empty_containers_stand_in_every_row():
    space = Dict(a=Dict(), b=Discrete(3), c=Tuple([Tuple([])]))
    samples = [space.sample() for _ in range(3)]
    batch = concatenate(space, samples, create_empty_array(space, 3))
    assert_same(list(iterate(batch_space(space, 3), batch)), samples)


def test_containers_without_an_array_have_no_rows_to_iterate_over():
    assert list(iterate(Dict(), {})) == []
    assert list(iterate(Tuple([]), ())) == []
    assert list(iterate(Dict(a=Tuple([])), {"a": ()})) == []


def test_discrete_spaces_of_several_dtypes_get_one_that_holds_them_all():
    batched = batch_differing_spaces(
        [Discrete(3, start=-5, dtype=np.int8), Discrete(3, start=200, dtype=np.uint8)]
    )
    assert batched.dtype == np.int16
    assert batched.start.tolist() == [-5, 200]
    with pytest.raises(ValueError, match="common integer dtype"):
        batch_differing_spaces([Discrete(3), Discrete(3, dtype=np.uint64)])


def test_subclasses_batch_with_differing_bounds():
    assert batch_differing_spaces([MyBox(0, 1, (2,)), MyBox(0, 3, (2,))]) == Box(
        np.float32([[0, 0], [0, 0]]), np.float32([[1, 1], [3, 3]])
    )


def test_a_multidiscrete_that_leaves_its_dtype_is_refused_by_name():
    with pytest.raises(ValueError, match=r"MultiDiscrete.*reaches 199.*int8 ends at 127"):
        batch_space(MultiDiscrete([100], np.int8, start=[100]), 2)


def test_a_user_can_add_a_space_that_is_found_inside_others():
    class Card(Word):
        pass

    batch_space.register(Card, lambda space, n=1: MultiBinary(n))
    iterate.register(Card, lambda space, items: iter(items))
    concatenate.register(Card, lambda space, items, out: "+".join(items))
    create_empty_array.register(Card, lambda space, n=1, fn=np.zeros: f"{n} cards")
    batch_differing_spaces.register(Card, lambda spaces: MultiBinary(len(spaces)))
    space = Dict(a=Tuple([Card(), Discrete(2)]))
    assert batch_space(space, 2) == Dict(a=Tuple([MultiBinary(2), MultiDiscrete([2, 2])]))
    assert batch_differing_spaces([space, space])["a"][0] == MultiBinary(2)
    out = create_empty_array(space, 2)
    assert out["a"][0] == "2 cards"
    batch = concatenate(space, [{"a": ("x", 0)}, {"a": ("y", 1)}], {"a": ("", np.zeros(2, int))})
    assert batch["a"][0] == "x+y"
    pairs = Dict(a=Tuple([Card(), MultiBinary(2)]))
    rows = list(iterate(pairs, {"a": ("xy", np.int8([0, 1]))}))
    assert rows == [{"a": ("x", 0)}, {"a": ("y", 1)}]


def test_a_space_registered_with_gymnasium_only_is_known_here_too():
    class Dice(Word):
        pass

    gym_utils.batch_space.register(Dice, lambda space, n=1: MultiBinary(n))
    assert batch_space(Dict(a=Dice()), 3) == Dict(a=MultiBinary(3))


FAILING_CALLS = {
    "batch_space of a string": lambda u: u.batch_space("space", 2),
    "iterate over a string": lambda u: u.iterate("space", None),
    "concatenate for a string": lambda u: u.concatenate("space", [], None),
    "empty array of a string": lambda u: u.create_empty_array("space", 2),
    "iterate over a Discrete": lambda u: u.iterate(Discrete(3), 2),
    "iterate over a Discrete in a Tuple": lambda u: u.iterate(Tuple([Discrete(3)]), (2,)),
    "iterate over a Discrete in a Dict": lambda u: list(u.iterate(Dict(a=Discrete(3)), {"a": 2})),
    "iterate over a number": lambda u: u.iterate(Box(0, 1, (2,)), 0.5),
    "iterate over too few parts": lambda u: u.iterate(Tuple([Box(0, 1)] * 2), (np.zeros(1),)),
    "iterate without a key": lambda u: list(u.iterate(Dict(a=Box(0, 1)), {})),
    "iterate over parts of two lengths": lambda u: list(
        u.iterate(Dict(a=Box(0, 1, (2,)), b=Box(0, 1, (3,))), {"a": np.zeros(2), "b": np.zeros(3)})
    ),
    "iterate over an unknown space": lambda u: u.iterate(Word(), None),
    "iterate over a Tuple of unknown spaces": lambda u: u.iterate(Tuple([Word()]), None),
    "no spaces": lambda u: u.batch_differing_spaces([]),
    "spaces of two kinds": lambda u: u.batch_differing_spaces([Box(0, 1), Discrete(2)]),
    "boxes of two dtypes": lambda u: u.batch_differing_spaces(
        [Box(0, 1, (1,)), Box(0, 1, (1,), np.float64)]
    ),
    "boxes of two shapes": lambda u: u.batch_differing_spaces([Box(0, 1, (1,)), Box(0, 1, (2,))]),
    "multidiscretes of two shapes": lambda u: u.batch_differing_spaces(
        [MultiDiscrete([2]), MultiDiscrete([2, 2])]
    ),
    "multidiscretes of two dtypes": lambda u: u.batch_differing_spaces(
        [MultiDiscrete([2]), MultiDiscrete([2], np.int8)]
    ),
    "multibinaries of two shapes": lambda u: u.batch_differing_spaces(
        [MultiBinary(2), MultiBinary(3)]
    ),
    "tuples of two lengths": lambda u: u.batch_differing_spaces(
        [Tuple([Discrete(2)]), Tuple([Discrete(2)] * 2)]
    ),
    "dicts of two sets of keys": lambda u: u.batch_differing_spaces(
        [Dict(a=Discrete(2)), Dict(b=Discrete(2))]
    ),
    "unknown spaces": lambda u: u.batch_differing_spaces([Word(), Word()]),
    "too few items": lambda u: u.concatenate(
        Box(0, 1, (2,)), [np.zeros(2, np.float32)], np.zeros((3, 2), np.float32)
    ),
    "no items": lambda u: u.concatenate(Box(0, 1, (2,)), [], np.zeros((0, 2), np.float32)),
    "an item of another shape": lambda u: u.concatenate(
        Box(0, 1, (2,)), [np.zeros(3, np.float32)], np.zeros((1, 2), np.float32)
    ),
    "an item of another kind": lambda u: u.concatenate(
        Box(0, 9, (2,), np.uint8), [np.zeros(2)], np.zeros((1, 2), np.uint8)
    ),
    "an item that is None": lambda u: u.concatenate(Box(0, 1, ()), [None], np.zeros(1, np.float32)),
    "an item without the key": lambda u: u.concatenate(
        Dict(a=Discrete(2)), [{}], {"a": np.zeros(1, np.int64)}
    ),
    "an item that is no dict": lambda u: u.concatenate(
        Dict(a=Discrete(2)), [3], {"a": np.zeros(1, np.int64)}
    ),
    "an item with too few parts": lambda u: u.concatenate(
        Tuple([Discrete(2)]), [()], (np.zeros(1, np.int64),)
    ),
}


@pytest.mark.parametrize("call", FAILING_CALLS.values(), ids=FAILING_CALLS)
def test_a_call_that_gymnasium_refuses_fails_with_the_same_exception(call):
    with pytest.raises(Exception) as expected:  # noqa: PT011
        call(gym_utils)
    from jaxvec import spaces

    with pytest.raises(expected.type):
        call(spaces)


@pytest.mark.parametrize("function", [batch_space, iterate, concatenate, create_empty_array])
def test_what_is_no_space_is_named(function):
    arguments = {concatenate: ([], None), iterate: (None,)}.get(function, (2,))
    with pytest.raises(
        TypeError, match=re.escape(f"`{function.__name__}` is not a gymnasium Space instance, type")
    ):
        function("space", *arguments)


def test_an_unregistered_space_says_what_to_register():
    with pytest.raises(CustomSpaceError, match=r"Register .*Word.* for `iterate`"):
        iterate(Word(), None)
