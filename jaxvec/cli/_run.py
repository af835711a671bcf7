"""A long rollout in pieces, for a progress bar: one program, whatever the length of the last piece.

Each piece is a loop with a length that is only known when it runs, so that nothing is compiled again for
the rest that is left at the end, and pieces may follow the clock: each takes about a fifth of a second.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxvec.cli._episodes import Episodes
from jaxvec.cli._failure import FAILED, Failure, failing, told
from jaxvec.core._checks import raise_if_not_finite
from jaxvec.core._transform import Timestep, Transform
from jaxvec.envs import (
    BatchedEnv,
    Carry,
    Policy,
    PolicyFunction,
    begin,
    random_policy,
    rollout,
    shard,
    wrap,
)
from jaxvec.io import save_statistics
from jaxvec.typing import Action, Array, Key, Obs

_SECONDS_PER_PIECE = 0.2
_ROWS_PER_PIECE = 2**20  # bounds what a piece hands to the host: 10 bytes a row


class Kept(NamedTuple):
    """What leaves the device of each step."""

    done: Array  # bool [N]
    returns: Array  # float32 [N], to be read where `done`
    lengths: Array  # int32 [N], to be read where `done`
    bad: Array  # bool [N]: something was not finite


class Piece(NamedTuple):
    """One piece of a run, done."""

    length: int  # steps
    seconds: float  # that its steps took
    episodes: Episodes


class Run:
    """A rollout that is compiled, and advances piece by piece.

    Args:
      bare: N environments.
      layers: what is put on top of them; `check_finite` and `episode_statistics` are among them, and
        none that changes actions.
      policy: what acts, for the environments with their layers; None for random actions.
      key: one key.
      num_steps: T.
      mesh: the devices that share the rows; None for no mesh.

    Raises:
      Failure: if environment, layers and policy do not fit together; if the first observations hold NaN
        or infinity.
    """

    def __init__(
        self,
        bare: BatchedEnv,
        layers: Transform,
        policy: PolicyFunction | Policy | None,
        key: Key,
        num_steps: int,
        mesh: Mesh | None = None,
    ) -> None:
        self._bare, self._num_steps = bare, num_steps
        self._most = max(1, min(num_steps, _ROWS_PER_PIECE // bare.spec.num_envs))
        started = time.perf_counter()
        with failing(""):
            self._env = wrap(bare, layers)
            if mesh is not None:
                self._env = shard(self._env, mesh)
            policy = self._policy = random_policy(self._env) if policy is None else policy
            self.carry = jax.block_until_ready(begin(self._env, policy, key))
            self._advance = (
                jax.jit(partial(_advance, self._env, policy, self._most))
                .lower(self.carry, np.int32(1))
                .compile()
            )
        self.compile_seconds = time.perf_counter() - started
        _check_first(self.carry.obs)

    def pieces(self) -> Iterator[Piece]:
        """Runs all T steps.

        Raises:
          Failure: at the first NaN or infinity.
        """
        step, seconds, length = 0, 0.0, min(8, self._most)
        while step < self._num_steps:
            length = min(length, self._most, self._num_steps - step)
            started = time.perf_counter()
            with failing(f"at step {step}", FAILED):
                carry, kept = self._advance(self.carry, np.int32(length))
                kept = Kept(*(np.asarray(column)[:length] for column in kept))
            took = time.perf_counter() - started
            if kept.bad.any():
                self._explain(step)
            self.carry = carry
            yield Piece(length, took, _episodes(kept, step, seconds, took))
            step, seconds = step + length, seconds + took
            length = max(1, int(length * min(8.0, _SECONDS_PER_PIECE / max(took, 1e-6))))

    def save_statistics(self, path: Path) -> None:
        """Writes what the normalization has learnt."""
        save_statistics(path, self.carry.env_state)

    def close(self) -> None:
        """Ends nothing: there are no processes."""

    def _explain(self, step: int) -> None:
        """Plays the last piece again, step by step, to name the value that was not finite."""
        carry = self.carry
        while True:
            state = carry.env_state.env  # below the layers
            carry, (_, action, timestep) = rollout(
                self._env, self._policy, carry.key, 1, start=carry
            )
            action, timestep = jax.tree.map(lambda leaf: leaf[0], (action, timestep))
            # What the layers made of the value is no longer what came from the environment.
            _, raw = self._bare.step(state, action)
            try:
                raise_if_not_finite(raw._replace(info=timestep.info), action)
            except ValueError as error:
                raise Failure(f"at step {step}: {told(error)}", FAILED) from None
            step += 1


def _advance(
    env: BatchedEnv, policy: PolicyFunction | Policy, most: int, carry: Carry, length: Array
) -> tuple[Carry, Kept]:
    """Runs `length` steps, `most` at the most; rows of the result beyond `length` are empty."""

    def one(carry: Carry) -> tuple[Carry, Kept]:
        carry, kept = rollout(env, policy, carry.key, 1, start=carry, collect=_keep)
        return carry, jax.tree.map(lambda leaf: leaf[0], kept)

    def body(i: Array, so_far: tuple[Carry, Kept]) -> tuple[Carry, Kept]:
        carry, rows = so_far
        carry, row = one(carry)
        return carry, jax.tree.map(lambda column, new: column.at[i].set(new), rows, row)

    avals = jax.eval_shape(one, carry)[1]
    empty = jax.tree.map(lambda aval: jnp.zeros((most, *aval.shape), aval.dtype), avals)
    result: tuple[Carry, Kept] = jax.lax.fori_loop(0, length, body, (carry, empty))
    return result


def _keep(obs: Obs, action: Action, timestep: Timestep) -> Kept:
    del obs, action
    episode, flags = timestep.info["episode"], timestep.info["non_finite"]
    bad = flags["obs"] | flags["reward"] | flags["action"]
    return Kept(timestep.done & timestep.valid, episode["r"], episode["l"], bad)


def _episodes(kept: Kept, step: int, seconds: float, took: float) -> Episodes:
    """Returns the episodes of a piece that began at `step`, after `seconds`."""
    at, rows = np.nonzero(kept.done)
    return Episodes(
        returns=kept.returns[at, rows],
        lengths=kept.lengths[at, rows],
        steps=step + at + 1,
        seconds=seconds + took * (at + 1) / len(kept.done),
    )


def _check_first(obs: Obs) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(obs):
        values = np.asarray(leaf)
        if np.issubdtype(values.dtype, np.inexact) and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise Failure(
                f"the first observation of row {row}{jax.tree_util.keystr(path)} is "
                f"{values[row].tolist()}: the environment's reset gives NaN or infinity.",
                FAILED,
            )
