"""Normalization: Stable-Baselines3's VecNormalize to the last bit, then every rule by hand."""

import copy
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from jaxvec.core._episode import episode_statistics
from jaxvec.core._frame_stack import frame_stack
from jaxvec.core._moments import init_moments, update_moments
from jaxvec.core._normalize import normalize_observation, normalize_reward, set_training
from jaxvec.core._transform import Timestep, Transform, VecSpec, chain, named_chain
from jaxvec.core._xp import map_obs
from tests.core.scripted import ScriptedVecEnv, terminal_rows
from tests.core.table import (
    Stream,
    as_run,
    assert_close,
    make_stream,
    on_device,
    run_numpy,
    scan_function,
    scan_inputs,
    sparse,
)

VecNormalize = pytest.importorskip("stable_baselines3.common.vec_env").VecNormalize

BACKENDS = pytest.mark.parametrize("backend", ["numpy", "jax"])
MODES = pytest.mark.parametrize("mode", list(AutoresetMode))

VECTOR = spaces.Box(-1, 1, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (4, 5, 3), np.uint8)
MIXED = spaces.Dict(camera=IMAGE, goal=spaces.Discrete(4), state=VECTOR)
NUMBERS = spaces.Dict(camera=IMAGE, state=VECTOR)


# --- Stable-Baselines3's VecNormalize is the oracle ----------------------------------------------


def sb3_layers(keys: Any = None, **options: Any) -> Transform:
    """VecNormalize as a chain: observations and rewards do not look at each other."""
    clip_obs, clip_reward = options.get("clip_obs", 10.0), options.get("clip_reward", 10.0)
    epsilon = options.get("epsilon", 1e-8)
    return chain(
        normalize_observation(keys=keys, clip=clip_obs, epsilon=epsilon, keep_bounds=True),
        normalize_reward(gamma=options.get("gamma", 0.99), clip=clip_reward, epsilon=epsilon),
    )


@pytest.mark.parametrize(
    ("space", "options"),
    [
        (VECTOR, {}),
        (VECTOR, {"gamma": 0.9, "clip_obs": 1.0, "clip_reward": 0.5, "epsilon": 0.1}),
        (spaces.Box(-9, 9, (2, 2), np.float64), {}),
        (spaces.Box(0, 255, (6,), np.uint8), {}),
        (IMAGE, {}),
        (NUMBERS, {}),
        (MIXED, {"norm_obs_keys": ["state"]}),
    ],
)
def test_observations_rewards_and_statistics_are_sb3s_to_the_last_bit(
    space: Any, options: dict[str, Any]
) -> None:
    stream = make_stream(space, num_envs=3, num_steps=320, end=0.1)
    oracle = VecNormalize(ScriptedVecEnv(stream), **options)
    keys = options.pop("norm_obs_keys", None)
    transform = sb3_layers(keys, **options)
    assert transform.spec(stream.spec).observation_space.shape == oracle.observation_space.shape
    state = transform.init(stream.spec, None)
    state, opening = transform.reset(state, sparse(stream.opening), None)
    assert_close(opening.obs, oracle.reset())
    for timestep in stream.steps:
        obs, rewards, _, infos = oracle.step(None)
        state, timestep = transform.update(state, sparse(timestep))
        assert_close(timestep.obs, obs)
        assert_close(timestep.reward, rewards)
        if timestep.final_rows is not None:
            assert_close(timestep.final_obs, terminal_rows(infos, timestep.final_rows))
        assert np.array_equal(state[1].returns, oracle.returns)
    theirs = oracle.obs_rms if isinstance(oracle.obs_rms, dict) else {None: oracle.obs_rms}
    mine = state[0].statistics
    mine = {key: mine[key] for key in theirs} if isinstance(mine, dict) else {None: mine}
    for key, rms in [*theirs.items(), ("reward", oracle.ret_rms)]:
        moments = (state[1].statistics if key == "reward" else mine[key]).moments
        assert np.array_equal(moments.mean, rms.mean)
        assert np.array_equal(moments.var, rms.var)
        assert moments.count == rms.count


@pytest.mark.parametrize("space", [VECTOR, NUMBERS])
def test_the_compiled_layers_give_sb3s_numbers_too(space: Any) -> None:
    stream = make_stream(space, num_envs=3, num_steps=320, end=0.1)
    oracle = VecNormalize(ScriptedVecEnv(stream))
    function = jax.jit(scan_function(sb3_layers(), stream.spec))
    run = as_run(function(*on_device(scan_inputs(stream))))
    assert_close(run.opening.obs, oracle.reset(), rtol=1e-5, atol=1e-5)
    for timestep in run.steps:
        obs, rewards, _, _ = oracle.step(None)
        assert_close(timestep.obs, obs, rtol=1e-5, atol=1e-5)
        assert_close(timestep.reward, rewards, rtol=1e-5, atol=1e-6)


def test_images_of_a_kept_space_still_get_sb3s_float_bounds() -> None:
    spec = VecSpec(1, NUMBERS, spaces.Discrete(2))
    oracle = VecNormalize(ScriptedVecEnv(make_stream(NUMBERS)))
    kept = normalize_observation(keep_bounds=True).spec(spec).observation_space
    assert kept["camera"] == oracle.observation_space["camera"]
    assert kept["state"] == oracle.observation_space["state"]


# --- By hand -------------------------------------------------------------------------------------


def put(backend: str, tree: Any) -> Any:
    return on_device(tree) if backend == "jax" else tree


def spec_of(backend: str, num_envs: int, space: Any = VECTOR) -> VecSpec:
    return VecSpec(num_envs, space, spaces.Discrete(2), backend=backend)  # type: ignore[arg-type]


def timestep(
    backend: str,
    obs: Any,
    reward: Any = None,
    done: Any = None,
    *,
    truncated: bool = False,
    **fields: Any,
) -> Timestep:
    """A step; `obs` `[N, D]`. Rows that end show their next episode at once unless told otherwise."""
    obs = np.asarray(obs, np.float32)
    no = np.zeros(len(obs), bool)
    done = no if done is None else np.asarray(done, bool)
    step = Timestep(
        obs,
        np.zeros(len(obs), np.float32) if reward is None else np.asarray(reward, np.float32),
        no if truncated else done,
        done if truncated else no,
        ~no if "valid" not in fields else np.asarray(fields["valid"], bool),
        done if "first" not in fields else np.asarray(fields["first"], bool),
        obs if "final" not in fields else np.asarray(fields["final"], np.float32),
    )
    return put(backend, step)


def moments_of(state: Any) -> tuple[Any, Any, float]:
    moments = state.statistics.moments
    words = [
        np.float64(high) + np.float64(low)
        for high, low in zip(moments[:3], moments[3:], strict=True)
    ]
    return words[0], words[1], float(words[2])


def float64_moments(*batches: Any) -> tuple[Any, Any, float]:
    moments = init_moments(np.shape(batches[0])[1:], "numpy")
    for batch in batches:
        moments = update_moments(moments, np.asarray(batch, np.float64))
    return moments.mean, moments.var, float(moments.count)


def assert_moments(state: Any, *batches: Any) -> None:
    for mine, want in zip(moments_of(state), float64_moments(*batches), strict=True):
        np.testing.assert_allclose(mine, want, rtol=3e-6, atol=1e-7)


@BACKENDS
def test_the_first_two_rewards_are_scaled_as_worked_out_by_hand(backend: str) -> None:
    transform = normalize_reward(gamma=0.99)
    state = transform.init(spec_of(backend, 2), None)
    state, out = transform.update(state, timestep(backend, np.zeros((2, 3)), [1, 2]))
    mean, var, count = moments_of(state)
    np.testing.assert_allclose([mean, var, count], [1.499925, 0.25015, 2.0001], rtol=1e-5)
    np.testing.assert_allclose(out.reward, [1.9994003, 3.9988005], rtol=1e-6)


@BACKENDS
@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_the_return_is_counted_and_then_cleared_where_an_episode_ends(
    gamma: float, truncated: bool, backend: str
) -> None:
    transform = normalize_reward(gamma=gamma)
    state = transform.init(spec_of(backend, 1), None)
    seen = []
    for t in range(1, 10):
        step = timestep(backend, np.zeros((1, 3)), [1], [t % 3 == 0], truncated=truncated)
        state, _ = transform.update(state, step)
        seen.append(float(state.returns[0]))
    np.testing.assert_allclose(seen, [1, 1 + gamma, 0] * 3, rtol=1e-6)
    returns = [1, 1 + gamma, 1 + gamma + gamma**2] * 3
    assert_moments(state, *[[each] for each in returns])


@BACKENDS
@MODES
def test_returns_and_counts_hold_real_steps_only_in_every_autoreset_mode(
    backend: str, mode: AutoresetMode
) -> None:
    transform = normalize_reward(gamma=0.9)
    state = transform.init(spec_of(backend, 1), None)
    obs = np.zeros((1, 3))
    for _ in range(4):
        for t in (1, 2, 3):
            first = [t == 3 and mode is AutoresetMode.SAME_STEP]
            state, _ = transform.update(state, timestep(backend, obs, [1], [t == 3], first=first))
        if mode is AutoresetMode.NEXT_STEP:
            step = timestep(backend, obs, [7], valid=[False], first=[True])
            state, _ = transform.update(state, step)
        elif mode is AutoresetMode.DISABLED:
            step = timestep(backend, obs, [7], [True], valid=[False], first=[False])
            state, _ = transform.update(state, step)
            state, _ = transform.reset(state, step, put(backend, np.array([True])))
    assert_moments(state, *[[each] for each in [1, 1.9, 2.71] * 4])
    assert float(state.returns[0]) == 0


@BACKENDS
@MODES
def test_observations_are_counted_once_each_in_every_autoreset_mode(
    backend: str, mode: AutoresetMode
) -> None:
    stream = make_stream(VECTOR, mode=mode, num_steps=60)
    run = run_on(backend, normalize_observation(), stream)
    counted = [step.obs[step.valid | step.first] for step in [stream.opening, *stream.steps]]
    assert_moments(run.state, *[batch for batch in counted if len(batch)])


@BACKENDS
@MODES
def test_final_observations_are_counted_where_asked_for(backend: str, mode: AutoresetMode) -> None:
    stream = make_stream(VECTOR, mode=mode, num_steps=60)
    for update in ("step", "rollout"):
        run = run_on(backend, normalize_observation(count_final=True, update=update), stream)
        counted = [stream.opening.obs]
        for step in stream.steps:
            counted.append(step.obs[step.valid | step.first])
            if (
                mode is AutoresetMode.SAME_STEP
            ):  # else the final observation was handed out as `obs`
                counted.append(step.final_obs[step.done])
        assert_moments(run.state, np.concatenate(counted))


@BACKENDS
def test_final_observations_are_normalized_by_the_same_statistics_and_not_counted(
    backend: str,
) -> None:
    transform = normalize_observation()
    state = transform.init(spec_of(backend, 2), None)
    obs, final = np.float32([[1, 2, 3], [4, 5, 7]]), np.float32([[1, 2, 3], [100, 50, 7]])
    state, out = transform.update(state, timestep(backend, obs, done=[0, 1], final=final))
    mean, var, count = float64_moments(obs)
    np.testing.assert_allclose(out.obs, (obs - mean) / np.sqrt(var + 1e-8), rtol=1e-5, atol=1e-6)
    want = np.clip((final - mean) / np.sqrt(var + 1e-8), -10, 10)
    np.testing.assert_allclose(out.final_obs, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(count, 2.0001, rtol=1e-12)


@BACKENDS
def test_a_reset_counts_observations_but_no_returns(backend: str) -> None:
    transform = chain(normalize_observation(), normalize_reward())
    state = transform.init(spec_of(backend, 2), None)
    opening = timestep(backend, [[1, 2, 3], [4, 5, 6]], first=[1, 1], valid=[0, 0])
    state, out = transform.reset(state, opening, None)
    assert_moments(state[0], [[1, 2, 3], [4, 5, 6]])
    assert moments_of(state[1])[2] == pytest.approx(1e-4)
    np.testing.assert_allclose(out.obs[1], -np.asarray(out.obs[0]), rtol=1e-3)


@BACKENDS
def test_a_partial_reset_counts_and_clears_the_chosen_rows_alone(backend: str) -> None:
    transform = chain(normalize_observation(), normalize_reward())
    state = transform.init(spec_of(backend, 2), None)
    state, _ = transform.update(state, timestep(backend, np.ones((2, 3)), [5, 7]))
    obs = np.float32([[1, 2, 3], [np.nan] * 3])
    state, _ = transform.reset(state, timestep(backend, obs), put(backend, np.array([True, False])))
    assert np.asarray(state[1].returns).tolist() == [0, 7]
    assert_moments(state[0], np.ones((2, 3)), obs[:1])


@BACKENDS
def test_every_number_has_a_mean_of_its_own_whatever_the_number_of_environments(
    backend: str,
) -> None:
    obs = np.random.default_rng(0).normal([0, 5, -1], [1, 10, 0.1], (64, 3)).astype(np.float32)
    transform = normalize_observation()
    state = transform.init(spec_of(backend, 64), None)
    state, out = transform.update(state, timestep(backend, obs))
    assert state.statistics.moments.mean.shape == (3,)
    np.testing.assert_allclose(np.std(out.obs, 0), [1, 1, 1], rtol=1e-3)
    assert_moments(state, obs)


@BACKENDS
def test_keys_choose_branches_of_dicts_and_tuples(backend: str) -> None:
    stream = make_stream(MIXED)
    as_tuple = spaces.Tuple([MIXED["goal"], MIXED["state"]])
    for space, keys, other in ((MIXED, ["state"], "goal"), (as_tuple, [1], 0)):
        stream = make_stream(space)
        transform = normalize_observation(keys=keys)
        run = run_on(backend, transform, stream)
        key = keys[0]
        new = transform.spec(stream.spec).observation_space
        assert new[other] == space[other]
        assert new[key] == spaces.Box(-10, 10, (3,), np.float32)
        for before, after in zip(stream.steps, run.steps, strict=True):
            assert np.array_equal(after.obs[other], before.obs[other])
            assert not np.allclose(after.obs[key], before.obs[key])
        statistics = run.state.statistics
        assert statistics[other] is None
        assert statistics[key].moments.mean.shape == (3,)


# --- Update policies and switches ----------------------------------------------------------------


def run_on(backend: str, transform: Transform, stream: Stream) -> Any:
    if backend == "numpy":
        return run_numpy(transform, stream)
    outputs = jax.jit(scan_function(transform, stream.spec))(*on_device(scan_inputs(stream)))
    return as_run(outputs)


@BACKENDS
@MODES
def test_rollout_statistics_stand_still_and_are_merged_once_at_its_end(
    backend: str, mode: AutoresetMode
) -> None:
    stream = make_stream(VECTOR, num_steps=60, mode=mode)

    def layers(update: Any) -> Transform:
        return chain(normalize_observation(update=update), normalize_reward(update=update))

    frozen = run_on(backend, layers("frozen"), stream)
    run = run_on(backend, layers("rollout"), stream)
    for step, still in zip(run.steps, frozen.steps, strict=True):
        assert np.array_equal(step.obs, still.obs)
        assert np.array_equal(step.reward, still.reward)
    every = run_on(backend, layers("step"), stream)
    for mine, want in zip(run.state, every.state, strict=True):
        for x, y in zip(moments_of(mine), moments_of(want), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
        assert not any(np.any(field) for field in mine.statistics.pending)
    again = layers("rollout").end_rollout(run.state)  # nothing is set aside: nothing happens
    for x, y in zip(jax.tree.leaves(again), jax.tree.leaves(run.state), strict=True):
        np.testing.assert_array_equal(x, y)


@BACKENDS
def test_two_rollouts_learn_as_much_as_one(backend: str) -> None:
    transform = normalize_observation(update="rollout")
    stream = make_stream(VECTOR, num_steps=20)
    state = transform.init(spec_of(backend, 4), None)
    state, _ = transform.reset(state, put(backend, stream.opening), None)
    for index, step in enumerate(stream.steps, 1):
        state, _ = transform.update(state, put(backend, step))
        if index % 5 == 0:
            state = transform.end_rollout(state)
    assert_moments(
        state, np.concatenate([stream.opening.obs, *[step.obs for step in stream.steps]])
    )


@BACKENDS
def test_pending_rows_far_from_zero_are_merged_without_cancelling(backend: str) -> None:
    transform = normalize_reward(gamma=0.0, update="rollout")
    rewards = np.random.default_rng(0).normal(1000, 1, (200, 8)).astype(np.float32)
    state = transform.init(spec_of(backend, 8), None)
    for row in rewards:
        state, _ = transform.update(state, timestep(backend, np.zeros((8, 3)), row))
    state = transform.end_rollout(state)
    mean, var, _ = float64_moments(rewards.ravel())
    np.testing.assert_allclose(moments_of(state)[0], mean, rtol=1e-7)
    np.testing.assert_allclose(moments_of(state)[1], var, rtol=1e-5)


@BACKENDS
def test_frozen_statistics_never_learn(backend: str) -> None:
    stream = make_stream(VECTOR)
    for update in (
        {"update": "frozen"},
        {"training": False},
        {"training": False, "update": "rollout"},
    ):
        layers = chain(normalize_observation(**update), normalize_reward(**update))
        run = run_on(backend, layers, stream)
        for state in run.state:
            assert moments_of(state)[2] == pytest.approx(1e-4, rel=1e-9)
        scale = np.sqrt(1 + 1e-8)
        np.testing.assert_allclose(run.steps[3].obs, stream.steps[3].obs / scale, rtol=1e-6)
    assert not np.any(run.state[1].returns)  # training=False: returns stand still, as SB3's do


@BACKENDS
def test_set_training_reaches_every_switch_and_nothing_else(backend: str) -> None:
    layers = named_chain(
        monitor=episode_statistics(),
        inner=chain(frame_stack(2), normalize_observation(update="rollout")),
        reward=normalize_reward(),
    )
    state = layers.init(spec_of(backend, 2), None)
    carry = {"env": (state, None), "step": 3}
    off = set_training(carry, False)
    assert not bool(off["env"][0]["inner"][1].training)
    assert not bool(off["env"][0]["reward"].training)
    assert bool(state["reward"].training), "the old state was written to"
    assert jax.tree.structure(off) == jax.tree.structure(carry)
    back = set_training(off, True)
    for x, y in zip(jax.tree.leaves(back), jax.tree.leaves(carry), strict=True):
        assert np.array_equal(x, y)
        assert getattr(x, "dtype", None) == getattr(y, "dtype", None)


def test_switching_training_compiles_nothing_again() -> None:
    layers, traces = chain(normalize_observation(), normalize_reward()), []

    @jax.jit
    def update(state: Any, step: Timestep) -> Any:
        traces.append(1)
        return layers.update(state, step)

    state = layers.init(spec_of("jax", 2), None)
    step = timestep("jax", np.ones((2, 3)), [1, 2])
    counts = []
    for training in (True, False, True):
        state, _ = update(set_training(state, training), step)
        counts.append(moments_of(state[0])[2])
    assert len(traces) == 1
    np.testing.assert_allclose(counts, [2.0001, 2.0001, 4.0001], rtol=1e-9)


@BACKENDS
def test_rewards_leave_raw_while_their_switch_is_off_and_the_statistics_learn(backend: str) -> None:
    transform = normalize_reward(enabled=False)
    state = transform.init(spec_of(backend, 2), None)
    step = timestep(backend, np.zeros((2, 3)), [1, 2])
    state, out = transform.update(state, step)
    assert np.asarray(out.reward).tolist() == [1, 2]
    assert_moments(state, [1, 2])
    state, out = transform.update(state._replace(enabled=~state.enabled), step)
    assert np.asarray(out.reward).tolist() != [1, 2]


@BACKENDS
def test_a_reward_that_is_not_valid_may_be_anything(backend: str) -> None:
    transform = normalize_reward()
    state = transform.init(spec_of(backend, 3), None)
    step = timestep(
        backend, np.zeros((3, 3)), [1, np.nan, np.inf], valid=[1, 0, 0], first=[0, 1, 0]
    )
    state, _ = transform.update(state, step)
    assert_moments(state, [1])
    assert np.asarray(state.returns).tolist() == [1, 0, 0]


# --- Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [normalize_observation, normalize_reward])
def test_an_update_policy_that_does_not_exist_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"update='always' .* 'step', 'rollout', 'frozen'"):
        make(update="always")


@pytest.mark.parametrize(
    ("space", "keys", "words"),
    [
        (VECTOR, ["state"], "has no keys"),
        (MIXED, ["state", "speed"], r"has no \['speed'\]"),
        (MIXED, ["goal"], r"the observation\['goal'\] holds Discrete"),
        (MIXED, None, "holds Discrete"),
        (spaces.Discrete(3), None, "the observation holds Discrete"),
        (spaces.Tuple([VECTOR]), [1], r"has no \[1\]"),
    ],
)
def test_spaces_without_a_mean_are_refused_by_init_and_by_spec(
    space: Any, keys: Any, words: str
) -> None:
    spec = VecSpec(1, space, spaces.Discrete(2))
    for function in (lambda t: t.init(spec, None), lambda t: t.spec(spec)):
        with pytest.raises(ValueError, match=words):
            function(normalize_observation(keys=keys))


def test_nested_branches_are_normalized_leaf_by_leaf() -> None:
    space = spaces.Dict(
        arm=spaces.Tuple([VECTOR, spaces.Dict(hand=VECTOR)]), goal=spaces.Discrete(2)
    )
    stream = make_stream(space)
    run = run_numpy(normalize_observation(keys=["arm"]), stream)
    assert map_obs(np.shape, run.steps[0].obs) == {"arm": ((4, 3), {"hand": (4, 3)}), "goal": (4,)}
    assert run.state.statistics["goal"] is None
    assert run.state.statistics["arm"][1]["hand"].moments.mean.shape == (3,)


@pytest.mark.parametrize("keep_bounds", [False, True])
def test_the_inner_space_is_not_touched(keep_bounds: bool) -> None:
    space = copy.deepcopy(NUMBERS)
    normalize_observation(keep_bounds=keep_bounds).spec(VecSpec(1, space, spaces.Discrete(2)))
    assert space == NUMBERS


def test_kept_bounds_are_rounded_to_float32_without_a_warning() -> None:
    space = spaces.Box(-0.1, np.finfo(np.float64).max, (2,), np.float64)
    spec = normalize_observation(keep_bounds=True).spec(VecSpec(1, space, spaces.Discrete(2)))
    assert spec.observation_space == spaces.Box(np.float32(-0.1), np.inf, (2,), np.float32)
