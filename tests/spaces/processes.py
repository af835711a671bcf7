"""What the tests run in processes of their own: `python -m tests.spaces.processes COMMAND METHOD`.

pytest's own process must not fork: it may have run JAX, whose threads do not survive that.
"""

import multiprocessing
import os
import subprocess
import sys
import time
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple
from gymnasium.vector.utils import batch_space

from jaxvec.spaces import (
    SharedBlock,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_row,
    write_to_shared_memory,
)

METHODS = ["fork", "forkserver", "spawn"]
NUM_WORKERS = 2
SPACE = Dict(
    image=Box(0, 255, (4, 4, 3), np.uint8),
    half=Box(-1, 1, (3,), np.float16),
    pair=Tuple([Discrete(5), Box(0, 1, (), np.bool_)]),
)
WITH_TEXT = Dict(inner=SPACE, text=Text(4))


def run_script(*arguments: str) -> str:
    """Runs a command below to its end; returns what it printed. It must not say a word in stderr."""
    done = subprocess.run(script(*arguments), capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout.strip()


def script(*arguments: str) -> list[str]:
    return [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.spaces.processes", *arguments]


def element(row: int) -> dict[str, Any]:
    """Returns an element of `SPACE` that tells its row."""
    return {
        "half": np.full(3, row / 4, np.float16),
        "image": np.full((4, 4, 3), row, np.uint8),
        "pair": (np.int64(row), np.bool_(row == 1)),
    }


def names_of_shared_memory(pid: int | str = "self") -> set[str]:
    """Returns the files that would outlive a process: what it has mapped of named shared memory."""
    with open(f"/proc/{pid}/maps") as maps:
        lines = [line.strip() for line in maps]
    return {
        "/dev/shm/" + line.partition("/dev/shm/")[2]
        for line in lines
        if "/dev/shm/" in line and not line.endswith("(deleted)")
    }


def shared(method: str) -> None:
    """Workers write their rows of gymnasium's form of shared memory."""
    context = multiprocessing.get_context(method)
    memory = create_shared_memory(WITH_TEXT, NUM_WORKERS, ctx=context)
    processes = [
        context.Process(target=write_shared, args=(row, memory)) for row in range(NUM_WORKERS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    got = read_from_shared_memory(WITH_TEXT, memory, NUM_WORKERS)
    for row, found in enumerate(iterate(batch_space(WITH_TEXT, NUM_WORKERS), got)):
        assert found["text"] == "ab" * row
        check_element(found["inner"], row)
    print("ok")


def write_shared(row: int, memory: Any) -> None:
    value = {"inner": element(row), "text": "ab" * row}
    write_to_shared_memory(WITH_TEXT, row, value, memory)


def check_element(found: dict[str, Any], row: int) -> None:
    assert (found["image"] == row).all()
    assert (found["half"] == row / 4).all()
    assert found["pair"][0] == row
    assert found["pair"][1] == (row == 1)


def start_workers(
    method: str, named: bool, target: Any
) -> tuple[SharedBlock, list[Any], list[Any]]:
    """Starts workers on a block; returns once each has said that it is attached."""
    context = multiprocessing.get_context(method)
    extra = {"reward": ((NUM_WORKERS,), np.float32)}
    block = SharedBlock(SPACE, NUM_WORKERS, extra, named=named)
    pipes, processes = [], []
    for row in range(NUM_WORKERS):
        ours, theirs = context.Pipe()
        process = context.Process(target=target, args=(row, block, theirs))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    for pipe in pipes:
        assert pipe.recv() == "attached"
    block.seal()
    return block, pipes, processes


def block_round_trip(method: str, named: str) -> None:
    """Two rounds of writes that the parent sees in arrays that it made before."""
    block, pipes, processes = start_workers(method, named == "named", worker)
    assert names_of_shared_memory() == set()
    image, reward = block.values["image"], block.extra["reward"]
    for turn in range(2):
        reward[:] = turn
        for pipe in pipes:
            pipe.send("step")
        for pipe in pipes:
            assert pipe.recv() == "done"
        for row in range(NUM_WORKERS):
            assert (image[row] == row).all()
            assert reward[row] == turn + 10 * (row + 1)
        rows = iterate(batch_space(SPACE, NUM_WORKERS), block.values)
        for row, found in enumerate(rows):
            check_element(found, row)
        image[:] = 77
    for pipe in pipes:
        pipe.send("close")
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * NUM_WORKERS
    block.close()
    print("ok")


def worker(row: int, block: SharedBlock, pipe: Any) -> None:
    pipe.send("attached")
    while pipe.recv() == "step":
        write_row(block.values, SPACE, row, element(row))
        block.extra["reward"][row] += 10 * (row + 1)
        pipe.send("done")
    assert "jax" not in sys.modules


def block_crash(method: str, named: str) -> None:
    """A worker ends without a word in the middle of a write; the parent goes on."""
    block, pipes, processes = start_workers(method, named == "named", crashing_worker)
    for pipe in pipes:
        pipe.send("step")
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [9] * NUM_WORKERS
    assert block.values["image"][:, 0].tolist() == [[[5] * 3] * 4] * NUM_WORKERS
    assert block.values["image"][:, 1:].sum() == 0
    block.close()
    print("ok")


def crashing_worker(row: int, block: SharedBlock, pipe: Any) -> None:
    pipe.send("attached")
    pipe.recv()
    block.values["image"][row, 0] = 5
    os._exit(9)


def block_wait_to_be_killed(method: str, named: str) -> None:
    """Tells the pids of its workers and waits; the workers wait for its end."""
    _, _, processes = start_workers(method, named == "named", faithful_worker)
    print(*[process.pid for process in processes], flush=True)
    time.sleep(600)


def faithful_worker(row: int, block: SharedBlock, pipe: Any) -> None:
    block.values["image"][row] = row
    pipe.send("attached")
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    block.values["image"][row] = row + 1  # the memory is still there


COMMANDS = {
    "shared": shared,
    "round-trip": block_round_trip,
    "crash": block_crash,
    "wait": block_wait_to_be_killed,
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
