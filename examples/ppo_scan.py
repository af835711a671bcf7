"""PPO as one compiled program: rollouts, updates and the learning curve of a whole training.

    python examples/ppo_scan.py --num-steps 500000           # until it is solved: 475 and more
    python examples/ppo_scan.py --seeds 8 --plot curve.png   # eight trainings by one vmap, in one picture
    python examples/ppo_scan.py --env Pendulum-v1            # any id of `jaxvec envs`
    python examples/ppo_scan.py --backend callback           # gymnasium's environments, in worker processes
    python examples/ppo_scan.py --purejaxrl                  # the hyper-parameters of a well-known baseline

Read it from `train` on: an update is a rollout, in which the policy acts and no more, and some epochs over
what it collected; a training is a scan over updates. Nothing comes to the host before it ends. The algorithm
is that of Schulman et al., Proximal Policy Optimization Algorithms, 2017.
"""

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from gymnasium import spaces
from jax import Array

import jaxvec
from jaxvec.bridges.callback import from_vec_env

EPISODES = 100  # of the test after a training


class Settings(NamedTuple):
    """Hyper-parameters; a minibatch is `num_envs * num_steps / minibatches` transitions."""

    num_envs: int = 32
    num_steps: int = 64  # of one rollout
    epochs: int = 4
    minibatches: int = 8
    learning_rate: float = 2e-3  # at the beginning; it falls to 0 in a line
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    entropy_weight: float = 0.0
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    normalize: bool = True  # observations and rewards, by running statistics


PUREJAXRL = Settings(4, 128, 4, 4, learning_rate=2.5e-4, entropy_weight=0.01, normalize=False)


class Network(nn.Module):
    """Two layers of 64, and `size` numbers out of them."""

    size: int
    scale: float  # of the last weights

    @nn.compact
    def __call__(self, x: Array) -> Array:  # noqa: D102
        for _ in range(2):
            x = nn.tanh(nn.Dense(64, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        return nn.Dense(self.size, kernel_init=nn.initializers.orthogonal(self.scale))(x)


class Agent(NamedTuple):
    """Actor and critic, as functions of their weights."""

    init: Callable[..., Any]  # (key, spec) -> weights
    act: Callable[..., Array]  # (weights, key, obs) -> actions; without a key the likeliest
    judge: Callable[..., Any]  # (weights, obs, actions) -> log-probabilities, mean entropy
    value: Callable[..., Array]  # (weights, obs) -> values


def make_agent(space: spaces.Space) -> Agent:
    """Returns what chooses one of n actions, or draws each number of a Box from a normal distribution."""
    discrete = isinstance(space, spaces.Discrete)
    if not discrete and not (isinstance(space, spaces.Box) and len(space.shape) == 1):
        raise SystemExit(f"ppo_scan: actions must be Discrete or a Box of one axis, not {space}.")
    size, start = (int(space.n), int(space.start)) if discrete else (space.shape[0], 0)
    actor: Any = Network(size, 0.01)
    critic: Any = Network(1, 1.0)

    def init(key: Array, spec: jaxvec.VecSpec) -> dict[str, Any]:
        keys, obs = jax.random.split(key), jnp.zeros(spec.observation_space.shape)
        weights = {"actor": actor.init(keys[0], obs), "critic": critic.init(keys[1], obs)}
        return weights if discrete else {**weights, "log_std": jnp.zeros(size)}

    def act(weights: dict, key: Array | None, obs: Array) -> Array:
        out = actor.apply(weights["actor"], obs)
        if discrete:
            return start + (out.argmax(-1) if key is None else jax.random.categorical(key, out))
        deviation = jnp.exp(weights["log_std"])
        return out if key is None else out + deviation * jax.random.normal(key, out.shape)

    def judge(weights: dict, obs: Array, action: Array) -> tuple[Array, Array]:
        out = actor.apply(weights["actor"], obs)
        if discrete:
            log_p = jax.nn.log_softmax(out)
            chosen = jax.nn.one_hot(action - start, size, dtype=bool)
            return jnp.where(chosen, log_p, 0).sum(-1), -(jnp.exp(log_p) * log_p).sum(-1).mean()
        log_std = weights["log_std"]
        log_p = jax.scipy.stats.norm.logpdf(action, out, jnp.exp(log_std))
        return log_p.sum(-1), (log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum()

    return Agent(init, act, judge, lambda w, obs: critic.apply(w["critic"], obs)[..., 0])


@contextlib.contextmanager
def environments(name: str, n: int, s: Settings, backend: str) -> Iterator[jaxvec.BatchedEnv]:
    """Yields N environments with their layers: JAX's, or gymnasium's behind the same face."""
    with contextlib.ExitStack() as stack:
        if backend == "jax":
            env = jaxvec.vectorize(jaxvec.envs.make(name), n)
        else:
            venv = jaxvec.SubprocVecEnv([lambda: gymnasium.make(name)] * n)
            stack.callback(venv.close)
            env = from_vec_env(venv)
        # The first is nearest to the environment: there, returns are the true ones.
        layers = {"episodes": jaxvec.episode_statistics(), "flat": jaxvec.flatten_observation()}
        space = env.spec.action_space
        if isinstance(space, spaces.Box) and space.is_bounded():
            layers["actions"] = jaxvec.rescale_action(-1, 1)
        if s.normalize:
            layers["observations"] = jaxvec.normalize_observation()
            layers["rewards"] = jaxvec.normalize_reward(gamma=s.gamma)
        yield jaxvec.wrap(env, jaxvec.named_chain(**layers))


class Result(NamedTuple):
    """What is left of a training of U updates."""

    weights: Any
    layers: dict[str, Any]  # their states
    curve: jaxvec.EpisodeSummary  # leaves [U, ...]: the episodes that ended in each update


def train(key: Array, env: jaxvec.BatchedEnv, s: Settings, num_updates: int) -> Result:
    """Trains from scratch; to be compiled as a whole, and mapped over keys."""
    import optax

    agent = make_agent(env.spec.action_space)
    policy = jaxvec.Policy(agent.init, lambda w, key, obs, first: (w, agent.act(w, key, obs)))
    rate = optax.linear_schedule(s.learning_rate, 0.0, num_updates * s.epochs * s.minibatches)
    optimizer = optax.chain(optax.clip_by_global_norm(s.max_grad_norm), optax.adam(rate, eps=1e-5))

    def improve(learner: tuple, batch: Batch) -> tuple[tuple, None]:
        weights, moments = learner
        change, moments = optimizer.update(jax.grad(loss)(weights, batch, agent, s), moments)
        return (optax.apply_updates(weights, change), moments), None

    def update(state: tuple, _: None) -> tuple[tuple, jaxvec.EpisodeSummary]:
        carry, moments = state
        carry, (obs, action, step) = jaxvec.rollout(env, policy, None, s.num_steps, start=carry)
        batch = make_batch(carry.policy_state, obs, action, step, agent, s)

        def epoch(learner: tuple, key: Array) -> tuple[tuple, None]:
            order = jax.random.permutation(key, s.num_steps * s.num_envs).reshape(s.minibatches, -1)
            return jax.lax.scan(improve, learner, jax.tree.map(lambda x: x[order], batch))

        key, *keys = jax.random.split(carry.key, 1 + s.epochs)
        learner, _ = jax.lax.scan(epoch, (carry.policy_state, moments), jnp.stack(keys))
        carry = carry._replace(policy_state=learner[0], key=key)
        return (carry, learner[1]), jaxvec.summarize_episodes(step, quantiles=())

    start = jaxvec.envs.begin(env, policy, key)
    opening = start, optimizer.init(start.policy_state)
    (carry, _), curve = jax.lax.scan(update, opening, None, num_updates)
    return Result(carry.policy_state, carry.env_state.layers, curve)


class Batch(NamedTuple):
    """What the policy is improved by; leaves `[T * N, ...]`."""

    obs: Array
    action: Array
    log_prob: Array  # under the weights that acted
    advantage: Array
    target: Array  # of the critic


def make_batch(
    weights: Any, obs: Array, action: Array, step: jaxvec.Timestep, agent: Agent, s: Settings
) -> Batch:
    """Judges what a rollout collected, `[T, N]`: one pass over all of it is cheaper than T small ones."""
    log_prob, _ = agent.judge(weights, obs, action)
    value, next_value = agent.value(weights, obs), agent.value(weights, step.final_obs)
    # An episode that was cut off would have gone on from its last observation; a terminated one not.
    error = step.reward + s.gamma * jnp.where(step.terminated, 0, next_value) - value

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = now[0] + s.gamma * s.gae_lambda * jnp.where(now[1], 0, later)
        return advantage, advantage

    _, advantage = jax.lax.scan(back, jnp.zeros_like(error[0]), (error, step.done), reverse=True)
    batch = Batch(obs, action, log_prob, advantage, advantage + value)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)


def loss(weights: Any, batch: Batch, agent: Agent, s: Settings) -> Array:
    """PPO's clipped objective and the critic's squared error, to be made small."""
    log_prob, entropy = agent.judge(weights, batch.obs, batch.action)
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    ratio = jnp.exp(log_prob - batch.log_prob)
    clipped = jnp.clip(ratio, 1 - s.clip, 1 + s.clip)
    gain = jnp.minimum(ratio * advantage, clipped * advantage).mean()
    error = agent.value(weights, batch.obs) - batch.target
    return 0.5 * s.value_weight * (error**2).mean() - gain - s.entropy_weight * entropy


def greedy_returns(key: Array, env: jaxvec.BatchedEnv, result: Result, num_steps: int) -> Array:
    """Returns what each row's first episode brings by the likeliest actions and frozen statistics."""
    agent = make_agent(env.spec.action_space)
    policy = jaxvec.Policy(agent.init, lambda w, key, obs, first: (w, agent.act(w, None, obs)))
    start = jaxvec.envs.begin(env, policy, key)
    learnt = {name: result.layers[name] for name in ("observations",) if name in result.layers}
    layers = jaxvec.set_training({**start.env_state.layers, **learnt}, False)
    # Reset again: the first observations are to be normalized as all others.
    rows = jnp.arange(env.spec.num_envs)
    row_keys = jaxvec.random.keys_from(jax.random.fold_in(key, 1), len(rows))
    state, first = env.reset_rows(start.env_state._replace(layers=layers), rows >= 0, row_keys)
    start = start._replace(env_state=state, obs=first.obs, policy_state=result.weights)
    _, (_, _, step) = jaxvec.rollout(env, policy, None, num_steps, start=start)
    end = jnp.where(step.done.any(0), step.done.argmax(0), num_steps - 1)
    return step.info["episode"]["r"][end, rows]


def main() -> None:
    options = parsed()
    if find_spec("optax") is None:
        print("This example needs optax: pip install 'jaxvec[examples]'")
        return
    if options.backend == "jax":
        # XLA's threads on a CPU (jax 0.10) may wait for each other for ever; one is as fast here.
        os.environ.setdefault("NPROC", "1")
    s = PUREJAXRL if options.purejaxrl else Settings()
    num_updates = options.num_steps // (s.num_envs * s.num_steps)
    env_steps = num_updates * s.num_envs * s.num_steps
    if not num_updates:
        raise SystemExit(f"ppo_scan: one update takes {s.num_envs * s.num_steps:,} steps.")
    keys = jnp.stack([jaxvec.random.hash_key(options.seed + i) for i in range(options.seeds)])

    def over_seeds(function: Callable[..., Any]) -> Callable[..., Any]:
        if options.backend == "callback":  # those environments exist once: seeds take turns
            return lambda *rows: jax.lax.map(lambda row: function(*row), rows)
        return jax.vmap(function)

    with environments(options.env, s.num_envs, s, options.backend) as env:
        started = time.perf_counter()
        run = jax.jit(over_seeds(lambda key: train(key, env, s, num_updates))).lower(keys).compile()
        compiled = time.perf_counter()
        result = jax.block_until_ready(run(keys))
        compiling, running = compiled - started, time.perf_counter() - compiled
    print(f"{options.seeds} x {env_steps:,} steps: {running:.2f} s; compiling: {compiling:.1f} s")
    curve = np.ma.masked_invalid(result.curve.returns.mean)  # [seeds, U], but where nothing ended
    if options.plot:
        draw(options.plot, curve, env_steps, f"{options.env}, {options.seeds} seeds and their mean")
    first, _, last = (part.mean(1) for part in np.array_split(curve, 3, axis=1))
    print(f"mean return in the first third: {first.round(1)}, in the last: {last.round(1)}")

    limit = jaxvec.envs.make(options.env).max_episode_steps or 1000
    with environments(options.env, EPISODES, s, options.backend) as env:
        test = jax.jit(over_seeds(lambda key, result: greedy_returns(key, env, result, limit)))
        greedy = np.asarray(test(keys, result)).mean(1)
    print(f"of {EPISODES} greedy episodes afterwards:", greedy.round(1))
    if options.env == "CartPole-v1":
        assert (last > first).all()
        assert options.purejaxrl or (greedy >= (475 if env_steps > 490_000 else 150)).all()


def draw(path: Path, curve: np.ndarray, env_steps: int, title: str) -> None:
    """Draws the mean return of fifty parts of the training, a line for each seed, and their mean."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(8, 4.5), layout="constrained")).subplots()
    parts = np.array_split(curve, min(50, curve.shape[1]), axis=1)
    lines = np.ma.stack([part.mean(1) for part in parts], axis=1)
    at = np.linspace(0, env_steps, len(parts) + 1)[1:]
    for line in lines:
        axes.plot(at[~np.ma.getmaskarray(line)], line.compressed(), color="C0", alpha=0.4)
    axes.plot(at, lines.mean(0), ".", color="C1")
    axes.set(xlabel="environment steps", ylabel="return of the episodes that ended", title=title)
    figure.savefig(path, dpi=150)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--env", default="CartPole-v1", help="an id of jaxvec.envs")
    add("--num-steps", type=int, default=150_000, help="of all environments together")
    add("--seed", type=int, default=0, help="the first")
    add("--seeds", type=int, default=1, help="how many trainings")
    add("--backend", choices=["jax", "callback"], default="jax")
    add("--purejaxrl", action="store_true", help="that library's hyper-parameters")
    add("--plot", type=Path, metavar="FILE", help="the learning curve, .png or .svg")
    return parser.parse_args()


if __name__ == "__main__":
    main()
