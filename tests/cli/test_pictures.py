"""`jaxvec plot` and `jaxvec stats`: what was logged and learnt, to look at."""

import json
import pickle
import re

import gymnasium
import numpy as np
import pytest

import jaxvec
from jaxvec.cli import main
from jaxvec.cli._curves import _labels, draw_curves, trailing_mean


def log(path, rows, t_start=100.0, env_id="E"):
    path.parent.mkdir(exist_ok=True)
    body = "".join(f"{r},{length},{t}\r\n" for r, length, t in rows)
    header = json.dumps({"t_start": t_start, "env_id": env_id})
    path.write_text(f"#{header}\nr,l,t\r\n{body}")
    return path


def line_of(capsys, code, *words):
    assert main([str(word) for word in words]) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    return err


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_runs_are_drawn_over_their_steps(ending, tmp_path, capsys):
    a = log(tmp_path / "a.monitor.csv", [(1, 10, 1), (2, 20, 2), (3, 30, 3)])
    b = log(tmp_path / "b.monitor.csv", [(5, 5, 1)])
    out = tmp_path / f"curves.{ending}"
    assert main(["plot", str(a), str(b), "--output", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 4 episodes of 2 runs\n"
    start = {"png": b"\x89PNG\r\n", "svg": b"<?xml"}[ending]
    assert out.read_bytes().startswith(start)


def test_what_is_drawn_is_what_was_logged(tmp_path):
    path = log(tmp_path / "a.monitor.csv", [(2, 10, 36), (4, 20, 72), (9, 30, 360)])
    late = log(tmp_path / "b.monitor.csv", [(0, 1, 0)], t_start=100 + 3600)
    expected = {"steps": [10, 30, 60], "episodes": [1, 2, 3], "time": [0.01, 0.02, 0.1]}
    for axis, x in expected.items():
        first, second = draw_curves([path, late], tmp_path / "x.png", axis=axis, window=2)
        np.testing.assert_allclose(first.x, x)
        assert first.smooth.tolist() == [2, 3, 6.5]
        assert [first.label, second.label] == ["a", "b"]
    assert second.x.tolist() == [1]  # an hour after the first


def test_the_logs_of_a_folder_are_one_run_in_the_order_of_time(tmp_path):
    log(tmp_path / "run" / "0.monitor.csv", [(1, 10, 1), (3, 10, 9)], t_start=100)
    log(tmp_path / "run" / "1.monitor.csv", [(2, 7, 4)], t_start=101)
    (curve,) = draw_curves([tmp_path / "run"], tmp_path / "x.png", window=1)
    assert curve.returns.tolist() == [1, 2, 3]
    assert curve.x.tolist() == [10, 17, 27]
    assert curve.label == "run"


def test_a_trailing_mean_keeps_its_digits_far_from_zero():
    values = 1e9 + np.random.default_rng(0).normal(size=5000)
    expected = [values[max(0, i - 49) : i + 1].mean() for i in range(len(values))]
    np.testing.assert_allclose(trailing_mean(values, 50), expected, rtol=1e-14)


def test_labels_leave_out_what_all_paths_share(tmp_path):
    paths = [tmp_path / "x" / name for name in ("a/0.monitor.csv", "b/0.monitor.csv")]
    assert _labels(paths) == ["a/0", "b/0"]
    assert _labels(paths[:1]) == ["0"]


def test_what_is_no_log_is_one_line(tmp_path, capsys):
    empty = log(tmp_path / "empty.monitor.csv", [])
    (tmp_path / "bad.csv").write_text("r,l,t\n")
    (tmp_path / "folder").mkdir()
    out = ("--output", tmp_path / "x.png")
    for words, said in (
        ((tmp_path / "nothing.csv", *out), "there is no file"),
        ((tmp_path / "bad.csv", *out), "a monitor file begins with a line of JSON"),
        ((tmp_path / "folder", *out), "there is no file *monitor.csv in the folder"),
        ((empty, *out), "no episode has ended"),
        ((empty, "--output", tmp_path / "x.docx"), "must end with one of"),
        ((empty, "--over", "miles"), "miles"),
    ):
        assert said in line_of(capsys, 2, "plot", *words)
    assert not (tmp_path / "x.png").exists()


# --- jaxvec stats --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The statistics of a rollout."""
    path = tmp_path_factory.mktemp("saved") / "stats.npz"
    words = ("--num-envs", "4", "--num-steps", "50", "--normalize", "--save-stats", str(path))
    assert main(["rollout", "CartPole-v1", *words, "--json"]) == 0
    return path


def test_statistics_are_shown_number_by_number(saved, capsys):
    assert main(["stats", str(saved), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["statistics"]
    moments = jaxvec.io.read_statistics(saved)[".layers['normalize_observation'].statistics"]
    observation = found["['normalize_observation']"]
    np.testing.assert_allclose(observation["mean"], moments.mean, rtol=1e-6)
    np.testing.assert_allclose(observation["std"], np.sqrt(moments.var), rtol=1e-6)
    assert observation["count"] == pytest.approx(4 * 51)
    assert found["['normalize_reward']"]["count"] == pytest.approx(200)
    assert main(["stats", str(saved)]) == 0
    out = capsys.readouterr().out
    assert f"{moments.mean[3]:,.6g}" in out
    assert re.search(r"normalize_observation +│ +\[0\] +│ +204 ", out)


def test_statistics_of_images_are_a_range_and_a_picture(tmp_path, capsys):
    words = ("Breakout-MinAtar-v1", "--num-envs", "2", "--num-steps", "9", "--normalize")
    assert main(["rollout", *words, "--save-stats", str(tmp_path / "s.npz")]) == 0
    capsys.readouterr()
    picture = tmp_path / "s.png"
    assert main(["stats", str(tmp_path / "s.npz"), "--plot", str(picture)]) == 0
    assert "[10, 10, 4]" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_pickle_of_sb3s_becomes_a_file_that_vec_normalize_loads(tmp_path, capsys):
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")

    def make():
        return gymnasium.make("CartPole-v1")

    theirs = sb3.VecNormalize(sb3.DummyVecEnv([make]), gamma=0.9)
    theirs.seed(0)
    theirs.reset()
    for _ in range(30):
        theirs.step([0])
    theirs.save(str(tmp_path / "theirs.pkl"))
    assert main(["stats", "--from-sb3", str(tmp_path / "theirs.pkl"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["file"] == str(tmp_path / "theirs.npz")
    assert shown["statistics"]["['obs']"]["mean"] == theirs.obs_rms.mean.tolist()
    ours = jaxvec.VecNormalize.load(tmp_path / "theirs.npz", jaxvec.DummyVecEnv([make]))
    assert ours.gamma == 0.9
    assert ours.ret_rms.var == theirs.ret_rms.var
    words = ("stats", tmp_path / "named.npz", "--from-sb3", tmp_path / "theirs.pkl", "--trust")
    assert main([str(word) for word in words]) == 0
    assert (tmp_path / "named.npz").read_bytes().startswith(b"PK")


class Runs:
    """Would run a function when it is read."""

    def __reduce__(self):
        return (print, ("it ran",))


def test_what_holds_no_statistics_is_one_line(saved, tmp_path, capsys):
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(Runs()))
    (tmp_path / "text.npz").write_text("text")
    for words, said in (
        ((), "name a file of statistics"),
        ((tmp_path / "nothing.npz",), "there is no file"),
        ((tmp_path / "text.npz",), "is no .npz file"),
        (("--from-sb3", tmp_path / "evil.pkl"), "the pickle uses builtins.print"),
        ((saved, "--trust"), "--trust is for --from-sb3"),
        ((saved, "--plot", tmp_path / "x.docx"), "must end with one of"),
    ):
        assert said in line_of(capsys, 2, "stats", *words)
    assert not (tmp_path / "evil.npz").exists()
