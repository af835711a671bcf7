"""A rollout through the VecEnv interface: what a user of Stable-Baselines3 does, step by step."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxvec.cli._episodes import Episodes
from jaxvec.cli._failure import FAILED, Failure, failing, told
from jaxvec.cli._run import Piece
from jaxvec.core._checks import check_finite, raise_if_not_finite
from jaxvec.core._episode import episode_statistics
from jaxvec.core._transform import Timestep, VecSpec, chain
from jaxvec.core._xp import map_obs
from jaxvec.envs import Policy, PolicyFunction
from jaxvec.random import hash_key
from jaxvec.spaces import sample
from jaxvec.typing import Action, Array, Key, Obs, PyTree
from jaxvec.vec._actions import action_check
from jaxvec.vec._frame_stack import VecFrameStack
from jaxvec.vec._normalize import VecNormalize
from jaxvec.vec._transform import VecTransform

_SECONDS_PER_PIECE = 0.2
_ACTIONS_AT_ONCE = 64


class Watch(VecTransform):
    """Looks at each step: raises at the first NaN or infinity, and notes the episodes that ended.

    Args:
      venv: the VecEnv inside, without layers.
    """

    _reads = ("info", "reward")

    def __init__(self, venv: Any) -> None:
        super().__init__(venv, chain(check_finite(), episode_statistics()))
        self.steps = 0
        self.ended: list[
            tuple[int, Array, Array]
        ] = []  # step, returns, lengths; emptied by the reader
        self._action: Action = None

    def _before_step(self, actions: Action) -> None:
        self._action = actions

    def _after_reset(self, timestep: Timestep) -> None:
        try:
            raise_if_not_finite(timestep)
        except ValueError as error:
            raise Failure(f"the first observation: {told(error)}", FAILED) from None

    def _after_step(self, timestep: Timestep) -> Timestep:
        try:
            raise_if_not_finite(timestep, self._action)
        except ValueError as error:
            raise Failure(f"at step {self.steps}: {told(error)}", FAILED) from None
        self.steps += 1
        rows = np.flatnonzero(np.asarray(timestep.done))
        if rows.size:
            episode = timestep.info["episode"]
            returns, lengths = (np.asarray(episode[name])[rows] for name in ("r", "l"))
            self.ended.append((self.steps, returns, lengths))
        return timestep


class VecRun:
    """A rollout over a VecEnv, which has made its first step, and advances piece by piece.

    Args:
      make: makes the VecEnv, without layers.
      policy: what acts; None for random actions, drawn from the same keys as those of a compiled rollout.
      seed: of the environments and of the policy.
      num_steps: T.
      stack: how many frames to stack; None for none.
      normalize: whether to normalize observations and rewards.

    Attributes:
      compile_seconds: until the first step was done; after that nothing is compiled any more.

    Raises:
      Failure: if environment, layers and policy do not fit together.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        policy: PolicyFunction | Policy | None,
        seed: int,
        num_steps: int,
        *,
        stack: int | None = None,
        normalize: bool = False,
    ) -> None:
        self._num_steps = num_steps
        self._normalized: VecNormalize | None = None
        started = time.perf_counter()
        with contextlib.ExitStack() as cleaning, failing(""):
            venv = make()
            cleaning.callback(venv.close)
            self._watch = venv = Watch(venv)
            if stack is not None:
                venv = VecFrameStack(venv, stack)
            if normalize:
                venv = self._normalized = VecNormalize(venv)
            self._venv: Any = venv
            venv.seed(seed)
            self._obs: Obs = venv.reset()
            self._first: Array = np.ones(venv.num_envs, bool)
            spec = VecSpec(venv.num_envs, venv.observation_space, venv.action_space)
            self._acting = self._actions(policy, spec, hash_key(seed))
            self._step()
            cleaning.pop_all()
        self.compile_seconds = time.perf_counter() - started

    def pieces(self) -> Iterator[Piece]:
        """Runs all T steps; the first piece is the step that was made already, and takes no time.

        Raises:
          Failure: at the first NaN or infinity, or if the environments fail.
        """
        yield Piece(1, 0.0, self._episodes(0, 1, 0.0, 0.0))
        seconds = 0.0
        while self._watch.steps < self._num_steps:
            begun, started = self._watch.steps, time.perf_counter()
            took = 0.0
            with failing(f"at step {begun} or later", FAILED):
                while self._watch.steps < self._num_steps and took < _SECONDS_PER_PIECE:
                    self._step()
                    took = time.perf_counter() - started
            length = self._watch.steps - begun
            yield Piece(length, took, self._episodes(begun, length, seconds, took))
            seconds += took

    def save_statistics(self, path: Path) -> None:
        """Writes what the normalization has learnt, as `VecNormalize.save` does."""
        assert self._normalized is not None
        self._normalized.save(path)

    def close(self) -> None:
        """Ends the environments."""
        self._venv.close()

    def _step(self) -> None:
        self._obs, _, self._first, _ = self._venv.step(next(self._acting))

    def _actions(
        self, policy: PolicyFunction | Policy | None, spec: VecSpec, key: Key
    ) -> Iterator[Action]:
        """Yields an action for each step, from the keys that `jaxvec.rollout` would use."""
        _, policy_key, key = jax.random.split(key, 3)
        if policy is None:
            yield from _random_actions(spec, key)
        state = policy.init(policy_key, spec) if isinstance(policy, Policy) else ()

        @jax.jit
        def act(key: Key, state: PyTree, obs: Obs, first: Array) -> tuple[Key, PyTree, Action]:
            key, act_key = jax.random.split(key)
            if isinstance(policy, Policy):
                return key, *policy.act(state, act_key, obs, first)
            assert policy is not None
            return key, state, policy(act_key, obs)

        check = action_check(spec.action_space, spec.num_envs, "the policy's actions")
        while True:
            key, state, action = act(key, state, self._obs, self._first)
            action = map_obs(np.array, action)
            if self._watch.steps == 0:  # a wrong shape or type shows at once
                check(action)
            yield action

    def _episodes(self, begun: int, length: int, seconds: float, took: float) -> Episodes:
        """Returns what ended in a piece that began after `begun` steps and `seconds`."""
        ended, self._watch.ended = self._watch.ended, []
        at = np.concatenate([np.zeros(0, int), *(np.full(len(r), step) for step, r, _ in ended)])
        return Episodes(
            returns=np.concatenate([np.zeros(0, np.float32), *(r for _, r, _ in ended)]),
            lengths=np.concatenate([np.zeros(0, np.int32), *(lengths for *_, lengths in ended)]),
            steps=at,
            seconds=seconds + took * (at - begun) / length,
        )


def _random_actions(spec: VecSpec, key: Key) -> Iterator[Action]:
    """Yields random actions; many are drawn at once, or drawing them would cost more than a step."""

    def one(key: Key, _: None) -> tuple[Key, Action]:
        key, act_key = jax.random.split(key)
        return key, sample(act_key, spec.action_space, spec.num_envs)

    @jax.jit
    def block(key: Key) -> tuple[Key, Action]:
        return jax.lax.scan(one, key, None, _ACTIONS_AT_ONCE)

    while True:
        key, drawn = block(key)
        drawn = map_obs(np.array, drawn)
        for step in range(_ACTIONS_AT_ONCE):
            yield map_obs(lambda leaf, step=step: leaf[step], drawn)
