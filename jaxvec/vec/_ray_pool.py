"""The pool of Ray's actors: a group of environments in each, one call for each group and command."""

import pickle
import time
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from jaxvec.core._xp import map_obs
from jaxvec.errors import NotPendingError, WorkerDiedError
from jaxvec.vec._answers import Answer
from jaxvec.vec._channel import dumps_by_value
from jaxvec.vec._chunk import Chunk, joined, with_losses
from jaxvec.vec._columns import columns_of
from jaxvec.vec._crew import common_spaces
from jaxvec.vec._pools import checked_env_fns
from jaxvec.vec._posts import posts, request_rows
from jaxvec.vec._ray_crew import GRACE, LOOK, Actor, Options, RayCrew
from jaxvec.vec._running import Ending
from jaxvec.vec._serve import Served
from jaxvec.vec._starting import shares
from jaxvec.vec._worker_pool import STEPS, Terms, WorkerPool, in_order


class _Call(NamedTuple):
    """A call that is under way."""

    actor: Actor
    rows: Sequence[int]  # that it serves


class RayPool(WorkerPool):
    """Environments in Ray's actors.

    Rows that are sent at once to one actor come back at once.

    Args:
      env_fns: build one environment each.
      options: how.
    """

    def __init__(self, env_fns: Iterable[Callable[[], Any]], options: Options) -> None:
        env_fns = checked_env_fns(env_fns)
        super().__init__(
            len(env_fns),
            Terms(
                options.timeout, options.restart_workers, options.owner, "actor", "actors", GRACE
            ),
        )
        self._calls: dict[
            Any, _Call
        ] = {}  # under way, by Ray's reference, in the order they were sent
        self._arrived: list[int] = []  # rows of the command `rows` that are back
        self._row_replies: list[Any] = []  # what was said of them
        self._num_steps = 0  # of the command `rollout`
        self._crew = RayCrew(env_fns, options)
        try:
            count = self._crew.cores() if options.num_actors == "auto" else options.num_actors
            spaces: list[tuple[int, Any, Any]] = []
            parts = shares(self.num_envs, min(self.num_envs, count))
            for rows, built in zip(parts, self._crew.start(parts), strict=True):
                spaces += built.spaces(rows.start)
            self.observation_space, self.action_space = common_spaces(spaces, options.owner)
            self.columns = columns_of(self.observation_space, self.num_envs)
            self._crew.bind(self._crew.actors)
        except BaseException:
            self._shut("its construction failed.", GRACE)
            raise

    def send(self, command: str, payload: Any) -> None:
        """Sends a command to the actors that it concerns."""
        skipped = self._prepare(command)
        if command == "rollout":
            self._send_rollout(payload, skipped)
            return
        mail = [
            (post, dumps_by_value(post.part))
            for post in posts(self._crew.actors, command, payload, skipped)
        ]
        # All is pickled now: what cannot be is refused before anything is sent.
        rows = request_rows(command, payload)
        self._begin(command, rows)
        if command == "rows":
            self._under_way += rows
            self._arrived += [row for row in rows if row in skipped]
        if command == "sticky" and self._losses is not None:
            self._losses.sticky.update(payload)
        self._tell_all(
            [
                (post.to, message, post.places, [rows[place] for place in post.places])
                for post, message in mail
            ]
        )

    def _send_rollout(self, payload: Any, skipped: Container[int]) -> None:
        """Sends a policy; a group that has lost a row stands still, as nobody has heard of that yet."""
        message = dumps_by_value(payload)
        self._begin("rollout", range(self.num_envs))
        self._num_steps = payload[1]
        shared = self._crew.shared(message)
        self._tell_all(
            [
                (actor, shared, (), actor.rows)
                for actor in self._crew.actors
                if not any(row in skipped for row in actor.rows)
            ]
        )

    def _tell_all(self, mail: Sequence[tuple[Actor, Any, Sequence[int], Sequence[int]]]) -> None:
        try:
            for actor, message, places, rows in mail:
                self._mail[actor.number] = message, places
                self._call(actor, message, rows)
        except BaseException:
            self._shut(f"`{self._command}` was interrupted while it was sent.", GRACE)
            raise

    def _call(self, actor: Actor, message: Any, rows: Sequence[int]) -> None:
        self._calls[actor.handle.do.remote(self._command, message)] = _Call(actor, rows)

    def recv(self, min_rows: int | None = None) -> Any:
        """Waits for what came of the command."""
        if self._command is None:
            raise NotPendingError(f"{self._owner}: nothing was sent that could be received.")
        if self._command == "rows":
            return self._recv_rows(len(self._under_way) if min_rows is None else min_rows)
        while self._calls:
            self._take(len(self._calls))
        command, replies, mail = self._finished()
        if command == "ask":
            return in_order(replies, mail)
        if command == "rollout":
            return self._chunk(replies)
        return self._served(command, list(replies.values()), self._rows)

    def _chunk(self, replies: dict[int, Chunk | None]) -> Chunk:
        """Joins the chunks of all actors; rows that were lost end in the first step, and stand still then."""
        parts = [
            (actor.rows, chunk)
            for actor in self._crew.actors
            if (chunk := replies.get(actor.number)) is not None
        ]
        whole = joined(self.columns, self.action_space, self._num_steps, parts)
        if self._losses is not None:
            lost = sorted(self._losses.rows)
            resets = self._losses.report(self.columns, lost)
            whole = with_losses(whole, self.columns, lost)
            whole.reset_infos.update({row: resets.get(row, {}) for row in lost})
        map_obs(lambda column, seen: column.__setitem__(..., seen[-1]), self.columns.obs, whole.obs)
        if self._losses is not None:
            self._losses.remember(self.columns, None)
        return whole

    def _recv_rows(self, min_rows: int) -> Served:
        while len(self._arrived) < min_rows:
            is_last = min_rows == len(self._under_way)
            self._take(len(self._calls) if is_last else 1)
        ready = [row for row in self._under_way if row in self._arrived]
        replies, self._row_replies, self._arrived = self._row_replies, [], []
        self._under_way = [row for row in self._under_way if row not in ready]
        if not self._under_way:
            self._command, self._mail = None, {}
            self._replaced.clear()
        self._raise_faults("rows", replies)
        return self._served("rows", replies, ready)

    def _take(self, count: int) -> None:
        """Waits until some calls are back, though not for long, and takes what has come.

        Args:
          count: how many to wait for.
        """
        deadline = self._deadline()
        wait = LOOK if deadline is None else min(LOOK, max(0.0, deadline - time.monotonic()))
        for reference in self._crew.wait(list(self._calls), count, wait):
            call = self._calls.get(reference)
            if call is None:  # its actor died, and was replaced, with another call of it
                continue
            try:
                answer = self._crew.result(reference, call.actor, str(self._command))
            except WorkerDiedError as error:
                self._lost(call.actor, error)
                continue
            del self._calls[reference]
            self._keep(call, _reply(answer))
        if self._calls and deadline is not None and time.monotonic() >= deadline:
            late = [row for call in self._calls.values() for row in call.rows]
            raise self._failed(self._timed_out(late))

    def _keep(self, call: _Call, reply: Any) -> None:
        if self._command == "rows":
            self._arrived += call.rows
            self._row_replies += [] if reply is None else [reply]
        else:
            self._replies[call.actor.number] = reply

    def _replace(self, worker: Actor) -> Actor:
        return self._crew.replace(worker)

    def _resume(self, worker: Actor) -> None:
        number = worker.number
        lost = [each for each, call in self._calls.items() if call.actor.number == number]
        rows = [row for each in lost for row in self._calls.pop(each).rows]
        if self._command in STEPS:
            self._keep(_Call(worker, rows), None)
        else:
            self._call(worker, self._mail[number][0], rows)

    def _exchange(self, worker: Actor, command: str, part: tuple[Any, ...]) -> Any:
        call = worker.handle.do.remote(command, dumps_by_value(part))
        timeout = self._terms.timeout
        began = time.monotonic()
        while not self._crew.wait([call], 1, LOOK):
            if timeout is not None and time.monotonic() - began > timeout:
                raise self._timed_out(list(worker.rows))
        return self._settled(_reply(self._crew.result(call, worker, command)))

    def _end(self, grace: float) -> Ending:
        self._calls = {}
        return self._crew.end(grace)


def _reply(answer: Answer) -> Any:
    """Returns what was said: `Served`, a `Chunk`, a list of answers, a `Fault`, or None."""
    said: Any = None if answer.message is None else pickle.loads(answer.message)
    if isinstance(answer.arrays, Chunk):
        infos, reset_infos = said
        return answer.arrays._replace(infos=infos, reset_infos=reset_infos)
    if not answer.arrays:
        return said
    served = Served({}, {}) if said is None else said
    return served._replace(carried=[*served.carried, *answer.arrays])
