"""Episode statistics: float64 sums and Stable-Baselines3's VecMonitor are the oracles."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from jaxvec.core._episode import episode_statistics
from jaxvec.core._transform import Timestep, VecSpec
from tests.core.scripted import ScriptedVecEnv
from tests.core.table import (
    Stream,
    as_run,
    make_stream,
    on_device,
    run_numpy,
    scan_function,
    scan_inputs,
)
from tests.modes import with_nan_allowed

VecMonitor = pytest.importorskip("stable_baselines3.common.vec_env").VecMonitor

SPACE = spaces.Box(-1, 1, (2,), np.float32)
MODES = pytest.mark.parametrize("mode", list(AutoresetMode))


def spec(backend: str, num_envs: int = 1) -> VecSpec:
    return VecSpec(num_envs, SPACE, spaces.Discrete(2), backend=backend)  # type: ignore[arg-type]


def array(backend: str, x: Any, dtype: Any = bool) -> Any:
    return (np if backend == "numpy" else jnp).asarray(x, dtype=dtype)


def timestep(backend: str, reward: Any, done: Any = None, **fields: Any) -> Timestep:
    """A step of as many rows as there are rewards."""
    no = [False] * len(reward)
    done = no if done is None else done
    valid, first = fields.get("valid", [True] * len(reward)), fields.get("first", done)
    return Timestep(
        array(backend, np.zeros((len(reward), 2)), np.float32),
        array(backend, reward, np.float32),
        array(backend, done),
        array(backend, no),
        array(backend, valid),
        array(backend, first),
    )


def run_on(backend: str, stream: Stream, **options: Any) -> list[Timestep]:
    transform = episode_statistics(**options)
    if backend == "numpy":
        return run_numpy(transform, stream).steps
    return as_run(
        jax.jit(scan_function(transform, stream.spec))(*on_device(scan_inputs(stream)))
    ).steps


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_returns_and_lengths_are_vec_monitors_where_its_float32_sums_are_exact(
    backend: str,
) -> None:
    stream = make_stream(SPACE, num_envs=3, num_steps=400, end=0.05)
    eighths = [
        step._replace(reward=np.round(step.reward * 8).astype(np.float32) / 8)
        for step in stream.steps
    ]
    stream = stream._replace(steps=eighths)
    oracle = VecMonitor(ScriptedVecEnv(stream))
    oracle.reset()
    ended = 0
    for step in run_on(backend, stream):
        _, _, dones, infos = oracle.step(None)
        for row in np.flatnonzero(dones):
            assert step.info["episode"]["r"][row] == infos[row]["episode"]["r"]
            assert step.info["episode"]["l"][row] == infos[row]["episode"]["l"]
            ended += 1
    assert ended > 30


@MODES
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_returns_are_float64_sums_rounded_once(backend: str, mode: AutoresetMode) -> None:
    stream = make_stream(SPACE, num_steps=400, end=0.02, mode=mode)
    sums, lengths = np.zeros(4), np.zeros(4, int)
    for before, after in zip(stream.steps, run_on(backend, stream), strict=True):
        sums += np.where(before.valid, before.reward.astype(np.float64), 0)
        lengths += before.valid
        ended = before.done & before.valid
        episode = after.info["episode"]
        assert episode["r"].dtype == np.float32
        assert episode["l"].dtype == np.int32
        assert np.array_equal(episode["r"][ended], sums[ended].astype(np.float32))
        assert np.array_equal(episode["l"][ended], lengths[ended])
        sums[before.first], lengths[before.first] = 0, 0


@MODES
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_three_steps_of_reward_1_are_three_in_every_autoreset_mode(
    backend: str, mode: AutoresetMode
) -> None:
    transform = episode_statistics(totals=True)
    state = transform.init(spec(backend), None)
    state, _ = transform.reset(state, timestep(backend, [0], first=[True]), None)
    for _ in range(4):
        for t in (1, 2, 3):
            same_step = mode is AutoresetMode.SAME_STEP
            step = timestep(backend, [1], [t == 3], first=[t == 3 and same_step])
            state, out = transform.update(state, step)
        assert float(out.info["episode"]["r"][0]) == 3.0
        assert int(out.info["episode"]["l"][0]) == 3
        if mode is AutoresetMode.NEXT_STEP:
            state, _ = transform.update(state, timestep(backend, [0], valid=[False], first=[True]))
        elif mode is AutoresetMode.DISABLED:
            idle = timestep(backend, [0], [True], valid=[False], first=[False])
            state, out = transform.update(state, idle)
            opening = timestep(backend, [0], first=[True])
            state, _ = transform.reset(state, opening, array(backend, [True]))
    assert out.info["totals"]["episodes"].tolist() == [4]
    assert out.info["totals"]["steps"].tolist() == [12]


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@with_nan_allowed("a reward may be NaN")
def test_an_infinite_reward_stays_in_its_own_episode(backend: str) -> None:
    transform = episode_statistics()
    state = transform.init(spec(backend, 3), None)
    rewards = [np.inf, -np.inf, np.nan]
    state, out = transform.update(state, timestep(backend, rewards, [True] * 3))
    np.testing.assert_array_equal(out.info["episode"]["r"], rewards)
    state, out = transform.update(state, timestep(backend, [3, 3, 3], [True] * 3))
    assert out.info["episode"]["r"].tolist() == [3, 3, 3]
    state, _ = transform.update(state, timestep(backend, rewards))
    state, out = transform.update(state, timestep(backend, [1, 1, 1], [True] * 3))
    np.testing.assert_array_equal(out.info["episode"]["r"], rewards)


def test_a_million_small_rewards_are_not_lost_on_the_device() -> None:
    transform = episode_statistics()
    step = timestep("jax", [0.1])

    def body(_: Any, state: Any) -> Any:
        return transform.update(state, step)[0]

    state = jax.jit(lambda s: jax.lax.fori_loop(0, 999_999, body, s))(
        transform.init(spec("jax"), None)
    )
    _, out = transform.update(state, timestep("jax", [0.1], [True]))
    np.testing.assert_allclose(out.info["episode"]["r"], 100_000, rtol=1e-6)
    assert out.info["episode"]["l"].tolist() == [1_000_000]


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_returns_still_grow_by_1_beyond_2_to_the_24(backend: str) -> None:
    transform = episode_statistics()
    state = transform.init(spec(backend), None)
    state, _ = transform.update(state, timestep(backend, [2.0**24]))
    for _ in range(4):
        state, out = transform.update(state, timestep(backend, [1.0]))
    assert out.info["episode"]["r"].tolist() == [2.0**24 + 4]


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_reset_drops_running_episodes_in_the_chosen_rows_but_no_totals(backend: str) -> None:
    transform = episode_statistics(totals=True)
    state = transform.init(spec(backend, 2), None)
    state, _ = transform.update(state, timestep(backend, [5, 7]))
    opening = timestep(backend, [0, 0], first=[True, True])
    state, out = transform.reset(state, opening, array(backend, [True, False]))
    assert out.info["episode"]["r"].tolist() == [0, 7]
    assert out.info["episode"]["l"].tolist() == [0, 1]
    state, out = transform.update(state, timestep(backend, [1, 1], [True, True]))
    assert out.info["episode"]["r"].tolist() == [1, 8]
    assert out.info["episode"]["l"].tolist() == [1, 2]
    state, out = transform.reset(state, opening, None)
    assert out.info["totals"]["episodes"].tolist() == [1, 1]
    assert out.info["totals"]["steps"].tolist() == [2, 2]


def test_totals_take_no_room_where_they_are_not_asked_for() -> None:
    transform = episode_statistics()
    state = transform.init(spec("numpy", 64), None)
    state, out = transform.update(state, timestep("numpy", [1.0] * 64))
    assert state.episodes.shape == state.steps.shape == ()
    assert set(out.info) == {"episode"}
