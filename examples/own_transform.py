"""A layer of one's own: one record of pure functions, for NumPy and JAX, in a scan and under SB3's interface.

    python examples/own_transform.py

This one smooths observations: an exponential moving average that starts anew with each episode.
"""

from typing import NamedTuple

import numpy as np

import jaxvec
from jaxvec import Timestep, Transform, VecSpec
from jaxvec.random import hash_key, keys_from
from jaxvec.typing import Array


class Smoothed(NamedTuple):
    """The layer's state."""

    average: Array  # float32 [N, *D]


def smooth_observation(weight: float) -> Transform:
    """Replaces an observation by `weight * itself + (1 - weight) * the average so far`."""

    def init(spec: VecSpec, keys: Array = None) -> Smoothed:
        if spec.backend == "jax":
            import jax.numpy as xp
        else:
            import numpy as xp
        shape = spec.observation_space.shape
        assert shape is not None, "this layer is for arrays, not for dicts or tuples of them"
        return Smoothed(xp.zeros((spec.num_envs, *shape), np.float32))

    def begun(average: Array, obs: Array, first: Array) -> Array:
        """Rows that open an episode take its first observation as it is."""
        return first.reshape(-1, *[1] * (obs.ndim - 1)) * (obs - average) + average

    def reset(state: Smoothed, step: Timestep, mask: Array = None) -> tuple[Smoothed, Timestep]:
        rows = step.first if mask is None else mask
        average = begun(state.average, step.obs, rows.astype(np.float32))
        return Smoothed(average), step.with_obs(average, step.final_obs)

    def update(state: Smoothed, step: Timestep) -> tuple[Smoothed, Timestep]:
        def smoothed(obs: Array, average: Array) -> Array:
            return np.float32(weight) * obs + np.float32(1 - weight) * average

        # On the host `final_obs` has a row for each end only, and `final_rows` says which.
        of_ends = state.average if step.final_rows is None else state.average[step.final_rows]
        final = None if step.final_obs is None else smoothed(step.final_obs, of_ends)
        going_on = smoothed(step.obs, state.average)
        average = begun(going_on, step.obs, step.first.astype(np.float32))
        return Smoothed(average), step.with_obs(average, final)

    return Transform(init, reset, update)


# The laws: the same on NumPy and JAX, in and out of jit, row by row, shapes and dtypes as the spaces say, ...
report = jaxvec.testing.check_transform(smooth_observation(0.2))
print(*(law.name for law in report.laws), sep="\n")

# In a compiled rollout, beside jaxvec's own layers.
env = jaxvec.wrap(
    jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), 4),
    smooth_observation(0.2),
    jaxvec.frame_stack(2),
)
state, step = env.reset(keys_from(hash_key(0), 4))
_, after = env.step(state, np.zeros(4, int))
np.testing.assert_allclose(after.obs[:, :4], step.obs[:, 4:], rtol=1e-6)

# And under SB3's interface, over gymnasium's environments and over compiled ones.
for backend in ("dummy", "jax"):
    venv = jaxvec.make_vec_env("CartPole-v1", 4, seed=0, backend=backend)
    smooth = jaxvec.vec.VecTransform(venv, smooth_observation(0.2))
    first = smooth.reset()
    second, _, _, _ = smooth.step(np.zeros(4, int))
    assert np.abs(second - first).max() < 0.1  # a fifth of the change of CartPole's velocities
    smooth.close()
    print(f"{backend}: moved by at most {np.abs(second - first).max():.3f}")
