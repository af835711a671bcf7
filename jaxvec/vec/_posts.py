"""What a command becomes for each worker: its part of the payload, as the arguments of `Group`'s method."""

from bisect import bisect_right
from collections.abc import Container, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxvec.typing import Array


class HasRows(Protocol):
    """Whoever serves a range of environments."""

    @property
    def rows(self) -> range:
        """Its environments."""
        ...


class Post(NamedTuple):
    """What one worker is told."""

    to: Any  # who
    part: tuple[Any, ...]  # arguments of the method that the command names
    places: Sequence[int]  # where its answers stand among all


def posts(
    workers: Sequence[HasRows], command: str, payload: Any, skipped: Container[int] = ()
) -> list[Post]:
    """Distributes a command; workers whose rows it does not concern are left out.

    Args:
      workers: in the order of their rows.
      command: its name.
      payload: as `Pool.send` takes it.
      skipped: rows that are not to be told.
    """
    starts = [worker.rows.start for worker in workers]
    places: list[list[int]] = [[] for _ in workers]
    for place, row in enumerate(request_rows(command, payload)):
        number = bisect_right(starts, row) - 1
        if number >= 0 and row in workers[number].rows and row not in skipped:
            places[number].append(place)
    return [
        Post(worker, _part(command, payload, own), own)
        for worker, own in zip(workers, places, strict=True)
        if own
    ]


def go_through_memory(actions: Any, memory: Array | None) -> bool:
    """Tells whether workers can read actions from memory `[N, *A]` just as the caller gave them."""
    return (
        memory is not None
        and isinstance(actions, np.ndarray)
        and actions.dtype == memory.dtype
        and actions.shape == memory.shape
    )


def request_rows(command: str, payload: Any) -> Sequence[int]:
    """Returns the row of each request in the payload of a command."""
    if command == "step":
        return range(len(payload))
    if command == "rows":
        return list(payload[0])
    if command == "sticky":
        return list(payload)
    requests = payload[1] if command == "ask" else payload
    return [request[0] for request in requests]


def _part(command: str, payload: Any, places: Sequence[int]) -> tuple[Any, ...]:
    """Returns what stands at some places of a payload."""
    if command == "step":
        return [payload[row] for row in places], list(places)
    if command == "rows":
        rows, actions = payload
        return [actions[place] for place in places], [rows[place] for place in places]
    if command == "sticky":
        items = list(payload.items())
        return (dict(items[place] for place in places),)
    if command == "ask":
        name, requests = payload
        return name, [requests[place] for place in places]
    return ([payload[place] for place in places],)
