"""What a group of environments answers to a caller in another process, made ready to travel.

Worker processes and Ray's actors use it alike. It imports neither jax nor flax nor torch.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import cloudpickle  # type: ignore[import-untyped]

from jaxvec.vec._channel import dumps, fault_of
from jaxvec.vec._columns import Carried, Columns, take_rows
from jaxvec.vec._serve import Group, Served
from jaxvec.vec._utils import same_space


class Built(NamedTuple):
    """What is answered when the environments stand."""

    observation_space: Any
    action_space: Any
    odd: tuple[int, Any, Any] | None  # the first row whose spaces differ from these, and its spaces

    def spaces(self, first: int) -> list[tuple[int, Any, Any]]:
        """Returns row, observation space and action space of the first row, and of one that differs."""
        own = (first, self.observation_space, self.action_space)
        return [own, self.odd] if self.odd else [own]


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
    arrays: Any = ()  # what travels beside it, where an `Answerer` lets something


class Answerer:
    """Does commands with a group; whatever comes of them becomes an answer.

    Args:
      group: the environments.
      columns: where they put their results.
    """

    def __init__(self, group: Group, columns: Columns) -> None:
        self._group, self._columns = group, columns

    def answer(self, name: str, call: Callable[[], Any]) -> Answer:
        """Calls, and returns the result, or the exception that was raised, as an answer.

        Args:
          name: of the command.
          call: does it.
        """
        try:
            said, arrays = self._split(call())
            if said is None:
                return Answer(None, arrays)
            try:
                return Answer(dumps(said), arrays)
            except TypeError as error:
                self._name_unpicklable(said, error)
                raise
        except BaseException as error:  # sys.exit() in a step too
            return Answer(dumps(fault_of(error, self._group.current, name)))

    def _split(self, result: Any) -> tuple[Any, Any]:
        """Returns what a result's message says, None for nothing, and what travels beside it."""
        if isinstance(result, Served):
            carried = self._carried(result)
            result = news(result._replace(carried=carried) if carried else result)
        return result, ()

    def _carried(self, served: Served) -> Carried:
        """Takes what the caller does not see out of the columns."""
        columns = self._columns
        if not columns.carried:
            return []
        rows = list(self._group.rows) if served.rows is None else list(served.rows)
        ended = [row for row in rows if columns.terminated[row] or columns.truncated[row]]
        return take_rows(columns, rows, ended)

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


def news(served: Served) -> Served | None:
    """Returns what was served, or None if there is nothing to say of it."""
    return served if served.infos or served.reset_infos or served.carried else None
