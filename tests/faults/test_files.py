"""Files of statistics and logs that are cut off, damaged, of something else or meant to do harm."""

import json
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from jaxvec.errors import FileFormatError
from jaxvec.vec import LoadMonitorResultsError, Monitor, VecNormalize, load_results
from jaxvec.vec._pickles import NormalizeRecord, Record, write_pickle
from jaxvec.vec._results import read_log
from tests.faults.backends import Counter, made

KINDS = ["x.npz", "x.pkl"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Returns good files of a VecNormalize: their bytes by name."""
    folder = tmp_path_factory.mktemp("files")
    venv = VecNormalize(made("dummy"))
    venv.reset()
    venv.step([0, 0])
    for name in KINDS:
        venv.save(folder / name)
    return {name: (folder / name).read_bytes() for name in KINDS}


def load(path, data):
    """Loads a file of these bytes; returns what it learned, or None if it was refused as it should be."""
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy may warn of a damaged dtype
        try:
            return VecNormalize.load(path, made("dummy"))
        except FileFormatError as error:
            refusal, needed = str(error), path.name
        except AssertionError as error:  # a file of other observations
            refusal, needed = str(error), "same shape"
    assert needed in refusal
    return None


@pytest.mark.parametrize("name", KINDS)
def test_statistics_that_were_cut_off_anywhere_are_refused(name, files, tmp_path):
    data = files[name]
    for end in (0, 1, 2, *range(3, len(data), max(1, len(data) // 60)), len(data) - 1):
        assert load(tmp_path / name, data[:end]) is None
    assert load(tmp_path / name, data) is not None


@pytest.mark.parametrize("name", KINDS)
def test_damaged_statistics_are_refused_by_one_kind_of_error(name, files, tmp_path):
    data, random = files[name], np.random.default_rng(1)
    right = load(tmp_path / name, data)
    refused = 0
    for place in random.integers(len(data), size=150):
        broken = bytearray(data)
        broken[place] ^= 1 << random.integers(8)
        venv = load(tmp_path / name, bytes(broken))
        refused += venv is None
        if venv is not None and name == "x.npz":  # a pickle's numbers have no checksum
            np.testing.assert_array_equal(venv.obs_rms.mean, right.obs_rms.mean)
            np.testing.assert_array_equal(venv.obs_rms.var, right.obs_rms.var)
    assert refused > (100 if name == "x.npz" else 20)


def record(**changes):
    """Returns the pickle of a VecNormalize of two numbers, with some attributes changed or left out."""
    rms = Record()
    vars(rms).update(mean=np.zeros(2), var=np.ones(2), count=3.0)
    returns = Record()
    vars(returns).update(mean=np.zeros(()), var=np.ones(()), count=3.0)
    state = {"training": True, "norm_obs": True, "norm_reward": True, "clip_obs": 10.0}
    state |= {"clip_reward": 10.0, "gamma": 0.99, "epsilon": 1e-8, "norm_obs_keys": None}
    state |= {"obs_rms": rms, "ret_rms": returns, **changes}
    return write_pickle({name: value for name, value in state.items() if value is not ...})


def half_a_record(**fields):
    made = Record()
    vars(made).update(fields)
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {"ret_rms": None},
        {"ret_rms": half_a_record(mean=np.zeros(()))},
        {"ret_rms": 3.0},
        {"obs_rms": "moments"},
        {"obs_rms": half_a_record(mean="x", var="y", count="z")},
        {"obs_rms": half_a_record(mean=np.zeros(2), var=np.ones(5), count=3.0)},
        {"obs_rms": half_a_record(mean=np.zeros(2), var=np.ones(2), count=np.ones(4))},
        {"obs_rms": {"a": 1}},
        {"clip_obs": "wide"},
        {"gamma": np.nan},
        {"epsilon": None},
        {"training": "maybe"},
        {"norm_obs": False},
        {"obs_rms": ...},
        {"observation_space": 3},
        {"obs_rms": half_a_record(mean=np.zeros(2), var=-np.ones(2), count=3.0)},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_a_pickle_of_sb3s_class_that_holds_nonsense_is_refused(changes, tmp_path):
    good = load(tmp_path / "good.pkl", record())
    assert good.obs_rms.count == 3
    assert load(tmp_path / "bad.pkl", record(**changes)) is None


BOMBS = {
    "code": (b"cos\nsystem\n(S'touch bomb'\ntR.", r"posix\.system|os\.system"),
    "eval": (b'cbuiltins\neval\n(S\'open("bomb","w")\'\ntR.', r"builtins\.eval"),
    "getattr": (b"cbuiltins\ngetattr\n(cnumpy\nndarray\nS'tofile'\ntR.", r"builtins\.getattr"),
    "import": (b"cimportlib\nimport_module\n(S'bomb'\ntR.", r"importlib\.import_module"),
    "memory": (
        pickle.dumps(np.zeros(3)).replace(b"K\x03\x85", b"\x8a\x06\x00\x00\x00\x00\x00\x10\x85"),
        "cannot be read",
    ),
    "depth": (b"(" * 50 + b"l" * 50 + b".", "x.pkl"),
    "nothing": (b"N.", "is a pickle of NoneType"),
    "wrong class": (pickle.dumps({"ret_rms": 1}), "is a pickle of dict"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_pickle_bomb_does_nothing_but_be_refused(bomb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data, message = BOMBS[bomb]
    (tmp_path / "x.pkl").write_bytes(data)
    with pytest.raises(FileFormatError, match=message):
        VecNormalize.load(tmp_path / "x.pkl", made("dummy"))
    assert not (tmp_path / "bomb").exists()


def test_a_bomb_in_the_dress_of_an_archive_is_never_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.touch, (tmp_path / "bomb",)

    np.savez(tmp_path / "x.npz", allow_pickle=True, x=np.array([Bomb()], object))
    with pytest.raises(FileFormatError, match=r"x\.npz"):
        VecNormalize.load(tmp_path / "x.npz", made("dummy"), trust=True)
    assert not (tmp_path / "bomb").exists()


@pytest.mark.parametrize(
    "settings",
    [{}, None, 3, [], {"training": True}, {"bomb": 1}, {"norm_obs_keys": ["a"]}],
    ids=str,
)
def test_an_archive_whose_settings_are_none_of_a_vec_normalize_is_refused(
    settings, files, tmp_path
):
    from jaxvec.core._moments import init_moments
    from jaxvec.core._statistics import Statistics
    from jaxvec.io import read_metadata, save_statistics

    (tmp_path / "good.npz").write_bytes(files["x.npz"])
    good = read_metadata(tmp_path / "good.npz")["VecNormalize"]
    wrong = {**good, **settings} if settings and isinstance(settings, dict) else settings
    if isinstance(settings, dict) and "training" in settings:
        wrong = settings  # all others are missing
    moments = {"returns": Statistics(init_moments((), "numpy"), None)}
    save_statistics(tmp_path / "x.npz", moments, metadata={"VecNormalize": wrong})
    assert load(tmp_path / "x.npz", (tmp_path / "x.npz").read_bytes()) is None


@pytest.mark.parametrize("name", KINDS)
def test_a_process_that_dies_while_it_saves_leaves_the_old_statistics(name, files, tmp_path):
    path = tmp_path / name
    path.write_bytes(files[name])
    code = f"""
import os
from jaxvec.vec import VecNormalize
from tests.faults.backends import made
venv = VecNormalize(made("dummy"))
os.replace = lambda *args: os._exit(9)  # the last moment before the new file takes the name
venv.save({str(path)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == 9
    assert path.read_bytes() == files[name]


HEADER = '#{"t_start": 5.0, "env_id": "x"}\n'
LOGS = {
    "empty": "",
    "no header": "r,l,t\n1,2,3\n",
    "no json": "#{t_start\nr,l,t\r\n1,2,3\r\n",
    "no time": "#{}\nr,l,t\r\n1,2,3\r\n",
    "header is a list": "#[1]\nr,l,t\r\n1,2,3\r\n",
    "header alone": HEADER,
    "no names": HEADER + "1,2,3\r\n",
    "no numbers": HEADER + "r,l,t\r\na,b,c\r\n",
    "binary": "#\x00\x01\x02",
}


@pytest.mark.parametrize("what", LOGS)
def test_a_log_that_is_none_is_refused_by_name(what, tmp_path):
    pytest.importorskip("pandas")
    good, bad = tmp_path / "good.monitor.csv", tmp_path / "bad.monitor.csv"
    good.write_text(HEADER + "r,l,t\r\n1,2,3\r\n", newline="")
    assert len(load_results(tmp_path)) == 1
    bad.write_text(LOGS[what], newline="")
    with pytest.raises(LoadMonitorResultsError, match=r"bad\.monitor\.csv"):
        load_results(tmp_path)
    if what != "no time":  # that one reads no times
        with pytest.raises(LoadMonitorResultsError, match=r"bad\.monitor\.csv"):
            read_log(bad)


@pytest.mark.parametrize("row", ["4", "4,5", "4,5,", '"4'], ids=repr)
def test_a_row_that_a_crash_cut_off_is_left_out(row, tmp_path):
    pytest.importorskip("pandas")
    path = tmp_path / "x.monitor.csv"
    path.write_text(HEADER + "r,l,t\r\n1,2,3\r\n" + row, newline="")
    assert load_results(tmp_path)["r"].tolist() == [1]
    assert load_results(tmp_path)["l"].tolist() == [2]
    assert read_log(path).returns.tolist() == [1]


@pytest.mark.parametrize(
    ("last", "returns"), [("4,5", [1, 2]), ("4,5,6", [1, 4, 2]), ("", [1, 2])], ids=repr
)
def test_rows_that_are_appended_run_together_with_no_row_that_was_cut_off(last, returns, tmp_path):
    path = tmp_path / "x.monitor.csv"
    path.write_text(HEADER + "r,l,t\r\n1,2,3\r\n" + last, newline="")
    env = Monitor(Counter(2), str(path), override_existing=False)
    env.reset()
    env.step(0)
    env.step(0)
    env.close()
    assert read_log(path).returns.tolist() == returns


def test_a_log_of_no_episodes_has_its_columns_and_no_rows(tmp_path):
    pytest.importorskip("pandas")
    with pytest.raises(LoadMonitorResultsError, match="there is no file"):
        load_results(tmp_path)
    Monitor(Counter(), str(tmp_path / "a")).close()
    table = load_results(tmp_path)
    assert list(table.columns) == ["index", "r", "l", "t"]
    assert len(table) == 0


def test_a_log_that_is_killed_holds_every_episode_that_ended(tmp_path):
    code = f"""
import os
from jaxvec.vec import Monitor
from tests.faults.backends import Counter
env = Monitor(Counter(2), {str(tmp_path / "a")!r})
for _ in range(3):
    env.reset()
    env.step(0)
    env.step(0)
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    log = read_log(tmp_path / "a.monitor.csv")
    assert log.lengths.tolist() == [2, 2, 2]
    assert json.loads((tmp_path / "a.monitor.csv").read_text().splitlines()[0][1:])["t_start"] > 0


def test_records_of_a_pickle_have_no_methods():
    assert [name for name in vars(Record) if not name.startswith("__")] == ["sb3_class"]
    assert [name for name in vars(NormalizeRecord) if not name.startswith("__")] == ["sb3_class"]
