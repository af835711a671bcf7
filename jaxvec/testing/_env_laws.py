"""The laws of an environment, checked on many random steps of it."""

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from jaxvec.core._xp import obs_leaves
from jaxvec.envs._env import BatchedEnv, Env, name_of
from jaxvec.envs._vectorize import vectorize
from jaxvec.random import hash_key, keys_from
from jaxvec.spaces import sample
from jaxvec.testing._leaves import QUICK, check_trial, row_of, to_numpy
from jaxvec.testing._report import Broken, Report, examine
from jaxvec.typing import Key, PyTree

_MOST_OBSERVATIONS = 10_000  # that are looked at one by one: about a tenth of a second


def check_env(
    env: Env[Any, Any],
    *,
    num_envs: int = 32,
    num_steps: int = 200,
    seed: int = 0,
    raise_on_failure: bool = True,
) -> Report:
    """Checks an environment against the laws that `vectorize` and the layers rely on.

    Args:
      env: the environment.
      num_envs: how many copies take random actions; 2 or more, as two rows are compared.
      num_steps: how many steps, at the most, each takes.
      seed: of keys and actions, from 0 on.
      raise_on_failure: whether to raise if a law does not hold; else the report says so.

    Returns:
      The report, law by law.

    Raises:
      TypeError: if `env` is no `Env` record.
      ValueError: if another argument cannot be.
      CheckError: if a law does not hold; the message explains each.
    """
    if not isinstance(env, Env):
        raise TypeError(
            f"check_env: {env!r} is a {type(env).__name__}; it takes a jaxvec.Env record."
        )
    check_trial("check_env", num_envs, num_steps, seed, raise_on_failure, least_envs=2)
    name = name_of(env)
    trial = _Trial(env, num_envs, num_steps, seed)
    return examine(name, _LAWS, trial, raise_on_failure=raise_on_failure)


class _Trial:
    """An environment, and what it did under random actions; each part is made when first read."""

    def __init__(self, env: Env[Any, Any], num_envs: int, num_steps: int, seed: int) -> None:
        self.env, self.num_envs, self.num_steps, self.seed = env, num_envs, num_steps, seed
        self.warnings: list[str] = []

    def vectorized(self, num_envs: int) -> BatchedEnv:
        """Returns N of the environment; what is warned of becomes a remark of the report."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batched = vectorize(self.env, num_envs, autoreset_mode="Disabled")
        self.warnings = [str(each.message) for each in caught]
        return batched

    @cached_property
    def batched(self) -> BatchedEnv:
        return self.vectorized(self.num_envs)

    @cached_property
    def pair(self) -> BatchedEnv:
        """Two of the environment."""
        return self.vectorized(2)

    @cached_property
    def actions(self) -> Any:
        """Random actions `[T, N, ...]`."""
        shape = (self.num_steps, self.num_envs)

        @jax.jit
        def draw(key: Key) -> Any:
            actions = sample(key, self.env.action_space, self.num_steps * self.num_envs)
            return jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), actions)

        return draw(hash_key(self.seed + 1))

    @cached_property
    def actions_of_two(self) -> Any:
        """The first actions of rows 0 and 1: few, as a chaotic system grows rounding to anything."""
        return jax.tree.map(lambda leaf: leaf[:20, :2], self.actions)

    @cached_property
    def both_played(self) -> Any:
        """The same steps twice, traced anew; see `_play` for the parts."""
        key = hash_key(self.seed)
        return _twice(lambda: _play(self.batched), key, self.actions)

    @property
    def played(self) -> Any:
        return self.both_played[0]

    @cached_property
    def pair_played(self) -> Any:
        """The first steps of rows 0 and 1 by themselves."""
        run = jax.jit(_play(self.pair), compiler_options=QUICK)
        return to_numpy(run(hash_key(self.seed), self.actions_of_two))

    @cached_property
    def both_opened(self) -> Any:
        """The states of 256 resets, twice."""
        batched = self.vectorized(256)
        return _twice(
            lambda: lambda key: batched.reset(keys_from(key, 256))[0].env, hash_key(self.seed + 2)
        )


def _play(batched: BatchedEnv) -> Any:
    """Returns what gives the first timestep, all others stacked, the first states and all others."""

    def body(state: PyTree, action: PyTree) -> Any:
        state, timestep = batched.step(state, action)
        return state, (timestep, state.env)

    def run(key: Key, actions: Any) -> Any:
        state, first = batched.reset(keys_from(key, batched.spec.num_envs))
        _, (steps, states) = jax.lax.scan(body, state, actions)
        return first, steps, state.env, states

    return run


def _twice(make: Callable[[], Any], *arguments: Any) -> tuple[Any, Any]:
    """Returns what a function gives when it is traced and run twice, in NumPy.

    Most of the time goes to the compiler, and a program of the same text is the same program: that one
    is run again, which shows what calls back to Python.
    """
    first, second = (jax.jit(make()).lower(*arguments) for _ in range(2))
    compiled = first.compile(QUICK)
    once = to_numpy(compiled(*arguments))
    if first.as_text() != second.as_text():
        compiled = second.compile(QUICK)
    return once, to_numpy(compiled(*arguments))


def _spaces_are_gymnasiums(trial: _Trial) -> None:
    for name in ("observation_space", "action_space"):
        space = getattr(trial.env, name)
        if not isinstance(space, spaces.Space):
            raise Broken(
                f"{name} is {space!r} ({type(space).__name__}); convert it with "
                "jaxvec.spaces.to_gymnasium_space.",
                ends=True,
            )


def _reset_and_step_fit_together(trial: _Trial) -> str:
    try:
        trial.batched  # noqa: B018  it checks by being made
    except ValueError as error:
        raise Broken(str(error), ends=True) from error
    except Exception as error:
        raise Broken(f"it raised {type(error).__name__}: {error}", ends=True) from error
    return " ".join(trial.warnings)


def _observations_lie_in_their_space(trial: _Trial) -> None:
    first, steps, _, _ = trial.played
    for step in range(-1, min(trial.num_steps, _MOST_OBSERVATIONS // trial.num_envs)):
        where = f"step {step}" if step >= 0 else "reset"
        obs = first.obs if step < 0 else jax.tree.map(lambda leaf, t=step: leaf[t], steps.obs)
        for row in range(trial.num_envs):
            one = row_of(obs, row)
            if not trial.env.observation_space.contains(one):
                raise Broken(
                    f"after {where}, row {row} observes {one!r}, which is not in "
                    f"{trial.env.observation_space}; widen the bounds or correct the value."
                )


def _numbers_are_finite(trial: _Trial) -> None:
    _, steps, _, _ = trial.played
    for name, tree in (("reward", steps.reward), ("observation", steps.obs)):
        for path, leaf in obs_leaves(tree):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                step, row = np.argwhere(~np.isfinite(leaf))[0][:2]
                raise Broken(f"the {name}{path} of step {step}, row {row} is NaN or infinite.")


def _the_same_key_gives_the_same_trace(trial: _Trial) -> None:
    once, again = trial.both_played
    _must_equal(once, again, "two runs with equal keys and actions differ", exact=True)


def _a_row_does_not_depend_on_the_others(trial: _Trial) -> None:
    _, alone, _, alone_states = trial.pair_played
    _, among, _, among_states = trial.played
    message = f"row 0 or 1 of {trial.num_envs} differs from the same row of 2"
    steps = len(alone.reward)
    _must_equal(jax.tree.map(lambda leaf: leaf[:steps, :2], among), alone, message)
    # Leaves without an axis for the rows are nobody's.
    rows = [leaf.shape[:2] == among.reward.shape for leaf in jax.tree.leaves(among_states)]
    many, few = (
        [
            leaf[:steps, :2]
            for leaf, has_rows in zip(jax.tree.leaves(tree), rows, strict=True)
            if has_rows
        ]
        for tree in (among_states, alone_states)
    )
    _must_equal({"states": many}, {"states": few}, message)


def _resets_take_their_key(trial: _Trial) -> str:
    once, again = trial.both_opened
    _must_equal(once, again, "two resets with equal keys differ", exact=True)
    leaves = [leaf for leaf in jax.tree.leaves(once) if leaf.shape[:1] == (256,)]
    count = max((len(np.unique(each.reshape(256, -1), axis=0)) for each in leaves), default=1)
    return "" if count > 16 else f"256 resets gave {count} different state(s): is that meant?"


def _it_does_not_reset_by_itself(trial: _Trial) -> str:
    _, steps, first_states, states = trial.played
    ended = np.argwhere(np.diff(steps.done, axis=0, prepend=False))
    # The time limit is vectorize's: at it no environment resets by itself.
    own = ended[steps.terminated[tuple(ended.T)]]
    ended = ended if len(own) < 4 else own
    if len(ended) < 4:
        return f"only {len(ended)} episode(s) ended in {trial.num_steps} steps: too few to tell."
    opened, _ = trial.both_opened
    alike = np.ones(len(ended), bool)
    told = np.zeros(len(ended), bool)
    for opening, leaf, first in zip(
        *map(jax.tree.leaves, (opened, states, first_states)), strict=True
    ):
        if leaf.dtype.kind not in "fiub" or leaf.shape[:2] != steps.done.shape:
            continue
        low, high = opening.min(0), opening.max(0)
        width = (high - low) if leaf.dtype.kind == "f" else 0
        low, high = low - 0.05 * width, high + 0.05 * width
        before = np.concatenate([first[None], leaf])[ended[:, 0], ended[:, 1]]
        after = leaf[ended[:, 0], ended[:, 1]]
        axes = tuple(range(1, after.ndim))
        alike &= ((after >= low) & (after <= high)).all(axes)
        told |= ((before < low) | (before > high)).any(axes)
    # An episode can tell if its state was no fresh one before its last step.
    if told.sum() >= 4 and alike[told].mean() > 0.9:
        raise Broken(
            f"in {alike[told].sum()} of {told.sum()} episodes the state after the last step looks like a "
            "fresh one: the environment seems to reset by itself, which loses the last observation. "
            "Give its raw step; vectorize resets."
        )
    return ""


def _compiled_equals_plain_python(trial: _Trial) -> None:
    first, steps, _, _ = trial.pair_played
    state, opened = trial.pair.reset(keys_from(hash_key(trial.seed), 2))
    _must_equal(first, to_numpy(opened), "after reset they differ")
    action, stepped = jax.tree.map(lambda leaf: leaf[0], (trial.actions_of_two, steps))
    _, timestep = trial.pair.step(state, action)
    _must_equal(stepped, to_numpy(timestep), "after the first step they differ")


def _one_compilation_serves_every_step(trial: _Trial) -> None:
    keys = jax.eval_shape(lambda: keys_from(hash_key(0), trial.num_envs))
    action = jax.eval_shape(lambda: sample(hash_key(0), trial.env.action_space, trial.num_envs))
    before = jax.eval_shape(trial.batched.reset, keys)[0]
    after = jax.eval_shape(trial.batched.step, before, action)[0]
    # What JAX compiles for: the structure, and shape, dtype and weak type of every leaf.
    old_structure: Any = jax.tree.structure(before)
    new_structure: Any = jax.tree.structure(after)
    if old_structure != new_structure:
        raise Broken(f"the state's structure changes from {old_structure} to {new_structure}.")
    paths = jax.tree_util.tree_flatten_with_path(before)[0]
    for (path, old), new in zip(paths, jax.tree.leaves(after), strict=True):
        if (old.shape, old.dtype, old.weak_type) != (new.shape, new.dtype, new.weak_type):
            raise Broken(
                f"{jax.tree_util.keystr(path)} of the state is {old} after reset and {new} after step."
            )


def _must_equal(wanted: PyTree, found: PyTree, message: str, *, exact: bool = False) -> None:
    paths = jax.tree_util.tree_flatten_with_path(wanted)[0]
    for (path, left), right in zip(paths, jax.tree.leaves(found), strict=True):
        rough = 0 if exact or left.dtype.kind not in "fc" else 1e-4
        if not np.allclose(left, right, rtol=rough, atol=rough / 10, equal_nan=True):
            raise Broken(
                f"{message}, first in {jax.tree_util.keystr(path)}: is there a global, a Python "
                "random number, or a value kept from an earlier call?"
            )


_LAWS = (
    ("The spaces are gymnasium's", _spaces_are_gymnasiums),
    ("Reset and step return the same trees, shapes and dtypes", _reset_and_step_fit_together),
    ("Every observation lies in the observation space", _observations_lie_in_their_space),
    ("Rewards and observations are finite", _numbers_are_finite),
    ("The same key and actions give the same trace", _the_same_key_gives_the_same_trace),
    ("A row does not depend on the others, nor on N", _a_row_does_not_depend_on_the_others),
    ("The same key gives the same reset", _resets_take_their_key),
    ("The environment does not reset by itself", _it_does_not_reset_by_itself),
    ("Compiled, it does what it does in plain Python", _compiled_equals_plain_python),
    ("One compilation serves every step", _one_compilation_serves_every_step),
)
