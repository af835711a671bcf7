"""The statistical battery for keys: what is ours must pass it, and planted generators must fail it.

A source is a set of four functions on key words. `battery(source)` measures several thousand figures,
each as a standard normal deviate under the hypothesis of randomness, and names the ones beyond `LIMIT`.
All seeds are fixed, so a verdict does not change from run to run. With 8 sources of less than 40 000
figures each, chance alone would exceed the limit once in 1500 choices of seeds.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxvec.random import bits_rows, hash_impl, pcg4d, row_words_from_seeds

LIMIT = 6.0  # standard deviations, two-sided: p = 2e-9 for one figure
SEED = 20201
KEYS_MANY, KEYS_AVALANCHE, DRAWS_LONG = 2**15, 2**12, 2**18

Array = Any


class Source(NamedTuple):
    """A generator, by what it does to key words, uint32; all on the host."""

    seeds: Callable[[Array], Array]  # integers [N] -> [N, 2]
    fold: Callable[[Array, Array], Array]  # [N, 2], [N] -> [N, 2]
    split: Callable[[Array, int], Array]  # [N, 2], M -> [N, M, 2]
    bits: Callable[[Array, int], Array]  # [N, 2], M -> [N, M]


# ----- The battery


def battery(source: Source) -> dict[str, float]:
    """Returns the figures beyond the limit, by name, in standard deviations; none for a good source."""
    figures = {
        f"{name}: {test}": figure
        for name, stream in streams(source)
        for test, figure in stream_figures(stream)
    }
    figures |= dict(avalanche_figures(source))
    figures |= dict(relation_figures(source))
    assert len(figures) < 40000
    return {name: figure for name, figure in figures.items() if not abs(figure) < LIMIT}


def streams(source: Source) -> Iterator[tuple[str, Array]]:
    """Yields streams of words whose neighbours come from neighbouring seeds, keys or counters."""
    numbers = np.arange(KEYS_MANY, dtype=np.uint32)
    parent = source.seeds(np.array([SEED]))
    same = np.broadcast_to(parent, (KEYS_MANY, 2))
    seeded = source.seeds(np.arange(KEYS_MANY))
    folded, children = source.fold(same, numbers), source.split(parent, KEYS_MANY)[0]
    yield "counters", source.bits(parent, DRAWS_LONG)[0]
    yield "words of seeds", seeded.ravel()
    yield "words of folds", folded.ravel()
    yield "words of children", children.ravel()
    yield "first words of children", children[:, 0]
    yield "seeds", source.bits(seeded, 4).ravel()
    yield "folds", source.bits(folded, 4).ravel()
    yield "children", source.bits(children, 4).ravel()
    yield "first draws of folds", source.bits(folded, 1).ravel()
    yield "folds of children", source.bits(source.fold(children, 0 * numbers), 2).ravel()
    # Keys that nobody hashed: raw ones of small seeds, and ones that differ in their upper bits only.
    low = np.stack([0 * numbers, numbers], -1)
    yield "raw keys", source.bits(low, 4).ravel()
    yield "raw keys, upper bits", source.bits(low[:, ::-1] << np.uint32(17), 4).ravel()
    yield "children of raw keys", source.split(low, 2).ravel()
    # Keys whose words the first product of pcg4d turns into 0 or 2**31, before or after folding.
    weak = np.array([0x25D60FE5, 0xA5D60FE5, 0x25D62A33, 0xA5D6AA33], np.uint32)
    for first in weak:
        for second in weak:
            key = np.array([[first, second]])
            yield f"counters of key {first:x} {second:x}", source.bits(key, 2**13)[0]


def stream_figures(stream: Array) -> Iterator[tuple[str, float]]:
    """Measures bit balance, uniformity and moments of a stream, and how neighbours depend on each other."""
    stream = np.ascontiguousarray(stream)
    yield from balance("bit", stream)
    uniform = stream / 2.0**32 - 0.5
    for power, mean, variance in ((1, 0, 1 / 12), (2, 1 / 12, 1 / 180), (3, 0, 1 / 448)):
        deviation = (uniform**power).mean() - mean
        yield f"moment {power}", deviation / np.sqrt(variance / len(stream))
    for shift in (0, 4, 8, 16, 24):
        yield f"uniformity of bits {shift}-{shift + 7}", chi_square(stream >> np.uint32(shift), 256)
    for lag in (1, 2, 4, 64):
        early, late = stream[:-lag], stream[lag:]
        yield from balance(f"xor at lag {lag}, bit", early ^ late)
        correlation = (uniform[:-lag] * uniform[lag:]).mean() * 12
        yield f"correlation at lag {lag}", correlation * np.sqrt(len(early))
        for shift in (0, 8, 28):
            cells = (early >> np.uint32(shift)) % 16 * 16 + (late >> np.uint32(shift)) % 16
            # Neighbouring pairs share a number, so this is chi-square only nearly; the limit has room
            yield f"pairs at lag {lag}, bits {shift}-{shift + 3}", chi_square(cells, 256)
        yield f"differences at lag {lag}", chi_square((late - early) >> np.uint32(24), 256)


def avalanche_figures(source: Source) -> Iterator[tuple[str, float]]:
    """Flips every input bit, and measures how often every output bit flips with it."""
    hashed = source.seeds(SEED + np.arange(KEYS_AVALANCHE))
    # Of even parity, so that a flip never leads to another one of them: that pair would count twice
    numbers = np.array([2 * n + n.bit_count() % 2 for n in range(KEYS_AVALANCHE)], np.uint32)
    raw = np.stack([0 * numbers, numbers], -1)

    def flipped(words: Array, bit: int) -> Array:
        mask = np.zeros(2, np.uint32)
        mask[bit // 32] = np.uint32(1 << bit % 32)
        return words ^ mask

    def outputs(words: Array) -> Array:
        return np.concatenate(
            [source.bits(words, 2), source.fold(words, 0 * numbers), source.split(words, 2)[:, 1]],
            -1,
        )

    for name, words in (("key", hashed), ("raw key", raw)):
        before = outputs(words)
        for bit in range(64):
            yield from balance(f"{name} bit {bit} flips", before ^ outputs(flipped(words, bit)))
    before, drawn = source.fold(hashed, numbers), source.bits(source.fold(hashed, numbers), 1)
    for bit in range(32):
        after = source.fold(hashed, numbers ^ np.uint32(1 << bit))
        yield from balance(f"folded bit {bit} flips", before ^ after)
        yield from balance(f"folded bit {bit} flips drawn", drawn ^ source.bits(after, 1))
    before = source.seeds(numbers)
    for bit in range(32):
        after = source.seeds(numbers ^ np.uint32(1 << bit))
        yield from balance(f"seed bit {bit} flips", before ^ after)


def relation_figures(source: Source) -> Iterator[tuple[str, float]]:
    """Compares what different uses of one key give, and looks for keys that meet."""
    keys = source.seeds(SEED + np.arange(KEYS_MANY))
    numbers = np.arange(KEYS_MANY, dtype=np.uint32)
    child, bits = source.split(keys, 2), source.bits(keys, 4)
    uses = {
        "key": keys,
        "bits": bits[:, :2],
        "later bits": bits[:, 2:],
        "child 0": child[:, 0],
        "child 1": child[:, 1],
        "fold of 0": source.fold(keys, 0 * numbers),
        "fold of 1": source.fold(keys, 0 * numbers + np.uint32(1)),
    }
    for name, words in uses.items():
        yield from balance(f"the two words of {name}, bit", words[:, 0] ^ words[:, 1])
        for other, others in uses.items():
            if name < other:
                yield from balance(f"{name} against {other}, bit", words ^ others)
                yield from balance(f"{name} against {other} swapped, bit", words ^ others[:, ::-1])
    # Two sets of 2**20 keys of 64 bits: in either, two are equal with a chance of 3e-8.
    root, numbers = source.seeds(np.array([SEED])), np.arange(1024, dtype=np.uint32)
    grandchildren = source.split(source.split(root, 1024)[0], 1024).reshape(-1, 2)
    once = np.repeat(source.fold(np.broadcast_to(root, (1024, 2)), numbers), 1024, 0)
    folds = source.fold(once, np.tile(numbers, 1024))
    for name, words in (("grandchildren", grandchildren), ("folds of folds", folds)):
        met = equal_pairs(np.ascontiguousarray(words).view(np.uint64).ravel())
        yield f"{name} that meet", 2 * LIMIT * met
    draws = source.bits(folds[: 2**16], 2**6)
    yield "draws of 2**16 keys that meet", collisions(draws.ravel())


def balance(name: str, words: Array) -> Iterator[tuple[str, float]]:
    """Measures how far from a half the share of ones is, at each of the 32 bits of `[N]` or `[N, M]`."""
    octets = np.ascontiguousarray(words.reshape(len(words), -1)).view(np.uint8)
    ones = np.unpackbits(octets, axis=1, bitorder="little").sum(0, dtype=np.int64)
    for bit, deviate in enumerate((2 * ones - len(words)) / np.sqrt(len(words))):
        yield f"{name} {bit}", float(deviate)


def chi_square(values: Array, cells: int) -> float:
    """Returns chi-square of the values' lowest bits as a normal deviate (Wilson and Hilferty, 1931)."""
    counts = np.bincount((values % np.uint32(cells)).astype(np.int64), minlength=cells)
    freedom, expected = cells - 1, len(values) / cells
    statistic = ((counts - expected) ** 2 / expected).sum()
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread))


def collisions(words: Array) -> float:
    """Returns how far the number of equal pairs is from the birthday formula's, n(n-1)/2 in 2**32.

    Pairs are Poisson distributed to the precision that matters: variance equals expectation.
    """
    expected = len(words) * (len(words) - 1) / 2 / 2**32
    return float((equal_pairs(words) - expected) / np.sqrt(expected))


def equal_pairs(words: Array) -> int:
    """Counts the pairs of equal numbers."""
    ordered, pairs = np.sort(words), 0
    for distance in range(1, len(words)):
        found = np.count_nonzero(ordered[distance:] == ordered[:-distance])
        pairs += found
        if not found or distance == 64:  # of a number that comes hundreds of times this is enough
            break
    return pairs


# ----- The sources


def from_impl(impl: Any, hashes_seeds: bool = True) -> Source:
    """A key implementation of JAX, through `jax.random`.

    Threefry's key is the seed itself. There, keys that look random come of folding the seed into a key.
    """

    def wrap(words: Array) -> Any:
        return jax.random.wrap_key_data(words, impl=impl)

    def on_host(function: Callable[..., Any], *static: int) -> Callable[..., Array]:
        compiled = jax.jit(function, static_argnums=static)
        return lambda *arguments: np.asarray(compiled(*arguments))

    def seeds(seeds: Array) -> Array:
        if not hashes_seeds:
            return fold(jnp.zeros((len(seeds), 2), np.uint32), seeds)
        return jax.random.key_data(jax.vmap(lambda seed: jax.random.key(seed, impl=impl))(seeds))

    def fold(words: Array, number: Array) -> Array:
        return jax.random.key_data(jax.vmap(jax.random.fold_in)(wrap(words), number))

    def split(words: Array, num: int) -> Array:
        return jax.random.key_data(jax.vmap(lambda key: jax.random.split(key, num))(wrap(words)))

    def bits(words: Array, num: int) -> Array:
        return jax.vmap(lambda key: jax.random.bits(key, (num,)))(wrap(words))

    make_seeds = on_host(seeds)
    return Source(
        lambda numbers: make_seeds(numbers.astype(np.uint32)),
        on_host(fold),
        on_host(split, 1),
        on_host(bits, 1),
    )


def from_words(
    seeds: Callable[[Array], Array],
    fold: Callable[[Array, Array], Array],
    child_and_draw: Callable[[Array, Array, str], Array],
) -> Source:
    """A source from functions that broadcast; the third gives words `[..., 2]` for a counter and use."""

    def split(words: Array, num: int) -> Array:
        return child_and_draw(words[:, None], np.arange(num, dtype=np.uint32), "child")

    def bits(words: Array, num: int) -> Array:
        return child_and_draw(words[:, None], np.arange(num, dtype=np.uint32), "draw")[..., 0]

    return Source(seeds, fold, split, bits)


def mixed(*words: Array) -> Array:
    """A bare pcg4d, first two words of four."""
    return np.stack(pcg4d(*np.broadcast_arrays(*words))[:2], -1)


def rows_source() -> Source:
    """`bits_rows`, with salts to keep uses apart."""

    def hashed(words: Array, counter: Array, salt: int) -> Array:
        return np.stack([bits_rows(words, counter, salt + word) for word in range(2)], -1)

    salts = {"child": 1, "draw": 3}
    return from_words(
        row_words_from_seeds,
        lambda words, number: hashed(words, number, 5),
        lambda words, counter, use: hashed(words, counter, salts[use]),
    )


def one_bare_round() -> Source:
    """Planted: pcg4d(key, counter, use) as it is published."""
    uses = {"child": np.uint32(11), "draw": np.uint32(12)}
    zero, fold = np.uint32(0), np.uint32(13)
    return from_words(
        lambda seeds: mixed(seeds.astype(np.uint32), zero, zero, zero),
        lambda words, number: mixed(words[..., 0], words[..., 1], number, fold),
        lambda words, counter, use: mixed(words[..., 0], words[..., 1], counter, uses[use]),
    )


def changed(**functions: Callable[..., Any]) -> Source:
    """Planted: hash keys with some functions replaced."""
    return HASH._replace(**functions)


def congruential(words: Array, num: int) -> Array:
    """A linear congruential generator (the constants of Numerical Recipes) per key."""
    drawn = np.empty((num, len(words)), np.uint32)
    state = words[:, 0] ^ words[:, 1]
    for step in range(num):
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        drawn[step] = state
    return drawn.T


def counted_up(words: Array, number: Array) -> Array:
    """A fold without a hash: key + number, the carry forgotten."""
    return np.stack([words[..., 0] + 0 * number, words[..., 1] + number], -1)


def counted_up_children(words: Array, num: int) -> Array:
    return counted_up(words[:, None], np.arange(num, dtype=np.uint32))


HASH = from_impl(hash_impl())
GOOD = {
    "hash": HASH,
    "threefry": from_impl("threefry2x32", hashes_seeds=False),
    "rows": rows_source(),
}
PLANTED = {
    "a linear congruential generator": (changed(bits=congruential), "counters: "),
    "children that are key + i": (changed(split=counted_up_children), "grandchildren that meet"),
    "folds that are key + i": (changed(fold=counted_up), "folded bit 0 flips"),
    "children that are what a fold gives": (
        changed(
            split=lambda words, num: np.stack(
                [HASH.fold(words, np.full(len(words), child, np.uint32)) for child in range(num)], 1
            )
        ),
        "child 0 against fold of 0",
    ),
    "one bare round of pcg4d": (one_bare_round(), "key bit 31 flips"),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_source_passes_the_battery(name):
    failures = battery(GOOD[name])
    if name == "threefry":  # JAX makes child i of a threefry key by folding in i
        known = ("child 0 against fold of 0, bit", "child 1 against fold of 1, bit")
        failures = {name: z for name, z in failures.items() if not name.startswith(known)}
    assert failures == {}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_source_fails_the_battery_where_it_is_weak(name):
    source, weakness = PLANTED[name]
    failures = battery(source)
    assert any(failure.startswith(weakness) for failure in failures), sorted(failures)[:20]


@pytest.mark.parametrize(
    ("name", "rows"), [(name, 2**22) for name in GOOD] + [("hash", 1), ("threefry", 1)]
)
def test_2_to_the_24_draws_meet_as_often_as_birthdays(name, rows):
    """Expected are 32768 equal pairs, standard deviation 181; 5 of these are allowed."""
    source = GOOD[name]
    keys = source.fold(
        np.broadcast_to(source.seeds(np.array([SEED])), (rows, 2)), np.arange(rows, dtype=np.uint32)
    )
    assert abs(collisions(source.bits(keys, 2**24 // rows).ravel())) < 5


def test_a_generator_without_repeats_fails_the_birthdays():
    assert collisions(np.arange(2**20, dtype=np.uint32) * np.uint32(0x9E3779B9)) < -5


@pytest.mark.parametrize("impl", [hash_impl(), "threefry2x32"], ids=["hash", "threefry"])
def test_uniform_and_normal_numbers_have_their_moments(impl):
    """Over 2**12 row keys of 2**8 numbers each; 5 standard deviations of a million independent ones."""
    keys = jax.random.split(jax.random.key(SEED, impl=impl), 2**12)
    uniform = np.asarray(jax.vmap(lambda key: jax.random.uniform(key, (256,)))(keys), np.float64)
    normal = np.asarray(jax.vmap(lambda key: jax.random.normal(key, (256,)))(keys), np.float64)
    tolerance = 5 / np.sqrt(uniform.size)
    assert 0 <= uniform.min() < 1e-5
    assert 1 - 1e-5 < uniform.max() < 1
    for power in (1, 2, 3, 4):  # E u^p = 1 / (p + 1)
        deviation = np.sqrt(1 / (2 * power + 1) - 1 / (power + 1) ** 2)
        assert abs((uniform**power).mean() - 1 / (power + 1)) < tolerance * deviation
    even = {0: 1, 2: 1, 4: 3, 6: 15, 8: 105}  # E n^p; odd ones are 0
    for power in (1, 2, 3, 4):
        expected = even.get(power, 0)
        deviation = np.sqrt(even[2 * power] - expected**2)
        assert abs((normal**power).mean() - expected) < tolerance * deviation
    # Means by row and by column: adjacent keys, and adjacent counters, do not add up
    for axis in (0, 1):
        means = normal.mean(axis) * np.sqrt(normal.shape[axis])
        assert abs((means**2).sum() - len(means)) < 5 * np.sqrt(2 * len(means))
        assert abs((means[1:] * means[:-1]).sum()) < 5 * np.sqrt(len(means))
