"""Layers over a batched environment; the result is a batched environment again."""

from typing import NamedTuple

import jax

from jaxvec.core._transform import Timestep, Transform, chain
from jaxvec.envs._env import BatchedEnv, check_batched
from jaxvec.random import as_impl
from jaxvec.typing import Action, Array, Key, PyTree


class WrapState(NamedTuple):
    """An environment's state with its layers' on top.

    Attributes:
      env: the environment's.
      layers: that of the layers: of one, or as `chain` keeps theirs.
    """

    env: PyTree
    layers: PyTree


def wrap(env: BatchedEnv, *transforms: Transform) -> BatchedEnv:
    """Puts transforms on top of a batched environment, the first nearest to it.

    `reset` starts the layers anew, statistics included; `reset_rows` keeps what they learned.

    Args:
      env: N environments.
      *transforms: the layers, as in `chain`.

    Returns:
      N environments whose spaces, observations and rewards are those above the layers.

    Raises:
      TypeError: if `env` is no `BatchedEnv`, or one of the others no `Transform`.
    """
    check_batched("wrap", env)
    layers = chain(*transforms)
    if len(transforms) == 1:
        layers = transforms[0]

    def reset(keys: Key, options: PyTree = None) -> tuple[WrapState, Timestep]:
        state, timestep = env.reset(keys, options)
        # `vectorize` folds in numbers from 1 on, so that the layers draw independently of it.
        layer_keys = jax.vmap(jax.random.fold_in, (0, None))(as_impl(keys, "hash"), 0)
        inner, timestep = layers.reset(layers.init(env.spec, layer_keys), timestep, None)
        return WrapState(state, inner), timestep

    def reset_rows(
        state: WrapState, mask: Array, keys: Key | None = None, options: PyTree = None
    ) -> tuple[WrapState, Timestep]:
        outer, timestep = env.reset_rows(state.env, mask, keys, options)
        inner, timestep = layers.reset(state.layers, timestep, timestep.first)
        return WrapState(outer, inner), timestep

    def step(state: WrapState, action: Action) -> tuple[WrapState, Timestep]:
        inner, action = layers.action(state.layers, action)
        outer, timestep = env.step(state.env, action)
        inner, timestep = layers.update(inner, timestep)
        return WrapState(outer, inner), timestep

    def end_rollout(state: WrapState) -> WrapState:
        return WrapState(env.end_rollout(state.env), layers.end_rollout(state.layers))

    return BatchedEnv(reset, reset_rows, step, layers.spec(env.spec), end_rollout, env.env)
