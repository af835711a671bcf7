"""The table of spaces that the tests run over, and how two elements are compared.

Every kind of space, every dtype, nested three deep, empty containers, and a user's own subclasses.
"""

from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    GraphInstance,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)

INF = np.inf


class MyBox(Box):
    """A subclass that nobody registers: it is still a Box."""


class MyDict(Dict):
    """A subclass that nobody registers: it is still a Dict."""


class Word(spaces.Space[str]):
    """A space that no function knows."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return str(self.np_random.integers(100))

    def contains(self, x: Any) -> bool:
        return isinstance(x, str)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Word)

    def __repr__(self) -> str:
        return "Word()"


def _reals() -> list[spaces.Space[Any]]:
    return [
        Box(0.0, 1.0),
        Box(-1, 1, (3,)),
        Box(-INF, INF, (2, 2)),
        Box(0.0, INF, (2, 1)),
        Box(-INF, 0.0, (2,)),
        Box(np.float32([-INF, 0, -INF, 2]), np.float32([INF, INF, 3, 5])),
        Box(np.array([-10.0, 0.0]), np.array([10.0, 10.0]), dtype=np.float64),
        Box(-1, 1, (2,), np.float16),
        Box(-3e38, 3e38, (2,)),
        Box(2.5, 2.5, (2,)),
        Box(1, 2, (2, 3)),
        Box(-1, 1, ()),
        Box(-1, 1, (0,)),
        Box(-1, 1, (2, 0, 3)),
        MyBox(-1, 1, (2,)),
    ]


def _integers() -> list[spaces.Space[Any]]:
    whole_ranges = [
        Box(np.iinfo(dtype).min, np.iinfo(dtype).max, (2,), dtype)
        for dtype in (np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32)
    ]
    return [
        *whole_ranges,
        Box(0, 255, (4, 5, 3), np.uint8),
        Box(-5, 5, (2,), np.int64),
        Box(0, 9, (), np.uint64),
        Box(np.array([-INF, -INF, 0, -10]), np.array([INF, 0, INF, 10]), dtype=np.int32),
        Box(np.array([0, 0, 1]), np.array([1, 0, 1]), dtype=np.bool_),
        Box(0, 1, (2, 2), np.bool_),
        Discrete(3),
        Discrete(1),
        Discrete(3, start=-1),
        Discrete(3, start=5),
        Discrete(4, start=1, dtype=np.int32),
        Discrete(200, dtype=np.uint8),
        Discrete(5, start=-7, dtype=np.int8),
        MultiDiscrete([2, 3]),
        MultiDiscrete([[2, 3], [3, 2]]),
        MultiDiscrete([2, 2], start=[10, -10]),
        MultiDiscrete([2, 3], np.int8),
        MultiDiscrete([2, 3], np.uint16),
        MultiDiscrete([100], np.int8, start=[27]),
        MultiBinary(8),
        MultiBinary(1),
        MultiBinary([2, 3]),
    ]


def _texts() -> list[spaces.Space[Any]]:
    return [Text(6), Text(6, min_length=3), Text(4, charset="abc"), Text(3, min_length=0)]


def _dynamic() -> list[spaces.Space[Any]]:
    return [
        Graph(Box(-1, 1, (2,)), None),
        Graph(Box(-9, 9, (3, 4)), Discrete(5)),
        Graph(Discrete(3), Box(-1, 1, (2,))),
        Sequence(Discrete(4)),
        Sequence(Box(0, 1, (2,)), stack=True),
        Sequence(Dict(a=Box(0, 1, (3,)), b=Discrete(5)), stack=True),
        Word(),
        Tuple([Word(), Discrete(2)]),
        Dict(graph=Graph(Box(-1, 1, (2,)), None), plain=Box(-1, 1, (2,))),
    ]


def _containers() -> list[spaces.Space[Any]]:
    deep = Dict(
        a=Tuple([Discrete(3), Dict(x=Box(-1, 1, (2,)), y=Tuple([MultiBinary(2), Discrete(2)]))]),
        b=Box(0, 255, (2, 2), np.uint8),
    )
    return [
        Dict(),
        Tuple([]),
        Dict(a=Dict(), b=Tuple([])),
        Tuple([Discrete(5), Discrete(4)]),
        Tuple([Discrete(5), Tuple([Box(0, 1, (3,)), Discrete(2)])]),
        Tuple([Discrete(3), Dict(position=Box(0, 1), velocity=Discrete(2))]),
        Tuple([MyBox(-1, 1, (2,)), Discrete(2)]),
        Dict(position=Discrete(5), velocity=Box(np.zeros(2), np.ones(2), dtype=np.float64)),
        Dict({"b": Discrete(2), "a": Box(-1, 1, (2,))}, sort_keys=False),
        Dict(OrderedDict([("z", Discrete(2)), ("m", MultiBinary(2)), ("a", Box(-1, 1, ()))])),
        Dict({1: Discrete(2), 0: Discrete(3)}),
        MyDict(a=Discrete(3), b=Box(-1, 1, (2,))),
        Dict({f"key{index}": Box(-1, 1, (3,)) for index in range(8)}),
        deep,
        Dict(top=deep, other=MultiDiscrete([[3]], start=[[2]])),
        Tuple([Text(4), Box(-1, 1, (2,))]),
        Dict(name=Text(4), choice=OneOf([Discrete(2), Text(3)])),
        OneOf([Discrete(3), Box(0, 1)]),
        OneOf([MultiBinary(2), Dict(a=Discrete(2), b=Box(-1, 1, (2,)))]),
    ]


SPACES = _reals() + _integers() + _texts() + _dynamic() + _containers()
ARRAY_KINDS = (Box, Discrete, MultiDiscrete, MultiBinary)


def is_fixed(space: Any) -> bool:
    """Tells whether all elements are arrays of a fixed shape."""
    if isinstance(space, Dict):
        return all(map(is_fixed, space.spaces.values()))
    if isinstance(space, Tuple):
        return all(map(is_fixed, space.spaces))
    return isinstance(space, ARRAY_KINDS)


def has_arrays(space: Any) -> bool:
    """Tells whether a batch of elements knows how many they are."""
    if isinstance(space, Dict):
        return any(map(has_arrays, space.spaces.values()))
    return not isinstance(space, Tuple) or any(map(has_arrays, space.spaces))


FIXED = [space for space in SPACES if is_fixed(space)]


def name(space: Any) -> str:
    """Names a space in a test's id."""
    return str(space).replace("\n", "")[:60]


def plain(x: Any) -> Any:
    """Sorts the keys of dicts and makes arrays of NumPy's scalars, where a test is not about them."""
    if isinstance(x, dict):
        return {key: plain(x[key]) for key in sorted(x)}
    if isinstance(x, GraphInstance):
        return GraphInstance(*map(plain, x))
    if isinstance(x, tuple | list):
        return type(x)(map(plain, x))
    return np.asarray(x) if isinstance(x, np.generic) else x


def assert_same(got: Any, expected: Any, path: str = "") -> None:
    """Holds two elements to the same types, dtypes, shapes, key order and values (NaN is itself)."""
    assert type(got) is type(expected), f"{path}: {type(got)} is not {type(expected)}"
    if isinstance(expected, dict):
        assert list(got) == list(expected), path
        for key in expected:
            assert_same(got[key], expected[key], f"{path}[{key!r}]")
    elif isinstance(expected, tuple | list | GraphInstance):
        assert len(got) == len(expected), path
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_same(one, other, f"{path}[{index}]")
    elif isinstance(expected, np.ndarray | np.generic):
        assert got.dtype == expected.dtype, f"{path}: {got.dtype} is not {expected.dtype}"
        assert got.shape == expected.shape, f"{path}: {got.shape} is not {expected.shape}"
        np.testing.assert_array_equal(got, expected, err_msg=path)
    else:
        assert got == expected, path
