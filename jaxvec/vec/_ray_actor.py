"""What runs in an actor of Ray: a group of environments, served by the calls of the caller.

It imports neither jax nor flax nor torch, nor Ray: an actor starts light.
"""

import os
import pickle
import platform
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxvec.vec._answers import Answer, Answerer, build, news
from jaxvec.vec._channel import dumps, fault_of
from jaxvec.vec._chunk import Chunk, HostPolicy, roll_out
from jaxvec.vec._columns import columns_of
from jaxvec.vec._serve import Group, Served


class Whereabouts(NamedTuple):
    """Where an actor runs."""

    host: str
    pid: int


class _AnswererApart(Answerer):
    """Lets arrays of numbers travel beside the message: large ones go through Ray's object store."""

    def _split(self, result: Any) -> tuple[Any, Any]:
        if isinstance(result, Chunk):
            said = result.infos, result.reset_infos
            return said, result._replace(infos={}, reset_infos={})
        if not isinstance(result, Served):
            return result, ()
        carried = self._carried(result)
        arrays = [part for part in carried if not part[2].dtype.hasobject]
        objects = [part for part in carried if part[2].dtype.hasobject]
        return news(result._replace(carried=objects)), arrays


class GroupActor:
    """A group of environments. Every call but the first takes and gives pickled messages.

    Whatever an environment raises is an answer. So a call that raises was broken off by Ray.
    """

    def __init__(self) -> None:
        self._group = Group(range(0))

    def start(self, rows: range, env_fns: Sequence[bytes]) -> tuple[Whereabouts, bytes]:
        """Builds the environments.

        Args:
          rows: their numbers among all N.
          env_fns: their constructors, pickled by value.

        Returns:
          Where they are, and `Built` or `Fault`.
        """
        self._group = Group(rows)
        try:
            built = dumps(build(self._group, env_fns))
        except BaseException as error:  # sys.exit() in a constructor too
            built = dumps(fault_of(error, self._group.current, "__init__"))
        return Whereabouts(platform.node(), os.getpid()), built

    def bind(self, num_envs: int) -> None:
        """Makes the columns for the results; pages of other groups' rows are never touched.

        Args:
          num_envs: N.
        """
        self._columns = columns_of(self._group.envs[0].observation_space, num_envs)
        self._group.bind(self._columns)
        self._answerer = _AnswererApart(self._group, self._columns)
        self._rng = np.random.default_rng()

    def do(self, command: str, message: bytes) -> Answer:
        """Does a command.

        Args:
          command: its name.
          message: the arguments of `Group`'s method, or of `_roll_out`.
        """
        return self._answerer.answer(command, partial(self._done, command, message))

    def _done(self, command: str, message: bytes) -> Any:
        self._group.current = self._group.rows.start
        arguments = pickle.loads(message)  # here, so that what it raises is an answer too
        if command == "rollout":
            return self._roll_out(*arguments)
        return self._group.do(command, arguments)

    def _roll_out(self, policy: HostPolicy, num_steps: int, seed: int | None) -> Chunk:
        if seed is not None:
            self._rng = np.random.default_rng([seed, self._group.rows.start])
        return roll_out(self._group, self._columns, policy, num_steps, self._rng)

    def close(self) -> bytes | None:
        """Closes the environments; returns a `Fault` where that raised."""
        try:
            self._group.close()
        except Exception as error:
            return dumps(fault_of(error, self._group.current, "close"))
        return None
