"""Marks for tests that say something about one numeric mode of JAX's; `.ci/full modes` runs under each."""

import jax
import pytest


def in_32_bits(reason: str) -> pytest.MarkDecorator:
    """Marks a test of what holds as long as `jax_enable_x64` is off; the reason says why."""
    return pytest.mark.skipif(jax.config.jax_enable_x64, reason=f"in 32 bits: {reason}")


def with_nan_allowed(reason: str) -> pytest.MarkDecorator:
    """Marks a test that makes NaN on purpose, which `jax_debug_nans` takes for a mistake."""
    return pytest.mark.skipif(jax.config.jax_debug_nans, reason=f"with NaN: {reason}")
