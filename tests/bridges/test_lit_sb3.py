"""lit_sb3 (Python 3.12 and newer) takes jaxvec's classes, and is called as they are."""

import inspect
from functools import partial

import numpy as np
import pytest

import jaxvec.vec as jv
from tests.vec.host_envs import CountEnv

lit = pytest.importorskip("lit_sb3")
import lit_sb3.vec_env as lit_vec  # noqa: E402
from lit_sb3.vec_env import base_vec_env  # noqa: E402

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

DOCUMENTED = ("VecEnv", "VecEnvWrapper", "CloudpickleWrapper", "tile_images")


def documented():
    """Returns what its page of base_vec_env names: three classes, their methods, and a function."""
    for name in DOCUMENTED:
        theirs, ours = getattr(base_vec_env, name), getattr(jv, name)
        if not inspect.isclass(theirs):
            yield name, theirs, ours
            continue
        for member, value in inspect.getmembers(theirs):
            if member == "__init__" or (callable(value) and not member.startswith("_")):
                yield f"{name}.{member}", value, getattr(ours, member)


def test_what_its_page_documents_is_called_in_the_same_way():
    seen = 0
    for name, theirs, ours in documented():
        wanted = list(inspect.signature(theirs).parameters.values())
        given = list(inspect.signature(ours).parameters.values())
        assert [(each.name, each.default, each.kind) for each in given[: len(wanted)]] == [
            (each.name, each.default, each.kind) for each in wanted
        ], name
        assert all(each.default is not each.empty for each in given[len(wanted) :]), name
        seen += 1
    assert seen > 30


def test_every_class_is_an_instance_of_its_namesake():
    venv = jv.DummyVecEnv([CountEnv])
    layers = [jv.VecMonitor(venv), jv.VecNormalize(venv), jv.VecFrameStack(venv, 2)]
    for each in (venv, *layers, jv.VecCheckNan(venv)):
        assert isinstance(each, getattr(lit_vec, type(each).__name__))
        assert isinstance(each, lit_vec.VecEnv)
    assert all(isinstance(each, lit_vec.VecEnvWrapper) for each in layers)
    assert not isinstance(venv, lit_vec.VecMonitor)


@pytest.mark.parametrize("name", ["DummyVecEnv", "SubprocVecEnv"])
def test_ppo_trains_to_the_parameters_that_its_own_venv_gives(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)  # it writes logs

    def trained(lib):
        venv = getattr(lib, name)([partial(CountEnv, 7)] * 2)
        venv = lib.VecNormalize(lib.VecMonitor(venv))
        model = lit.PPO("MlpPolicy", n_steps=16, batch_size=32, seed=3)
        model.learn(total_timesteps=128, env=venv)
        venv.close()
        values = [each.detach().cpu().numpy().ravel() for each in model.policy.parameters()]
        return np.concatenate(values), venv.obs_rms.count

    (theirs, counted), (ours, ours_counted) = trained(lit_vec), trained(jv)
    assert theirs.size > 1000
    assert counted > 128
    assert ours_counted == counted
    np.testing.assert_array_equal(ours, theirs)
