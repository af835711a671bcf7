"""Worker processes of these tests start from a server that has the libraries loaded already."""

import multiprocessing
import os

import pytest

from jaxvec.vec import RayVecEnv, SubprocVecEnv

multiprocessing.set_forkserver_preload(["jaxvec.vec._worker", "tests.vec.host_envs"])


@pytest.fixture(scope="module")
def local_ray():
    """A Ray of this machine alone, which every RayVecEnv of a file uses: it takes many seconds to start."""
    ray = pytest.importorskip("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options = {"include_dashboard": False, "configure_logging": False, "log_to_driver": False}
    ray.init(address="local", num_cpus=2, **options)
    yield ray
    ray.shutdown()


def subproc(env_fns, count="auto", **options):
    return SubprocVecEnv(env_fns, num_workers=count, **options)


def actors(env_fns, count="auto", **options):
    return RayVecEnv(env_fns, num_actors=count, **options)


ON_RAY = pytest.param("ray", marks=pytest.mark.long)


@pytest.fixture(params=["subproc", ON_RAY])
def workers(request):
    """What makes a VecEnv whose environments live in workers: `workers(env_fns, count, **options)`."""
    if request.param == "subproc":
        return subproc
    request.getfixturevalue("local_ray")
    return actors
