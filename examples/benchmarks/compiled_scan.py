"""Compiled CartPole rollouts with every layer on: jaxvec, gymnax with purejaxrl-style wrappers, by hand.

    python examples/benchmarks/compiled_scan.py [--quick] [--num-envs 2048 16384] [--rounds 7]

Three programs do the same job, each one `lax.scan` in one jit: N CartPole environments, episode
statistics, running normalization of observations and rewards, and (jaxvec and the hand-written one)
stacks of 4 frames; the peer stacks nothing. They start from the same states and must first show the same
numbers, the hand-written one through resets too. Then their runs take turns. The raw environments of jaxvec
and gymnax do, too.

Nothing is dead code: the policy is the sign of a fixed dot product with every value it is shown, and
rewards, flags, final observations and episode columns are all reduced into the result.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from shared import Effort, Measured, alone, compared, missing, turns

import jaxvec
from jaxvec.envs import begin, make
from jaxvec.envs.classic import _math
from jaxvec.random import hash_key

SECTION = "scan"
NUM_FRAMES = 4
PROBE = jnp.asarray([0.6, -1.1, 0.9, 1.4, -0.3, 0.2, -0.8, 0.5] * 2, jnp.float32)

Act = Callable[[Any], Any]
Program = Callable[[Any], Any]
"""From where a rollout starts to its last observations and the sum of all that it collected."""


def act(obs: Any) -> Any:
    """The policy: reads every value of an observation."""
    return (obs @ PROBE[: obs.shape[-1]] > 0).astype(jnp.int32)


def act_on_newest(obs: Any) -> Any:
    """A policy that does the same whether frames are stacked or not."""
    return (obs[:, -4:] @ PROBE[:4] > 0).astype(jnp.int32)


def environments(num_envs: int, *, layers: bool = True, **options: Any) -> jaxvec.BatchedEnv:
    """Returns jaxvec's environments, with all layers or bare."""
    env = jaxvec.vectorize(make("CartPole-v1"), num_envs, **options)
    if not layers:
        return env
    return jaxvec.wrap(
        env,
        jaxvec.episode_statistics(),
        jaxvec.normalize_observation(),
        jaxvec.normalize_reward(),
        jaxvec.frame_stack(NUM_FRAMES),
    )


def jaxvec_program(env: jaxvec.BatchedEnv, num_steps: int, act: Act = act) -> tuple[Program, Any]:
    """Returns jaxvec's rollout, and what it starts from."""

    def collect(obs: Any, action: Any, timestep: Any) -> Any:
        rows = action + timestep.reward + timestep.truncated + timestep.terminated
        if "episode" in timestep.info:
            episode = timestep.info["episode"]
            rows = rows + jnp.where(timestep.done, episode["r"] + episode["l"], 0)
        return rows.sum() + timestep.final_obs.sum()

    def policy(key: Any, obs: Any) -> Any:
        return act(obs)

    def run(start: Any) -> Any:
        carry, kept = jaxvec.rollout(env, policy, None, num_steps, start=start, collect=collect)
        return carry.obs, kept.sum()

    return run, jax.jit(partial(begin, env, policy))(hash_key(0))


def peer_program(
    num_envs: int, num_steps: int, begun: Any, act: Act = act, *, layers: bool = True
) -> tuple[Program, Any]:
    """Returns the peer's rollout: gymnax and the wrappers as purejaxrl defines them, or gymnax bare.

    gymnax's own LogWrapper sums return and length per row and keeps those of the last episode;
    NormalizeVecObservation and NormalizeVecReward (their definition is purejaxrl's, the code is ours)
    keep mean, variance and count, updated with each batch's (Chan et al.), the latter over the
    discounted return. It starts from the states and moments of jaxvec's start.
    """
    import gymnax
    from gymnax.wrappers import LogWrapper

    cartpole: Any = import_module("gymnax.environments.classic_control.cartpole")

    inner, params = gymnax.make("CartPole-v1")
    env = LogWrapper(inner) if layers else inner

    def moments(mean: Any, var: Any, count: Any, batch: Any) -> tuple[Any, Any, Any]:
        batch_mean, batch_var, size = batch.mean(0), batch.var(0), batch.shape[0]
        delta, total = batch_mean - mean, count + size
        m_2 = var * count + batch_var * size + jnp.square(delta) * count * size / total
        return mean + delta * size / total, m_2 / total, total

    def stepped(key: Any, state: Any, action: Any) -> Any:
        keys = jax.random.split(key, num_envs)
        return jax.vmap(env.step, (0, 0, 0, None))(keys, state, action, params)

    def body(carry: Any, _: None) -> Any:
        key, state, obs, obs_rms, ret_rms, discounted = carry
        key, step_key = jax.random.split(key)
        action = act(obs)
        obs, state, reward, done, info = stepped(step_key, state, action)
        obs_rms = moments(*obs_rms, batch=obs)
        obs = (obs - obs_rms[0]) / jnp.sqrt(obs_rms[1] + 1e-8)
        discounted = discounted * 0.99 * (1 - done) + reward
        ret_rms = moments(*ret_rms, batch=discounted)
        reward = reward / jnp.sqrt(ret_rms[1] + 1e-8)
        returns, lengths = info["returned_episode_returns"], info["returned_episode_lengths"]
        kept = (action + reward + jnp.where(done, returns + lengths, 0)).sum()
        return (key, state, obs, obs_rms, ret_rms, discounted), kept

    def bare(carry: Any, _: None) -> Any:
        key, state, obs = carry
        key, step_key = jax.random.split(key)
        action = act(obs)
        obs, state, reward, done, _ = stepped(step_key, state, action)
        return (key, state, obs), (action + reward + done).sum() + obs.sum()

    def run(start: Any) -> Any:
        carry, kept = jax.lax.scan(body if layers else bare, start, None, num_steps)
        return carry[2], kept.sum()

    keys = jax.random.split(jax.random.key(0), num_envs)
    _, state = jax.jit(jax.vmap(env.reset, (0, None)))(keys, params)
    vector = (begun.env_state.env if layers else begun.env_state).env.vector
    physics = cartpole.EnvState(jnp.zeros(num_envs, jnp.int32), *vector.T)
    if not layers:
        return run, _strong((jax.random.key(1), physics, vector))
    _, of_obs, of_reward, _ = begun.env_state.layers
    state = state.replace(env_state=physics)
    rms = [
        (m.mean, m.var, m.count) for m in (of_obs.statistics.moments, of_reward.statistics.moments)
    ]
    return run, _strong((jax.random.key(1), state, begun.obs[:, -4:], *rms, jnp.zeros(num_envs)))


class Pair(NamedTuple):
    """Moments as jaxvec keeps them in float32: high and low words."""

    mean: Any
    var: Any
    count: Any
    mean_low: Any
    var_low: Any
    count_low: Any


def hand_program(num_envs: int, num_steps: int, begun: Any, act: Act = act) -> tuple[Program, Any]:
    """Returns the same arithmetic as jaxvec's, written out flat in one scan, for this one task."""
    envs, (_, of_obs, of_reward, _) = begun.env_state
    keys, impl = jax.random.key_data(envs.keys), jax.random.key_impl(envs.keys)

    def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
        total = a + b
        part = total - a
        return total, (a - (total - part)) + (b - part)

    def learn(m: Pair, batch: Any) -> Pair:
        width = m.mean.size
        sets = 128 // width
        view = batch.reshape(-1, sets * width)
        deviation = view - view[0]
        offset = deviation.mean(0)
        set_var = jnp.maximum((deviation**2).mean(0) - offset**2, 0).reshape(sets, *m.mean.shape)
        shift = (view[0] + offset).reshape(sets, *m.mean.shape) - m.mean
        delta = shift.mean(0)
        var = (set_var + (shift - delta) ** 2).mean(0)
        delta = delta - m.mean_low
        count, carry = two_sum(m.count, jnp.float32(num_envs))
        count, count_low = two_sum(count, carry + m.count_low)
        weight = num_envs / count
        mean, carry = two_sum(m.mean, delta * weight)
        mean, mean_low = two_sum(mean, carry + m.mean_low)
        gain = (var - m.var) - m.var_low + delta**2 * (m.count / count)
        var, carry = two_sum(m.var, gain * weight)
        var, var_low = two_sum(var, carry + m.var_low)
        return Pair(mean, jnp.maximum(var, 0), count, mean_low, var_low, count_low)

    def fresh(words: Any, clock: Any) -> Any:
        def one(word: Any) -> Any:
            key = jax.random.fold_in(jax.random.wrap_key_data(word, impl=impl), 2 * clock + 1)
            return jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)

        return jax.vmap(one)(words)

    def physics(s: Any, action: Any) -> Any:
        x, x_dot, theta, theta_dot = s[:, 0], s[:, 1], s[:, 2], s[:, 3]
        force = jnp.where(action == 1, 10.0, -10.0)
        sine, cosine = _math.sin_cos(theta)
        temp = (force + 0.05 * theta_dot**2 * sine) / 1.1
        theta_acc = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        x_acc = temp - 0.05 * theta_acc * cosine / 1.1
        x, x_dot = x + 0.02 * x_dot, x_dot + 0.02 * x_acc
        theta, theta_dot = theta + 0.02 * theta_dot, theta_dot + 0.02 * theta_acc
        return jnp.stack([x, x_dot, theta, theta_dot], -1)

    def body(carry: Any, _: None) -> Any:
        s, steps, clock, returns, low, lengths, norm, ret_norm, discounted, stack = carry
        clock = clock + 1
        action = act(stack)
        moved = physics(s, action)
        steps = steps + 1
        x, theta = moved[:, 0], moved[:, 2]
        terminated = (jnp.abs(x) > 2.4) | (jnp.abs(theta) > 12 * 2 * jnp.pi / 360)
        truncated = (steps >= 500) & ~terminated
        done = terminated | truncated
        obs = jnp.where(done[:, None], fresh(keys, clock), moved)
        steps = jnp.where(done, 0, steps)
        returns, carry_low = two_sum(returns, 1.0)
        low, lengths = low + carry_low, lengths + 1
        rows = action + done + jnp.where(done, returns + low + lengths, 0)
        returns, low = jnp.where(done, 0, returns), jnp.where(done, 0, low)
        lengths = jnp.where(done, 0, lengths)
        norm = learn(norm, obs)
        scale = 1 / jnp.sqrt(norm.var + 1e-8)

        def normal(v: Any) -> Any:
            return jnp.clip(((v - norm.mean) - norm.mean_low) * scale, -10, 10)

        discounted = discounted * 0.99 + 1.0
        ret_norm = learn(ret_norm, discounted)
        reward = jnp.clip(jnp.ones(num_envs) * (1 / jnp.sqrt(ret_norm.var + 1e-8)), -10, 10)
        discounted = jnp.where(done, 0, discounted)
        history = stack[:, 4:]
        final = jnp.concatenate([history, normal(moved)], -1)
        stack = jnp.concatenate([jnp.where(done[:, None], 0, history), normal(obs)], -1)
        kept = (rows + reward).sum() + final.sum()
        state = (obs, steps, clock, returns, low, lengths, norm, ret_norm, discounted, stack)
        return state, kept

    def run(start: Any) -> Any:
        carry, kept = jax.lax.scan(body, start, None, num_steps)
        return carry[-1], kept.sum()

    zeros, whole = jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)
    norms = [Pair(*each.statistics.moments) for each in (of_obs, of_reward)]
    start = (envs.env.vector, whole, jnp.uint32(0), zeros, zeros, whole, *norms, zeros, begun.obs)
    return run, _strong(start)


def _strong(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(jnp.asarray(leaf)), tree)


def check_equal(num_envs: int = 128) -> None:
    """Asserts that the programs show the same: by hand through resets, the peer up to the first ones."""
    for layers in (True, False) if not missing("", "", "gymnax") else ():
        ours, begun = jaxvec_program(environments(num_envs, layers=layers), 6, act_on_newest)
        theirs, start = peer_program(num_envs, 6, begun, act_on_newest, layers=layers)
        obs, other = (
            np.asarray(jax.jit(run)(at)[0]) for run, at in ((ours, begun), (theirs, start))
        )
        np.testing.assert_allclose(obs[:, -other.shape[1] :], other, rtol=1e-3, atol=1e-3)
    ours = jaxvec_program(environments(num_envs), 100)
    both = [jax.jit(run)(start) for run, start in (ours, hand_program(num_envs, 100, ours[1]))]
    for one, other in zip(*both, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-2)


def measure(effort: Effort, num_envs: tuple[int, ...] = (), num_steps: int = 0) -> Measured:
    """Compares all layers, then raw environments, at several N."""
    check_equal()
    peer = "gymnax + wrappers"
    absent = missing(SECTION, peer, "gymnax")
    yield from absent
    for n in num_envs or effort.of((2048, 16384), (2048, 16384), (128,)):
        steps = num_steps or effort.of(1000, 200_000 // n, 8)
        ours, begun = jaxvec_program(environments(n), steps)
        raw, raw_begun = jaxvec_program(environments(n, layers=False), steps)
        programs = {
            "jaxvec": (ours, begun),
            "by hand": hand_program(n, steps, begun),
            "raw": (raw, raw_begun),
        }
        if not absent:
            programs[peer] = peer_program(n, steps, begun)
            programs["raw gymnax"] = peer_program(n, steps, raw_begun, layers=False)
        calls = {
            name: partial(_waited, jax.jit(run), start) for name, (run, start) in programs.items()
        }
        times = turns(calls, effort)
        scale = 1e9 / (n * steps), "ns"
        what = f"all layers, N={n}"
        for rival, target in (("by hand", 0.95), (peer, 8)):
            if rival in times:
                pair = times["jaxvec"], times[rival]
                yield compared(SECTION, what, rival, *pair, scale, target)
        if "raw gymnax" in times:
            pair = times["raw"], times["raw gymnax"]
            yield compared(SECTION, f"raw, N={n}", "gymnax", *pair, scale, 6)


def _waited(run: Program, start: Any) -> None:
    jax.block_until_ready(run(start))


if __name__ == "__main__":
    alone(
        SECTION,
        __doc__,
        measure,
        lambda add: (
            add("--num-envs", type=int, nargs="+", default=()),
            add("--num-steps", type=int, default=0),
        ),
    )
