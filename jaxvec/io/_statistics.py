"""Statistics: what normalization has learnt, for any number of environments and either backend."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxvec.core._moments import RunningMoments
from jaxvec.core._statistics import Statistics
from jaxvec.errors import FileFormatError
from jaxvec.io._files import check_same_leaves, opened, write
from jaxvec.io._leaves import Pathlike, decode, encode
from jaxvec.io._trees import leaves_by_path, map_leaves, named
from jaxvec.typing import Array, PyTree


def save_statistics(
    path: Pathlike, state: PyTree, *, metadata: Mapping[str, Any] | None = None
) -> None:
    """Writes the moments in a state to a file: what normalization has learnt, whatever N is.

    What a rollout has set aside and not yet merged (`update="rollout"`) is not in them: call
    `end_rollout` before.

    Args:
      path: the file's name, as for `save`.
      state: the state of a transform, a chain or an environment, or a tree of such.
      metadata: what JSON can hold, as for `save`.

    Raises:
      ValueError: if there are no statistics in the state.
    """
    leaves = {
        f"{where}.{name}": encode(where, field)
        for where, statistics in _statistics_of(state).items()
        for name, field in statistics.moments._asdict().items()
    }
    if not leaves:
        raise ValueError(
            f"save_statistics({os.fspath(path)!r}): the state, a {type(state).__name__}, holds no "
            "statistics: there is no normalize_observation or normalize_reward in it."
        )
    write(path, "statistics", leaves, metadata)


def load_statistics(path: Pathlike, state: PyTree) -> PyTree:
    """Returns a state with the moments of a file of `save_statistics` in place of its own.

    The number of environments may be another, and so may the backend: moments of float64 become pairs
    of float32, and the other way round. Switches, running returns and what is set aside stay.

    Statistics find their layer by its place: in the state of an environment `.layers[1]` under `wrap` or
    `chain`, `.layers['name']` under `named_chain`, `.layers` if it is wrapped alone. The layers between
    may be others, as long as those with statistics stand at the same places. `jaxvec rollout --save-stats`
    names them by their functions:

    >>> import os, tempfile
    >>> import jax, jaxvec
    >>> from jaxvec import named_chain, normalize_observation
    >>> def started(num_envs, **layers):
    ...     env = jaxvec.vectorize(jaxvec.envs.make("Pendulum-v1"), num_envs)
    ...     env = jaxvec.wrap(env, named_chain(**layers))
    ...     return jaxvec.envs.begin(env, jaxvec.random_policy(env), jax.random.key(0)).env_state
    >>> path = os.path.join(tempfile.mkdtemp(), "stats.npz")
    >>> save_statistics(path, started(64, normalize_observation=normalize_observation()))
    >>> list(read_statistics(path))
    [".layers['normalize_observation'].statistics"]
    >>> layers = {"monitor": jaxvec.episode_statistics(), "normalize_observation": normalize_observation()}
    >>> state = load_statistics(path, started(2, **layers))
    >>> round(float(state.layers["normalize_observation"].statistics.moments.count))
    64

    Args:
      path: the file's name.
      state: a state of the same layers over the same spaces.

    Raises:
      FileFormatError: if the file is damaged, no file of `save_statistics`, or has statistics of other
        layers or shapes.
    """
    saved, places = read_statistics(path), _statistics_of(state)
    check_same_leaves(path, set(saved), set(places))

    def visit(where: str, leaf: Any) -> Any:
        if not isinstance(leaf, Statistics):
            return leaf
        words = _in_dtype(saved[where], leaf.moments.mean.dtype)
        fields = zip(RunningMoments._fields, words, leaf.moments, strict=True)
        read = [
            decode(path, f"{where}.{name}", (word, "array"), like) for name, word, like in fields
        ]
        return leaf._replace(moments=RunningMoments(*read))

    return map_leaves(visit, state, stop=Statistics)


def read_statistics(path: Pathlike) -> dict[str, RunningMoments]:
    """Returns the moments in a file of `save_statistics`, as NumPy, by their places in the state.

    Raises:
      FileFormatError: if the file is damaged or no file of `save_statistics`.
    """
    with opened(path, "statistics") as found:
        places = dict.fromkeys(name.rpartition(".")[0] for name in found)
        fields = {f"{place}.{name}" for place in places for name in RunningMoments._fields}
        check_same_leaves(path, set(found), fields)
        return {place: _moments_at(path, place, found) for place in places}


def _moments_at(path: Pathlike, place: str, found: Any) -> RunningMoments:
    moments = RunningMoments(*(found(f"{place}.{name}")[0] for name in RunningMoments._fields))
    if any(word.dtype.kind != "f" for word in moments):
        raise FileFormatError(
            f"{os.fspath(path)}: the moments {named(place)} are of {[str(w.dtype) for w in moments]}, but "
            "they must be floating point: the file was not written by save_statistics."
        )
    return moments


def _statistics_of(state: PyTree) -> dict[str, Statistics]:
    """Returns the statistics in a tree by their places."""
    leaves = leaves_by_path(state, stop=Statistics)
    return {where: leaf for where, leaf in leaves.items() if isinstance(leaf, Statistics)}


def _in_dtype(moments: RunningMoments, dtype: Any) -> RunningMoments:
    """Returns moments in another precision, as the nearest sums of two words."""
    if moments.mean.dtype == dtype:
        return moments
    words: list[tuple[Array, Array]] = []
    for high, low in zip(moments[:3], moments[3:], strict=True):
        value = high.astype(np.float64) + low.astype(np.float64)
        rounded = value.astype(dtype)
        words.append((rounded, (value - rounded).astype(dtype)))
    highs, lows = zip(*words, strict=True)
    return RunningMoments(*highs, *lows)
