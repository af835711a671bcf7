"""NaN, infinity and squares beyond float32 in what a normalization learns from: found, skipped, bounded."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import init_moments, update_moments
from jaxvec.core._checks import check_finite, raise_if_not_finite
from jaxvec.core._normalize import normalize_observation, normalize_reward
from jaxvec.core._transform import Timestep, Transform, VecSpec, chain

N = 3
BACKENDS = pytest.mark.parametrize("backend", ["numpy", "jax"])
BAD = pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])


def timestep(obs: Any, reward: Any = (0, 0, 0), *, first: bool = False) -> Timestep:
    obs, no = np.float32(obs), np.zeros(N, bool)
    return Timestep(obs, np.float32(reward), no, no, ~no, no | first, obs)


def run(layer: Transform, backend: str, steps: list[Timestep]) -> tuple[Any, list[Timestep]]:
    """Returns the last state and what left, the first of the steps as a reset."""
    space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    spec = VecSpec(N, space, spaces.Discrete(2), backend=backend)  # type: ignore[arg-type]
    given = jax.tree.map(jnp.asarray, steps) if backend == "jax" else steps
    update = jax.jit(layer.update) if backend == "jax" else layer.update
    state, out = layer.reset(layer.init(spec, None), given[0], None)
    left = [out]
    for each in given[1:]:
        # The host's form: no final observations where no row ended.
        state, out = update(state, each._replace(final_obs=None) if backend == "numpy" else each)
        left.append(out)
    return layer.end_rollout(state), left


def plain(seed: int = 0, steps: int = 5) -> list[Timestep]:
    rng = np.random.default_rng(seed)
    return [timestep(rng.normal(2, 3, (N, 2)), rng.normal(1, 2, N)) for _ in range(steps)]


def with_bad(steps: list[Timestep], bad: float) -> list[Timestep]:
    """Puts a bad number into row 1 of the third step: of its observation and its reward."""
    obs, reward = steps[2].obs.copy(), steps[2].reward.copy()
    obs[1, 0] = reward[1] = bad
    return [*steps[:2], steps[2]._replace(obs=obs, final_obs=obs, reward=reward), *steps[3:]]


@BACKENDS
@BAD
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_below_the_normalization_the_row_is_flagged_before_it_poisons_all(
    backend: str, bad: float
) -> None:
    steps = with_bad(plain(), bad)
    _, left = run(chain(check_finite(), normalize_observation()), backend, steps)
    np.testing.assert_array_equal(left[2].info["non_finite"]["obs"], [False, True, False])
    assert not any(np.asarray(out.info["non_finite"]["obs"]).any() for out in left[:2])
    # From then on all rows are lost, which is why the flag must be raised at once.
    assert np.isnan(np.asarray(left[4].obs)[:, 0]).all()
    with pytest.raises(ValueError, match="row 1"):
        raise_if_not_finite(left[2])
    _, above = run(chain(normalize_observation(), check_finite()), backend, steps)
    np.testing.assert_array_equal(above[4].info["non_finite"]["obs"], [True, True, True])


@BACKENDS
@BAD
@pytest.mark.parametrize("update", ["step", "rollout"])
def test_rows_that_are_skipped_leave_no_trace_in_the_statistics(
    backend: str, bad: float, update: Any
) -> None:
    layer = normalize_observation(skip_non_finite=True, update=update)
    state, left = run(layer, backend, with_bad(plain(), bad))
    moments = state.statistics.moments
    seen = np.concatenate([step.obs for step in plain()])
    kept = np.delete(seen, 2 * N + 1, axis=0)
    weight = len(kept) + 1e-4
    np.testing.assert_allclose(moments.count, weight, rtol=1e-6)
    np.testing.assert_allclose(moments.mean, kept.sum(0) / weight, rtol=1e-5)
    assert np.isfinite(np.delete(np.asarray(left[2].obs), 1, axis=0)).all()
    assert not np.isfinite(np.asarray(left[2].obs)[1, 0]) or np.isinf(bad)  # it still leaves
    assert all(np.isfinite(out.obs).all() for out in left[3:])


@BACKENDS
@BAD
def test_returns_that_are_skipped_leave_no_trace_in_the_statistics(
    backend: str, bad: float
) -> None:
    steps = with_bad(plain(), bad)
    layer = normalize_reward(skip_non_finite=True)
    state, left = run(layer, backend, [*steps, *plain(1)])
    assert all(np.isfinite(field).all() for field in state.statistics.moments)
    # Row 1 is not counted again until its episode ends.
    assert float(state.statistics.moments.count) == pytest.approx(1 * N + 8 * (N - 1) + 1e-4)
    assert np.isfinite(np.asarray(left[-1].reward)).all()


@BACKENDS
@BAD
@pytest.mark.parametrize("learnt", [0, 1, 5])
@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_bad_sample_is_never_hidden_by_the_bound_of_the_variance(
    backend: str, bad: float, learnt: int, row: int, masked: bool
) -> None:
    xp = np if backend == "numpy" else jnp
    moments, batch = init_moments((2,), backend), np.random.default_rng(0).normal(size=(N, 2))
    for _ in range(learnt):
        moments = update_moments(moments, xp.asarray(batch))
    batch[row, 1] = bad
    moments = update_moments(moments, xp.asarray(batch), xp.ones(N, bool) if masked else None)
    assert np.isfinite(moments.mean[0])
    assert np.isfinite(moments.var[0])
    assert not np.isfinite(moments.mean[1])
    assert np.isnan(moments.var[1])


@BACKENDS
@pytest.mark.parametrize("make", [normalize_observation, normalize_reward], ids=["obs", "reward"])
def test_nothing_changes_where_all_is_finite(backend: str, make: Any) -> None:
    _, wanted = run(make(), backend, plain())
    _, found = run(make(skip_non_finite=True), backend, plain())
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine.obs, theirs.obs, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(mine.reward, theirs.reward, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("update", ["step", "rollout"])
@pytest.mark.parametrize(
    "make", [normalize_observation, partial(normalize_reward, gamma=0.5)], ids=["obs", "reward"]
)
def test_finite_numbers_whose_squares_float32_cannot_hold_never_become_nan(
    make: Any, update: Any
) -> None:
    large = [timestep(step.obs * 1e25, step.reward * 1e25) for step in plain()]
    state, left = run(make(update=update), "jax", [*large, *plain(1), *large])
    assert all(np.isfinite(field).all() for field in state.statistics.moments)
    assert (np.asarray(state.statistics.moments.var) > 1e37).all()
    for out in left:
        assert np.isfinite(out.obs).all()
        assert np.isfinite(out.reward).all()


@BACKENDS
def test_an_observation_without_numbers_is_normalized_to_itself(backend: str) -> None:
    space = spaces.Dict(empty=spaces.Box(-1, 1, (0,)), full=spaces.Box(-1, 1, (2,)))
    layer = normalize_observation()
    spec = VecSpec(N, space, spaces.Discrete(2), backend=backend)  # type: ignore[arg-type]
    step = plain(steps=1)[0]
    obs = {"empty": np.zeros((N, 0), np.float32), "full": step.obs}
    step = step._replace(obs=obs, final_obs=None if backend == "numpy" else obs)
    step = jax.tree.map(jnp.asarray, step) if backend == "jax" else step
    state, _ = layer.reset(layer.init(spec, None), step, None)
    state, out = layer.update(state, step)
    assert out.obs["empty"].shape == (N, 0)
    assert out.obs["empty"].dtype == np.float32
    assert layer.spec(spec).observation_space["empty"].shape == (0,)
    counts = {key: float(each.moments.count) for key, each in state.statistics.items()}
    assert counts["empty"] == pytest.approx(counts["full"])
