"""Episodes: told once each, as they were paid, and whoever evaluates counts every environment's own."""

import warnings
from functools import partial

import numpy as np
import pytest

from jaxvec.vec import DummyVecEnv, Monitor, VecEnvWrapper, VecMonitor, VecNormalize, make_vec_env
from jaxvec.vec._results import read_log
from tests.faults.backends import COMPILED, HOST, Counter, made

every_backend = pytest.mark.parametrize("backend", [*HOST, COMPILED])
every_host = pytest.mark.parametrize("backend", HOST)


@every_backend
def test_true_returns_are_told_below_a_normalization_and_scaled_ones_above(backend):
    below = VecNormalize(VecMonitor(made(backend)), gamma=0.5)
    above = VecMonitor(VecNormalize(made(backend), gamma=0.5))
    for venv, is_true in ((below, True), (above, False)):
        with venv:
            venv.reset()
            for _ in range(3):
                *_, infos = venv.step([0, 0])
            told = float(infos[0]["episode"]["r"])
            assert (told == 3) == is_true
            assert infos[0]["episode"]["l"] == 3


@every_backend
def test_an_episode_is_told_in_its_last_info_and_in_no_other(backend):
    with VecMonitor(made(backend)) as venv:
        venv.reset()
        told = [["episode" in info for info in venv.step([0, 0])[3]] for _ in range(7)]
        assert told == [[step in (3, 6)] * 2 for step in range(1, 8)]
        assert venv.episode_count == 4


class Keyed(Counter):
    """Says something in its info."""

    def _inform(self):
        return {"q": self.steps * 10}


@every_host
@pytest.mark.parametrize("monitor", ["Monitor", "VecMonitor"])
def test_a_keyword_of_the_info_is_told_and_logged_and_one_that_is_lacking_is_named(
    backend, monitor, tmp_path
):
    def venv_with(key, name):
        if monitor == "VecMonitor":
            return VecMonitor(
                HOST[backend]([Keyed] * 2), str(tmp_path / name), info_keywords=(key,)
            )
        return HOST[backend](
            [
                lambda rank=rank: Monitor(
                    Keyed(), str(tmp_path / f"{name}{rank}"), info_keywords=(key,)
                )
                for rank in range(2)
            ]
        )

    with venv_with("q", "good") as venv:
        venv.reset()
        for _ in range(3):
            *_, infos = venv.step([0, 0])
        assert [info["episode"]["q"] for info in infos] == [30, 30]
    logs = sorted(tmp_path.glob("good*"))
    assert [log.read_text().splitlines()[1] for log in logs] == ["r,l,t,q"] * len(logs)
    assert sum(text.endswith(",30") for log in logs for text in log.read_text().splitlines()) == 2
    with venv_with("missing", "bad") as venv:
        venv.reset()
        venv.step([0, 0])
        venv.step([0, 0])
        with pytest.raises(KeyError, match="missing"):
            venv.step([0, 0])


@pytest.mark.parametrize("backend", ["dummy", "subproc"])
def test_each_environment_has_a_log_of_its_own(backend, tmp_path):
    with make_vec_env(partial(Counter, 2), 4, monitor_dir=str(tmp_path), backend=backend) as venv:
        venv.reset()
        for _ in range(4):
            venv.step([0] * 4)
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == [f"{rank}.monitor.csv" for rank in range(4)]
    assert all(read_log(tmp_path / name).lengths.tolist() == [2, 2] for name in names)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("backend", ["dummy", "subproc"])
def test_one_environment_that_is_monitored_already_is_enough_to_warn(backend, which):
    fns = [Counter] * 3
    fns[which] = lambda: Monitor(Counter())
    venv = HOST[backend](fns)
    with pytest.warns(UserWarning, match="already wrapped with a `Monitor`"):
        VecMonitor(venv)
    venv.close()


class Old(VecEnvWrapper):
    """A VecEnv of others that knows of no wrappers."""

    def env_is_wrapped(self, wrapper_class, indices=None):
        raise AttributeError("env_is_wrapped")

    def reset(self):
        return self.venv.reset()

    def step_wait(self):
        return self.venv.step_wait()


def test_a_vec_env_that_knows_of_no_wrappers_can_be_monitored():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with VecMonitor(Old(made("dummy"))) as venv:
            venv.reset()
            for _ in range(3):
                *_, infos = venv.step([0, 0])
            assert infos[0]["episode"]["l"] == 3


@pytest.mark.parametrize(
    ("episodes", "lengths"), [(4, [2, 2, 10, 10]), (5, [2, 2, 10, 10, 10]), (1, [10])]
)
def test_an_evaluation_takes_as_many_episodes_of_slow_environments_as_of_fast_ones(
    episodes, lengths
):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.evaluation import evaluate_policy

    class Still:
        def predict(self, observations, state=None, episode_start=None, deterministic=True):
            return np.zeros(len(observations), int), state

    venv = VecMonitor(DummyVecEnv([partial(Counter, 2), partial(Counter, 10)]))
    _, counted = evaluate_policy(Still(), venv, episodes, return_episode_rewards=True)
    assert sorted(counted) == lengths


@every_host
def test_an_infinite_reward_stays_in_its_own_episode(backend):
    class Bursting(Counter):
        def step(self, action):
            obs, reward, *rest = super().step(action)
            return obs, np.inf if self.resets[-1][0] is not None else reward, *rest

    with VecMonitor(HOST[backend]([Bursting] * 2)) as venv:
        venv.seed(3)
        venv.reset()
        told = []
        for _ in range(6):
            *_, infos = venv.step([0, 0])
            told += [float(infos[0]["episode"]["r"])] if "episode" in infos[0] else []
        assert told == [np.inf, 3]


def test_without_an_ended_episode_nothing_is_told():
    with VecMonitor(made("dummy", length=9)) as venv:
        venv.reset()
        *_, infos = venv.step([0, 0])
        assert "episode" not in infos[0]
        assert venv.episode_count == 0
