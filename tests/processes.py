"""Two processes of `jax.distributed` on this machine, with two CPU devices each."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

_FIRST_LINES = """
import sys

import jax
import numpy as np

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_disable_most_optimizations", True)  # as quick_compilation
jax.config.update("jax_cpu_collectives_implementation", "gloo")
number = int(sys.argv[2])
jax.distributed.initialize(f"127.0.0.1:{sys.argv[1]}", 2, number)
"""


def run_two_processes(program: str, folder: Path) -> list[Any]:
    """Runs a program in two processes, and returns what each has saved.

    Args:
      program: Python; it knows `number`, 0 or 1, and saves arrays in the file `sys.argv[3]`.
      folder: for these files.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    source = f"{_FIRST_LINES}\n{program}\njax.distributed.shutdown()\n"
    files = [folder / f"{number}.npz" for number in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", source, port, str(number), file],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number, file in enumerate(files)
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], outputs
    return [np.load(file) for file in files]
