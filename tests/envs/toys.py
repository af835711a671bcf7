"""Tiny environments with scripted episodes, so that what a test expects can be written by hand."""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxvec import BatchedEnv, Env, Timestep
from jaxvec.random import keys_from

ACTIONS = spaces.Discrete(4)
TRUNCATE, TERMINATE, BOTH = 1, 2, 3  # the actions that end an episode of the counter; 0 does not


def draw(key: Any) -> Any:
    """Draws an integer of 20 bits, which float32 holds exactly."""
    return (jax.random.bits(key, dtype=jnp.uint32) >> 12).astype(jnp.int32)


class CounterParams(NamedTuple):
    """Python numbers, as a user writes them: weak types."""

    length: Any = 3  # steps of an episode
    unit: Any = 1.0  # of the reward


class CounterState(NamedTuple):
    """All whole numbers, so that results are equal to the last bit however they are compiled."""

    t: Any  # steps of the episode
    start: Any  # what the reset drew


def counter(
    *, reward: Callable[[Any], Any] = lambda t: t, **record: Any
) -> Env[CounterState, CounterParams]:
    """Counts its steps, and terminates after `params.length` of them; actions may end it before.

    It observes `[t, start, draw]`: the count, what the episode's reset drew, and what this step drew. A
    step's reward is `unit * reward(t)`; info holds the count, the start and the action.
    """

    def observe(state: CounterState, drawn: Any) -> Any:
        return jnp.stack([jnp.float32(each) for each in (*state, drawn)])

    def info(state: CounterState, action: Any) -> dict[str, Any]:
        return {"t": state.t, "start": state.start, "action": action}

    def reset(key: Any, params: CounterParams, options: Any = None) -> Any:
        start = draw(key)
        if options is not None:
            start = start * 0 + options["start"]
        state = CounterState(0, start)
        return state, observe(state, 0), info(state, -1)

    def step(key: Any, state: CounterState, action: Any, params: CounterParams) -> Any:
        state = CounterState(state.t + 1, state.start)
        obs = observe(state, draw(key))
        terminated = (state.t >= params.length) | (action == TERMINATE) | (action == BOTH)
        truncated = (action == TRUNCATE) | (action == BOTH)
        paid = params.unit * jnp.float32(reward(state.t))
        return state, obs, paid, terminated, truncated, info(state, action)

    fields = {
        "params": CounterParams(),
        "observation_space": spaces.Box(-np.inf, np.inf, (3,), np.float32),
        "action_space": ACTIONS,
        "metadata": {"name": "Counter"},
    }
    return Env(reset, step, **{**fields, **record})


def simple(
    reset: Callable[[Any], Any],
    step: Callable[[Any, Any], Any],
    *,
    observe: Callable[[Any], Any] = lambda state: jnp.zeros(1),
    reward: Any = 0.0,
    terminated: Callable[[Any], Any] = lambda state: False,
    info: Callable[[Any], Any] = lambda state: {},
    space: spaces.Space[Any] | None = None,
    **record: Any,
) -> Env[Any, None]:
    """Makes an environment of `reset(key) -> state` and `step(key, state) -> state`, and what differs."""

    def whole_reset(key: Any, params: None) -> Any:
        state = reset(key)
        return state, observe(state), info(state)

    def whole_step(key: Any, state: Any, action: Any, params: None) -> Any:
        state = step(key, state)
        paid = reward(state) if callable(reward) else reward
        return state, observe(state), paid, terminated(state), False, info(state)

    space = spaces.Box(-np.inf, np.inf, (1,), np.float32) if space is None else space
    fields = {
        "params": None,
        "observation_space": space,
        "action_space": ACTIONS,
        "metadata": {"name": "Simple"},
    }
    return Env(whole_reset, whole_step, **{**fields, **record})


def observing(space: spaces.Space[Any], obs: Any) -> Env[Any, None]:
    """Makes an environment that always observes the same, in that space."""
    return simple(lambda key: 0, lambda key, state: state, observe=lambda state: obs, space=space)


class Played(NamedTuple):
    """What happened, in NumPy; typed keys stay JAX's."""

    opened: Any  # the state after the reset
    first: Timestep  # of the reset
    steps: Timestep  # [T, N, ...]
    state: Any  # after the last step


def play(
    env: BatchedEnv, num_steps: int, *, seed: int = 0, keys: Any = None, actions: Any = None
) -> Played:
    """Resets and steps N environments, compiled; the actions are 0 if none are given."""
    num_envs = env.spec.num_envs
    keys = keys_from(seed, num_envs) if keys is None else keys
    actions = np.zeros((num_steps, num_envs), np.int32) if actions is None else actions

    @jax.jit
    def run(keys: Any, actions: Any) -> Any:
        opened, first = env.reset(keys)
        state, steps = jax.lax.scan(env.step, opened, actions)
        return opened, first, steps, state

    return Played(*jax.tree.map(as_numpy, run(keys, actions)))


def as_numpy(leaf: Any) -> Any:
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf)


def words(leaf: Any) -> Any:
    """Returns a leaf as numbers that can be compared: a key as its words."""
    typed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if typed else leaf)


def assert_same(left: Any, right: Any) -> None:
    """Asserts that two trees are equal: structure, shapes, dtypes, and every bit."""
    chex.assert_trees_all_equal_structs(left, right)
    chex.assert_trees_all_equal_shapes_and_dtypes(left, right)
    for (path, one), other in zip(
        jax.tree_util.tree_flatten_with_path(left)[0], jax.tree.leaves(right), strict=True
    ):
        where = jax.tree_util.keystr(path)
        np.testing.assert_array_equal(words(one), words(other), err_msg=where)


def avals(tree: Any) -> Any:
    """Returns what JAX compiles for: shape, dtype and weak type of every leaf, with its path."""
    return [
        (jax.tree_util.keystr(path), leaf.shape, leaf.dtype, leaf.weak_type)
        for path, leaf in jax.tree_util.tree_flatten_with_path(jax.eval_shape(lambda: tree))[0]
    ]
