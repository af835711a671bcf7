"""The numbers of a `VecNormalize` in a compiled run: they lie on the device, and are read and set here."""

from typing import Any

import numpy as np

from jaxvec.core._moments import RunningMoments
from jaxvec.core._statistics import Statistics
from jaxvec.core._xp import map_obs
from jaxvec.typing import Array, Obs, PyTree
from jaxvec.vec._mean_std import RunningMeanStd, words_of


class DeviceMeanStd(RunningMeanStd):
    """Moments that lie in a state on the device.

    What is read is float64 and of now, fetched once a step; what is assigned or updated is written there. A
    copy is an ordinary `RunningMeanStd`, which stays as it is.

    Args:
      packed: the state.
      places: the moments' places in it.
    """

    def __init__(self, packed: Any, places: RunningMoments) -> None:
        self._packed = packed
        self._places = places
        self._read: tuple[Any, RunningMoments] | None = None

    @property
    def moments(self) -> RunningMoments:
        """The moments in float64; their low words are 0."""
        if self._read is None or self._read[0] is not self._packed.buffers:
            found = RunningMoments(*map(self._packed.leaf, self._places))
            self._read = self._packed.buffers, _float64(found)
        return self._read[1]

    @moments.setter
    def moments(self, moments: RunningMoments) -> None:
        moments = _float64(moments)
        for name in ("mean", "var", "count"):
            place = getattr(self._places, name)
            dtype = self._packed.layout.slots[place].dtype
            high, low = words_of(getattr(moments, name), np.zeros((), dtype))
            self._packed.put(place, high)
            self._packed.put(getattr(self._places, f"{name}_low"), low)

    def __reduce__(self) -> tuple[Any, ...]:
        return RunningMeanStd.holding(self.moments).__reduce__()


class DeviceNumbers:
    """What a VecNormalize shows of its state on the device.

    Args:
      packed: the state.

    Attributes:
      obs_rms: the observations' moments, or a dict of them; None where they are left alone.
      ret_rms: those of the discounted returns.
    """

    def __init__(self, packed: Any) -> None:
        self._packed = packed
        self._places: Any = packed.places()
        observation = self._places.observation
        self.obs_rms = _views(packed, observation.statistics) if observation else None
        self.ret_rms = DeviceMeanStd(packed, self._places.reward.statistics.moments)

    def set_training(self, training: bool) -> None:
        """Says whether the statistics learn from the next step on."""
        self._packed.put(self._places.reward.training, training)
        if self._places.observation:
            self._packed.put(self._places.observation.training, training)

    def set_norm_reward(self, norm_reward: bool) -> None:
        """Says whether rewards leave normalized from the next step on."""
        self._packed.put(self._places.reward.enabled, norm_reward)

    @property
    def returns(self) -> Array:
        """The running discounted returns, float64 `[N]`; a copy."""
        returns: Array = self._packed.leaf(self._places.reward.returns)
        return returns.astype(np.float64)

    @returns.setter
    def returns(self, returns: Array) -> None:
        self._packed.put(self._places.reward.returns, returns)

    @property
    def raw_obs(self) -> Obs:
        """The last observations as they came from below, `[N, *D]`; a copy."""
        return map_obs(self._packed.leaf, self._places.raw_obs)

    @property
    def raw_reward(self) -> Array:
        """The last rewards as they came from below, `[N]`; a copy."""
        reward: Array = self._packed.leaf(self._places.raw_reward)
        return reward


def _views(packed: Any, statistics: PyTree) -> Any:
    if isinstance(statistics, Statistics):
        return DeviceMeanStd(packed, statistics.moments)
    return {
        key: DeviceMeanStd(packed, each.moments)
        for key, each in statistics.items()
        if each is not None
    }


def _float64(moments: RunningMoments) -> RunningMoments:
    """Returns moments in float64, of whatever they are held in."""
    mean, var, count, *low = (np.asarray(field, np.float64) for field in moments)
    mean, var, count = (high + rest for high, rest in zip((mean, var, count), low, strict=True))
    return RunningMoments(mean, var, count, np.zeros_like(mean), np.zeros_like(var), np.float64(0))
