"""Small helpers that Stable-Baselines3's VecEnv page names: tiling, pickling by value, spaces taken apart."""

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from operator import index
from typing import Any, Literal

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
from gymnasium import spaces

from jaxvec.errors import MissingExtraError
from jaxvec.typing import Array, Obs

SeedMode = Literal["sequential", "spawn"]


def tile_images(images_nhwc: Sequence[Array] | Array) -> Array:
    """Joins N images into one picture, row by row, as near to a square as N allows.

    Args:
      images_nhwc: N images `[H, W, C]` of one shape, or an array `[N, H, W, C]`.

    Returns:
      One image `[P H, Q W, C]` with P = ceil(sqrt(N)) and Q = ceil(N / P); the cells left over are 0.

    Raises:
      ValueError: if there is no image, or one has another shape than `[H, W, C]`.
    """
    images: Array = np.asarray(images_nhwc)
    if images.ndim != 4 or len(images) == 0:
        raise ValueError(
            f"tile_images: got an array of shape {images.shape}, but N >= 1 images of one shape "
            "[H, W, C] are needed."
        )
    count, height, width, channels = images.shape
    rows = int(np.ceil(np.sqrt(count)))
    columns = int(np.ceil(count / rows))
    cells = np.zeros((rows * columns, height, width, channels), images.dtype)
    cells[:count] = images
    grid = cells.reshape(rows, columns, height, width, channels).swapaxes(1, 2)
    return grid.reshape(rows * height, columns * width, channels)


def show(picture: Array) -> None:
    """Shows an image `[H, W, 3]` in a window of OpenCV's."""
    try:
        cv2: Any = import_module("cv2")
    except ImportError as error:
        raise MissingExtraError(
            'render(mode="human") over render_mode="rgb_array" shows a window with OpenCV, which is '
            "not installed: install opencv-python, or make the environments with render_mode='human'."
        ) from error
    cv2.imshow("vecenv", picture[:, :, ::-1])
    cv2.waitKey(1)


def has_pictures(venv: Any) -> bool:
    """Tells whether environments were made to give pictures; warns where not."""
    if venv.render_mode == "rgb_array":
        return True
    warnings.warn(
        f"get_images: the environments were made with render_mode={venv.render_mode!r}; pictures need "
        "'rgb_array'.",
        stacklevel=3,
    )
    return False


def seeds_of_rows(seed: int, mode: SeedMode, rows: Sequence[int]) -> list[int | None]:
    """Returns a seed for each of some rows, see `VecEnv.seed`.

    Spawned ones overlap with those of no other `seed`; they have 63 bits, a signed word in C.
    """
    if mode == "sequential":
        return [index(seed) + row for row in rows]
    spawned = np.random.SeedSequence(seed).spawn(max(rows) + 1)
    children = [spawned[row] for row in rows]
    return [int(child.generate_state(1, np.uint64)[0]) >> 1 for child in children]


class CloudpickleWrapper:
    """Pickles what it holds by cloudpickle, so that lambdas and local classes travel to a process.

    Args:
      var: what it holds.
    """

    def __init__(self, var: Any) -> None:
        self.var = var

    def __getstate__(self) -> Any:
        return cloudpickle.dumps(self.var)

    def __setstate__(self, var: Any) -> None:
        self.var = cloudpickle.loads(var)


def obs_space_info(
    obs_space: spaces.Space[Any],
) -> tuple[list[Any], dict[Any, tuple[int, ...]], dict[Any, Any]]:
    """Returns keys, shapes and dtypes of the parts of an observation.

    Args:
      obs_space: of one environment. The keys are those of a Dict, the places in a Tuple, and the one
        key None for any other space.

    Returns:
      The list of keys, and dicts from key to shape and to dtype.

    Raises:
      NotImplementedError: if a Dict or Tuple lies in a Dict or Tuple.
    """
    parts = space_parts(obs_space)
    shapes: dict[Any, Any] = {key: part.shape for key, part in parts.items()}
    return list(parts), shapes, {key: part.dtype for key, part in parts.items()}


def space_parts(obs_space: spaces.Space[Any]) -> dict[Any, spaces.Space[Any]]:
    """Returns the parts of an observation space by key; see `obs_space_info`."""
    parts: dict[Any, spaces.Space[Any]]
    if isinstance(obs_space, spaces.Dict):
        parts = dict(obs_space.spaces)
    elif isinstance(obs_space, spaces.Tuple):
        parts = dict(enumerate(obs_space.spaces))
    else:
        return {None: obs_space}
    for key, part in parts.items():
        if isinstance(part, spaces.Dict | spaces.Tuple):
            raise NotImplementedError(
                f"The observation space has a {type(part).__name__} at {key!r}: nested observation "
                "spaces are not supported (a Dict or Tuple inside a Dict or Tuple). Flatten it, for "
                "example by gymnasium.wrappers.FlattenObservation."
            )
    return parts


def same_space(one: Any, other: Any) -> bool:
    """Tells whether two spaces are equal, also where they came from different processes.

    A custom space that cannot compare itself equals any of the same class.
    """
    if isinstance(one, spaces.Dict) and isinstance(other, spaces.Dict):
        return list(one.spaces) == list(other.spaces) and all(
            same_space(one[key], other[key]) for key in one.spaces
        )
    if isinstance(one, spaces.Tuple) and isinstance(other, spaces.Tuple):
        return len(one) == len(other) and all(map(same_space, one.spaces, other.spaces))
    if not any("__eq__" in vars(base) for base in type(one).__mro__[:-1]):
        return type(one).__qualname__ == type(other).__qualname__
    return bool(one == other)


def dict_to_obs(obs_space: spaces.Space[Any], obs_dict: Mapping[Any, Array]) -> Obs:
    """Puts the parts of an observation together again: the inverse of taking it apart by key.

    Args:
      obs_space: of one environment.
      obs_dict: key to array, with the keys of `obs_space_info`.

    Returns:
      `obs_dict` itself for a Dict, a tuple for a Tuple, otherwise the one array.

    Raises:
      AssertionError: if the keys are not those of the space.
    """
    if isinstance(obs_space, spaces.Dict):
        return obs_dict
    if isinstance(obs_space, spaces.Tuple):
        assert len(obs_dict) == len(obs_space.spaces), (
            f"dict_to_obs: {len(obs_dict)} parts for a space of {len(obs_space.spaces)}"
        )
        return tuple(obs_dict[index] for index in range(len(obs_space.spaces)))
    assert set(obs_dict) == {None}, f"dict_to_obs: keys {list(obs_dict)} for the plain {obs_space}"
    return obs_dict[None]
