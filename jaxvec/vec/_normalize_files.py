"""What a `VecNormalize` knows, to a file and back: jaxvec's `.npz`, or a pickle of Stable-Baselines3's."""

import os
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_flag
from jaxvec.core._moments import RunningMoments
from jaxvec.core._statistics import Statistics
from jaxvec.errors import FileFormatError
from jaxvec.io import read_metadata, read_statistics, save_statistics
from jaxvec.io._targets import replacing
from jaxvec.vec._mean_std import RunningMeanStd, holders_of
from jaxvec.vec._normalize_checks import check_same_shape, check_settings
from jaxvec.vec._pickles import Record, read_pickle, write_pickle

FilePath = str | os.PathLike[str]

SETTINGS = (
    *("training", "norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma", "epsilon"),
    "norm_obs_keys",
)
"""The arguments of a VecNormalize, beside the VecEnv inside."""

_PICKLED = (
    *("num_envs", "observation_space", "action_space", "render_mode", "metadata", *SETTINGS),
    "old_reward",
)
_KEPT = ("observation_space", "action_space", "old_reward", "old_obs")
"""What SB3's file says beside settings and statistics, and its `load` restores."""


class Saved(NamedTuple):
    """What is in a file.

    Attributes:
      settings: the arguments of VecNormalize by name.
      obs_rms: a RunningMeanStd, or a dict of them; None where observations are not normalized.
      ret_rms: the RunningMeanStd of the discounted returns.
      attributes: further ones, by name.
    """

    settings: dict[str, Any]
    obs_rms: Any  # RunningMeanStd, or a dict of them; None where observations are not normalized
    ret_rms: RunningMeanStd
    attributes: dict[str, Any]  # further ones, by name

    @property
    def obs_shapes(self) -> Any:
        """The shapes of what is normalized; a dict of them for a Dict."""
        if isinstance(self.obs_rms, dict):
            return {key: rms.mean.shape for key, rms in self.obs_rms.items()}
        return None if self.obs_rms is None else self.obs_rms.mean.shape


def save_normalize(path: FilePath, normalize: Any) -> None:
    """Writes a VecNormalize to a file: `.npz` is jaxvec's format, every other name a pickle for SB3."""
    if os.fspath(path).endswith(".npz"):
        settings = {name: getattr(normalize, name) for name in SETTINGS}
        obs = normalize.obs_rms if normalize.norm_obs else None
        write_saved(path, Saved(settings, obs, normalize.ret_rms, {}))
    else:
        write_for_sb3(path, normalize)


def write_saved(path: FilePath, saved: Saved) -> None:
    """Writes settings and statistics to a file in jaxvec's format, of any name."""
    statistics = {"returns": _statistics(saved.ret_rms)}
    if saved.obs_rms is not None:
        statistics["obs"] = _statistics(saved.obs_rms)
    save_statistics(path, statistics, metadata={"VecNormalize": saved.settings})


def write_for_sb3(path: FilePath, normalize: Any) -> None:
    """Writes a VecNormalize to a pickle that SB3's `VecNormalize.load` reads."""
    data = write_pickle(_sb3_attributes(normalize))
    with replacing("save", path) as file:
        file.write(data)


def load_saved(path: FilePath, trust: bool) -> Saved:
    """Reads a file of `save_normalize`, or of SB3's VecNormalize.

    Raises:
      FileFormatError: if it is another kind of file, or a pickle that is not to be trusted, or what it
        holds are no settings and statistics that a VecNormalize could have.
    """
    with open(path, "rb") as file:
        is_archive = file.read(2) == b"PK"
    try:
        saved = _from_npz(path) if is_archive else _from_pickle(path, trust)
        _check_sound(saved)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"{os.fspath(path)} is damaged, or was not written by VecNormalize.save: {error}"
        ) from error
    return saved


def _check_sound(saved: Saved) -> None:
    """Refuses what no VecNormalize has: a file may say anything.

    Raises:
      TypeError: if a setting or a number is of a wrong kind.
      ValueError: if a number is out of range, or shapes do not fit together.
    """
    settings = saved.settings
    for name in settings.keys() & {"training", "norm_obs", "norm_reward"}:
        check_flag("VecNormalize", name, settings[name])
    numbers = [settings[name] for name in ("clip_obs", "clip_reward", "gamma", "epsilon")]
    check_settings(*numbers)
    for name in saved.attributes.keys() & {"observation_space", "action_space"}:
        space = saved.attributes[name]
        if not isinstance(space, spaces.Space):
            raise TypeError(f"{name} is {space!r:.200}, no space.")
        check_same_shape(space, space)  # a pickle may leave out what makes a space one
        repr(space)
    obs, keys = saved.obs_rms, settings.get("norm_obs_keys")
    if (obs is not None) != settings.get("norm_obs", True):
        raise ValueError(
            f"norm_obs={settings.get('norm_obs')}, and the statistics are {obs!r:.200}."
        )
    if obs is not None and set(keys or ()) != set(obs if isinstance(obs, dict) else ()):
        raise ValueError(f"norm_obs_keys={keys!r}, but there are statistics of {obs!r:.200}.")
    for rms in (saved.ret_rms, *(obs.values() if isinstance(obs, dict) else (obs,) if obs else ())):
        shapes = np.shape(rms.mean), np.shape(rms.var), np.shape(rms.count)
        if shapes != (shapes[0], shapes[0], ()):
            raise ValueError(f"mean, variance and count have the shapes {shapes}.")
        if (rms.var < 0).any() or rms.count < 0:
            raise ValueError("a variance or a count is negative.")
    if np.shape(saved.ret_rms.mean) != ():
        raise ValueError("the statistics of returns are not those of one number.")


def _from_npz(path: FilePath) -> Saved:
    settings = read_metadata(path).get("VecNormalize")
    moments = read_statistics(path)
    if not isinstance(settings, dict) or settings.keys() != set(SETTINGS):
        raise FileFormatError(
            f"{os.fspath(path)} holds statistics, but not those of a VecNormalize: it has "
            f"{sorted(moments)}, and the settings {settings!r:.200}. Load it by jaxvec.io.load_statistics."
        )
    rms = {place: RunningMeanStd.holding(each) for place, each in moments.items()}
    returns = rms.pop("['returns']")
    obs: Any = rms.pop("['obs']", None)
    if rms:
        obs = {key: rms[f"['obs'][{key!r}]"] for key in settings["norm_obs_keys"]}
    return Saved(settings, obs, returns, {})


def _from_pickle(path: FilePath, trust: bool) -> Saved:
    found = read_pickle(path, trust)
    state = vars(found) if hasattr(found, "__dict__") else {}
    if not {"ret_rms", "_ret_rms"} & state.keys():
        raise FileFormatError(
            f"{os.fspath(path)} is a pickle of {type(found).__name__}, not of a VecNormalize."
        )
    rms: Any = state.get("obs_rms", state.get("_obs_rms"))
    obs: Any = None if rms is None else holders_of(rms)
    settings = {name: state[name] for name in SETTINGS if name in state}
    returns = RunningMeanStd.of(state.get("ret_rms", state.get("_ret_rms")))
    return Saved(settings, obs, returns, {name: state[name] for name in _KEPT if name in state})


def _sb3_attributes(normalize: Any) -> dict[str, Any]:
    """Returns the attributes that an object of SB3's class has in its pickle."""
    state = {name: getattr(normalize, name) for name in _PICKLED}
    nothing: list[dict[str, Any]] = [{} for _ in range(normalize.num_envs)]
    state.update(reset_infos=nothing, _options=nothing, _seeds=[None] * normalize.num_envs)
    state["ret_rms"] = _record(normalize.ret_rms)
    if normalize.norm_obs:
        obs = normalize.obs_rms
        state["obs_rms"] = (
            {key: _record(rms) for key, rms in obs.items()}
            if isinstance(obs, dict)
            else _record(obs)
        )
    if "old_obs" in vars(normalize):
        state["old_obs"] = normalize.old_obs
    if isinstance(normalize.observation_space, spaces.Dict):
        state["obs_spaces"] = normalize.observation_space.spaces
    return state


def _record(rms: RunningMeanStd) -> Record:
    record = Record()
    vars(record).update(mean=rms.mean, var=rms.var, count=rms.count)
    return record


def _statistics(rms: Any) -> Any:
    if isinstance(rms, dict):
        return {key: _statistics(each) for key, each in rms.items()}
    moments: RunningMoments = rms.moments
    return Statistics(moments, None)
