"""The two records of JAX-native environments: one environment, and N of them."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import gymnasium
from gymnasium.spaces import Space

from jaxvec.core._transform import Timestep, VecSpec, nothing_to_merge
from jaxvec.typing import Array, PyTree

State = TypeVar("State")
Params = TypeVar("Params")


class Env(NamedTuple, Generic[State, Params]):
    """One environment, as pure functions on one state; `vectorize` makes N of it.

    It must not reset by itself, and need not know of a time limit: `vectorize` does both. `reset` and
    `step` return the same info tree. All that depends on an episode lies in the state.

    Attributes:
      reset: `(key, params) -> (state, obs, info)`, or `(key, params, options)` where it takes options.
      step: `(key, state, action, params) -> (state, obs, reward, terminated, truncated, info)`.
      params: a pytree of numbers: the default parameters.
      observation_space: of its observations.
      action_space: of its actions.
      max_episode_steps: the time limit that `vectorize` sets, steps; None for none.
      persistent: `(ended, fresh) -> state`: carries what survives a reset (a curriculum's counter) over;
        None: nothing does.
      methods: what `env_method` reaches: `name -> (state, params, *args) -> value`, such as action masks.
      render: `(state) -> uint8 [H, W, 3]`; None without pictures.
      metadata: what gymnasium's environments have; its name.
    """

    reset: Callable[..., tuple[State, Any, dict[str, Any]]]
    step: Callable[..., tuple[State, Any, Any, Any, Any, dict[str, Any]]]
    params: Params  # a pytree of numbers: the default parameters
    observation_space: Space[Any]
    action_space: Space[Any]
    max_episode_steps: int | None = None  # the time limit that `vectorize` sets, steps
    persistent: Callable[[State, State], State] | None = None
    methods: Mapping[str, Callable[..., Any]] = {}
    render: Callable[[State], Any] | None = None  # (state) -> uint8 [H, W, 3]
    metadata: Mapping[str, Any] = {}


class BatchedEnv(NamedTuple):
    """N environments, as pure functions on one state; row i is environment i.

    `keys` are `[N]` row keys (`jaxvec.random.keys_from(key, N)`), so that a row's trace does not depend
    on N.

    Attributes:
      reset: `(keys, options=None) -> (state, timestep)`: all rows start, all statistics are new.
      reset_rows: `(state, mask, keys, options=None) -> (state, timestep)`. Rows where the mask (bool `[N]`)
        holds start anew, the others and all statistics stay as they are; the timestep is to be read where
        `first` holds. With keys for all rows, nothing that follows depends on the keys before.
      step: `(state, actions) -> (state, timestep)`; actions `[N, *A]`.
      spec: N, and the spaces of one environment.
      end_rollout: `(state) -> state`: see `Transform`.
      env: the environment that all rows are copies of; None where there is none.
    """

    reset: Callable[..., tuple[PyTree, Timestep]]
    reset_rows: Callable[..., tuple[PyTree, Timestep]]
    step: Callable[[PyTree, Array], tuple[PyTree, Timestep]]  # (state, actions [N, *A])
    spec: VecSpec
    end_rollout: Callable[[PyTree], PyTree] = nothing_to_merge
    env: Env[Any, Any] | None = None  # the environment all rows are copies of


def check_batched(where: str, env: object) -> None:
    """Refuses what is not N environments yet.

    Raises:
      TypeError: if it is no `BatchedEnv`.
    """
    if not isinstance(env, BatchedEnv):
        raise TypeError(
            f"{where}: env is {_described(env)}, but it must be a BatchedEnv: pass "
            f"vectorize(env, num_envs), or what wrap makes of that.{_advice(env)}"
        )


def check_single(where: str, env: object) -> Env[Any, Any]:
    """Returns one environment, after a look that the parts of its record are what they must be.

    Returns:
      The environment, its `methods` and `metadata` mappings where they were None.

    Raises:
      TypeError: if it is no `Env`, or a part of it is of a wrong kind.
    """
    if not isinstance(env, Env):
        raise TypeError(
            f"{where}: env is {_described(env)}, but it must be a jaxvec.Env, such as "
            f'jaxvec.envs.make("CartPole-v1").{_advice(env)}'
        )
    if any(part is None for part in (env.metadata, env.methods)):
        env = env._replace(metadata=env.metadata or {}, methods=env.methods or {})
    for kind, fits, names in _PARTS:
        for name in names:
            value = getattr(env, name)
            if not fits(value):
                raise TypeError(f"{where}: env.{name} is {value!r}, but it must be {kind}.")
    return env


def name_of(env: Env[Any, Any]) -> str:
    """Returns what messages and reports call an environment."""
    own = getattr(env.reset, "__qualname__", "the environment")
    return str((env.metadata or {}).get("name", own))


_PARTS: tuple[tuple[str, Callable[[Any], bool], tuple[str, ...]], ...] = (
    ("a function", callable, ("reset", "step")),
    ("a function or None", lambda part: part is None or callable(part), ("persistent", "render")),
    (
        "a gymnasium space; jaxvec.spaces.to_gymnasium_space converts others",
        lambda part: isinstance(part, Space),
        ("observation_space", "action_space"),
    ),
    ("a dict or None", lambda part: isinstance(part, Mapping), ("methods", "metadata")),
)
"""What the parts of an environment's record must be: in words, as a look, and which."""


def _described(env: object) -> str:
    if env is None or isinstance(env, str):
        return repr(env)
    if inspect.isclass(env) or inspect.isroutine(env):
        return f"the {'class' if inspect.isclass(env) else 'function'} {env.__qualname__}"
    return type(env).__name__


def _advice(env: object) -> str:
    if inspect.isclass(env) or inspect.isroutine(env):
        return " If that makes an environment, call it first."
    if isinstance(env, BatchedEnv):
        return " These are many environments already: wrap puts layers on them."
    if isinstance(env, str):
        return " make(id) makes an environment of its id."
    if isinstance(env, gymnasium.Env):
        return " DummyVecEnv and SubprocVecEnv step classic environments."
    return ""
