"""The laws of an environment, checked on many random steps of it."""

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxvec.core._xp import map_obs, obs_leaves
from jaxvec.envs._env import Env
from jaxvec.envs._vectorize import vectorize
from jaxvec.random import hash_key, keys_from
from jaxvec.spaces import sample
from jaxvec.testing._report import Broken, Report, examine
from jaxvec.typing import PyTree


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
      num_envs: how many copies take random actions.
      num_steps: how many steps, at the most, each takes.
      seed: of keys and actions.
      raise_on_failure: whether to raise if a law does not hold; else the report says so.

    Returns:
      The report, law by law.

    Raises:
      TypeError: if `env` is no `Env` record.
      CheckError: if a law does not hold; the message explains each.
    """
    if not isinstance(env, Env):
        raise TypeError(
            f"check_env: {env!r} is a {type(env).__name__}; it takes a jaxvec.Env record."
        )
    name = str(env.metadata.get("name", getattr(env.reset, "__qualname__", "the environment")))
    trial = _Trial(env, num_envs, num_steps, seed)
    return examine(name, _LAWS, trial, raise_on_failure=raise_on_failure)


class _Trial:
    """An environment, and what it did under random actions; each part is made when first read."""

    def __init__(self, env: Env[Any, Any], num_envs: int, num_steps: int, seed: int) -> None:
        self.env, self.num_envs, self.num_steps, self.seed = env, num_envs, num_steps, seed

    @cached_property
    def batched(self) -> Any:
        return vectorize(self.env, self.num_envs, autoreset_mode="Disabled")

    @cached_property
    def actions(self) -> Any:
        keys = keys_from(hash_key(self.seed + 1), self.num_steps)
        draw = jax.jit(lambda key: sample(key, self.env.action_space, self.num_envs))
        return jax.lax.map(draw, keys)

    def play(self, batched: Any, actions: Any, key: Any) -> Any:
        """Returns the first timestep, all others stacked, and the states after each step."""

        def body(state: PyTree, action: PyTree) -> Any:
            state, timestep = batched.step(state, action)
            return state, (timestep, state.env)

        @jax.jit
        def run(key: Any, actions: Any) -> Any:
            state, first = batched.reset(keys_from(key, batched.spec.num_envs))
            _, (steps, states) = jax.lax.scan(body, state, actions)
            return first, steps, state.env, states

        return jax.tree.map(_as_numpy, run(key, actions))

    @cached_property
    def played(self) -> Any:
        return self.play(self.batched, self.actions, hash_key(self.seed))

    @cached_property
    def openings(self) -> Any:
        """States and observations of 256 resets."""
        batched = vectorize(self.env, 256, autoreset_mode="Disabled")
        state, timestep = jax.jit(batched.reset)(keys_from(hash_key(self.seed + 2), 256))
        return jax.tree.map(_as_numpy, (state.env, timestep.obs))


def _as_numpy(leaf: Any) -> Any:
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _spaces_are_gymnasiums(trial: _Trial) -> None:
    for name in ("observation_space", "action_space"):
        space = getattr(trial.env, name)
        if not isinstance(space, spaces.Space):
            raise Broken(
                f"{name} is {space!r} ({type(space).__name__}); convert it with "
                "jaxvec.spaces.to_gymnasium_space."
            )


def _reset_and_step_fit_together(trial: _Trial) -> None:
    try:
        trial.batched  # noqa: B018  it checks by being made
    except Exception as error:
        raise Broken(str(error)) from error


def _observations_lie_in_their_space(trial: _Trial) -> None:
    first, steps, _, _ = trial.played
    seen = [("reset", first.obs)]
    for step in range(min(trial.num_steps, 50)):
        seen.append((f"step {step}", jax.tree.map(lambda leaf, t=step: leaf[t], steps.obs)))
    for where, obs in seen:
        for row in range(trial.num_envs):
            one = map_obs(lambda leaf, at=row: _element(leaf[at]), obs)
            if not trial.env.observation_space.contains(one):
                raise Broken(
                    f"after {where}, row {row} observes {one!r}, which is not in "
                    f"{trial.env.observation_space}; widen the bounds or correct the value."
                )


def _element(value: Any) -> Any:
    return value if value.ndim else value[()]


def _numbers_are_finite(trial: _Trial) -> None:
    _, steps, _, _ = trial.played
    for name, tree in (("reward", steps.reward), ("observation", steps.obs)):
        for path, leaf in obs_leaves(tree):
            if leaf.dtype.kind == "f" and not np.isfinite(leaf).all():
                step, row = np.argwhere(~np.isfinite(leaf))[0][:2]
                raise Broken(f"the {name}{path} of step {step}, row {row} is NaN or infinite.")


def _the_same_key_gives_the_same_trace(trial: _Trial) -> None:
    again = trial.play(trial.batched, trial.actions, hash_key(trial.seed))
    _must_equal(trial.played, again, "two runs with equal keys and actions differ", exact=True)


def _a_row_does_not_depend_on_the_others(trial: _Trial) -> None:
    small = vectorize(trial.env, 2, autoreset_mode="Disabled")
    steps = min(trial.num_steps, 20)  # beyond, a chaotic system grows rounding to anything
    few = jax.tree.map(lambda leaf: leaf[:steps, :2], trial.actions)
    _, alone, _, _ = trial.play(small, few, hash_key(trial.seed))
    _, among, _, _ = trial.played
    among = jax.tree.map(lambda leaf: leaf[:steps, :2], among)
    _must_equal(among, alone, f"row 0 or 1 of {trial.num_envs} differs from the same row of 2")


def _resets_take_their_key(trial: _Trial) -> str | None:
    states, _ = trial.openings
    leaves = [leaf for leaf in jax.tree.leaves(states) if leaf.shape[:1] == (256,)]
    count = max((len(np.unique(each.reshape(256, -1), axis=0)) for each in leaves), default=1)
    again, _ = vectorize(trial.env, 256, autoreset_mode="Disabled").reset(
        keys_from(hash_key(trial.seed + 2), 256)
    )
    _must_equal(states, jax.tree.map(_as_numpy, again.env), "two resets with equal keys differ")
    return None if count > 16 else f"256 resets gave {count} different state(s): is that meant?"


def _it_does_not_reset_by_itself(trial: _Trial) -> None:
    _, steps, first_states, states = trial.played
    ended = np.argwhere(np.diff(_done(steps), axis=0, prepend=False))
    if len(ended) < 4:
        return  # too few episodes ended to tell
    opened, _ = trial.openings
    alike = np.ones(len(ended), bool)
    told = np.zeros(len(ended), bool)
    for opening, leaf, first in zip(
        *map(jax.tree.leaves, (opened, states, first_states)), strict=True
    ):
        if leaf.dtype.kind not in "fiub" or leaf.shape[:2] != _done(steps).shape:
            continue
        low, high = opening.min(0), opening.max(0)
        width = (high - low) if leaf.dtype.kind == "f" else 0
        low, high = low - 0.05 * width, high + 0.05 * width
        before = np.concatenate([first[None], leaf])[ended[:, 0], ended[:, 1]]
        after = leaf[ended[:, 0], ended[:, 1]]
        axes = tuple(range(1, after.ndim))
        alike &= ((after >= low) & (after <= high)).all(axes)
        told |= ((before < low) | (before > high)).any(axes)
    if told.mean() > 0.9 and alike.mean() > 0.9:
        raise Broken(
            f"in {alike.sum()} of {len(ended)} episodes the state after the last step looks like a "
            "fresh one: the environment seems to reset by itself, which loses the last observation. "
            "Give its raw step; vectorize resets."
        )


def _done(steps: Any) -> Any:
    return steps.terminated | steps.truncated


def _compiled_equals_plain_python(trial: _Trial) -> None:
    steps = min(trial.num_steps, 2)
    small = vectorize(trial.env, 2, autoreset_mode="Disabled")
    few = jax.tree.map(lambda leaf: leaf[:steps, :2], trial.actions)
    compiled = trial.play(small, few, hash_key(trial.seed))
    state, first = small.reset(keys_from(hash_key(trial.seed), 2))
    plain = []
    for step in range(steps):
        state, timestep = small.step(state, jax.tree.map(lambda leaf, t=step: leaf[t], few))
        plain.append(timestep)
    obs = [first.obs, *(timestep.obs for timestep in plain)]
    for step, each in enumerate(obs):
        wanted = (
            compiled[0].obs
            if step == 0
            else jax.tree.map(lambda leaf, t=step - 1: leaf[t], compiled[1].obs)
        )
        _must_equal(wanted, jax.tree.map(_as_numpy, each), f"after step {step} they differ")


def _one_compilation_serves_every_step(trial: _Trial) -> None:
    batched, traces = trial.batched, 0

    def step(state: PyTree, action: PyTree) -> PyTree:
        nonlocal traces
        traces += 1
        return batched.step(state, action)[0]

    compiled = jax.jit(step)
    state, _ = jax.jit(batched.reset)(keys_from(hash_key(trial.seed), trial.num_envs))
    for index in range(min(3, trial.num_steps)):
        state = compiled(state, jax.tree.map(lambda leaf, t=index: leaf[t], trial.actions))
    if traces != 1:
        raise Broken(f"3 steps were compiled {traces} times: some leaf changes shape or dtype.")


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
