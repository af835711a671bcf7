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

    dtype = np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))
    if dtype.itemsize > 8:
        raise TypeError(f"{space}: JAX has no dtype {dtype}; use float32.")
    return dtype


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
    low, high = np.asarray(low), np.asarray(high)
    if dtype == space.dtype:
        return low.astype(dtype), high.astype(dtype)
    least, most = bounds_within(dtype, low, high)
    if least is None:
        fits = False
    elif dtype.kind == "f":
        fits = bool(np.all(least <= most))
    else:
        free_below, free_above = (
            (~space.bounded_below, ~space.bounded_above)
            if isinstance(space, spaces.Box)
            else (False, False)
        )
        fits = bool(np.all((least == low) | free_below) and np.all((most == high) | free_above))
    if not fits:
        raise ValueError(
            f"{space}: its elements, from {low} to {high}, do not fit {dtype}, the dtype that JAX "
            f"has for {space.dtype} here. Switch 64 bits on (jax_enable_x64) or narrow the space."
        )
    return least, most


def bounds_within(dtype: np.dtype[Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Moves bounds inwards to the next numbers of a dtype; (None, None) if it has none in between.

    Args:
      dtype: float32, float64 or an integer dtype.
      low: the least value, `[*D]`, of any dtype.
      high: the greatest one, `[*D]`.
    """
    low, high = np.asarray(low), np.asarray(high)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # a bound beyond the dtype turns infinite, then moves in
            least, most = low.astype(dtype), high.astype(dtype)
        least = np.where(least < low, np.nextafter(least, dtype.type(np.inf)), least)
        return least, np.where(most > high, np.nextafter(most, dtype.type(-np.inf)), most)
    if low.dtype.kind == "f":
        low, high = np.ceil(low.astype(np.float64)), np.floor(high.astype(np.float64))
    limits = np.iinfo(dtype)
    if np.any(low > limits.max) or np.any(high < limits.min):
        return None, None
    return clipped(dtype, low), clipped(dtype, high)


def clipped(dtype: np.dtype[Any], x: Any) -> Any:
    """Casts numbers `[*D]`, infinite ones too, to an integer dtype; its ends stand for those beyond."""
    limits = np.iinfo(dtype)
    result = np.full(x.shape, limits.min, dtype)
    inside = (x > limits.min) & (x < limits.max)
    result[inside] = x[inside].astype(dtype)
    result[x >= limits.max] = limits.max
    return result


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
