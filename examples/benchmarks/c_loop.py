"""Raw CartPole rollouts on two devices of a CPU, beside a loop in C on two threads.

    python examples/benchmarks/c_loop.py [--quick] [--rounds 7]

The C program steps all rows once, then all rows again, as a learner needs them; each of its threads has half
of the rows, and neither waits for the other. jaxvec's rows lie on two host devices. Both draw a fresh state
with a hash where an episode ends, and both read every observation (for the action), reward, flag and last
observation into their result. From equal states both must first reach the same ones.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shared import Effort, LeftOut, Measured, alone, compared, turns

import jaxvec
from jaxvec.envs import begin, make
from jaxvec.random import hash_key

SECTION = "devices"
PROBE = np.asarray([0.6, -1.1, 0.9, 1.4], np.float32)

SOURCE = r"""
#include <math.h>
#include <stdint.h>

static inline float drawn(uint32_t *h) {  /* in [-0.05, 0.05) */
    *h = (*h ^ (*h >> 16)) * 0x85ebca6bu;
    *h = (*h ^ (*h >> 13)) * 0xc2b2ae35u;
    *h ^= *h >> 16;
    return (float)(*h >> 8) * (0.1f / 16777216.0f) - 0.05f;
}

double roll_out(float *rows, int32_t *lengths, const float *probe, int n, int steps, uint32_t seed) {
    double kept = 0;
    for (int t = 0; t < steps; t++) {
        float sum = 0;
        for (int i = 0; i < n; i++) {
            float *s = rows + 4 * i, x = s[0], v = s[1], a = s[2], w = s[3];
            int right = x * probe[0] + v * probe[1] + a * probe[2] + w * probe[3] > 0;
            float force = right ? 10.0f : -10.0f, sine = sinf(a), cosine = cosf(a);
            float push = (force + 0.05f * w * w * sine) / 1.1f;
            float spin = (9.8f * sine - cosine * push)
                         / (0.5f * (4.0f / 3.0f - 0.1f * cosine * cosine / 1.1f));
            float pull = push - 0.05f * spin * cosine / 1.1f;
            x += 0.02f * v, v += 0.02f * pull, a += 0.02f * w, w += 0.02f * spin;
            int fell = x < -2.4f || x > 2.4f || a < -0.20943951f || a > 0.20943951f;
            int late = !fell && ++lengths[i] >= 500;
            sum += right + 1.0f + fell + late + (x + v + a + w);
            if (fell || late) {
                uint32_t h = seed + 2654435761u * (uint32_t)i + 40503u * (uint32_t)t;
                x = drawn(&h), v = drawn(&h), a = drawn(&h), w = drawn(&h);
                lengths[i] = 0;
            }
            s[0] = x, s[1] = v, s[2] = a, s[3] = w;
        }
        kept += sum;
    }
    return kept;
}
"""


class CLoop:
    """The compiled C program, on a number of threads."""

    def __init__(self, compiler: str, folder: str, threads: int) -> None:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(SOURCE)
        command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
        subprocess.run(command, check=True)
        self._function = ctypes.CDLL(str(library)).roll_out
        self._function.restype = ctypes.c_double
        self._threads, self._pool = threads, ThreadPoolExecutor(threads)

    def run(self, rows: Any, lengths: Any, num_steps: int) -> float:
        """Steps the rows, in place; returns the sum of all that was read."""
        share = len(rows) // self._threads

        def one(index: int) -> float:
            own = slice(index * share, (index + 1) * share)
            pointers = [
                each.ctypes.data_as(ctypes.c_void_p) for each in (rows[own], lengths[own], PROBE)
            ]
            return float(self._function(*pointers, share, num_steps, ctypes.c_uint32(index)))

        return sum(self._pool.map(one, range(self._threads)))


def program(num_envs: int, num_steps: int, devices: int) -> tuple[Any, Any]:
    """Returns jaxvec's rollout over so many devices, compiled when it is called, and its start."""
    env = jaxvec.vectorize(make("CartPole-v1"), num_envs)
    env = jaxvec.shard(env, jaxvec.device_mesh(devices))

    def policy(key: Any, obs: Any) -> Any:
        return (obs @ PROBE > 0).astype(jnp.int32)

    def collect(obs: Any, action: Any, timestep: Any) -> Any:
        rows = action + timestep.reward + timestep.terminated + timestep.truncated
        rows = rows + timestep.final_obs.sum(-1)
        return rows.reshape(devices, -1).sum(1)  # a sum for each device: they need not talk

    def run(start: Any) -> Any:
        carry, kept = jaxvec.rollout(env, policy, None, num_steps, start=start, collect=collect)
        return carry.obs, kept.sum()

    return jax.jit(run), jax.jit(partial(begin, env, policy))(hash_key(0))


def check_equal(loop: CLoop, devices: int, num_envs: int = 64) -> None:
    """Asserts that both reach the same states, up to the first ends."""
    run, start = program(num_envs, 6, devices)
    rows, lengths = np.array(start.obs), np.zeros(num_envs, np.int32)
    obs, kept = run(start)
    own = loop.run(rows, lengths, 6)
    np.testing.assert_allclose(obs, rows, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(kept, own, rtol=1e-4)


def measure(effort: Effort) -> Measured:
    """Compares at several N."""
    compiler, devices = shutil.which("cc"), 2
    if compiler is None or (os.cpu_count() or 1) < devices:
        what = "two devices against two threads in C"
        yield LeftOut(SECTION, what, "it needs a C compiler (cc) and two cores")
        return
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", devices)
    with tempfile.TemporaryDirectory() as folder:
        loop = CLoop(compiler, folder, devices)
        check_equal(loop, devices)
        for n in effort.of((2048, 16384), (2048, 16384), (128,)):
            steps = effort.of(1000, 400_000 // n, 8)
            run, start = program(n, steps, devices)
            rows, lengths = np.array(start.obs), np.zeros(n, np.int32)
            calls = {
                "jaxvec": lambda run=run, start=start: jax.block_until_ready(run(start)),
                "C": partial(loop.run, rows, lengths, steps),
            }
            times = turns(calls, effort)
            pair, scale = (times["jaxvec"], times["C"]), (1e9 / (n * steps), "ns")
            yield compared(SECTION, f"raw, 2 devices, N={n}", "C, 2 threads", *pair, scale, 1.0)


if __name__ == "__main__":
    alone(SECTION, __doc__, measure)
