"""Gymnasium's environments in actors of Ray, on this machine or on a cluster, under SB3's interface.

python examples/ray_cluster.py            # a Ray of this machine, which ends with the example
python examples/ray_cluster.py ADDRESS    # a cluster, as ray.init takes it
"""

import importlib.util
import os
import sys
import warnings

import gymnasium as gym
import numpy as np

import jaxvec


class Fragile(gym.Wrapper):
    """An environment whose process ends without a word where one says so, as on a machine that fails."""

    fails = False

    def step(self, action: int) -> tuple:
        """Steps, or ends the process."""
        if self.fails:
            os._exit(1)
        return self.env.step(action)


def make() -> gym.Env:
    """Makes one environment, in an actor."""
    return Fragile(gym.make("CartPole-v1"))


def upright(rng: np.random.Generator | None, obs: np.ndarray) -> np.ndarray:
    """A policy that travels to the actors: pushes to the side the poles lean to; obs: `[g, 4]`."""
    del rng  # it draws nothing
    return (obs[:, 2] > 0).astype(int)


def main(address: str | None = None) -> None:
    """Compares actors with one process, and lets one of them die."""
    here = jaxvec.DummyVecEnv([make] * 8)
    with jaxvec.RayVecEnv(
        [make] * 8,
        num_actors=2,  # four environments in each: one call of Ray serves a group
        ray_options={"num_cpus": 0.5},  # what an actor takes of a machine
        address=address,
        restart_workers=True,
    ) as there:
        for venv in (here, there):
            venv.seed(3)
            venv.reset()
        for step in range(50):
            actions = np.random.default_rng(step).integers(0, 2, 8)
            for one, other in zip(here.step(actions)[:3], there.step(actions)[:3], strict=True):
                assert np.array_equal(one, other)  # the same numbers, wherever they are
        print("50 steps of 8 environments are equal to those in one process")

        # Many steps in one call, where the policy goes to the environments: what Ray costs is paid once.
        obs, actions, timestep = jaxvec.rollout_in_actors(there, upright, 100)
        assert obs.shape == (100, 8, 4)
        assert np.array_equal(actions, upright(None, obs.reshape(-1, 4)).reshape(100, 8))
        print("100 steps in one call of each actor:", int(timestep.done.sum()), "episodes ended")

        # An actor dies. It is started again, and the episodes that it took along end as truncated.
        there.set_attr("fails", True, indices=5)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _, rewards, dones, infos = there.step(np.zeros(8, int))
        assert "was started again" in str(caught[-1].message)
        assert dones[4:].all()
        assert not rewards[4:].any()
        assert all(info["TimeLimit.truncated"] for info in infos[4:])
        obs, *_ = there.step(np.zeros(8, int))
        assert obs.shape == (8, 4)
        print("an actor died, its four episodes ended as truncated, and stepping goes on")
    here.close()


if __name__ == "__main__":
    if importlib.util.find_spec("ray") is None:
        print("SKIPPED: Ray is not installed (pip install 'jaxvec[ray]')")
    else:
        main(*sys.argv[1:2])
