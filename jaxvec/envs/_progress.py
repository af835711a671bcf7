"""A bar that moves while a compiled rollout runs.

The host is told about a hundred times how far the loop is. For that the loop is cut into parts, with one
callback in each: to ask in every step whether it is time costs a sixth of a step of CartPole on a CPU, and
on a GPU a wait for the host.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxvec.errors import MissingExtraError
from jaxvec.typing import Array, PyTree

_PARTS = 100


class Bar:
    """Shows how far a rollout is, in environment steps; a new bar each time that it runs.

    It is told where the rollout stands and not how far it came: under `vmap` and on several devices it is
    told more than once.

    Args:
      num_steps: T.
      num_envs: N.

    Raises:
      MissingExtraError: if tqdm is not installed.
    """

    def __init__(self, num_steps: int, num_envs: int) -> None:
        self._make = find_tqdm()
        self._total, self._num_envs = num_steps * num_envs, num_envs
        self._bar: Any = None

    def __call__(self, step: Any) -> None:
        """Moves to a step of the rollout, and ends at the last."""
        now = int(step) * self._num_envs
        if self._bar is None:
            self._bar = self._make(
                total=self._total, unit="step", unit_scale=True, dynamic_ncols=True
            )
        self._bar.update(now - self._bar.n)
        if now == self._total:
            self._bar.close()
            self._bar = None


def find_tqdm() -> Callable[..., Any]:
    """Returns tqdm's bar for a terminal, or for a notebook where there is one.

    Raises:
      MissingExtraError: if it is not installed.
    """
    try:
        from tqdm.auto import tqdm
    except ModuleNotFoundError:
        raise MissingExtraError(
            "rollout: progress=True needs tqdm, which is not installed: pip install 'jaxvec[cli]'."
        ) from None
    found: Callable[..., Any] = tqdm
    return found


def cut(num_steps: int) -> tuple[int, int]:
    """Returns how many steps a part has, and how many parts there are; fewer steps than a part may be left.

    Nothing is left where the length has a divisor to choose: a rest is a second loop to compile, and
    puts its results and the others' together by a copy.

    >>> cut(1000), cut(2048), cut(30), cut(997)
    ((10, 100), (16, 128), (1, 30), (9, 110))
    """
    if num_steps <= _PARTS:
        return 1, num_steps
    even = [parts for parts in range(_PARTS // 2, 2 * _PARTS) if num_steps % parts == 0]
    if even:
        parts = min(even, key=lambda parts: abs(parts - _PARTS))
        return num_steps // parts, parts
    size = num_steps // _PARTS
    return size, num_steps // size


def scan_with_bar(
    body: Callable[[PyTree, None], tuple[PyTree, PyTree]],
    start: PyTree,
    xs: None,
    num_steps: int,
    bar: Callable[[Array], None],
) -> tuple[PyTree, PyTree]:
    """Does as `jax.lax.scan`, without inputs, and tells a bar after each part how far it is."""
    size, parts = cut(num_steps)
    rest = num_steps - size * parts

    def part(carry: PyTree, stop: Array) -> tuple[PyTree, PyTree]:
        carry, kept = jax.lax.scan(body, carry, xs, size)
        jax.debug.callback(bar, stop)
        return carry, kept

    carry, opening = jax.lax.scan(body, start, xs, rest) if rest else (start, None)
    carry, kept = jax.lax.scan(part, carry, rest + size * jnp.arange(1, parts + 1))
    kept = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), kept)
    if rest:
        kept = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), opening, kept)
    return carry, kept
