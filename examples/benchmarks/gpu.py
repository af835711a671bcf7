"""Compiled rollouts on one accelerator: steps per second, share of the memory's bandwidth, compile time.

    python examples/benchmarks/gpu.py [--bandwidth GB/s]

CartPole and MinAtar's Breakout with every layer on (episode statistics, running normalization of
observations and rewards, stacks of 4 frames), N from 2^10 to 2^20, each one `lax.scan` in one jit. Before
anything is timed, a rollout on the device must show what one on the CPU shows. It ends within `--seconds`
(220): sizes for which no time is left are named. On a CPU it takes the two smallest sizes.

"of bandwidth" is what a step must at least move, the carry read once and written once, by what the device's
memory could move in that time. The peaks are the vendors' figures, an assumption: `--bandwidth` sets another.
"""

import argparse
import statistics
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxvec
from jaxvec.envs import make
from jaxvec.random import hash_key

ENVIRONMENTS = {"CartPole": "CartPole-v1", "Breakout": "Breakout-MinAtar-v1"}
NUM_FRAMES = 4

# GB/s by what JAX calls the device, the longest name that fits; of the vendors' data sheets.
PEAKS = {
    "NVIDIA H200": 4800,
    "NVIDIA H100": 3350,
    "NVIDIA H100 PCIe": 2000,
    "NVIDIA A100-SXM4-80GB": 2039,
    "NVIDIA A100": 1555,
    "NVIDIA L40S": 864,
    "NVIDIA L4": 300,
    "Tesla V100": 900,
    "Tesla T4": 320,
    "TPU v4": 1228,
    "TPU v5 lite": 819,
}


class Measured(NamedTuple):
    """What one size gave."""

    env: str
    num_envs: int
    num_steps: int
    compile_seconds: float
    seconds: float  # of a vector step, median
    carry_bytes: int


def layered(env_id: str, num_envs: int) -> jaxvec.BatchedEnv:
    """Returns N environments with every layer on."""
    return jaxvec.wrap(
        jaxvec.vectorize(make(env_id), num_envs),
        jaxvec.episode_statistics(),
        jaxvec.normalize_observation(),
        jaxvec.normalize_reward(),
        jaxvec.frame_stack(NUM_FRAMES),
    )


def check(env_id: str, num_envs: int, num_steps: int) -> str:
    """Compares a rollout on the device with one on the CPU, and returns what was compared.

    Actions are drawn by keys, the same on both. Devices round differently: in the numbers of almost all rows
    that shows in the last digits, and a row in a thousand may end an episode a step apart.

    Raises:
      AssertionError: if they differ by more.
    """
    env = layered(env_id, num_envs)
    policy = jaxvec.random_policy(env)

    def run() -> Any:
        carry, (obs, _, timestep) = jaxvec.rollout(env, policy, hash_key(0), num_steps)
        moments = carry.env_state.layers[1].statistics.moments
        return obs, timestep.reward, timestep.done, moments.mean, moments.var

    found = [np.asarray(each) for each in jax.jit(run)()]
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = [np.asarray(each) for each in jax.jit(run)()]
    same = (found[2] == wanted[2]).all(axis=0)
    assert wanted[2].any(), "no episode ended: nothing was checked of resets"
    assert same.mean() >= 0.999, f"{env_id}: episodes of {(~same).sum()} rows end at other steps"
    for name, ours, theirs in zip(("obs", "reward"), found, wanted, strict=False):
        np.testing.assert_allclose(ours[:, same], theirs[:, same], 1e-3, 1e-3, err_msg=name)
    for name, ours, theirs in zip(("mean", "var"), found[3:], wanted[3:], strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-3, 1e-4, err_msg=name)
    return f"{env_id}: {num_envs} rows, {num_steps} steps, {int(wanted[2].sum())} episodes"


def measure(name: str, num_envs: int, rounds: int, steps_in_all: int) -> Measured:
    """Compiles and times rollouts of N environments, about `steps_in_all` environment steps each."""
    num_steps = max(8, min(1000, steps_in_all // num_envs))
    env = layered(ENVIRONMENTS[name], num_envs)
    policy = jaxvec.random_policy(env)

    def collect(obs: Any, action: Any, timestep: Any) -> Any:
        """Reads all that a training reads, so that nothing is dead code."""
        episode = timestep.info["episode"]
        ended = jnp.where(timestep.done, episode["r"] + episode["l"], 0).sum()
        return obs.sum() + timestep.reward.sum() + timestep.final_obs.sum() + ended

    def run(start: Any) -> Any:
        return jaxvec.rollout(env, policy, None, num_steps, start=start, collect=collect)

    start, _ = jax.jit(lambda: jaxvec.rollout(env, policy, hash_key(0), 1, collect=collect))()
    began = time.perf_counter()
    compiled = jax.jit(run, donate_argnums=0).lower(start).compile()
    compile_seconds = time.perf_counter() - began
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(start))
    carry, _ = jax.block_until_ready(compiled(start))
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        carry, _ = jax.block_until_ready(compiled(carry))
        seconds.append((time.perf_counter() - began) / num_steps)
    return Measured(name, num_envs, num_steps, compile_seconds, statistics.median(seconds), size)


def peak_of(device: Any, given: float | None) -> tuple[float | None, str]:
    """Returns the memory's bandwidth, GB/s or None, and where the figure comes from."""
    if given is not None:
        return given, "as given"
    names = [name for name in PEAKS if device.device_kind.startswith(name)]
    if not names:
        return None, f"unknown for {device.device_kind!r}: pass --bandwidth"
    name = max(names, key=len)
    return PEAKS[name], f"assumed, {name}'s data sheet"


def line(each: Measured, peak: float | None) -> str:
    """Returns a row of the table."""
    share = "      -"
    if peak is not None:
        share = f"{2 * each.carry_bytes / each.seconds / (peak * 1e9):7.1%}"
    return (
        f"{each.env:9s} {each.num_envs:8d} {each.num_steps:6d} {each.num_envs / each.seconds / 1e6:10.2f} "
        f"{each.seconds * 1e6:10.1f} {each.carry_bytes / each.num_envs:8.0f} {share} "
        f"{each.compile_seconds:8.2f}"
    )


def main() -> None:
    """Checks, measures, and prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--bandwidth", type=float, help="of the device's memory, GB/s")
    parser.add_argument("--seconds", type=float, default=220.0, help="when to start nothing more")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="to see that it works: small and short")
    options = parser.parse_args()
    began, device = time.perf_counter(), jax.devices()[0]
    on_cpu = device.platform == "cpu"
    exponents = [5] if options.tiny else [10, 12] if on_cpu else [10, 12, 14, 16, 18, 20]
    peak, source = peak_of(device, options.bandwidth)
    print(f"device     {device.device_kind} ({device.platform}), jax {jax.__version__}")
    print(f"bandwidth  {'-' if peak is None else f'{peak:.0f} GB/s'} ({source})")
    for env_id in ENVIRONMENTS.values():
        sizes = (16, 40) if options.tiny else (1024, 64)
        print(f"checked    {check(env_id, *sizes)}, {'with itself' if on_cpu else 'with the CPU'}")
    print(
        "\nenv              N  steps  M steps/s    us/step  B/row of bandw. compile s", flush=True
    )
    left, longest = [], 0.0
    for exponent in exponents:
        for name in ENVIRONMENTS:
            if time.perf_counter() - began + longest > options.seconds:
                left.append(f"{name} 2^{exponent}")
                continue
            turn = time.perf_counter()
            steps = 256 if options.tiny else 1_000_000 if on_cpu else 50_000_000
            try:
                found = measure(name, 2**exponent, options.rounds, steps)
                print(line(found, peak), flush=True)
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                print(
                    f"{name:9s} {2**exponent:8d} does not fit into the device's memory", flush=True
                )
            longest = max(longest, time.perf_counter() - turn)
    if left:
        print(f"no time was left for {', '.join(left)}; --seconds allows more")
    print(f"took {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
