"""The table that the laws run over: every transform, every kind of space, and streams of timesteps.

A new transform adds one line to `TRANSFORMS`. Streams are NumPy and dense; `sparse` gives a timestep
the host's form, `on_device` JAX's.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from jaxvec.core._action import clip_action, rescale_action, sticky_action
from jaxvec.core._append import append_last_action, time_fraction
from jaxvec.core._checks import check_finite
from jaxvec.core._episode import episode_statistics
from jaxvec.core._frame_stack import frame_stack
from jaxvec.core._normalize import normalize_observation, normalize_reward
from jaxvec.core._observation import (
    cast_observation,
    extract_key,
    flatten_observation,
    one_hot,
    transpose_image,
)
from jaxvec.core._reward import clip_reward, scale_reward
from jaxvec.core._transform import Timestep, Transform, VecSpec, chain, named_chain
from jaxvec.core._xp import map_obs, obs_leaves, take_rows

NUM_ENVS = 4
NUM_STEPS = 12

SPACES: dict[str, Callable[[], spaces.Space[Any]]] = {
    "box": lambda: spaces.Box(-2, 3, (3,), np.float32),
    "image_last": lambda: spaces.Box(0, 255, (5, 6, 2), np.uint8),
    "image_first": lambda: spaces.Box(0, 255, (2, 5, 6), np.uint8),
    "dict": lambda: spaces.Dict(
        camera=spaces.Box(0, 255, (4, 5, 1), np.uint8), state=spaces.Box(-1, 1, (2,), np.float32)
    ),
    "tuple": lambda: spaces.Tuple(
        [spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 9, (2, 3), np.float32)]
    ),
    "discrete": lambda: spaces.Discrete(5),
    "mixed": lambda: spaces.Dict(
        goal=spaces.Discrete(3), state=spaces.Box(-1, 1, (2,), np.float32)
    ),
}
FIVE = ("box", "image_last", "image_first", "dict", "tuple")

ACTION_SPACES: dict[str, Callable[[], spaces.Space[Any]]] = {
    "discrete": lambda: spaces.Discrete(3),
    "box": lambda: spaces.Box(np.float32([-2, 0]), np.float32([2, 5]), dtype=np.float32),
}
ACTION_SPACES["wild"] = ACTION_SPACES["box"]  # half of the actions lie outside


class Entry(NamedTuple):
    """One transform, and where it can be used: it refuses those of the five spaces it does not name."""

    make: Callable[[], Transform]
    spaces: tuple[str, ...] = FIVE
    actions: str = "discrete"
    mixes_rows: bool = False  # statistics over rows: sums over them depend on their order
    compiled: int = 5  # on how many of the spaces it is compiled in the quick run too


def _all_layers() -> Transform:
    return chain(
        episode_statistics(totals=True), frame_stack(3), normalize_observation(), normalize_reward()
    )


TRANSFORMS: dict[str, Entry] = {
    "frame_stack": Entry(partial(frame_stack, 3)),
    "frame_stack_of_1": Entry(partial(frame_stack, 1), compiled=1),
    "frame_stack_reset_padding": Entry(partial(frame_stack, 3, padding="reset")),
    "normalize_observation": Entry(normalize_observation, mixes_rows=True),
    "normalize_observation_keys": Entry(
        partial(normalize_observation, keys=["state"]), ("dict", "mixed"), mixes_rows=True
    ),
    "normalize_observation_final": Entry(
        partial(normalize_observation, count_final=True), mixes_rows=True, compiled=1
    ),
    "normalize_observation_rollout": Entry(
        partial(normalize_observation, update="rollout"), mixes_rows=True
    ),
    "normalize_observation_frozen": Entry(
        partial(normalize_observation, update="frozen"), compiled=2
    ),
    "normalize_observation_skipping": Entry(
        partial(normalize_observation, skip_non_finite=True), mixes_rows=True, compiled=1
    ),
    "normalize_reward": Entry(normalize_reward, mixes_rows=True, compiled=1),
    "normalize_reward_rollout": Entry(
        partial(normalize_reward, update="rollout"), mixes_rows=True, compiled=1
    ),
    "episode_statistics": Entry(episode_statistics, compiled=1),
    "episode_statistics_totals": Entry(partial(episode_statistics, totals=True), compiled=1),
    "transpose_image": Entry(transpose_image, ("image_last", "dict", "tuple")),
    "extract_key": Entry(partial(extract_key, "state"), ("dict", "mixed")),
    "extract_index": Entry(partial(extract_key, 1), ("tuple",)),
    "flatten_observation": Entry(flatten_observation, (*FIVE, "discrete", "mixed"), compiled=7),
    "cast_observation": Entry(partial(cast_observation, np.float32)),
    "cast_and_scale": Entry(partial(cast_observation, np.float32, scale=1 / 255), compiled=2),
    "one_hot": Entry(one_hot, ("discrete", "mixed", *FIVE), compiled=2),
    "append_last_action": Entry(append_last_action, ("box", "dict", "tuple")),
    "append_last_box_action": Entry(
        append_last_action, ("box", "dict", "tuple"), "box", compiled=1
    ),
    "time_fraction": Entry(partial(time_fraction, 5), ("box", "dict", "tuple")),
    "clip_action": Entry(clip_action, actions="wild", compiled=1),
    "rescale_action": Entry(rescale_action, actions="wild", compiled=1),
    "sticky_action": Entry(partial(sticky_action, 0.5), compiled=1),
    "sticky_box_action": Entry(partial(sticky_action, 0.5), actions="box", compiled=1),
    "check_finite": Entry(check_finite, compiled=2),
    "scale_reward": Entry(partial(scale_reward, 0.1, 1.0), compiled=1),
    "clip_reward": Entry(clip_reward, compiled=1),
    "sign_reward": Entry(partial(clip_reward, sign=True), compiled=1),
    "chain": Entry(_all_layers, mixes_rows=True, compiled=1),
    "named_chain": Entry(
        lambda: named_chain(stack=frame_stack(2), norm=normalize_observation(update="rollout")),
        mixes_rows=True,
        compiled=1,
    ),
}
CASES = [(name, space) for name, entry in TRANSFORMS.items() for space in entry.spaces]
COMPILED_CASES = [
    (name, space) for name, entry in TRANSFORMS.items() for space in entry.spaces[: entry.compiled]
]
REFUSED_CASES = [
    (name, space)
    for name, entry in TRANSFORMS.items()
    for space in FIVE
    if space not in entry.spaces
]
ONE_CASE_EACH = [(name, entry.spaces[0]) for name, entry in TRANSFORMS.items()]


class Stream(NamedTuple):
    """What an environment might have said: NumPy, `final_obs` dense."""

    spec: VecSpec
    keys: np.ndarray  # uint32 [N, 2]
    opening: Timestep
    steps: list[Timestep]
    actions: list[Any]


def samples(space: spaces.Space[Any], num: int) -> Any:
    """Draws a batch of a space's elements; whole numbers of plain Discrete spaces are int32."""
    if isinstance(space, spaces.Dict):
        return {key: samples(each, num) for key, each in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(samples(each, num) for each in space.spaces)
    batch = np.stack([np.asarray(space.sample()) for _ in range(num)])
    return batch.astype(np.int32) if isinstance(space, spaces.Discrete) else batch


def choose_rows(mask: np.ndarray, chosen: Any, other: Any) -> Any:
    """Takes whole rows of a tree where the mask holds."""
    return map_obs(
        lambda x, y: np.where(mask.reshape(-1, *(1,) * (x.ndim - 1)), x, y), chosen, other
    )


def make_stream(
    space: spaces.Space[Any],
    *,
    actions: str = "discrete",
    num_envs: int = NUM_ENVS,
    num_steps: int = NUM_STEPS,
    mode: AutoresetMode = AutoresetMode.SAME_STEP,
    end: float = 0.3,
    seed: int = 0,
) -> Stream:
    """Makes random timesteps that keep the rules of `Timestep`; `end` is the chance of a step to end."""
    action_space = ACTION_SPACES[actions]()
    space.seed(seed)
    action_space.seed(seed)
    rng = np.random.default_rng(seed)

    def columns() -> dict[str, np.ndarray]:
        return {"score": rng.normal(size=num_envs).astype(np.float32)}

    no = np.zeros(num_envs, bool)
    obs = samples(space, num_envs)
    opening = Timestep(
        obs, np.zeros(num_envs, np.float32), no, no, no, ~no, obs, None, columns(), columns()
    )
    steps, taken = [], []
    last = opening
    for _ in range(num_steps):
        idle = no if mode is AutoresetMode.SAME_STEP else last.done
        ends = (rng.random(num_envs) < end) & ~idle
        terminated = ends & (rng.random(num_envs) < 0.5)
        truncated = ends & ~terminated
        obs, final = samples(space, num_envs), samples(space, num_envs)
        if mode is AutoresetMode.SAME_STEP:
            first, final = ends, choose_rows(ends, final, obs)
        elif mode is AutoresetMode.NEXT_STEP:
            first, final = idle, obs
        else:
            first = no
            obs = final = choose_rows(idle, last.obs, obs)
            terminated, truncated = (
                terminated | (idle & last.terminated),
                truncated | (idle & last.truncated),
            )
        reward = np.where(idle, 0, rng.normal(0.5, 2, num_envs)).astype(np.float32)
        last = Timestep(
            obs, reward, terminated, truncated, ~idle, first, final, None, columns(), columns()
        )
        steps.append(last)
        batch = samples(action_space, num_envs)
        taken.append(batch * np.float32(2) if actions == "wild" else batch)
    keys = rng.integers(0, 2**32, (num_envs, 2), dtype=np.uint32)
    spec = VecSpec(num_envs, space, action_space, mode, "numpy")
    return Stream(spec, keys, opening, steps, taken)


def stream_of(name: str, space: str, **options: Any) -> Stream:
    """Makes the stream of one case of the table."""
    return make_stream(SPACES[space](), actions=TRANSFORMS[name].actions, **options)


def sparse(timestep: Timestep) -> Timestep:
    """Gives a dense timestep the host's form: `final_obs` of the ended rows only, else None."""
    rows = np.flatnonzero(timestep.done & timestep.valid)
    if len(rows) == 0:
        return timestep._replace(final_obs=None)
    final = map_obs(lambda x: take_rows(x, rows), timestep.final_obs)
    return timestep._replace(final_obs=final, final_rows=rows)


def on_device(tree: Any) -> Any:
    """Moves a tree to JAX."""
    return jax.tree.map(jnp.asarray, tree)


def stacked(trees: list[Any]) -> Any:
    """Stacks trees along a new leading axis `T` (or seeds)."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def at(tree: Any, index: Any) -> Any:
    """Takes one step (or row, by a slice) out of every leaf, as NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[index], tree)


def permuted(tree: Any, order: np.ndarray, axis: int = 0) -> Any:
    """Reorders the rows of every leaf."""
    return jax.tree.map(lambda leaf: np.take(np.asarray(leaf), order, axis), tree)


def jax_spec(spec: VecSpec) -> VecSpec:
    return spec._replace(backend="jax")


class Run(NamedTuple):
    """What came out of a transform."""

    state: Any
    opening: Timestep
    steps: list[Timestep]
    actions: list[Any]


def run_numpy(transform: Transform, stream: Stream, *, dense: bool = False) -> Run:
    """Sends a stream through a transform on the host, in the host's form unless `dense`."""
    form = (lambda timestep: timestep) if dense else sparse
    state = transform.init(stream.spec, stream.keys)
    state, opening = transform.reset(state, form(stream.opening), None)
    steps, actions = [], []
    for timestep, action in zip(stream.steps, stream.actions, strict=True):
        state, action = transform.action(state, action)
        state, timestep = transform.update(state, form(timestep))
        steps.append(timestep)
        actions.append(action)
    return Run(transform.end_rollout(state), opening, steps, actions)


def scan_function(transform: Transform, spec: VecSpec) -> Callable[..., tuple[Any, ...]]:
    """Returns `(keys, opening, steps [T], actions [T]) -> (state, opening, steps, actions)`."""

    def body(state: Any, inputs: Any) -> tuple[Any, Any]:
        timestep, action = inputs
        state, action = transform.action(state, action)
        state, timestep = transform.update(state, timestep)
        return state, (timestep, action)

    def run(keys: Any, opening: Timestep, steps: Timestep, actions: Any) -> tuple[Any, ...]:
        state = transform.init(jax_spec(spec), keys)
        state, opening = transform.reset(state, opening, None)
        state, (steps, actions) = jax.lax.scan(body, state, (steps, actions))
        return transform.end_rollout(state), opening, steps, actions

    return run


def scan_inputs(stream: Stream) -> tuple[Any, ...]:
    """Returns the arguments of `scan_function`, as NumPy."""
    return stream.keys, stream.opening, stacked(stream.steps), stacked(stream.actions)


def as_run(outputs: tuple[Any, ...]) -> Run:
    """Cuts what a scan returned into steps."""
    state, opening, steps, actions = outputs
    length = len(steps.reward)
    return Run(
        state,
        at(opening, ...),
        [at(steps, t) for t in range(length)],
        [at(actions, t) for t in range(length)],
    )


def assert_close(got: Any, want: Any, *, rtol: float = 0, atol: float = 0, where: str = "") -> None:
    """Holds two trees of observations, columns or records against each other: structure, dtype, values."""
    if isinstance(want, dict):
        assert isinstance(got, dict), f"{where}: {type(got)}"
        assert set(got) == set(want), f"{where}: keys {list(got)}, wanted {list(want)}"
        for key in want:
            assert_close(got[key], want[key], rtol=rtol, atol=atol, where=f"{where}[{key!r}]")
    elif isinstance(want, tuple):
        assert isinstance(got, tuple), f"{where}: {type(got)}"
        names = getattr(want, "_fields", range(len(want)))
        for name, mine, theirs in zip(names, got, want, strict=True):
            assert_close(mine, theirs, rtol=rtol, atol=atol, where=f"{where}.{name}")
    elif want is None:
        assert got is None, f"{where}: {got}, wanted None"
    else:
        got, want = np.asarray(got), np.asarray(want)
        assert got.dtype == want.dtype, f"{where}: {got.dtype}, wanted {want.dtype}"
        assert got.shape == want.shape, f"{where}: {got.shape}, wanted {want.shape}"
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=where)


def assert_runs_close(got: Run, want: Run, *, rtol: float = 0, atol: float = 0) -> None:
    """Holds everything that left a transform against another run's; a sparse side tells the rows."""
    opening, wanted = _same_final_rows(got.opening, want.opening)
    assert_close(opening, wanted, rtol=rtol, atol=atol, where="opening")
    for t, (mine, theirs) in enumerate(zip(got.steps, want.steps, strict=True)):
        mine, theirs = _same_final_rows(mine, theirs)
        assert_close(mine, theirs, rtol=rtol, atol=atol, where=f"step {t}")
    for t, (mine, theirs) in enumerate(zip(got.actions, want.actions, strict=True)):
        assert_close(mine, theirs, rtol=rtol, atol=atol, where=f"action {t}")


def _same_final_rows(*pair: Timestep) -> list[Timestep]:
    """Brings both to the rows that ended: those are the ones whose `final_obs` is read."""
    narrowed = []
    for timestep in pair:
        if timestep.final_obs is not None and timestep.final_rows is None:
            timestep = sparse(at(timestep._replace(rows=None), ...))
        rows = timestep.final_rows
        rows = None if rows is None else np.asarray(rows, np.int64)
        narrowed.append(timestep._replace(rows=None, final_rows=rows))
    return narrowed


def contains(space: spaces.Space[Any], obs: Any) -> None:
    """Asserts that every row lies in the space, and in its dtype."""
    if isinstance(space, spaces.Dict):
        assert isinstance(obs, dict)
        assert set(obs) == set(space.spaces), (list(obs), list(space.spaces))
        for key, each in space.spaces.items():
            contains(each, obs[key])
    elif isinstance(space, spaces.Tuple):
        assert isinstance(obs, tuple)
        for each, branch in zip(space.spaces, obs, strict=True):
            contains(each, branch)
    else:
        for _, batch in obs_leaves(obs):
            rows = np.asarray(batch)
            if not isinstance(space, spaces.Discrete):
                assert rows.dtype == space.dtype, f"{rows.dtype}, but {space}"
            for row in rows:
                assert space.contains(row[()]), f"{row} is not in {space}"
