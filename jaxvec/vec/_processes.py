"""The pool of worker processes: several environments each, results in shared memory."""

from collections.abc import Sequence
from typing import Any

from jaxvec.errors import NotPendingError
from jaxvec.vec._advice import Advice
from jaxvec.vec._channel import dumps
from jaxvec.vec._crew import GRACE
from jaxvec.vec._crew_pool import CrewPool
from jaxvec.vec._posts import go_through_memory, posts, request_rows
from jaxvec.vec._running import Worker
from jaxvec.vec._serve import Served
from jaxvec.vec._worker import DONE, DONE_WITH_MESSAGE, PENDING, STEP
from jaxvec.vec._worker_pool import in_order

_SMALL = 1 << 15  # bytes: what a channel takes without anybody reading
_OWN = -1  # stands for the caller where workers have numbers


class SubprocessPool(CrewPool):
    """Environments in worker processes; see `CrewPool`."""

    def send(self, command: str, payload: Any) -> None:
        """Sends a command to the workers that it concerns."""
        skipped = self._prepare(command)
        lost = self._losses.rows if self._losses is not None else set()
        is_word = (
            command == "step" and not lost and go_through_memory(payload, self.columns.actions)
        )
        mail = [] if is_word else self._pickled(command, payload, skipped)
        # All is pickled now: what cannot be is refused before anything is sent.
        self._begin(command, request_rows(command, payload))
        try:
            if is_word:
                self._say_step(payload)
            if command == "rows":
                self._under_way += self._rows
                self._crew.row_status[self._rows] = PENDING
                self._crew.row_status[sorted(lost)] = DONE
            if command == "sticky" and self._losses is not None:
                self._losses.sticky.update(payload)
            for worker, message, places in mail:
                self._mail[worker.number] = message, places
                if command == "rows" and len(message) > _SMALL:
                    self._listen(worker, self._rows)
                self._tell(worker, message)
        except BaseException:
            self._shut(f"`{command}` was interrupted while it was sent.", GRACE)
            raise

    def _listen(self, worker: Worker, new_rows: Sequence[int]) -> None:
        """Lets a worker finish what it was sent before, so that it reads what is sent now.

        Long messages both ways at once would wait for each other.
        """
        while set(self._late_rows(worker)).difference(new_rows):
            self._read_row_messages(self._ready_rows())
            self._sleep()
        self._read_row_messages(self._ready_rows())

    def _pickled(
        self, command: str, payload: Any, skipped: Any
    ) -> list[tuple[Worker, bytes, Sequence[int]]]:
        """Returns what each worker is to be told; the caller's own share is told at once."""
        mail = [
            (post.to, dumps((command, post.part)), post.places)
            for post in posts(self._crew.workers, command, payload, skipped)
        ]
        if self._own is not None:
            for post in posts([self._own], command, payload, skipped):
                self._mail[_OWN] = b"", post.places
                self._own.put(command, post.part)
        return mail

    def _say_step(self, actions: Any) -> None:
        """Starts a step whose actions workers read from memory."""
        crew = self._crew
        assert self.columns.actions is not None
        self.columns.actions[...] = actions
        if self._own is not None:
            self._own.put("step", (actions[: self._own.rows.stop],))
        crew.status[:] = PENDING
        crew.words[:] = STEP
        for worker in crew.workers:
            worker.go.release()

    def recv(self, min_rows: int | None = None) -> Any:
        """Waits for what came of the command."""
        if self._command is None:
            raise NotPendingError(f"{self._owner}: nothing was sent that could be received.")
        if self._command == "rows":
            return self._recv_rows(len(self._under_way) if min_rows is None else min_rows)
        if self._own is not None and self._own.is_due:
            self._replies[_OWN] = self._run_own()
        crew, complete = self._crew, False
        while not complete:
            # No array is held in a variable here: an exception would keep it, and the memory, alive.
            while b"\0" in crew.status.tobytes():
                self._sleep()
            complete = self._read_messages()
        self._take_wakeups()
        command, replies, mail = self._finished()
        if command == "ask":
            return in_order(replies, mail)
        if command == "step" and self._advice is not None:
            self._advise(self._advice)
        return self._served(command, list(replies.values()), self._rows)

    def _read_messages(self) -> bool:
        """Reads what workers have announced; returns whether all of it came."""
        crew = self._crew
        for worker in list(crew.workers):
            if crew.status[worker.number] == DONE_WITH_MESSAGE:
                try:
                    self._replies[worker.number] = self._message(worker)
                except EOFError:
                    self._died(worker)
                    return False
                crew.status[worker.number] = DONE
        return True

    def _recv_rows(self, min_rows: int) -> Served:
        ready: list[int] = []
        complete = False
        while not complete:
            ready = self._ready_rows()
            while len(ready) < min_rows:
                if self._own is not None and self._own.is_due:
                    row = self._own.next_row()
                    self._row_replies[row] = self._run_own()
                    self._crew.row_status[row] = DONE
                else:
                    self._sleep()
                ready = self._ready_rows()
            complete = self._read_row_messages(ready)
        replies = [self._row_replies.pop(row) for row in ready if row in self._row_replies]
        self._under_way = [row for row in self._under_way if row not in ready]
        if not self._under_way:
            self._command, self._mail = None, {}
            self._replaced.clear()
            self._take_wakeups()
        self._raise_faults("rows", replies)
        return self._served("rows", replies, ready)

    def _ready_rows(self) -> list[int]:
        states = self._crew.row_status[self._under_way].tolist()
        return [row for row, state in zip(self._under_way, states, strict=True) if state != PENDING]

    def _read_row_messages(self, ready: Sequence[int]) -> bool:
        """Reads what workers have announced for some rows; returns whether all of it came."""
        crew = self._crew
        for worker in list(crew.workers):
            # A worker's messages come in the order in which its rows were sent.
            for row in ready:
                if row in worker.rows and crew.row_status[row] == DONE_WITH_MESSAGE:
                    try:
                        self._row_replies[row] = self._message(worker)
                    except EOFError:
                        self._died(worker)
                        return False
                    crew.row_status[row] = DONE
        return True

    def _run_own(self) -> Any:
        """Does the caller's own share."""
        assert self._own is not None
        try:
            return self._own.run()
        except BaseException:  # an interrupt: nobody knows which rows were stepped
            self._shut(f"`{self._command}` was interrupted in the caller's own share.", GRACE)
            raise

    def _fault(self, reply: Any) -> tuple[int, Exception] | None:
        if isinstance(reply, Exception):  # of the caller's own share
            assert self._own is not None
            return self._own.group.current, reply
        return super()._fault(reply)

    def _advise(self, advice: Advice) -> None:
        advice.due_in -= 1
        if advice.due_in == 0:
            self._advice = None
            advice.give(self.num_envs, len(self._crew.workers))
