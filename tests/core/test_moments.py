"""Moments: Stable-Baselines3's bits on the host, float64's digits on the device."""

from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxvec.core._device_moments import two_sum
from jaxvec.core._host_moments import EXACT_IN_FLOAT32
from jaxvec.core._moments import (
    PRIOR_COUNT,
    RunningMoments,
    init_moments,
    merge_moments,
    merge_rows,
    scale_by_std,
    standardize,
    unstandardize,
    update_moments,
)
from tests.modes import in_32_bits

update_on_device = jax.jit(update_moments)


def no_samples(shape: tuple[int, ...], backend: str = "numpy") -> RunningMoments:
    """Moments without samples and without a prior: what comes in is all there is."""
    prior = init_moments(shape, backend)
    return RunningMoments(*(field * 0 for field in prior))


def exactly(values: Any) -> RunningMoments:
    """The moments of a set of samples, `[B, *D]`, in float64."""
    values = np.asarray(values, np.float64)
    zero = np.zeros(values.shape[1:])
    count = np.float64(len(values))
    return RunningMoments(values.mean(0), values.var(0), count, zero, zero, np.float64(0))


def pair(high: Any, low: Any) -> np.ndarray:
    return np.asarray(high, np.float64) + np.asarray(low, np.float64)


def value(moments: RunningMoments) -> RunningMoments:
    """A device's moments as float64: both words."""
    zero = np.zeros(np.shape(moments.mean))
    return RunningMoments(
        pair(moments.mean, moments.mean_low),
        pair(moments.var, moments.var_low),
        pair(moments.count, moments.count_low),
        zero,
        zero,
        np.float64(0),
    )


def on_device(moments: RunningMoments) -> RunningMoments:
    """The nearest pairs of float32."""
    words: list[Any] = []
    for field in moments[:3]:
        high = np.asarray(field, np.float32)
        words.append((high, np.float32(np.asarray(field, np.float64) - high)))
    highs, lows = zip(*words, strict=True)
    return RunningMoments(*map(jnp.asarray, (*highs, *lows)))


def assert_near(
    got: RunningMoments, want: RunningMoments, *, mean: float = 1e-6, var: float = 1e-5
) -> None:
    """`mean` in standard deviations, `var` relative."""
    std = np.sqrt(want.var)
    np.testing.assert_array_less(np.abs(value(got).mean - want.mean), mean * std + 1e-300)
    np.testing.assert_array_less(np.abs(value(got).var - want.var), var * want.var + 1e-300)
    np.testing.assert_allclose(value(got).count, want.count, rtol=1e-13)


# --- The host: Stable-Baselines3's class is the oracle -------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 7, 128, EXACT_IN_FLOAT32])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.int32])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_numpy_moments_are_stable_baselines3s_to_the_last_bit(
    shape: tuple[int, ...], dtype: Any, rows: int
) -> None:
    running_mean_std = pytest.importorskip("stable_baselines3.common.running_mean_std")

    rng = np.random.default_rng(rows)
    oracle, moments = running_mean_std.RunningMeanStd(shape=shape), init_moments(shape, "numpy")
    for _ in range(20):
        batch = rng.normal(100, 30, (rows, *shape)).astype(dtype)
        oracle.update(batch)
        moments = update_moments(moments, batch)
        assert np.array_equal(moments.mean, oracle.mean)
        assert np.array_equal(moments.var, oracle.var)
        assert moments.count == oracle.count
    assert moments.mean.dtype == moments.var.dtype == np.float64
    assert not any(np.any(low) for low in moments[3:])


def test_sb3_combine_and_merge_moments_give_the_same_bits() -> None:
    running_mean_std = pytest.importorskip("stable_baselines3.common.running_mean_std")

    rng = np.random.default_rng(0)
    batches = rng.normal(5, 2, (2, 64, 3))
    oracles = [running_mean_std.RunningMeanStd(shape=(3,)) for _ in batches]
    for oracle, batch in zip(oracles, batches, strict=True):
        oracle.update(batch)
    oracles[0].combine(oracles[1])
    mine = merge_moments(*(update_moments(init_moments((3,), "numpy"), b) for b in batches))
    assert np.array_equal(mine.mean, oracles[0].mean)
    assert np.array_equal(mine.var, oracles[0].var)
    assert mine.count == oracles[0].count


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_the_first_batch_is_biased_by_the_prior_as_in_sb3(backend: str) -> None:
    moments = init_moments((2,), backend)
    batch = np.array([[1, 2], [3, 6]], np.float32)
    moments = update_moments(moments, batch if backend == "numpy" else jnp.asarray(batch))
    np.testing.assert_allclose(value(moments).mean, [1.9999, 3.9998001], rtol=1e-7)
    np.testing.assert_allclose(value(moments).var, [1.00019998, 4.00064993], rtol=1e-7)
    np.testing.assert_allclose(value(moments).count, 2.0001, rtol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_large_constant_keeps_the_variance_that_the_prior_gives_it(backend: str) -> None:
    batch = np.full(100, 1e6, np.float32)
    batch = batch if backend == "numpy" else jnp.asarray(batch)
    moments = update_moments(init_moments((), backend), batch)
    np.testing.assert_allclose(value(moments).var, 999998.0, rtol=1e-6)


@pytest.mark.parametrize("mean", [100, 1e4])
def test_numpy_batches_beyond_sb3s_accuracy_are_summed_in_float64(mean: float) -> None:
    batch = np.random.default_rng(0).normal(mean, 1, (65536, 2)).astype(np.float32)
    moments = update_moments(init_moments((2,), "numpy"), batch)
    want = update_moments(init_moments((2,), "numpy"), batch.astype(np.float64))
    np.testing.assert_allclose(moments.mean, want.mean, rtol=1e-14)
    np.testing.assert_allclose(moments.var, want.var, rtol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_float16_batches_are_not_summed_in_float16(backend: str) -> None:
    # 60000 is near float16's end: its own sums and squares would be infinite.
    batch = np.random.default_rng(0).normal(6e4, 64, (512, 3)).astype(np.float16)
    want = update_moments(no_samples((3,)), batch.astype(np.float64))
    xp: Any = np if backend == "numpy" else jnp
    got = update_moments(no_samples((3,), backend), xp.asarray(batch))
    np.testing.assert_allclose(value(got).mean, want.mean, rtol=1e-7)
    np.testing.assert_allclose(value(got).var, want.var, rtol=1e-5)


# --- The device: float64 is the oracle -----------------------------------------------------------

LIMITS = pytest.mark.parametrize(
    ("mean", "var_limit"), [(0, 1e-5), (100, 1e-5), (-100, 1e-5), (1e4, 1e-2)]
)


def scan_updates(moments: RunningMoments, batches: Any) -> RunningMoments:
    """Updates by `[T, B, *D]`, in one compiled loop."""

    def body(moments: RunningMoments, batch: Any) -> tuple[RunningMoments, None]:
        return update_moments(moments, batch), None

    return jax.jit(lambda *args: jax.lax.scan(body, *args)[0])(moments, jnp.asarray(batches))


@LIMITS
def test_float32_moments_stay_right_at_a_count_of_1e9(mean: float, var_limit: float) -> None:
    rng = np.random.default_rng(1)
    start = RunningMoments(
        np.array([mean - 0.3, mean + 0.1]),
        np.array([1.1, 0.9]),
        np.float64(1e9),
        *[np.zeros(2)] * 3,
    )
    start = start._replace(count_low=np.float64(0))
    batches = rng.normal(mean, 1, (200, 4096, 2)).astype(np.float32)
    want = start
    for batch in batches:
        want = update_moments(want, batch.astype(np.float64))
    assert_near(scan_updates(on_device(start), batches), want, var=var_limit)


@LIMITS
def test_a_million_updates_of_one_row_stay_right(mean: float, var_limit: float) -> None:
    stream = np.random.default_rng(2).normal(mean, 1, 1_000_000).astype(np.float32)
    want = update_moments(init_moments((), "numpy"), stream.astype(np.float64))
    assert_near(scan_updates(init_moments(()), stream[:, None]), want, var=var_limit)


@LIMITS
def test_1e9_samples_in_a_million_merges_stay_right(mean: float, var_limit: float) -> None:
    # Eight sets of 1000 samples with different moments, merged in turn: their truth is known exactly.
    sets = np.random.default_rng(3).normal(mean, 1, (8, 1000)).astype(np.float32)
    sets[::2] += np.float32(0.5)
    parts = [on_device(exactly(samples)) for samples in sets]
    table = jax.tree.map(lambda *fields: jnp.stack(fields), *parts)

    def body(turn: Any, moments: RunningMoments) -> RunningMoments:
        return merge_moments(moments, jax.tree.map(lambda field: field[turn % 8], table))

    run = jax.jit(lambda moments: jax.lax.fori_loop(0, 1_000_000, body, moments))
    whole = exactly(sets.ravel())._replace(count=np.float64(1e9))
    assert_near(
        run(init_moments(())), merge_moments(init_moments((), "numpy"), whole), var=var_limit
    )


@LIMITS
@pytest.mark.parametrize("rows", [1, 128, 65536])
def test_batches_of_any_size_stay_right(rows: int, mean: float, var_limit: float) -> None:
    rng = np.random.default_rng(rows)
    want, got = init_moments((3,), "numpy"), init_moments((3,))
    for _ in range(64 if rows < 1000 else 4):
        batch = rng.normal(mean, 1, (rows, 3)).astype(np.float32)
        want = update_moments(want, batch.astype(np.float64))
        got = update_on_device(got, batch)
    # So few samples do not average out the roundings of 1e4, whose float32 unit is 1e-3 deviations.
    assert_near(got, want, mean=1e-6 if mean == 0 else 3e-4, var=var_limit)


@pytest.mark.parametrize("shape", [(), (4,), (200,)])
@pytest.mark.parametrize("row", [0, -1])
def test_one_row_far_from_all_others_does_not_cost_the_others_digits(
    row: int, shape: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(9)
    batches = rng.normal(100, 1, (3, 16384, *shape)).astype(np.float32)
    batches[1:, row] += np.float32(1000)  # environment 0 is another one than the others
    want, got = init_moments(shape, "numpy"), init_moments(shape)
    for batch in batches:
        want = update_moments(want, batch.astype(np.float64))
        got = update_on_device(got, batch)
    assert_near(got, want)


def test_a_constant_stream_has_the_variance_that_is_left_of_the_prior() -> None:
    constant, updates = np.float32(3.3), 100_000
    moments = scan_updates(init_moments(()), np.full((updates, 16), constant))
    want = update_moments(init_moments((), "numpy"), np.full(updates * 16, constant, np.float64))
    np.testing.assert_allclose(value(moments).mean, want.mean, rtol=1e-9)
    # From 1 to 7e-10, far below the epsilon of 1e-8 that is added to it.
    np.testing.assert_allclose(value(moments).var, want.var, rtol=1e-3)
    assert moments.var >= 0


def test_images_are_averaged_as_numbers_not_as_bytes() -> None:
    batches = np.random.default_rng(4).integers(0, 256, (50, 64, 4, 5, 3), dtype=np.uint8)
    want = init_moments((4, 5, 3), "numpy")
    for batch in batches:
        want = update_moments(want, batch)
    assert_near(scan_updates(init_moments((4, 5, 3)), batches), want)


def test_the_mean_still_moves_where_one_update_is_below_its_last_digit() -> None:
    start = exactly(np.full(2, 100.0))._replace(count=np.float64(1e9), var=np.float64(1))
    moments = scan_updates(on_device(start), np.full((100_000, 1), 101, np.float32))
    want = 100 + 1e5 / (
        1e9 + 1e5
    )  # in plain float32 it would stay at 100: its unit there is 7.6e-6
    np.testing.assert_allclose(value(moments).mean, want, rtol=0, atol=1e-9)


# --- Counts --------------------------------------------------------------------------------------


def test_the_prior_of_1e_4_samples_survives_in_a_count_of_67109864() -> None:
    batch = jnp.zeros(64)

    def body(_: Any, moments: RunningMoments) -> RunningMoments:
        return update_moments(moments, batch)

    moments = jax.jit(lambda m: jax.lax.fori_loop(0, 2**20, body, m))(init_moments(()))
    moments = update_moments(moments, jnp.zeros(1000))
    assert abs(value(moments).count - 67109864.0001) < 1e-6


def test_a_count_of_2_to_the_24_grows_by_one() -> None:
    start = exactly(np.zeros(2))._replace(count=np.float64(2**24), var=np.float64(1))
    moments = update_on_device(on_device(start), jnp.ones(1))
    assert value(moments).count == 2**24 + 1
    moments = update_on_device(on_device(start), jnp.ones(4096))
    assert value(moments).count == 2**24 + 4096
    np.testing.assert_allclose(value(moments).mean, 4096 / (2**24 + 4096), rtol=1e-6)


def test_merged_counts_lose_no_sample() -> None:
    half = exactly(np.zeros(2))._replace(count=np.float64(2**24 + 1))
    assert value(jax.jit(merge_moments)(on_device(half), on_device(half))).count == 2**25 + 2


def test_a_count_of_1e13_still_grows_by_one_and_the_variance_is_finite() -> None:
    start = exactly(np.zeros(2))._replace(count=np.float64(1e13), var=np.float64(1e20))
    moments = scan_updates(on_device(start), np.ones((1000, 1), np.float32))
    assert value(moments).count == 1e13 + 1000
    np.testing.assert_allclose(value(moments).var, 1e20, rtol=1e-6)


# --- Merging -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
    mean=st.sampled_from([0.0, 100.0, -1e4]),
)
def test_sets_merged_in_any_order_equal_one_pass(sizes: list[int], order: Any, mean: float) -> None:
    samples = np.random.default_rng(sum(sizes)).normal(mean, 3, (sum(sizes), 2))
    parts = [
        update_moments(no_samples((2,)), part) for part in np.split(samples, np.cumsum(sizes)[:-1])
    ]
    while len(parts) > 1:
        order.shuffle(parts)
        parts.append(merge_moments(parts.pop(), parts.pop()))
    want = exactly(samples)
    assert parts[0].count == len(samples)
    np.testing.assert_allclose(parts[0].mean, want.mean, rtol=1e-12)
    np.testing.assert_allclose(parts[0].var, want.var, rtol=1e-8, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(counts=st.lists(st.integers(0, 30), min_size=1, max_size=8), mean=st.sampled_from([0, 100]))
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_merged_rows_equal_one_pass_over_all_of_them(
    backend: str, counts: list[int], mean: float
) -> None:
    rng = np.random.default_rng(len(counts))
    rows = [rng.normal(mean, 3, (count, 2)) for count in counts]
    sets = [exactly(row) if len(row) else no_samples((2,)) for row in rows]
    stacked = RunningMoments(*(np.stack(fields) for fields in zip(*sets, strict=True)))
    start = update_moments(init_moments((2,), "numpy"), rng.normal(mean, 1, (16, 2)))
    everything = np.concatenate(rows)
    want = update_moments(start, everything) if len(everything) else start
    if backend == "numpy":
        got = merge_rows(start, stacked)
    else:
        got = merge_rows(on_device(start), RunningMoments(*map(np.float32, stacked)))
    assert_near(got, want, mean=1e-12 if backend == "numpy" else 1e-5, var=1e-5)


def test_merged_sets_keep_their_priors() -> None:
    one = update_moments(init_moments((), "numpy"), np.array([1.0, 2.0]))
    two = update_moments(init_moments((), "numpy"), np.array([4.0]))
    np.testing.assert_allclose(merge_moments(one, two).count, 3 + 2 * PRIOR_COUNT, rtol=1e-15)


def test_device_moments_merge_as_their_two_words() -> None:
    one, two = exactly([1.0, 3.0]), exactly([7.0])
    one = one._replace(count=one.count * 2**25 + 1)
    got = jax.jit(merge_moments)(on_device(one), on_device(two))
    assert_near(got, merge_moments(one, two))


def test_two_devices_with_equal_rows_each_have_the_variance_between_them() -> None:
    batch = np.float32([0, 0, 2, 2])  # variance 0 on each device, 1 over both
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("env",))
    sharded = jax.device_put(batch, NamedSharding(mesh, PartitionSpec("env")))
    moments = update_on_device(no_samples((), "jax"), sharded)
    assert (value(moments).mean, value(moments).var, value(moments).count) == (1, 1, 4)
    rows = RunningMoments(*np.float32([[0, 2], [0, 0], [2, 2], [0, 0], [0, 0], [0, 0]]))
    sharded = jax.device_put(rows, NamedSharding(mesh, PartitionSpec("env")))
    moments = jax.jit(merge_rows)(no_samples((), "jax"), sharded)
    assert (value(moments).mean, value(moments).var, value(moments).count) == (1, 1, 4)


# --- Masks and shapes ----------------------------------------------------------------------------


@settings(deadline=None, max_examples=40)
@given(mask=st.lists(st.booleans(), min_size=6, max_size=6))
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_masked_rows_count_as_if_they_were_not_there(backend: str, mask: list[bool]) -> None:
    keep = np.array(mask)
    batch = np.random.default_rng(5).normal(10, 2, (6, 3)).astype(np.float32)
    batch[~keep] = np.tile(np.float32([np.nan, np.inf, -np.inf]), (6, 1))[~keep]
    start = update_moments(init_moments((3,), "numpy"), np.float64([[9, 10, 11]]))
    want = update_moments(start, batch[keep].astype(np.float64)) if keep.any() else start
    if backend == "numpy":
        got = update_moments(start, batch, keep)
    else:
        got = update_on_device(on_device(start), batch, keep)
    assert_near(got, want, mean=1e-5)
    if not keep.any():  # to the last bit
        before = start if backend == "numpy" else on_device(start)
        assert all(np.array_equal(x, y) for x, y in zip(got, before, strict=True))


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 3, 1), (0, 3), (3,), ()])
def test_a_batch_of_another_shape_is_refused(backend: str, shape: tuple[int, ...]) -> None:
    xp: Any = np if backend == "numpy" else jnp
    with pytest.raises(
        ValueError, match=r"shape .* but one sample of these moments has shape \(3,\)"
    ):
        update_moments(init_moments((3,), backend), xp.zeros(shape))


@in_32_bits("with 64 moments on a device are float64")
def test_the_shape_of_moments_is_that_of_one_sample() -> None:
    moments = update_on_device(init_moments((3, 2)), jnp.zeros((64, 3, 2)))
    assert moments.mean.shape == moments.var.shape == (3, 2)
    assert moments.count.shape == ()
    assert all(field.dtype == np.float32 for field in moments)


def test_a_device_set_merged_into_a_host_set_stays_float64() -> None:
    batch = np.random.default_rng(0).normal(1e4, 1, (512, 3))
    host = update_moments(init_moments((3,), "numpy"), batch)
    device = update_moments(init_moments((3,), "jax"), jnp.asarray(batch, jnp.float32))
    merged = merge_moments(host, device)
    as_host = RunningMoments._make(np.asarray(leaf, np.float64) for leaf in device)
    for leaf, wanted in zip(merged, merge_moments(host, as_host), strict=True):
        assert isinstance(leaf, np.ndarray | np.float64)
        assert leaf.dtype == np.float64
        np.testing.assert_array_equal(leaf, wanted)


# --- 64 bits on the device -----------------------------------------------------------------------


def test_with_x64_low_words_are_zero_and_merges_equal_numpys() -> None:
    rng = np.random.default_rng(6)
    with jax.enable_x64(True):
        got, want = init_moments((3,)), init_moments((3,), "numpy")
        assert got.mean.dtype == np.float64
        for _ in range(50):
            samples = exactly(rng.normal(100, 7, (64, 3)))
            got = merge_moments(got, RunningMoments(*map(jnp.asarray, samples)))
            want = merge_moments(want, samples)
        np.testing.assert_allclose(got.mean, want.mean, rtol=1e-15)
        np.testing.assert_allclose(got.var, want.var, rtol=1e-14)
        assert float(got.count) == float(want.count)
        for low in got[3:]:
            assert not np.any(low)


def test_with_x64_compiled_updates_differ_from_numpys_by_roundings_only() -> None:
    rng = np.random.default_rng(7)
    with jax.enable_x64(True):
        got, want = init_moments((3,)), init_moments((3,), "numpy")
        for _ in range(50):
            batch = rng.normal(100, 7, (64, 3))
            got, want = update_on_device(got, batch), update_moments(want, batch)
        np.testing.assert_allclose(got.mean, want.mean, rtol=1e-14)
        np.testing.assert_allclose(got.var, want.var, rtol=1e-12)
        assert float(got.count) == float(want.count)


# --- Using them ----------------------------------------------------------------------------------

KNOWN = RunningMoments(
    np.array([255.0, 1.0]), np.array([4.0, 0.25]), np.float64(9), *[np.zeros(2)] * 2, np.float64(0)
)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_bytes_are_cast_before_they_are_subtracted(backend: str) -> None:
    xp, moments = (np, KNOWN) if backend == "numpy" else (jnp, on_device(KNOWN))
    scaled = standardize(xp.asarray([[250, 0], [255, 3]], dtype=np.uint8), moments)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled, [[-2.5, -2], [0, 4]], rtol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_scaled_values_are_clipped_and_rewards_keep_their_mean(backend: str) -> None:
    xp, moments = (np, KNOWN) if backend == "numpy" else (jnp, on_device(KNOWN))
    x = xp.asarray([[300.0, -9.0]], dtype=np.float32)
    np.testing.assert_allclose(standardize(x, moments, clip=10), [[10, -10]])
    np.testing.assert_allclose(standardize(x, moments), [[22.5, -20]], rtol=1e-6)
    np.testing.assert_allclose(scale_by_std(x, moments, clip=20), [[20, -18]], rtol=1e-6)
    assert scale_by_std(x, moments).dtype == np.float32


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_unstandardize_is_the_inverse_of_standardize(backend: str) -> None:
    xp, moments = (np, KNOWN) if backend == "numpy" else (jnp, on_device(KNOWN))
    x = np.random.default_rng(8).normal(200, 50, (20, 2)).astype(np.float32)
    back = unstandardize(standardize(xp.asarray(x), moments), moments)
    np.testing.assert_allclose(back, x, rtol=1e-6, atol=1e-4)
    assert back.dtype == moments.mean.dtype


def test_the_epsilon_stands_under_the_root() -> None:
    moments = exactly(np.zeros((2, 1)))
    np.testing.assert_allclose(standardize(np.array([[1.0]]), moments, epsilon=0.25), [[2.0]])


def test_a_value_near_the_mean_sees_the_means_low_word() -> None:
    mean = 1e4 + 2.0**-13  # half a unit of float32 off 1e4
    moments = on_device(exactly([[mean], [mean]])._replace(var=np.ones(1)))
    scaled = jax.jit(standardize)(jnp.full((1, 1), 1e4), moments)
    np.testing.assert_allclose(scaled, -(2.0**-13), rtol=1e-3)


floats = st.floats(-(2.0**90), 2.0**90, width=32).filter(lambda x: x == 0 or abs(x) > 1e-25)


@settings(deadline=None, max_examples=200)
@given(floats, floats)
@pytest.mark.parametrize("function", [two_sum, jax.jit(two_sum)], ids=["numpy", "jax"])
def test_two_sum_loses_nothing(function: Any, a: float, b: float) -> None:
    total, lost = function(np.float32(a), np.float32(b))
    assert total == np.float32(a) + np.float32(b)
    assert Fraction(float(total)) + Fraction(float(lost)) == Fraction(a) + Fraction(b)


def test_nothing_is_written_into_the_moments_or_the_batch() -> None:
    moments = RunningMoments(*(np.array(field) for field in exactly(np.ones((2, 3)))))
    batch, mask = np.ones((4, 3)), np.array([True, False, True, True])
    for array in (*moments, batch, mask):
        array.flags.writeable = False
    update_moments(moments, batch, mask)
    merge_moments(moments, moments)
    standardize(batch, moments, clip=1)


@pytest.mark.parametrize("batch", ["narrow", "constant", "zeros", "four zeros"])
def test_the_first_batch_leaves_nothing_of_the_prior_but_its_weight(batch: str) -> None:
    rows = {
        "narrow": np.random.default_rng(0).normal(0, 1e-3, 2048),
        "constant": np.full(2048, 3.3),
        "zeros": np.zeros(2048),
        "four zeros": np.zeros(4),
    }[batch].astype(np.float32)
    moments = jax.jit(update_moments)(init_moments(()), rows)
    want = update_moments(init_moments((), "numpy"), rows.astype(np.float64))
    np.testing.assert_allclose(value(moments).var, want.var, rtol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e12, 1e18])
def test_large_samples_give_float64s_moments_where_float32_holds_the_variance(scale: float) -> None:
    rng = np.random.default_rng(5)
    host, device = init_moments((2,), "numpy"), init_moments((2,), "jax")
    for _ in range(6):
        batch = (rng.normal(1, 1, (64, 2)) * scale).astype(np.float32)
        host = update_moments(host, batch.astype(np.float64))
        device = update_on_device(device, batch)
    np.testing.assert_allclose(device.mean, host.mean, rtol=1e-5)
    np.testing.assert_allclose(device.var, host.var, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e20, 1e25, 1e30, 1e34])
@pytest.mark.parametrize("masked", [False, True])
def test_finite_samples_never_give_nan_though_their_squares_are_infinite(
    scale: float, masked: bool
) -> None:
    rng = np.random.default_rng(6)
    host, device = init_moments((2,), "numpy"), init_moments((2,), "jax")
    mask = rng.random(64) < 0.5 if masked else np.ones(64, bool)
    for factor in (scale, scale, 1.0, -scale, 0.0):
        batch = (rng.normal(1, 1, (64, 2)) * factor).astype(np.float32)
        host = update_moments(host, batch.astype(np.float64), mask)
        device = update_on_device(device, batch, mask if masked else None)
        assert all(np.isfinite(field).all() for field in device)
    np.testing.assert_allclose(device.mean, host.mean, rtol=1e-5)
    assert (np.asarray(device.var) > 1e37).all()  # float32 ends at 3.4e38
    assert np.isfinite(standardize(jnp.full(2, scale, jnp.float32), device)).all()
    merged = merge_moments(device, device)
    assert all(np.isfinite(field).all() for field in merged)


@in_32_bits("a float64 variance does not end there")
def test_a_float32_variance_that_ended_comes_down_again() -> None:
    moments = update_on_device(init_moments((1,), "jax"), np.float32([[1e25], [-1e25]]))
    rng = np.random.default_rng(7)
    for _ in range(50):
        moments = update_on_device(moments, rng.normal(0, 1, (4096, 1)).astype(np.float32))
    assert np.isfinite(moments.var).all()
    assert float(moments.var[0]) < 1e36


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_samples_without_numbers_are_counted(backend: str) -> None:
    batch, mask = np.zeros((3, 0), np.float32), np.array([True, False, True])
    moments = update_moments(init_moments((0,), backend), batch)
    assert float(moments.count) == pytest.approx(3.0001)
    moments = update_moments(moments, batch, mask)
    assert float(moments.count) == pytest.approx(5.0001)
    assert moments.mean.shape == moments.var.shape == (0,)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_every_word_of_fresh_moments_is_a_buffer_of_its_own(backend):
    fields = init_moments((2,), backend)
    if backend == "numpy":
        assert not any(
            np.shares_memory(one, other)
            for index, one in enumerate(fields)
            for other in fields[:index]
        )
    else:  # JAX refuses to overwrite one buffer twice
        updated = jax.jit(update_moments, donate_argnums=0)(fields, jnp.ones((4, 2)))
        assert float(updated.count) == pytest.approx(4.0001)
