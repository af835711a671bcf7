"""Compiled CartPole rollouts with every layer on: jaxvec, gymnax with purejaxrl-style wrappers, by hand.

    python examples/benchmarks/compiled_scan.py [--num-envs 2048] [--num-steps 1000] [--rounds 7]

Three programs do the same job, each one `lax.scan` in one jit: N CartPole environments, episode
statistics, running normalization of observations and rewards, and (jaxvec and the hand-written one)
stacks of 4 frames; the peer stacks nothing. Their runs take turns, the figure is the median.

Nothing is dead code: the policy is the sign of a fixed dot product with every value it is shown, and
rewards, flags, final observations and episode columns are all reduced into the result.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxvec
from jaxvec.envs import make
from jaxvec.envs.classic import _math
from jaxvec.random import hash_key, keys_from

NUM_FRAMES = 4
PROBE = jnp.asarray([0.6, -1.1, 0.9, 1.4, -0.3, 0.2, -0.8, 0.5] * 2, jnp.float32)


def act(obs: Any) -> Any:
    """The policy: reads every value of an observation."""
    return (obs @ PROBE[: obs.shape[-1]] > 0).astype(jnp.int32)


def jaxvec_program(num_envs: int, num_steps: int) -> tuple[Callable[[Any], Any], Any]:
    """Returns jaxvec's rollout, and what it starts from."""
    env = jaxvec.wrap(
        jaxvec.vectorize(make("CartPole-v1"), num_envs),
        jaxvec.episode_statistics(),
        jaxvec.normalize_observation(),
        jaxvec.normalize_reward(),
        jaxvec.frame_stack(NUM_FRAMES),
    )

    def collect(obs: Any, action: Any, timestep: Any) -> Any:
        episode = timestep.info["episode"]
        ended = jnp.where(timestep.done, episode["r"] + episode["l"], 0)
        rows = action + timestep.reward + timestep.truncated + ended
        return rows.sum() + timestep.final_obs.sum()

    def policy(key: Any, obs: Any) -> Any:
        return act(obs)

    def run(start: Any) -> Any:
        carry, kept = jaxvec.rollout(env, policy, None, num_steps, start=start, collect=collect)
        return carry.obs.sum() + kept.sum()

    start, _ = jaxvec.rollout(env, policy, hash_key(0), 1)
    return jax.jit(run), start


def peer_program(num_envs: int, num_steps: int) -> tuple[Callable[[Any], Any], Any]:
    """Returns the peer's rollout: gymnax and the wrappers as purejaxrl defines them.

    gymnax's own LogWrapper sums return and length per row and keeps those of the last episode;
    NormalizeVecObservation and NormalizeVecReward (their definition is purejaxrl's, the code is ours)
    keep mean, variance and count, updated with each batch's (Chan et al.), the latter over the
    discounted return.
    """
    import gymnax
    from gymnax.wrappers import LogWrapper

    inner, params = gymnax.make("CartPole-v1")
    env = LogWrapper(inner)

    def moments(mean: Any, var: Any, count: Any, batch: Any) -> tuple[Any, Any, Any]:
        batch_mean, batch_var, size = batch.mean(0), batch.var(0), batch.shape[0]
        delta, total = batch_mean - mean, count + size
        m_2 = var * count + batch_var * size + jnp.square(delta) * count * size / total
        return mean + delta * size / total, m_2 / total, total

    def body(carry: Any, _: None) -> Any:
        key, state, obs, obs_rms, ret_rms, discounted = carry
        key, step_key = jax.random.split(key)
        action = act(obs)
        obs, state, reward, done, info = jax.vmap(env.step, (0, 0, 0, None))(
            jax.random.split(step_key, num_envs), state, action, params
        )
        obs_rms = moments(*obs_rms, batch=obs)
        obs = (obs - obs_rms[0]) / jnp.sqrt(obs_rms[1] + 1e-8)
        discounted = discounted * 0.99 * (1 - done) + reward
        ret_rms = moments(*ret_rms, batch=discounted)
        reward = reward / jnp.sqrt(ret_rms[1] + 1e-8)
        returns, lengths = info["returned_episode_returns"], info["returned_episode_lengths"]
        kept = (action + reward + jnp.where(done, returns + lengths, 0)).sum()
        return (key, state, obs, obs_rms, ret_rms, discounted), kept

    def run(start: Any) -> Any:
        carry, kept = jax.lax.scan(body, start, None, num_steps)
        return carry[2].sum() + kept.sum()

    keys = jax.random.split(jax.random.key(0), num_envs)
    obs, state = jax.vmap(env.reset, (0, None))(keys, params)
    obs_rms = (jnp.zeros_like(obs), jnp.ones_like(obs), 1e-4)
    start = (jax.random.key(1), state, obs, obs_rms, (0.0, 1.0, 1e-4), jnp.zeros(num_envs))
    return jax.jit(run), _strong(start)


class Pair(NamedTuple):
    """Moments as jaxvec keeps them in float32: high and low words."""

    mean: Any
    var: Any
    count: Any
    mean_low: Any
    var_low: Any
    count_low: Any


def hand_program(num_envs: int, num_steps: int) -> tuple[Callable[[Any], Any], Any]:
    """Returns the same arithmetic as jaxvec's, written out flat in one scan, for this one task."""
    keys = jax.random.key_data(keys_from(hash_key(0), num_envs))
    impl = jax.random.key_impl(hash_key(0))

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
        rows = action + truncated + jnp.where(done, returns + low + lengths, 0)
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
        return carry[-1].sum() + kept.sum()

    def prior(shape: tuple[int, ...]) -> Pair:
        zeros, count = jnp.zeros(shape), jnp.float32(1e-4)
        return Pair(zeros, jnp.ones(shape), count, zeros, zeros, jnp.float32(0))

    zeros, whole = jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32)
    s = fresh(keys, jnp.uint32(0))
    stack = jnp.zeros((num_envs, 4 * NUM_FRAMES)).at[:, -4:].set(s)
    norms = prior((4,)), prior(())
    start = (s, whole, jnp.uint32(0), zeros, zeros, whole, *norms, zeros, stack)
    return jax.jit(run), _strong(start)


def _strong(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jax.lax.stop_gradient(jnp.asarray(leaf)), tree)


def measure(programs: dict[str, Any], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Runs the programs in turn; returns each one's median seconds and compile seconds."""
    compiled, compile_time, times = {}, {}, {name: [] for name in programs}
    for name, (program, start) in programs.items():
        began = time.perf_counter()
        compiled[name] = program.lower(start).compile()
        compile_time[name] = time.perf_counter() - began
        jax.block_until_ready(compiled[name](start))
    for _ in range(rounds):
        for name, (_, start) in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(compiled[name](start))
            times[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in times.items()}, compile_time


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--num-envs", type=int, default=2048)
    parser.add_argument("--num-steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    sizes = options.num_envs, options.num_steps
    programs = {"jaxvec": jaxvec_program(*sizes), "by hand": hand_program(*sizes)}
    try:
        programs["gymnax + wrappers"] = peer_program(*sizes)
    except ImportError as error:
        print(f"gymnax is missing ({error}): pip install 'gymnax==0.0.9' six")
    seconds, compile_time = measure(programs, options.rounds)
    print(f"CartPole, N={sizes[0]}, T={sizes[1]}, median of {options.rounds} interleaved runs")
    for name, each in seconds.items():
        rate = sizes[0] * sizes[1] / each / 1e6
        print(f"  {name:18s} {rate:7.2f} M env steps/s   compile {compile_time[name]:.2f} s")
    for name in list(seconds)[1:]:
        print(f"  jaxvec / {name}: {seconds[name] / seconds['jaxvec']:.2f}x")


if __name__ == "__main__":
    main()
