"""Worker processes of these tests start from a server that has the libraries loaded already."""

import multiprocessing

import pytest

multiprocessing.set_forkserver_preload(["jaxvec.vec._worker", "tests.faults.backends"])


def pytest_collection_modifyitems(items):
    """Forking is tested on purpose: JAX's warning about it is no error here."""
    for item in items:
        if "tests/faults" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning"))
            ours = "ignore:SubprocVecEnv. start_method=.fork:RuntimeWarning"
            item.add_marker(pytest.mark.filterwarnings(ours))
            item.add_marker(pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"))
