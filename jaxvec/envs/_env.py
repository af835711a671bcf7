"""The two records of JAX-native environments: one environment, and N of them."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from gymnasium.spaces import Space

from jaxvec.core._transform import Timestep, VecSpec, nothing_to_merge
from jaxvec.typing import Array, PyTree

State = TypeVar("State")
Params = TypeVar("Params")


class Env(NamedTuple, Generic[State, Params]):
    """One environment, as pure functions on one state; `vectorize` makes N of it.

    It must not reset by itself, and need not know of a time limit: `vectorize` does both. `reset` and
    `step` return the same info tree. All that depends on an episode lies in the state.
    """

    reset: Callable[..., tuple[State, Any, dict[str, Any]]]
    """`(key, params) -> (state, obs, info)`, or `(key, params, options)` where it takes options."""

    step: Callable[..., tuple[State, Any, Any, Any, Any, dict[str, Any]]]
    """`(key, state, action, params) -> (state, obs, reward, terminated, truncated, info)`."""

    params: Params  # a pytree of numbers: the default parameters
    observation_space: Space[Any]
    action_space: Space[Any]
    max_episode_steps: int | None = None  # the time limit that `vectorize` sets, steps

    persistent: Callable[[State, State], State] | None = None
    """`(ended, fresh) -> state`: carries what survives a reset (a curriculum's counter) over."""

    methods: Mapping[str, Callable[..., Any]] = {}
    """What `env_method` reaches: `name -> (state, params, *args) -> value`, such as action masks."""

    render: Callable[[State], Any] | None = None  # (state) -> uint8 [H, W, 3]
    metadata: Mapping[str, Any] = {}


class BatchedEnv(NamedTuple):
    """N environments, as pure functions on one state; row i is environment i.

    `keys` are `[N]` row keys (`jaxvec.random.keys_from(key, N)`), so that a row's trace does not depend
    on N.
    """

    reset: Callable[..., tuple[PyTree, Timestep]]
    """`(keys, options=None) -> (state, timestep)`: all rows start, all statistics are new."""

    reset_rows: Callable[..., tuple[PyTree, Timestep]]
    """`(state, mask, keys, options=None) -> (state, timestep)`.

    Rows where the mask (bool `[N]`) holds start anew, the others and all statistics stay as they are;
    the timestep is to be read where `first` holds. With keys for all rows, nothing that follows depends
    on the keys before.
    """

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
            f"{where}: env is {type(env).__name__}, but it must be a BatchedEnv: pass "
            "vectorize(env, num_envs), or what wrap makes of that."
        )
