"""Files that a command is to write: what is wrong with them is found before anything runs."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from jaxvec.cli._failure import FAILED, Failure, failing
from jaxvec.io._targets import check_target
from jaxvec.vec._results import ResultsWriter, monitor_filename


def check_outputs(*, monitor: Path | None = None, **others: Path | None) -> None:
    """Finds what would keep files from being written.

    Args:
      monitor: the log's name, as given.
      **others: further ones by option, such as `save_stats=`; what is called `plot` is a picture, `video` a
        video.

    Raises:
      Failure: if one cannot be written, or two are one.
    """
    wanted = {} if monitor is None else {"monitor": Path(monitor_filename(monitor))}
    wanted |= {name: path for name, path in others.items() if path is not None}
    taken: dict[str, str] = {}
    for name, path in wanted.items():
        option = f"--{name.replace('_', '-')}"
        with failing(""):
            if name == "plot":
                from jaxvec.cli._plot import check_plot

                check_plot(path)
            if name == "video":
                from jaxvec.cli._video import check_video

                check_video(path)
            real = os.fspath(check_target(option, path))
        if real in taken:
            raise Failure(f"{taken[real]} and {option} are both {path}: give two names.")
        taken[real] = option


@contextlib.contextmanager
def opened_log(path: Path, env: str) -> Iterator[ResultsWriter]:
    """Opens the log of `--monitor`.

    Args:
      path: its name, as given.
      env: the environment's name, for the first line.

    Raises:
      Failure: if it cannot be written.
    """
    with failing(f"--monitor {path}"):
        log = ResultsWriter(path, {"t_start": time.time(), "env_id": env})
    try:
        yield log
    finally:
        with failing(f"--monitor {path}", FAILED):
            log.close()
