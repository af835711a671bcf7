"""jaxvec.spaces beside gymnasium's own vector utilities, in one run.

    python examples/benchmarks/spaces.py [--quick]

For 64 environments, with image observations (84x84x4 bytes) and with a Dict of eight small arrays:

- `concatenate` of 64 elements into one batch;
- the write of 64 elements into shared memory, in the ctypes form that gymnasium documents;
- the same into a `SharedBlock` with `write_row`, as a worker of SubprocVecEnv does it.

And for 1000 compiled steps that draw 2048 actions each: `sample` beside `jax.random.randint`. First both must
have written the same.
"""

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium.vector.utils as gym_utils
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space
from shared import Effort, Measured, alone, compared, turns

import jaxvec.spaces

SECTION = "spaces"
NUM_ENVS = 64

SPACES: dict[str, Space[Any]] = {
    "64 images of 84x84x4 bytes": Box(0, 255, (84, 84, 4), np.uint8),
    "64 dicts of 8 small arrays": Dict({f"sensor{index}": Box(-1, 1, (3,)) for index in range(8)}),
}


Work = Callable[[], Any]


def measure(effort: Effort) -> Measured:
    """Compares each of the cases; as fast, with a tolerance of 5 %, is what they should be."""
    for name, space, theirs, ours in cases():
        _assert_equal(_read(space, theirs()), _read(space, ours()))
        times = turns({"theirs": theirs, "ours": ours}, effort._replace(rounds=3 * effort.rounds))
        peer = "gymnasium" if space is not None else "jax.random"
        yield compared(SECTION, name, peer, times["ours"], times["theirs"], (1e6, "us"), 0.95)


def _read(space: Space[Any] | None, written: Any) -> Any:
    """Returns what was written, as arrays."""
    if space is None or isinstance(written, np.ndarray):
        return written
    first = next(iter(written.values())) if isinstance(space, Dict) else written
    if isinstance(first, np.ndarray):
        return written
    return gym_utils.read_from_shared_memory(space, written, NUM_ENVS)


def _assert_equal(theirs: Any, ours: Any) -> None:
    """Asserts that both have put the same elements together; sums of draws need only be alike."""
    if isinstance(theirs, dict):
        for key, value in theirs.items():
            _assert_equal(value, ours[key])
    elif theirs.shape == (2048,):
        np.testing.assert_allclose(theirs.mean(), ours.mean(), rtol=0.02)
    else:
        assert theirs.any()
        np.testing.assert_array_equal(theirs, np.asarray(ours).reshape(theirs.shape))


def cases() -> Iterator[tuple[str, Space[Any] | None, Work, Work]]:
    """Yields what is compared: a name, the space, the other library's way, jaxvec's way."""
    for name, space in SPACES.items():
        items = [space.sample() for _ in range(NUM_ENVS)]
        for what, pair in (
            ("concatenate", concatenation(space, items)),
            ("shared memory", shared_memory(space, items)),
            ("SharedBlock", shared_block(space, items)),
        ):
            yield f"{what}, {name}", space, *pair
    yield "1000 x 2048 actions of Discrete(6), compiled", None, *sampling()


def concatenation(space: Space[Any], items: list[Any]) -> tuple[Work, Work]:
    """The elements of all environments into one batch."""
    outs: Any = [gym_utils.create_empty_array(space, NUM_ENVS) for _ in range(2)]
    return (
        lambda: gym_utils.concatenate(space, items, outs[0]),
        lambda: jaxvec.spaces.concatenate(space, items, outs[1]),
    )


def shared_memory(space: Space[Any], items: list[Any]) -> tuple[Work, Work]:
    """Each element into its row of ctypes arrays."""
    memories = [gym_utils.create_shared_memory(space, NUM_ENVS) for _ in range(2)]

    def write_all(write: Callable[..., None], memory: Any) -> Any:
        for row, item in enumerate(items):
            write(space, row, item, memory)
        return memory

    return (
        lambda: write_all(gym_utils.write_to_shared_memory, memories[0]),
        lambda: write_all(jaxvec.spaces.write_to_shared_memory, memories[1]),
    )


def shared_block(space: Space[Any], items: list[Any]) -> tuple[Work, Work]:
    """Each element into its row of one block, beside gymnasium's ctypes arrays."""
    theirs, _ = shared_memory(space, items)
    columns = jaxvec.spaces.SharedBlock(space, NUM_ENVS).values

    def ours() -> Any:
        for row, item in enumerate(items):
            jaxvec.spaces.write_row(columns, space, row, item)
        return columns

    return theirs, ours


def sampling() -> tuple[Work, Work]:
    """Random actions inside one compiled loop, as a rollout draws them."""
    space = Discrete(6)

    def rollout(draw: Callable[[Any], Any]) -> Work:
        @jax.jit
        def steps(key: Any) -> Any:
            keys = jax.random.split(key, 1000)
            return jax.lax.scan(lambda total, key: (total + draw(key), None), zeros, keys)[0]

        zeros = jnp.zeros(2048, "int32")
        return lambda: np.asarray(steps(jax.random.key(0)))

    return (
        rollout(lambda key: jax.random.randint(key, (2048,), 0, 6)),
        rollout(lambda key: jaxvec.spaces.sample(key, space, 2048)),
    )


if __name__ == "__main__":
    alone(SECTION, __doc__, measure)
