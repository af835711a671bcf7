"""jaxvec.spaces beside gymnasium's own vector utilities, in one run.

    python examples/benchmarks/spaces.py

Microseconds for 64 environments, with image observations (84x84x4 bytes) and with a Dict of eight
small arrays:

- `concatenate` of 64 elements into one batch;
- the write of 64 elements into shared memory, in the ctypes form that gymnasium documents;
- the same into a `SharedBlock` with `write_row`, as a worker of SubprocVecEnv does it.

And for 1000 compiled steps that draw 2048 actions each: `sample` beside `jax.random.randint`.

The two sides run in turns; a ratio is the median of the turns' ratios, and only ratios count. The page
ends with an error where jaxvec is slower by more than 5 %.
"""

import statistics
import timeit
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium.vector.utils as gym_utils
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Space

import jaxvec.spaces

NUM_ENVS = 64
TURNS = 41
SECONDS_A_TURN = 0.004
TOLERANCE = 1.05

SPACES: dict[str, Space[Any]] = {
    "64 images of 84x84x4 bytes": Box(0, 255, (84, 84, 4), np.uint8),
    "64 dicts of 8 small arrays": Dict({f"sensor{index}": Box(-1, 1, (3,)) for index in range(8)}),
}


Work = Callable[[], Any]


def main() -> None:
    """Prints the table, then checks it."""
    print(f"{'':50}{'theirs':>13}{'jaxvec':>13}{'ratio':>8}")
    slower = []
    for name, theirs, ours in cases():
        their_time, our_time, ratio = compare(theirs, ours)
        print(f"{name:50}{their_time:10.1f} us{our_time:10.1f} us{ratio:8.2f}")
        if ratio > TOLERANCE:
            slower.append(name)
    if slower:
        raise SystemExit(f"slower than the other side: {slower}")


def cases() -> Iterator[tuple[str, Work, Work]]:
    """Yields what is compared: a name, the other library's way, jaxvec's way."""
    for name, space in SPACES.items():
        items = [space.sample() for _ in range(NUM_ENVS)]
        for what, pair in (
            ("concatenate", concatenation(space, items)),
            ("shared memory", shared_memory(space, items)),
            ("SharedBlock", shared_block(space, items)),
        ):
            yield f"{what}, {name}", *pair
    yield "1000 x 2048 actions of Discrete(6), compiled", *sampling()


def concatenation(space: Space[Any], items: list[Any]) -> tuple[Work, Work]:
    """The elements of all environments into one batch."""
    out: Any = gym_utils.create_empty_array(space, NUM_ENVS)
    return (
        lambda: gym_utils.concatenate(space, items, out),
        lambda: jaxvec.spaces.concatenate(space, items, out),
    )


def shared_memory(space: Space[Any], items: list[Any]) -> tuple[Work, Work]:
    """Each element into its row of the same ctypes arrays."""
    memory = gym_utils.create_shared_memory(space, NUM_ENVS)

    def write_all(write: Callable[..., None]) -> None:
        for row, item in enumerate(items):
            write(space, row, item, memory)

    return (
        lambda: write_all(gym_utils.write_to_shared_memory),
        lambda: write_all(jaxvec.spaces.write_to_shared_memory),
    )


def shared_block(space: Space[Any], items: list[Any]) -> tuple[Work, Work]:
    """Each element into its row of one block, beside gymnasium's ctypes arrays."""
    theirs, _ = shared_memory(space, items)
    columns = jaxvec.spaces.SharedBlock(space, NUM_ENVS).values

    def ours() -> None:
        for row, item in enumerate(items):
            jaxvec.spaces.write_row(columns, space, row, item)

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


def compare(theirs: Work, ours: Work) -> tuple[float, float, float]:
    """Runs both in turns; returns the median time of a call of each, microseconds, and the ratio."""
    for work in (theirs, ours):
        work()
    number = max(1, int(SECONDS_A_TURN / timeit.timeit(theirs, number=1)))
    turns = [
        (timeit.timeit(theirs, number=number), timeit.timeit(ours, number=number))
        for _ in range(TURNS)
    ]
    their_time, our_time = (
        statistics.median(times) / number * 1e6 for times in zip(*turns, strict=True)
    )
    return their_time, our_time, statistics.median(ours / theirs for theirs, ours in turns)


if __name__ == "__main__":
    main()
