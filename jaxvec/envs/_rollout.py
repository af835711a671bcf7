"""Many steps of many environments in one compiled `lax.scan`."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun

from jaxvec.core._arguments import check_count, check_flag
from jaxvec.core._transform import Timestep, VecSpec
from jaxvec.core._xp import is_array, is_key, is_traced
from jaxvec.envs._avals import cast
from jaxvec.envs._env import BatchedEnv, check_batched
from jaxvec.envs._progress import Bar, find_tqdm, scan_with_bar
from jaxvec.random import keys_from
from jaxvec.spaces import sample
from jaxvec.typing import Action, Array, Key, Obs, PyTree

PolicyFunction = Callable[[Key, Obs], Action]
"""A policy without a state: `(key, obs) -> action`, for all rows at once."""


class Policy(NamedTuple):
    """A policy with a state of its own, such as a recurrent one.

    Attributes:
      init: `(key, spec) -> policy_state`.
      act: `(policy_state, key, obs, first) -> (policy_state, action)`; `first` (bool `[N]`) opens episodes.
    """

    init: Callable[[Key, VecSpec], PyTree]
    act: Callable[[PyTree, Key, Obs, Array], tuple[PyTree, Action]]


class Carry(NamedTuple):
    """Where a rollout stands: hand it to the next one as `start` to go on.

    What a layer keeps as its state and hands out as the observation (a frame stack) is one array: to
    change one without the other has no effect.

    Attributes:
      env_state: of the environments and their layers.
      obs: `[N, *D]`, what the policy sees next.
      first: bool `[N]`: it opens an episode.
      policy_state: of a `Policy`; () for a function.
      key: what the following steps draw from.
    """

    env_state: PyTree
    obs: Obs  # [N, *D], what the policy sees next
    first: Array  # bool [N]
    policy_state: PyTree
    key: Key


Collect = Callable[[Obs, Action, Timestep], Any]
"""`(obs, action, timestep) -> what is kept of one step`."""

Kept = TypeVar("Kept")


@overload
def rollout(
    env: BatchedEnv,
    policy: PolicyFunction | Policy,
    key: Key,
    num_steps: int,
    *,
    start: Carry | None = None,
    collect: None = None,
    progress: bool = False,
) -> tuple[Carry, tuple[Obs, Action, Timestep]]: ...


@overload
def rollout(
    env: BatchedEnv,
    policy: PolicyFunction | Policy,
    key: Key,
    num_steps: int,
    *,
    start: Carry | None = None,
    collect: Callable[[Obs, Action, Timestep], Kept],
    progress: bool = False,
) -> tuple[Carry, Kept]: ...


def rollout(
    env: BatchedEnv,
    policy: PolicyFunction | Policy,
    key: Key,
    num_steps: int,
    *,
    start: Carry | None = None,
    collect: Collect | None = None,
    progress: bool = False,
) -> tuple[Carry, Any]:
    """Rolls a policy out, in one `lax.scan`.

    It may be called under `jit`, `vmap` (over `key`, for seeds) and on sharded states. Called from
    Python it compiles itself, once for the same environment, policy and length, chunks included.
    What a policy function reads from outside is then compiled in: numbers that change from chunk to
    chunk, such as weights, belong in a `Policy`'s state (`start._replace(policy_state=...)`).

    >>> import jax
    >>> from jaxvec import rollout, vectorize, random_policy
    >>> from jaxvec.envs import make
    >>> env = vectorize(make("CartPole-v1"), 8)
    >>> carry, (obs, action, timestep) = rollout(env, random_policy(env), jax.random.key(0), 100)
    >>> obs.shape, timestep.reward.shape
    ((100, 8, 4), (100, 8))

    Args:
      env: N environments.
      policy: `policy(key, obs) -> action`, or a `Policy` with a state.
      key: one key, of which rows, policy and steps get their own; not read where `start` is given.
      num_steps: T.
      start: where an earlier rollout stopped; None resets all rows first.
      collect: reduces each step inside the scan, so that long rollouts hold no `[T, N]` arrays.
      progress: show a bar while it runs, by about a hundred callbacks to the host of about a millisecond
        each: for rollouts that take ten seconds and more. What comes out is the same. Without it the
        compiled program knows nothing of a bar.

    Returns:
      The carry to go on from, and `(obs, action, timestep)` with leaves `[T, N, ...]`: `obs` is what the
      policy saw, `timestep` what its action led to. With `collect`, what that returned, leaves `[T, ...]`.

    Raises:
      ValueError: if `num_steps` is no whole number from 1 on, `start` belongs to another environment, or
        the actions have other shapes than the action space asks for.
      TypeError: if `env` is no `BatchedEnv`, `key` not one key, `start` no `Carry`, `policy` or `collect`
        cannot be called or hashed, or the state of a policy changes its type from step to step.
      MissingExtraError: if there shall be a bar, and tqdm is not installed.
    """
    check_batched("rollout", env)
    check_flag("rollout", "progress", progress)
    if progress:
        find_tqdm()
    num_steps = check_count("rollout", "num_steps", num_steps)
    _check_policy("rollout", policy)
    if collect is not None:
        _check_function("rollout", "collect", collect, "a function (obs, action, timestep)")
    if start is None:
        start = _begun("rollout", env, policy, key)
    elif not isinstance(start, Carry):
        raise TypeError(
            f"rollout: start is of type {type(start).__name__}, but it must be a Carry: the first that an "
            "earlier rollout returned, or what `begin` makes."
        )
    # Under a trace there is nothing to keep: what the policy closes over may be tracers.
    ambient = jnp.zeros(())  # a tracer while a function is staged, though nothing came in as one
    staged = any(is_traced(leaf) for leaf in jax.tree.leaves((ambient, start)))
    scan = _scan.__wrapped__ if staged else _scan
    return scan(env.reset, env.step, env.end_rollout, policy, num_steps, collect, progress)(start)


def begin(env: BatchedEnv, policy: PolicyFunction | Policy, key: Key) -> Carry:
    """Resets all rows: the `start` of a first rollout, where that is wanted on its own.

    Args:
      env: N environments.
      policy: what is going to act; its state, if it has one, starts here.
      key: one key, as for `rollout`, which begins from the same carry.
    """
    check_batched("begin", env)
    _check_policy("begin", policy)
    return _begun("begin", env, policy, key)


def random_policy(env: BatchedEnv) -> PolicyFunction:
    """Returns the policy that draws every action from the action space, as gymnasium's `sample` does.

    Args:
      env: N environments; their space is that above all layers.
    """
    check_batched("random_policy", env)
    space, num_envs = env.spec.action_space, env.spec.num_envs

    def policy(key: Key, obs: Obs) -> Action:
        del obs
        return sample(key, space, num_envs)

    return policy


def _check_policy(where: str, policy: object) -> None:
    wanted = "a function (key, obs) -> action, such as random_policy(env), or a jaxvec.Policy"
    for part in policy if isinstance(policy, Policy) else (policy,):
        _check_function(where, "policy", part, wanted)


def _check_function(where: str, name: str, value: object, wanted: str) -> None:
    if not callable(value):
        raise TypeError(f"{where}: {name} is {value!r}, but it must be {wanted}.")
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(
            f"{where}: {name} is {type(value).__name__}, which cannot be hashed ({error}), so that the "
            "program compiled for it could not be found again. Pass a function or a method; what a "
            "policy has learnt may lie in the state of a jaxvec.Policy."
        ) from None


def _check_key(where: str, key: Any) -> None:
    raw = is_array(key) and key.dtype == np.uint32 and key.ndim == 1
    if raw or (is_key(key) and key.ndim == 0):
        return
    came = f"an array of shape {key.shape} and dtype {key.dtype}" if is_array(key) else repr(key)
    raise TypeError(f"{where}: key is {came}, but it must be one key, such as jax.random.key(0).")


def _begun(where: str, env: BatchedEnv, policy: PolicyFunction | Policy, key: Key) -> Carry:
    _check_key(where, key)
    reset_key, policy_key, loop_key = jax.random.split(key, 3)
    env_state, timestep = _compiled(env.reset)(keys_from(reset_key, env.spec.num_envs))
    policy_state = policy.init(policy_key, env.spec) if isinstance(policy, Policy) else ()
    # A Python number would give way to the type of what follows, and compile the next chunk anew.
    policy_state = jax.tree.map(lambda leaf: cast(leaf, jnp.result_type(leaf)), policy_state)
    return Carry(env_state, timestep.obs, timestep.first, policy_state, loop_key)


# The caches hold the compiled programs of the last few environments and policies; functions are
# compared by identity, so a lambda made anew for each call compiles anew.
@lru_cache(maxsize=32)
def _compiled(reset: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(reset)


@lru_cache(maxsize=32)
def _scan(
    reset: Callable[..., Any],
    step: Callable[..., Any],
    end_rollout: Callable[..., Any],
    policy: PolicyFunction | Policy,
    num_steps: int,
    collect: Collect | None,
    progress: bool,
) -> Callable[[Carry], tuple[Carry, Any]]:
    def body(carry: Carry, _: None) -> tuple[Carry, Any]:
        key, act_key = jax.random.split(carry.key)
        if isinstance(policy, Policy):
            policy_state, action = policy.act(carry.policy_state, act_key, carry.obs, carry.first)
        else:
            policy_state, action = (), policy(act_key, carry.obs)
        env_state, timestep = step(carry.env_state, action)
        kept = (carry.obs, action, timestep)
        if collect is not None:
            kept = collect(*kept)
        return Carry(env_state, timestep.obs, timestep.first, policy_state, key), kept

    @jax.jit
    def run(start: Carry) -> tuple[Carry, Any]:
        num_envs = start.first.shape[0]
        opening, opened = jax.make_jaxpr(
            lambda key: _opened(reset, keys_from(key, num_envs)), return_shape=True
        )(start.key)
        found: Any = jax.tree.structure(start[:2])
        wanted: Any = jax.tree.structure(opened[:2])
        if found != wanted:
            raise ValueError(
                f"rollout: start is a carry of another environment or of other layers: its state and "
                f"observation are {found}, those of this environment {wanted}. Begin without a start, or "
                "build the environment and its layers as they were."
            )
        scan: Any = jax.lax.scan
        if progress:
            scan = partial(scan_with_bar, bar=Bar(num_steps, num_envs))
        carry, kept = _scan_once_each(scan, body, start, num_steps, opening.jaxpr.outvars)
        return carry._replace(env_state=end_rollout(carry.env_state)), kept

    return run


def _opened(reset: Callable[..., Any], keys: Key) -> Any:
    env_state, timestep = reset(keys)
    return env_state, timestep.obs, timestep.first


def _scan_once_each(
    scan: Callable[..., tuple[Any, Any]],
    body: Callable[[Carry, None], tuple[Carry, Any]],
    start: Carry,
    num_steps: int,
    opening: Sequence[Any],
) -> tuple[Carry, Any]:
    """`lax.scan`, but arrays that both a reset and a step return twice are carried once.

    A frame stack is the layer's state and the next observation at once; XLA would copy it for each.

    Args:
      scan: `lax.scan`, or what does the same and more.
      body: one step.
      start: the carry before it.
      num_steps: T.
      opening: the variables that a reset returns as the first leaves of the carry. What is one array
        after a step only may start as two (a layer that smooths, and hands out the first as it came).
    """
    leaves, structure = jax.tree.flatten(start)
    closed, (carry_shape, kept_shape) = jax.make_jaxpr(
        lambda *leaves: body(jax.tree.unflatten(structure, leaves), None), return_shape=True
    )(*leaves)
    found: Any = jax.tree.structure(carry_shape)
    if found != structure or closed.out_avals[: len(leaves)] != closed.in_avals:
        return scan(body, start, None, num_steps)  # it says what is wrong, or promotes it
    names = [
        (id(output), id(opening[index]) if index < len(opening) else index)
        for index, output in enumerate(closed.jaxpr.outvars[: len(leaves)])
    ]
    first_of: dict[Any, int] = {}
    sources = [first_of.setdefault(name, index) for index, name in enumerate(names)]
    carried = sorted(set(sources))
    place = [carried.index(source) for source in sources]
    step = jaxpr_as_fun(closed)

    def narrow_body(narrow: list[Any], _: None) -> tuple[list[Any], list[Any]]:
        results = step(*(narrow[index] for index in place))
        return [results[index] for index in carried], results[len(leaves) :]

    narrow, kept = scan(narrow_body, [leaves[index] for index in carried], None, num_steps)
    carry = jax.tree.unflatten(structure, [narrow[index] for index in place])
    return carry, jax.tree.unflatten(jax.tree.structure(kept_shape), kept)
