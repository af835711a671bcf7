"""Spaces of other libraries become gymnasium's. Fakes stand for libraries that are not installed."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.spaces import space_of_size, to_gymnasium_space

INF = np.inf


def fake(class_name, **attributes):
    """Makes an object of a class of that name with these attributes."""
    return type(class_name, (SimpleNamespace,), {})(**attributes)


def gymnax_discrete(n):
    return fake("Discrete", n=n, shape=(), dtype=jnp.int32)


def gymnax_box(low, high, shape, dtype=jnp.float32):
    return fake("Box", low=low, high=high, shape=shape, dtype=dtype)


def jumanji(class_name, shape=(), dtype=jnp.float32, **attributes):
    """A spec: jumanji's specs of one array have an empty dict of parts."""
    return fake(class_name, shape=shape, dtype=np.dtype(dtype), name="x", _specs={}, **attributes)


def navix(class_name, shape, dtype, minimum, maximum):
    return fake(
        class_name, shape=shape, dtype=dtype, minimum=minimum, maximum=maximum, n=maximum + 1
    )


CASES = {
    "gymnax Discrete": (gymnax_discrete(4), spaces.Discrete(4)),
    "a count of NumPy": (gymnax_discrete(np.int32(4)), spaces.Discrete(4)),
    "a count of JAX": (gymnax_discrete(jnp.int32(4)), spaces.Discrete(4)),
    "gymnax Box": (gymnax_box(-1.0, 1.0, (2,)), spaces.Box(-1, 1, (2,))),
    "bounds of JAX": (
        gymnax_box(jnp.array([-1.0, -INF]), jnp.array([1.0, INF]), (2,)),
        spaces.Box(np.float32([-1, -INF]), np.float32([1, INF])),
    ),
    "one bound an array": (
        gymnax_box(0, jnp.array([1.0, 200.0]), (2,)),
        spaces.Box(np.float32([0, 0]), np.float32([1, 200])),
    ),
    "bounds of float64": (
        gymnax_box(np.array([-1e300]), np.array([0.1]), (1,)),
        spaces.Box(-INF, np.float32(0.1), (1,)),
    ),
    "a Box of bools": (
        gymnax_box(0, 1, (3, 3), jnp.bool_),
        spaces.Box(0, 1, (3, 3), np.bool_),
    ),
    "a Box of bytes": (
        gymnax_box(0, 255, (2, 2, 3), jnp.uint8),
        spaces.Box(0, 255, (2, 2, 3), np.uint8),
    ),
    "unbounded bytes": (gymnax_box(-INF, INF, (2,), jnp.uint8), spaces.Box(0, 255, (2,), np.uint8)),
    "unbounded integers": (
        gymnax_box(-INF, INF, (2,), jnp.int32),
        spaces.Box(-INF, INF, (2,), np.int32),
    ),
    "bounds beyond the dtype": (
        gymnax_box(-1000, 1000, (2,), jnp.int8),
        spaces.Box(-128, 127, (2,), np.int8),
    ),
    "a shape that is a number": (gymnax_box(0, 255, 6), spaces.Box(0, 255, (6,))),
    "a shape that is a list": (gymnax_box(0, 1, [2, 3]), spaces.Box(0, 1, (2, 3))),
    "no axes": (gymnax_box(0, 1, ()), spaces.Box(0, 1, ())),
    "gymnax Dict and Tuple": (
        fake(
            "Dict",
            spaces={
                "b": fake("Tuple", spaces=(gymnax_discrete(2), gymnax_box(0, 1, (1,)))),
                "a": gymnax_discrete(3),
            },
            num_spaces=2,
        ),
        spaces.Dict(
            a=spaces.Discrete(3), b=spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 1, (1,))])
        ),
    ),
    "an empty Dict": (fake("Dict", spaces={}), spaces.Dict()),
    "an empty Tuple": (fake("Tuple", spaces=()), spaces.Tuple([])),
    "jaxmarl MultiDiscrete": (
        fake("MultiDiscrete", num_categories=jnp.array([3, 2]), shape=(2,), dtype=jnp.int32),
        spaces.MultiDiscrete([3, 2]),
    ),
    "kinetix MultiDiscrete": (
        fake(
            "MultiDiscrete",
            n=5,
            number_of_dims_per_distribution=jnp.array([3, 2]),
            shape=(2,),
            dtype=jnp.int32,
        ),
        spaces.MultiDiscrete([3, 2]),
    ),
    "jaxmarl agents": (
        {"agent_0": gymnax_discrete(2), "agent_1": gymnax_discrete(3)},
        spaces.Dict(agent_0=spaces.Discrete(2), agent_1=spaces.Discrete(3)),
    ),
    "jumanji DiscreteArray": (
        jumanji("DiscreteArray", (), jnp.int32, num_values=5, minimum=0, maximum=4),
        spaces.Discrete(5),
    ),
    "jumanji MultiDiscreteArray": (
        jumanji(
            "MultiDiscreteArray",
            (2, 2),
            jnp.int32,
            num_values=jnp.array([[2, 3], [4, 5]]),
            minimum=jnp.zeros((2, 2)),
            maximum=jnp.array([[1, 2], [3, 4]]),
        ),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
    ),
    "jumanji BoundedArray": (
        jumanji("BoundedArray", (2, 3), minimum=0.0, maximum=jnp.float32(2)),
        spaces.Box(0, 2, (2, 3)),
    ),
    "jumanji BoundedArray of bools": (
        jumanji("BoundedArray", (4,), jnp.bool_, minimum=False, maximum=True),
        spaces.Box(0, 1, (4,), np.bool_),
    ),
    "jumanji Array": (jumanji("Array", (3,)), spaces.Box(-INF, INF, (3,))),
    "jumanji Array of integers": (
        jumanji("Array", (3,), jnp.int32),
        spaces.Box(-INF, INF, (3,), np.int32),
    ),
    "a nested jumanji spec": (
        fake(
            "Spec",
            _specs={
                "grid": jumanji("Array", (2, 2)),
                "position": fake(
                    "Spec",
                    _specs={
                        "row": jumanji("DiscreteArray", num_values=3, minimum=0, maximum=2),
                        "step": jumanji("Array", (), jnp.int32),
                    },
                ),
            },
        ),
        spaces.Dict(
            grid=spaces.Box(-INF, INF, (2, 2)),
            position=spaces.Dict(row=spaces.Discrete(3), step=spaces.Box(-INF, INF, (), np.int32)),
        ),
    ),
    "navix Discrete": (
        navix("Discrete", (), jnp.int32, jnp.asarray(0), jnp.asarray(6)),
        spaces.Discrete(7),
    ),
    "navix Discrete with a shape": (
        navix("Discrete", (4, 4, 3), jnp.uint8, jnp.asarray(0), jnp.asarray(255)),
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
    ),
    "navix Continuous": (
        fake(
            "Continuous",
            shape=(2,),
            dtype=jnp.float32,
            minimum=jnp.asarray(-1.0),
            maximum=jnp.array([1.0, INF]),
        ),
        spaces.Box(np.float32([-1, -1]), np.float32([1, INF])),
    ),
    "gym Discrete with a start": (
        fake("Discrete", n=3, start=-1, shape=(), dtype=np.int64),
        spaces.Discrete(3, start=-1),
    ),
    "gym MultiDiscrete": (
        fake("MultiDiscrete", nvec=np.array([3, 2]), shape=(2,), dtype=np.int64),
        spaces.MultiDiscrete([3, 2]),
    ),
    "gym MultiBinary": (
        fake("MultiBinary", n=4, shape=(4,), dtype=np.int8),
        spaces.MultiBinary([4]),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_space_becomes_gymnasiums(case):
    theirs, expected = case
    got = to_gymnasium_space(theirs)
    assert type(got) is type(expected)
    assert got == expected
    assert repr(got) == repr(expected)
    if isinstance(got, spaces.Box):
        np.testing.assert_array_equal(got.bounded_below, expected.bounded_below)
        np.testing.assert_array_equal(got.bounded_above, expected.bounded_above)


def test_a_gymnasium_space_stays_itself():
    space = spaces.Dict(a=spaces.Text(3))
    assert to_gymnasium_space(space) is space


@pytest.mark.parametrize("thing", [object(), 5, "space", None, SimpleNamespace(shape=(2,))])
def test_what_is_no_space_is_refused_by_type(thing):
    with pytest.raises(TypeError, match=f"{type(thing).__name__} is no space that is known"):
        to_gymnasium_space(thing)


def test_a_count_of_zero_is_refused_by_gymnasium():
    with pytest.raises(ValueError, match="positive"):
        to_gymnasium_space(gymnax_discrete(0))


def test_the_space_that_was_given_is_left_alone():
    low = np.array([-INF, 0])
    to_gymnasium_space(gymnax_box(low, INF, (2,), jnp.int32))
    assert low.tolist() == [-INF, 0]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (3, spaces.Box(-INF, INF, (3,))),
        (np.int64(3), spaces.Box(-INF, INF, (3,))),
        ((2, 4), spaces.Box(-INF, INF, (2, 4))),
        (
            {"state": (3,), "privileged": 5},
            spaces.Dict(privileged=spaces.Box(-INF, INF, (5,)), state=spaces.Box(-INF, INF, (3,))),
        ),
    ],
)
def test_sizes_become_boxes(size, expected):
    assert space_of_size(size) == expected


def test_a_size_takes_bounds_and_a_dtype():
    assert space_of_size(2, -1, 1) == spaces.Box(-1, 1, (2,))
    assert space_of_size((4, 4), 0, 255, np.uint8) == spaces.Box(0, 255, (4, 4), np.uint8)
    assert space_of_size(2, dtype=np.bool_) == spaces.Box(0, 1, (2,), np.bool_)


def test_every_gymnax_environment_is_converted():
    gymnax = pytest.importorskip("gymnax")
    offline = [name for name in gymnax.registered_envs if name != "MNISTBandit-bsuite"]
    for name in offline:
        env, params = gymnax.make(name)
        for theirs in (env.observation_space(params), env.action_space(params)):
            got = to_gymnasium_space(theirs)
            assert got.shape == tuple(theirs.shape)
            if isinstance(got, spaces.Box):
                np.testing.assert_array_equal(
                    got.low, np.broadcast_to(np.asarray(theirs.low, got.dtype), got.shape)
                )
            else:
                assert got.n == theirs.n


@pytest.mark.parametrize("size", [2.5, True, -1, "3", None, (2, -1)])
def test_a_size_that_is_no_count_is_refused(size):
    with pytest.raises(ValueError, match="must be a whole number from 0 on"):
        space_of_size(size)
