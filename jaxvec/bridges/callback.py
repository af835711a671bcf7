"""Classic environments inside compiled programs: any VecEnv as a `BatchedEnv`, by callbacks to the host.

    from_vec_env    a VecEnv (DummyVecEnv, SubprocVecEnv, one of SB3's, a user's own) as a BatchedEnv
    own_errors      what an environment raised, in its own type

A compiled step makes one ordered callback with the actions of all rows, in which there is NumPy only. Rows
cannot be computed twice, so nothing here is pure: the state is a ticket for the next step, no more.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from jaxvec.core._transform import Timestep, VecSpec
from jaxvec.core._xp import map_obs, space_tree
from jaxvec.envs import BatchedEnv
from jaxvec.random import bits_rows, key_words
from jaxvec.typing import Action, Array, Key, Obs, PyTree
from jaxvec.vec import VecEnv
from jaxvec.vec._convert import timestep_of_reset, timestep_of_step

_SEED_SALT = 0x73656564


class CallbackState(NamedTuple):
    """A ticket for the next step; the environments themselves are on the host."""

    ticket: Array  # int32 []: calls of the host so far


def from_vec_env(venv: Any) -> BatchedEnv:
    """Makes N environments of a VecEnv, for `wrap`, `rollout`, `jit` and `scan`.

    >>> import jax, jaxvec
    >>> from jaxvec.bridges.callback import from_vec_env
    >>> venv = jaxvec.vec.make_vec_env("CartPole-v1", n_envs=4)
    >>> env = from_vec_env(venv)
    >>> carry, _ = jaxvec.rollout(env, jaxvec.random_policy(env), jax.random.key(0), 20)
    >>> carry.obs.shape
    (4, 4)
    >>> venv.close()

    A reset seeds row i with `s + i`, where s follows from the first row's key: equal keys give equal
    traces. A step that raises ends the program with a `JaxRuntimeError` that quotes the exception;
    under `own_errors(env)` it is the exception itself.

    The environments are where they are: a state that was stepped once cannot be stepped again (it says
    so), a transformation such as `vmap` that would need more rows than there are raises, and nothing is
    differentiated through it.

    Args:
      venv: N environments with SB3's interface. It is used from the compiled program from now on: to
        step it by hand in between makes the next compiled step start where that ended. Infos stay on
        the host.

    Returns:
      The batched environment. Its `reset_rows` takes some rows alone where the VecEnv's `reset` takes
      indices, as jaxvec's own do.

    Raises:
      TypeError: if it is no VecEnv.
    """
    for name in ("num_envs", "observation_space", "action_space", "reset", "step_async"):
        if getattr(venv, name, None) is None:
            raise TypeError(
                f"from_vec_env: venv={venv!r} has no {name}; it must be a VecEnv, such as "
                "jaxvec.vec.make_vec_env('CartPole-v1', n_envs=4)."
            )
    rows = _HostRows(venv)
    spec = VecSpec(rows.num_envs, venv.observation_space, venv.action_space, backend="jax")
    return BatchedEnv(rows.reset, rows.reset_rows, rows.step, spec)


@contextmanager
def own_errors(env: BatchedEnv) -> Iterator[None]:
    """Raises what an environment raised in its own type, in place of JAX's error that quotes it.

    >>> with own_errors(env):  # doctest: +SKIP
    ...     carry, kept = jaxvec.rollout(env, policy, key, 1000)
    ...     jax.block_until_ready(carry)

    Args:
      env: what `from_vec_env` returned; it may lie beneath layers by now.

    Raises:
      TypeError: if it is something else.
    """
    rows = getattr(getattr(env, "step", None), "__self__", None)
    if not isinstance(rows, _HostRows):
        raise TypeError(
            f"own_errors: env={env!r} was not made by from_vec_env; pass the one beneath the layers."
        )
    rows.failure = None
    try:
        yield
    except jax.errors.JaxRuntimeError:
        if rows.failure is None:
            raise
        raise rows.failure from None


class _HostRows:
    """The environments on the host, and the functions that call them from a compiled program."""

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        self.num_envs: int = venv.num_envs
        self.failure: Exception | None = None
        self._ticket = 0
        self._obs_avals = jax.tree.map(self._column, space_tree(venv.observation_space))
        self._action_dtypes = jax.tree.map(
            lambda leaf: np.dtype(leaf.dtype), space_tree(venv.action_space)
        )

    # In the compiled program ---------------------------------------------------------------------

    def reset(self, keys: Key, options: PyTree = None) -> tuple[CallbackState, Timestep]:
        """Resets all rows; see `BatchedEnv.reset`."""
        _check_no_options(options)
        seed = bits_rows(key_words(keys)[:1], 0, _SEED_SALT)[0] >> 1
        avals = _ticket_aval(), self._obs_avals
        ticket, obs = self._called(self._host_reset, avals, seed)
        return CallbackState(ticket), _opened(obs, jnp.ones(self.num_envs, bool))

    def reset_rows(
        self, state: CallbackState, mask: Array, keys: Key | None = None, options: PyTree = None
    ) -> tuple[CallbackState, Timestep]:
        """Resets the rows where the mask holds; see `BatchedEnv.reset_rows`."""
        _check_no_options(options)
        seed: Any = jnp.int32(-1)
        if keys is not None:
            seed = (bits_rows(key_words(keys)[:1], 0, _SEED_SALT)[0] >> 1).astype(jnp.int32)
        avals = _ticket_aval(), self._obs_avals
        ticket, obs = self._called(self._host_reset_rows, avals, state.ticket, mask, seed)
        return CallbackState(ticket), _opened(obs, jnp.asarray(mask))

    def step(self, state: CallbackState, action: Action) -> tuple[CallbackState, Timestep]:
        """Steps all rows; see `BatchedEnv.step`."""
        flags = jax.ShapeDtypeStruct((self.num_envs,), np.dtype(bool))
        reward = jax.ShapeDtypeStruct((self.num_envs,), np.dtype(np.float32))
        avals = _ticket_aval(), self._obs_avals, reward, flags, flags, self._obs_avals
        ticket, obs, reward, terminated, truncated, final_obs = self._called(
            self._host_step, avals, state.ticket, action
        )
        return CallbackState(ticket), Timestep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            valid=np.ones(self.num_envs, bool),
            first=terminated | truncated,
            final_obs=final_obs,
        )

    def _called(self, function: Callable[..., Any], avals: PyTree, *arguments: Any) -> Any:
        arguments = _one_copy_only(arguments)
        return io_callback(self._guarded(function), avals, *arguments, ordered=True)

    # On the host: NumPy only ---------------------------------------------------------------------

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            try:
                # What comes are JAX arrays; an operation on one in here may wait for itself for ever.
                return function(*jax.tree.map(np.asarray, arguments))
            except Exception as error:
                self.failure = error
                raise

        return call

    def _host_reset(self, seed: Any) -> Any:
        self.venv.seed(int(seed))
        return self._next_ticket(), self._columns(self.venv.reset())

    def _host_reset_rows(self, ticket: Any, mask: Any, seed: Any) -> Any:
        self._check_ticket(ticket)
        if seed >= 0:
            self.venv.seed(int(seed))
        if mask.all():
            obs = self.venv.reset()
        elif isinstance(self.venv, VecEnv):
            obs = self.venv.reset_arrays(np.flatnonzero(mask).tolist()).obs
        else:
            raise NotImplementedError(
                f"from_vec_env: rows {np.flatnonzero(mask).tolist()} of {type(self.venv).__name__} are "
                "to be reset alone, which SB3's VecEnv cannot. Use jaxvec's DummyVecEnv or "
                "SubprocVecEnv, or reset all rows."
            )
        return self._next_ticket(), self._columns(obs)

    def _host_step(self, ticket: Any, action: Any) -> Any:
        self._check_ticket(ticket)
        action = jax.tree.map(lambda leaf, dtype: leaf.astype(dtype), action, self._action_dtypes)
        if isinstance(self.venv, VecEnv):
            timestep = self.venv.step_arrays(action)
        else:
            timestep = timestep_of_step(*self.venv.step(action))
        obs = self._columns(timestep.obs)
        final_obs = obs
        if timestep.final_obs is not None:
            ended = timestep.final_rows

            def spread(column: Any, final: Any) -> Any:
                dense = column.copy()
                dense[slice(None) if ended is None else ended] = final
                return dense

            final_obs = map_obs(spread, obs, timestep.final_obs)
        return (
            self._next_ticket(),
            obs,
            np.asarray(timestep.reward, np.float32),
            np.asarray(timestep.terminated, bool),
            np.asarray(timestep.truncated, bool),
            final_obs,
        )

    def _check_ticket(self, ticket: Any) -> None:
        if int(ticket) != self._ticket:
            raise RuntimeError(
                f"from_vec_env: the state of call {int(ticket)} came, but the environments are at call "
                f"{self._ticket}. They are on the host and cannot go back: step the latest state, or "
                "reset."
            )

    def _next_ticket(self) -> Any:
        self._ticket += 1
        return np.int32(self._ticket)

    def _column(self, leaf: Any) -> jax.ShapeDtypeStruct:
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
        return jax.ShapeDtypeStruct((self.num_envs, *leaf.shape), dtype)

    def _columns(self, obs: Obs) -> Obs:
        """Returns observations in the dtypes that JAX holds, as arrays that nobody writes to again."""
        # Not by jax.tree: SB3's observations may be an OrderedDict, which it holds to be another tree.
        return map_obs(
            lambda aval, leaf: np.array(leaf, aval.dtype).reshape(aval.shape), self._obs_avals, obs
        )


@custom_vmap
def _one_copy_only(arguments: PyTree) -> PyTree:
    """Returns what it is given; under vmap it says why that cannot be."""
    return arguments


@_one_copy_only.def_vmap
def _refuse_vmap(axis_size: int, in_batched: PyTree, arguments: PyTree) -> Any:
    raise NotImplementedError(
        f"from_vec_env: vmap over {axis_size} copies, but the environments exist once, on the host. Make a "
        "VecEnv of as many rows as all copies need together, or loop over the copies in Python."
    )


def _check_no_options(options: PyTree) -> None:
    if options is not None:
        raise ValueError(
            f"from_vec_env: options={options!r} came; set them on the host, by venv.set_options(...), "
            "before the reset."
        )


def _ticket_aval() -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((), np.dtype(np.int32))


def _opened(obs: Obs, first: Array) -> Timestep:
    """Returns the timestep of a reset of the rows where `first` holds."""
    opening = timestep_of_reset(obs, first.shape[0])
    return opening._replace(first=first, final_obs=obs)
