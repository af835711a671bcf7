"""Episode logs in files: what `Monitor` and `VecMonitor` write, and `load_results` reads.

A `monitor.csv` begins with a line of JSON after a `#`, which ends in a line feed; the rows that follow end
in a carriage return and a line feed, on every system.
"""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from jaxvec.errors import ClosedError, JaxvecError, MissingExtraError
from jaxvec.io._targets import check_target

EXT = "monitor.csv"
_LONGEST_ROW = 1 << 16  # bytes

FilePath = str | os.PathLike[str]


class LoadMonitorResultsError(JaxvecError):
    """There is no monitor file to load."""


class ResultsWriter:
    """Writes a `monitor.csv`; what a call writes is in the file when it returns.

    Args:
      filename: of the file. `.monitor.csv` is added unless it ends so; a folder gets a `monitor.csv`.
        Folders that are missing are made.
      header: for the first line: `t_start`, seconds since the epoch, and `env_id`.
      extra_keys: further columns, after the return `r`, the length `l` and the time `t`.
      override_existing: write a new file; otherwise append rows to the one that is there.

    Raises:
      OSError: if the file cannot be written, or is there and no regular file (a pipe, a device).
    """

    def __init__(
        self,
        filename: FilePath = "",
        header: Mapping[str, Any] | None = None,
        extra_keys: Sequence[str] = (),
        override_existing: bool = True,
    ) -> None:
        self.filename = os.path.realpath(monitor_filename(filename))
        Path(self.filename).parent.mkdir(parents=True, exist_ok=True)
        check_target("ResultsWriter", self.filename)
        mode = "w" if override_existing else "a"
        self.file_handler = open(self.filename, mode, newline="\n")  # noqa: SIM115
        self.logger = csv.DictWriter(self.file_handler, fieldnames=("r", "l", "t", *extra_keys))
        if not override_existing:
            _end_last_row(self.filename, len(self.logger.fieldnames))
        self._rows = csv.writer(self.file_handler)
        if override_existing:
            self.file_handler.write(f"#{json.dumps(header or {})}\n")
            self.logger.writeheader()
        self.file_handler.flush()

    def write_row(self, epinfo: Mapping[str, Any]) -> None:
        """Writes the row of an episode.

        Raises:
          ClosedError: if the file was closed.
        """
        self._check_open()
        self.logger.writerow(epinfo)
        self.file_handler.flush()

    def write_rows(self, columns: Mapping[str, Iterable[Any]]) -> None:
        """Writes the rows of many episodes at once.

        Args:
          columns: `r`, `l`, `t` and the `extra_keys`, one entry for each episode.

        Raises:
          ClosedError: if the file was closed.
        """
        self._check_open()
        names = self.logger.fieldnames
        self._rows.writerows(zip(*(columns[name] for name in names), strict=True))
        self.file_handler.flush()

    def _check_open(self) -> None:
        if self.file_handler.closed:
            raise ClosedError(
                f"{self.filename}: an episode ended after the monitor was closed, so its row cannot be "
                "written; close the environment when you are done with it."
            )

    def close(self) -> None:
        """Closes the file."""
        self.file_handler.close()


def monitor_filename(filename: FilePath) -> str:
    """Returns the file that a log of this name goes to, as SB3 names it.

    `.monitor.csv` is added unless the name ends in `monitor.csv`, even to a `.csv`: `load_results` looks for
    that ending. A folder gets a `monitor.csv`.
    """
    name = os.fspath(filename)
    if name.endswith(EXT):
        return name
    return str(Path(name) / EXT) if Path(name).is_dir() else f"{name}.{EXT}"


def get_monitor_files(path: FilePath) -> list[str]:
    """Returns the monitor files in a folder."""
    return [str(each) for each in Path(path).glob(f"*{EXT}")]


def load_results(path: FilePath) -> Any:
    """Loads all monitor files of a folder.

    Args:
      path: the folder.

    Returns:
      A pandas.DataFrame, one row for each episode in the order in which they ended: `index` (its number in
      its file), `r`, `l`, and `t`, seconds since the earliest file was begun. A last row that was cut off
      is left out.

    Raises:
      LoadMonitorResultsError: if there is no such file, or one is damaged.
      MissingExtraError: if pandas is not installed.
    """
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise MissingExtraError(
            "load_results returns a pandas.DataFrame, and pandas is not installed: pip install "
            "'jaxvec[plot]'."
        ) from error
    files = get_monitor_files(path)
    if not files:
        raise LoadMonitorResultsError(
            f"load_results: there is no file *{EXT} in {os.fspath(path)!r}. A Monitor or VecMonitor with "
            "a filename writes one."
        )
    tables, starts = [], []
    for name in files:
        with open(name, newline="") as file, _damage_told(name):
            start = float(_header(name, file.readline())["t_start"])
            table = pandas.read_csv(StringIO("".join(_whole_rows(file))), index_col=None)
            table["t"] += start
        starts.append(start)
        tables.append(table)
    filled = [table for table in tables if not table.empty]
    if not filled:
        return pandas.DataFrame(columns=["r", "l", "t"]).reset_index()
    joined = pandas.concat(filled).sort_values("t").reset_index()
    joined["t"] -= min(starts)
    return joined


class Log(NamedTuple):
    """What a monitor file tells of its E episodes, in the order in which they ended.

    Attributes:
      header: the first line: `t_start`, seconds since the epoch, and `env_id`.
      returns: float64 `[E]`.
      lengths: float64 `[E]`, steps.
      times: float64 `[E]`, seconds since `t_start`.
    """

    header: dict[str, Any]
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.float64]
    times: npt.NDArray[np.float64]


def read_log(name: FilePath) -> Log:
    """Reads one monitor file, without pandas.

    A row that was cut off at the end, by a crash or because the run is still going, is left out.

    Raises:
      LoadMonitorResultsError: if it is no monitor file, or a row holds no numbers.
      OSError: if it cannot be read.
    """
    path = os.fspath(name)
    with open(path, newline="") as file, _damage_told(path):
        header = _header(path, file.readline())
        names, *rows = csv.reader(_whole_rows(file))
        places = [names.index(each) for each in ("r", "l", "t")]
        numbers = np.array([[float(row[place]) for place in places] for row in rows])
    return Log(header, *numbers.reshape(-1, 3).T)


@contextmanager
def _damage_told(name: str) -> Iterator[None]:
    """Names the file where reading it fails, as one kind of error."""
    try:
        yield
    except (ValueError, LookupError, TypeError) as error:
        raise LoadMonitorResultsError(
            f"{name} is damaged, or no monitor file: {error}. Such a file has a line of JSON after "
            "'#', the names r,l,t, and one row of numbers for each episode."
        ) from error


def _whole_rows(file: TextIO) -> list[str]:
    """Returns the lines that follow, without a last row that was cut off."""
    lines = file.readlines()
    if lines and _is_cut_off(lines[-1], len(lines[0].split(","))):
        lines.pop()
    return lines


def _is_cut_off(line: str, num_fields: int) -> bool:
    """Tells whether a crash cut off a row: it has no line end, and too few fields."""
    fields = line.split(",")
    return not line.endswith("\n") and (len(fields) < num_fields or not fields[-1])


def _end_last_row(name: str, num_fields: int) -> None:
    """Lets what is appended to a file begin a new row: one that a crash cut off is taken out."""
    with open(name, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LONGEST_ROW))
        last = file.read().rpartition(b"\n")[2]
        if not last:
            return
        if size > len(last) and _is_cut_off(last.decode(errors="replace"), num_fields):
            file.truncate(size - len(last))
        else:
            file.write(b"\r\n")


def _header(name: str, line: str) -> dict[str, Any]:
    if not line.startswith("#"):
        raise LoadMonitorResultsError(
            f"{name} begins with {line[:40]!r}, but a monitor file begins with a line of JSON after '#'. "
            "Leave files of others out."
        )
    header: dict[str, Any] = json.loads(line[1:])
    if not isinstance(header, dict):
        raise TypeError(f"the line after '#' is {line[1:40]!r}")
    return header
