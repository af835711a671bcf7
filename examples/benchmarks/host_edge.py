"""What does a step of compiled CartPoles cost a Python loop? JaxVecEnv beside its rivals, all in one run.

    python examples/benchmarks/host_edge.py [--num-envs 16 64 256 1024 4096] [--rounds 9] [--cpu-time]

    by hand    one jitted function with the three layers written out flat, its state in two arrays and what
               is shown in one: the least that a compiled step with NumPy at both ends can cost
    JaxVecEnv  bare; with VecMonitor, VecNormalize and VecFrameStack(4), which run in the same call; and with
               the last two of them, once as it is and once compiled with no infos at all
    EnvPool    bare, C++ with the better of one and two threads (where `envpool` is installed)
    SB3        DummyVecEnv, bare, gymnasium's environments (where stable-baselines3 is installed)

They take turns in short bursts. A figure is microseconds a step, the median over the turns, with the least in
brackets: other programs on the machine hardly touch that. Every array is read on the host; with "infos read"
so are the terminal observation and the episode of every row that ended.

XLA spreads even a step of 16 environments over its threads, and hands it to one in the first place. Two
settings of the whole program keep it in few of them; try what they do on your machine:

    NPROC=1                             one thread for XLA's arithmetic
    JAX_CPU_ENABLE_ASYNC_DISPATCH=0     a step runs in the thread that calls it

On a machine that does other work too, `NPROC=1` with `--cpu-time` gives figures that can be repeated: the
processor's time of this process in place of the clock's.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np

from jaxvec import vectorize
from jaxvec.envs import make
from jaxvec.random import hash_key, keys_from
from jaxvec.vec import JaxVecEnv, VecFrameStack, VecMonitor, VecNormalize
from jaxvec.vec._fused import RunInfos
from jaxvec.vec._program import Program

FRAMES = 4
WIDTH = 4 * FRAMES

Step = Callable[[Any], Any]


class ByHand:
    """CartPole with monitor, normalization and frame stack as one function, for this one task.

    Its state is `[N, 28]` (physics 4, stack 16, steps, return, length, discounted return, padding) and the
    moments as one vector: plain float32, where jaxvec keeps low words.
    """

    def __init__(self, num_envs: int) -> None:
        keys = keys_from(hash_key(0), num_envs)
        draw = jax.vmap(lambda key: jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05))

        def fresh(clock: Any) -> Any:
            return draw(jax.vmap(jax.random.fold_in, (0, None))(keys, clock))

        def learn(moments: Any, batch: Any) -> Any:
            mean, var, count = moments
            delta = batch.mean(0) - mean
            total = count + num_envs
            var = (
                var * count + batch.var(0) * num_envs + delta**2 * count * num_envs / total
            ) / total
            return mean + delta * num_envs / total, var, total

        def physics(s: Any, action: Any) -> Any:
            x, x_dot, theta, theta_dot = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
            force = jnp.where(action == 1, 10.0, -10.0)
            sine, cosine = jnp.sin(theta), jnp.cos(theta)
            temp = (force + 0.05 * theta_dot**2 * sine) / 1.1
            theta_acc = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
            x_acc = temp - 0.05 * theta_acc * cosine / 1.1
            x, x_dot = x + 0.02 * x_dot, x_dot + 0.02 * x_acc
            theta, theta_dot = theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc
            return jnp.stack([x, x_dot, theta, theta_dot], -1)

        def step(rows: Any, shared: Any, action: Any) -> Any:
            s, stack = rows[:, :4], rows[:, 4:20]
            steps, returns, discounted = rows[:, 20], rows[:, 21], rows[:, 22]
            obs_moments = shared[:4], shared[4:8], shared[8]
            moved, steps, returns = physics(s, action), steps + 1, returns + 1
            terminated = (abs(moved[:, 0]) > 2.4) | (abs(moved[:, 2]) > 12 * 2 * np.pi / 360)
            truncated = (steps >= 500) & ~terminated
            done = terminated | truncated
            clock = shared[12] + 1
            obs = jnp.where(done[:, None], fresh(clock.astype(jnp.uint32)), moved)
            mean, var, count = learn(obs_moments, obs)
            scale = 1 / jnp.sqrt(var + 1e-8)

            def normal(values: Any) -> Any:
                return jnp.clip((values - mean) * scale, -10, 10)

            discounted = discounted * 0.99 + 1.0
            ret_moments = learn((shared[9], shared[10], shared[11]), discounted)
            reward = jnp.clip(jnp.ones(num_envs) / jnp.sqrt(ret_moments[1] + 1e-8), -10, 10)
            final = jnp.concatenate([stack[:, 4:], normal(moved)], -1)
            past = jnp.where(done[:, None], 0, stack[:, 4:])
            stack = jnp.concatenate([past, normal(obs)], -1)
            running = jnp.where(done, 0, jnp.stack([steps, returns, discounted])).T
            shared = jnp.concatenate([mean, var, jnp.stack([count, *ret_moments, clock])])
            flags = done.astype(jnp.uint32) | truncated.astype(jnp.uint32) << 8
            words = jax.lax.bitcast_convert_type(flags, jnp.float32)
            shown = jnp.concatenate([stack.reshape(-1), reward, words])
            return (
                jnp.concatenate([obs, stack, running], -1),
                shared,
                shown,
                (final, jnp.stack([returns, steps], -1)),
            )

        self._num_envs = num_envs
        self._step = jax.jit(step, donate_argnums=(0, 1))
        first = jnp.zeros((num_envs, 23)).at[:, :4].set(fresh(jnp.uint32(0)))
        self._rows = first.at[:, 16:20].set(first[:, :4])
        self._shared = jnp.zeros(13).at[4:8].set(1).at[10].set(1).at[jnp.array([8, 11])].set(1e-4)

    def step(self, actions: Any) -> Any:
        """Returns observations, rewards, dones, and what was shown of ended rows, on the device."""
        self._rows, self._shared, shown, few = self._step(
            self._rows, self._shared, actions.astype(np.int32)
        )
        shown, size = np.array(shown), self._num_envs
        obs = shown[: WIDTH * size].reshape(size, WIDTH)
        flags = shown[(WIDTH + 1) * size :].view(np.uint32)
        return obs, shown[WIDTH * size : (WIDTH + 1) * size], (flags & 1).astype(bool), few


class WithoutInfos(JaxVecEnv):
    """Shows neither last observations nor infos: the compiled step has no such results."""

    class _Program(Program):
        def _shown(self, timestep: Any, levels: Any, stepped: bool) -> Any:
            shown = super()._shown(timestep, levels, stepped)
            return shown._replace(final_obs=[], info={}, reset_info={})

    def _program_of(self, transforms: Any, reads: Any) -> Program:
        if transforms not in self._programs:
            self._programs[transforms] = self._Program(
                self._env, transforms, reads, (), None, self._placement
            )
        return self._programs[transforms]


def layered(venv: Any) -> Any:
    """Puts the layers around a VecEnv, without a monitor."""
    return VecFrameStack(VecNormalize(venv), FRAMES)


def steppers(num_envs: int) -> dict[str, Step]:
    """Returns a step function for each contestant, environments reset."""
    batched = vectorize(make("CartPole-v1"), num_envs)
    venvs = {
        "JaxVecEnv": JaxVecEnv(batched),
        "JaxVecEnv, 3 layers": layered(VecMonitor(JaxVecEnv(batched))),
        "JaxVecEnv, 2 layers": layered(JaxVecEnv(batched)),
        "JaxVecEnv, 2 layers, no infos": layered(WithoutInfos(batched)),
    }
    for venv in venvs.values():
        venv.reset()
    found: dict[str, Step] = {"by hand, 3 layers": _hand(num_envs)}
    found |= {name: venv.step for name, venv in venvs.items()}
    for name in ("JaxVecEnv, 3 layers", "JaxVecEnv"):
        found[f"{name}, infos read"] = _reading(venvs[name].step)
    if find_spec("envpool"):
        for threads in (1, 2):
            found[f"EnvPool, {threads} threads"] = _envpool(num_envs, threads)
    if find_spec("stable_baselines3"):
        sb3: Any = import_module("stable_baselines3.common.vec_env")
        dummy = sb3.DummyVecEnv([lambda: gym.make("CartPole-v1")] * num_envs)
        dummy.reset()
        found["SB3 DummyVecEnv"] = dummy.step
    return found


def _hand(num_envs: int) -> Step:
    return ByHand(num_envs).step


def _envpool(num_envs: int, threads: int) -> Step:
    pool: Any = import_module("envpool").make_gymnasium(
        "CartPole-v1", num_envs=num_envs, num_threads=threads
    )
    pool.reset()
    step: Step = pool.step
    return step


def _reading(step: Step) -> Step:
    def read(actions: Any) -> Any:
        obs, rewards, dones, infos = step(actions)
        for row in np.flatnonzero(dones).tolist():
            _ = infos[row]["terminal_observation"], infos[row].get("episode")
        return obs, rewards, dones, infos

    return read


def burst(step: Step, actions: Any, clock: Callable[[], float]) -> float:
    """Returns seconds a step."""
    began = clock()
    for each in actions:
        step(each)
    return (clock() - began) / len(actions)


def compare(
    num_envs: int, rounds: int, seconds: float, clock: Callable[[], float]
) -> dict[str, tuple[float, float]]:
    """Lets all take turns.

    Args:
      num_envs: N.
      rounds: how many turns.
      seconds: of one burst, about.
      clock: returns seconds.

    Returns:
      For each contestant the median and the least time of a step, microseconds.
    """
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 2, (2000, num_envs))
    found = steppers(num_envs)
    counts = {}
    for name, step in found.items():
        burst(step, actions[:8], clock)  # compiles
        count = seconds / max(burst(step, actions[:8], clock), 1e-6)
        counts[name] = int(np.clip(count, 3, len(actions)))
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds):
        for name, step in found.items():
            times[name].append(1e6 * burst(step, actions[: counts[name]], clock))
    return {name: (statistics.median(each), min(each)) for name, each in times.items()}


def lazy_and_eager(num_envs: int) -> tuple[float, float]:
    """Returns what making the infos of a step takes, microseconds: when nobody reads, and N dicts at once."""
    venv = JaxVecEnv(vectorize(make("CartPole-v1"), num_envs))
    venv.reset()
    venv.step_async(np.zeros(num_envs, int))
    assert venv._pending is not None
    results, times = venv._pending[1], []
    for make_infos in (lambda: RunInfos(results), lambda: list(RunInfos(results))):
        laps = []
        for _ in range(25):
            began = time.perf_counter()
            make_infos()
            laps.append(1e6 * (time.perf_counter() - began))
        times.append(statistics.median(laps))
    return times[0], times[1]


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--num-envs", type=int, nargs="+", default=[16, 64, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="short bursts")
    parser.add_argument(
        "--cpu-time", action="store_true", help="the processor's time, not the clock's"
    )
    options = parser.parse_args()
    clock = time.process_time if options.cpu_time else time.perf_counter
    for num_envs in options.num_envs:
        found = compare(num_envs, options.rounds, 0.03 if options.quick else 0.15, clock)
        print(f"\nN = {num_envs}: microseconds a step, median (least)")
        for name, (median, least) in found.items():
            print(f"  {name:34} {median:9.1f} ({least:9.1f})")
        lazy, eager = lazy_and_eager(num_envs)
        print(f"  infos nobody reads: {lazy:.1f}; built at once: {eager:.0f}")
        own, bare = found["JaxVecEnv, 3 layers"], found["JaxVecEnv, 2 layers, no infos"]
        hand = found["by hand, 3 layers"]
        print(f"  3 layers / by hand        {own[0] / hand[0]:5.2f} ({own[1] / hand[1]:5.2f})")
        two = found["JaxVecEnv, 2 layers"]
        print(f"  with infos / without      {two[0] / bare[0]:5.2f} ({two[1] / bare[1]:5.2f})")
        pools = [each for name, each in found.items() if name.startswith("EnvPool")]
        if pools:
            pool = [min(times) for times in zip(*pools, strict=True)]
            print(f"  EnvPool bare / 3 layers   {pool[0] / own[0]:5.2f} ({pool[1] / own[1]:5.2f})")


if __name__ == "__main__":
    main()
