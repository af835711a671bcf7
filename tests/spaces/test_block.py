"""The aligned block: its arrays, its life, and what remains of it (nothing) in real processes."""

import gc
import os
import pickle
import subprocess
import sys
import time

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, OneOf, Sequence, Text, Tuple

from jaxvec.spaces import SharedBlock, create_empty_array, write_row
from tests.spaces.processes import METHODS, names_of_shared_memory, run_script, script
from tests.spaces.table import FIXED, Word, assert_same, name

NUM_ROWS = 3
EXTRA = {
    "reward": ((NUM_ROWS,), np.float32),
    "done": ((NUM_ROWS, 2), np.bool_),
    "none": ((0,), "i8"),
}
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc and /dev/shm")
both_kinds = pytest.mark.parametrize("named", [False, True], ids=["descriptor", "named"])
if sys.platform != "linux":
    both_kinds = pytest.mark.parametrize("named", [True], ids=["named"])


def arrays_of(tree):
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    if isinstance(tree, tuple):
        for part in tree:
            yield from arrays_of(part)
    else:
        yield tree


@both_kinds
@pytest.mark.parametrize("space", FIXED, ids=name)
def test_the_columns_are_zeros_in_the_form_of_the_space(space, named):
    with SharedBlock(space, NUM_ROWS, EXTRA, named=named) as block:
        assert_same(block.values, create_empty_array(space, NUM_ROWS, zeros))
        assert {key: (x.shape, x.dtype) for key, x in block.extra.items()} == {
            key: (shape, np.dtype(dtype)) for key, (shape, dtype) in EXTRA.items()
        }


def zeros(shape, dtype):
    return np.zeros(shape, dtype)


@both_kinds
@pytest.mark.parametrize("space", FIXED, ids=name)
def test_every_array_is_aligned_writable_and_apart_from_the_others(space, named):
    with SharedBlock(space, NUM_ROWS, EXTRA, named=named) as block:
        arrays = [array for array in arrays_of((block.values, block.extra)) if array.size]
        for array in arrays:
            assert array.ctypes.data % 64 == 0
            assert array.flags.c_contiguous
        for value, array in enumerate(arrays, start=1):
            array.view(np.uint8).fill(value)
        for value, array in enumerate(arrays, start=1):
            assert (array.view(np.uint8) == value).all()


@both_kinds
def test_the_arrays_are_made_once(named):
    with SharedBlock(Dict(a=Discrete(3)), NUM_ROWS, EXTRA, named=named) as block:
        assert block.values["a"] is block.values["a"]
        assert block.extra["done"] is block.extra["done"]


@both_kinds
def test_rows_are_written_in_place(named):
    space = Dict(a=Box(-1, 1, (2,)), b=Tuple([Discrete(3)]))
    with SharedBlock(space, NUM_ROWS, named=named) as block:
        a = block.values["a"]
        write_row(block.values, space, 1, {"a": [0.5, 1], "b": (2,)})
        assert a.tolist() == [[0, 0], [0.5, 1], [0, 0]]
        with pytest.raises(ValueError, match=r"row 1, \['b'\]\[0\]: the value has shape"):
            write_row(block.values, space, 1, {"a": [0, 0], "b": ([2],)})
        assert a[1].tolist() == [0.5, 1]


@both_kinds
def test_arrays_outlive_the_block(named):
    block = SharedBlock(Box(0, 1, (2,)), NUM_ROWS, named=named)
    values = block.values
    values[:] = 3
    block.close()
    del block
    gc.collect()
    values += 1
    assert values.tolist() == [[4, 4]] * NUM_ROWS


@both_kinds
def test_a_closed_block_says_so_and_closes_again(named):
    block = SharedBlock(Box(0, 1, (2,)), NUM_ROWS, named=named)
    block.close()
    block.close()
    with pytest.raises(ValueError, match="closed"):
        _ = block.values
    with pytest.raises(ValueError, match="closed"):
        _ = block.extra


@both_kinds
def test_a_block_is_handed_over_only_while_a_process_is_started(named):
    with (
        SharedBlock(Box(0, 1, (2,)), NUM_ROWS, named=named) as block,
        pytest.raises(RuntimeError, match="inheritance"),
    ):
        pickle.dumps(block)


@both_kinds
def test_a_sealed_block_takes_no_further_process(named, monkeypatch):
    monkeypatch.setattr("multiprocessing.context.assert_spawning", lambda block: None)
    block = SharedBlock(Box(0, 1, (2,)), NUM_ROWS, named=named)
    block.seal()
    with pytest.raises(ValueError, match=r"Start every process before `seal`"):
        pickle.dumps(block)
    assert block.values.shape == (NUM_ROWS, 2)


@pytest.mark.parametrize(
    "space",
    [Text(3), Graph(Discrete(2), None), Sequence(Discrete(2)), OneOf([Discrete(2)]), Word()],
    ids=name,
)
def test_a_space_without_a_fixed_shape_is_refused_with_its_place(space):
    with pytest.raises(TypeError, match=r"at \['a'\]\[0\] has no elements of a fixed shape"):
        SharedBlock(Dict(a=Tuple([space])), NUM_ROWS)


def test_arrays_of_objects_cannot_be_shared():
    with pytest.raises(TypeError, match="object"):
        SharedBlock(Discrete(2), NUM_ROWS, {"infos": ((NUM_ROWS,), object)})


def test_a_block_larger_than_the_machine_is_refused():
    with pytest.raises((MemoryError, OSError)):
        SharedBlock(Discrete(2), NUM_ROWS, {"large": ((2**58,), np.uint8)})


@both_kinds
def test_a_block_of_nothing_exists(named):
    with SharedBlock(Dict(), 0, named=named) as block:
        assert block.values == {}
        assert block.extra == {}


@linux_only
def test_a_block_without_a_name_leaves_no_trace_while_it_lives():
    before = names_of_shared_memory()
    with SharedBlock(Box(0, 1, (2,)), NUM_ROWS):
        assert names_of_shared_memory() == before


@linux_only
def test_a_named_block_has_its_name_until_it_is_sealed():
    before = names_of_shared_memory()
    with SharedBlock(Box(0, 1, (2,)), NUM_ROWS, named=True) as block:
        (name,) = names_of_shared_memory() - before
        assert os.path.exists(name)
        block.seal()
        assert not os.path.exists(name)
        assert names_of_shared_memory() == before


@linux_only
@both_kinds
def test_blocks_that_are_forgotten_leave_no_descriptor_and_no_name(named):
    first = SharedBlock(Box(0, 1, (2,)), NUM_ROWS, named=named)  # starts the resource tracker
    gc.collect()
    names, descriptors = names_of_shared_memory(), os.listdir("/proc/self/fd")
    blocks = [SharedBlock(Box(0, 1, (2,)), NUM_ROWS, named=named) for _ in range(20)]
    new = names_of_shared_memory() - names
    assert len(new) == 20 * named
    del blocks
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    assert not any(map(os.path.exists, new))
    first.close()


@linux_only
def test_a_python_without_memfd_uses_a_file_without_a_name(monkeypatch):
    monkeypatch.delattr(os, "memfd_create")
    before = names_of_shared_memory()
    with SharedBlock(Box(0, 1, (2,)), NUM_ROWS) as block:
        block.values[:] = 2
        assert block.values.sum() == 4 * NUM_ROWS
        assert names_of_shared_memory() == before


@linux_only
@both_kinds
@pytest.mark.parametrize("method", METHODS)
def test_workers_write_what_the_parent_reads_without_a_copy(method, named):
    assert run_script("round-trip", method, "named" if named else "") == "ok"


@linux_only
@both_kinds
def test_a_worker_that_crashes_takes_nothing_with_it(named):
    assert run_script("crash", "forkserver", "named" if named else "") == "ok"


@linux_only
@both_kinds
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_when_the_parent_is_killed(method, named, tmp_path):
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        parent = subprocess.Popen(
            script("wait", method, "named" if named else ""),
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
        )
    with parent:
        workers = [int(pid) for pid in parent.stdout.readline().split()]
        session = processes_of_session(parent.pid)
        names = set().union(*map(names_of_shared_memory, session))
        parent.kill()
    assert len(workers) == 2
    assert {parent.pid, *workers} <= session
    assert names == set()
    deadline = time.monotonic() + 30
    while processes_of_session(parent.pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert processes_of_session(parent.pid) == set()
    assert errors.read_text() == ""


def processes_of_session(session):
    """Returns the pids that live in a session; one whose end nobody has noticed yet lives no more."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                state, _, _, its_session = file.read().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_session) == session and state != "Z":
            found.add(int(pid))
    return found


@pytest.mark.parametrize(
    ("num_rows", "shape"), [(-1, (1,)), (True, (1,)), (1.0, (1,)), (2, (-1,)), (2, (1.5,))]
)
def test_a_length_that_is_no_count_is_refused(num_rows, shape):
    with pytest.raises(ValueError, match="must be a whole number from 0 on"):
        SharedBlock(Box(0, 1, (3,)), num_rows, {"extra": (shape, np.float32)})
