"""Frame stacks: Stable-Baselines3's VecFrameStack is the oracle, then rules worked out by hand."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from jaxvec.core._frame_stack import frame_stack, stack_axis
from jaxvec.core._normalize import normalize_observation
from jaxvec.core._transform import Timestep, VecSpec, chain
from tests.core.scripted import ScriptedVecEnv, terminal_rows
from tests.core.table import assert_close, make_stream, run_numpy, sparse

VecFrameStack = pytest.importorskip("stable_baselines3.common.vec_env").VecFrameStack

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "jax"])

CHW = spaces.Box(0, 255, (2, 5, 6), np.uint8)
HWC = spaces.Box(0, 255, (5, 6, 2), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,), np.float32)
MATRIX = spaces.Box(np.float64([[0, 1], [2, 3]]), np.float64([[9, 8], [7, 6]]), dtype=np.float64)
MIXED = spaces.Dict(camera=CHW, map=HWC, state=VECTOR)


@pytest.mark.parametrize(
    ("space", "order"),
    [
        (VECTOR, None),
        (MATRIX, None),
        (MATRIX, "first"),
        (HWC, None),
        (HWC, "first"),
        (CHW, None),
        (CHW, "last"),
        (MIXED, None),
        (MIXED, {"camera": "last", "map": None, "state": "first"}),
    ],
)
@pytest.mark.parametrize("num_frames", [1, 2, 4])
def test_stacks_are_stable_baselines3s(space: Any, order: Any, num_frames: int) -> None:
    stream = make_stream(space, num_envs=3, num_steps=120, end=0.15, seed=num_frames)
    oracle = VecFrameStack(ScriptedVecEnv(stream), num_frames, order)
    transform = frame_stack(num_frames, channels_order=order)
    assert transform.spec(stream.spec).observation_space == oracle.observation_space
    state = transform.init(stream.spec, None)
    state, opening = transform.reset(state, stream.opening, None)
    assert_close(opening.obs, oracle.reset())
    for timestep in stream.steps:
        obs, _, _, infos = oracle.step(None)
        state, timestep = transform.update(state, sparse(timestep))
        assert_close(timestep.obs, obs)
        if timestep.final_rows is not None:
            assert_close(timestep.final_obs, terminal_rows(infos, timestep.final_rows))


def frames(values: list[float], space: spaces.Box) -> np.ndarray:
    """One observation a row, filled with one number each."""
    return np.stack([np.full(space.shape, each, space.dtype) for each in values])


def flags(*rows: int) -> np.ndarray:
    return np.array(rows, bool)


class Driver:
    """Drives a transform by rows' frame numbers, and reads stacks back as their frame numbers."""

    def __init__(self, transform: Any, space: spaces.Box, backend: str, num_envs: int = 2) -> None:
        self.transform, self.space, self.backend = transform, space, backend
        spec = VecSpec(num_envs, space, spaces.Discrete(2), backend=backend)  # type: ignore[arg-type]
        self.state = transform.init(spec, None)

    def put(self, x: Any) -> Any:
        if self.backend == "numpy":
            return x
        import jax

        return jax.tree.map(jax.numpy.asarray, x)

    def timestep(self, obs: Any, done: Any, final: Any = None, **fields: Any) -> Timestep:
        no = np.zeros(len(obs), bool)
        dense = frames(final or obs, self.space)
        first = fields.pop("first", done)
        return Timestep(
            frames(obs, self.space),
            np.zeros(len(obs), np.float32),
            done,
            no,
            fields.pop("valid", ~no),
            first,
            dense,
        )

    def reset(self, obs: list[float], mask: Any = None) -> list[Any]:
        timestep = self.put(
            self.timestep(obs, np.zeros(len(obs), bool), first=np.ones(len(obs), bool))
        )
        self.state, out = self.transform.reset(self.state, timestep, self.put(mask))
        return self.read(out.obs)

    def step(self, obs: Any, done: Any, final: Any = None, **fields: Any) -> tuple[Any, Any]:
        timestep = self.put(self.timestep(obs, done, final, **fields))
        self.state, out = self.transform.update(self.state, timestep)
        return self.read(out.obs), self.read(out.final_obs)

    def read(self, stacks: Any) -> list[list[float]]:
        """The frame numbers, channel by channel."""
        stacks = np.asarray(stacks)
        if stacks.ndim == 4 and stacks.shape[1] != self.space.shape[0]:
            stacks = stacks[:, :, 0, 0]
        return stacks.reshape(len(stacks), -1, stacks.shape[-1])[:, 0].tolist()


@BACKENDS
def test_a_terminal_stack_of_channels_first_images_holds_its_own_episode(backend: str) -> None:
    stack = Driver(frame_stack(3, channels_order="first"), CHW, backend, 1)
    assert stack.reset([0]) == [[0] * 6]
    assert stack.step([1], flags(0))[0] == [[0, 0, 0, 0, 1, 1]]
    assert stack.step([2], flags(0))[0] == [[0, 0, 1, 1, 2, 2]]
    obs, final = stack.step([0], flags(1), [3])
    assert final == [[1, 1, 2, 2, 3, 3]]
    assert obs == [[0] * 6]


@BACKENDS
def test_only_the_row_that_ended_is_cleared(backend: str) -> None:
    stack = Driver(frame_stack(3), VECTOR, backend)
    stack.reset([1, 10])
    stack.step([2, 20], flags(0, 0))
    obs, final = stack.step([5, 30], flags(1, 0), [3, 30])
    assert [row[::3] for row in obs] == [[0, 0, 5], [10, 20, 30]]
    assert final[0][::3] == [1, 2, 3]
    obs, _ = stack.step([6, 40], flags(0, 0))
    assert [row[::3] for row in obs] == [[0, 5, 6], [20, 30, 40]]


@BACKENDS
def test_all_channels_of_a_frame_move_together(backend: str) -> None:
    rgb = spaces.Box(0, 255, (6, 6, 3), np.uint8)
    transform = frame_stack(2)
    spec = VecSpec(1, rgb, spaces.Discrete(2), backend=backend)  # type: ignore[arg-type]
    driver = Driver(transform, rgb, backend, 1)
    old, new = (np.random.default_rng(i).integers(0, 256, (1, 6, 6, 3), np.uint8) for i in (0, 1))
    blank = driver.timestep([0], flags(0))
    state = transform.init(spec, None)
    for obs in (old, new):
        state, out = transform.update(state, driver.put(blank._replace(obs=obs, final_obs=obs)))
    assert np.array_equal(out.obs, np.concatenate([old, new], -1))


@BACKENDS
def test_reset_padding_repeats_an_episodes_first_frame(backend: str) -> None:
    stack = Driver(frame_stack(3, padding="reset"), VECTOR, backend)
    assert [row[::3] for row in stack.reset([1, 2])] == [[1, 1, 1], [2, 2, 2]]
    obs, final = stack.step([7, 3], flags(1, 0), [4, 3])
    assert [row[::3] for row in obs] == [[7, 7, 7], [2, 2, 3]]
    assert final[0][::3] == [1, 1, 4]


@BACKENDS
def test_a_partial_reset_clears_the_chosen_rows_alone(backend: str) -> None:
    stack = Driver(frame_stack(3), VECTOR, backend)
    stack.reset([1, 10])
    stack.step([2, 20], flags(0, 0))
    obs = stack.reset([5, 99], flags(1, 0))
    assert [row[::3] for row in obs] == [[0, 0, 5], [0, 10, 20]]
    obs, _ = stack.step([6, 30], flags(0, 0))
    assert [row[::3] for row in obs] == [[0, 5, 6], [10, 20, 30]]


@BACKENDS
def test_with_next_step_resets_the_last_stack_is_shown_then_cleared(backend: str) -> None:
    stack = Driver(frame_stack(2), VECTOR, backend)
    stack.reset([1, 10])
    obs, final = stack.step([2, 20], flags(1, 0), first=flags(0, 0))
    assert [row[::3] for row in obs] == [[1, 2], [10, 20]]
    assert final[0][::3] == [1, 2]
    obs, _ = stack.step([5, 30], flags(0, 0), first=flags(1, 0), valid=flags(0, 1))
    assert [row[::3] for row in obs] == [[0, 5], [20, 30]]


@BACKENDS
def test_a_row_that_stands_still_keeps_its_stack(backend: str) -> None:
    stack = Driver(frame_stack(2), VECTOR, backend)
    stack.reset([1, 10])
    stack.step([2, 20], flags(1, 0), first=flags(0, 0))
    for frame in (30, 40):
        obs, _ = stack.step([2, frame], flags(1, 0), first=flags(0, 0), valid=flags(0, 1))
        assert obs[0][::3] == [1, 2]
    assert obs[1][::3] == [30, 40]


@BACKENDS
def test_a_normalized_vector_of_bytes_is_stacked_as_floats(backend: str) -> None:
    space = spaces.Box(0, 255, (3,), np.uint8)
    layers = chain(normalize_observation(), frame_stack(2))
    driver = Driver(layers, space, backend)
    driver.reset([10, 20])
    obs, _ = driver.step([11, 23], flags(0, 0))
    spec = layers.spec(VecSpec(2, space, spaces.Discrete(2)))
    assert spec.observation_space.dtype == np.float32
    assert 0 < abs(obs[0][-1]) % 1 < 1


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_on_the_device_wide_numbers_are_stacked_as_jax_holds_them(dtype: Any) -> None:
    jnp = pytest.importorskip("jax.numpy")
    spec = VecSpec(2, spaces.Box(0, 5, (3,), dtype), spaces.Discrete(2), backend="jax")
    stack: Any = frame_stack(2).init(spec, None).stack
    assert stack.dtype == jnp.asarray(dtype(0)).dtype


@pytest.mark.parametrize("padding", ["zero", "reset"])
def test_frames_without_a_number_stack_to_stacks_without_one(padding: Any) -> None:
    stream = make_stream(spaces.Box(0, 1, (0,)), num_steps=5, end=1.0)
    run = run_numpy(frame_stack(2, padding=padding), stream)
    assert all(
        step.obs.shape == step.final_obs.shape == (stream.spec.num_envs, 0) for step in run.steps
    )


def test_bounds_are_repeated_along_the_stacked_axis() -> None:
    spec = VecSpec(1, MATRIX, spaces.Discrete(2))
    last = frame_stack(2).spec(spec).observation_space
    first = frame_stack(2, channels_order="first").spec(spec).observation_space
    assert last.low.tolist() == [[0, 0, 1, 1], [2, 2, 3, 3]]
    assert first.high.tolist() == [[9, 8], [9, 8], [7, 6], [7, 6]]
    assert last.dtype == first.dtype == np.float64


def test_an_image_whose_smallest_axis_is_in_the_middle_is_stacked_last_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="smallest axis in the middle"):
        assert stack_axis(spaces.Box(0, 255, (8, 3, 9), np.uint8), None) == -1


@pytest.mark.parametrize("num_frames", [0, -1])
def test_a_stack_of_no_frames_is_refused(num_frames: int) -> None:
    with pytest.raises(ValueError, match=f"num_frames={num_frames}"):
        frame_stack(num_frames)


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"padding='edge' .* choose one of 'zero', 'reset'"):
        frame_stack(2, padding="edge")  # type: ignore[arg-type]
    spec = VecSpec(1, VECTOR, spaces.Discrete(2))
    with pytest.raises(ValueError, match=r"channels_order='middle'"):
        frame_stack(2, channels_order="middle").init(spec, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("space", "order", "error", "words"),
    [
        (spaces.Discrete(3), None, TypeError, "cannot be stacked"),
        (spaces.Dict(a=VECTOR, b=spaces.Discrete(3)), None, TypeError, "cannot be stacked"),
        (spaces.Box(0, 1, ()), None, TypeError, "no channel axis"),
        (VECTOR, {"camera": "first"}, TypeError, "names keys"),
        (MIXED, {"camera": "first"}, ValueError, "name each of them once"),
        (spaces.Dict(a=VECTOR), {"a": None, "b": None}, ValueError, "name each of them once"),
    ],
)
def test_spaces_that_do_not_fit_are_refused_by_init_and_by_spec(
    space: Any, order: Any, error: Any, words: str
) -> None:
    spec = VecSpec(1, space, spaces.Discrete(2))
    for function in (lambda t: t.init(spec, None), lambda t: t.spec(spec)):
        with pytest.raises(error, match=words):
            function(frame_stack(2, channels_order=order))


def test_stacks_on_stacks_hold_frames_of_frames() -> None:
    stream = make_stream(VECTOR, num_steps=30, mode=AutoresetMode.NEXT_STEP)
    twice = run_numpy(chain(frame_stack(2), frame_stack(3)), stream)
    once = run_numpy(frame_stack(4), stream)
    for inner, outer in zip(once.steps, twice.steps, strict=True):
        assert np.array_equal(outer.obs[:, -6:], inner.obs[:, -6:])
        assert outer.obs.shape == (4, 18)
