"""make_vec_env beside SB3's, and what a worker of it has imported."""

import os
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3.common.vec_env as sb3
from stable_baselines3.common import env_util
from stable_baselines3.common.monitor import Monitor as SB3Monitor

import jaxvec.vec as jv
from jaxvec.vec import (
    Monitor,
    SubprocVecEnv,
    VecMonitor,
    load_results,
    make_atari_env,
    make_vec_env,
)
from tests.vec.host_envs import CountEnv


class Halved(gym.RewardWrapper):
    def __init__(self, env, factor=0.5):
        super().__init__(env)
        self.factor = factor

    def reward(self, reward):
        return reward * self.factor


def test_the_same_call_gives_the_same_environments_as_sb3s():
    options = {"n_envs": 3, "seed": 7, "start_index": 2, "wrapper_class": Halved}
    options["wrapper_kwargs"] = {"factor": 0.25}
    ours, theirs = (lib.make_vec_env("CartPole-v1", **options) for lib in (jv, env_util))
    assert ours._seeds == theirs._seeds == [7, 8, 9]
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for venv in (ours, theirs):
        venv.actions = [space.sample() for space in venv.get_attr("action_space")]
        venv.result = venv.step(venv.actions)
        assert venv.get_attr("factor") == [0.25] * 3
        assert venv.render_mode == "rgb_array"
    assert ours.actions == theirs.actions
    for one, other in zip(ours.result[:3], theirs.result[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    assert ours.env_is_wrapped(SB3Monitor) == theirs.env_is_wrapped(SB3Monitor) == [True] * 3


def test_without_a_seed_numpys_global_generator_gives_one():
    np.random.seed(3)  # noqa: NPY002
    first = make_vec_env(CountEnv)._seeds
    np.random.seed(3)  # noqa: NPY002
    assert env_util.make_vec_env(CountEnv)._seeds == first


def test_each_rank_has_a_monitor_file(tmp_path):
    venv = make_vec_env(
        CountEnv,
        2,
        start_index=3,
        monitor_dir=tmp_path / "logs",
        env_kwargs={"length": 2, "info": {"q": 1}},
        monitor_kwargs={"info_keywords": ("q",)},
    )
    venv.reset()
    for _ in range(4):
        *_, infos = venv.step([0, 0])
    assert infos[0]["episode"]["l"] == 2
    venv.close()
    assert sorted(each.name for each in (tmp_path / "logs").iterdir()) == [
        "3.monitor.csv",
        "4.monitor.csv",
    ]
    assert len(load_results(tmp_path / "logs")) == 4


def test_environments_that_take_no_render_mode_are_made_without():
    gym.register("Plain-v0", lambda: CountEnv())
    try:
        assert make_vec_env("Plain-v0").render_mode is None
    finally:
        del gym.registry["Plain-v0"]


def test_the_backend_says_where_the_environments_run():
    venv = make_vec_env(CountEnv, 2, backend="subproc", vec_env_kwargs={"num_workers": 1})
    try:
        assert type(venv) is SubprocVecEnv
        assert venv.env_is_wrapped(Monitor) == [True, True]
    finally:
        venv.close()
    assert type(make_vec_env(CountEnv, backend="dummy")) is jv.DummyVecEnv
    assert type(make_vec_env(CountEnv, vec_env_cls=sb3.DummyVecEnv)) is sb3.DummyVecEnv
    with pytest.raises(ValueError, match="both say"):
        make_vec_env(CountEnv, vec_env_cls=SubprocVecEnv, backend="dummy")
    with pytest.raises(ValueError, match="'dumy'"):
        make_vec_env(CountEnv, backend="dumy")
    with pytest.raises(ValueError, match="gymnasium environments"):
        make_vec_env("CartPole-v1", wrapper_class=Halved, backend="jax")


def test_what_is_no_environment_is_refused():
    with pytest.raises(ValueError, match=r"gymnasium\.Env"):
        make_vec_env(dict)


@pytest.mark.parametrize("backend", ["dummy", "jax"])
@pytest.mark.parametrize(
    "option", [{"n_envs": 0}, {"n_envs": 2.5}, {"seed": "a"}, {"seed": -1}, {"seed": 1.0}], ids=str
)
def test_a_number_that_counts_or_seeds_nothing_is_refused(option, backend):
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"make_vec_env: {name}={value!r}, .* a whole number"):
        make_vec_env("CartPole-v1", **option, backend=backend)


class Pixels(CountEnv):
    """Enough of a game for SB3's AtariWrapper."""

    class Ale:
        def lives(self):
            return 1

    def __init__(self, render_mode=None):
        super().__init__(length=40)
        self.observation_space = gym.spaces.Box(0, 255, (20, 20, 3), np.uint8)
        self.ale = self.Ale()

    def get_action_meanings(self):
        return ["NOOP", "LEFT"]

    def _observe(self):
        return np.full((20, 20, 3), self.steps, np.uint8)


def test_a_game_has_sb3s_preprocessing():
    cv2 = pytest.importorskip("cv2")
    assert cv2
    ours, theirs = (
        make(Pixels, 2, seed=1, wrapper_kwargs={"screen_size": 10})
        for make in (make_atari_env, env_util.make_atari_env)
    )
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    np.testing.assert_array_equal(ours.step([0, 1])[0], theirs.step([0, 1])[0])
    assert ours.observation_space.shape == (10, 10, 1)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_worker_that_runs_cartpole_has_imported_no_heavy_library(tmp_path, method):
    script = tmp_path / "main.py"
    script.write_text(f"""
import sys

import gymnasium


class Loaded(gymnasium.Wrapper):
    def heavy(self):
        return sorted(set(sys.modules) & {{"jax", "flax", "torch", "stable_baselines3"}})


if __name__ == "__main__":
    from jaxvec.vec import Monitor, VecMonitor, VecNormalize, make_vec_env
    venv = make_vec_env("CartPole-v1", 2, seed=0, wrapper_class=Loaded, backend="subproc",
                        vec_env_kwargs={{"start_method": {method!r}}})
    venv = VecNormalize(venv)
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor as SB3Monitor
    assert venv.env_is_wrapped(SB3Monitor) == [True, True]
    evaluate_policy(PPO("MlpPolicy", venv, n_steps=8, batch_size=8, device="cpu"), venv, 2)
    print(venv.env_method("heavy"))
    venv.close()
""")
    root = str(Path(jv.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stdout == "[[], []]\n", done.stderr


def test_a_vec_monitor_is_none_too_many():
    venv = make_vec_env(CountEnv, 1)
    with pytest.warns(UserWarning, match="already wrapped"):
        VecMonitor(venv)
