"""Hash keys: the hash itself, what JAX's transformations do to them, row keys, conversions, bare words."""

import copy
import inspect
import pickle
import subprocess
import sys
import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec.random
from jaxvec.random import (
    as_impl,
    bits_rows,
    hash_impl,
    hash_key,
    key_words,
    keys_from,
    keys_from_seeds,
    pcg4d,
    row_words_from_seeds,
    uniform_rows,
)

WORDS = np.random.default_rng(0).integers(0, 2**32, (64, 4), dtype=np.uint32)
WORDS[:4] = [[0] * 4, [2**32 - 1] * 4, [1, 0, 0, 0], [2**31] * 4]


def data(keys):
    """The words of typed keys, on the host."""
    return np.asarray(jax.random.key_data(keys))


def pcg4d_in_whole_numbers(*words):
    """The publication's listing in Python's own integers."""
    x, y, z, w = ((int(word) * 1664525 + 1013904223) % 2**32 for word in words)
    for last in (False, True):
        x = (x + y * w) % 2**32
        y = (y + z * x) % 2**32
        z = (z + x * y) % 2**32
        w = (w + y * z) % 2**32
        if not last:
            x, y, z, w = (value ^ (value >> 16) for value in (x, y, z, w))
    return x, y, z, w


# ----- The hash


@pytest.mark.parametrize("xp", [np, jnp], ids=["numpy", "jax"])
def test_pcg4d_is_the_published_one(xp):
    expected = np.array([pcg4d_in_whole_numbers(*row) for row in WORDS], np.uint32)
    hashed = pcg4d(*xp.asarray(WORDS).T)
    assert all(isinstance(word, np.ndarray if xp is np else jax.Array) for word in hashed)
    np.testing.assert_array_equal(np.stack(hashed, -1), expected)


def test_pcg4d_of_numpy_scalars_wraps_without_a_warning():
    hashed = pcg4d(*map(np.uint32, (2**32 - 1, 7, 2**31, 5)))
    assert tuple(map(int, hashed)) == pcg4d_in_whole_numbers(2**32 - 1, 7, 2**31, 5)


def test_pcg4d_broadcasts_its_words():
    column, row = np.arange(3, dtype=np.uint32)[:, None], np.arange(2, dtype=np.uint32)
    hashed = pcg4d(column, row, np.uint32(4), np.uint32(5))
    assert hashed[0].shape == (3, 2)
    assert int(hashed[3][2, 1]) == pcg4d_in_whole_numbers(2, 1, 4, 5)[3]


@pytest.mark.parametrize("word", [3, 3.0, np.int32(3), np.arange(2), jnp.arange(2)])
def test_pcg4d_refuses_other_dtypes_than_uint32(word):
    fine = np.uint32(0)
    with pytest.raises(TypeError, match=r"pcg4d: c=.*uint32"):
        pcg4d(fine, fine, word, fine)


PINNED = {
    "key": [0xD9924831, 0xEBA3E233],
    "child": [0x56AB0E6B, 0x4A552A9C],
    "folded": [0xBD72D5E3, 0xA6548E96],
    "bits": [0x7D634F46, 0xDAD1A1A8, 0x604F3F67],
    "rows": [0x2BF0CEBA, 0xE2122303],
}


def test_what_a_seed_draws_is_pinned():
    """A change here changes every seeded run: it belongs into the changelog."""
    np.testing.assert_array_equal(data(hash_key(0)), PINNED["key"])
    np.testing.assert_array_equal(data(jax.random.split(hash_key(0)))[1], PINNED["child"])
    np.testing.assert_array_equal(data(jax.random.fold_in(hash_key(0), 7)), PINNED["folded"])
    np.testing.assert_array_equal(jax.random.bits(hash_key(0), (3,)), PINNED["bits"])
    np.testing.assert_array_equal(bits_rows(row_words_from_seeds([0, 1]), 3, 4), PINNED["rows"])


# ----- Under JAX's transformations


def everything(key):
    """One draw of each kind from a typed key."""
    children = jax.random.split(key, 3)
    return (
        jax.random.bits(key, (5,)),
        jax.random.bits(key, (5,), "uint8"),
        jax.random.normal(children[0], (2, 3)),
        jax.random.randint(children[1], (4,), 0, 1000),
        jax.random.key_data(children),
        jax.random.key_data(jax.random.split(key, (2, 9))),
        jax.random.key_data(jax.random.fold_in(key, 11)),
    )


def test_jit_vmap_and_scan_draw_what_the_eager_loop_draws():
    keys = keys_from(3, 3)
    loop = [everything(keys[row]) for row in range(3)]
    expected = jax.tree.map(lambda *rows: np.stack(rows), *loop)
    jax.tree.map(np.testing.assert_array_equal, jax.vmap(everything)(keys), expected)
    jax.tree.map(np.testing.assert_array_equal, jax.jit(jax.vmap(everything))(keys), expected)
    scanned = jax.lax.scan(lambda carry, key: (carry, everything(key)), None, keys)[1]
    jax.tree.map(np.testing.assert_array_equal, scanned, expected)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3), (0,), (2, 0), (300, 257)])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_have_any_shape_and_width(shape, dtype):
    bits = np.asarray(jax.random.bits(hash_key(1), shape, dtype))
    assert bits.shape == shape
    assert bits.dtype == dtype
    if bits.size > 65536:  # every element has a counter of its own
        repeats = bits.size - len(np.unique(bits))
        assert repeats > 1000 if dtype != "uint32" else repeats < 5


def test_64_bit_draws_and_seeds_have_64_bits():
    with jax.enable_x64(True):
        bits = np.asarray(jax.random.bits(hash_key(1), (4096,), "uint64"))
        assert bits.dtype == np.uint64
        assert len(np.unique(bits >> np.uint64(32))) > 4090
        assert len(np.unique(bits & np.uint64(2**32 - 1))) > 4090
        uniform = np.asarray(jax.random.uniform(hash_key(1), (4096,)))
        assert uniform.dtype == np.float64
        assert abs(uniform.mean() - 0.5) < 5 / np.sqrt(12 * 4096)
        seed = 2**40 + 5
        wide = data(jax.random.key(seed, impl=hash_impl()))
        np.testing.assert_array_equal(data(jax.jit(keys_from_seeds)(jnp.array([seed])))[0], wide)
    np.testing.assert_array_equal(data(hash_key(seed)), wide)


def test_children_do_not_depend_on_how_many_there_are():
    key = hash_key(4)
    many = data(jax.random.split(key, 40))
    for num in (1, 2, 3, 8, 9):  # 8 and 9 lie on both sides of the unrolled form's limit
        np.testing.assert_array_equal(data(jax.random.split(key, num)), many[:num])
    np.testing.assert_array_equal(data(jax.random.split(key, (2, 3))).reshape(6, 2), many[:6])
    assert jax.random.split(key, 0).shape == (0,)


def test_bits_children_and_folds_of_one_key_have_no_word_in_common():
    key, num = hash_key(5), 256
    bits = np.asarray(jax.random.bits(key, (2 * num,)))
    children = data(jax.random.split(key, num)).ravel()
    folds = data(jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(num))).ravel()
    rows = np.asarray(bits_rows(np.repeat(data(key)[None], 2 * num, 0), np.arange(2 * num)))
    words = np.concatenate([bits, children, folds, rows, data(key)])
    assert len(np.unique(words)) == len(words)


def test_jax_random_works_with_hash_keys():
    keys = iter(jax.random.split(hash_key(6), 16))
    size = 4096
    uniform = jax.random.uniform(next(keys), (size,), minval=-2, maxval=3)
    assert -2 <= uniform.min() < -1.9 < 2.9 < uniform.max() < 3
    assert set(np.unique(jax.random.randint(next(keys), (size,), -1, 4))) == {-1, 0, 1, 2, 3}
    assert 0.25 < jax.random.bernoulli(next(keys), 0.3, (size,)).mean() < 0.35
    permutation = jax.random.permutation(next(keys), size)
    assert sorted(np.asarray(permutation)) == list(range(size))
    assert not (np.asarray(permutation) == np.arange(size)).all()
    chosen = jax.random.choice(next(keys), 10, (10,), replace=False)
    assert sorted(np.asarray(chosen)) == list(range(10))
    weighted = jax.random.choice(next(keys), 3, (size,), p=jnp.array([0.5, 0.0, 0.5]))
    assert set(np.unique(weighted)) == {0, 2}
    assert set(np.unique(jax.random.categorical(next(keys), jnp.zeros(3), shape=(99,)))) == {
        0,
        1,
        2,
    }
    for draw in (jax.random.normal, jax.random.gumbel, jax.random.exponential, jax.random.laplace):
        assert np.isfinite(draw(next(keys), (size,))).all()
    assert (jax.random.gamma(next(keys), 2.0, (size,)) > 0).all()


def test_poisson_refuses_hash_keys_as_all_but_threefry():
    with pytest.raises(NotImplementedError, match="threefry"):
        jax.random.poisson(hash_key(0), 3.0)
    assert jax.random.poisson(as_impl(hash_key(0), "threefry2x32"), 3.0, (5,)).shape == (5,)


def test_where_chooses_between_key_arrays():
    mask = jnp.array([True, False, True])
    chosen = jnp.where(mask, keys_from(0, 3), keys_from(1, 3))
    expected = np.where(np.asarray(mask)[:, None], data(keys_from(0, 3)), data(keys_from(1, 3)))
    np.testing.assert_array_equal(data(chosen), expected)


def test_a_function_of_keys_compiles_once_even_if_the_implementation_is_defined_anew():
    traces = []

    @jax.jit
    def draw(keys):
        traces.append(keys.shape)
        return jax.vmap(jax.random.uniform)(keys)

    first = draw(keys_from(0, 4))
    hash_impl.cache_clear()
    np.testing.assert_array_equal(draw(keys_from(0, 4)), first)
    assert traces == [(4,)]


def test_threads_that_define_the_implementation_together_get_keys_that_mix():
    hash_impl.cache_clear()
    barrier, keys = threading.Barrier(8), []

    def make(row):
        barrier.wait()
        keys.append(hash_key(row))

    threads = [threading.Thread(target=make, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert jnp.stack(keys).shape == (8,)
    assert len({key.dtype for key in keys}) == 1


def test_donated_keys_are_given_up_and_the_draw_is_the_same():
    step = jax.jit(lambda keys: jax.vmap(jax.random.fold_in, (0, None))(keys, 1), donate_argnums=0)
    keys = keys_from(0, 128)
    expected = data(step(jax.random.clone(keys)))
    donated = keys_from(0, 128)
    np.testing.assert_array_equal(data(step(donated)), expected)
    assert donated.is_deleted()


def test_sharded_keys_draw_the_same_without_communication():
    mesh = jax.make_mesh((4,), ("env",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.NamedSharding(mesh, jax.P("env"))
    keys = keys_from(0, 64)
    sharded = jax.device_put(keys, sharding)
    assert len(sharded.addressable_shards) == 4

    @jax.jit
    def step(keys):
        keys, drawn = jnp.split(jax.vmap(jax.random.split)(keys), 2, axis=1)
        return keys[:, 0], jax.vmap(lambda key: jax.random.uniform(key, (4,)))(drawn[:, 0])

    new_keys, drawn = step(sharded)
    assert drawn.sharding.is_equivalent_to(sharding, 2)
    np.testing.assert_array_equal(drawn, step(keys)[1])
    np.testing.assert_array_equal(data(new_keys), data(step(keys)[0]))
    compiled = step.lower(sharded).compile().as_text()
    assert not any(word in compiled for word in ("all-gather", "all-reduce", "collective-permute"))


def test_key_reuse_is_found_and_clones_are_allowed():
    with jax.debug_key_reuse(True):
        key = hash_key(0)
        jax.random.uniform(key)
        with pytest.raises(jax.errors.KeyReuseError):
            jax.random.uniform(key)
        jax.random.uniform(jax.random.clone(key))
        rows = keys_from(hash_key(1), 3)
        jax.vmap(jax.random.uniform)(rows)


def test_keys_pickle_and_copy():
    try:
        pickle.dumps(jax.random.key(0))
    except TypeError:
        pytest.skip("this version of JAX pickles no keys at all")
    key = hash_key(8)
    for twin in (pickle.loads(pickle.dumps(key)), copy.deepcopy(key), copy.copy(key)):
        assert twin.dtype == key.dtype
        np.testing.assert_array_equal(jax.random.bits(twin, (3,)), jax.random.bits(key, (3,)))


def test_draws_of_a_symbolic_shape_export():
    (rows,) = jax.export.symbolic_shape("n")

    def draw(x):
        key = hash_key(0)
        return jax.random.bits(key, x.shape), jax.random.key_data(jax.random.split(key, x.shape))

    exported = jax.export.export(jax.jit(draw))(jax.ShapeDtypeStruct((rows, 3), np.float32))
    for num in (2, 5):
        jax.tree.map(
            np.testing.assert_array_equal,
            exported.call(np.zeros((num, 3), np.float32)),
            draw(np.zeros((num, 3), np.float32)),
        )


def test_a_draw_with_more_elements_than_counters_is_refused():
    draw = jax.jit(lambda key: jax.random.bits(key, (65537, 65536)))
    with pytest.raises(ValueError, match=r"\(65537, 65536\).*2\*\*32"):
        draw.lower(hash_key(0))


# ----- Keys for rows


@pytest.mark.parametrize(
    "key",
    [hash_key(9), jax.random.key(9), jax.random.key(9, impl="rbg"), jax.random.PRNGKey(9)],
    ids=["hash", "threefry", "rbg", "raw"],
)
def test_a_rows_key_is_the_fold_of_its_number_whatever_the_number_of_rows(key):
    rows = keys_from(key, 40)
    assert rows.dtype == key.dtype
    np.testing.assert_array_equal(key_words(keys_from(key, 7)), key_words(rows)[:7])
    for row in (0, 39):
        np.testing.assert_array_equal(key_words(rows[row]), key_words(jax.random.fold_in(key, row)))


def test_raw_keys_of_numpy_and_integer_seeds_make_row_keys():
    raw = np.asarray(jax.random.PRNGKey(3))
    np.testing.assert_array_equal(keys_from(raw, 3), keys_from(jax.random.PRNGKey(3), 3))
    for seed in (3, np.int64(3), jnp.uint32(3)):
        np.testing.assert_array_equal(data(keys_from(seed, 3)), data(keys_from(hash_key(3), 3)))


def test_row_keys_can_be_asked_for_of_another_kind():
    typed, raw = jax.random.key(3), jax.random.PRNGKey(3)
    expected = data(keys_from(as_impl(typed, "hash"), 3))
    np.testing.assert_array_equal(data(keys_from(typed, 3, impl="hash")), expected)
    np.testing.assert_array_equal(data(keys_from(raw, 3, impl=hash_impl())), expected)
    assert keys_from(3, 3, impl="threefry2x32").dtype == typed.dtype
    assert keys_from(3, 3, impl="raw").dtype == np.uint32


@pytest.mark.parametrize("keys", [keys_from(0, 3), np.zeros((3, 2), np.uint32)])
def test_several_keys_where_one_is_needed_are_refused(keys):
    with pytest.raises(ValueError, match=r"keys_from: key has shape \(3,.*ONE key"):
        keys_from(keys, 3)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1])
def test_all_64_bits_of_a_seed_count(seed):
    key = data(hash_key(seed))
    neighbours = row_words_from_seeds([seed ^ (1 << bit) for bit in range(64)])
    assert len({tuple(words) for words in [key, *neighbours]}) == 65
    np.testing.assert_array_equal(row_words_from_seeds([5, seed])[1], key)
    np.testing.assert_array_equal(data(keys_from_seeds(np.array([seed], np.uint64)))[0], key)
    if seed < 2**31:
        np.testing.assert_array_equal(data(jax.random.key(seed, impl=hash_impl())), key)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, np.int8])
def test_a_seeds_dtype_does_not_matter(dtype):
    expected = data(keys_from_seeds([0, 7, 100]))
    seeds = np.array([0, 7, 100], dtype)
    assert isinstance(row_words_from_seeds(seeds), np.ndarray)
    np.testing.assert_array_equal(data(keys_from_seeds(seeds)), expected)
    np.testing.assert_array_equal(data(keys_from_seeds(range(0, 8, 7)))[1], expected[1])
    if np.dtype(dtype).itemsize <= 4:
        np.testing.assert_array_equal(data(keys_from_seeds(jnp.asarray(seeds))), expected)
        np.testing.assert_array_equal(data(jax.jit(keys_from_seeds)(seeds)), expected)


@pytest.mark.parametrize(
    ("seeds", "error"),
    [
        ([0, -1], ValueError),
        (-1, ValueError),
        (np.array([-(2**63)]), ValueError),
        (jnp.array([3, -3]), ValueError),
        ([2**64], TypeError),
        ([0.0, 1.0], TypeError),
        (np.array([1.5]), TypeError),
        (jnp.array([1.5]), TypeError),
        (["a"], TypeError),
        (None, TypeError),
        ({0}, TypeError),
        (object(), TypeError),
    ],
)
def test_seeds_that_are_not_whole_or_negative_are_refused(seeds, error):
    with pytest.raises(error, match="seeds: got"):
        keys_from_seeds(seeds)


def test_hash_key_takes_one_integer():
    with pytest.raises(ValueError, match="keys_from_seeds"):
        hash_key([1, 2])
    with pytest.raises(TypeError, match=r"got .*1\.5"):
        hash_key(1.5)
    for seed in (None, "7", {}):
        with pytest.raises(TypeError, match="seeds: got"):
            hash_key(seed)
        with pytest.raises(TypeError, match="seeds: got"):
            keys_from(seed, 2)


@pytest.mark.parametrize("num", [-1, 1.5, 2.0, True, None, "3", 2**32])
def test_a_number_of_keys_that_cannot_be_is_refused(num):
    with pytest.raises(ValueError, match=r"keys_from: num=.* a whole number from 0"):
        keys_from(0, num)


def test_no_keys_are_a_number_of_keys_too():
    assert keys_from(0, 0).shape == (0,)
    assert keys_from(0, np.int64(3)).shape == (3,)


@pytest.mark.parametrize(
    "keys", [None, 3, "key", [1, 2], (0, 1), object(), np.zeros(2), np.zeros((), "u4")]
)
def test_what_is_no_key_is_refused_by_what_takes_keys(keys):
    for function in (key_words, partial(as_impl, impl="hash")):
        with pytest.raises(TypeError, match="key_words: got"):
            function(keys)


# ----- Conversions


@pytest.mark.parametrize("impl", ["hash", "threefry2x32", "raw"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_two_words_survive_a_conversion_there_and_back(impl, shape):
    keys = jax.random.split(hash_key(2), shape)
    there = as_impl(keys, impl)
    assert there.shape == shape + (2,) * (impl == "raw")
    np.testing.assert_array_equal(key_words(there), data(keys))
    np.testing.assert_array_equal(data(as_impl(there, "hash")), data(keys))


def test_keys_of_the_kind_asked_for_come_back_as_they_are():
    for keys, impl in ((keys_from(0, 2), "hash"), (jax.random.key(0), "threefry2x32")):
        assert as_impl(keys, impl) is keys


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_keys_of_four_words_convert_both_ways_and_stay_apart(impl):
    keys = as_impl(keys_from(0, 100), impl)
    assert keys.dtype == jax.random.key(0, impl=impl).dtype
    assert len(np.unique(data(keys))) == 400
    words = key_words(keys)
    assert words.shape == (100, 2)
    assert len(np.unique(words)) == 200
    np.testing.assert_array_equal(data(as_impl(keys, "hash")), words)
    np.testing.assert_array_equal(key_words(np.asarray(data(keys))), words)
    for word in range(4):
        changed = data(keys).copy()
        changed[:, word] ^= 1
        assert (key_words(changed) != words).any(-1).all()


def test_key_words_stay_with_numpy_or_jax():
    raw = np.asarray(jax.random.PRNGKey(1))
    assert isinstance(key_words(raw), np.ndarray)
    assert isinstance(key_words(jnp.asarray(raw)), jax.Array)
    assert isinstance(key_words(jax.random.key(1)), jax.Array)


@pytest.mark.parametrize(
    "keys", [3, None, np.zeros((4, 2)), np.zeros((4, 3), np.uint32), jnp.zeros(2, np.int32)]
)
def test_what_is_no_key_is_refused(keys):
    with pytest.raises(TypeError, match="key_words: got"):
        key_words(keys)


def test_an_implementation_that_jax_does_not_know_is_refused():
    with pytest.raises(ValueError, match="md5"):
        as_impl(hash_key(0), "md5")


def test_conversions_work_on_traced_keys():
    keys = keys_from(0, 4)
    there = jax.jit(lambda keys: as_impl(as_impl(keys, "threefry2x32"), "hash"))(keys)
    np.testing.assert_array_equal(data(there), data(keys))
    np.testing.assert_array_equal(jax.jit(key_words)(keys), data(keys))


# ----- Draws from bare words


@pytest.mark.parametrize("draw", [bits_rows, uniform_rows])
def test_numpy_jax_jit_and_scan_draw_the_same_from_the_same_words(draw):
    words, counters = row_words_from_seeds(range(50)), np.arange(20, dtype=np.uint32)
    host = np.stack([draw(words, counter, 3) for counter in counters])
    assert host.dtype == (np.uint32 if draw is bits_rows else np.float32)
    device = jnp.asarray(words)
    assert isinstance(draw(device, 0), jax.Array)
    eager = np.stack([draw(device, int(counter), 3) for counter in counters])
    np.testing.assert_array_equal(eager, host)
    scanned = jax.lax.scan(lambda _, n: (None, draw(device, n, 3)), None, jnp.arange(20))[1]
    np.testing.assert_array_equal(scanned, host)
    by_row = jax.vmap(lambda row, n: draw(row, n, 3), (0, None))(device, counters[7])
    np.testing.assert_array_equal(by_row, host[7])


def test_every_row_may_have_a_counter_of_its_own():
    words, counters = row_words_from_seeds(range(5)), np.array([4, 0, 4, 2**32 - 1, 1])
    drawn = bits_rows(words, counters)
    for row in range(5):
        assert drawn[row] == bits_rows(words[row : row + 1], int(counters[row]))[0]


def test_a_rows_draw_does_not_depend_on_the_other_rows():
    words = row_words_from_seeds(range(100))
    np.testing.assert_array_equal(uniform_rows(words[40:43], 9), uniform_rows(words, 9)[40:43])


def test_counters_wrap_at_32_bits():
    words = row_words_from_seeds([1, 2])
    np.testing.assert_array_equal(bits_rows(words, 2**32 + 5), bits_rows(words, 5))
    np.testing.assert_array_equal(bits_rows(words, -1), bits_rows(words, 2**32 - 1))


def test_uniform_rows_are_the_upper_24_bits():
    words = row_words_from_seeds(range(10000))
    bits, uniform = bits_rows(words, 1), uniform_rows(words, 1)
    np.testing.assert_array_equal(uniform, (bits >> 8).astype(np.float64) / 2**24)
    assert uniform.min() >= 0
    assert uniform.max() < 1


def test_salts_keep_users_of_the_same_words_apart():
    words = row_words_from_seeds(range(1000))
    drawn = [bits_rows(words, 0, salt) for salt in (0, 1, 2, 0x571C4B07, 2**32 - 1)]
    drawn.append(np.asarray(jax.vmap(jax.random.bits)(keys_from_seeds(range(1000)))))
    assert len(np.unique(drawn)) > 6 * 1000 - 3


@pytest.mark.parametrize("salt", [-1, 2**32, 1.5, 2.0, True, None, "salt"])
@pytest.mark.parametrize("draw", [bits_rows, uniform_rows])
def test_a_salt_that_is_no_word_is_refused(draw, salt):
    with pytest.raises(ValueError, match=r"bits_rows: salt=.* a whole number from 0"):
        draw(row_words_from_seeds([0]), 0, salt)


@pytest.mark.parametrize("words", [None, [1, 2], np.zeros(2), np.zeros((3, 4), "u4"), hash_key(0)])
def test_words_that_are_none_are_refused(words):
    with pytest.raises(TypeError, match=r"(?s)bits_rows: words=.* uint32 \[N, 2\]"):
        bits_rows(words, 0)


@pytest.mark.parametrize("counter", [1.5, np.zeros(1), jnp.zeros(1)])
def test_a_counter_that_is_no_integer_is_refused(counter):
    with pytest.raises(TypeError, match=r"bits_rows: counter=.* must be of integers"):
        bits_rows(row_words_from_seeds([0]), counter)


def test_the_public_names_are_listed():
    functions = {name for name, value in vars(jaxvec.random).items() if inspect.isfunction(value)}
    helpers = {
        "check_count",
        "hash_words",
        "is_array",
        "is_key",
        "is_numpy",
        "is_traced",
        "namespace",
        "new_words",
    }
    names = {name for name in functions - helpers if not name.startswith("_")}
    assert names | {"hash_impl"} == set(jaxvec.random.__all__)


def test_seeds_words_and_draws_need_no_jax():
    program = (
        "import sys; sys.modules['jax'] = None\n"
        "import numpy as np\n"
        "from jaxvec.random import key_words, row_words_from_seeds, uniform_rows\n"
        "words = key_words(row_words_from_seeds([1, 2, 3]))\n"
        "print(*uniform_rows(words, np.uint32(4)))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    expected = uniform_rows(row_words_from_seeds([1, 2, 3]), 4)
    np.testing.assert_array_equal(np.array(run.stdout.split(), np.float32), expected)
