"""Monitor files: one writer for all, one reader without pandas, and what they refuse."""

import os
import sys

import numpy as np
import pytest

from jaxvec.errors import ClosedError, MissingExtraError
from jaxvec.vec import LoadMonitorResultsError, ResultsWriter, VecNormalize, load_results
from jaxvec.vec._results import monitor_filename, read_log

HEADER = '#{"t_start": 5.0, "env_id": "E"}\nr,l,t\r\n'


def test_many_rows_at_once_are_the_same_bytes_as_one_by_one(tmp_path):
    columns = {
        "r": np.array([1, 0.1, -2e9], np.float32),
        "l": [1, 2, 30],
        "t": [0.5, 0.25, 1e-6],
        "who": ["a,b", "", '"'],
    }
    files = []
    for name in ("one", "many"):
        writer = ResultsWriter(tmp_path / name, {"t_start": 1.5}, ("who",))
        if name == "many":
            writer.write_rows(columns)
        else:
            for row in range(3):
                writer.write_row({key: column[row] for key, column in columns.items()})
        files.append((tmp_path / f"{name}.monitor.csv").read_bytes())
        writer.close()
        with pytest.raises(ClosedError, match="after the monitor was closed"):
            writer.write_rows(columns)
    assert files[0] == files[1]
    assert files[0].count(b"\r\n") == 4


@pytest.mark.parametrize(
    ("name", "final"),
    [
        ("run", "run.monitor.csv"),
        ("run.csv", "run.csv.monitor.csv"),
        ("run.monitor.csv", "run.monitor.csv"),
        ("monitor.csv", "monitor.csv"),
        ("folder", "folder/monitor.csv"),
    ],
)
def test_a_file_has_the_name_that_sb3_would_give_it(name, final, tmp_path):
    sb3 = pytest.importorskip("stable_baselines3.common.monitor")
    (tmp_path / "folder").mkdir()
    ResultsWriter(tmp_path / name).close()
    assert (tmp_path / final).is_file()
    assert monitor_filename(tmp_path / name) == str(tmp_path / final)
    theirs = sb3.ResultsWriter(str(tmp_path / name))
    theirs.close()
    assert theirs.file_handler.name == str(tmp_path / final)


@pytest.mark.parametrize("override", [True, False])
def test_a_pipe_is_not_written_into_nor_replaced(override, tmp_path):
    pipe = tmp_path / "pipe.monitor.csv"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="is a named pipe"):
        ResultsWriter(pipe, override_existing=override)
    assert pipe.is_fifo()


def test_a_pipe_is_not_taken_for_statistics_of_sb3(tmp_path):
    from jaxvec.vec import DummyVecEnv
    from tests.vec.host_envs import CountEnv

    os.mkfifo(tmp_path / "pipe.pkl")
    with pytest.raises(FileExistsError, match="is a named pipe"):
        VecNormalize(DummyVecEnv([CountEnv])).save(tmp_path / "pipe.pkl")
    assert os.listdir(tmp_path) == ["pipe.pkl"]


def test_a_log_is_read_and_a_row_that_is_cut_off_left_out(tmp_path):
    path = tmp_path / "x.monitor.csv"
    path.write_text(HEADER + "1.5,2,0.5\r\n-2,3,4\r\n7,")
    log = read_log(path)
    assert log.header == {"t_start": 5, "env_id": "E"}
    assert [each.tolist() for each in log[1:]] == [[1.5, -2], [2, 3], [0.5, 4]]
    path.write_text(HEADER)
    assert read_log(path).returns.shape == (0,)
    path.write_text('#{"t_start": 0}\nr,q,l,t\n1,me,2,3\n')  # other columns are passed over
    assert read_log(path).times.tolist() == [3]


@pytest.mark.parametrize("text", ["", "r,l,t\n1,2,3\n", "#{bad\nr,l,t\n", "#{}\nr,t\n1,2\n"])
@pytest.mark.parametrize("rows", ["", "1,x,3\n"])
def test_what_is_no_log_is_named(text, rows, tmp_path):
    path = tmp_path / "x.monitor.csv"
    path.write_text(text + rows)
    with pytest.raises(LoadMonitorResultsError, match=r"x\.monitor\.csv"):
        read_log(path)


def test_a_missing_pandas_is_named_with_the_extra_that_has_it(tmp_path, monkeypatch):
    (tmp_path / "x.monitor.csv").write_text(HEADER)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'jaxvec\[plot\]'"):
        load_results(tmp_path)
