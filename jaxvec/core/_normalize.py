"""Observations to mean 0 and variance 1, rewards by the spread of the discounted return."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import (
    check_clip,
    check_epsilon,
    check_flag,
    check_fraction,
    check_one_of,
)
from jaxvec.core._images import is_image_space
from jaxvec.core._layers import box_bounds, check_keys, only_named
from jaxvec.core._moments import PRECISIONS, Precision, scale_by_std, standardize
from jaxvec.core._statistics import (
    UPDATE_POLICIES,
    Statistics,
    UpdatePolicy,
    either,
    init_statistics,
    learn,
    map_statistics,
    merge_pending,
)
from jaxvec.core._transform import Timestep, Transform, VecSpec
from jaxvec.core._xp import (
    all_rows,
    backend_namespace,
    dense_rows,
    map_obs,
    moment_dtype,
    namespace,
    no_rows,
    obs_leaves,
    space_tree,
    tree_space,
    where_rows,
)
from jaxvec.typing import Array, Key, Obs, PyTree


class NormalizeObservationState(NamedTuple):
    """What is known of the observations."""

    statistics: PyTree  # a tree as the observation: Statistics, or None where a leaf is left alone
    training: Array  # bool []: whether the moments learn


class NormalizeRewardState(NamedTuple):
    """What is known of the discounted returns."""

    statistics: Statistics  # of the discounted return; shapes []
    returns: Array  # [N], the running discounted return
    training: Array  # bool []: whether the moments learn
    enabled: Array  # bool []: whether rewards leave normalized


def normalize_observation(
    *,
    keys: Sequence[Any] | None = None,
    clip: float = 10.0,
    epsilon: float = 1e-8,
    update: UpdatePolicy = "step",
    training: bool = True,
    count_final: bool = False,
    keep_bounds: bool = False,
    skip_non_finite: bool = False,
    precision: Precision = "float64",
) -> Transform:
    """Brings every number of an observation to mean 0 and variance 1, by the statistics so far.

    The statistics have the shape of one observation and are taken over all rows, of the observations
    that are handed out (an ended row's is its next episode's first); `final_obs` is normalized by them
    too. They are updated before they are used.

    A NaN or an infinity that is counted stays in the statistics for ever, and from then on every row
    leaves as NaN. Put `check_finite` below this layer to learn which row it came from before it spreads
    (above it, every row is flagged), or let `skip_non_finite` leave such rows out of the statistics.

    Args:
      keys: which keys of a Dict space (indices of a Tuple space) to normalize; None for all.
      clip: the largest magnitude that leaves, standard deviations.
      epsilon: added to the variance, in the observation's unit squared.
      update: when the statistics learn: every "step" (Stable-Baselines3's), once at the end of every
        "rollout" (within it they stand still, and no reduction over rows is in the loop), or never
        ("frozen").
      training: the switch's first position; it lies in the state (`jaxvec.set_training`).
      count_final: let `final_obs` enter the statistics too.
      keep_bounds: leave the bounds of spaces that are no images as they are, as Stable-Baselines3's
        VecNormalize does; otherwise they are `[-clip, clip]`.
      skip_non_finite: let no row enter the statistics whose part of the observation holds NaN or
        infinity. It leaves with them all the same. It costs one look at every number.
      precision: of the host's arithmetic: "float64" gives Stable-Baselines3's bits, "float32" is faster, and
        within 1e-6 of them. On a device all is float32 in any case.

    Returns:
      The transform. Normalized leaves are float32.

    Raises:
      ValueError: if an option does not exist or cannot be; once the spaces are known, if `keys` are
        given for a space without keys, or name one that is missing or no Box.
    """
    where = "normalize_observation"
    flags = {"training": training, "count_final": count_final, "keep_bounds": keep_bounds}
    _check_options(where, update, clip, epsilon, flags | {"skip_non_finite": skip_non_finite})
    check_one_of(where, "precision", precision, PRECISIONS)
    check_keys(where, keys)

    def init(spec: VecSpec, row_keys: Key | None = None) -> NormalizeObservationState:
        del row_keys
        statistics = map_obs(
            lambda box: None if box is None else init_statistics(spec, box.shape, update),
            _chosen(spec.observation_space, keys),
        )
        xp = backend_namespace(spec.backend)
        return NormalizeObservationState(statistics, xp.asarray(training))

    def count(
        state: NormalizeObservationState, obs: Obs, rows: Array | None
    ) -> NormalizeObservationState:
        def each(batch: Array, statistics: Statistics | None) -> Statistics | None:
            if statistics is None:
                return None
            counted = _finite_rows(batch, rows) if skip_non_finite else rows
            return learn(statistics, batch, counted, state.training, precision)

        if update == "frozen":
            return state
        statistics = map_obs(each, obs, state.statistics)
        return NormalizeObservationState(statistics, state.training)

    def normalized(state: NormalizeObservationState, timestep: Timestep) -> Timestep:
        def each(x: Array, statistics: Statistics | None) -> Array:
            if statistics is None:
                return x
            return standardize(
                x, statistics.moments, epsilon=epsilon, clip=clip, precision=precision
            )

        final = timestep.final_obs
        if final is not None:
            final = map_obs(each, final, state.statistics)
        return timestep.with_obs(map_obs(each, timestep.obs, state.statistics), final)

    def reset(
        state: NormalizeObservationState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[NormalizeObservationState, Timestep]:
        state = count(state, timestep.obs, mask)
        return state, normalized(state, timestep)

    def step(
        state: NormalizeObservationState, timestep: Timestep
    ) -> tuple[NormalizeObservationState, Timestep]:
        state = count(state, timestep.obs, None if all_rows(timestep.valid) else timestep.moved)
        if count_final and timestep.final_obs is not None:
            # Where an ended row does not show its next episode yet, `obs` is the final one: counted.
            final = dense_rows(timestep.final_obs, timestep.final_rows, timestep.first)
            state = count(state, final, timestep.done & timestep.first)
        return state, normalized(state, timestep)

    def spec(spec: VecSpec) -> VecSpec:
        def bounds(leaf: spaces.Space[Any], box: spaces.Box | None) -> spaces.Space[Any]:
            if box is None:
                return leaf
            if keep_bounds and not is_image_space(box):
                low, high = box_bounds(box, np.dtype(np.float32))
                return spaces.Box(low, high, dtype=np.float32)
            return spaces.Box(-clip, clip, box.shape, np.float32)

        space = spec.observation_space
        tree = map_obs(bounds, space_tree(space), _chosen(space, keys))
        return spec._replace(observation_space=tree_space(tree))

    def end_rollout(state: NormalizeObservationState) -> NormalizeObservationState:
        return state._replace(statistics=map_statistics(merge_pending, state.statistics))

    return Transform(init, reset, step, spec=spec, end_rollout=end_rollout)


def normalize_reward(
    *,
    gamma: float = 0.99,
    clip: float = 10.0,
    epsilon: float = 1e-8,
    update: UpdatePolicy = "step",
    training: bool = True,
    enabled: bool = True,
    skip_non_finite: bool = False,
) -> Transform:
    """Divides rewards by the standard deviation of the running discounted return.

    The return of a row is `R = gamma R + r`, counted, then 0 where the episode ended, for whatever
    reason. The mean is not taken off: that would change which policy is best. Of NaN and infinity, what
    `normalize_observation` says holds here too.

    Args:
      gamma: the discount per step.
      clip: the largest magnitude that leaves.
      epsilon: added to the variance, in the reward's unit squared.
      update: when the statistics learn, as in `normalize_observation`.
      training: the switch's first position; while it is off, returns stand still too.
      enabled: whether rewards leave normalized; a switch in the state. The statistics learn anyway.
      skip_non_finite: let no return enter the statistics that is NaN or infinite.

    Returns:
      The transform; rewards leave as float32 `[N]`.

    Raises:
      ValueError: if an option does not exist or cannot be.
    """
    flags = {"training": training, "enabled": enabled, "skip_non_finite": skip_non_finite}
    _check_options("normalize_reward", update, clip, epsilon, flags)
    check_fraction("normalize_reward", "gamma", gamma)

    def init(spec: VecSpec, keys: Key | None = None) -> NormalizeRewardState:
        del keys
        xp = backend_namespace(spec.backend)
        returns = xp.zeros(spec.num_envs, moment_dtype(spec.backend))
        statistics = init_statistics(spec, (), update)
        return NormalizeRewardState(statistics, returns, xp.asarray(training), xp.asarray(enabled))

    def reset(
        state: NormalizeRewardState, timestep: Timestep, mask: Array | None = None
    ) -> tuple[NormalizeRewardState, Timestep]:
        zeros = namespace(state.returns).zeros_like(state.returns)
        returns = zeros if mask is None else where_rows(mask, 0, state.returns)
        return state._replace(returns=returns), timestep

    def step(
        state: NormalizeRewardState, timestep: Timestep
    ) -> tuple[NormalizeRewardState, Timestep]:
        valid, first, raw = timestep.valid, timestep.first, timestep.reward
        rows = None if all_rows(valid) else valid
        returns = discounted(state.returns, raw, gamma)
        if rows is not None:
            returns = where_rows(rows, returns, state.returns)
        returns = either(state.training, returns, state.returns)
        statistics = state.statistics
        if update != "frozen":
            counted = _finite_rows(returns, rows) if skip_non_finite else rows
            statistics = learn(statistics, returns, counted, state.training)
        reward = scale_by_std(raw, statistics.moments, epsilon=epsilon, clip=clip)
        reward = either(state.enabled, reward, raw)
        if not no_rows(first):
            returns = where_rows(first, 0, returns)
        state = NormalizeRewardState(statistics, returns, state.training, state.enabled)
        return state, timestep.with_reward(reward)

    def end_rollout(state: NormalizeRewardState) -> NormalizeRewardState:
        return state._replace(statistics=merge_pending(state.statistics))

    return Transform(init, reset, step, end_rollout=end_rollout)


def set_training(state: PyTree, training: bool) -> PyTree:
    """Returns a state with every `training` switch in it set; nothing is compiled again.

    Args:
      state: any tree of tuples, dicts and records: a transform's state, an environment's, a carry.
      training: whether the statistics learn from now on.

    Raises:
      ValueError: if `training` is no bool.
    """
    check_flag("set_training", "training", training)
    if isinstance(state, NormalizeObservationState | NormalizeRewardState):
        xp = namespace(state.training)
        return state._replace(training=xp.full_like(state.training, training))
    if isinstance(state, dict):
        return {key: set_training(branch, training) for key, branch in state.items()}
    if isinstance(state, tuple):
        branches = [set_training(branch, training) for branch in state]
        make: Callable[..., Any] = getattr(state, "_make", tuple)
        return make(branches)
    return state


def _check_options(
    where: str, update: object, clip: object, epsilon: object, flags: dict[str, bool]
) -> None:
    check_one_of(where, "update", update, UPDATE_POLICIES)
    check_clip(where, "clip", clip)
    check_epsilon(where, "epsilon", epsilon)
    for name, flag in flags.items():
        check_flag(where, name, flag)


def _finite_rows(batch: Array, rows: Array | None) -> Array:
    """Returns which of the rows that count hold neither NaN nor infinity: bool `[N]`."""
    finite = namespace(batch).isfinite(batch).all(axis=tuple(range(1, batch.ndim)))
    return finite if rows is None else finite & rows


def _chosen(space: spaces.Space[Any], keys: Sequence[Any] | None) -> PyTree:
    """Returns the space's tree with None where a leaf is left as it is."""
    tree = space_tree(space)
    if keys is not None:
        tree = only_named(tree, keys, "normalize_observation")
    for path, leaf in obs_leaves(tree):
        if leaf is not None and not isinstance(leaf, spaces.Box):
            raise ValueError(
                f"normalize_observation: the observation{path} holds {leaf}, which has no mean: only "
                "Box spaces are normalized. Name the Box keys in keys=[...], or put one_hot or "
                "extract_key below."
            )
    return tree


def discounted(returns: Array, reward: Array, gamma: float) -> Array:
    """Returns `gamma R + r` of each row, `[N]`: SB3's return, discounted from the episode's start on."""
    return returns * gamma + reward
