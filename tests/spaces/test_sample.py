"""Samples under jit: they lie in the space and are distributed as gymnasium's own are."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from scipy import stats

from jaxvec.spaces import sample
from jaxvec.spaces._integers import integers_below
from tests.spaces.table import FIXED, name

KEY = jax.random.key(0)
LEVEL = 1e-6  # of every statistical test: a false alarm in a million runs
COUNT = 4000


over_fixed = pytest.mark.parametrize("index", range(len(FIXED)), ids=map(name, FIXED))


@cache
def samples_of_all(n):
    """Draws from all spaces in one compiled function: a compilation each would take minutes."""
    draw_all = jax.jit(lambda key: [sample(key, space, n) for space in FIXED])
    return jax.tree.map(np.asarray, draw_all(KEY))


def draw(space, n=COUNT, key=KEY):
    return jax.tree.map(np.asarray, jax.jit(lambda key: sample(key, space, n))(key))


def rows_of(space, batch, n):
    """Splits a batch into elements in the dtypes of the space, as gymnasium would hold them."""
    if isinstance(space, Dict):
        parts = {key: rows_of(part, batch[key], n) for key, part in space.spaces.items()}
        return [{key: parts[key][row] for key in parts} for row in range(n)]
    if isinstance(space, Tuple):
        pairs = zip(space.spaces, batch, strict=True)
        columns = [rows_of(part, column, n) for part, column in pairs]
        return [tuple(column[row] for column in columns) for row in range(n)]
    assert batch.shape == (n, *space.shape)
    assert np.can_cast(batch.dtype, space.dtype)
    return [np.asarray(row, space.dtype) for row in batch]


@over_fixed
@pytest.mark.parametrize("n", [0, 7])
def test_a_sample_lies_in_the_space(index, n):
    rows = rows_of(FIXED[index], samples_of_all(n)[index], n)
    assert len(rows) == n
    assert all(FIXED[index].contains(row) for row in rows)


@over_fixed
def test_structure_and_dtypes_are_the_spaces(index):
    shapes = jax.eval_shape(lambda key: sample(key, FIXED[index], 3), KEY)
    assert_structure(shapes, FIXED[index])


def assert_structure(shapes, space):
    if isinstance(space, Dict):
        assert type(shapes) is dict
        assert shapes.keys() == space.spaces.keys()
        for key, part in space.spaces.items():
            assert_structure(shapes[key], part)
    elif isinstance(space, Tuple):
        assert type(shapes) is tuple
        for part_shapes, part in zip(shapes, space.spaces, strict=True):
            assert_structure(part_shapes, part)
    else:
        assert shapes.dtype == jax.dtypes.canonicalize_dtype(space.dtype)
        assert not shapes.weak_type


REAL_INTERVALS = {
    "bounded": Box(-2.0, 5.0, (1,)),
    "bounded, off centre": Box(100.0, 101.0, (1,)),
    "bounded, the widest": Box(-3e38, 3e38, (1,)),
    "bounded below": Box(3.0, np.inf, (1,)),
    "bounded above": Box(-np.inf, 3.0, (1,)),
    "unbounded": Box(-np.inf, np.inf, (1,)),
    "float64": Box(-1.0, 1.0, (1,), np.float64),
}


@pytest.mark.parametrize("space", REAL_INTERVALS.values(), ids=REAL_INTERVALS)
def test_a_real_coordinate_is_distributed_as_gymnasiums(space):
    space.seed(1)
    theirs = np.array([space.sample()[0] for _ in range(COUNT)])
    assert stats.ks_2samp(draw(space)[:, 0], theirs).pvalue > LEVEL


def test_half_precision_is_drawn_finely_and_rounded():
    values = draw(Box(0, 1, (1,), np.float16), 20000)[:, 0].astype(np.float64)
    assert stats.kstest(values, "uniform").pvalue > LEVEL
    assert len(np.unique(values)) > 4000  # ten random bits would give 1024


def test_every_coordinate_of_a_mixed_box_has_its_own_distribution():
    low, high = np.float32([-np.inf, 0, -np.inf, 2]), np.float32([np.inf, np.inf, 3, 5])
    values = draw(Box(low, high))
    expected = [stats.norm(), stats.expon(), None, stats.uniform(2, 3)]
    for column, distribution in enumerate(expected):
        if distribution is not None:
            assert stats.kstest(values[:, column], distribution.cdf).pvalue > LEVEL
    assert stats.kstest(3 - values[:, 2], stats.expon().cdf).pvalue > LEVEL


INTEGER_SPACES = {
    "Discrete": (Discrete(3, start=-1), range(-1, 2)),
    "Discrete of a power of two": (Discrete(8), range(8)),
    "MultiDiscrete": (MultiDiscrete([7], np.int8, start=[120]), range(120, 127)),
    "MultiBinary": (MultiBinary(1), range(2)),
    "bools": (Box(0, 1, (1,), np.bool_), range(2)),
    "uint8": (Box(0, 255, (1,), np.uint8), range(256)),
    "int8, all of it": (Box(-128, 127, (1,), np.int8), range(-128, 128)),
    "one value": (Box(7, 7, (1,), np.int32), range(7, 8)),
    "int64": (Box(-3, 3, (1,), np.int64), range(-3, 4)),
}


@pytest.mark.parametrize("case", INTEGER_SPACES.values(), ids=INTEGER_SPACES)
def test_integers_are_uniform_over_both_ends(case):
    space, values = case
    draws = draw(space, 100 * len(values)).reshape(-1).astype(np.int64)
    counts = [int((draws == value).sum()) for value in values]
    assert sum(counts) == len(draws)
    assert len(values) == 1 or stats.chisquare(counts).pvalue > LEVEL


WIDE = {
    "uint32": (Box(0, 2**32 - 1, (1,), np.uint32), 0, 2**32),
    "int32": (Box(-(2**31), 2**31 - 1, (1,), np.int32), -(2**31), 2**31),
    "all but one": (Box(-(2**31) + 1, 2**31 - 1, (1,), np.int32), -(2**31) + 1, 2**31),
    "a wide Discrete": (Discrete(10**9, start=-5), -5, 10**9 - 5),
    "one more than one word is used for": (Box(0, 1024, (1,), np.int16), 0, 1025),
}


@pytest.mark.parametrize("case", WIDE.values(), ids=WIDE)
def test_wide_ranges_are_uniform(case):
    space, low, high = case
    draws = draw(space).reshape(-1).astype(np.float64)
    assert draws.min() >= low
    assert draws.max() < high
    unit = (draws + np.linspace(0, 1, len(draws), endpoint=False) - low) / (high - low)
    assert stats.kstest(unit, "uniform").pvalue > LEVEL


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_a_draw_is_the_fraction_of_two_words_times_the_count(dtype, monkeypatch):
    width = 8 * np.dtype(dtype).itemsize
    edges = [0, 1, 2**16 - 1, 2**16, 2 ** (width - 1), 2**width - 1, 3 * 2 ** (width // 2) + 5]
    words = np.array(edges, dtype)
    upper, lower, count = (x.reshape(-1) for x in np.meshgrid(words, words, words[1:]))
    monkeypatch.setattr(jax.random, "bits", lambda *_: jnp.stack([upper, lower]))
    with jax.enable_x64(True):
        draws = np.asarray(integers_below(KEY, upper.shape, jnp.asarray(count)))
    exact = [
        (int(n) * ((int(a) << width) + int(b))) >> 2 * width
        for a, b, n in zip(upper, lower, count, strict=True)
    ]
    assert draws.dtype == dtype
    assert draws.tolist() == exact


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (5, np.inf, lambda x: 5 + np.floor(x)),
        (-np.inf, 5, lambda x: 5 - np.floor(x)),
    ],
)
def test_half_bounded_integers_are_rounded_exponentials(low, high, expected):
    space = Box(low, high, (1,), np.int32)
    space.seed(2)
    ours = draw(space)[:, 0]
    theirs = np.array([space.sample()[0] for _ in range(COUNT)])
    exact = expected(np.random.default_rng(0).exponential(size=COUNT))
    for other in (theirs, exact):
        values = np.unique(np.concatenate([ours, other]))
        table = [[int((part == value).sum()) for value in values] for part in (ours, other)]
        often = np.sum(table, 0) >= 10
        assert stats.chi2_contingency(np.array(table)[:, often]).pvalue > LEVEL


def test_unbounded_integers_are_rounded_normals():
    draws = draw(Box(-np.inf, np.inf, (1,), np.int8))[:, 0]
    for value in (-2, -1, 0, 1):
        share = stats.norm.cdf(value + 1) - stats.norm.cdf(value)
        hits = int((draws == value).sum())
        assert stats.binomtest(hits, COUNT, share).pvalue > LEVEL


def test_an_exponential_stops_at_the_end_of_the_dtype():
    assert draw(Box(126, np.inf, (1,), np.int8)).max() == 127
    assert draw(Box(-np.inf, -127, (1,), np.int8)).min() == -128


def test_rows_columns_and_parts_are_independent():
    parts = Tuple([Discrete(2), Discrete(2), MultiDiscrete([2, 2]), Dict(x=Discrete(2))])
    batch = draw(Dict(a=Discrete(2), b=Discrete(2), c=parts))
    one, other, pair, inner = batch["c"]
    columns = [batch["a"], batch["b"], one, other, *pair.T, inner["x"]]
    for index, one in enumerate(columns):
        for other in columns[:index]:
            hits = int((one == other).sum())
            assert stats.binomtest(hits, COUNT, 0.5).pvalue > LEVEL
        neighbours = int((one[1:] == one[:-1]).sum())
        assert stats.binomtest(neighbours, COUNT - 1, 0.5).pvalue > LEVEL


def test_another_key_gives_another_sample_and_the_same_key_the_same():
    space = Dict(a=Discrete(1000), b=Box(-1, 1, (3,)))
    draw_one = jax.jit(lambda key: sample(key, space, 50))
    one, same, other = (draw_one(jax.random.key(seed)) for seed in (3, 3, 4))
    assert (one["a"] == same["a"]).all()
    assert (one["b"] == same["b"]).all()
    assert (one["a"] != other["a"]).any()
    assert (one["b"] != other["b"]).all()


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_every_implementation_do(impl):
    space = Dict(a=Discrete(3), b=Box(-np.inf, 5, (2,)), c=Box(0, 10**6, (2,), np.int32))
    batch = draw(space, 20, key=jax.random.key(1, impl=impl))
    assert all(space.contains(row) for row in rows_of(space, batch, 20))


def test_raw_keys_do_as_typed_ones():
    raw, typed = (
        draw(Discrete(9), 20, key=jax.random.PRNGKey(5)),
        draw(Discrete(9), 20, key=jax.random.key(5)),
    )
    assert (raw == typed).all()


def test_it_runs_under_vmap_and_scan():
    space = Dict(a=Discrete(5), b=Box(-1, 1, (2,)))
    keys = jax.random.split(KEY, 4)

    @jax.jit
    def three_ways(keys):
        mapped = jax.vmap(lambda key: sample(key, space, 3))(keys)
        _, scanned = jax.lax.scan(lambda carry, key: (carry, sample(key, space, 3)), 0, keys)
        return mapped, scanned, sample(keys[2], space, 3)

    mapped, scanned, single = three_ways(keys)
    for part in ("a", "b"):
        np.testing.assert_array_equal(mapped[part], scanned[part])
        np.testing.assert_array_equal(mapped[part][2], single[part])


def test_it_compiles_once():
    traces = []

    @jax.jit
    def policy(key):
        traces.append(key)
        return sample(key, Discrete(4), 8)

    for seed in range(3):
        policy(jax.random.key(seed))
    assert len(traces) == 1


def test_with_64_bits_the_dtypes_are_the_spaces_own():
    wide = Dict(
        a=Box(-(2**63), 2**63 - 1, (2,), np.int64),
        b=Discrete(3, start=2**40),
        c=Box(-1, 1, (2,), np.float64),
        d=Box(0, 2**64 - 1, (2,), np.uint64),
        e=Box(-np.inf, np.inf, (2,), np.int64),
    )
    with jax.enable_x64(True):
        batch = draw(wide, 500)
    assert {key: part.dtype for key, part in batch.items()} == {
        "a": np.int64, "b": np.int64, "c": np.float64, "d": np.uint64, "e": np.int64,
    }  # fmt: skip
    assert all(wide.contains(row) for row in rows_of(wide, batch, 500))
    assert stats.kstest(batch["d"].reshape(-1) / 2.0**64, "uniform").pvalue > LEVEL
    assert stats.kstest((batch["a"].reshape(-1) + 2.0**63) / 2.0**64, "uniform").pvalue > LEVEL
    assert np.abs(batch["e"]).max() < 8


def test_bounds_of_float64_are_not_left_by_rounding():
    space = Box(-0.1, 0.3, (1,), np.float64)  # both bounds are rounded outwards in float32
    assert float(np.float32(-0.1)) < -0.1
    assert float(np.float32(0.3)) > 0.3
    values = draw(space, 20000)
    assert (values.astype(np.float64) >= -0.1).all()
    assert (values.astype(np.float64) <= 0.3).all()


@pytest.mark.parametrize(
    "space",
    [
        Discrete(3, start=2**40),
        Box(0, 2**40, (2,), np.int64),
        MultiDiscrete([2], start=[-(2**40)]),
        Box(0.1, 0.1, (1,), np.float64),
    ],
    ids=name,
)
def test_numbers_that_jax_has_no_dtype_for_are_refused(space):
    with pytest.raises(ValueError, match="jax_enable_x64"):
        sample(KEY, space, 2)


def test_what_cannot_be_sampled_is_named():
    with pytest.raises(TypeError, match=r"sample: Text.*no elements of a fixed shape"):
        sample(KEY, Dict(a=Text(3)), 2)
    with pytest.raises(TypeError, match="not a gymnasium space"):
        sample(KEY, "space", 2)
    with pytest.raises(ValueError, match="n=-1"):
        sample(KEY, Discrete(2), -1)
    with pytest.raises(TypeError, match=r"n=2\.0"):
        sample(KEY, Discrete(2), 2.0)
    if np.dtype(np.longdouble) != np.float64:
        with pytest.raises(TypeError, match="no dtype"):
            sample(KEY, Box(0, 1, (1,), np.longdouble), 2)
