"""What a space becomes on a device: its dtype there, and bounds that lie in that dtype."""

from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.typing import Array


def device_dtype(space: spaces.Space[Any]) -> np.dtype[Any]:
    """Returns the dtype of a space's elements in JAX: 32 bits for 64 unless those are switched on.

    Raises:
      TypeError: if JAX has no such dtype.
    """
    import jax

    try:
        return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))
    except TypeError as error:
        raise TypeError(
            f"{space}: JAX has no dtype {space.dtype}; use float32 or float64."
        ) from error


def device_bounds(space: spaces.Space[Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Casts bounds to the dtype that JAX has for the space, without leaving the space.

    Float bounds are rounded inwards. Integer bounds that stand for "unbounded" are moved to the end
    of the narrower dtype; others must fit.

    Args:
      space: whose bounds they are, for its dtype and for the message.
      low: the least value, `[*D]`.
      high: the greatest one, `[*D]`.

    Raises:
      ValueError: if they do not fit, or no number of the narrower dtype lies between them.
    """
    dtype = device_dtype(space)
    if dtype == space.dtype and dtype.kind in "fb":
        return np.asarray(low, dtype), np.asarray(high, dtype)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # a bound beyond float32 turns infinite, then moves in
            least, most = np.asarray(low).astype(dtype), np.asarray(high).astype(dtype)
        least = np.where(least < low, np.nextafter(least, dtype.type(np.inf)), least)
        most = np.where(most > high, np.nextafter(most, dtype.type(-np.inf)), most)
        fits = np.all(least <= most)
    else:
        limits = np.iinfo(dtype)
        least, most = np.asarray(low), np.asarray(high)
        if isinstance(space, spaces.Box):
            least = np.where(space.bounded_below, least, np.maximum(least, limits.min))
            most = np.where(space.bounded_above, most, np.minimum(most, limits.max))
        fits = np.all(least >= limits.min) and np.all(most <= limits.max)
    if not fits:
        raise ValueError(
            f"{space}: its elements, from {low} to {high}, do not fit {dtype}, the dtype that JAX "
            f"has for {space.dtype} here. Switch 64 bits on (jax_enable_x64) or narrow the space."
        )
    return least.astype(dtype), most.astype(dtype)


def one_if_uniform(x: Any) -> Array:
    """Returns a scalar for an array of equal numbers: a smaller constant in the compiled code."""
    x = np.asarray(x)
    return x.reshape(-1)[0] if x.size and (x == x.reshape(-1)[0]).all() else x


def unsupported_on_device(where: str, space: Any) -> TypeError:
    """Builds the error for a space whose elements are not arrays of a fixed shape."""
    if not isinstance(space, spaces.Space):
        return TypeError(f"{where}: {space!r} is a {type(space).__name__}, not a gymnasium space.")
    return TypeError(
        f"{where}: {space} has no elements of a fixed shape. Use a Box, Discrete, MultiDiscrete, "
        "MultiBinary, or a Dict or Tuple of such."
    )
