"""N copies of one environment, stepped and reset raw: vmap, parameters, time limit, action repeat.

Nothing here decides when a row starts anew; that is `_vectorize.py`.
"""

import inspect
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxvec.core._xp import expand_mask
from jaxvec.envs._avals import (
    cast,
    check_returned,
    check_single,
    common_avals,
    holds,
    observation_dtypes,
    strong,
)
from jaxvec.envs._barrier import computed_once
from jaxvec.envs._env import Env, name_of
from jaxvec.envs._params import one_of_params, params_axes, strong_params
from jaxvec.envs._resets import Opening
from jaxvec.envs._scatter import caller
from jaxvec.random import as_impl, hash_key, keys_from
from jaxvec.spaces import sample
from jaxvec.typing import Action, Array, Key, PyTree

KeyKind = Literal["hash", "threefry2x32", "raw"]


class Stepped(NamedTuple):
    """What one step of all rows led to, before anything is reset."""

    env: PyTree  # [N, ...]
    obs: PyTree  # [N, *D]
    reward: Array  # float32 [N]
    terminated: Array  # bool [N]
    truncated: Array  # bool [N], never where `terminated`
    info: PyTree  # [N, ...]
    steps: Array  # int32 [N], steps of the episode so far


class Rows:
    """The raw functions of N environments, with the dtypes that their leaves have for good."""

    def __init__(
        self,
        env: Env[Any, Any],
        num_envs: int,
        params: PyTree,
        limit: int | None,
        action_repeat: int,
        key_kind: KeyKind,
    ) -> None:
        self.env, self.num_envs, self.params = env, num_envs, None
        self.key_kind: KeyKind = key_kind
        self._limit, self._repeat = limit, action_repeat
        self._params_axes = None
        if params is not None:
            self._params_axes = params_axes(env.params, params, num_envs)
            self.params = strong_params(env.params, params)
        self._takes_options = _takes_options(env.reset)
        self._actions = jax.eval_shape(self.example_action)
        self._find_avals()

    @property
    def params_per_row(self) -> bool:
        """Whether some parameter differs by row."""
        return 0 in jax.tree.leaves(self._params_axes)

    def row_keys(self, keys: Key) -> Key:
        """Returns the rows' keys as typed keys of the kind that the environment gets.

        Raises:
          ValueError: if there are not N of them.
        """
        keys = as_impl(keys, "threefry2x32" if self.key_kind == "raw" else self.key_kind)
        if keys.shape != (self.num_envs,):
            raise ValueError(
                f"reset: keys of shape {keys.shape} came, but {self.num_envs} environments need one "
                f"each: pass jaxvec.random.keys_from(key, {self.num_envs})."
            )
        return keys

    def reset(self, keys: Key, params: PyTree, options: PyTree = None) -> Opening:
        """Opens one episode per key; `keys` may be more or fewer than N where params are shared."""
        if options is not None and not self._takes_options:
            raise ValueError(
                f"reset: options={options!r} came, but this environment's reset takes none "
                "(its signature is reset(key, params))."
            )
        rest = () if options is None else (options,)
        call = caller(keys)

        def one(key: Key, params: PyTree) -> Any:
            state, obs, info = call(
                lambda key: self.env.reset(key, params, *rest), self._handed(key)
            )
            return Opening(
                cast(state, self._env_dtypes),
                cast(obs, self._obs_dtypes),
                cast(info, self._info_dtypes),
            )

        params, axes = self._params_of(params)
        opening: Opening = jax.vmap(one, (0, axes))(keys, params)
        return opening

    def step(
        self,
        keys: Key,
        env: PyTree,
        action: Action,
        params: PyTree,
        steps: Array,
        always: Array,
    ) -> Stepped:
        """Steps every row, up to the end of its episode if the action is repeated beyond it.

        Args:
          keys: `[N]`, one per row.
          env: the environments' states, `[N, ...]`.
          action: `[N, *A]`, checked.
          params: the parameters, or None where they are compiled in.
          steps: int32 `[N]`, steps of the episodes so far.
          always: bool `[]`, True, but not so that a compiler could tell (see `computed_once`).
        """
        columns: tuple[Any, ...] = (keys, env, action, steps)
        axes: tuple[Any, ...] = (0, 0, 0, 0)
        if self._params_axes is not None:
            columns, axes = (*columns, params), (*axes, self._params_axes)

        call = caller(always)

        # Compiled in, parameters are no arguments: Python may branch on them.
        def one(
            key: Key, env: PyTree, action: Action, steps: Array, params: PyTree = self.env.params
        ) -> Stepped:
            stepped = self._step_once(key, env, action, params, steps, call)
            for repeat in range(1, self._repeat):
                again = self._step_once(
                    jax.random.fold_in(key, repeat),
                    stepped.env,
                    action,
                    params,
                    stepped.steps,
                    call,
                )
                stepped = self._repeated(stepped, again)
            return stepped

        def all_rows(*columns: Any) -> Stepped:
            stepped: Stepped = jax.vmap(one, axes)(*columns)
            return stepped

        stepped: Stepped = computed_once(all_rows, always, *columns)
        return stepped

    def reopened(self, mask: Array, opening: PyTree, other: PyTree, ended: PyTree) -> PyTree:
        """Returns the states of `opening` where the mask holds, else those of `other`.

        Args:
          mask: bool `[N]`.
          opening: fresh states; what persists over a reset is taken from `ended` instead.
          other: the states of the rows that go on.
          ended: the states of the episodes that the openings replace.
        """
        if self.env.persistent is not None:
            opening = cast(jax.vmap(self.env.persistent)(ended, opening), self._env_dtypes)
        return self.select(mask, opening, other)

    def select(self, mask: Array, chosen: PyTree, other: PyTree) -> PyTree:
        """Returns the states of `chosen` where the mask (bool `[N]`, or of one row) holds, else `other`'s.

        Some libraries batch a part of their state by a rule of their own, without an axis for the
        rows: such a leaf cannot be chosen row by row and is that of `other`.
        """

        def each(new: Array, old: Array, has_rows: bool) -> Array:
            return jnp.where(expand_mask(mask, old), new, old) if has_rows else old

        return jax.tree.map(each, chosen, other, self._has_rows)

    def checked_action(self, action: Action) -> Action:
        """Returns the actions as they came, if they are what the action space asks for.

        Whole numbers may be of any width: environments compare and index with them.

        Raises:
          ValueError: if they have another structure or shape: `[N, 1]` for `[N]` would go through most
            environments' arithmetic and give every state one axis more.
          TypeError: if they are floating where the space holds whole numbers: an environment would
            take 0.7 or NaN for some action without a word.
          ValueError: if NumPy's numbers of 64 bits would be cut off.
        """
        wanted: Any = jax.tree.structure(self._actions)
        given: Any = jax.tree.structure(action)
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(action)]
        needed = [leaf.shape for leaf in jax.tree.leaves(self._actions)]
        if wanted != given or shapes != needed:
            raise ValueError(
                f"step: actions {given} of shapes {shapes} came, but {self.num_envs} environments "
                f"need {wanted} of shapes {needed}: one element of {self.env.action_space} each."
            )
        for leaf, like in zip(jax.tree.leaves(action), jax.tree.leaves(self._actions), strict=True):
            if not holds(like.dtype, jnp.result_type(leaf)):
                raise TypeError(
                    f"step: actions of dtype {jnp.result_type(leaf)} came, but {like.dtype} is needed: "
                    f"one element of {self.env.action_space} each. Round or cast them in the policy, as "
                    "in action.astype(int)."
                )
            _check_width(leaf)
        return action

    def example_keys(self) -> Key:
        """Returns N keys, for tracing."""
        return keys_from(hash_key(0), self.num_envs)

    def example_action(self) -> Action:
        """Returns N actions, for tracing."""
        return sample(hash_key(0), self.env.action_space, self.num_envs)

    def _handed(self, key: Key) -> Key:
        return jax.random.key_data(key) if self.key_kind == "raw" else key

    def _params_of(self, params: PyTree) -> tuple[PyTree, PyTree]:
        if self._params_axes is None:
            return self.env.params, None
        return params, self._params_axes

    def _step_once(
        self,
        key: Key,
        env: PyTree,
        action: Action,
        params: PyTree,
        steps: Array,
        call: Callable[..., Any],
    ) -> Stepped:
        env, obs, reward, terminated, truncated, info = call(
            lambda key, env, action: self.env.step(key, env, action, params),
            *(self._handed(key), env, action),
        )
        steps = steps + 1
        terminated, truncated = (
            jnp.asarray(flag).astype(bool).reshape(()) for flag in (terminated, truncated)
        )
        if self._limit is not None:
            truncated = truncated | (steps >= self._limit)
        return Stepped(
            cast(env, self._env_dtypes),
            cast(obs, self._obs_dtypes),
            jnp.asarray(reward).astype(jnp.float32).reshape(()),
            terminated,
            truncated & ~terminated,
            cast(info, self._info_dtypes),
            steps,
        )

    def _repeated(self, stepped: Stepped, again: Stepped) -> Stepped:
        """Adds a repetition of the action to what came before, unless the episode had ended by then."""
        over = stepped.terminated | stepped.truncated

        def held(old: Array, new: Array) -> Array:
            return jnp.where(over, old, new)

        merged: Stepped = jax.tree.map(held, stepped._replace(env=()), again._replace(env=()))
        info = merged.info
        if isinstance(info, dict) and "metrics" in info:
            metrics = jax.tree.map(
                lambda old, new: old + jnp.where(over, 0, new),
                stepped.info["metrics"],
                again.info["metrics"],
            )
            info = {**info, "metrics": cast(metrics, self._info_dtypes["metrics"])}
        return merged._replace(
            env=self.select(over, stepped.env, again.env),
            reward=stepped.reward + jnp.where(over, 0, again.reward),
            info=info,
        )

    def _find_avals(self) -> None:
        name = name_of(self.env)
        key = jax.eval_shape(lambda: self._handed(self.row_keys(self.example_keys())[0]))
        action = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), self._actions
        )
        params = self.env.params
        if self.params is not None:
            params = one_of_params(self.params, self._params_axes)
        # Parameters are closed over: where they are compiled in, Python may branch on them.
        opened = jax.eval_shape(lambda key: self.env.reset(key, params), key)
        check_returned(f"reset of {name}", opened, "(state, obs, info)")
        state = opened[0]
        while True:
            stepped = jax.eval_shape(
                lambda key, state, action: self.env.step(key, state, action, params),
                *(key, state, action),
            )
            check_returned(
                f"step of {name}", stepped, "(state, obs, reward, terminated, truncated, info)"
            )
            self._env_dtypes = common_avals(f"the state of {name}", state, stepped[0])
            before, state = state, strong(state, self._env_dtypes)
            if [x.dtype for x in jax.tree.leaves(before)] == jax.tree.leaves(self._env_dtypes):
                break  # else a leaf got wider, and others may follow from it
        self._info_dtypes = common_avals(f"the info of {name}", opened[2], stepped[5])
        for what, value in zip(("reward", "terminated", "truncated"), stepped[2:5], strict=True):
            check_single(f"step of {name} returns {what}", value)
        space = self.env.observation_space
        self._obs_dtypes = observation_dtypes(f"reset of {name}", space, opened[1])
        observation_dtypes(f"step of {name}", space, stepped[1])
        if self.env.persistent is not None:
            kept = jax.eval_shape(self.env.persistent, state, state)
            common_avals(f"the state of {name}", state, kept, after=("reset", "persistent"))
        keys = jax.eval_shape(lambda: self.row_keys(self.example_keys()))
        rows = jax.eval_shape(lambda k: self.reset(k, self.params).env, keys)
        self._has_rows = jax.tree.map(
            lambda row, one: row.shape == (self.num_envs, *one.shape), rows, opened[0]
        )


def _check_width(action: Any) -> None:
    """Refuses whole numbers of 64 bits that JAX, which holds 32, would cut off."""
    if isinstance(action, np.ndarray) and action.dtype.kind in "iu":
        held = action.astype(jnp.result_type(action))
        if (held != action).any():
            raise ValueError(
                f"step: the actions hold {action[held != action][0]}, which {held.dtype} cannot. Check "
                'the policy, or allow 64 bits: jax.config.update("jax_enable_x64", True).'
            )


def _takes_options(reset: Callable[..., Any]) -> bool:
    """Tells whether a reset can be called as `reset(key, params, options)`."""
    try:
        inspect.signature(reset).bind(None, None, None)
    except TypeError:
        return False
    return True
