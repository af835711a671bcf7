"""What counts as an image, and where its channels are: decided as Stable-Baselines3 decides."""

import warnings
from typing import Any

import numpy as np
from gymnasium import spaces


def is_image_space(space: Any) -> bool:
    """Tells whether a space is an image: a Box of three axes, uint8, from 0 to 255."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and space.dtype == np.uint8
        and bool((space.low == 0).all())
        and bool((space.high == 255).all())
    )


def is_channels_first(space: spaces.Box) -> bool:
    """Tells whether the smallest axis of an image, taken for its channels, is the first.

    Warns:
      UserWarning: if the middle axis is the smallest; the image is then taken as channels-last.
    """
    smallest = int(np.argmin(space.shape))
    if smallest == 1:
        warnings.warn(
            f"The image space {space} has its smallest axis in the middle; it is treated as "
            "channels-last. Transpose it, or name the axis where that can be done "
            "(channels_order=...).",
            stacklevel=2,
        )
    return smallest == 0
