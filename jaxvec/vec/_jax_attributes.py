"""What `get_attr`, `set_attr` and `env_method` reach of compiled environments."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from jaxvec.envs import BatchedEnv, EnvState, WrapState
from jaxvec.typing import Array, PyTree
from jaxvec.vec._packing import Packed

_OF_RECORD = ("metadata", "observation_space", "action_space", "max_episode_steps")
"""Fields of the environment's record that are the same for all rows."""


_LEAF = object()


class RowAttributes:
    """Attributes of single rows.

    Args:
      env: the environments.
      packed: their state.
    """

    def __init__(self, env: BatchedEnv, packed: Packed) -> None:
        self._env = env
        self._packed = packed
        self._placement = packed.layout.placement
        self._num_envs = len(self._placement.row_numbers(env.spec.num_envs))
        self._methods: dict[Any, Any] = {}
        self._places: EnvState | None = _env_state(packed.places())

    def get(self, name: str, rows: Sequence[int]) -> list[Any]:
        """Returns an attribute of each of these rows.

        A parameter, or a property of the parameters' record; "params" or "state", the whole record of one
        row; a field of the environment's record; or a method, bound to the row.

        Raises:
          AttributeError: if there is no such attribute; the message lists those that exist.
        """
        env = self._env.env
        if env is not None and name in _OF_RECORD:
            return [getattr(env, name) for _ in rows]
        if env is not None and name in env.methods:
            return [_Bound(self, name, row) for row in rows]
        if name == "state" and self._places is not None:
            return [self.row(row)[0] for row in rows]
        if name not in self.names():
            raise AttributeError(
                f"JaxVecEnv: the environments have no attribute {name!r}; they have {self.names()}."
            )
        params = [
            self._default_params() if self._places is None else self.row(row)[1] for row in rows
        ]
        return params if name == "params" else [_field(record, name) for record in params]

    def put(self, name: str, value: Any, rows: Sequence[int]) -> None:
        """Sets a parameter in these rows; nothing is compiled for it.

        Raises:
          AttributeError: if there is no such parameter, or it cannot be set while the program runs.
          ValueError: if the value has another shape, or the parameter's dtype cannot hold it.
        """
        names = _field_names(self._default_params())
        if name not in names:
            raise AttributeError(
                f"JaxVecEnv: the environments have no parameter {name!r} that could be set; they have "
                f"{names}."
            )
        if self._places is None or self._places.params is None:
            raise AttributeError(
                f"JaxVecEnv: {name!r} cannot be set, because the parameters are compiled in. Build the "
                "environments with vectorize(env, num_envs, params=...): parameters that lie in the "
                "state, each with a leading [num_envs] where rows are to differ."
            )
        marked = jax.tree.map(lambda _: _LEAF, self._default_params())
        if any(leaf is not _LEAF for leaf in jax.tree.leaves(_field(marked, name))):
            raise AttributeError(
                f"JaxVecEnv: {name!r} is fixed when the environment is compiled; make another one."
            )
        places = jax.tree.leaves(_field(self._places.params, name))
        values = jax.tree.leaves(value)
        if len(places) != len(values):
            raise ValueError(f"JaxVecEnv: {name!r} has {len(places)} parts, but {value!r} came.")
        for each, part in zip(places, values, strict=True):
            self._set_leaf(name, each, part, rows)

    def _set_leaf(self, name: str, place: int, value: Any, rows: Sequence[int]) -> None:
        leaf = self._packed.leaf(place)
        shape, dtype = leaf.shape, leaf.dtype
        per_row = place in self._places_per_row()
        if not per_row and len(set(rows)) < self._num_envs:
            raise ValueError(
                f"JaxVecEnv: {name!r} is one number for all environments, so it cannot be set in rows "
                f"{list(rows)} alone. Give vectorize(params=...) one value per row."
            )
        new = np.asarray(value)
        wanted = shape[1:] if per_row else shape
        if new.shape != wanted:
            raise ValueError(
                f"JaxVecEnv: {name!r} has shape {wanted} in each environment, but {value!r} has {new.shape}."
            )
        cast = new.astype(dtype)
        if not np.allclose(cast, new, rtol=1e-6, atol=0, equal_nan=True):
            raise ValueError(f"JaxVecEnv: {name!r} is {dtype}, which cannot hold {value!r}.")
        if per_row:
            leaf[list(rows)] = cast
        else:
            leaf[...] = cast
        self._packed.put(place, leaf)

    def call(self, name: str, rows: Sequence[int], arguments: Any, keywords: Any) -> list[Any]:
        """Calls a method of the environment's record for each of these rows.

        It is compiled, once, unless an argument is something else than numbers and arrays.

        Raises:
          AttributeError: if there is no such method; the message lists those that exist.
        """
        methods = {} if self._env.env is None else self._env.env.methods
        if name not in methods:
            raise AttributeError(
                f"JaxVecEnv: the environments have no method {name!r}; they have {sorted(methods)}. "
                "Methods are functions of the state, which they cannot change: set parameters by set_attr."
            )
        leaves = jax.tree.leaves((arguments, keywords))
        if not all(
            isinstance(leaf, int | float | np.ndarray | np.generic | jax.Array) for leaf in leaves
        ):
            return [self._called_on(methods[name], row, arguments, keywords) for row in rows]
        if name not in self._methods:
            options = self._placement.jit_options(partial(self._placement.sharding, True))
            self._methods[name] = jax.jit(self._over_rows(methods[name]), **options)
        results = jax.tree.map(
            self._placement.fetch, self._methods[name](self._packed.buffers, arguments, keywords)
        )
        return [_row_of(results, row) for row in rows]

    def _over_rows(self, method: Any) -> Any:
        layout, axes = self._packed.layout, self._axes()

        def over_rows(buffers: Any, arguments: Any, keywords: Any) -> PyTree:
            state = _env_state(layout.unpack(buffers))
            if state is None:
                raise AttributeError(
                    "JaxVecEnv: the state of these environments is not vectorize's."
                )
            params = self._default_params() if state.params is None else state.params
            return jax.vmap(
                lambda env, params: method(env, params, *arguments, **keywords), (0, axes)
            )(state.env, params)

        return over_rows

    def _called_on(self, method: Any, row: int, arguments: Any, keywords: Any) -> Any:
        state, params = self.row(row)
        return method(state, params, *arguments, **keywords)

    def row(self, row: int) -> tuple[PyTree, PyTree]:
        """Returns state and parameters of one row; no other row is fetched.

        Raises:
          AttributeError: if the state is not one of `vectorize`.
        """
        if self._places is None:
            raise AttributeError(
                "JaxVecEnv: the state of these environments is not one of vectorize, so that single "
                "rows cannot be told apart in it."
            )
        state = jax.tree.map(lambda place: self._value(place, row), self._places.env)
        if self._places.params is None:
            return state, self._default_params()
        params = jax.tree.map(
            lambda axis, place: self._value(place, None if axis is None else row),
            self._axes(),
            self._places.params,
            is_leaf=lambda x: x is None,
        )
        return state, params

    def names(self) -> list[str]:
        """Returns the names of what `get` knows."""
        env = self._env.env
        names = {"state"} if self._places is not None else set()
        if env is not None:
            names |= {*_OF_RECORD, *env.methods, "params", *_field_names(env.params)}
            names |= {key for key in dir(type(env.params)) if _is_property(env.params, key)}
        return sorted(names)

    def _default_params(self) -> PyTree:
        return None if self._env.env is None else self._env.env.params

    def _axes(self) -> PyTree:
        """Returns 0 for every parameter that has one value per row, None for one that all share."""
        if self._places is None or self._places.params is None:
            return None
        slots = self._packed.layout.slots
        return jax.tree.map(
            lambda default, place: None if slots[place].shape == np.shape(default) else 0,
            self._default_params(),
            self._places.params,
        )

    def _places_per_row(self) -> set[int]:
        assert self._places is not None
        axes = jax.tree.leaves(self._axes(), is_leaf=lambda x: x is None)
        places = jax.tree.leaves(self._places.params)
        return {place for place, axis in zip(places, axes, strict=True) if axis == 0}

    def _value(self, place: int, row: int | None) -> Array:
        value, impl = self._packed.leaf(place, row), self._packed.layout.slots[place].impl
        return value if impl is None else jax.random.wrap_key_data(value, impl=impl)


class _Bound:
    """A method of one row."""

    def __init__(self, attributes: RowAttributes, name: str, row: int) -> None:
        self._attributes, self._name, self._row = attributes, name, row

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._attributes.call(self._name, [self._row], arguments, keywords)[0]


def _env_state(tree: PyTree) -> EnvState | None:
    """Returns the part of a state that `vectorize` keeps, beneath the layers of `wrap`."""
    while isinstance(tree, WrapState):
        tree = tree.env
    return tree if isinstance(tree, EnvState) else None


def _row_of(tree: PyTree, row: int) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[row], tree)


def _field_names(record: PyTree) -> list[str]:
    if isinstance(record, dict):
        return list(record)
    if is_dataclass(record):
        return [field.name for field in fields(record)]
    names: Any = getattr(record, "_fields", ())
    return list(names)


def _field(record: PyTree, name: str) -> Any:
    return record[name] if isinstance(record, dict) else getattr(record, name)


def _is_property(record: Any, name: str) -> bool:
    return isinstance(getattr(type(record), name, None), property)
