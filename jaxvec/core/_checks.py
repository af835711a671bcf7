"""NaN and infinity, found where they come in: flags on the device, an error at the host's edge."""

from typing import Any, NamedTuple

import numpy as np

from jaxvec.core._arguments import check_flag
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import (
    backend_namespace,
    is_integer_or_bool,
    namespace,
    obs_leaves,
    where_rows,
)
from jaxvec.typing import Action, Array, Key, Obs, PyTree


class CheckFiniteState(NamedTuple):
    """What was found on the way down."""

    action: Array  # bool [N]: the last action held a bad number


def check_finite(*, check_inf: bool = True) -> Transform:
    """Flags the rows that hold NaN or infinity: `info["non_finite"]`, three columns of bool `[N]`.

    `obs` is for the observation (where an episode ended, for its last one too), `reward` for the
    reward, `action` for the action that the step was given. The values pass unchanged. What the layers
    below have made is looked at: place it lowest for what the environment gives, and above
    `normalize_observation` for what the policy sees. Whole numbers are not scanned.

    On the host, `raise_if_not_finite` makes an error of the flags.

    Args:
      check_inf: whether infinity counts too, besides NaN.

    Raises:
      ValueError: if `check_inf` is no bool.
    """
    check_flag("check_finite", "check_inf", check_inf)

    def bad_rows(tree: PyTree, rows: int, xp: Any) -> Array:
        """Returns bool `[rows]`: where any part of a tree of columns holds a bad number."""
        found = xp.zeros(rows, bool)
        for _, x in obs_leaves(tree):
            if not is_integer_or_bool(x.dtype):
                bad = ~xp.isfinite(x) if check_inf else xp.isnan(x)
                found = found | bad.any(axis=tuple(range(1, x.ndim)))
        return found

    def bad_obs(timestep: Timestep, rows: int, xp: Any) -> Array:
        found, final = bad_rows(timestep.obs, rows, xp), timestep.final_obs
        if final is None:
            return found
        if timestep.final_rows is None:
            return found | (bad_rows(final, rows, xp) & timestep.done)
        found[timestep.final_rows] |= bad_rows(final, len(timestep.final_rows), xp)
        return found

    def report(state: CheckFiniteState, timestep: Timestep, mask: Array | None = None) -> Timestep:
        xp, rows = namespace(state.action), state.action.shape[0]
        flags = {
            "action": state.action,
            "obs": bad_obs(timestep, rows, xp),
            "reward": bad_rows(timestep.reward, rows, xp),
        }
        if mask is not None:
            # The other rows of a partial reset hold anything.
            flags = {name: flag & mask for name, flag in flags.items()}
        return timestep._replace(info={**timestep.info, "non_finite": flags})

    def init(spec: VecSpec, keys: Key | None = None) -> CheckFiniteState:
        del keys
        return CheckFiniteState(backend_namespace(spec.backend).zeros(spec.num_envs, bool))

    def reset(
        state: CheckFiniteState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[CheckFiniteState, Timestep]:
        if mask is None:
            state = CheckFiniteState(namespace(state.action).zeros_like(state.action))
        else:
            state = CheckFiniteState(where_rows(mask, False, state.action))
        return state, report(state, timestep, mask)

    def update(state: CheckFiniteState, timestep: Timestep) -> tuple[CheckFiniteState, Timestep]:
        return state, report(state, timestep)

    def action(state: CheckFiniteState, action: Action) -> tuple[CheckFiniteState, Action]:
        xp, rows = namespace(state.action), state.action.shape[0]
        for path, x in obs_leaves(action):
            if xp.shape(x)[:1] != (rows,):
                raise ValueError(
                    f"check_finite: the actions{path} have shape {xp.shape(x)}, but each of the {rows} "
                    f"environments takes one: pass [{rows}, ...]."
                )
        return CheckFiniteState(bad_rows(action, rows, xp)), action

    return Transform(init, reset, update, action)


def raise_if_not_finite(timestep: Timestep, action: Action = None) -> None:
    """Raises an error where `check_finite` has found something; for the host, after a step or rollout.

    It waits for the device. Of several finds the first is named, the earliest of a rollout.

    Args:
      timestep: a step above `check_finite`, leaves `[N, ...]`, or those of a rollout, `[T, N, ...]`.
      action: the actions of that step or rollout, if their values are to be named.

    Raises:
      ValueError: if a flag is set, with row, name and value; or if there are no flags.
    """
    if "non_finite" not in timestep.info:
        raise ValueError(
            "raise_if_not_finite: the timestep's info has no 'non_finite', only "
            f"{list(timestep.info)!r}: put check_finite() among the layers."
        )
    flags = {name: np.asarray(flag) for name, flag in timestep.info["non_finite"].items()}
    found = flags["obs"] | flags["reward"] | flags["action"]
    if not found.any():
        return
    at = tuple(int(i) for i in np.argwhere(found)[0])
    trees = {
        "action": [("action", action, at)],
        "reward": [("reward", timestep.reward, at)],
        "obs": [("obs", timestep.obs, at), ("final_obs", *_final(timestep, at))],
    }
    named = [_name_first(name, trees[name]) for name in trees if flags[name][at]]
    row = f"row {at[-1]}" if len(at) == 1 else f"row {at[-1]} of step {at[0]}"
    given = "" if action is None else f" The row's action was {_pick(action, at)}."
    raise ValueError(
        f"check_finite: in {row}, {' and '.join(named)} ({int(found.sum())} rows are flagged in all)."
        f"{given} A bad action comes from the policy: look at its parameters; a bad observation or "
        "reward comes from the environment or a layer below check_finite."
    )


def _name_first(name: str, trees: list[tuple[str, PyTree, tuple[int, ...]]]) -> str:
    """Returns where in a row the first bad number stands, and what it is; NaN before infinity."""
    for is_bad in (np.isnan, np.isinf):
        for root, tree, at in trees:
            for path, leaf in obs_leaves(tree):
                if leaf is None or is_integer_or_bool(leaf.dtype):
                    continue
                row = np.asarray(leaf)[at]
                hits = np.argwhere(is_bad(row))
                if len(hits):
                    place = tuple(hits[0])
                    index = f"[{', '.join(map(str, place))}]" if place else ""
                    return f"{root}{path}{index} is {row[place]}"
    return f"{name} was not finite when check_finite saw it"


def _final(timestep: Timestep, at: tuple[int, ...]) -> tuple[Obs, tuple[int, ...]]:
    """Returns the final observations and where in them a row stands; None if it is not there."""
    if timestep.final_rows is None:
        return timestep.final_obs, at
    place = np.flatnonzero(np.asarray(timestep.final_rows) == at[-1])
    return (timestep.final_obs, (int(place[0]),)) if len(place) else (None, at)


def _pick(tree: PyTree, at: tuple[int, ...]) -> Any:
    """Returns one row of a tree of columns, for a message."""
    rows = {path: np.asarray(leaf)[at].tolist() for path, leaf in obs_leaves(tree)}
    return rows if len(rows) > 1 else next(iter(rows.values()))
