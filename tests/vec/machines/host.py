"""The machine that calls a HostVecEnv and its layers in any order, and holds all that comes to the model."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.vec import VecFrameStack, VecMonitor, VecNormalize
from tests.vec.machines.model import Layer, Monitor, Normalize, Row, Rows, Stack, mapped
from tests.vec.machines.scripted import ANY_SPACE, BOX_SPACE, Script, ScriptError, scripts

LAYERS = st.lists(st.sampled_from(["monitor", "stack", "normalize"]), unique=True, max_size=3)
PLACES = st.integers(0, 3)
"""Which layer is called: taken modulo how many there are."""
NUMBERS = st.integers(0, 99)


def row_of(batch: Any, row: int) -> Any:
    """Takes one row out of a batch of observations."""
    if isinstance(batch, tuple):
        return tuple(part[row] for part in batch)
    return mapped(lambda part: part[row], batch)


def assert_equal(actual: Any, expected: Any, *, exactly: bool, what: Any) -> None:
    """Asserts that two observations of one row are equal; to 1e-4 where a layer computes."""
    if isinstance(expected, dict):
        assert list(actual) == list(expected), what
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, tuple | list):
        for one, other in zip(actual, expected, strict=True):
            assert_equal(one, other, exactly=exactly, what=what)
    elif isinstance(expected, str):
        assert actual == expected, (what, actual, expected)
    elif exactly:
        np.testing.assert_array_equal(actual, expected, err_msg=str(what))
    else:
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4, err_msg=str(what))


class HostMachine(RuleBasedStateMachine):
    """Calls in any order, from any layer. A subclass says what is under test.

    Attributes:
      concurrent: whether rows move between `send` and `recv`, so that other calls must wait.
      max_envs: the largest N.
    """

    concurrent = True
    max_envs = 4

    def build(self, script: Script, num_envs: int, choice: int) -> Any:
        """Makes the VecEnv; `choice` is a number for its settings."""
        raise NotImplementedError

    def ready_next(self, order: int) -> None:
        """Lets rows become ready in another order, where that can be chosen."""

    @initialize(data=st.data(), names=LAYERS, choice=NUMBERS)
    def begin(self, data: Any, names: list[str], choice: int) -> None:
        """Draws what the environments do, and the layers."""
        needs_box = not {"stack", "normalize"}.isdisjoint(names)
        script = data.draw(scripts(BOX_SPACE if needs_box else ANY_SPACE))
        self.num_envs = data.draw(st.integers(1, self.max_envs))
        base = self.build(script, self.num_envs, choice)
        self.levels: list[Any] = [base]
        self.layers: list[Layer] = []
        for name in names:
            self._wrap(name, 1 + choice % 3)
        blank = None
        if needs_box:
            parts = script.space.spaces if isinstance(script.space, spaces.Dict) else script.space
            blank = mapped(lambda part: np.zeros(part.shape, part.dtype), parts)
        self.rows = Rows(script, self.num_envs, blank)
        self.exact = self.num_exact = (
            names.index("normalize") if "normalize" in names else len(names)
        )
        self.step_actions: dict[int, Any] | None = None
        self.sent: dict[int, Any] = {}
        self.closed = False
        self.held: Any = None  # what a step returned, to be looked at later
        self.turn = choice

    def _wrap(self, name: str, num_frames: int) -> None:
        venv = self.levels[-1]
        if name == "monitor":
            self.levels.append(VecMonitor(venv))
            self.layers.append(Monitor(self.num_envs))
        elif name == "stack":
            self.levels.append(VecFrameStack(venv, num_frames))
            self.layers.append(Stack(self.num_envs, venv.observation_space, num_frames))
        else:
            self.levels.append(VecNormalize(venv))
            self.layers.append(Normalize(self.num_envs, venv.observation_space))

    def at(self, place: int) -> tuple[Any, list[Layer]]:
        """Returns the VecEnv of a place, and the models of the layers up to it."""
        place %= len(self.levels)
        return self.levels[place], self.layers[:place]

    def some_rows(self, bits: int) -> list[int]:
        """Returns the rows that a number names."""
        return [row for row in range(self.num_envs) if bits >> row & 1]

    def actions(self, seed: int, count: int) -> Any:
        """Returns actions."""
        return (np.arange(count) * 7 + seed) % 100

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Lets NaN and infinity be computed with."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)
            yield

    # What is pending decides what a call must do.

    @property
    def is_pending(self) -> bool:
        """Whether something was sent and not received."""
        return self.step_actions is not None or bool(self.sent)

    def refused(self) -> type[Exception] | None:
        """Returns what a command must raise now, or None."""
        if self.is_pending:
            return AlreadyPendingError
        return ClosedError if self.closed else None

    def refused_question(self) -> type[Exception] | None:
        """Returns what a question must raise now: where nothing moves meanwhile, it is answered."""
        return self.refused() if self.concurrent else None

    def failed(self) -> None:
        """Notes that an environment has raised in a step."""
        self.closed = self.concurrent
        self.step_actions, self.sent = None, {}

    # Stepping.

    @rule(place=PLACES, seed=NUMBERS)
    def step(self, place: int, seed: int) -> None:
        """Steps as a training loop does."""
        if self.start(place, seed):
            self.finish(place)

    @rule(place=PLACES, seed=NUMBERS)
    def step_async(self, place: int, seed: int) -> None:
        """Starts a step."""
        self.start(place, seed)

    @rule(place=PLACES)
    def step_wait(self, place: int) -> None:
        """Finishes the step, maybe on another layer."""
        if self.step_actions is not None:
            self.finish(place)
            return
        with pytest.raises(NotPendingError):
            self.at(place)[0].step_wait()

    def start(self, place: int, seed: int) -> bool:
        """Starts a step; returns whether that was allowed."""
        venv, _ = self.at(place)
        given = self.actions(seed, self.num_envs)
        error = self.refused()
        if error is not None:
            with pytest.raises(error):
                venv.step_async(given)
            return False
        venv.step_async(given)
        self.step_actions = dict(enumerate(given.tolist()))
        given[:] = 0  # it is the caller's again
        return True

    def finish(self, place: int) -> None:
        """Finishes the step, and compares."""
        venv, layers = self.at(place)
        assert self.step_actions is not None
        actions, self.step_actions = self.step_actions, None
        try:
            served = self.rows.step(actions)
        except ScriptError as error:
            with pytest.raises(ScriptError, match=str(error)):
                venv.step_wait()
            self.failed()
            return
        with self.quiet():
            obs, rewards, dones, infos = venv.step_wait()
            served, _ = self.through(layers, served)
        self.compare(place, range(self.num_envs), served, (obs, rewards, dones, infos))

    def through(
        self, layers: list[Layer], served: dict[int, Row]
    ) -> tuple[dict[int, Row], list[Any]]:
        """Returns what layers make of a step."""
        obs = list(self.rows.obs)
        for layer in layers:
            served, obs = layer.step(served, obs)
        return served, obs

    def compare(self, *step: Any) -> None:
        """Compares what a step returned with what it must be: now, or once more has happened."""
        self.look()
        self.turn += 1
        if self.turn % 2:
            self.held = step
        else:
            self._compare(*step)

    def look(self) -> None:
        """Compares what was returned a while ago: nothing may have written into it."""
        if self.held is not None:
            step, self.held = self.held, None
            self._compare(*step)

    def _compare(self, place: int, rows: Any, served: dict[int, Row], came: Any) -> None:
        place %= len(self.levels)
        obs, rewards, dones, infos = came
        exactly = place <= self.num_exact
        assert rewards.dtype == np.float32
        assert dones.dtype == bool
        assert len(infos) == len(rewards) == len(dones) == len(rows)
        for at, row in enumerate(rows):
            expected, info, what = served[row], dict(infos[at]), (place, row)
            assert_equal(row_of(obs, at), expected.obs, exactly=exactly, what=what)
            np.testing.assert_allclose(rewards[at], expected.reward, rtol=1e-5, atol=1e-6)
            assert dones[at] == expected.done, what
            assert info.pop("TimeLimit.truncated") is expected.truncated, what
            if expected.done:
                final = info.pop("terminal_observation")
                assert_equal(final, expected.final, exactly=exactly, what=(what, "final"))
            wanted = dict(expected.info)
            if "episode" in wanted:
                found, own = info.pop("episode"), wanted.pop("episode")
                assert found["l"] == own["l"], what
                np.testing.assert_allclose(found["r"], own["r"], rtol=1e-4, atol=1e-4)
            assert info == wanted, what
        if isinstance(obs, np.ndarray) and obs.dtype != object:
            obs[...] = 78  # all of it is the caller's
        rewards[:], dones[:] = 79, True

    # Single rows.

    @rule(place=PLACES, bits=st.integers(0, 15), seed=NUMBERS)
    def send(self, place: int, bits: int, seed: int) -> None:
        """Starts a step of some rows."""
        venv, _ = self.at(place)
        rows = self.some_rows(bits)
        given = self.actions(seed, len(rows))
        error: Any = None
        if self.step_actions is not None or set(rows) & set(self.sent):
            error = AlreadyPendingError
        elif self.closed and rows:
            error = ClosedError
        if error is not None:
            with pytest.raises(error):
                venv.send(given, rows)
            return
        venv.send(given, rows)
        self.sent |= dict(zip(rows, given.tolist(), strict=True))

    @rule(place=PLACES, wanted=st.integers(0, 4), order=NUMBERS)
    def recv(self, place: int, wanted: int, order: int) -> None:
        """Receives some rows, or all that were sent."""
        venv, layers = self.at(place)
        min_envs = wanted or None
        if not self.sent or wanted > len(self.sent):
            with pytest.raises(NotPendingError):
                venv.recv(min_envs)
            return
        self.ready_next(order)
        failing = {row for row in self.sent if self.rows.failing[row]}
        with self.quiet():
            try:
                ready, obs, rewards, dones, infos = venv.recv(min_envs)
            except ScriptError as error:
                raised = str(error)
            else:
                raised = ""
        if raised:
            assert raised in {f"row {row}" for row in failing}
            self._recv_failed(min_envs)
            return
        rows = ready.tolist()
        assert rows == sorted(set(rows))
        assert set(rows) <= set(self.sent)
        assert len(rows) >= (len(self.sent) if min_envs is None else min_envs)
        assert not failing.intersection(rows)
        with self.quiet():
            served, _ = self.through(
                layers, self.rows.step({row: self.sent.pop(row) for row in rows})
            )
        self.compare(place, rows, served, (obs, rewards, dones, infos))

    def _recv_failed(self, min_envs: int | None) -> None:
        """Notes that a row raised; where nothing is closed, those before it in the queue have moved."""
        if not self.concurrent:
            count = len(self.sent) if min_envs is None else min_envs
            now = list(self.sent)[:count]
            left = {row: self.sent[row] for row in list(self.sent)[count:]}
            with pytest.raises(ScriptError):
                self.rows.step({row: self.sent[row] for row in now})
            self.failed()
            self.sent = left
            return
        self.failed()

    # Resets, and what they use up.

    @rule(place=PLACES)
    def reset(self, place: int) -> None:
        """Resets all; a pending step is dropped."""
        self._reset(place, None)

    @rule(place=PLACES, bits=st.integers(0, 15))
    def reset_rows(self, place: int, bits: int) -> None:
        """Resets some."""
        self._reset(place, self.some_rows(bits))

    def _reset(self, place: int, indices: list[int] | None) -> None:
        venv, layers = self.at(place)
        rows = list(range(self.num_envs)) if indices is None else indices
        call = partial(venv.reset) if indices is None else partial(venv.reset, indices)
        under_way = self.sent if self.step_actions is None else self.step_actions
        error: Any = None
        if set(under_way) - set(rows):
            error = AlreadyPendingError
        elif len(self.rows.options) <= max(rows, default=-1):
            error = IndexError
        elif self.closed:
            error = ClosedError
        if error is not None:
            with pytest.raises(error):
                call()
            return
        if not self._dropped(call):
            return
        with self.quiet():
            obs = call()
            self.rows.reset(rows)
            expected = list(self.rows.obs)
            for layer in layers:
                expected = layer.reset(rows, expected)
        exactly = place % len(self.levels) <= self.num_exact
        for row in range(self.num_envs):
            if self.rows.episodes[row] >= 0:
                assert_equal(row_of(obs, row), expected[row], exactly=exactly, what=(place, row))
        self.look()
        if isinstance(obs, np.ndarray) and obs.dtype != object:
            obs[...] = 78

    def _dropped(self, call: Any) -> bool:
        """Lets what is pending happen, where it does, unseen by the layers; returns whether none raised."""
        pending = self.sent if self.step_actions is None else self.step_actions
        if self.concurrent and pending:
            try:
                kept = list(self.rows.reset_infos)
                self.rows.step(pending)
                self.rows.reset_infos = kept
            except ScriptError:
                with pytest.raises(ScriptError):
                    call()
                self.failed()
                return False
        self.step_actions, self.sent = None, {}
        return True

    @rule(place=PLACES, seed=NUMBERS)
    def seed(self, place: int, seed: int) -> None:
        """Sets the seeds of the next reset."""
        venv, _ = self.at(place)
        seeds = [seed + row for row in range(self.num_envs)]
        assert list(venv.seed(seed)) == seeds
        self.rows.seeds = seeds

    @rule(place=PLACES, value=NUMBERS, kind=st.sampled_from(["one", "each", "none", "short"]))
    def set_options(self, place: int, value: int, kind: str) -> None:
        """Sets the options of the next reset: for all, for each, too few."""
        venv, _ = self.at(place)
        count = self.num_envs - (kind == "short")
        each: list[dict[str, Any]] = [{"x": value + row} if row % 2 else {} for row in range(count)]
        if kind == "one":
            each = [{"x": value}] * count
        if kind == "none":
            each = [{}] * count
        venv.set_options({"one": {"x": value}, "none": None}.get(kind, each))
        self.rows.options = list(each)

    @rule(place=PLACES, value=NUMBERS)
    def set_sticky_options(self, place: int, value: int) -> None:
        """Sets the options of every reset from now on."""
        venv, _ = self.at(place)
        each: Any = [{"s": value} if (row + value) % 2 else {} for row in range(self.num_envs)]
        error = self.refused_question()
        if error is not None:
            with pytest.raises(error):
                venv.set_options(each, sticky=True)
            return
        venv.set_options(each, sticky=True)
        self.rows.sticky = each

    # Questions.

    def _ask(self, expected: Any, call: Any) -> bool:
        error = self.refused_question()
        if error is not None:
            with pytest.raises(error):
                call()
            return False
        assert call() == expected
        return True

    @rule(place=PLACES, bits=st.integers(0, 15))
    def get_attr(self, place: int, bits: int) -> None:
        """Reads an attribute."""
        venv, _ = self.at(place)
        rows = self.some_rows(bits)
        self._ask([self.rows.levels[row] for row in rows], lambda: venv.get_attr("level", rows))
        self._ask(list(range(self.num_envs)), lambda: venv.get_attr("row"))

    @rule(place=PLACES, bits=st.integers(0, 15), value=NUMBERS)
    def set_attr(self, place: int, bits: int, value: int) -> None:
        """Writes one."""
        venv, _ = self.at(place)
        rows = self.some_rows(bits)
        if self._ask(None, lambda: venv.set_attr("level", value, rows)):
            for row in rows:
                self.rows.levels[row] = value

    @rule(place=PLACES, bits=st.integers(0, 15), value=NUMBERS)
    def env_method(self, place: int, bits: int, value: int) -> None:
        """Calls a method."""
        venv, _ = self.at(place)
        rows = self.some_rows(bits)
        expected = [(row, self.rows.levels[row], value + 1) for row in rows]
        self._ask(expected, lambda: venv.env_method("say", value, plus=1, indices=rows))

    @rule(place=PLACES, bits=st.integers(0, 15))
    def env_method_raises(self, place: int, bits: int) -> None:
        """Calls one that raises: of the first row, and nothing else happens."""
        venv, _ = self.at(place)
        rows = self.some_rows(bits) or [0]
        with pytest.raises(self.refused_question() or ScriptError) as caught:
            venv.env_method("raise_now", indices=rows)
        if caught.type is ScriptError:
            assert str(caught.value) == f"row {rows[0]}"

    @rule(place=PLACES)
    def has_attr(self, place: int) -> None:
        """Looks for attributes."""
        venv, _ = self.at(place)
        self._ask(True, lambda: venv.has_attr("level"))
        self._ask(False, lambda: venv.has_attr("no_such_thing"))
        self._ask([False] * self.num_envs, lambda: venv.env_is_wrapped(VecMonitor))

    # Mistakes: nothing may change.

    @rule(place=PLACES, seed=NUMBERS)
    def too_few_actions(self, place: int, seed: int) -> None:
        """Steps with an action too few."""
        error = self.refused()
        with pytest.raises(ValueError if error in (None, ClosedError) else error):
            self.at(place)[0].step_async(self.actions(seed, self.num_envs - 1))

    @rule(place=PLACES)
    def no_such_row(self, place: int) -> None:
        """Names a row that there is not."""
        venv, _ = self.at(place)
        for call in (
            lambda: venv.reset([self.num_envs]),
            lambda: venv.get_attr("level", self.num_envs),
            lambda: venv.set_attr("level", 1, [-self.num_envs - 1]),
        ):
            with pytest.raises(IndexError):
                call()

    # Switches of layers, and ends.

    @precondition(lambda self: any(isinstance(layer, Normalize) for layer in self.layers))
    @rule(training=st.booleans(), norm_reward=st.booleans())
    def switch(self, training: bool, norm_reward: bool) -> None:
        """Switches a normalization."""
        for venv, layer in zip(self.levels[1:], self.layers, strict=True):
            if isinstance(layer, Normalize):
                venv.training = layer.training = training
                venv.norm_reward = layer.norm_reward = norm_reward

    @rule(place=PLACES, row=PLACES, luck=st.integers(0, 9))
    def plan_failure(self, place: int, row: int, luck: int) -> None:
        """Lets an environment raise at its next step, now and then."""
        if luck or self.refused():
            return
        venv, row = self.at(place)[0], row % self.num_envs
        venv.env_method("plan_failure", indices=row)
        self.rows.failing[row] = True

    @rule(place=PLACES, luck=st.integers(0, 19))
    def close(self, place: int, luck: int) -> None:
        """Closes, now and then; twice is once."""
        if luck:
            return
        venv, _ = self.at(place)
        venv.close()
        venv.close()
        self.closed = self.concurrent
        self.step_actions, self.sent = None, {}

    @invariant()
    def the_face_tells_the_state(self) -> None:
        """Compares what can be read at any time."""
        if not hasattr(self, "levels"):
            return
        for venv in self.levels:
            assert list(venv.reset_infos) == self.rows.reset_infos
        assert self.levels[0].waiting == self.is_pending
        for venv, layer in zip(self.levels[1:], self.layers, strict=True):
            if isinstance(layer, Monitor):
                assert venv.episode_count == layer.count
                assert venv.episode_lengths.tolist() == layer.lengths
                np.testing.assert_allclose(
                    venv.episode_returns, layer.returns, rtol=1e-4, atol=1e-4
                )
            if isinstance(layer, Normalize):
                np.testing.assert_allclose(venv.ret_rms.count, layer.of_returns.count, rtol=1e-6)
                np.testing.assert_allclose(venv.returns, layer.returns, rtol=1e-4, atol=1e-4)

    def teardown(self) -> None:
        """Closes."""
        if hasattr(self, "levels"):
            self.levels[-1].close()
            self.look()
