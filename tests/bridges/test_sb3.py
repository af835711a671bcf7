"""SB3 takes jaxvec's classes for its own, in either import order, and statistics go both ways."""

import subprocess
import sys

import numpy as np
import pytest
import stable_baselines3.common.vec_env as sb3

import jaxvec.vec as jv
from jaxvec.bridges.sb3 import export_vec_normalize, import_vec_normalize, register
from jaxvec.core._moments import standardize
from jaxvec.errors import FileFormatError
from tests.vec.host_envs import CountEnv

IMPORTS = {
    "sb3 first": "import stable_baselines3.common.vec_env as sb3\nimport jaxvec.vec as jv\n",
    "jaxvec first": "import jaxvec.vec as jv\nimport stable_baselines3.common.vec_env as sb3\n",
}


def printed(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def stack(lib):
    venv = lib.DummyVecEnv([CountEnv])
    layers = [lib.VecMonitor(venv), lib.VecNormalize(venv), lib.VecFrameStack(venv, 2)]
    return [venv, *layers, lib.VecCheckNan(venv)]


@pytest.mark.parametrize("order", IMPORTS)
def test_isinstance_holds_in_either_import_order_without_a_call(order):
    code = f"""{IMPORTS[order]}
from tests.vec.host_envs import CountEnv
venv = jv.VecFrameStack(jv.VecNormalize(jv.VecMonitor(jv.DummyVecEnv([CountEnv]))), 2)
seen = []
while isinstance(venv, sb3.VecEnvWrapper):
    seen.append(isinstance(venv, getattr(sb3, type(venv).__name__)) and isinstance(venv, sb3.VecEnv))
    venv = venv.venv
seen.append(isinstance(venv, sb3.DummyVecEnv) and not isinstance(venv, sb3.VecMonitor))
print(seen)
"""
    assert printed(code) == "[True, True, True, True]"


def test_objects_made_before_sb3_is_imported_are_accepted_after():
    code = """
import jaxvec.vec as jv
from tests.vec.host_envs import CountEnv
venv = jv.VecNormalize(jv.DummyVecEnv([CountEnv] * 2))
import stable_baselines3
from stable_baselines3.common.vec_env import VecNormalize
model = stable_baselines3.PPO("MlpPolicy", venv, n_steps=4, batch_size=4, device="cpu")
print(model.get_vec_normalize_env() is venv, isinstance(venv, VecNormalize))
"""
    assert printed(code) == "True True"


def test_registering_without_sb3_does_nothing_and_imports_nothing():
    code = """
import sys
from jaxvec.bridges.sb3 import register
print(register(), sorted(set(sys.modules) & {"torch", "stable_baselines3", "jax", "flax"}))
"""
    assert printed(code) == "False []"


def test_registering_makes_the_classes_subclasses():
    assert register()
    for venv in stack(jv):
        name = type(venv).__name__
        assert issubclass(type(venv), getattr(sb3, name))
        assert type(venv).__class__ is not None
        assert not issubclass(getattr(sb3, name), type(venv))
    assert not issubclass(jv.DummyVecEnv, sb3.SubprocVecEnv)
    assert not issubclass(jv.VecMonitor, sb3.VecNormalize)


def test_a_lit_sb3_that_is_loaded_is_registered_too():
    code = """
import sys, types
from abc import ABC
from jaxvec.vec._sb3 import NAMESAKES
page = types.ModuleType("lit_sb3.vec_env")
for name in NAMESAKES:
    setattr(page, name, type(name, (ABC,), {}))
import jaxvec.vec as jv
from tests.vec.host_envs import CountEnv
venv = jv.VecMonitor(jv.DummyVecEnv([CountEnv]))
sys.modules["lit_sb3.vec_env"] = page
before = isinstance(venv, page.VecMonitor)
page.sync_envs_normalization = None  # the page is complete
print(before, *(isinstance(venv, each) for each in (page.VecEnv, page.VecMonitor, page.VecNormalize)))
"""
    assert printed(code) == "False True True False"


def test_a_users_classes_are_registered_through_jaxvecs():
    class Mine(jv.VecEnvWrapper):
        def reset(self):
            return self.venv.reset()

        def step_wait(self):
            return self.venv.step_wait()

    venv = Mine(jv.DummyVecEnv([CountEnv]))
    assert isinstance(venv, sb3.VecEnvWrapper)
    assert type(venv) is Mine
    assert venv.__class__ is Mine


def warm():
    venv = jv.VecNormalize(jv.DummyVecEnv([CountEnv] * 2), clip_obs=3.0)
    venv.reset()
    for _ in range(5):
        venv.step([0, 0])
    return venv


def test_statistics_are_exported_to_sb3_under_any_name(tmp_path):
    venv = warm()
    export_vec_normalize(tmp_path / "statistics.npz", venv)
    again = sb3.VecNormalize.load(tmp_path / "statistics.npz", sb3.DummyVecEnv([CountEnv]))
    np.testing.assert_array_equal(again.obs_rms.mean, venv.obs_rms.mean)
    assert again.clip_obs == 3


@pytest.mark.parametrize("name", ["x.pkl", "x.npz"])
def test_statistics_are_imported_without_a_venv(tmp_path, name):
    venv = warm()
    venv.save(tmp_path / name)
    saved = import_vec_normalize(tmp_path / name)
    assert saved.settings["clip_obs"] == 3
    obs = np.array([[1.0, 2.0]])
    ours = standardize(obs, saved.obs_rms.moments, epsilon=saved.settings["epsilon"], clip=3.0)
    np.testing.assert_array_equal(ours, venv.normalize_obs(obs))
    assert saved.ret_rms.var == venv.ret_rms.var


def test_what_sb3_pickled_beyond_statistics_is_refused(tmp_path):
    theirs = sb3.VecNormalize(sb3.DummyVecEnv([CountEnv]))
    theirs.metadata = {"env": CountEnv()}
    theirs.save(tmp_path / "x.pkl")
    with pytest.raises(FileFormatError, match="CountEnv"):
        import_vec_normalize(tmp_path / "x.pkl")
    assert import_vec_normalize(tmp_path / "x.pkl", trust=True).obs_rms.count == 1e-4


def test_checkpoints_of_sb3_hold_the_statistics(tmp_path):
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import CheckpointCallback

    venv = jv.VecMonitor(jv.VecNormalize(jv.DummyVecEnv([CountEnv] * 2)))
    model = PPO("MlpPolicy", venv, n_steps=8, batch_size=8, device="cpu")
    model.learn(16, CheckpointCallback(8, str(tmp_path), save_vecnormalize=True))
    (path,) = tmp_path.glob("*vecnormalize*.pkl")
    again = jv.VecNormalize.load(path, jv.DummyVecEnv([CountEnv]))
    assert 2 < again.obs_rms.count <= venv.obs_rms.count


class Reward(CountEnv):
    """The reward can be set from outside while it runs."""

    def set_mu(self, mu):
        self.reward = mu


def test_a_callback_sets_what_the_environments_do_while_sb3_trains():
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    class Curriculum(BaseCallback):
        def _on_rollout_start(self):
            self.training_env.env_method("set_mu", float(self.num_timesteps))

        def _on_step(self):
            seen.append(self.training_env.get_attr("reward"))
            return True

    seen = []
    venv = jv.VecNormalize(jv.VecMonitor(jv.SubprocVecEnv([Reward] * 2)), norm_reward=False)
    try:
        model = PPO("MlpPolicy", venv, n_steps=4, batch_size=8, device="cpu")
        model.learn(24, Curriculum())
    finally:
        venv.close()
    assert seen == [[0.0] * 2] * 4 + [[8.0] * 2] * 4 + [[16.0] * 2] * 4
