"""What SB3 checks of its monitor, NaN check, normalization and frame stack, over compiled environments.

Each check is made twice: with jaxvec's wrappers, which are compiled with the environment, and with SB3's own,
which take JaxVecEnv for any VecEnv.
"""

import csv
import json

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import stable_baselines3.common.vec_env as sb3
from gymnasium import spaces
from stable_baselines3 import PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import get_monitor_files, load_results
from stable_baselines3.common.vec_env.stacked_observations import StackedObservations

import jaxvec.vec as jv
from jaxvec import Env, episode_statistics, vectorize, wrap
from jaxvec.envs import make
from jaxvec.spaces import sample
from jaxvec.vec import JaxVecEnv
from tests.modes import in_32_bits
from tests.vec.jax_envs import draws, random_actions

# They compile anew for nearly every case, minutes in all.
pytestmark = pytest.mark.long

LIBRARIES = pytest.mark.parametrize("lib", [jv, sb3], ids=["jaxvec", "sb3"])
BOX_ACTIONS = spaces.Box(-1, 1, (3,), np.float32)


def cart_poles(num_envs=1, **options):
    return JaxVecEnv(vectorize(make("CartPole-v1"), num_envs), **options)


def pendulums(num_envs=1, **options):
    return JaxVecEnv(vectorize(make("Pendulum-v1"), num_envs), **options)


def sampled(space, reward=lambda obs: 0.0, **record):
    """Returns an environment whose observations are drawn from a space; a fifth of its steps end."""

    def observed(key):
        return jax.tree.map(lambda leaf: leaf[0], sample(key, space, 1))

    def reset(key, params):
        return key, observed(key), {}

    def step(key, state, action, params):
        obs = observed(key)
        ended = jax.random.uniform(jax.random.fold_in(key, 1)) > 0.8
        return key, obs, reward(obs), ended, False, {}

    fields = {"params": None, "action_space": BOX_ACTIONS, **record}
    return Env(reset, step, observation_space=space, **fields)


def goal_reward(achieved, desired):
    return -(jnp.linalg.norm(achieved - desired, axis=-1) > 0).astype(np.float32)


def goals(num_envs=1):
    """Returns what HER trains on: a goal, how near one is, and the reward of any such pair."""
    part = spaces.Box(-20, 20, (4,), np.float32)
    space = spaces.Dict(observation=part, achieved_goal=part, desired_goal=part)

    def compute_reward(state, params, achieved, desired, infos):
        return goal_reward(achieved, desired)

    env = sampled(
        space,
        lambda obs: goal_reward(obs["achieved_goal"], obs["desired_goal"]),
        methods={"compute_reward": compute_reward},
    )
    return JaxVecEnv(vectorize(env, num_envs))


def mixed(num_envs=1):
    part = spaces.Box(-20, 20, (4,), np.float32)
    space = spaces.Dict(obs1=part, obs2=spaces.Discrete(1), obs3=part)
    return JaxVecEnv(vectorize(sampled(space), num_envs))


def images(num_envs=1):
    env = sampled(spaces.Box(0, 255, (36, 36, 1), np.uint8))
    return JaxVecEnv(vectorize(env, num_envs))


def ladders():
    """Returns two environments that show and pay 0, 1, 3, 4 in turn; the second begins at 1."""
    values = jnp.array([0.0, 1.0, 3.0, 4.0])

    def reset(key, params):
        return jnp.int32(0), values[params][None], {}

    def step(key, t, action, params):
        t = t + 1
        value = values[(t + params) % 4]
        return t, value[None], value, False, t == 4, {}

    env = Env(reset, step, 0, spaces.Box(0, 4, (1,), np.float32), spaces.Discrete(2))
    return JaxVecEnv(vectorize(env, 2, params=np.arange(2)))


def walk(venv, num_steps):
    """Yields what random steps return."""
    venv.reset()
    for actions in random_actions(venv.action_space, num_steps, venv.num_envs):
        yield venv.step(actions)


def warmed(venv, num_steps=100):
    for _ in walk(venv, num_steps):
        pass
    return venv


def near(one, other, **limits):
    if isinstance(one, dict):
        return all(near(one[key], other[key], **limits) for key in one)
    return np.allclose(one, other, **limits)


# Monitor


@LIBRARIES
def test_a_monitor_sums_what_every_step_paid(lib, tmp_path):
    path = str(tmp_path / "log.monitor.csv")
    venv = lib.VecMonitor(cart_poles(), path)
    episodes = [(0.0, 0)]
    for _, rewards, dones, infos in walk(venv, 1000):
        total, length = episodes.pop()
        total, length = total + rewards[0], length + 1
        episodes.append((total, length))
        assert ("episode" in infos[0]) == dones[0]
        if dones[0]:
            assert (infos[0]["episode"]["r"], infos[0]["episode"]["l"]) == (total, length)
            episodes.append((0.0, 0))
    venv.close()
    with open(path) as file:
        first = file.readline()
        table = pandas.read_csv(file, index_col=None)
    assert first[0] == "#"
    assert json.loads(first[1:]).keys() == {"t_start", "env_id"}
    assert list(table) == ["r", "l", "t"]
    assert table["l"].tolist() == [length for _, length in episodes[:-1]]


@LIBRARIES
@in_32_bits("with 64 the info is float64")
def test_a_monitor_logs_what_the_info_says_at_an_episodes_end(lib, tmp_path):
    path = str(tmp_path / "log.monitor.csv")
    base = JaxVecEnv(vectorize(draws(BOX_ACTIONS), 1), info_keys=["draw"])
    venv = lib.VecMonitor(base, path, info_keywords=("draw",))
    logged = []
    for _, _, dones, infos in walk(venv, 200):
        if dones[0]:
            assert infos[0]["episode"]["draw"] == infos[0]["draw"]
            logged.append(infos[0]["draw"])
    venv.close()
    with open(path) as file:
        _, _, *rows = csv.reader(file)
    assert len(rows) > 15
    assert [np.float32(row[3]) for row in rows] == logged


@LIBRARIES
def test_files_of_several_monitors_are_loaded_together(lib, tmp_path):
    counted = 0
    for number in range(2):
        path = str(tmp_path / f"{number}.monitor.csv")
        venv = lib.VecMonitor(cart_poles(), path)
        assert path in get_monitor_files(str(tmp_path))
        venv.reset()
        for actions in random_actions(venv.action_space, 300, 1):
            if venv.step(actions)[2][0]:
                counted += 1
                venv.reset()
        venv.close()
        assert len(load_results(str(tmp_path)).index) == counted > 0
    assert len(get_monitor_files(str(tmp_path))) == 2


@LIBRARIES
def test_ppo_and_its_evaluation_warn_of_nothing_over_a_monitor(lib):
    venv = lib.VecMonitor(cart_poles())
    model = PPO("MlpPolicy", venv, n_steps=64, device="cpu")
    model.learn(250)
    assert len(model.ep_info_buffer) > 0
    evaluate_policy(model, venv, n_eval_episodes=3)  # a warning would be an error


def test_a_monitor_over_episodes_that_are_counted_already_warns():
    def counting():
        batched = wrap(vectorize(make("CartPole-v1"), 1), episode_statistics())
        return JaxVecEnv(batched, info_keys=["episode"])

    for base in (counting(), jv.VecNormalize(counting())):
        with pytest.warns(UserWarning, match="already wrapped"):
            jv.VecMonitor(base)


# NaN


@LIBRARIES
def test_numbers_that_are_none_raise_in_actions_and_in_observations(lib):
    def step(key, state, action, params):
        obs = jnp.where(action > 0, jnp.nan, jnp.where(action < 0, jnp.inf, 0.0))
        return state, obs, 0.0, False, False, {}

    def reset(key, params):
        return jnp.int32(0), jnp.zeros(1), {}

    endless = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    base = JaxVecEnv(vectorize(Env(reset, step, None, endless, endless), 1))
    venv = lib.VecCheckNan(base, raise_exception=True)
    venv.reset()
    fine = np.zeros((1, 1), np.float32)
    assert venv.step(fine)[0].tolist() == [[0]]
    for bad in (np.nan, np.inf, -1, 1):
        with pytest.raises(ValueError, match=r"nan|inf"):
            venv.step(np.full((1, 1), bad, np.float32))
        base.reset()  # SB3's wrapper looks at observations after the step, which has been made
    assert venv.step(fine)[0].tolist() == [[0]]
    assert venv.reset().tolist() == [[0]]


# Normalization


@LIBRARIES
def test_moments_go_where_the_true_ones_are(lib):
    venv = lib.VecNormalize(ladders())
    venv.reset()
    assert venv.obs_rms.mean == pytest.approx(0.5, abs=1e-4)
    assert venv.ret_rms.mean == pytest.approx(0, abs=1e-4)
    venv.step([0, 0])
    assert venv.obs_rms.mean == pytest.approx(1.25, abs=1e-4)
    assert venv.ret_rms.mean == pytest.approx(2, abs=1e-4)
    for _ in range(3000):
        venv.step([0, 0])
    assert venv.obs_rms.mean == pytest.approx(2.0, abs=1e-3)
    assert venv.ret_rms.mean == pytest.approx(5.688, abs=1e-3)


@LIBRARIES
@pytest.mark.parametrize("base", [pendulums, goals, images])
def test_numbers_are_clipped_and_a_file_keeps_them(lib, base, tmp_path):
    original = base()
    venv = lib.VecNormalize(original, clip_obs=0.5, clip_reward=5.0)
    assert venv.render_mode is original.render_mode is None
    for obs, rewards, *_ in walk(venv, 40):
        assert all(np.abs(leaf).max() <= 0.5 for leaf in jax.tree.leaves(obs))
        assert np.abs(rewards).max() <= 5
    venv.save(str(tmp_path / "saved.pkl"))
    other = base(2)
    loaded = lib.VecNormalize.load(str(tmp_path / "saved.pkl"), other)
    assert loaded.render_mode is None
    assert loaded.num_envs == 2
    for name in (
        "clip_obs",
        "clip_reward",
        "gamma",
        "epsilon",
        "norm_obs",
        "norm_reward",
        "training",
    ):
        assert getattr(loaded, name) == getattr(venv, name)
    assert loaded.observation_space == venv.observation_space
    for one, same in (
        (venv.ret_rms, loaded.ret_rms),
        *zip(*map(moments, (venv, loaded)), strict=True),
    ):
        np.testing.assert_allclose(one.mean, same.mean, rtol=1e-12)
        np.testing.assert_allclose(one.var, same.var, rtol=1e-12)
        assert one.count == same.count
    np.testing.assert_array_equal(loaded.returns, [0, 0])


def moments(venv):
    return list(venv.obs_rms.values()) if isinstance(venv.obs_rms, dict) else [venv.obs_rms]


@LIBRARIES
def test_the_render_mode_is_that_of_the_environments(lib, tmp_path):
    pytest.importorskip("pygame")
    path = str(tmp_path / "saved.pkl")
    warmed(lib.VecNormalize(pendulums()), 3).save(path)
    drawn = pendulums(render_mode="rgb_array")
    assert lib.VecNormalize(drawn).render_mode == "rgb_array"
    assert lib.VecNormalize.load(path, drawn).render_mode == "rgb_array"


@LIBRARIES
@pytest.mark.parametrize("base", [cart_poles, goals])
def test_the_original_numbers_can_be_had(lib, base):
    venv = warmed(lib.VecNormalize(base()))
    for actions in random_actions(venv.action_space, 3, 1):
        obs, rewards, *_ = venv.step(actions)
        original, paid = venv.get_original_obs(), venv.get_original_reward()
        assert paid[0] == (1 if base is cart_poles else -1)
        assert paid.dtype == rewards.dtype
        assert jax.tree.map(np.shape, original) == jax.tree.map(np.shape, obs)
        assert not near(original, obs)
        assert not near(paid, rewards)
        assert near(venv.normalize_obs(original), obs, atol=1e-6)
        assert near(venv.normalize_reward(paid), rewards, atol=1e-6)
        assert near(venv.unnormalize_obs(obs), original, atol=1e-4)
    others = venv.normalize_reward(np.array([1, 1]))
    assert others.shape == (2,)
    if base is cart_poles:
        assert (others < 1).all()


@LIBRARIES
def test_only_the_chosen_keys_are_normalized(lib):
    venv = warmed(lib.VecNormalize(goals(), norm_obs_keys=["observation"]))
    for actions in random_actions(venv.action_space, 3, 1):
        obs = venv.step(actions)[0]
        original = venv.get_original_obs()
        assert (obs["observation"] != original["observation"]).all()
        np.testing.assert_array_equal(obs["achieved_goal"], original["achieved_goal"])
        assert near(venv.normalize_obs(original), obs, atol=1e-6)


@LIBRARIES
@pytest.mark.parametrize("base", [pendulums, goals])
def test_two_normalizations_agree_once_they_are_synced(lib, base):
    assert lib.unwrap_vec_normalize(base()) is None
    venv = lib.VecNormalize(base(), clip_obs=100.0, clip_reward=100.0)
    test_venv = lib.VecNormalize(base(), training=False, clip_obs=100.0, clip_reward=100.0)
    assert lib.unwrap_vec_normalize(venv) is venv
    if base is pendulums:
        venv, test_venv = lib.VecFrameStack(venv, 1), lib.VecFrameStack(test_venv, 1)
        assert lib.unwrap_vec_normalize(venv) is venv.venv
    *_, (_, rewards, _, _) = walk(venv, 100)
    assert near(venv.get_original_reward(), venv.unnormalize_reward(rewards), rtol=1e-5)
    obs = venv.reset()
    original, paid = venv.get_original_obs(), np.linspace(-1, 1, 10)
    assert near(original, venv.unnormalize_obs(obs), atol=1e-4)
    assert not near(obs, test_venv.normalize_obs(original))
    lib.sync_envs_normalization(venv, test_venv)
    assert near(obs, test_venv.normalize_obs(original), atol=1e-5)
    assert near(venv.normalize_reward(paid), test_venv.normalize_reward(paid))


@LIBRARIES
def test_the_rewards_moments_are_synced_without_those_of_observations(lib):
    venv = warmed(lib.VecNormalize(pendulums(), norm_obs=False), 1)
    test_venv = lib.VecNormalize(pendulums(), training=False, norm_obs=False, norm_reward=False)
    assert not near(venv.ret_rms.mean, test_venv.ret_rms.mean)
    lib.sync_envs_normalization(venv, test_venv)
    np.testing.assert_array_equal(venv.ret_rms.mean, test_venv.ret_rms.mean)
    np.testing.assert_array_equal(venv.ret_rms.var, test_venv.ret_rms.var)


@LIBRARIES
def test_spaces_without_numbers_to_normalize_are_refused(lib):
    discrete = JaxVecEnv(vectorize(draws(spaces.Discrete(5)), 1))
    with pytest.raises(ValueError, match="only supports"):
        lib.VecNormalize(discrete)
    warmed(lib.VecNormalize(discrete, norm_obs=False), 3)
    with pytest.raises(ValueError, match="applicable only"):
        lib.VecNormalize(cart_poles(), norm_obs_keys=["key"])
    with pytest.raises(ValueError, match="explicitly pass"):
        lib.VecNormalize(mixed())
    warmed(lib.VecNormalize(mixed(), norm_obs_keys=["obs1", "obs3"]), 3)
    warmed(lib.VecNormalize(mixed(), norm_obs=False), 3)


def small(model, base, venv, **options):
    options = {
        "learning_starts": 20,
        "policy_kwargs": {"net_arch": [8]},
        "device": "cpu",
        **options,
    }
    policy = "MultiInputPolicy" if base is goals else "MlpPolicy"
    return model(policy, venv, buffer_size=300, batch_size=16, **options)


@LIBRARIES
@pytest.mark.parametrize(("model", "base"), [(SAC, pendulums), (TD3, pendulums), (SAC, goals)])
def test_off_policy_learners_find_the_normalization(lib, model, base):
    venv = lib.VecNormalize(base())
    test_venv = lib.VecNormalize(base(), training=False, norm_reward=False)
    her = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": {"n_sampled_goal": 2}}
    learner = small(model, base, venv, **(her if base is goals else {}))
    assert learner.get_vec_normalize_env() is venv
    learner.set_env(test_venv)
    assert learner.get_vec_normalize_env() is test_venv
    learner.learn(10)
    assert test_venv.obs_rms is not None
    learner.set_env(venv)
    learner.learn(40)
    assert isinstance(learner.get_vec_normalize_env(), sb3.VecNormalize)
    stored = learner.replay_buffer.observations
    if base is pendulums:  # as the environment has them: cosine and sine
        radius = np.hypot(stored[:40, 0, 0], stored[:40, 0, 1])
        np.testing.assert_allclose(radius, 1, atol=1e-5)


# Frame stack

STACKED = [
    (spaces.Box(-1, 1, (4,), np.float32), None),
    (spaces.Box(-1, 1, (4, 5), np.float32), None),
    (spaces.Box(-1, 1, (4, 5), np.float32), "first"),
    (spaces.Box(0, 255, (3, 16, 24), np.uint8), None),
    (spaces.Box(0, 255, (16, 24, 3), np.uint8), None),
    (spaces.Box(0, 255, (3, 16, 24), np.uint8), "last"),
    (spaces.Box(0, 255, (16, 24, 3), np.uint8), "first"),
    (
        spaces.Dict(
            key1=spaces.Box(0, 255, (16, 24, 3), np.uint8),
            key2=spaces.Box(-1, 1, (4, 5), np.float32),
        ),
        {"key1": "first", "key2": "last"},
    ),
]


@LIBRARIES
@pytest.mark.parametrize(("space", "order"), STACKED)
def test_frames_are_stacked_as_sb3_stacks_them(lib, space, order):
    batched = vectorize(draws(space), 2)
    bare, venv = JaxVecEnv(batched), lib.VecFrameStack(JaxVecEnv(batched), 4, order)
    oracle = StackedObservations(2, 4, space, order)
    assert venv.observation_space == oracle.stacked_observation_space
    same(venv.reset(), oracle.reset(bare.reset()))
    ended = 0
    for actions in random_actions(venv.action_space, 25, 2):
        obs, _, dones, infos = venv.step(actions)
        single, _, _, plain = bare.step(actions)
        expected, plain = oracle.update(single, dones, [dict(info) for info in plain])
        same(obs, expected)
        for row in np.flatnonzero(dones):
            same(infos[row]["terminal_observation"], plain[row]["terminal_observation"])
            ended += 1
    assert ended > 2


def same(one, other):
    if isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    else:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
