"""The laws of a layer, checked on random episodes, with NumPy and compiled by JAX."""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import map_obs, obs_leaves, space_tree
from jaxvec.random import row_words_from_seeds
from jaxvec.testing._report import Broken, Report, examine
from jaxvec.typing import PyTree


def check_transform(
    transform: Transform,
    *,
    observation_space: Space[Any] | None = None,
    action_space: Space[Any] | None = None,
    num_envs: int = 4,
    num_steps: int = 20,
    seed: int = 0,
    rtol: float = 1e-5,
    raise_on_failure: bool = True,
) -> Report:
    """Checks a layer against the laws that all of jaxvec's own obey.

    Args:
      transform: the layer.
      observation_space: what it stands on; a Box of shape (3,) if left out.
      action_space: likewise; `Discrete(3)` if left out.
      num_envs: N.
      num_steps: the length of the random episodes' stream.
      seed: of observations, rewards, flags and actions.
      rtol: how far NumPy's float64 and JAX's float32 may be apart, relative.
      raise_on_failure: whether to raise if a law does not hold; else the report says so.

    Returns:
      The report, law by law.

    Raises:
      TypeError: if `transform` is no `Transform` record.
      CheckError: if a law does not hold; the message explains each.
    """
    if not isinstance(transform, Transform):
        raise TypeError(
            f"check_transform: {transform!r} is a {type(transform).__name__}; it takes a "
            "jaxvec.Transform record, such as frame_stack(4)."
        )
    if observation_space is None:
        observation_space = spaces.Box(-2.0, 2.0, (3,), np.float32)
    stream = _Stream(
        VecSpec(num_envs, observation_space, action_space or spaces.Discrete(3)), num_steps, seed
    )
    trial = _Trial(transform, stream, rtol)
    return examine("the transform", _LAWS, trial, raise_on_failure=raise_on_failure)


class _Stream:
    """Random episodes of N rows, in NumPy: the timestep of a reset, then one per action."""

    def __init__(self, spec: VecSpec, num_steps: int, seed: int) -> None:
        self.spec, self.num_steps = spec, num_steps
        self._random = np.random.default_rng(seed)
        self.keys = row_words_from_seeds(np.arange(seed, seed + spec.num_envs))
        opening, no = self._observations(), np.zeros(spec.num_envs, bool)
        self.first = Timestep(
            opening, np.zeros(spec.num_envs, np.float32), no, no, no, ~no, opening
        )
        self.steps = [self._step() for _ in range(num_steps)]
        self.actions = [self._draw(spec.action_space) for _ in range(num_steps)]

    def _draw(self, space: Space[Any]) -> Any:
        space.seed(int(self._random.integers(2**31)))
        rows = [space.sample() for _ in range(self.spec.num_envs)]
        tree = space_tree(space)
        return map_obs(lambda _, *each: np.stack(each), tree, *rows)

    def _observations(self) -> Any:
        return self._draw(self.spec.observation_space)

    def _step(self) -> Timestep:
        terminated, truncated = self._random.random((2, self.spec.num_envs)) < 0.15
        done = terminated | truncated
        final, opening = self._observations(), self._observations()
        obs = map_obs(lambda old, new: _where(done, new, old), final, opening)
        reward = self._random.normal(size=self.spec.num_envs).astype(np.float32)
        valid = np.ones_like(done)
        return Timestep(
            obs, reward, terminated, truncated & ~terminated, valid, done, final, info={}
        )


def _where(mask: Any, chosen: Any, other: Any) -> Any:
    return np.where(mask.reshape((-1,) + (1,) * (other.ndim - 1)), chosen, other)


class _Trial:
    """A layer, and what it makes of a stream; each run is made when first read."""

    def __init__(self, transform: Transform, stream: _Stream, rtol: float) -> None:
        self.transform, self.stream, self.rtol = transform, stream, rtol
        self.traces = 0

    def _run(self, backend: Any, step: Callable[..., Any]) -> Any:
        spec = self.stream.spec._replace(backend=backend)
        state = self.transform.init(spec, self.stream.keys)
        state, first = self.transform.reset(state, self.stream.first, None)
        kept = [first]
        for action, timestep in zip(self.stream.actions, self.stream.steps, strict=True):
            state, _, timestep = step(state, action, timestep)
            kept.append(timestep)
        return state, kept

    def step(self, state: PyTree, action: Any, timestep: Timestep) -> Any:
        self.traces += 1
        state, action = self.transform.action(state, action)
        state, timestep = self.transform.update(state, timestep)
        return state, action, timestep

    @cached_property
    def with_numpy(self) -> Any:
        return self._run("numpy", self.step)

    @cached_property
    def compiled(self) -> Any:
        with_jax = _Trial(self.transform, self.stream, self.rtol)
        with_jax.stream = copy.copy(self.stream)
        with_jax.stream.first, with_jax.stream.steps = jax.tree.map(
            jax.numpy.asarray, (self.stream.first, self.stream.steps)
        )
        with_jax.stream.actions = jax.tree.map(jax.numpy.asarray, self.stream.actions)
        with_jax.stream.keys = jax.numpy.asarray(self.stream.keys)
        state, kept = with_jax._run("jax", jax.jit(with_jax.step))
        return with_jax.traces, jax.tree.map(np.asarray, (state, kept))


def _spaces_follow(trial: _Trial) -> None:
    space = trial.transform.spec(trial.stream.spec).observation_space
    for where, timestep in enumerate(trial.with_numpy[1]):
        for row in range(trial.stream.spec.num_envs):
            one = map_obs(lambda leaf, at=row: _element(leaf[at]), timestep.obs)
            if not space.contains(one):
                raise Broken(
                    f"after {where} steps row {row} leaves as {one!r}, which is not in {space}, the "
                    "space that `spec` promises."
                )


def _element(value: Any) -> Any:
    return value if value.ndim else value[()]


def _numpy_stays_numpy(trial: _Trial) -> None:
    for timestep in trial.with_numpy[1]:
        for path, leaf in obs_leaves({"obs": timestep.obs, "reward": timestep.reward}):
            if not isinstance(leaf, np.ndarray):
                raise Broken(f"{path} is a {type(leaf).__name__}; NumPy in must give NumPy out.")


def _nothing_is_written(trial: _Trial) -> None:
    given = [trial.stream.first, *trial.stream.steps]
    before = copy.deepcopy(given)
    trial._run("numpy", trial.step)
    for old, new in zip(before, given, strict=True):
        for left, right in zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True):
            if not np.array_equal(left, right, equal_nan=left.dtype.kind == "f"):
                raise Broken("an array of the timestep it was given changed; return a new one.")
        if old.info.keys() != new.info.keys():
            raise Broken(
                f"`info` was written to: {set(new.info) ^ set(old.info)}; build a new dict."
            )


def _numpy_equals_compiled(trial: _Trial) -> None:
    for step, (host, device) in enumerate(
        zip(trial.with_numpy[1], trial.compiled[1][1], strict=True)
    ):
        host, device = host._replace(rows=None), device._replace(rows=None)
        leaves = jax.tree_util.tree_flatten_with_path(host)[0]
        for (path, left), right in zip(leaves, jax.tree.leaves(device), strict=True):
            where = f"{jax.tree_util.keystr(path)} after step {step}"
            if left.shape != right.shape:
                raise Broken(f"{where} has shape {left.shape} in NumPy, {right.shape} compiled.")
            if not np.allclose(left, right, trial.rtol, trial.rtol, equal_nan=True):
                worst = float(np.abs(np.subtract(left, right, dtype=np.float64)).max())
                raise Broken(f"{where} differs by up to {worst:.3g} between NumPy and JAX.")


def _one_compilation(trial: _Trial) -> None:
    traces = trial.compiled[0]
    if traces != 1:
        raise Broken(
            f"{trial.stream.num_steps} steps were compiled {traces} times: a leaf of the state has "
            "another shape, dtype or weak type after `update` than after `init` and `reset`."
        )


_LAWS = (
    ("It runs with NumPy, and NumPy in gives NumPy out", _numpy_stays_numpy),
    ("Nothing it is given is written to", _nothing_is_written),
    ("What leaves lies in the space that `spec` promises", _spaces_follow),
    ("NumPy and compiled JAX give the same numbers", _numpy_equals_compiled),
    ("One compilation serves every step", _one_compilation),
)
