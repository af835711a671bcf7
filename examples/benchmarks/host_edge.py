"""What does a step of compiled CartPoles cost a Python loop? JaxVecEnv beside its rivals, all in one run.

    python examples/benchmarks/host_edge.py [--quick] [--num-envs 16 64 256 1024] [--cpu-time]

    by hand    one jitted function with the three layers written out flat, its state in two arrays and what
               is shown in one: the least that a compiled step with NumPy at both ends can cost
    JaxVecEnv  bare; with VecMonitor, VecNormalize and VecFrameStack(4), which run in the same call; and with
               the last two of them, once as it is and once compiled with no infos at all
    EnvPool    bare, C++ with the better of one and two threads (where `envpool` is installed)
    SB3        DummyVecEnv, bare, gymnasium's environments (where stable-baselines3 is installed)

They take turns in short bursts; every array is read on the host. First the layers must show what the
hand-written ones show from the same states, and each bare step what gymnasium's environment does.

XLA spreads even a step of 16 environments over its threads, and hands it to one in the first place. Two
settings of the whole program keep it in few of them; try what they do on your machine:

    NPROC=1                             one thread for XLA's arithmetic
    JAX_CPU_ENABLE_ASYNC_DISPATCH=0     a step runs in the thread that calls it

On a machine that does other work too, `NPROC=1` with `--cpu-time` gives figures that can be repeated: the
processor's time of this process in place of the clock's.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from shared import TIME, Effort, Measured, alone, check_cart_poles, compared, missing, turns

from jaxvec import vectorize
from jaxvec.envs import make
from jaxvec.random import hash_key, keys_from
from jaxvec.vec import JaxVecEnv, VecFrameStack, VecMonitor, VecNormalize
from jaxvec.vec._fused import RunInfos
from jaxvec.vec._program import Program

SECTION = "edge"
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

    def start_from(self, physics: Any, moments: Any, stack: Any) -> None:
        """Begins with these states, and with observations that were learnt from already."""
        self._rows = self._rows.at[:, :4].set(physics).at[:, 4:20].set(stack)
        learnt = jnp.concatenate([moments.mean, moments.var, jnp.array([moments.count])])
        self._shared = self._shared.at[:9].set(learnt)

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


class Contestants:
    """The step function of each, with environments that were reset, and the first observations."""

    def __init__(self, num_envs: int, absent: set[str]) -> None:
        batched = vectorize(make("CartPole-v1"), num_envs)
        venvs: dict[str, Any] = {
            "JaxVecEnv": JaxVecEnv(batched),
            "3 layers": layered(VecMonitor(JaxVecEnv(batched))),
            "2 layers": layered(JaxVecEnv(batched)),
            "2 layers, no infos": layered(WithoutInfos(batched)),
        }
        if "stable_baselines3" not in absent:
            sb3: Any = import_module("stable_baselines3.common.vec_env")
            venvs["SB3 DummyVecEnv"] = sb3.DummyVecEnv([lambda: gym.make("CartPole-v1")] * num_envs)
        self.first = {name: venv.reset() for name, venv in venvs.items()}
        self.steps: dict[str, Step] = {name: venv.step for name, venv in venvs.items()}
        self.steps["by hand"] = ByHand(num_envs).step
        for threads in (1, 2) if "envpool" not in absent else ():
            name, make_pool = f"EnvPool, {threads} threads", import_module("envpool").make_gymnasium
            pool: Any = make_pool("CartPole-v1", num_envs=num_envs, num_threads=threads)
            self.first[name], self.steps[name] = pool.reset()[0], partial(_five_to_four, pool.step)


def _five_to_four(step: Step, actions: Any) -> Any:
    obs, reward, terminated, truncated, info = step(actions)
    return obs, reward, terminated | truncated, info


def check_equal(absent: set[str], num_envs: int = 16) -> None:
    """Asserts that layers show what the hand-written ones do, and that all step the same CartPoles."""
    found = Contestants(num_envs, absent)
    rng = np.random.default_rng(0)
    for name in found.first:
        if "layers" in name:
            continue
        obs = np.array(found.first[name])
        for _ in range(12):
            actions = rng.integers(0, 2, num_envs)
            new, _, done, _ = found.steps[name](actions)
            check_cart_poles(obs, actions, new, done)
            obs = np.array(new)
            if done.any():  # EnvPool's rows are reset in the next step
                break
    hand = ByHand(num_envs)
    venv = layered(VecMonitor(JaxVecEnv(vectorize(make("CartPole-v1"), num_envs))))
    start = venv.reset()
    hand.start_from(venv.unnormalize_obs(start[:, -4:]), venv.obs_rms, start)
    for _ in range(7):  # no episode ends within them
        actions = rng.integers(0, 2, num_envs)
        (obs, reward, done, _), by_hand = venv.step(actions), hand.step(actions)
        np.testing.assert_allclose(obs, by_hand[0], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(reward, by_hand[1], rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(done, by_hand[2])


def lazy_and_eager(num_envs: int, rounds: int) -> tuple[list[float], list[float]]:
    """Returns the seconds that making the infos of a step takes: when nobody reads, and N dicts at once."""
    venv = JaxVecEnv(vectorize(make("CartPole-v1"), num_envs))
    venv.reset()
    venv.step_async(np.zeros(num_envs, int))
    assert venv._pending is not None
    results = venv._pending[1]
    calls = {"lazy": lambda: RunInfos(results), "eager": lambda: list(RunInfos(results))}
    times = turns(calls, Effort("", rounds, 0.005))
    return times["lazy"], times["eager"]


def measure(effort: Effort, num_envs: tuple[int, ...] = (), cpu_time: bool = False) -> Measured:
    """Compares steps at several N."""
    left_out = [
        *missing(SECTION, "EnvPool's bare step", "envpool"),
        *missing(SECTION, "SB3's DummyVecEnv", "stable_baselines3"),
    ]
    yield from left_out
    absent = {each.why.split()[0] for each in left_out}
    check_equal(absent)
    clock = time.process_time if cpu_time else time.perf_counter
    rng = np.random.default_rng(0)
    scale = 1e6, "us"
    for n in num_envs or effort.of((16, 64, 256, 1024, 4096), (16, 64, 256, 1024, 4096), (16,)):
        found = Contestants(n, absent)
        calls = {}
        for name, step in found.steps.items():
            actions = itertools.cycle(rng.integers(0, 2, (500, n)))
            calls[name] = partial(_stepped, step, actions)
        times = turns(calls, effort, clock)
        ours = times["3 layers"]
        pair, target = (ours, times["by hand"]), 1.2 if n == 16 else None
        yield compared(SECTION, f"3 layers, N={n}", "by hand", *pair, scale, target, kind=TIME)
        pools = [name for name in times if name.startswith("EnvPool")]
        if pools:
            pool = min(pools, key=lambda name: statistics.median(times[name]))
            target = {64: 1, 16: 1, 256: 4, 1024: 1}.get(n)
            pair = ours, times[pool]
            yield compared(SECTION, f"3 layers, N={n}", f"{pool}, bare", *pair, scale, target)
        if "SB3 DummyVecEnv" in times:
            pair = times["JaxVecEnv"], times["SB3 DummyVecEnv"]
            yield compared(SECTION, f"bare, N={n}", "SB3 DummyVecEnv", *pair, scale)
        if n == 4096 or effort.name == "tiny":
            lazy, eager = lazy_and_eager(n, effort.rounds)
            note = f"infos nobody reads {1e6 * statistics.median(lazy):.1f} us, "
            note += f"built at once {1e6 * statistics.median(eager):.0f} us"
            pair = times["2 layers"], times["2 layers, no infos"]
            what = f"2 layers, infos nobody reads, N={n}"
            yield compared(SECTION, what, "no infos", *pair, scale, 1.05, kind=TIME, note=note)


def _stepped(step: Step, actions: Any) -> None:
    step(next(actions))


if __name__ == "__main__":
    alone(
        SECTION,
        __doc__,
        measure,
        lambda add: (
            add("--num-envs", type=int, nargs="+", default=()),
            add("--cpu-time", action="store_true", help="the processor's time, not the clock's"),
        ),
    )
