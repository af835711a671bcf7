"""Gymnasium's functional environments (`gymnasium.experimental.functional.FuncEnv`).

There a step is five functions, of which gymnasium's own bridge hands all the same key. Here each gets a
key of its own, so that noise in the observation is independent of noise in the transition.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxvec.envs._env import Env
from jaxvec.spaces import sample
from jaxvec.typing import Action, Key, Obs, PyTree


def from_gymnasium_func(func_env: Any, *, max_episode_steps: int | None = None) -> Env[Any, Any]:
    """Makes an environment of a gymnasium `FuncEnv`.

    Its `state_info` and `transition_info` become one info dict; after a reset, where no transition took
    place, the columns of the latter are zero.

    Args:
      func_env: the functional environment, an instance. Its `default_params` become `Env.params`.
      max_episode_steps: the time limit that `vectorize` sets, steps; a `FuncEnv` has none of its own.

    Returns:
      The environment. It never truncates by itself.

    Raises:
      TypeError: if `func_env` is no `FuncEnv`, or one of its functions takes neither the arguments that
        gymnasium documents nor these without the key.
      ValueError: while it is traced (by `vectorize`), if one of its functions fails; the message says
        which, and what it was given.
    """
    from gymnasium.experimental.functional import FuncEnv

    if not isinstance(func_env, FuncEnv):
        raise TypeError(
            f"from_gymnasium_func: {func_env!r} is no gymnasium.experimental.functional.FuncEnv. "
            "Pass an instance of a functional environment, such as CartPoleFunctional()."
        )
    initial = _drawn(func_env, "initial", 0)
    transition = _drawn(func_env, "transition", 2)
    observation = _drawn(func_env, "observation", 1)
    reward = _drawn(func_env, "reward", 3)
    terminal = _drawn(func_env, "terminal", 1)

    def reset(key: Key, params: PyTree) -> tuple[PyTree, Obs, dict[str, Any]]:
        initial_key, observation_key = jax.random.split(key)
        state = initial(initial_key, params)
        no_transition = jax.tree.map(
            lambda aval: jnp.zeros(aval.shape, aval.dtype),
            jax.eval_shape(transition_info, state, params),
        )
        info = {**func_env.state_info(state, params), **no_transition}
        return state, observation(state, observation_key, params), info

    def step(
        key: Key, state: PyTree, action: Action, params: PyTree
    ) -> tuple[PyTree, Obs, Any, Any, bool, dict[str, Any]]:
        keys = jax.random.split(key, 4)
        after = transition(state, action, keys[0], params)
        info = {
            **func_env.state_info(after, params),
            **func_env.transition_info(state, action, after, params),
        }
        return (
            after,
            observation(after, keys[1], params),
            reward(state, action, after, keys[2], params),
            terminal(after, keys[3], params),
            False,
            info,
        )

    def transition_info(state: PyTree, params: PyTree) -> dict[str, Any]:
        action = jax.tree.map(lambda x: x[0], sample(jax.random.key(0), func_env.action_space, 1))
        info: dict[str, Any] = func_env.transition_info(state, action, state, params)
        return info

    return Env(
        reset=reset,
        step=step,
        params=func_env.default_params,
        observation_space=func_env.observation_space,
        action_space=func_env.action_space,
        max_episode_steps=max_episode_steps,
        metadata={"name": type(func_env).__name__},
    )


def _drawn(func_env: Any, name: str, num_data: int) -> Callable[..., Any]:
    """Returns one of the functions as `(*data, key, params) -> value`, with errors that name it.

    Some functional environments leave the key out where they draw nothing.
    """
    function = getattr(func_env, name)
    parameters = list(inspect.signature(function).parameters)[num_data:]
    takes_key = len(parameters) == 2
    if not takes_key and parameters != ["params"]:
        raise TypeError(
            f"from_gymnasium_func: {type(func_env).__name__}.{name} takes "
            f"{inspect.signature(function)}; it must take {num_data} arguments of its own, then rng "
            "and params, or params alone."
        )

    def call(*arguments: Any) -> Any:
        *data, key, params = arguments
        try:
            return function(*data, key, params) if takes_key else function(*data, params)
        except Exception as error:  # another library's code may raise anything
            given = ", ".join(map(_shapes, data)) or "nothing"
            raise ValueError(
                f"{type(func_env).__name__}.{name} failed with {type(error).__name__}: {error} "
                f"It was given {given}; its action space is {func_env.action_space}."
            ) from error

    return call


def _shapes(tree: PyTree) -> str:
    leaves = [f"{jnp.asarray(leaf).dtype}{list(jnp.shape(leaf))}" for leaf in jax.tree.leaves(tree)]
    return leaves[0] if len(leaves) == 1 else f"({', '.join(leaves)})"
