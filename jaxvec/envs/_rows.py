"""N copies of one environment, stepped and reset raw: vmap, parameters, time limit, action repeat.

Nothing here decides when a row starts anew; that is `_vectorize.py`.
"""

import inspect
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from jaxvec.core._xp import expand_mask
from jaxvec.envs._avals import cast, common_avals, observation_dtypes
from jaxvec.envs._env import Env
from jaxvec.envs._resets import Opening
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
        self.env, self.num_envs, self.params = env, num_envs, params
        self.key_kind: KeyKind = key_kind
        self._limit, self._repeat = limit, action_repeat
        self._params_axes = None if params is None else _params_axes(env.params, params, num_envs)
        self._takes_options = len(inspect.signature(env.reset).parameters) > 2
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

        def one(key: Key, params: PyTree) -> Any:
            state, obs, info = self.env.reset(self._handed(key), params, *rest)
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
          action: `[N, *A]`.
          params: the parameters, or None where they are compiled in.
          steps: int32 `[N]`, steps of the episodes so far.
          always: bool `[]`, True, but not so that a compiler could tell. On a CPU, XLA computes cheap
            operations anew in every kernel that reads them, the whole physics in each of several; a
            condition it cannot foresee makes it keep the results (Acrobot 91 to 40 ns a step and row,
            Pendulum 50 to 9, with observations collected at N=16384).
        """
        params, axes = self._params_of(params)

        def one(key: Key, env: PyTree, action: Action, params: PyTree, steps: Array) -> Stepped:
            stepped = self._step_once(key, env, action, params, steps)
            for repeat in range(1, self._repeat):
                again = self._step_once(
                    jax.random.fold_in(key, repeat), stepped.env, action, params, stepped.steps
                )
                stepped = _repeated(stepped, again)
            return stepped

        def all_rows(*columns: Any) -> Stepped:
            stepped: Stepped = jax.vmap(one, (0, 0, 0, axes, 0))(*columns)
            return stepped

        columns = (keys, env, action, params, steps)
        if jax.default_backend() != "cpu":
            return all_rows(*columns)
        avals = jax.eval_shape(all_rows, *columns)
        stepped: Stepped = jax.lax.cond(
            always, all_rows, lambda *_: jax.tree.map(_blank, avals), *columns
        )
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
            opening = jax.vmap(self.env.persistent)(ended, opening)

        def each(new: Array, old: Array, has_rows: bool) -> Array:
            # Some libraries batch a part of their state by a rule of their own, without an axis for
            # the rows: such a leaf cannot be replaced row by row and keeps the stepped value.
            return jnp.where(expand_mask(mask, old), new, old) if has_rows else old

        return jax.tree.map(each, opening, other, self._has_rows)

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
        self, key: Key, env: PyTree, action: Action, params: PyTree, steps: Array
    ) -> Stepped:
        env, obs, reward, terminated, truncated, info = self.env.step(
            self._handed(key), env, action, params
        )
        steps = steps + 1
        terminated, truncated = jnp.asarray(terminated, bool), jnp.asarray(truncated, bool)
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

    def _find_avals(self) -> None:
        name = self.env.metadata.get("name", "the environment")
        key = jax.eval_shape(lambda: self._handed(self.row_keys(self.example_keys())[0]))
        action = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype),
            jax.eval_shape(self.example_action),
        )
        params = self.env.params
        if self.params is not None:
            params = jax.tree.map(
                lambda leaf, axis: leaf if axis is None else leaf[0],
                self.params,
                self._params_axes,
                is_leaf=lambda x: x is None,
            )
        # Parameters are closed over: where they are compiled in, Python may branch on them.
        opened = jax.eval_shape(lambda key: self.env.reset(key, params), key)
        stepped = jax.eval_shape(
            lambda key, state, action: self.env.step(key, state, action, params),
            *(key, opened[0], action),
        )
        _check_lengths(name, opened, stepped)
        self._env_dtypes = common_avals(f"the state of {name}", opened[0], stepped[0])
        self._info_dtypes = common_avals(f"the info of {name}", opened[2], stepped[5])
        space = self.env.observation_space
        self._obs_dtypes = observation_dtypes(f"reset of {name}", space, opened[1])
        observation_dtypes(f"step of {name}", space, stepped[1])
        keys = jax.eval_shape(lambda: self.row_keys(self.example_keys()))
        rows = jax.eval_shape(lambda k: self.reset(k, self.params).env, keys)
        self._has_rows = jax.tree.map(
            lambda row, one: row.shape == (self.num_envs, *one.shape), rows, opened[0]
        )


def _blank(aval: Any) -> Array:
    """Returns an array of that shape and dtype, of keys too; what is in it does not matter."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        words = jax.eval_shape(jax.random.key_data, aval)
        blank = jnp.zeros(words.shape, words.dtype)
        return jax.random.wrap_key_data(blank, impl=jax.random.key_impl(aval))
    return jnp.zeros(aval.shape, aval.dtype)


def _repeated(stepped: Stepped, again: Stepped) -> Stepped:
    """Adds a repetition of the action to what came before, unless the episode had ended by then."""
    over = stepped.terminated | stepped.truncated
    reward = stepped.reward + jnp.where(over, 0, again.reward)
    merged: Stepped = jax.tree.map(lambda old, new: jnp.where(over, old, new), stepped, again)
    info = merged.info
    if isinstance(info, dict) and "metrics" in info:
        metrics = jax.tree.map(
            lambda old, new: old + jnp.where(over, 0, new),
            stepped.info["metrics"],
            again.info["metrics"],
        )
        info = {**info, "metrics": metrics}
    return merged._replace(reward=reward, info=info)


def _params_axes(default: PyTree, params: PyTree, num_envs: int) -> PyTree:
    """Returns 0 for every parameter that has one value per row, None for a shared one.

    Raises:
      ValueError: if a parameter has neither its default's shape nor that with a leading N.
    """
    wanted: Any = jax.tree.structure(default)
    given: Any = jax.tree.structure(params)
    if wanted != given:
        raise ValueError(
            f"vectorize: params have the structure {given}; this environment's are {wanted}. Start "
            "from env.params and replace fields."
        )

    def each(path: Any, wanted: Any, given: Any) -> int | None:
        shape, got = jnp.shape(wanted), jnp.shape(given)
        if got == shape:
            return None
        if got == (num_envs, *shape):
            return 0
        raise ValueError(
            f"vectorize: params{jax.tree_util.keystr(path)} has shape {got}; it needs {shape} for all "
            f"rows together, or {(num_envs, *shape)} for one value per row."
        )

    return jax.tree_util.tree_map_with_path(each, default, params)


def _check_lengths(name: str, opened: Any, stepped: Any) -> None:
    if len(opened) != 3 or len(stepped) != 6:
        raise ValueError(
            f"{name}: reset returns {len(opened)} values and step {len(stepped)}; they must return "
            "(state, obs, info) and (state, obs, reward, terminated, truncated, info)."
        )
