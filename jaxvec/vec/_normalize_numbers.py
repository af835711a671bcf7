"""The numbers of a `VecNormalize` as attributes that users read and assign, wherever they are."""

from typing import Any

import numpy as np

from jaxvec.core._normalize import NormalizeObservationState, NormalizeRewardState
from jaxvec.core._statistics import Statistics
from jaxvec.core._xp import map_obs, space_tree
from jaxvec.typing import Array, Obs, PyTree
from jaxvec.vec._fused import run_over
from jaxvec.vec._mean_std import RunningMeanStd, holders_of
from jaxvec.vec._normalization import NormalizationState
from jaxvec.vec._normalize_device import DeviceNumbers
from jaxvec.vec._transform import VecTransform, packed_state, spec_of

_SWITCH = np.asarray(False), np.asarray(True)


class NormalizeNumbers(VecTransform):
    """Switches, statistics and last raw values of a VecNormalize.

    On the host they are the attributes themselves, and the transform's state is made of them when a step
    needs it: users assign them and share statistics between VecEnvs, as with SB3's class. In a compiled run
    the state is on the device, and the attributes are views of it: what is assigned is written there.
    """

    norm_obs: bool
    _device: DeviceNumbers | None = None
    _ret_rms: RunningMeanStd
    _obs_rms: Any

    def _find_numbers(self) -> None:
        """Looks up where the numbers are, once there is a state."""
        if self._packed is not None:
            self._device = DeviceNumbers(self._packed)
            self._obs_rms, self._ret_rms = self._device.obs_rms, self._device.ret_rms
            self.training, self.norm_reward = self.training, self.norm_reward

    def _move_to(self, venv: Any) -> None:
        """Keeps statistics and switches, and starts anew what depends on the VecEnv inside."""
        self.venv = venv
        below = run_over(venv)
        if below is None:
            self.returns = np.zeros(venv.num_envs)
            return
        packed = packed_state(below, self.transform, spec_of(venv))
        obs_rms, ret_rms = _held(self).pop("_obs_rms", None), self._ret_rms
        self._run, self._packed = below.extended(self), packed
        self._find_numbers()
        self.ret_rms = ret_rms
        if obs_rms is not None:
            self.obs_rms = obs_rms

    @property
    def training(self) -> bool:
        """Whether the statistics learn."""
        training: bool = self.__dict__["training"]
        return training

    @training.setter
    def training(self, training: bool) -> None:
        _held(self)["training"] = training
        if self._device is not None:
            self._device.set_training(training)

    @property
    def norm_reward(self) -> bool:
        """Whether rewards leave normalized."""
        norm_reward: bool = self.__dict__["norm_reward"]
        return norm_reward

    @norm_reward.setter
    def norm_reward(self, norm_reward: bool) -> None:
        _held(self)["norm_reward"] = norm_reward
        if self._device is not None:
            self._device.set_norm_reward(norm_reward)

    @property
    def returns(self) -> Array:
        """The running discounted returns, float64 `[N]`."""
        return self.__dict__["returns"] if self._device is None else self._device.returns

    @returns.setter
    def returns(self, returns: Array) -> None:
        if self._device is None:
            _held(self)["returns"] = returns
        else:
            self._device.returns = returns

    @property
    def old_obs(self) -> Obs:
        """The observations of the last step or reset as they came from below, `[N, *D]`."""
        if self._device is not None:
            parts = space_tree(self.venv.observation_space)
            return map_obs(_in_dtype_of, self._device.raw_obs, parts)
        if "old_obs" not in self.__dict__:
            raise AttributeError("VecNormalize has no old_obs before its first reset")
        return self.__dict__["old_obs"]

    @old_obs.setter
    def old_obs(self, obs: Obs) -> None:
        _held(self)["old_obs"] = obs

    @property
    def old_reward(self) -> Array:
        """The rewards of the last step as they came from below; before it `[0]`, or zeros of a JaxVecEnv."""
        return self.__dict__["old_reward"] if self._device is None else self._device.raw_reward

    @old_reward.setter
    def old_reward(self, reward: Array) -> None:
        _held(self)["old_reward"] = reward

    @property
    def obs_rms(self) -> Any:
        """The observations' statistics; a dict of them, by the normalized keys, for a Dict."""
        if self.__dict__.get("_obs_rms") is None:
            raise AttributeError("VecNormalize has no obs_rms: it was made with norm_obs=False")
        return self._obs_rms

    @obs_rms.setter
    def obs_rms(self, rms: Any) -> None:
        held = holders_of(rms)
        if self._device is None:
            self._obs_rms = held
        elif isinstance(held, dict):
            for key, each in held.items():
                self._obs_rms[key].moments = each.moments
        else:
            self._obs_rms.moments = held.moments

    @property
    def ret_rms(self) -> RunningMeanStd:
        """The statistics of the discounted returns."""
        return self._ret_rms

    @ret_rms.setter
    def ret_rms(self, rms: Any) -> None:
        held = RunningMeanStd.of(rms)
        if self._device is None:
            self._ret_rms = held
        else:
            self._ret_rms.moments = held.moments

    @property
    def _state(self) -> NormalizationState:
        held = self.__dict__
        training, enabled = _SWITCH[bool(held["training"])], _SWITCH[bool(held["norm_reward"])]
        observation: PyTree = ()
        if self.norm_obs:
            observation = NormalizeObservationState(self._statistics(), training)
        statistics = Statistics(self._ret_rms.moments, None)
        reward = NormalizeRewardState(statistics, held["returns"], training, enabled)
        return NormalizationState(observation, reward, held.get("old_obs"), held["old_reward"])

    @_state.setter
    def _state(self, state: NormalizationState) -> None:
        held: Any = self.__dict__  # as `_held`, without a call: this is done in every step
        if self.norm_obs:
            self._hold(state.observation.statistics)
        _, reward, raw_obs, raw_reward = state
        if "_ret_rms" in held:
            self._ret_rms.moments = reward.statistics.moments
        else:
            self._ret_rms = RunningMeanStd.holding(reward.statistics.moments)
        held["returns"] = reward.returns
        if raw_obs is not None:
            held["old_obs"] = raw_obs
        held["old_reward"] = raw_reward

    # Both ask by `type`: an object's `__class__` is slow to tell, see `RunningMeanStd`.

    def _statistics(self) -> PyTree:
        rms = self._obs_rms
        if type(rms) is not dict:
            return Statistics(rms.moments, None)
        return {
            key: Statistics(rms[key].moments, None) if key in rms else None
            for key in self._space_keys()
        }

    def _hold(self, statistics: PyTree) -> None:
        """Puts statistics into the objects that hold them, which others may share."""
        rms = self.__dict__.get("_obs_rms")
        if rms is None:
            self._obs_rms = _holders(statistics)
        elif type(rms) is not dict:
            rms.moments = statistics.moments
        else:
            for key, each in rms.items():
                each.moments = statistics[key].moments

    def _space_keys(self) -> list[str]:
        return list(self.observation_space.spaces)  # type: ignore[attr-defined]


def _held(normalize: Any) -> dict[str, Any]:
    """Returns an object's attributes, to be written: pyright takes `self.__dict__` for that of a class."""
    held: dict[str, Any] = normalize.__dict__
    return held


def _in_dtype_of(array: Array, space: Any) -> Array:
    """Returns an array of a device, which may have no int64 or float64, in the dtype of its space."""
    return array.astype(space.dtype, copy=False)


def _holders(statistics: PyTree) -> Any:
    if isinstance(statistics, Statistics):
        return RunningMeanStd.holding(statistics.moments)
    return {
        key: RunningMeanStd.holding(each.moments)
        for key, each in statistics.items()
        if each is not None
    }
