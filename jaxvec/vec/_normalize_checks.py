"""What a `VecNormalize` can be put around: spaces and statistics that fit, or a message that says why not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from jaxvec.core._arguments import check_clip, check_epsilon, check_fraction

if TYPE_CHECKING:  # files are checked by it
    from jaxvec.vec._normalize_files import Saved


def check_settings(clip_obs: float, clip_reward: float, gamma: float, epsilon: float) -> None:
    """Refuses numbers that no statistics could be used with.

    Raises:
      ValueError: if one of them is NaN, out of range or no number.
    """
    check_clip("VecNormalize", "clip_obs", clip_obs)
    check_clip("VecNormalize", "clip_reward", clip_reward)
    check_fraction("VecNormalize", "gamma", gamma)
    check_epsilon("VecNormalize", "epsilon", epsilon)


def checked_keys(space: spaces.Space[Any], keys: Sequence[str] | None) -> list[str] | None:
    """Returns the keys of a Dict that are to be normalized; None for a Box.

    Args:
      space: of one observation.
      keys: as the user gave them; None for all.

    Raises:
      ValueError: if what is to be normalized is no Box, or keys are given for a Box.
      KeyError: if there is no such key.
    """
    if not isinstance(space, spaces.Dict):
        _check_plain(space, keys)
        return None
    chosen = list(space.spaces) if keys is None else list(keys)
    for key in chosen:
        if key not in space.spaces:
            raise KeyError(
                f"VecNormalize: norm_obs_keys has {key!r}, but the observation has the keys "
                f"{list(space.spaces)}"
            )
        if not isinstance(space[key], spaces.Box):
            raise ValueError(
                f"VecNormalize only supports Box spaces, but {key!r} of the observation is {space[key]}. "
                "You should explicitly pass the observation keys that are to be normalized, as "
                "norm_obs_keys=[...]."
            )
    return chosen


def _check_plain(space: spaces.Space[Any], keys: Sequence[str] | None) -> None:
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"VecNormalize only supports Box and Dict observation spaces, not {space}. Pass "
            "norm_obs=False to normalize rewards alone."
        )
    if keys is not None:
        raise ValueError(
            "VecNormalize: `norm_obs_keys` is applicable only with Dict observation spaces, but this one "
            f"is {space}. Leave it out."
        )


def check_same_shape(own: Any, other: Any) -> None:
    """Checks that two spaces have the same keys and shapes.

    Raises:
      AssertionError: if they differ.
    """
    if isinstance(own, spaces.Dict):
        same = isinstance(other, spaces.Dict) and own.spaces.keys() == other.spaces.keys()
        assert same, f"VecNormalize: spaces must have the same keys, but they are {own} and {other}"
        for key in own.spaces:
            check_same_shape(own[key], other[key])
        return
    assert own.shape == other.shape, (
        f"VecNormalize: spaces must have the same shape: {own.shape} != {other.shape}; the statistics are "
        "those of another environment"
    )


def check_fits(saved: "Saved", space: spaces.Space[Any]) -> None:
    """Checks that what was saved is of observations of such a space.

    Raises:
      AssertionError: if they have other keys or shapes.
    """
    if "observation_space" in saved.attributes:
        check_same_shape(saved.attributes["observation_space"], space)
    if saved.obs_rms is None:
        return
    found: Any = space.shape
    if isinstance(space, spaces.Dict):
        keys = saved.settings["norm_obs_keys"] or ()
        found = {key: part.shape for key, part in space.spaces.items() if key in keys}
    assert found == saved.obs_shapes, (
        f"VecNormalize: spaces must have the same shape: {saved.obs_shapes} in the file != {found} of the "
        "VecEnv"
    )
