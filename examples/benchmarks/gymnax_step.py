"""gymnax's environments through `from_gymnax` and through gymnax's own `step`, vmapped and scanned.

    python examples/benchmarks/gymnax_step.py [--num-envs 2048] [--num-steps 200] [--rounds 7]

Both reset rows that ended in the same step, and neither has dead code: observations, rewards and flags are
all summed into the result; jaxvec's once more with the last observations, which gymnax 0.0.9 loses. The
actions are the same, and depend on nothing. The programs take turns; a ratio is the median over neighbours
in time, by the clock and by this process's processors, whose time other programs on the machine touch less.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp

import jaxvec
from jaxvec.envs import from_gymnax
from jaxvec.random import hash_key, keys_from

Program = tuple[Callable[[Any], Any], Any]


def actions_of(space: Any, num_envs: int, step: Any) -> Any:
    """Returns actions that differ by row and step: `[N]`."""
    return ((7 * jnp.arange(num_envs) + 3 * step) % space.n).astype(jnp.int32)


def peer_program(name: str, num_envs: int, num_steps: int) -> Program:
    """Returns gymnax's own scan, and what it starts from."""
    env, params = import_module("gymnax").make(name)
    space = env.action_space(params)

    def body(carry: Any, index: Any) -> Any:
        key, state = carry
        key, step_key = jax.random.split(key)
        obs, state, reward, *flags, _ = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(step_key, num_envs), state, actions_of(space, num_envs, index), params
        )
        return (key, state), obs.sum() + reward.sum() + sum(flag.sum() for flag in flags)

    def run(start: Any) -> Any:
        return jax.lax.scan(body, start, jnp.arange(num_steps))[1].sum()

    key = jax.random.key(0)
    _, state = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), params)
    return jax.jit(run), (key, state)


def own_program(name: str, num_envs: int, num_steps: int, last: bool) -> Program:
    """Returns jaxvec's scan, and what it starts from; `last` sums the last observations too."""
    env = from_gymnax(name)
    batched = jaxvec.vectorize(env, num_envs)

    def body(state: Any, index: Any) -> Any:
        state, timestep = batched.step(state, actions_of(env.action_space, num_envs, index))
        kept = timestep.obs.sum() + timestep.reward.sum()
        kept += timestep.terminated.sum() + timestep.truncated.sum()
        return state, kept + (timestep.final_obs.sum() if last else 0)

    def run(start: Any) -> Any:
        return jax.lax.scan(body, start, jnp.arange(num_steps))[1].sum()

    state, _ = jax.jit(batched.reset)(keys_from(hash_key(0), num_envs))
    return jax.jit(run), state


def main() -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--names", nargs="+", default=["CartPole-v1", "Breakout-MinAtar"])
    parser.add_argument("--num-envs", type=int, default=2048)
    parser.add_argument("--num-steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # deprecations in gymnax's own code
    sizes = options.num_envs, options.num_steps
    clocks = time.perf_counter, time.process_time
    for name in options.names:
        programs = {
            "gymnax": peer_program(name, *sizes),
            "jaxvec": own_program(name, *sizes, last=False),
            "jaxvec, last observations read": own_program(name, *sizes, last=True),
        }
        times: dict[Any, list[float]] = {(each, clock): [] for each in programs for clock in clocks}
        for lap in range(options.rounds + 1):
            for each, (run, start) in programs.items():
                began = [clock() for clock in clocks]
                jax.block_until_ready(run(start))
                for clock, before in zip(clocks, began, strict=True):
                    if lap:  # the first compiles
                        times[each, clock].append(clock() - before)
        print(f"{name}, N={sizes[0]}, T={sizes[1]}, median of {options.rounds} interleaved runs")
        for each in programs:
            shown = []
            for clock in clocks:
                pairs = zip(times["gymnax", clock], times[each, clock], strict=True)
                shown.append(statistics.median(peer / own for peer, own in pairs))
            rate = sizes[0] * sizes[1] / statistics.median(times[each, clocks[0]]) / 1e6
            print(
                f"  {each:30} {rate:8.2f} M steps/s   gymnax / this: {shown[0]:5.2f}x by the clock, "
                f"{shown[1]:5.2f}x by the processors"
            )


if __name__ == "__main__":
    main()
