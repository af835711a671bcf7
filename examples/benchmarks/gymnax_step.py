"""gymnax's environments through `from_gymnax` and through gymnax's own `step`, vmapped and scanned.

    python examples/benchmarks/gymnax_step.py [--quick] [--num-envs 2048] [--num-steps 200] [--rounds 7]

Both reset rows that ended in the same step, and neither has dead code: observations, rewards and flags are
all summed into the result; jaxvec's once more with the last observations, which gymnax 0.0.9 loses. The
actions are the same, and depend on nothing. From equal states a first step must show the same on both sides.
"""

import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from shared import Effort, Measured, alone, compared, missing, turns

import jaxvec
from jaxvec.envs import from_gymnax
from jaxvec.random import hash_key, keys_from

SECTION = "gymnax"
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


def check_equal(name: str, num_envs: int = 16) -> None:
    """Asserts that one step from the same states has the same reward, flags and observations."""
    env, params = import_module("gymnax").make(name)
    batched = jaxvec.vectorize(from_gymnax(name), num_envs)
    keys = keys_from(hash_key(0), num_envs)
    state, opening = jax.jit(batched.reset)(keys)
    actions = actions_of(batched.spec.action_space, num_envs, 0)
    _, timestep = jax.jit(batched.step)(state, actions)
    step = jax.jit(jax.vmap(env.step, (0, 0, 0, None)))
    physics = jax.tree.map(jnp.asarray, _state_of(state.env, env, params))
    obs, _, reward, *flags, _ = step(keys, physics, actions, params)
    done = np.asarray(sum(flag.astype(int) for flag in flags) > 0)
    np.testing.assert_allclose(timestep.reward, reward, rtol=1e-5)
    np.testing.assert_array_equal(timestep.done, done)
    np.testing.assert_allclose(timestep.final_obs[~done], obs[~done], rtol=1e-5, atol=1e-6)
    assert opening.obs.shape == obs.shape


def _state_of(found: Any, env: Any, params: Any) -> Any:
    """Returns gymnax's own state out of the adapter's."""
    _, example = jax.eval_shape(lambda: env.reset(jax.random.key(0), params))
    if jax.tree.structure(found) == jax.tree.structure(example):
        return found
    return jax.tree.unflatten(jax.tree.structure(example), jax.tree.leaves(found))


def measure(
    effort: Effort,
    names: tuple[str, ...] = ("CartPole-v1", "Breakout-MinAtar"),
    num_envs: int = 0,
    num_steps: int = 0,
) -> Measured:
    """Compares each environment's steps."""
    warnings.simplefilter("ignore")  # deprecations in gymnax's own code
    left_out = missing(SECTION, "all of it", "gymnax")
    yield from left_out
    sizes = num_envs or effort.of(2048, 2048, 16), num_steps or effort.of(200, 100, 8)
    for name in names if not left_out else ():
        check_equal(name)
        programs = {
            "gymnax": peer_program(name, *sizes),
            "": own_program(name, *sizes, last=False),
            ", last observations read": own_program(name, *sizes, last=True),
        }
        times = turns(
            {each: partial(_waited, run, start) for each, (run, start) in programs.items()}, effort
        )
        for each in list(times)[1:]:
            pair, scale = (times[each], times["gymnax"]), (1e9 / (sizes[0] * sizes[1]), "ns")
            yield compared(SECTION, f"{name}, N={sizes[0]}{each}", "gymnax", *pair, scale)


def _waited(run: Callable[[Any], Any], start: Any) -> None:
    jax.block_until_ready(run(start))


if __name__ == "__main__":
    alone(
        SECTION,
        __doc__,
        measure,
        lambda add: (
            add("--names", nargs="+", default=("CartPole-v1", "Breakout-MinAtar")),
            add("--num-envs", type=int, default=0),
            add("--num-steps", type=int, default=0),
        ),
    )
