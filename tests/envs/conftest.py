"""Fixtures for tests of compiled environments."""

import jax
import pytest


@pytest.fixture(scope="module")
def quick_compilation():
    """Compiles a module's programs in half the time, by leaving most optimizations out."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
