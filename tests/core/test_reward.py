"""Scaled and clipped rewards, by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.core._reward import clip_reward, scale_reward
from jaxvec.core._transform import Timestep, VecSpec

BACKENDS = {"numpy": np, "jax": jnp}
SPACE = spaces.Box(-1, 1, (1,), np.float32)


def rewards(layer, backend, values, valid=None, dtype=np.float32):
    """Returns the rewards that leave a layer."""
    xp, n = BACKENDS[backend], len(values)
    no = xp.zeros(n, bool)
    valid = xp.ones(n, bool) if valid is None else xp.asarray(valid)
    reward = xp.asarray(np.array(values, dtype))
    step = Timestep(xp.zeros((n, 1), np.float32), reward, no, no, valid, no)
    spec = VecSpec(n, SPACE, SPACE, backend=backend)
    assert layer.spec(spec) == spec
    state, out = layer.update(layer.init(spec, None), step)
    assert state == ()
    assert out._replace(reward=None) == step._replace(reward=None)
    np.testing.assert_array_equal(np.asarray(step.reward), np.array(values, dtype))
    assert out.reward.dtype == np.float32
    assert isinstance(out.reward, np.ndarray) == (backend == "numpy")
    return np.asarray(out.reward).tolist()


@pytest.mark.parametrize("backend", BACKENDS)
class TestRewards:
    def test_a_reward_is_scaled_and_then_shifted(self, backend):
        assert rewards(scale_reward(0.5), backend, [2, -4, 0]) == [1, -2, 0]
        assert rewards(scale_reward(0.5, shift=1.0), backend, [2, -4, 0]) == [2, -1, 1]
        assert rewards(scale_reward(2.0, -1), backend, [True, False], dtype=bool) == [1, -1]

    def test_a_reward_is_clipped_and_one_within_the_bounds_stays(self, backend):
        assert rewards(clip_reward(), backend, [2, -4, 0.25]) == [1, -1, 0.25]
        assert rewards(clip_reward(0, np.inf), backend, [2, -4, 0.25]) == [2, 0, 0.25]
        assert rewards(clip_reward(), backend, [300, -300], dtype=np.int32) == [1, -1]

    def test_the_sign_of_a_reward_may_be_all_that_is_left(self, backend):
        assert rewards(clip_reward(sign=True), backend, [0.25, -4, 0]) == [1, -1, 0]

    def test_a_row_without_a_transition_gets_no_reward(self, backend):
        valid = [True, False, True]
        assert rewards(scale_reward(1.0, 3.0), backend, [1, 0, 0], valid) == [4, 0, 3]
        assert rewards(clip_reward(0.5, 1), backend, [0, 0, 2], valid) == [0.5, 0, 1]

    def test_a_reset_gives_float32_zeros(self, backend):
        xp = BACKENDS[backend]
        yes, no = xp.ones(2, bool), xp.zeros(2, bool)
        step = Timestep(xp.zeros((2, 1)), xp.zeros(2), no, no, no, yes)
        for mask in (None, xp.asarray([True, False])):
            state, out = scale_reward(2, 1).reset((), step, mask)
            assert state == ()
            assert out.reward.dtype == np.float32
            assert out.reward.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("scale", "shift"),
    [(np.nan, 0.0), (np.inf, 0.0), (1.0, np.nan), ("2", 0.0), (True, 0.0), ([1.0, 2.0], 0.0)],
)
def test_a_scale_that_is_not_finite_is_refused(scale, shift):
    with pytest.raises(ValueError, match="scale_reward"):
        scale_reward(scale, shift)


@pytest.mark.parametrize(("low", "high"), [(1, -1), (np.nan, 1), (0, np.nan), ("0", 1), (0, None)])
def test_bounds_that_hold_nothing_are_refused(low, high):
    with pytest.raises(ValueError, match=r"clip_reward: (low|high)="):
        clip_reward(low, high)
