"""Between the two ways to write a step: columns in a `Timestep`, and Stable-Baselines3's 4-tuple."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from jaxvec.core._transform import Timestep
from jaxvec.core._xp import map_obs, no_rows
from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._infos import Infos

StepReturn = tuple[Obs, Array, Array, Any]
"""Observations `[N, *D]`, rewards `[N]`, dones bool `[N]`, and N info dicts."""


def step_return(timestep: Timestep) -> StepReturn:
    """Returns a timestep as SB3's tuple; the rewards are a copy, because SB3's learners write into them."""
    done = timestep.done
    if type(done) is not np.ndarray:
        done = np.asarray(done)
    return timestep.obs, np.array(timestep.reward), done, Infos(timestep, done)


def timestep_of_step(obs: Obs, rewards: Any, dones: Any, infos: Sequence[Any]) -> Timestep:
    """Returns SB3's tuple as a timestep: what a wrapper in SB3's style hands to the layers above it.

    Args:
      obs: observations, `[N, *D]`.
      rewards: `[N]`; they keep their dtype.
      dones: `[N]`.
      infos: N dicts. They are kept as the environments' own, and never written. Where an episode ended,
        "TimeLimit.truncated" and "terminal_observation" become columns.

    Returns:
      The timestep; `final_rows` are the rows that ended and have a terminal observation.
    """
    done = np.array(dones, bool)
    rows = list(infos)
    terminated = truncated = done  # nowhere, if no episode ended
    final_obs, final_rows = None, None
    if not no_rows(done):
        ended = np.flatnonzero(done).tolist()
        truncated = np.zeros_like(done)
        for row in ended:
            truncated[row] = bool(rows[row].get("TimeLimit.truncated", False))
        terminated = done & ~truncated
        known = [row for row in ended if rows[row].get("terminal_observation") is not None]
        if known:
            final_obs = stack_rows([rows[row]["terminal_observation"] for row in known])
            final_rows = np.asarray(known)
    return Timestep(
        obs=obs,
        reward=np.asarray(rewards),
        terminated=terminated,
        truncated=truncated,
        valid=np.ones(done.shape, bool),
        first=done,
        final_obs=final_obs,
        final_rows=final_rows,
        rows=rows,
    )


def timestep_of_reset(obs: Obs, num_envs: int, rows: Sequence[Any] | None = None) -> Timestep:
    """Returns the observations of a full reset as a timestep: no transition, every row a first one."""
    return opened(obs, np.ones(num_envs, bool), rows)


def opened(obs: Obs, first: Array, rows: Sequence[Any] | None = None) -> Timestep:
    """Returns the timestep of a reset of the rows where `first` holds, bool `[N]`."""
    no = np.zeros_like(first)
    return Timestep(
        obs=obs,
        reward=np.zeros(first.shape, np.float32),
        terminated=no,
        truncated=no.copy(),
        valid=no.copy(),
        first=first,
        rows=rows,
    )


def stack_rows(values: Sequence[Obs]) -> Obs:
    """Stacks the observations of single environments, F of `[*D]`, to columns `[F, *D]`."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: stack_rows([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(stack_rows(list(parts)) for parts in zip(*values, strict=True))
    return np.stack([np.asarray(value) for value in values])


@cache
def everywhere(num_envs: int) -> Array:
    """Returns bool `[N]` that holds everywhere; not to be written to."""
    mask = np.ones(num_envs, bool)
    mask.flags.writeable = False
    return mask


def copy_obs(obs: Obs) -> Obs:
    """Copies every array of an observation."""
    return map_obs(np.copy, obs)


def rows_of(obs: Obs, rows: Array) -> Obs:
    """Takes rows out of an observation, `[N, *D]` to `[K, *D]`."""
    return map_obs(lambda column: column[rows], obs)


def action_rows(actions: Action, count: int) -> Any:
    """Returns actions as a sequence, one for each environment.

    Args:
      actions: an array or a sequence of `count`, or a dict of such columns.
      count: how many environments.

    Raises:
      ValueError: if there are not as many actions as environments.
    """
    if isinstance(actions, dict):
        columns = {key: action_rows(column, count) for key, column in actions.items()}
        return [{key: column[row] for key, column in columns.items()} for row in range(count)]
    try:
        given = len(actions)
    except TypeError:
        given = -1
    if given != count:
        what = f"{given} actions" if given >= 0 else f"the single action {actions!r}"
        raise ValueError(
            f"step: got {what} for {count} environments; give one for each, as in an array [N, ...]. "
            "Nothing was sent."
        )
    # A copy: the caller may write into the array before the environments read it.
    return actions.copy() if isinstance(actions, np.ndarray) else actions
