"""The words that signatures are written in.

One set of functions serves NumPy and JAX, so `Array` means either; which one a call computes with is
decided by what it is given (see `core/_xp.py`). Nothing here imports jax.
"""

from typing import Any, TypeAlias

Array: TypeAlias = Any
"""A `numpy.ndarray` or a `jax.Array` (traced or not)."""

Key: TypeAlias = Any
"""A random key: a typed `jax.random.key`, or its raw words, uint32 `[..., 2]`."""

PyTree: TypeAlias = Any
"""Arrays in nested dicts, tuples and records."""

Obs: TypeAlias = Any
"""Observations of all environments: an array `[N, *D]`, or a dict or tuple of such."""

Action: TypeAlias = Any
"""Actions of all environments: an array `[N, *D]`, or a dict or tuple of such."""
