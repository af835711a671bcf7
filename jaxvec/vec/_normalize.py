"""`VecNormalize`: observations and rewards to unit scale, on Stable-Baselines3's face."""

import inspect
import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._moments import Precision, RunningMoments, scale_by_std, standardize, unstandardize
from jaxvec.core._transform import Transform
from jaxvec.typing import Array, Obs
from jaxvec.vec._mean_std import host_moments
from jaxvec.vec._normalization import Settings, normalization
from jaxvec.vec._normalize_checks import check_fits, check_same_shape, checked_keys
from jaxvec.vec._normalize_files import FilePath, load_saved, save_normalize
from jaxvec.vec._normalize_numbers import NormalizeNumbers
from jaxvec.vec._unwrap import unwrap_vec_wrapper


class VecNormalize(NormalizeNumbers):
    """Brings observations to mean 0 and variance 1, and rewards to the scale of the discounted return.

    Put it outermost under an off-policy algorithm of SB3's, which asks it for the original observations.

    Args:
      venv: the VecEnv inside.
      training: whether the statistics learn.
      norm_obs: whether observations are normalized.
      norm_reward: whether rewards are.
      clip_obs: the largest magnitude of a normalized observation.
      clip_reward: the largest magnitude of a normalized reward.
      gamma: the discount per step.
      epsilon: added to variances.
      norm_obs_keys: which keys of a Dict observation; None for all.
      precision: of the arithmetic on observations: "float64" gives SB3's bits; "float32" is faster, most of
        all for images, and within 1e-6 of them.

    Attributes:
      training, norm_reward, clip_obs, ...: as given; they may be assigned at any time.
      obs_rms: the observations' statistics, or a dict of them; lacking if `norm_obs` is False.
      ret_rms: the statistics of the discounted returns.
      returns: the running discounted returns, float64 `[N]`.
      old_obs, old_reward: the last ones as they came from below.

    Raises:
      ValueError: if what is to be normalized is no Box, or keys are given for a Box.
      KeyError: if there is no such key.
    """

    venv: Any
    obs_spaces: dict[str, spaces.Space[Any]]

    def __init__(
        self,
        venv: Any,
        training: bool = True,
        norm_obs: bool = True,
        norm_reward: bool = True,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        norm_obs_keys: Sequence[str] | None = None,
        *,
        precision: Precision = "float64",
    ) -> None:
        space = venv.observation_space
        self.norm_obs = norm_obs
        self.norm_obs_keys = norm_obs_keys
        if norm_obs:
            self.norm_obs_keys = checked_keys(space, norm_obs_keys)
            _warn_if_normalized(venv, "obs")
        if norm_reward:
            _warn_if_normalized(venv, "reward")
        self.training = training
        self.norm_reward = norm_reward
        self.clip_obs = clip_obs
        self.clip_reward = clip_reward
        self.gamma = gamma
        self.epsilon = epsilon
        self.precision = precision
        self.old_reward: Array = np.zeros(0, np.float32)
        self._settings = self._asked_for()
        super().__init__(venv, normalization(Settings(*self._settings)))
        self._find_numbers()
        if norm_obs and isinstance(space, spaces.Dict):
            self.obs_spaces = dict(self.observation_space.spaces)  # type: ignore[attr-defined]

    def _asked_for(self) -> tuple[Any, ...]:
        return (
            self.norm_obs,
            self.norm_obs_keys,
            self.clip_obs,
            self.clip_reward,
            self.gamma,
            self.epsilon,
            self.precision,
        )

    @property
    def transform(self) -> Transform:
        """What this layer does with the present settings."""
        settings = self._asked_for()
        if settings != self._settings:
            if self.norm_obs and self.__dict__.get("_obs_rms") is None:
                raise ValueError(
                    "VecNormalize: norm_obs was switched on, but it was made with norm_obs=False, so there "
                    "are no statistics of observations; make it with norm_obs=True, and switch it off."
                )
            self._settings, self._transform = settings, normalization(Settings(*settings))
        return self._transform

    def normalize_obs(self, obs: Obs) -> Obs:
        """Normalizes one observation or many, by the statistics so far; they learn nothing from it.

        Args:
          obs: `[..., *D]`, or a dict of such. It stays as it is.

        Returns:
          Float32 where normalized; other keys as they were. A copy.
        """
        if not self.norm_obs:
            return deepcopy(obs)
        return self._with_rms(_normalized, obs, self.epsilon, self.clip_obs)

    def unnormalize_obs(self, obs: Obs) -> Obs:
        """Undoes `normalize_obs`, but for what was clipped; float64 where normalized."""
        if not self.norm_obs:
            return deepcopy(obs)
        return self._with_rms(_unnormalized, obs, self.epsilon)

    def _with_rms(self, function: Any, obs: Obs, *settings: float) -> Obs:
        """Applies `function(x, moments, ...)` to the normalized parts of a copy of an observation."""
        rms = self._obs_rms
        if not isinstance(rms, dict):
            return function(obs, host_moments(rms), *settings)
        return {
            key: function(part, host_moments(rms[key]), *settings) if key in rms else deepcopy(part)
            for key, part in obs.items()
        }

    def normalize_reward(self, reward: Array) -> Array:
        """Normalizes rewards of any shape by the statistics so far; returns float32."""
        if not self.norm_reward:
            return reward.astype(np.float32)
        moments = host_moments(self._ret_rms)
        return scale_by_std(reward, moments, epsilon=self.epsilon, clip=self.clip_reward)

    def unnormalize_reward(self, reward: Array) -> Array:
        """Undoes `normalize_reward`, but for what was clipped."""
        if not self.norm_reward:
            return reward
        return reward * np.sqrt(self.ret_rms.var + self.epsilon)

    def get_original_obs(self) -> Obs:
        """Returns the observations of the last step or reset as they came from below, `[N, *D]`."""
        return deepcopy(self.old_obs)

    def get_original_reward(self) -> Array:
        """Returns the rewards of the last step as they came from below, `[N]`.

        Before the first step there are none, `[0]`; above a JaxVecEnv they are zeros.
        """
        return np.array(self.old_reward)

    def _obs_is_fresh(self) -> bool:
        if not self.norm_obs:
            return False
        rms = self._obs_rms  # asked by `type`: its `__class__` is slow to tell
        return type(rms) is not dict or len(rms) == len(self._space_keys())

    def __getstate__(self) -> dict[str, Any]:
        """Returns all but the VecEnv inside and what depends on it."""
        inside = ("venv", "class_attributes", "returns", "_transform", "_run", "_packed", "_device")
        return {name: value for name, value in self.__dict__.items() if name not in inside}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes such a state; `set_venv` puts a VecEnv inside again."""
        held: Any = self.__dict__
        held.update(state, venv=None)
        self._transform = normalization(Settings(*self._settings))

    def set_venv(self, venv: Any) -> None:
        """Puts a VecEnv inside, after loading.

        Raises:
          ValueError: if there is one already.
          AssertionError: if its observations have another shape.
        """
        if self.venv is not None:
            raise ValueError(
                "VecNormalize: it has a VecEnv inside already; make a new one, or load it from a file."
            )
        check_same_shape(self.observation_space, venv.observation_space)
        if self.norm_obs:
            _warn_if_normalized(venv, "obs")
        self.num_envs = venv.num_envs
        self.class_attributes = dict(inspect.getmembers(type(self)))
        self.render_mode = venv.render_mode
        self._move_to(venv)

    def save(self, save_path: FilePath) -> None:
        """Writes statistics and settings to a file.

        Args:
          save_path: a name that ends in `.npz` gets jaxvec's format, which needs no pickle; any other name a
            pickle that SB3's VecNormalize can load.
        """
        save_normalize(save_path, self)

    @staticmethod
    def load(load_path: FilePath, venv: Any, *, trust: bool = False) -> "VecNormalize":
        """Loads statistics and settings from a file of `save`, or of SB3's VecNormalize.

        Args:
          load_path: the file.
          venv: the VecEnv to put inside; any number of environments.
          trust: run whatever a pickle contains. Otherwise only what SB3 writes is read.

        Raises:
          FileFormatError: if it is another kind of file, or a pickle contains something else.
          AssertionError: if the observations of `venv` have another shape.
        """
        saved = load_saved(load_path, trust)
        check_fits(saved, venv.observation_space)
        new = VecNormalize(venv, **saved.settings)
        if saved.obs_rms is not None:
            new.obs_rms = saved.obs_rms
        new.ret_rms = saved.ret_rms
        for name, value in saved.attributes.items():
            setattr(new, name, value)
        return new


def _normalized(x: Array, moments: RunningMoments, epsilon: float, clip: float) -> Array:
    return standardize(np.asarray(x), moments, epsilon=epsilon, clip=clip)


def _unnormalized(x: Array, moments: RunningMoments, epsilon: float) -> Array:
    return unstandardize(np.asarray(x), moments, epsilon=epsilon)


def _warn_if_normalized(venv: Any, what: str) -> None:
    inner = unwrap_vec_wrapper(venv, VecNormalize)
    if inner is not None and getattr(inner, f"norm_{what}"):
        warnings.warn(
            f"VecNormalize: the VecEnv inside has a VecNormalize with norm_{what}=True already, so it "
            f"would be normalized twice. Pass norm_{what}=False to one of them, or wrap `venv.venv`.",
            stacklevel=3,
        )
