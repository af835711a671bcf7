"""Summaries of episodes against NumPy's own mean and quantiles of what a loop finds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.core._transform import Timestep

pytestmark = pytest.mark.usefixtures("quick_compilation")

LEVELS = (0.0, 0.1, 0.5, 0.77, 1.0)


def timesteps(returns, done, valid=None, xp=np):
    """Steps with episode statistics; half of those that ended were cut off."""
    returns, done = np.asarray(returns, np.float32), np.asarray(done, bool)
    cut = done & (np.arange(done.size).reshape(done.shape) % 2 == 0)
    valid = np.ones_like(done) if valid is None else np.asarray(valid)
    lengths = np.arange(done.size, dtype=np.int32).reshape(done.shape)
    columns = jax.tree.map(xp.asarray, (returns, returns, done & ~cut, cut, valid, done))
    info = {"episode": {"r": xp.asarray(returns), "l": xp.asarray(lengths)}}
    return Timestep(*columns, info=info)


def expected(values):
    return values.mean(), values.min(), values.max(), np.quantile(values, LEVELS)


@pytest.mark.parametrize("xp", [np, jnp])
@pytest.mark.parametrize("share", [0.01, 0.3, 1.0])
def test_it_says_what_numpy_says_of_the_episodes_that_ended(xp, share):
    rng = np.random.default_rng(3)
    done = rng.random((50, 8)) <= share
    steps = timesteps(rng.normal(size=done.shape), done, rng.random(done.shape) < 0.8, xp)
    summary = jaxvec.summarize_episodes(steps, LEVELS)
    ended = np.asarray(steps.done & steps.valid)
    assert summary.count == ended.sum() > 0
    for name, spread in (("r", summary.returns), ("l", summary.lengths)):
        values = np.asarray(steps.info["episode"][name])[ended]
        for found, wanted in zip(spread, expected(values), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("xp", [np, jnp])
def test_without_an_end_all_is_nan_and_the_count_is_zero(xp):
    summary = jaxvec.summarize_episodes(timesteps([1.0, 2.0], [False, False], xp=xp))
    assert summary.count == 0
    assert np.isnan(np.hstack(jax.tree.leaves(summary[1:]))).all()


@pytest.mark.parametrize("xp", [np, jnp])
def test_infinite_returns_count_and_nan_is_not_hidden(xp):
    steps = timesteps([np.inf, np.inf, 1.0, np.nan], [True, True, True, False], xp=xp)
    returns = jaxvec.summarize_episodes(steps, LEVELS).returns
    assert returns.min == 1
    np.testing.assert_array_equal(returns.quantiles[-2:], np.inf)
    returns = jaxvec.summarize_episodes(timesteps([1.0, np.nan], [True, True], xp=xp)).returns
    assert np.isnan(np.hstack(returns)).all()


def test_inside_a_scan_and_vmap_it_equals_one_call_for_each():
    env = jaxvec.wrap(
        jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), 16), jaxvec.episode_statistics()
    )
    policy = jaxvec.random_policy(env)

    def chunks(key, summarize):
        def chunk(carry, _):
            carry, (_, _, steps) = jaxvec.rollout(env, policy, None, 40, start=carry)
            return carry, summarize(steps)

        return jax.lax.scan(chunk, jaxvec.envs.begin(env, policy, key), None, 3)[1]

    keys = jax.random.split(jax.random.key(0), 2)
    inside = jax.jit(jax.vmap(lambda key: chunks(key, jaxvec.summarize_episodes)))(keys)
    kept = jax.vmap(lambda key: chunks(key, lambda steps: steps))(keys)
    for seed, chunk in np.ndindex(2, 3):
        alone = jaxvec.summarize_episodes(jax.tree.map(lambda x: x[seed, chunk], kept))  # noqa: B023
        assert alone.count > 0
        here = jax.tree.map(lambda x: x[seed, chunk], inside)  # noqa: B023
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), here, alone)


def test_what_is_missing_or_out_of_range_is_said():
    steps = timesteps([1.0], [True])
    with pytest.raises(ValueError, match=r"no 'episode'; put the layer jaxvec.episode_statistics"):
        jaxvec.summarize_episodes(steps._replace(info={}))
    for wrong in ((0.5, 1.5), (-0.1,), 0.5, (np.nan,)):
        with pytest.raises(ValueError, match="numbers from 0 to 1"):
            jaxvec.summarize_episodes(steps, wrong)
