"""The laws of a layer, checked on random episodes, with NumPy and compiled by JAX."""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.spaces import Space

from jaxvec.core._arguments import check_epsilon
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import map_obs, space_tree
from jaxvec.random import row_words_from_seeds
from jaxvec.testing._leaves import QUICK, check_trial, row_of, same, to_numpy
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
      TypeError: if `transform` is no `Transform` record, or a space none of gymnasium's.
      ValueError: if another argument cannot be.
      CheckError: if a law does not hold; the message explains each.
    """
    if not isinstance(transform, Transform):
        raise TypeError(
            f"check_transform: {transform!r} is a {type(transform).__name__}; it takes a "
            "jaxvec.Transform record, such as frame_stack(4)."
        )
    check_trial("check_transform", num_envs, num_steps, seed, raise_on_failure, least_envs=1)
    check_epsilon("check_transform", "rtol", rtol)
    if observation_space is None:
        observation_space = spaces.Box(-2.0, 2.0, (3,), np.float32)
    if action_space is None:
        action_space = spaces.Discrete(3)
    for name, space in (("observation_space", observation_space), ("action_space", action_space)):
        if not isinstance(space, Space):
            raise TypeError(
                f"check_transform: {name}={space!r}, but it must be a gymnasium space, such as "
                "spaces.Box(-1, 1, (3,))."
            )
    stream = _Stream(VecSpec(num_envs, observation_space, action_space), num_steps, seed)
    trial = _Trial(transform, stream, rtol)
    return examine("the transform", _LAWS, trial, raise_on_failure=raise_on_failure)


class _Stream:
    """Random episodes of N rows, in NumPy: the timestep of a reset, then one per action."""

    def __init__(self, spec: VecSpec, num_steps: int, seed: int) -> None:
        self.spec, self.num_steps = spec, num_steps
        self._random = np.random.default_rng(seed)
        self.keys = row_words_from_seeds(np.arange(seed, seed + spec.num_envs))
        opening, no = self._observations(), np.zeros(spec.num_envs, bool)
        reward = np.zeros(spec.num_envs, np.float32)
        self.first = Timestep(opening, reward, no, no, no, ~no, opening, info=self._info())
        self.steps = [self._step() for _ in range(num_steps)]
        self.actions = [self._draw(spec.action_space) for _ in range(num_steps)]

    def _draw(self, space: Space[Any]) -> Any:
        space = copy.deepcopy(space)  # the caller's goes on drawing what it would have drawn
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
            obs,
            reward,
            terminated,
            truncated & ~terminated,
            valid,
            done,
            final,
            info=self._info(),
        )

    def _info(self) -> dict[str, Any]:
        return {"below": {"number": self._random.normal(size=self.spec.num_envs)}}


def _where(mask: Any, chosen: Any, other: Any) -> Any:
    return np.where(mask.reshape((-1,) + (1,) * (other.ndim - 1)), chosen, other)


class _Trial:
    """A layer, and what it makes of a stream; each run is made when first read."""

    def __init__(self, transform: Transform, stream: _Stream, rtol: float) -> None:
        self.transform, self.stream, self.rtol = transform, stream, rtol

    def step(self, state: PyTree, action: Any, timestep: Timestep) -> Any:
        state, action = self.transform.action(state, action)
        state, timestep = self.transform.update(state, timestep)
        return state, action, timestep

    def run(self, backend: Any, step: Callable[..., Any]) -> tuple[PyTree, list[Any]]:
        """Returns the last state, and the actions and timesteps that leave, the reset's first."""
        stream = copy.deepcopy(self.stream)  # what one run writes into must not reach another
        given = (stream.keys, stream.first, stream.steps, stream.actions)
        if backend == "jax":
            given = jax.tree.map(jax.numpy.asarray, given)
        keys, first, steps, actions = given
        state = self.transform.init(stream.spec._replace(backend=backend), keys)
        reset = _without_mask(self.transform)
        state, first = (reset if backend == "numpy" else _compiled(reset))(state, first)
        kept: list[Any] = [(actions[0], first)]
        for action, timestep in zip(actions, steps, strict=True):
            state, *leaves = step(state, action, timestep)
            kept.append(tuple(leaves))
        return state, kept

    @cached_property
    def with_numpy(self) -> tuple[PyTree, list[Any]]:
        try:
            return self.run("numpy", self.step)
        except Exception as error:  # the layer's code may raise anything
            raise Broken(f"it raised {type(error).__name__}: {error}", ends=True) from error

    @cached_property
    def compiled(self) -> tuple[PyTree, list[Any], int]:
        """The last state, what leaves (in NumPy), and how often a step was traced."""
        traces = 0

        def step(*arguments: Any) -> Any:
            nonlocal traces
            traces += 1
            return self.step(*arguments)

        state, kept = self.run("jax", _compiled(step))
        return state, to_numpy(kept), traces


def _without_mask(transform: Transform) -> Callable[[PyTree, Timestep], tuple[PyTree, Timestep]]:
    return lambda state, timestep: transform.reset(state, timestep, None)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(function, compiler_options=QUICK)


def _numpy_stays_numpy(trial: _Trial) -> None:
    for action, timestep in trial.with_numpy[1]:
        leaves = jax.tree_util.tree_flatten_with_path(timestep._asdict() | {"action": action})[0]
        for path, leaf in leaves:
            if not isinstance(leaf, np.ndarray):
                where = jax.tree_util.keystr(path)
                raise Broken(f"{where} is a {type(leaf).__name__}; NumPy in must give NumPy out.")


def _nothing_is_written(trial: _Trial) -> None:
    def watched(*given: Any) -> Any:
        before = copy.deepcopy(given)
        result = trial.step(*given)
        paths = jax.tree_util.tree_flatten_with_path(before)[0]
        old_structure: Any = jax.tree.structure(before)
        new_structure: Any = jax.tree.structure(given)
        if old_structure != new_structure:
            raise Broken(
                f"`info` or the state was written to: it was {old_structure} before, and "
                f"{new_structure} after; build a new dict."
            )
        for (path, old), new in zip(paths, jax.tree.leaves(given), strict=True):
            if not same(old, new):
                argument = ("state", "action", "timestep")[path[0].idx]
                where = argument + jax.tree_util.keystr(path[1:])
                raise Broken(f"{where} was written to; return a new array.")
        return result

    trial.run("numpy", watched)


def _spaces_follow(trial: _Trial) -> None:
    below = trial.stream.spec._replace(backend="numpy")
    space = trial.transform.spec(below).observation_space
    for where, (_, timestep) in enumerate(trial.with_numpy[1]):
        for row in range(trial.stream.spec.num_envs):
            one = row_of(timestep.obs, row)
            if not space.contains(one):
                raise Broken(
                    f"after {where} steps row {row} leaves as {one!r}, which is not in {space}, the "
                    "space that `spec` promises."
                )


def _trees_stand_still(trial: _Trial) -> None:
    for backend, kept in (("NumPy", trial.with_numpy[1]), ("JAX", trial.compiled[1])):
        wanted = _described(kept[0][1])
        for step, (_, timestep) in enumerate(kept[1:]):
            changed = sorted(_described(timestep) ^ wanted)
            if changed:
                raise Broken(
                    f"with {backend}, after reset and after step {step} these differ: {changed}. Both "
                    "must return the same leaves, shapes and dtypes."
                )


def _described(timestep: Timestep) -> set[tuple[str, str, tuple[int, ...]]]:
    leaves = jax.tree_util.tree_flatten_with_path(timestep)[0]
    return {
        (jax.tree_util.keystr(path), str(np.asarray(leaf).dtype), np.shape(leaf))
        for path, leaf in leaves
    }


def _numpy_equals_compiled(trial: _Trial) -> None:
    for step, (host, device) in enumerate(zip(trial.with_numpy[1], trial.compiled[1], strict=True)):
        leaves = jax.tree_util.tree_flatten_with_path(host)[0]
        for (path, left), right in zip(leaves, jax.tree.leaves(device), strict=True):
            name = ("action", "timestep")[path[0].idx] + jax.tree_util.keystr(path[1:])
            where = f"{name} after {step} steps"
            left, right = np.asarray(left), np.asarray(right)
            if left.shape != right.shape:
                raise Broken(f"{where} has shape {left.shape} in NumPy, {right.shape} compiled.")
            if not np.allclose(left, right, trial.rtol, trial.rtol, equal_nan=True):
                worst = float(np.abs(np.subtract(left, right, dtype=np.float64)).max())
                raise Broken(f"{where} differs by up to {worst:.3g} between NumPy and JAX.")


def _one_compilation(trial: _Trial) -> None:
    traces = trial.compiled[2]
    if traces != 1:
        raise Broken(
            f"{trial.stream.num_steps} steps were compiled {traces} times: a leaf of the state has "
            "another shape, dtype or weak type after `update` than after `init` and `reset`."
        )


def _a_reset_of_no_rows_changes_nothing(trial: _Trial) -> None:
    nobody = np.zeros(trial.stream.spec.num_envs, bool)
    given = (trial.stream.first._replace(first=nobody), nobody)
    host, device = trial.with_numpy[0], trial.compiled[0]
    after = trial.transform.reset(copy.deepcopy(host), *given)[0]
    after_compiled = _compiled(trial.transform.reset)(device, *given)[0]
    for backend, before, now in (("NumPy", host, after), ("JAX", device, after_compiled)):
        paths = jax.tree_util.tree_flatten_with_path(before)[0]
        for (path, old), new in zip(paths, jax.tree.leaves(now), strict=True):
            if not same(old, new):
                raise Broken(
                    f"{jax.tree_util.keystr(path)} of the state changed, with {backend}, though the "
                    "mask held nowhere: `reset` must touch the rows of its mask only."
                )


_LAWS = (
    ("It runs with NumPy, and NumPy in gives NumPy out", _numpy_stays_numpy),
    ("Nothing it is given is written to", _nothing_is_written),
    ("What leaves lies in the space that `spec` promises", _spaces_follow),
    ("Reset and update return the same trees, shapes and dtypes", _trees_stand_still),
    ("NumPy and compiled JAX give the same numbers", _numpy_equals_compiled),
    ("One compilation serves every step", _one_compilation),
    ("A reset of no rows changes nothing", _a_reset_of_no_rows_changes_nothing),
)
