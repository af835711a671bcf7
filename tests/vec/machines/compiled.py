"""The machine that calls a JaxVecEnv and its layers in any order, and compares all that comes with the model.

The environment draws three numbers when an episode begins, and all else of the episode follows from them: its
length, its end, its rewards. So the model need not know how keys are made; it asks that the same seed and
history draw the same numbers, and that no other history does.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jaxvec import Env, vectorize
from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.vec import JaxVecEnv, VecEnvWrapper, VecFrameStack, VecMonitor, VecNormalize
from tests.vec.machines.model import Layer, Monitor, Normalize, Row, Stack

N = 3
FIRST_SEED = 1000
SPACE = spaces.Box(-np.inf, np.inf, (5,), np.float32)
NUMBERS = st.integers(0, 99)
PLACES = st.integers(0, 4)
STACKS: tuple[tuple[str, ...], ...] = (
    (),
    ("monitor", "stack", "normalize"),
    ("normalize", "stack"),
    ("monitor", "plain", "stack", "normalize"),
)
"""Layers from the inside out; a plain wrapper ends the compiled run, layers above it work on NumPy."""


class PlainWrapper(VecEnvWrapper):
    """A wrapper in SB3's style that changes nothing."""

    def reset(self) -> Any:
        """Resets."""
        return self.venv.reset()

    def step_wait(self) -> Any:
        """Waits."""
        return self.venv.step_wait()


def _reset(key: Any, params: Any, options: Any = None) -> Any:
    drawn = (jax.random.bits(key, (3,), jnp.uint32) & 0xFFFF).astype(jnp.int32)
    shift = jnp.float32(0 if options is None else options["shift"])
    state = {"drawn": drawn, "steps": jnp.int32(0), "shift": shift}
    return state, _observe(state, params), {"at": state["steps"], "shift": shift}


def _observe(state: Any, params: Any) -> Any:
    return jnp.concatenate([params["row"][None], state["drawn"], state["steps"][None]]).astype(
        jnp.float32
    )


def _step(key: Any, state: Any, action: Any, params: Any) -> Any:
    state = {**state, "steps": state["steps"] + 1}
    first, second, third = state["drawn"]
    ends = state["steps"] > first % 5
    reward = (third % 8) / 4 + action / 64 + state["shift"] + params["bonus"]
    terminated, truncated = ends & (second % 3 != 0), ends & (second % 3 != 1)
    info = {"at": state["steps"], "shift": state["shift"]}
    return state, _observe(state, params), reward, terminated, truncated, info


def make_base() -> JaxVecEnv:
    """Makes three rows; parameters tell them apart."""
    env = Env(
        _reset,
        _step,
        params={"row": jnp.int32(0), "bonus": jnp.float32(0)},
        observation_space=SPACE,
        action_space=spaces.Discrete(100),
        methods={"say": lambda state, params, word: params["row"] * 100 + word},
    )
    params = {"row": jnp.arange(N, dtype=jnp.int32), "bonus": jnp.zeros(N, jnp.float32)}
    return JaxVecEnv(vectorize(env, N, params=params), seed=FIRST_SEED, info_keys=("at", "shift"))


class ModelRow:
    """One row: what its episode follows from, and the history that led there."""

    def __init__(self, row: int) -> None:
        self.row, self.drawn, self.steps = row, (0, 0, 0), 0
        self.bonus, self.shift = 0.0, 0.0
        self.seed, self.history = (
            FIRST_SEED + row,
            (-1, 0),
        )  # resets since the seed, steps since then

    def obs(self) -> Any:
        """Returns the observation."""
        return np.array([self.row, *self.drawn, self.steps], np.float32)

    def stepped(self, action: int) -> tuple[float, bool, bool]:
        """Steps; returns reward and flags."""
        self.steps += 1
        self.history = self.history[0], self.history[1] + 1
        first, second, third = self.drawn
        reward = np.float32((third % 8) / 4 + action / 64 + self.shift + self.bonus)
        if self.steps <= first % 5:
            return float(reward), False, False
        return float(reward), second % 3 != 0, second % 3 == 0


class JaxMachine(RuleBasedStateMachine):
    """Calls in any order, from any layer.

    Attributes:
      kept: VecEnvs that are used again by the next example, so that nothing is compiled again; None: every
        example makes its own, which may be closed and starts before any reset.
    """

    kept: dict[int, list[Any]] | None = None
    drawn_by: dict[Any, Any] = {}  # noqa: RUF012  history -> numbers, over all examples

    @initialize(which=st.integers(0, len(STACKS) - 1))
    def begin(self, which: int) -> None:
        """Takes one of the stacks of layers."""
        self.names = STACKS[which]
        levels = None if self.kept is None else self.kept.get(which)
        if levels is None:
            levels = self._made()
        self.levels = levels
        self.layers: list[Layer] = []
        for name, venv in zip(self.names, self.levels, strict=False):
            space = venv.observation_space
            layer: Any = {"monitor": lambda: Monitor(N), "plain": Layer}.get(name)
            if name == "stack":
                self.layers.append(Stack(N, space, 3))
            elif name == "normalize":
                self.layers.append(Normalize(N, space))
            else:
                self.layers.append(layer())
        self.border = self.names.index("plain") if "plain" in self.names else len(self.names)
        self.rows = [ModelRow(row) for row in range(N)]
        self.seeds: list[Any] = [FIRST_SEED + row for row in range(N)]
        self.options: list[Any] = [None] * N
        self.infos: list[Any] = [{} for _ in range(N)]
        self.pending: Any = None  # (run, what came)
        self.latest: Any = None  # (run, observations)
        self.counts = [0] * len(self.layers)
        self.is_started = self.is_closed = False
        if self.kept is None:
            return
        if which not in self.kept:
            self.kept[which] = self.levels
            self._states(save=True)
        self._as_new()

    def _made(self) -> list[Any]:
        kinds = {"monitor": VecMonitor, "plain": PlainWrapper, "normalize": VecNormalize}
        levels: list[Any] = [make_base()]
        for name in self.names:
            inner = levels[-1]
            levels.append(VecFrameStack(inner, 3) if name == "stack" else kinds[name](inner))
        return levels

    def _states(self, *, save: bool) -> None:
        for venv in self.levels[1:]:
            if save:
                venv.state_at_first = None if isinstance(venv, PlainWrapper) else venv.state
            elif not isinstance(venv, PlainWrapper):
                venv.state = venv.state_at_first

    def _as_new(self) -> None:
        """Brings VecEnvs of an earlier example back to where they began, but for a first reset."""
        base = self.levels[0]
        base.set_attr("bonus", 0.0)
        base.set_options(None)
        base.seed(FIRST_SEED)
        self.is_started = True
        self._reset(0, None)
        self._states(save=False)
        for venv in self.levels[1:]:
            if isinstance(venv, VecMonitor):
                venv.episode_count = 0
            if isinstance(venv, VecNormalize):
                venv.training = venv.norm_reward = True

    def run_of(self, place: int) -> int:
        """Returns the outermost layer of the compiled run that serves this one."""
        return min(place, self.border)

    # The rows.

    def _open(self, rows: list[int], *, by_reset: bool) -> None:
        """Begins episodes: the numbers drawn must be those of this history, and of no other."""
        drawn = self.levels[0].get_attr("state", rows)
        for row, state in zip(rows, drawn, strict=True):
            own = self.rows[row]
            if by_reset:
                resets = own.history[0] + 1
                if self.seeds[row] is not None:
                    own.seed, resets = self.seeds[row], 0
                own.history, self.seeds[row] = (resets, 0), None
                option, self.options[row] = self.options[row], None
                own.shift = option or 0.0
            else:
                own.shift = 0.0
            own.drawn = tuple(np.asarray(state["drawn"]).tolist())
            own.steps = 0
            key = (own.seed, own.history)
            assert self.drawn_by.setdefault(key, own.drawn) == own.drawn, key
            assert self.drawn_by.setdefault(own.drawn, key) == key, own.drawn
            assert int(state["steps"]) == 0
            self.infos[row] = {"at": 0, "shift": own.shift}

    def _stepped(self, actions: list[int]) -> dict[int, Row]:
        served, ended = {}, []
        for row, action in enumerate(actions):
            own = self.rows[row]
            reward, terminated, truncated = own.stepped(action)
            final = own.obs() if terminated or truncated else None
            info = {"at": own.steps, "shift": own.shift}
            served[row] = Row(own.obs(), reward, terminated, truncated, final, info)
            ended += [row] if terminated or truncated else []
        before = list(self.infos)
        if ended:
            self._open(ended, by_reset=False)
        self.infos, self._infos_after = before, self.infos
        return {row: each._replace(obs=self.rows[row].obs()) for row, each in served.items()}

    # Stepping.

    @rule(place=PLACES, seed=NUMBERS)
    def step(self, place: int, seed: int) -> None:
        """Steps as a training loop does."""
        if self._start(place, seed):
            self._finish(place)

    @rule(place=PLACES, seed=NUMBERS)
    def step_async(self, place: int, seed: int) -> None:
        """Starts a step."""
        self._start(place, seed)

    def _start(self, place: int, seed: int) -> bool:
        place %= len(self.levels)
        actions = (np.arange(N) * 7 + seed) % 100
        error: Any = None
        if self.pending is not None:
            error = AlreadyPendingError
        elif self.is_closed:
            error = ClosedError
        elif not self.is_started:
            error = RuntimeError
        if error is not None:
            with pytest.raises(error):
                self.levels[place].step_async(actions)
            return False
        self.levels[place].step_async(actions)
        run = self.run_of(place)
        given = actions.tolist()
        actions[:] = 0  # they are the caller's again
        served, obs = self._through(0, run, self._stepped(given), None)
        self.pending = run, served, obs
        return True

    def _through(self, start: int, stop: int, served: Any, obs: Any) -> tuple[Any, Any]:
        obs = [row.obs() for row in self.rows] if obs is None else obs
        with np.errstate(all="ignore"):
            for layer in self.layers[start:stop]:
                served, obs = layer.step(served, obs)
        return served, obs

    @rule(place=PLACES)
    def step_wait(self, place: int) -> None:
        """Finishes a step; only where it was started, or above a layer that works on NumPy."""
        place %= len(self.levels)
        if self.pending is not None and self.pending[0] == self.run_of(place):
            self._finish(place)
            return
        with pytest.raises(NotPendingError):
            self.levels[place].step_wait()

    def _finish(self, place: int) -> None:
        place %= len(self.levels)
        run, served, obs = self.pending
        self.pending, self.latest = None, (run, obs)
        self.infos = self._infos_after
        came = self.levels[place].step_wait()
        served, _ = self._through(run, place, served, obs)
        for at, layer in enumerate(self.layers[:place]):
            if isinstance(layer, Monitor):
                self.counts[at] += sum(each.done for each in served.values())
        self._compare(served, came)

    def _compare(self, served: dict[int, Row], came: Any) -> None:
        obs, rewards, dones, infos = came
        for row, expected in served.items():
            near = {"rtol": 1e-3, "atol": 1e-3, "err_msg": str(row)}
            np.testing.assert_allclose(obs[row], expected.obs, **near)
            np.testing.assert_allclose(rewards[row], expected.reward, **near)
            assert dones[row] == expected.done
            info = dict(infos[row])
            assert info.pop("TimeLimit.truncated") == expected.truncated
            assert ("terminal_observation" in info) == expected.done
            if expected.done:
                np.testing.assert_allclose(info.pop("terminal_observation"), expected.final, **near)
            wanted = dict(expected.info)
            assert ("episode" in info) == ("episode" in wanted)
            if "episode" in wanted:
                found, own = info.pop("episode"), wanted.pop("episode")
                assert found["l"] == own["l"]
                np.testing.assert_allclose(found["r"], own["r"], **near)
            assert info == wanted

    # Resets.

    @rule(place=PLACES)
    def reset(self, place: int) -> None:
        """Resets all; a pending step is dropped."""
        self._reset(place, None)

    @rule(place=PLACES, bits=st.integers(0, 2**N - 1))
    def reset_rows(self, place: int, bits: int) -> None:
        """Resets some."""
        self._reset(place, [row for row in range(N) if bits >> row & 1])

    def _reset(self, place: int, indices: list[int] | None) -> None:
        place %= len(self.levels)
        venv, run = self.levels[place], self.run_of(place)
        is_all = indices is None or len(indices) == N
        call = venv.reset if indices is None else lambda: venv.reset(indices)
        error: Any = None
        if indices is not None and place > self.border:
            error = NotImplementedError if place > self.border + 1 else TypeError
        elif self.is_closed:
            error = ClosedError
        elif not is_all and self.pending is not None:
            error = AlreadyPendingError
        elif not is_all and (self.latest is None or self.latest[0] != run):
            error = RuntimeError
        elif len(self.options) != N:
            error = IndexError
        if error is not None:
            with pytest.raises(error):
                call()
            return
        obs = call()
        rows = list(range(N)) if is_all or indices is None else indices
        self.pending, self.is_started = None, True
        if rows:
            self._open(rows, by_reset=True)
        expected = [row.obs() for row in self.rows]
        with np.errstate(all="ignore"):
            for layer in self.layers[:run] if rows else ():
                expected = layer.reset(rows, expected)
        if not is_all:  # the others stay as they were shown
            assert self.latest is not None
            expected = [
                new if row in rows else old
                for row, (new, old) in enumerate(zip(expected, self.latest[1], strict=True))
            ]
        self.latest = run, expected
        for layer in self.layers[run:place]:
            expected = layer.reset(rows, expected)
        for row in range(N):
            np.testing.assert_allclose(
                obs[row], expected[row], rtol=1e-3, atol=1e-3, err_msg=str(row)
            )
        obs[:] = 7  # it is the caller's

    @rule(place=PLACES, seed=NUMBERS)
    def seed(self, place: int, seed: int) -> None:
        """Sets the seeds of the next reset."""
        seeds = [3 * seed + row for row in range(N)]
        assert list(self.levels[place % len(self.levels)].seed(3 * seed)) == seeds
        self.seeds = list(seeds)

    @rule(place=PLACES, value=NUMBERS, kind=st.sampled_from(["one", "each", "none", "short"]))
    def set_options(self, place: int, value: int, kind: str) -> None:
        """Sets the options of the next reset."""
        shift, venv = value / 4, self.levels[place % len(self.levels)]
        one = {"shift": np.float32(shift)}
        if kind == "one":
            venv.set_options(one)
            self.options = [shift] * N
        elif kind == "none":
            venv.set_options(None)
            self.options = [None] * N
        elif kind == "each":
            venv.set_options([{}, one, {}])
            self.options = [None, shift, None]
        else:
            venv.set_options([one] * (N - 1))
            self.options = [shift] * (N - 1)

    # Questions and mistakes.

    def _ask(self, call: Any) -> Any:
        """Asks; that is no reset, if there was none yet."""
        if self.is_closed:
            with pytest.raises(ClosedError):
                call()
            return None
        return call()

    @rule(place=PLACES, bits=st.integers(0, 2**N - 1), value=NUMBERS)
    def attributes(self, place: int, bits: int, value: int) -> None:
        """Reads and writes a parameter, calls a method."""
        venv = self.levels[place % len(self.levels)]
        rows = [row for row in range(N) if bits >> row & 1]
        if self._ask(lambda: venv.get_attr("bonus", rows)) is None:
            return
        assert venv.get_attr("bonus", rows) == [self.rows[row].bonus for row in rows]
        assert [int(each) for each in venv.get_attr("row")] == list(range(N))
        bonus = {0: np.inf, 1: np.nan}.get(value, value / 8)
        if rows and not np.isnan(bonus):
            venv.set_attr("bonus", bonus, rows)
            for row in rows:
                self.rows[row].bonus = bonus
        said = venv.env_method("say", value, indices=rows)
        assert [int(each) for each in said] == [row * 100 + value for row in rows]

    @rule(place=PLACES)
    def mistakes(self, place: int) -> None:
        """Makes some: nothing may change."""
        venv = self.levels[place % len(self.levels)]
        wrong: list[tuple[Any, Any]] = [
            ((ValueError, RuntimeError), lambda: venv.step_async(np.zeros(N + 1, int))),
            ((ValueError, RuntimeError), lambda: venv.step_async(np.full(N, 100))),
            ((TypeError, RuntimeError), lambda: venv.step_async(np.full(N, 0.5))),
            ((AttributeError, ClosedError), lambda: venv.set_attr("no_such_thing", 1)),
            ((IndexError, ClosedError), lambda: venv.set_attr("bonus", 1, [N])),
            (NotImplementedError, lambda: venv.send(np.zeros(1, int), [0])),
        ]
        for error, call in wrong:
            with pytest.raises(error):
                call()

    @rule(training=st.booleans(), norm_reward=st.booleans())
    def switch(self, training: bool, norm_reward: bool) -> None:
        """Switches a normalization."""
        for venv, layer in zip(self.levels[1:], self.layers, strict=True):
            if isinstance(layer, Normalize) and self.pending is None:
                venv.training = layer.training = training
                venv.norm_reward = layer.norm_reward = norm_reward

    @rule(place=PLACES, luck=st.integers(0, 9))
    def close(self, place: int, luck: int) -> None:
        """Closes, now and then, what is used by no other example."""
        if self.kept is not None or luck:
            return
        venv = self.levels[place % len(self.levels)]
        venv.close()
        venv.close()
        self.is_closed, self.pending, self.latest, self.is_started = True, None, None, False

    @invariant()
    def the_face_tells_the_state(self) -> None:
        """Compares what can be read at any time."""
        if not hasattr(self, "levels"):
            return
        assert self.levels[0].waiting == (self.pending is not None)
        for venv in self.levels:
            assert venv.reset_infos == self.infos
        for at, (venv, layer) in enumerate(zip(self.levels[1:], self.layers, strict=True)):
            if isinstance(layer, Monitor):
                assert venv.episode_count == self.counts[at]
                assert venv.episode_lengths.tolist() == layer.lengths
                np.testing.assert_allclose(venv.episode_returns, layer.returns, rtol=1e-4)
            if isinstance(layer, Normalize):
                np.testing.assert_allclose(venv.ret_rms.count, layer.of_returns.count, rtol=1e-6)
                np.testing.assert_allclose(venv.returns, layer.returns, rtol=1e-3, atol=1e-3)

    def teardown(self) -> None:
        """Closes what nobody uses again; otherwise nothing stays pending."""
        if not hasattr(self, "levels"):
            return
        if self.kept is None:
            self.levels[-1].close()
        elif self.pending is not None:
            self.levels[self.pending[0]].step_wait()
