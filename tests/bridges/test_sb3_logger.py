"""Episodes in SB3's logger: the numbers are NumPy's of the episodes that a Monitor wrote down."""

import csv
import sys

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.logger import configure

import jaxvec
from jaxvec.bridges.sb3 import log_episodes
from jaxvec.errors import MissingExtraError


def rows(folder):
    with open(folder / "progress.csv") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("backend", ["jax", "dummy"])
def test_extremes_and_quantiles_of_the_last_episodes_are_logged(backend, tmp_path):
    venv = jaxvec.make_vec_env(
        "CartPole-v1", 4, seed=0, backend=backend, monitor_dir=tmp_path / "monitor"
    )
    model = PPO("MlpPolicy", venv, n_steps=64, batch_size=64, n_epochs=1, device="cpu", seed=0)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(1024, callback=log_episodes(window=10, quantiles=(0.5, 0.9)))
    model.logger.close()
    venv.close()
    row = rows(tmp_path)[-1]
    returns = [episode["r"] for episode in model.ep_info_buffer]  # SB3's own, of the last hundred
    assert float(row["episodes/count"]) == len(returns) > 10
    last = np.array(returns[-10:])
    wanted = {"mean": last.mean(), "min": last.min(), "max": last.max()}
    wanted |= {"50pct": np.median(last), "90pct": np.quantile(last, 0.9)}
    for name, value in wanted.items():
        assert float(row[f"episodes/return_{name}"]) == pytest.approx(value, rel=1e-5)
        assert float(row[f"episodes/length_{name}"]) == pytest.approx(value, rel=1e-5)


def test_off_policy_algorithms_log_them_too(tmp_path):
    venv = jaxvec.make_vec_env("CartPole-v1", 2, seed=0, backend="jax")
    model = DQN("MlpPolicy", venv, learning_starts=50, buffer_size=500, device="cpu", seed=0)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(400, log_interval=1, callback=log_episodes())
    model.logger.close()
    logged = [float(row["episodes/return_min"] or "nan") for row in rows(tmp_path)]
    assert np.nanmin(logged) >= 8  # a row is empty where two episodes ended in one rollout


def test_without_episodes_there_is_nothing_to_log(tmp_path):
    venv = jaxvec.make_vec_env("CartPole-v1", 2, seed=0, backend="jax")
    model = PPO("MlpPolicy", venv, n_steps=4, batch_size=8, n_epochs=1, device="cpu", seed=0)
    model.set_logger(configure(str(tmp_path), ["csv"]))
    model.learn(8, callback=log_episodes())
    model.logger.close()
    assert not any(name.startswith("episodes/") for name in rows(tmp_path)[-1])


def test_quantiles_out_of_range_and_a_missing_library_are_said_at_once(monkeypatch):
    with pytest.raises(ValueError, match="log_episodes: quantiles"):
        log_episodes(quantiles=(50,))
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.callbacks", None)
    with pytest.raises(MissingExtraError, match=r"jaxvec\[sb3\]"):
        log_episodes()
