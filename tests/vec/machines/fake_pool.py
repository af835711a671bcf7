"""A pool in this process that holds its caller to the contract of `Pool`, and is as unhelpful as it allows.

Rows become ready in an order that the test draws, more of them than were asked for; what the caller should
have copied is overwritten as soon as it may be; a command out of turn is an error.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxvec.errors import ClosedError
from jaxvec.vec._columns import columns_of, obs_writer
from jaxvec.vec._pools import Pool
from jaxvec.vec._serve import Served
from tests.vec.machines.scripted import Script, ScriptEnv


class FakePool(Pool):
    """N rows of a script.

    Args:
      script: what they do.
      num_envs: N.

    Attributes:
      order: numbers that decide which rows are ready first, and how many more than asked for.
    """

    concurrent = True

    def __init__(self, script: Script, num_envs: int) -> None:
        self.envs = [ScriptEnv(script, row) for row in range(num_envs)]
        self.num_envs = num_envs
        self.observation_space = self.envs[0].observation_space
        self.action_space = self.envs[0].action_space
        self.columns = columns_of(self.observation_space, num_envs)
        self._write = obs_writer(self.observation_space)
        self._command: tuple[str, Any] | None = None
        self._actions: dict[int, Any] = {}
        self._sticky: list[dict[str, Any]] = [{} for _ in range(num_envs)]
        self.closed, self.order = False, 0

    @property
    def pending(self) -> str | None:
        return None if self._command is None else self._command[0]

    @property
    def rows_under_way(self) -> Sequence[int]:
        return list(self._actions) if self.pending == "rows" else []

    def send(self, command: str, payload: Any) -> None:
        if self.closed:
            raise ClosedError("the pool is closed")
        assert self._command is None or self.pending == command == "rows", (
            f"{command} was sent while {self.pending} is pending"
        )
        if command == "step":
            assert len(payload) == self.num_envs
            self._actions = dict(enumerate(payload))
        if command == "rows":
            rows, actions = payload
            assert not set(rows) & set(self._actions)
            self._actions |= dict(zip(rows, actions, strict=True))
        if command != "ask":
            self._spoil(payload[0] if command == "rows" else self._actions)
        self._command = command, payload

    def _spoil(self, rows: Iterable[int]) -> None:
        """Overwrites what is the caller's no longer."""
        rows, columns = list(rows), self.columns
        columns.reward[rows], columns.terminated[rows], columns.truncated[rows] = np.nan, True, True
        for name, array in columns.arrays.items():
            if array.dtype == object or not name.startswith(("obs", "final")):
                continue
            array[rows if name.startswith("obs") else slice(None)] = 77

    def recv(self, min_rows: int | None = None) -> Any:
        assert self._command is not None, "recv was called, but nothing is pending"
        command, payload = self._command
        if command != "rows":
            self._command = None
        if command == "ask":
            name, requests = payload
            return [self._answer(name, row, *arguments) for row, arguments in requests]
        if command == "sticky":
            for row, options in payload.items():
                self._sticky[row] = options
            return None
        if command == "reset":
            infos = {row: self._reset(row, seed, given) for row, seed, given in payload}
            return Served({}, {row: info for row, info in infos.items() if info})
        rows = self._ready(min_rows) if command == "rows" else list(self._actions)
        try:
            return self._stepped(rows)
        except Exception:
            self.close(0)
            raise

    def _ready(self, min_rows: int | None) -> list[int]:
        rows = list(self._actions)
        np.random.default_rng(self.order).shuffle(rows)
        count = len(rows) if min_rows is None else min(len(rows), min_rows + self.order % 2)
        return sorted(rows[:count])

    def _stepped(self, rows: Sequence[int]) -> Served:
        infos, reset_infos, columns = {}, {}, self.columns
        for row in rows:
            obs, reward, terminated, truncated, info = self.envs[row].step(self._actions.pop(row))
            truncated = truncated and not terminated
            columns.reward[row] = reward
            columns.terminated[row], columns.truncated[row] = terminated, truncated
            infos[row] = info
            self._write(columns.obs, row, obs)
            if terminated or truncated:
                self._write(columns.final, row, obs)
                reset_infos[row] = self._reset(row, None, {})
        if not self._actions:
            self._command = None
        return Served(infos, {row: info for row, info in reset_infos.items() if info}, rows)

    def _reset(self, row: int, seed: Any, given: dict[str, Any]) -> dict[str, Any]:
        options = given or self._sticky[row]
        obs, info = self.envs[row].reset(seed=seed, options=options or None)
        self._write(self.columns.obs, row, obs)
        reset_info: dict[str, Any] = info
        return reset_info

    def _answer(self, name: str, row: int, *arguments: Any) -> Any:
        env = self.envs[row]
        if name == "get_attr":
            return getattr(env, *arguments)
        if name == "has_attr":
            return hasattr(env, *arguments)
        if name == "set_attr":
            return setattr(env, *arguments[:2])
        if name == "env_method":
            method, positional, named = arguments
            return getattr(env, method)(*positional, **named)
        assert name == "is_wrapped", name
        return False

    def drop(self) -> None:
        while self._command is not None:
            self.recv()

    def close(self, timeout: float) -> None:
        self.closed, self._command, self._actions = True, None, {}
