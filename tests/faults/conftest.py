"""Worker processes of these tests start from a server that has the libraries loaded already."""

import multiprocessing

multiprocessing.set_forkserver_preload(["jaxvec.vec._worker", "tests.faults.backends"])
