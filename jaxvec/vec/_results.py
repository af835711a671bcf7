"""Episode logs in files: what `Monitor` and `VecMonitor` write, and `load_results` reads.

A `monitor.csv` begins with a line of JSON after a `#`, which ends in a line feed; the rows that follow end
in a carriage return and a line feed, on every system.
"""

import csv
import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from jaxvec.errors import ClosedError, JaxvecError, MissingExtraError

EXT = "monitor.csv"

FilePath = str | os.PathLike[str]


class LoadMonitorResultsError(JaxvecError):
    """There is no monitor file to load."""


class ResultsWriter:
    """Writes a `monitor.csv`, row by row; each row is in the file when the call returns.

    Args:
      filename: of the file. `.monitor.csv` is added unless it ends so; a folder gets a `monitor.csv`.
        Folders that are missing are made.
      header: for the first line: `t_start`, seconds since the epoch, and `env_id`.
      extra_keys: further columns, after the return `r`, the length `l` and the time `t`.
      override_existing: write a new file; otherwise append rows to the one that is there.
    """

    def __init__(
        self,
        filename: FilePath = "",
        header: Mapping[str, Any] | None = None,
        extra_keys: Sequence[str] = (),
        override_existing: bool = True,
    ) -> None:
        self.filename = _with_extension(os.fspath(filename))
        Path(self.filename).parent.mkdir(parents=True, exist_ok=True)
        mode = "w" if override_existing else "a"
        self.file_handler = open(self.filename, mode, newline="\n")  # noqa: SIM115
        self.logger = csv.DictWriter(self.file_handler, fieldnames=("r", "l", "t", *extra_keys))
        if override_existing:
            self.file_handler.write(f"#{json.dumps(header or {})}\n")
            self.logger.writeheader()
        self.file_handler.flush()

    def write_row(self, epinfo: Mapping[str, Any]) -> None:
        """Writes the row of an episode.

        Raises:
          ClosedError: if the file was closed.
        """
        if self.file_handler.closed:
            raise ClosedError(
                f"{self.filename}: an episode ended after the monitor was closed, so its row cannot be "
                "written; close the environment when you are done with it."
            )
        self.logger.writerow(epinfo)
        self.file_handler.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file_handler.close()


def _with_extension(filename: str) -> str:
    if not filename.endswith(EXT):
        inside = Path(filename).is_dir()
        filename = str(Path(filename) / EXT) if inside else f"{filename}.{EXT}"
    return os.path.realpath(filename)


def get_monitor_files(path: FilePath) -> list[str]:
    """Returns the monitor files in a folder."""
    return [str(each) for each in Path(path).glob(f"*{EXT}")]


def load_results(path: FilePath) -> Any:
    """Loads all monitor files of a folder.

    Args:
      path: the folder.

    Returns:
      A pandas.DataFrame, one row for each episode in the order in which they ended: `index` (its number in
      its file), `r`, `l`, and `t`, seconds since the earliest file was begun.

    Raises:
      LoadMonitorResultsError: if there is no such file.
      MissingExtraError: if pandas is not installed.
    """
    try:
        pandas: Any = import_module("pandas")
    except ImportError as error:
        raise MissingExtraError(
            "load_results returns a pandas.DataFrame, and pandas is not installed: install pandas."
        ) from error
    files = get_monitor_files(path)
    if not files:
        raise LoadMonitorResultsError(
            f"load_results: there is no file *{EXT} in {os.fspath(path)!r}. A Monitor or VecMonitor with "
            "a filename writes one."
        )
    tables, starts = [], []
    for name in files:
        with open(name) as file:
            start = float(_header(name, file.readline())["t_start"])
            table = pandas.read_csv(file, index_col=None)
        table["t"] += start
        starts.append(start)
        tables.append(table)
    filled = [table for table in tables if not table.empty]
    if not filled:
        return pandas.DataFrame(columns=["r", "l", "t"]).reset_index()
    joined = pandas.concat(filled).sort_values("t").reset_index()
    joined["t"] -= min(starts)
    return joined


def _header(name: str, line: str) -> dict[str, Any]:
    if not line.startswith("#"):
        raise LoadMonitorResultsError(
            f"load_results: {name} begins with {line[:40]!r}, but a monitor file begins with a line of "
            "JSON after '#'. Move files of others out of the folder."
        )
    header: dict[str, Any] = json.loads(line[1:])
    return header
