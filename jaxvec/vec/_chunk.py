"""Chunks of T steps: a group of environments steps itself with a policy, and hands on all of it at once.

`T` steps, `N` environments, `g` of one group, `E` ends of episodes. It loads neither jax nor flax nor torch.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Space

from jaxvec.core._xp import map_obs
from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._columns import Columns
from jaxvec.vec._convert import action_rows
from jaxvec.vec._serve import Group, Info

HostPolicy = Callable[[np.random.Generator, Obs], Action]
"""From random numbers and the observations `[g, *D]` of a group to its actions, `[g, *A]`."""


class Chunk(NamedTuple):
    """T steps of a group, or of all N environments."""

    obs: Obs  # [T + 1, g, *D]: what the policy has seen, and the last one
    actions: Array  # [T, g, *A]
    reward: Array  # float32 [T, g]
    terminated: Array  # bool [T, g]
    truncated: Array  # bool [T, g]
    valid: Array  # bool [T, g]: the step took place
    ends: Sequence[tuple[int, int]]  # E times step and row: where episodes ended
    final: Obs  # [E, *D]: their last observations
    infos: dict[tuple[int, int], Info]  # step and row -> info, of those that have any
    reset_infos: dict[int, Info]  # row -> info of its last reset in the chunk, if it has any


def roll_out(
    group: Group, columns: Columns, policy: HostPolicy, num_steps: int, rng: np.random.Generator
) -> Chunk:
    """Steps a group T times.

    Args:
      group: the environments; they have been reset.
      columns: where they put their results.
      policy: chooses actions; what it gets is its own to write to.
      num_steps: T.
      rng: for the policy.

    Raises:
      ValueError: if the policy gives another number of actions.
    """
    rows = slice(group.rows.start, group.rows.stop)
    seen: list[Obs] = [_taken(columns.obs, rows)]
    flags = [columns.reward, columns.terminated, columns.truncated]
    taken: list[Any] = []
    steps: list[list[Array]] = [[], [], []]
    ends: list[tuple[int, int]] = []
    final: list[Obs] = []
    infos: dict[tuple[int, int], Info] = {}
    reset_infos: dict[int, Info] = {}
    for step in range(num_steps):
        group.current = group.rows.start  # whom a fault of the policy is told of
        actions = action_rows(policy(rng, map_obs(np.copy, seen[-1])), len(group.rows))
        served = group.step(actions)
        taken.append(np.array(actions))
        seen.append(_taken(columns.obs, rows))
        for column, kept in zip(flags, steps, strict=True):
            kept.append(column[rows].copy())
        infos |= {(step, row): info for row, info in served.infos.items()}
        for row in group.rows:
            if columns.terminated[row] or columns.truncated[row]:
                ends.append((step, row))
                final.append(_taken(columns.final, [row]))
                reset_infos[row] = served.reset_infos.get(row, {})
    reward, terminated, truncated = map(np.stack, steps)
    return Chunk(
        obs=_stacked(seen),
        actions=np.stack(taken),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        valid=np.ones_like(terminated),
        ends=ends,
        final=_appended(final),
        infos=infos,
        reset_infos=reset_infos,
    )


def _taken(columns: Obs, rows: Any) -> Obs:
    return map_obs(lambda column: np.array(column[rows], column.dtype), columns)


def _appended(several: Sequence[Obs]) -> Obs:
    """Returns rows of observations as one set of rows; None if there are none."""
    if not several:
        return None
    return map_obs(lambda *arrays: np.concatenate(arrays), several[0], *several[1:])


def _stacked(several: Sequence[Obs]) -> Obs:
    return map_obs(lambda *arrays: np.stack(arrays), several[0], *several[1:])


def joined(
    columns: Columns, action_space: Space[Any], num_steps: int, parts: Iterable[tuple[range, Chunk]]
) -> Chunk:
    """Joins the chunks of groups to one of all N environments.

    Rows of which there is no chunk stand still: no step of theirs is valid.

    Args:
      columns: of all N; their observations are where rows stand still.
      action_space: of one environment.
      num_steps: T.
      parts: rows and chunk of each group.
    """
    parts = list(parts)
    count = len(columns.reward)
    kind = parts[0][1].actions if parts else np.zeros((1, 1, *(action_space.shape or ())))
    whole = Chunk(
        obs=map_obs(lambda column: np.stack([column] * (num_steps + 1)), columns.obs),
        actions=np.zeros((num_steps, count, *kind.shape[2:]), kind.dtype),
        reward=np.zeros((num_steps, count), np.float32),
        terminated=np.zeros((num_steps, count), bool),
        truncated=np.zeros((num_steps, count), bool),
        valid=np.zeros((num_steps, count), bool),
        ends=[],
        final=None,
        infos={},
        reset_infos={},
    )
    ends: list[tuple[int, int]] = []
    for rows, chunk in parts:
        at = slice(rows.start, rows.stop)
        map_obs(lambda to, of, at=at: to.__setitem__((slice(None), at), of), whole.obs, chunk.obs)
        for name in ("actions", "reward", "terminated", "truncated", "valid"):
            getattr(whole, name)[:, at] = getattr(chunk, name)
        ends += chunk.ends
        whole.infos.update(chunk.infos)
        whole.reset_infos.update(chunk.reset_infos)
    return whole._replace(
        ends=ends, final=_appended([chunk.final for _, chunk in parts if chunk.ends])
    )


def with_losses(chunk: Chunk, columns: Columns, lost: Sequence[int]) -> Chunk:
    """Lets the first step of lost rows be the end of their episodes; see `Losses.report`.

    Args:
      chunk: of all N; these rows stand still in it, at the first observation of a new episode.
      columns: where the end has been reported.
      lost: the rows.
    """
    if not lost:
        return chunk
    map_obs(lambda to, of: to[0].__setitem__(lost, of[lost]), chunk.obs, columns.final)
    chunk.truncated[0, lost] = True
    chunk.valid[0, lost] = True
    earlier = [chunk.final] if chunk.ends else []
    return chunk._replace(
        ends=[*chunk.ends, *((0, row) for row in lost)],
        final=_appended([*earlier, _taken(columns.final, lost)]),
    )


def dense_final(chunk: Chunk) -> Obs:
    """Returns the observation that each step led to, `[T, N, *D]`: where an episode ended, its last one."""
    led_to = map_obs(lambda column: column[1:].copy(), chunk.obs)
    if chunk.ends:
        steps, rows = np.array(chunk.ends).T
        map_obs(lambda to, of: to.__setitem__((steps, rows), of), led_to, chunk.final)
    return led_to
