"""What a group of environments answers to a caller in another process, made ready to travel.

Worker processes and Ray's actors use it alike. It imports neither jax nor flax nor torch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from jaxvec.vec._channel import dumps, fault_of
from jaxvec.vec._chunk import Chunk
from jaxvec.vec._columns import Carried, Columns, take_rows
from jaxvec.vec._serve import Group, Served
from jaxvec.vec._utils import same_space


class Built(NamedTuple):
    """What is answered when the environments stand."""

    observation_space: Any
    action_space: Any
    odd: tuple[int, Any, Any] | None  # the first row whose spaces differ from these, and its spaces


def build(group: Group, env_fns: Sequence[Any]) -> Built:
    """Builds the environments of a group.

    Args:
      group: has none yet.
      env_fns: pickled by value, or the functions themselves.

    Raises:
      BaseException: what a constructor raised; `group.current` says which.
    """
    group.build([partial(_made, env_fn) for env_fn in env_fns])
    spaces = [(env.observation_space, env.action_space) for env in group.envs]
    for row, (observation_space, action_space) in zip(group.rows, spaces, strict=True):
        if not (
            same_space(observation_space, spaces[0][0]) and same_space(action_space, spaces[0][1])
        ):
            return Built(*spaces[0], odd=(row, observation_space, action_space))
    return Built(*spaces[0], odd=None)


def _made(env_fn: Any) -> Any:
    return (cloudpickle.loads(env_fn) if isinstance(env_fn, bytes) else env_fn)()


class Answer(NamedTuple):
    """What a command led to."""

    message: bytes | None  # pickled; None where the columns say it all
    arrays: Carried | Chunk = []  # noqa: RUF012  what travels beside it; never written


class Answerer:
    """Does commands with a group; whatever comes of them becomes an answer.

    Args:
      group: the environments.
      columns: where they put their results.
      apart: whether arrays travel beside the message (for who moves them better), not within it.
    """

    def __init__(self, group: Group, columns: Columns, *, apart: bool = False) -> None:
        self._group, self._columns, self._apart = group, columns, apart

    def answer(self, name: str, call: Callable[[], Any]) -> Answer:
        """Calls, and returns the result, or the exception that was raised, as an answer.

        Args:
          name: of the command.
          call: does it.
        """
        arrays: Carried = []
        try:
            result = call()
            if isinstance(result, Served):
                result, arrays = self._with_carried(result)
            if isinstance(result, Chunk):
                said = dumps((result.infos, result.reset_infos))
                return Answer(said, result._replace(infos={}, reset_infos={}))
            if result is None:
                return Answer(None, arrays)
            try:
                return Answer(dumps(result), arrays)
            except TypeError as error:
                self._name_unpicklable(result, error)
                raise
        except BaseException as error:  # sys.exit() in a step too
            return Answer(dumps(fault_of(error, self._group.current, name)))

    def _with_carried(self, served: Served) -> tuple[Served | None, Carried]:
        """Takes what the caller does not see out of the columns; None if there is nothing else to say."""
        columns, arrays = self._columns, []
        if columns.carried:
            rows = list(self._group.rows) if served.rows is None else list(served.rows)
            ended = [row for row in rows if columns.terminated[row] or columns.truncated[row]]
            carried = take_rows(columns, rows, ended)
            if self._apart:
                arrays = [part for part in carried if not part[2].dtype.hasobject]
                carried = [part for part in carried if part[2].dtype.hasobject]
            served = served._replace(carried=carried)
        is_silent = not (served.infos or served.reset_infos or served.carried)
        return (None if is_silent else served), arrays

    def _name_unpicklable(self, result: Any, error: TypeError) -> None:
        """Finds out whose part of an answer cannot be pickled."""
        if isinstance(result, Served):
            parts = [*result.infos.items(), *result.reset_infos.items()]
        else:
            parts = list(enumerate(result))
        for place, part in parts:
            try:
                dumps(part)
            except TypeError:
                if isinstance(result, Served):
                    self._group.current = place
                error.add_note(f"(what cannot be pickled is {part!r:.200})")
                return
