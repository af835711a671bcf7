"""Many steps on the device in float32, against float64: does what is summed stay right?

    python -m tests.soak [--steps 1e8] [--seed 0]

First one row takes all steps in one episode that never ends. Then 256 rows take as many together, in
episodes of about a thousand steps, under episode statistics and both normalizations. The numbers are drawn
on the host, in chunks, so that NumPy can add up the same ones in float64. Errors are printed and held to
`BOUNDS`.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxvec import chain, episode_statistics, normalize_observation, normalize_reward
from jaxvec.core._transform import Timestep, Transform, VecSpec

ROWS, CHUNK = 256, 2**20  # CHUNK: row-steps at once
CENTERS, SPREADS = np.array([3.0, 1000.0]), np.array([2.0, 1.0])
GAMMA, PRIOR = 0.99, 1e-4
BOUNDS = {
    "one return": 1e-6,  # relative
    "one length": 0,
    "returns": 1e-6,  # the largest, relative, where more than 1
    "lengths": 0,
    "steps": 0,
    "count": 1e-7,  # relative
    "mean": 1e-6,  # of the standard deviation
    "variance": 1e-5,  # relative
    "reward variance": 1e-5,  # relative
}
"""What the errors may be."""


def spec(num_rows: int) -> VecSpec:
    """Returns what the layers must know."""
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    return VecSpec(num_rows, box, spaces.Discrete(2), backend="jax")


@partial(jax.jit, static_argnums=0)
def scanned(layer: Transform, state: Any, obs: Any, reward: Any, done: Any) -> Any:
    """Takes T steps of N rows; returns the state, and return and length of each episode, `[T, N]`."""

    def step(state: Any, step: Any) -> Any:
        obs, reward, done = step
        no = jnp.zeros_like(done)
        timestep = Timestep(obs, reward, done, no, ~no, done, obs)
        state, out = layer.update(state, timestep)
        return state, (out.info["episode"]["r"], out.info["episode"]["l"])

    return jax.lax.scan(step, state, (obs, reward, done))


def one_row(steps: int, seed: int) -> dict[str, float]:
    """Lets one row take all steps in one episode; returns the errors."""
    rng, layer = np.random.default_rng(seed), episode_statistics()
    state, total, taken = layer.init(spec(1), None), 0.0, 0
    while taken < steps:
        count = min(CHUNK, steps - taken)
        reward = (0.1 + 0.01 * rng.standard_normal((count, 1))).astype(np.float32)
        obs, done = np.zeros((count, 1, 2), np.float32), np.zeros((count, 1), bool)
        state, (returns, lengths) = scanned(layer, state, obs, reward, done)
        total, taken = total + float(reward.sum(dtype=np.float64)), taken + count
    error = abs(float(returns[-1, 0]) - total) / total
    return {"one return": error, "one length": float(abs(int(lengths[-1, 0]) - steps))}


class Reference:
    """The same sums in float64."""

    def __init__(self) -> None:
        self.count, self.steps = PRIOR, 0
        self.shifted, self.squares = -CENTERS * PRIOR, (1 + CENTERS**2) * PRIOR  # about the centers
        self.returns, self.lengths = np.zeros(ROWS), np.zeros(ROWS, int)
        self.discounted, self.of_discounted = np.zeros(ROWS), np.array([0.0, PRIOR])

    def take(self, obs: Any, reward: Any, done: Any) -> Iterator[tuple[Any, Any]]:
        """Takes T steps; yields the returns and lengths of each."""
        about = obs.astype(np.float64) - CENTERS
        self.shifted = self.shifted + about.sum((0, 1))
        self.squares = self.squares + (about**2).sum((0, 1))
        self.count, self.steps = self.count + reward.size, self.steps + reward.size
        for now, ends in zip(reward.astype(np.float64), done, strict=True):
            self.returns, self.lengths = self.returns + now, self.lengths + 1
            self.discounted = self.discounted * GAMMA + now
            sums = self.discounted.sum(), (self.discounted**2).sum()
            self.of_discounted = self.of_discounted + np.array(sums)
            yield self.returns, self.lengths
            keep = ~ends
            self.returns, self.lengths = self.returns * keep, self.lengths * keep
            self.discounted = self.discounted * keep

    def moments(self) -> tuple[Any, Any, float]:
        """Returns mean and variance of the observations, and the variance of the discounted returns."""
        shift = self.shifted / self.count
        total, squares = self.of_discounted
        variance = squares / self.count - (total / self.count) ** 2
        return CENTERS + shift, self.squares / self.count - shift**2, float(variance)


def many_rows(steps: int, seed: int) -> dict[str, float]:
    """Lets many rows take the steps together, in episodes; returns the errors."""
    rng, reference = np.random.default_rng(seed), Reference()
    layer = chain(
        episode_statistics(totals=True), normalize_observation(), normalize_reward(gamma=GAMMA)
    )
    state, num_steps = layer.init(spec(ROWS), None), CHUNK // ROWS
    worst = {"returns": 0.0, "lengths": 0.0}
    for _ in range(max(1, steps // CHUNK)):
        obs = rng.standard_normal((num_steps, ROWS, 2)) * SPREADS + CENTERS
        obs = obs.astype(np.float32)
        reward = (0.1 + rng.standard_normal((num_steps, ROWS))).astype(np.float32)
        done = rng.random((num_steps, ROWS)) < 1e-3
        state, shown = scanned(layer, state, obs, reward, done)
        returns, lengths = map(np.asarray, shown)
        for at, (exact, length) in enumerate(reference.take(obs, reward, done)):
            error = np.abs(returns[at] - exact) / np.maximum(1, np.abs(exact))
            worst["returns"] = max(worst["returns"], float(error.max()))
            worst["lengths"] = max(worst["lengths"], float(np.abs(lengths[at] - length).max()))
    episode, observation, rewards = state
    mean, variance, reward_variance = reference.moments()
    moments, of_returns = observation.statistics.moments, rewards.statistics.moments
    found = [_exact(moments, name) for name in ("mean", "var", "count")]
    return worst | {
        "steps": abs(int(np.asarray(episode.steps, np.int64).sum()) - reference.steps),
        "count": abs(float(found[2]) - reference.count) / reference.count,
        "mean": float((np.abs(found[0] - mean) / np.sqrt(variance)).max()),
        "variance": float((np.abs(found[1] - variance) / variance).max()),
        "reward variance": abs(float(_exact(of_returns, "var")) - reward_variance)
        / reward_variance,
    }


def _exact(moments: Any, name: str) -> Any:
    """Returns a number with its low word, float64."""
    high, low = (np.asarray(getattr(moments, each), np.float64) for each in (name, f"{name}_low"))
    return high + low


def main() -> None:
    """Runs, and prints the errors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=float, default=1e8)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = int(options.steps)
    errors = one_row(steps, options.seed) | many_rows(steps, options.seed)
    for name, error in errors.items():
        print(f"{name:16s} error {error:.3g}, may be {BOUNDS[name]:.3g}")
    assert all(error <= BOUNDS[name] for name, error in errors.items())


if __name__ == "__main__":
    main()
