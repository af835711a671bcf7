"""Numbers that no VecNormalize could work with are refused by their names, when made and when assigned."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import DummyVecEnv, VecNormalize


class Standing(gym.Env):
    """Observes zeros and pays 1."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, False, False, {}


WRONG = [
    ("clip_obs", np.nan),
    ("clip_obs", 0.0),
    ("clip_obs", "10"),
    ("clip_reward", -1.0),
    ("clip_reward", None),
    ("gamma", 1.5),
    ("gamma", np.nan),
    ("epsilon", -1e-8),
    ("epsilon", np.inf),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_a_setting_that_cannot_be_is_refused_by_its_name(name, value):
    venv = DummyVecEnv([Standing, Standing])
    with pytest.raises(ValueError, match=f"VecNormalize: {name}={value!r}, but it must be"):
        VecNormalize(venv, **{name: value})


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_a_setting_that_is_assigned_is_looked_at_before_the_next_step_changes_anything(name, value):
    venv = VecNormalize(DummyVecEnv([Standing, Standing]))
    venv.reset()
    before = venv.ret_rms.count
    setattr(venv, name, value)
    with pytest.raises(ValueError, match=f"VecNormalize: {name}="):
        venv.step(np.zeros(2, int))
    assert venv.ret_rms.count == before


def test_settings_at_the_ends_of_what_is_allowed_work():
    for options in ({"gamma": 0.0}, {"gamma": 1.0}, {"epsilon": 0.0}, {"clip_obs": np.inf}):
        venv = VecNormalize(DummyVecEnv([Standing]), **options)
        venv.reset()
        _, reward, _, _ = venv.step([0])
        assert np.isfinite(reward).all()
