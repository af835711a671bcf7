"""The transform under VecNormalize: its short way on the host is the way through two transforms."""

import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import chain, normalize_observation, normalize_reward, set_training
from jaxvec.core._transform import Timestep, VecSpec
from jaxvec.vec._normalization import Settings, normalization

SHAPES = {
    "vector": ((3,), np.float32, 8),
    "number": ((), np.float32, 8),
    "many": ((17,), np.float32, 4096),
    "image": ((40, 60, 4), np.uint8, 8),
}


def drawn_step(rng, shape, dtype, num_envs):
    numbers = rng.normal(100, 50, (num_envs, *shape)).clip(0, 255).astype(dtype)
    done = rng.random(num_envs) < 0.2
    rows = np.flatnonzero(done)
    return Timestep(
        obs=numbers,
        reward=rng.normal(size=num_envs).astype(np.float32),
        terminated=done,
        truncated=np.zeros(num_envs, bool),
        valid=np.ones(num_envs, bool),
        first=done,
        final_obs=numbers[rows] if len(rows) else None,
        final_rows=rows if len(rows) else None,
    )


def assert_same(ours, theirs, within):
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, tuple):
            assert_same(one, other, within)
        elif one is None or other is None or isinstance(one, dict):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, within, within)
            assert np.asarray(one).dtype == np.asarray(other).dtype


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", SHAPES)
def test_a_host_step_gives_what_the_two_transforms_give(name, precision):
    shape, dtype, num_envs = SHAPES[name]
    space = spaces.Box(0, 255, shape, dtype)
    spec = VecSpec(num_envs, space, spaces.Discrete(2), backend="numpy")
    short = normalization(Settings(True, None, 2.0, 3.0, 0.9, 1e-6, precision))
    long = chain(
        normalize_observation(clip=2.0, epsilon=1e-6, precision=precision),
        normalize_reward(gamma=0.9, clip=3.0, epsilon=1e-6),
    )
    within = 1e-6 if precision == "float32" and name == "image" else 0
    state, expected = short.init(spec, None), long.init(spec, None)
    rng = np.random.default_rng(0)
    for number in range(9):
        if number == 5:
            state, expected = set_training(state, False), set_training(expected, False)
        if number == 7:
            off = np.asarray(False)
            state = state._replace(reward=state.reward._replace(enabled=off))
            expected = (expected[0], expected[1]._replace(enabled=off))
        timestep = drawn_step(rng, shape, dtype, num_envs)
        state, ours = short.update(state, timestep)
        expected, theirs = long.update(expected, timestep)
        assert_same(ours, theirs, within)
        assert_same(tuple(state[:2]), expected, within)
        assert state.raw_obs is timestep.obs
        assert state.raw_reward is timestep.reward


def test_observations_of_another_shape_are_refused_with_both_shapes():
    space = spaces.Box(-1, 1, (3,), np.float32)
    spec = VecSpec(8, space, spaces.Discrete(2), backend="numpy")
    transform = normalization(Settings(True, None, 10.0, 10.0, 0.99, 1e-8, "float64"))
    timestep = drawn_step(np.random.default_rng(0), (4,), np.float32, 8)
    with pytest.raises(ValueError, match=r"\(8, 4\).*\(3,\)"):
        transform.update(transform.init(spec, None), timestep)
