"""From one environment to N: vmap, then the time limit, then the reset of the rows that ended."""

import warnings
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode

from jaxvec.core._arguments import check_count, check_one_of
from jaxvec.core._transform import Timestep, VecSpec
from jaxvec.core._xp import expand_mask, is_array
from jaxvec.envs._env import BatchedEnv, Env, check_single, name_of
from jaxvec.envs._resets import RESET_SOURCES, Opening, ResetPool, ResetSource, deal, first_resets
from jaxvec.envs._rows import KeyKind, Rows, Stepped
from jaxvec.typing import Action, Array, Key, PyTree

_KEY_KINDS: tuple[KeyKind, ...] = ("hash", "threefry2x32", "raw")


class EnvState(NamedTuple):
    """All that `vectorize` keeps between steps, N rows each.

    Attributes:
      env: `[N, ...]`, the environments' own states.
      steps: int32 `[N]`, steps of the running episode.
      keys: `[N]` typed keys; all that a row draws follows from its own.
      clock: uint32 `[N]`, steps since the row got its key.
      params: `[N, ...]` or `[...]` leaf by leaf; None where the defaults are compiled in.
      resets: what "cached" and "pool" resets are taken from.
      parity: int32 `[]`, 0 and 1 in turn.
      ended: (terminated, truncated), bool `[N]`; None in SAME_STEP mode.
      obs: `[N, ...]`, the last observations; None unless in DISABLED mode.
    """

    env: PyTree  # [N, ...]: the environments' own states
    steps: Array  # int32 [N]: steps of the running episode
    keys: Key  # [N] typed keys; all that a row draws follows from its own
    clock: Array  # uint32 [N]: steps since the row got its key
    params: PyTree  # [N, ...] or [...] leaf by leaf; None where the defaults are compiled in
    resets: Opening | ResetPool | None  # what "cached" and "pool" resets are taken from
    parity: Array  # int32 []: 0 and 1 in turn (see `Rows.step`)
    ended: tuple[Array, Array] | None  # (terminated, truncated), bool [N]; None in SAME_STEP mode
    obs: PyTree  # [N, ...], the last observations; None unless in DISABLED mode


def vectorize(
    env: Env[Any, Any],
    num_envs: int,
    *,
    max_episode_steps: int | Literal["default"] | None = "default",
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
    reset_source: ResetSource = "fresh",
    pool_size: int = 64,
    action_repeat: int = 1,
    params: PyTree = None,
    prng_impl: KeyKind | None = None,
) -> BatchedEnv:
    """Makes N environments of one; row i depends on key i alone, whatever N is.

    Args:
      env: one environment, which neither resets by itself nor needs a time limit of its own.
      num_envs: N.
      max_episode_steps: the time limit, environment steps: at it an episode that has not terminated
        is truncated. "default" takes the environment's, None sets none.
      autoreset_mode: when a row that ended starts anew: in the "SameStep", in the "NextStep" (whose
        action is not used), or when told to by `reset_rows` ("Disabled").
      reset_source: where an automatic reset comes from: "fresh" draws anew; "cached" goes back to the
        row's first state; "pool" deals from `pool_size` states made at the first reset, for resets that
        are dear (which state a row is dealt depends on which rows of its share, an eighth of all, ended
        too). The whole state is replaced, but for what `env.persistent` carries over.
      pool_size: K, how many states a pool holds.
      action_repeat: how often an action is repeated in one step. Rewards (and `info["metrics"]`) are
        summed; an episode that ends on the way stands still for the rest.
      params: parameters that lie in the state (`EnvState.params`) and may be changed there with nothing
        compiled again; a leaf with a leading `[N]` is per row. None compiles `env.params` in.
      prng_impl: the kind of keys that the environment gets: "hash" (cheap), "threefry2x32", or "raw"
        words of the latter. None takes the first that the environment can be traced with, and warns if
        that is not the first.

    Returns:
      The batched environment. Observations leave in the dtype of their space, rewards as float32.

    Raises:
      TypeError: if `env` is no `Env`, or a part of it is of a wrong kind.
      ValueError: if an option does not exist, a count is none that int32 holds, a parameter does not
        fit, or reset and step disagree.
    """
    env = check_single("vectorize", env)
    num_envs = check_count("vectorize", "num_envs", num_envs)
    pool_size = check_count("vectorize", "pool_size", pool_size)
    action_repeat = check_count("vectorize", "action_repeat", action_repeat)
    limit, name = max_episode_steps, "max_episode_steps"
    if isinstance(limit, str) and limit == "default":
        limit, name = env.max_episode_steps, "env.max_episode_steps"
    limit = None if limit is None else check_count("vectorize", name, limit)
    check_one_of("vectorize", "reset_source", reset_source, RESET_SOURCES)
    check_one_of("vectorize", "prng_impl", prng_impl, (None, *_KEY_KINDS))
    if not isinstance(autoreset_mode, AutoresetMode):
        modes = [mode.value for mode in AutoresetMode]
        check_one_of("vectorize", "autoreset_mode", autoreset_mode, modes)
    mode = AutoresetMode(autoreset_mode)

    def build(kind: KeyKind) -> BatchedEnv:
        rows = Rows(env, num_envs, params, limit, action_repeat, kind)
        if reset_source == "pool" and rows.params_per_row:
            raise ValueError(
                "vectorize: reset_source='pool' makes states before it knows for which row, so "
                "params cannot differ by row; use 'fresh' or 'cached', or one set of params."
            )
        return _batched(rows, mode, reset_source, pool_size)

    if prng_impl is not None:
        return build(prng_impl)
    return _first_that_traces(env, build)


def _first_that_traces(env: Env[Any, Any], build: Callable[[KeyKind], BatchedEnv]) -> BatchedEnv:
    """Builds with the cheapest kind of key that the environment can be traced with."""
    causes: list[Exception] = []
    for kind in _KEY_KINDS:
        try:
            batched = build(kind)
        except Exception as error:  # the environment's code may raise anything
            causes.append(error)
            continue
        if causes:
            cause = str(causes[0]).strip().split("\n")[0][:200]
            warnings.warn(
                f"vectorize: the environment {name_of(env)} cannot be traced with cheap hash keys "
                f"({type(causes[0]).__name__}: {cause}); it gets {kind!r} keys, which are slower. "
                f"Pass prng_impl={kind!r} to choose them without this warning.",
                stacklevel=3,
            )
        return batched
    raise causes[0]


def _batched(
    rows: Rows, mode: AutoresetMode, reset_source: ResetSource, pool_size: int
) -> BatchedEnv:
    num_envs = rows.num_envs
    no = jnp.zeros(num_envs, bool)

    def reset(keys: Key, options: PyTree = None) -> tuple[EnvState, Timestep]:
        keys = rows.row_keys(keys)
        clock = jnp.zeros(num_envs, jnp.uint32)
        opening = rows.reset(_reset_keys(keys, clock), rows.params, options)

        def open_pool(pool_keys: Key) -> Opening:
            return rows.reset(pool_keys, rows.params, options)

        state = EnvState(
            env=opening.env,
            steps=jnp.zeros(num_envs, jnp.int32),
            keys=keys,
            clock=clock,
            params=rows.params,
            parity=jnp.int32(0),
            resets=first_resets(reset_source, pool_size, open_pool, keys, opening),
            ended=None if mode == AutoresetMode.SAME_STEP else (no, no),
            obs=opening.obs if mode == AutoresetMode.DISABLED else None,
        )
        return state, _opened(opening, ~no)

    def reset_rows(
        state: EnvState, mask: Array, keys: Key | None = None, options: PyTree = None
    ) -> tuple[EnvState, Timestep]:
        mask = _checked_mask(mask, num_envs)
        clock, row_keys = state.clock + 1, state.keys
        if keys is not None:
            clock = jnp.zeros_like(clock)
            # A clone: a choice between keys counts as a use of both (`jax_debug_key_reuse`).
            row_keys = jnp.where(mask, rows.row_keys(keys), jax.random.clone(row_keys))
        opening = rows.reset(_reset_keys(row_keys, clock), state.params, options)
        resets = state.resets
        if keys is not None and isinstance(resets, Opening):
            resets = Opening(
                rows.select(mask, opening.env, resets.env),
                _select(mask, opening.obs, resets.obs),
                _select(mask, opening.info, resets.info),
            )
        elif keys is not None and isinstance(resets, ResetPool):

            def open_pool(pool_keys: Key) -> Opening:
                return rows.reset(pool_keys, state.params, options)

            new = first_resets("pool", pool_size, open_pool, row_keys, opening)
            # With new keys for all rows, nothing may follow from the old ones any more.
            resets = _select(mask.all(), new, resets)
        if mode == AutoresetMode.DISABLED:
            opening = opening._replace(obs=_select(mask, opening.obs, state.obs))
        state = state._replace(
            resets=resets,
            env=rows.reopened(mask, opening.env, state.env, state.env),
            steps=jnp.where(mask, 0, state.steps),
            keys=row_keys,
            clock=jnp.where(mask, clock, state.clock),
            ended=None if state.ended is None else tuple(flag & ~mask for flag in state.ended),
            obs=opening.obs if mode == AutoresetMode.DISABLED else None,
        )
        return state, _opened(opening, mask)

    def step(state: EnvState, action: Action) -> tuple[EnvState, Timestep]:
        state = state._replace(clock=state.clock + 1, parity=1 - state.parity)
        keys = jax.vmap(jax.random.fold_in)(state.keys, 2 * state.clock)
        stepped = rows.step(
            keys,
            state.env,
            rows.checked_action(action),
            state.params,
            state.steps,
            always=state.parity < 2,
        )
        if mode == AutoresetMode.DISABLED:
            return _frozen_where_ended(rows, state, stepped)
        if mode == AutoresetMode.NEXT_STEP:
            assert state.ended is not None
            idle = state.ended[0] | state.ended[1]
            state, timestep = _restarted(rows, state, stepped, idle, ended=state.env)
            timestep = _without_transition(timestep, idle)._replace(final_obs=timestep.obs)
            return state._replace(ended=(timestep.terminated, timestep.truncated)), timestep
        done = stepped.terminated | stepped.truncated
        return _restarted(rows, state, stepped, done, ended=stepped.env)

    spec = VecSpec(num_envs, rows.env.observation_space, rows.env.action_space, mode, "jax")

    def trace(keys: Key, action: Action) -> Any:
        return step(reset(keys)[0], action)

    # What cannot be traced shows here, before anybody compiles it.
    jax.eval_shape(trace, rows.example_keys(), jax.eval_shape(rows.example_action))
    return BatchedEnv(reset, reset_rows, step, spec, env=rows.env)


def _restarted(
    rows: Rows, state: EnvState, stepped: Stepped, restart: Array, ended: PyTree
) -> tuple[EnvState, Timestep]:
    """Goes on with the stepped rows, and opens a new episode in those where `restart` holds."""
    state, opening = _next_openings(rows, state, restart)
    state = state._replace(
        env=rows.reopened(restart, opening.env, stepped.env, ended),
        steps=jnp.where(restart, 0, stepped.steps),
    )
    return state, Timestep(
        obs=_select(restart, opening.obs, stepped.obs),
        reward=stepped.reward,
        terminated=stepped.terminated,
        truncated=stepped.truncated,
        # NumPy's, though this is a traced step: every layer then knows that all rows count.
        valid=np.ones(rows.num_envs, bool),
        first=restart,
        final_obs=stepped.obs,
        info=stepped.info,
        reset_info=opening.info,
    )


def _next_openings(rows: Rows, state: EnvState, restart: Array) -> tuple[EnvState, Opening]:
    if isinstance(state.resets, Opening):
        return state, state.resets
    if isinstance(state.resets, ResetPool):
        pool, opening = deal(state.resets, restart)
        return state._replace(resets=pool), opening
    return state, rows.reset(_reset_keys(state.keys, state.clock), state.params)


def _frozen_where_ended(rows: Rows, state: EnvState, stepped: Stepped) -> tuple[EnvState, Timestep]:
    """Goes on with the rows whose episode runs; the others stand still, with their flags up."""
    assert state.ended is not None
    idle = state.ended[0] | state.ended[1]
    obs = _select(idle, state.obs, stepped.obs)
    terminated = jnp.where(idle, state.ended[0], stepped.terminated)
    truncated = jnp.where(idle, state.ended[1], stepped.truncated)
    state = state._replace(
        env=rows.select(idle, state.env, stepped.env),
        steps=jnp.where(idle, state.steps, stepped.steps),
        ended=(terminated, truncated),
        obs=obs,
    )
    return state, Timestep(
        obs=obs,
        reward=jnp.where(idle, 0, stepped.reward),
        terminated=terminated,
        truncated=truncated,
        valid=~idle,
        first=jnp.zeros(rows.num_envs, bool),
        final_obs=obs,
        info=stepped.info,
        reset_info=stepped.info,
    )


def _without_transition(timestep: Timestep, idle: Array) -> Timestep:
    """Takes reward and flags from the rows that were reset instead of stepped."""
    return timestep._replace(
        reward=jnp.where(idle, 0, timestep.reward),
        terminated=timestep.terminated & ~idle,
        truncated=timestep.truncated & ~idle,
        valid=~idle,
    )


def _opened(opening: Opening, first: Array) -> Timestep:
    """Returns the timestep of a reset of the rows where `first` holds."""
    no = jnp.zeros_like(first)
    return Timestep(
        obs=opening.obs,
        reward=jnp.zeros(first.shape, jnp.float32),
        terminated=no,
        truncated=no,
        valid=no,
        first=first,
        final_obs=opening.obs,
        info=opening.info,
        reset_info=opening.info,
    )


def _reset_keys(keys: Key, clock: Array) -> Key:
    # Odd numbers are resets, even ones steps; 0 is left to the layers above (`wrap`).
    return jax.vmap(jax.random.fold_in)(keys, 2 * clock + 1)


def _select(mask: Array, chosen: PyTree, other: PyTree) -> PyTree:
    return jax.tree.map(lambda new, old: jnp.where(expand_mask(mask, old), new, old), chosen, other)


def _checked_mask(mask: Array, num_envs: int) -> Array:
    mask = mask if is_array(mask) else np.asarray(mask)
    if mask.shape != (num_envs,) or mask.dtype != bool:
        raise ValueError(
            f"reset_rows: mask={mask!r} came; it must be bool of shape ({num_envs},), True for the rows "
            "that start anew."
        )
    return jnp.asarray(mask)
