"""Episodes that are told and logged: VecMonitor, Monitor, the files and what reads them."""

import copy
import csv
import functools
import json
import pickle
import warnings

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3.common.vec_env as sb3
from stable_baselines3.common import monitor as sb3_monitor
from stable_baselines3.common.env_util import is_wrapped

import jaxvec.vec as jv
from jaxvec.errors import ClosedError
from jaxvec.vec import (
    DummyVecEnv,
    LoadMonitorResultsError,
    Monitor,
    ResultsWriter,
    SubprocVecEnv,
    VecMonitor,
    VecNormalize,
    get_monitor_files,
    load_results,
)
from tests.vec.host_envs import CountEnv


class Tagged(CountEnv):
    """Says in its info how many steps it made, and who it is."""

    def step(self, action):
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated, truncated, {"q": self.steps * 1.5, "who": "me"}


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by a thousandth of a second a look."""
    now = iter(np.arange(1700000000, 1700000100, 1e-3).tolist())
    monkeypatch.setattr("time.time", lambda: next(now))


def test_two_environments_of_different_lengths_report_their_own_episodes():
    venv = VecMonitor(DummyVecEnv([lambda: CountEnv(2, reward=0.5), lambda: CountEnv(3)]))
    venv.reset()
    ended = []
    for _ in range(6):
        *_, dones, infos = venv.step([0, 0])
        ended += [
            (i, infos[i]["episode"]["r"], infos[i]["episode"]["l"]) for i in np.flatnonzero(dones)
        ]
        assert all("episode" not in infos[i] for i in range(2) if not dones[i])
    assert ended == [(0, 1, 2), (1, 3, 3), (0, 1, 2), (0, 1, 2), (1, 3, 3)]
    assert venv.episode_count == 5
    venv.step([0, 0])
    assert venv.episode_returns.tolist() == [0.5, 1]
    assert venv.episode_lengths.tolist() == [1, 1]
    venv.reset()
    assert venv.episode_returns.tolist() == [0, 0]
    assert venv.episode_returns.dtype == np.float32


def test_200000_rewards_of_a_tenth_are_not_lost_in_float32():
    venv = VecMonitor(DummyVecEnv([lambda: CountEnv(200_000, reward=0.1)]))
    venv.reset()
    action = [0]
    for _ in range(200_000):
        *_, infos = venv.step(action)
    np.testing.assert_allclose(infos[0]["episode"]["r"], 20000, 1e-6)


def test_the_infos_of_the_environment_inside_are_not_written_into():
    shared = {}
    inner = DummyVecEnv([lambda: CountEnv(1, info=shared)])
    venv = VecMonitor(inner)
    venv.reset()
    assert "episode" in venv.step([0])[3][0]
    assert shared == {}


def written(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("keywords", [(), ("q", "who")])
def test_the_file_of_a_vec_monitor_is_sb3s_byte_by_byte(tmp_path, monkeypatch, keywords):
    folders = []
    for lib in (jv, sb3):
        # One look at the clock in the constructor; SB3 looks once a row, jaxvec once a step.
        monkeypatch.setattr("time.time", iter([1700000000.25] + [1700000001.5] * 20).__next__)
        folder = tmp_path / lib.__name__
        venv = lib.VecMonitor(
            lib.DummyVecEnv([lambda: Tagged(2, reward=0.1), lambda: Tagged(3, reward=1 / 3)]),
            str(folder / "log"),
            info_keywords=keywords,
        )
        venv.reset()
        for _ in range(6):
            *_, dones, infos = venv.step([0, 0])
            if dones[0]:
                assert set(infos[0]["episode"]) == {"r", "l", "t", *keywords}
        venv.close()
        folders.append(written(folder))
    assert folders[0] == folders[1]
    text = folders[0]["log.monitor.csv"]
    assert text.startswith(b'#{"t_start": 1700000000.25, "env_id": "None"}\nr,l,t')
    assert text.count(b"\r\n") == 6


@pytest.mark.parametrize("override", [True, False])
def test_the_file_of_a_monitor_is_sb3s_byte_by_byte(tmp_path, monkeypatch, override):
    folders = []
    for kind in (Monitor, sb3_monitor.Monitor):
        folder = tmp_path / kind.__module__
        for _ in range(2):
            monkeypatch.setattr("time.time", iter([1700000000.25] + [1700000001.5] * 20).__next__)
            env = kind(
                gym.make("CartPole-v1"),
                str(folder / "log"),
                reset_keywords=("options",),
                info_keywords=(),
                override_existing=override,
            )
            infos = []
            for episode in range(3):
                env.reset(seed=episode, options={"low": -0.01})
                done = False
                while not done:
                    *_, terminated, truncated, info = env.step(1)
                    done = terminated or truncated
                infos.append(info["episode"])
            env.close()
        folders.append(
            (written(folder), infos, env.get_episode_rewards(), env.get_episode_lengths())
        )
    assert folders[0] == folders[1]


def test_a_folder_gets_a_monitor_csv_and_missing_folders_are_made(tmp_path):
    ResultsWriter(tmp_path, {"t_start": 0}).close()
    ResultsWriter(tmp_path / "new" / "0", {"t_start": 0}).close()
    ResultsWriter(str(tmp_path / "new" / "x.monitor.csv"), {"t_start": 0}, ("k",)).close()
    assert (tmp_path / "monitor.csv").is_file()
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == [
        "0.monitor.csv",
        "x.monitor.csv",
    ]


def test_rows_can_be_read_while_the_monitor_is_open(tmp_path):
    venv = VecMonitor(DummyVecEnv([functools.partial(CountEnv, 1)]), tmp_path / "0")
    venv.reset()
    venv.step([0])
    with open(tmp_path / "0.monitor.csv") as file:
        assert set(json.loads(file.readline()[1:])) == {"t_start", "env_id"}
        assert next(iter(csv.DictReader(file)))["l"] == "1"
    venv.close()


def test_an_episode_that_ends_after_close_is_an_error_that_says_so(tmp_path):
    venv = VecMonitor(DummyVecEnv([functools.partial(CountEnv, 1)]), tmp_path / "0")
    venv.reset()
    venv.close()
    venv.close()
    with pytest.raises(ClosedError, match="after the monitor was closed"):
        venv.step([0])


def test_a_keyword_that_the_info_lacks_is_named():
    venv = VecMonitor(DummyVecEnv([functools.partial(CountEnv, 1)]), info_keywords=("q",))
    venv.reset()
    with pytest.raises(KeyError, match="q"):
        venv.step([0])


@pytest.mark.parametrize("kind", [Monitor, sb3_monitor.Monitor])
@pytest.mark.parametrize("lib", [jv, sb3])
def test_a_monitored_environment_warns(kind, lib):
    inner = lib.DummyVecEnv([lambda: kind(CountEnv())])
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        venv = VecMonitor(VecNormalize(inner))
    venv.reset()
    for _ in range(3):
        *_, infos = venv.step([0])
    assert infos[0]["episode"]["r"] != 3


def test_load_results_reads_what_sb3s_reads(tmp_path):
    with pytest.raises(LoadMonitorResultsError, match="no file"):
        load_results(tmp_path)
    (tmp_path / "e.monitor.csv").write_text('#{"t_start": 1.0, "env_id": "None"}\nr,l,t\n')
    empty = load_results(tmp_path)
    assert list(empty.columns) == ["index", "r", "l", "t"]
    assert empty.empty
    for name, start in (("a", 5.0), ("b", 3.5)):
        with open(tmp_path / f"{name}.monitor.csv", "w") as file:
            file.write(f'#{{"t_start": {start}, "env_id": "E"}}\nr,l,t\n1.5,2,0.5\n2.5,3,{start}\n')
    ours, theirs = load_results(str(tmp_path)), sb3_monitor.load_results(str(tmp_path))
    assert ours.equals(theirs)
    assert ours["t"].tolist() == [3.0, 4.5, 6.0, 9.0]
    assert set(get_monitor_files(tmp_path)) == set(sb3_monitor.get_monitor_files(str(tmp_path)))
    (tmp_path / "bad.monitor.csv").write_text("r,l,t\n")
    with pytest.raises(LoadMonitorResultsError, match=r"bad\.monitor\.csv"):
        load_results(tmp_path)


# Monitor


def test_a_monitor_refuses_steps_and_resets_out_of_order():
    env = Monitor(CountEnv(2), allow_early_resets=False)
    with pytest.raises(RuntimeError, match="needs reset"):
        env.step(0)
    env.reset()
    env.step(0)
    with pytest.raises(RuntimeError, match="before done"):
        env.reset()
    env.step(0)
    with pytest.raises(RuntimeError, match="needs reset"):
        env.step(0)
    env.reset()
    with pytest.raises(ValueError, match="argument seed into reset"):
        Monitor(CountEnv(), reset_keywords=("seed",)).reset()
    assert env.get_total_steps() == 2


def test_a_monitor_does_not_write_into_the_environments_info():
    shared = {}
    env = Monitor(CountEnv(1, info=shared))
    env.reset()
    assert env.step(0)[4]["episode"]["l"] == 1
    assert shared == {}


def test_a_monitor_passes_for_sb3s_and_can_be_copied_and_pickled():
    env = Monitor(CountEnv())
    assert isinstance(env, sb3_monitor.Monitor)
    assert isinstance(env, Monitor)
    assert is_wrapped(env, sb3_monitor.Monitor)
    assert sb3.DummyVecEnv([lambda: Monitor(CountEnv())]).env_is_wrapped(sb3_monitor.Monitor) == [
        True
    ]
    env.reset()
    env.step(0)
    for again in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert type(again) is Monitor
        assert again.rewards == [1]
        again.step(0)
    assert env.rewards == [1]


def test_evaluate_policy_takes_a_monitors_episodes_and_does_not_warn():
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    model = PPO("MlpPolicy", Monitor(CountEnv()), n_steps=8, batch_size=8, device="cpu")
    assert not isinstance(model.get_env().envs[0].env, sb3_monitor.Monitor)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate_policy(model, Monitor(CountEnv(4)), n_eval_episodes=2) == (4, 0)
        venv = VecNormalize(VecMonitor(DummyVecEnv([lambda: CountEnv(2), lambda: CountEnv(10)])))
        _, lengths = evaluate_policy(model, venv, n_eval_episodes=4, return_episode_rewards=True)
    assert sorted(lengths) == [2, 2, 10, 10]


@pytest.mark.parametrize("kind", [Monitor, sb3_monitor.Monitor])
def test_monitors_in_workers_are_recognised(kind):
    venv = SubprocVecEnv([lambda: kind(CountEnv())] * 2)
    try:
        assert venv.env_is_wrapped(sb3_monitor.Monitor) == [True, True]
        assert venv.env_is_wrapped(gym.wrappers.TimeLimit) == [False, False]
    finally:
        venv.close()
