"""Gymnasium's environments in worker processes, several in each, under SB3's interface.

python examples/classic_subproc.py
"""

import numpy as np

import jaxvec


def returns(venv: jaxvec.vec.VecEnv, steps: int) -> list[float]:
    """Steps with random actions; returns the returns of the episodes that ended."""
    rng, found = np.random.default_rng(0), []
    venv.reset()
    for _ in range(steps):
        _, _, dones, infos = venv.step(rng.integers(0, 2, venv.num_envs))
        found += [infos[row]["episode"]["r"] for row in np.flatnonzero(dones)]
    return found


def main() -> None:
    """Compares worker processes with one process, and reaches into them."""
    here = jaxvec.make_vec_env("CartPole-v1", 16, seed=3, backend="dummy")
    with jaxvec.make_vec_env("CartPole-v1", 16, seed=3, backend="subproc") as there:
        found = returns(there, 300)
        assert found == returns(here, 300)  # the same seeds, the same numbers, wherever they are
        print(f"{len(found)} episodes, mean return {np.mean(found):.1f}")

        # Attributes and methods reach into the workers, by row.
        there.set_attr("gravity", 3.7, indices=[0, 2], where="unwrapped")
        print("gravity of rows 0 to 3:", there.get_attr("gravity", [0, 1, 2, 3]))

        # Not waiting for the slowest: the first four environments that are ready.
        there.reset()
        there.send(np.zeros(16, int), np.arange(16))
        rows, obs, rewards, dones, infos = there.recv(min_envs=4)
        assert len(rows) == len(obs) == len(rewards) == len(dones) == len(infos) >= 4
        print("ready first:", rows)
        if len(rows) < 16:
            rest, *_ = there.recv()
            assert sorted([*rows, *rest]) == list(range(16))
    here.close()


if __name__ == "__main__":  # worker processes import this file
    main()
