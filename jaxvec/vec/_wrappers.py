"""The small wrappers of Stable-Baselines3's: images transposed, one key for the whole, bad numbers found."""

import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._images import is_channels_first, is_image_space
from jaxvec.core._observation import extract_key, transpose_image
from jaxvec.core._transform import Timestep, chain
from jaxvec.core._xp import is_integer_or_bool
from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._transform import VecTransform, obs_is_fresh


class VecTransposeImage(VecTransform):
    """Moves the channels of images to the front, `[H, W, C]` to `[C, H, W]`, as PyTorch wants them.

    Args:
      venv: the VecEnv inside; its observations are an image, or a Dict, of which all images are transposed.
      skip: leave everything as it is.
    """

    def __init__(self, venv: Any, skip: bool = False) -> None:
        space = venv.observation_space
        assert is_image_space(space) or isinstance(space, spaces.Dict), (
            f"VecTransposeImage: the observation space must be an image or dictionary, but it is {space}"
        )
        self.skip = skip
        self.image_space_keys: list[Any] = []
        if not skip:
            if isinstance(space, spaces.Dict):
                parts = space.spaces
                self.image_space_keys = [key for key in parts if is_image_space(parts[key])]
                for key in self.image_space_keys:
                    self.transpose_space(space[key], key)
            else:
                self.transpose_space(space)
        super().__init__(venv, transpose_image(skip=skip))

    @staticmethod
    def transpose_space(observation_space: Any, key: str = "") -> spaces.Box:
        """Returns the space of a transposed image; `key` is what a message calls it."""
        assert is_image_space(observation_space), (
            f"VecTransposeImage: {key} {observation_space} is no image"
        )
        assert not is_channels_first(observation_space), (
            f"VecTransposeImage: the image {key} {observation_space} must follow the channel last "
            "convention, but its smallest axis is the first. Drop the wrapper, or pass skip=True."
        )
        height, width, channels = observation_space.shape
        dtype: Any = observation_space.dtype
        return spaces.Box(0, 255, (channels, height, width), dtype)

    @staticmethod
    def transpose_image(image: Array) -> Array:
        """Returns a view on one image `[H, W, C]` or several `[N, H, W, C]` with the channels in front."""
        return np.moveaxis(image, -1, -3)

    def transpose_observations(self, observations: Obs) -> Obs:
        """Returns the observations with their images transposed; what was passed in stays as it is."""
        if self.skip:
            return observations
        if not isinstance(observations, dict):
            return self.transpose_image(observations)
        copied = deepcopy(observations)
        for key in self.image_space_keys:
            copied[key] = self.transpose_image(copied[key])
        return copied

    def _obs_is_fresh(self) -> bool:
        return obs_is_fresh(self.venv)


class VecExtractDictObs(VecTransform):
    """Takes one key of a Dict observation for the whole.

    Args:
      venv: the VecEnv inside.
      key: the key.
    """

    def __init__(self, venv: Any, key: str) -> None:
        space = venv.observation_space
        assert isinstance(space, spaces.Dict), (
            f"VecExtractDictObs can only be used with a Dict observation space, not {space}"
        )
        if key not in space.spaces:
            raise KeyError(f"VecExtractDictObs: no {key!r} among the keys {list(space.spaces)}")
        self.key = key
        super().__init__(venv, extract_key(key))

    def _obs_is_fresh(self) -> bool:
        return obs_is_fresh(self.venv)


class VecCheckNan(VecTransform):
    """Warns of NaN and infinity, or raises: in actions before they are sent, in what comes back after.

    Args:
      venv: the VecEnv inside.
      raise_exception: raise a ValueError rather than warn.
      warn_once: look no further once it has warned.
      check_inf: whether infinity counts, besides NaN.
    """

    def __init__(
        self,
        venv: Any,
        raise_exception: bool = False,
        warn_once: bool = True,
        check_inf: bool = True,
    ) -> None:
        super().__init__(venv, chain())
        if isinstance(venv.action_space, spaces.Dict):
            raise NotImplementedError(
                f"VecCheckNan doesn't support Dict action spaces, but this one is {venv.action_space}."
            )
        self.raise_exception = raise_exception
        self.warn_once = warn_once
        self.check_inf = check_inf
        self._warned = False
        self._actions: Action = None
        self._obs: Obs = None

    def check_array_value(self, name: str, value: Array) -> list[tuple[str, str]]:
        """Returns what is wrong with an array: pairs of its name and "inf" or "nan"."""
        value = np.asarray(value)
        if is_integer_or_bool(value.dtype):
            return []
        found = []
        if self.check_inf and np.isinf(value).any():
            found.append((name, "inf"))
        if np.isnan(value).any():
            found.append((name, "nan"))
        return found

    _reads = ("obs", "reward", "final_obs")

    def _before_step(self, actions: Action) -> None:
        self._check(
            {"actions": actions},
            lambda: f"RL model, which was given: \r\n\tobservations={self._obs}",
        )
        self._actions = actions

    def _after_reset(self, timestep: Timestep) -> None:
        self._obs = timestep.obs
        self._check({"observations": timestep.obs}, lambda: "environment observation (at reset)")

    def _after_step(self, timestep: Timestep) -> Timestep:
        self._obs = timestep.obs
        values = {"observations": timestep.obs, "rewards": timestep.reward}
        if timestep.final_obs is not None:
            values["terminal_observation"] = timestep.final_obs
        self._check(values, lambda: f"environment, which was given: \r\n\taction={self._actions}")
        return timestep

    def _check(self, values: dict[str, Any], origin: Any) -> None:
        if self._warned and self.warn_once and not self.raise_exception:
            return
        found = [
            f"found {what} in {where}"
            for name, tree in values.items()
            for path, value in _named_arrays(name, tree)
            for where, what in self.check_array_value(path, value)
        ]
        if not found:
            return
        message = f"{', '.join(found)}.\r\nOriginated from the {origin()}"
        if self.raise_exception:
            raise ValueError(message)
        self._warned = True
        warnings.warn(message, stacklevel=4)

    def _obs_is_fresh(self) -> bool:
        return False  # the last ones are kept for a message


def _named_arrays(name: str, tree: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _named_arrays(f"{name}.{key}", value)
    elif isinstance(tree, tuple):
        for index, value in enumerate(tree):
            yield from _named_arrays(f"{name}.{index}", value)
    elif isinstance(tree, np.ndarray | list):
        yield name, tree
    else:
        raise TypeError(
            f"VecCheckNan: {name} is of type {type(tree).__name__}, but an array, a list, a tuple or a "
            "dict with one entry for each environment is needed."
        )
