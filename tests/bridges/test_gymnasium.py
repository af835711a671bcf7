"""Gymnasium's VectorEnv, both ways, beside gymnasium's own SyncVectorEnv."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics

import jaxvec
from jaxvec.bridges.gymnasium import from_vector_env, to_vector_env
from jaxvec.envs import make
from jaxvec.vec import DummyVecEnv, JaxVecEnv, VecMonitor

SAME, NEXT, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


class Counter(gym.Env):
    """Counts; ends after `length` steps, of which even episodes are truncated; infos differ by step."""

    observation_space = gym.spaces.Box(0, 100, (1,))
    action_space = gym.spaces.Discrete(3)

    def __init__(self, length):
        self.length, self.episodes = length, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count, self.episodes = 0, self.episodes + 1
        return self._obs(), {"episode_number": self.episodes}

    def step(self, action):
        self.count += 1
        over = self.count >= self.length
        even = self.episodes % 2 == 0
        info = {"action": action} if self.count % 2 else {}
        return self._obs(), 0.1 * self.count, over and not even, over and even, info

    def _obs(self):
        return np.array([10 * self.episodes + self.count], np.float32)


def factories():
    return [lambda length=length: Counter(length) for length in (2, 3, 5)]


def plain(tree):
    """Arrays of objects as lists, so that they can be compared."""
    if isinstance(tree, dict):
        return {key: plain(each) for key, each in tree.items()}
    return [None if each is None else np.asarray(each).tolist() for each in tree]


def test_a_vec_env_is_the_vector_environment_that_gymnasium_makes_of_the_same_environments():
    ours = to_vector_env(DummyVecEnv(factories()))
    theirs = SyncVectorEnv(factories(), autoreset_mode=SAME)
    assert ours.metadata["autoreset_mode"] == SAME
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    for left, right in zip(ours.reset(seed=3), theirs.reset(seed=3), strict=True):
        assert plain(left) == plain(right)
    for step in range(12):
        actions = np.array([step, 1, 2]) % 3
        mine, wanted = ours.step(actions), theirs.step(actions)
        for left, right in zip(mine[:4], wanted[:4], strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-6)
            assert left.dtype == right.dtype
        assert plain(mine[4]) == plain(wanted[4]), step
    mask = np.array([False, True, False])
    left, right = (each.reset(options={"reset_mask": mask.copy()}) for each in (ours, theirs))
    np.testing.assert_array_equal(left[0], right[0])
    assert plain(left[1]) == plain(right[1])
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", [SAME, NEXT])
def test_compiled_environments_go_through_gymnasiums_wrappers(mode):
    env = jaxvec.vectorize(make("CartPole-v1"), 3, autoreset_mode=mode, max_episode_steps=12)
    vector = to_vector_env(env)
    assert vector.metadata["autoreset_mode"] == mode
    if mode == SAME and tuple(map(int, gym.__version__.split(".")[:2])) < (1, 4):
        pytest.skip("RecordEpisodeStatistics of older gymnasium counts a step too few in this mode")
    wrapped = RecordEpisodeStatistics(vector)
    if mode == NEXT:
        wrapped = NormalizeObservation(wrapped)
    obs, _ = wrapped.reset(seed=0)
    assert obs.dtype == np.float32
    assert vector.observation_space.contains(vector.reset(seed=0)[0])
    lengths, steps = [], np.zeros(3, int)
    skip = np.zeros(3, bool)
    rng = np.random.default_rng(0)
    for _ in range(80):
        _, reward, terminated, truncated, infos = wrapped.step(rng.integers(0, 2, 3))
        steps += ~skip
        np.testing.assert_array_equal(reward, np.where(skip, 0, 1))
        done = terminated | truncated
        np.testing.assert_array_equal(truncated, done & (steps == 12) & ~terminated)
        for row in np.flatnonzero(done):
            assert infos["episode"]["l"][row] == steps[row]
            lengths.append(steps[row])
            steps[row] = 0
        assert ("final_obs" in infos) == (mode == SAME and done.any())
        skip = done if mode == NEXT else np.zeros(3, bool)
    assert len(lengths) > 10


def test_a_last_observation_of_a_compiled_environment_is_the_one_that_next_step_mode_shows():
    def run(mode):
        env = to_vector_env(
            jaxvec.vectorize(
                make("Pendulum-v1")._replace(max_episode_steps=3), 2, autoreset_mode=mode
            )
        )
        env.reset(seed=7)
        return [env.step(np.zeros((2, 1), np.float32)) for _ in range(3)][-1]

    same, following = run("SameStep"), run("NextStep")
    np.testing.assert_array_equal(np.stack(list(same[4]["final_obs"])), following[0])
    assert not np.allclose(same[0], following[0])
    assert same[3].tolist() == following[3].tolist() == [True, True]


def test_the_same_seed_gives_the_same_trace_and_a_mask_resets_its_rows_alone():
    env = to_vector_env(jaxvec.vectorize(make("CartPole-v1"), 3))
    first, _ = env.reset(seed=5)
    env.step(np.zeros(3, int))
    again, _ = env.reset(seed=[5, 6, 7])
    np.testing.assert_array_equal(first, again)
    obs, *_ = env.step(np.ones(3, int))
    partial, _ = env.reset(seed=[0, 6, 0], options={"reset_mask": np.array([False, True, False])})
    np.testing.assert_array_equal(partial[[0, 2]], obs[[0, 2]])
    np.testing.assert_array_equal(partial[1], first[1])
    with pytest.raises(TypeError, match="must be a NumPy array of bool"):
        env.reset(options={"reset_mask": [True, False, False]})
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        env.reset(options={"reset_mask": np.array([True])})


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (SyncVectorEnv, SAME),
        (SyncVectorEnv, NEXT),
        (SyncVectorEnv, DISABLED),
        (AsyncVectorEnv, SAME),
        (AsyncVectorEnv, NEXT),
    ],
)
def test_a_vector_environment_in_any_mode_is_the_vec_env_of_the_same_environments(kind, mode):
    # A forked child of a process in which JAX runs may stand still.
    options = {"context": "spawn"} if kind is AsyncVectorEnv else {}
    ours = from_vector_env(kind(factories(), autoreset_mode=mode, **options))
    theirs = DummyVecEnv(factories())
    for each in (ours, theirs):
        each.seed(4)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    assert ours.reset_infos == theirs.reset_infos
    for step in range(12):
        actions = np.array([step, 1, 2]) % 3
        (obs, reward, done, infos), wanted = ours.step(actions), theirs.step(actions)
        np.testing.assert_array_equal(obs, wanted[0])
        np.testing.assert_allclose(reward, wanted[1], rtol=1e-6)
        np.testing.assert_array_equal(done, wanted[2])
        for row in range(3):
            assert infos[row] == wanted[3][row], (step, row)
        assert [info.get("episode_number") for info in ours.reset_infos] == [
            info.get("episode_number") for info in theirs.reset_infos
        ]
    ours.close()
    theirs.close()


def test_jaxvecs_wrappers_stand_on_a_vector_environment():
    venv = VecMonitor(
        from_vector_env(gym.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync"))
    )
    venv.seed(0)
    venv.reset()
    lengths, steps = [], np.zeros(4, int)
    rng = np.random.default_rng(0)
    for _ in range(120):
        _, rewards, done, infos = venv.step(rng.integers(0, 2, 4))
        np.testing.assert_array_equal(rewards, 1)  # no step without a transition shows
        steps += 1
        for row in np.flatnonzero(done):
            assert infos[row]["episode"]["l"] == steps[row]
            assert infos[row]["terminal_observation"].shape == (4,)
            lengths.append(steps[row])
            steps[row] = 0
    assert len(lengths) > 10
    venv.close()


def test_there_and_back_again_is_the_same():
    actions = np.random.default_rng(0).integers(0, 2, (40, 2))

    def trace(venv):
        venv.seed(1)
        found = [venv.reset().copy()]
        for each in actions:
            obs, reward, done, infos = venv.step(each)
            last = [infos[row].get("terminal_observation", obs[row]) for row in range(2)]
            found += [obs.copy(), reward, done, np.stack(last)]
        return found

    def venv():
        return JaxVecEnv(jaxvec.vectorize(make("CartPole-v1"), 2))

    for left, right in zip(
        trace(venv()), trace(from_vector_env(to_vector_env(venv()))), strict=True
    ):
        np.testing.assert_array_equal(left, right)


def test_attributes_and_methods_reach_the_environments():
    venv = from_vector_env(SyncVectorEnv(factories()))
    assert venv.get_attr("length") == [2, 3, 5]
    venv.set_attr("length", 7, indices=[1])
    assert venv.get_attr("length") == [2, 7, 5]
    assert venv.env_method("get_wrapper_attr", "length") == [2, 7, 5]
    with pytest.raises(NotImplementedError, match=r"rows \[0\] alone"):
        venv.env_method("reset", indices=[0])
    assert venv.env_is_wrapped(gym.Wrapper) == [False] * 3
    venv.close()


def test_what_is_neither_is_refused():
    with pytest.raises(TypeError, match=r"to_vector_env: env=3 has no num_envs"):
        to_vector_env(3)
    with pytest.raises(TypeError, match=r"from_vector_env: env=3 has no reset"):
        from_vector_env(3)
    with pytest.raises(ValueError, match="autoreset_mode='Later'"):
        from_vector_env(SyncVectorEnv(factories()), autoreset_mode="Later")
    with pytest.raises(ValueError, match="seeds its environments one after the other"):
        to_vector_env(DummyVecEnv(factories())).reset(seed=[1, 5, 7])


def test_an_atari_vector_environment_is_a_vec_env():
    vector_env = pytest.importorskip("ale_py.vector_env")
    for mode in (SAME, NEXT):
        env = vector_env.AtariVectorEnv(
            "pong", 2, autoreset_mode=mode, max_num_frames_per_episode=60, noop_max=0
        )
        venv = from_vector_env(env)
        venv.seed(3)
        assert venv.reset().shape == (2, 4, 84, 84)
        ends = []
        for step in range(40):
            obs, _, done, infos = venv.step(np.zeros(2, int))
            assert obs.shape == (2, 4, 84, 84)
            if done.any():
                ends.append(step)
                row = int(np.flatnonzero(done)[0])
                assert infos[row]["TimeLimit.truncated"]
                assert infos[row]["terminal_observation"].shape == (4, 84, 84)
                assert not np.array_equal(infos[row]["terminal_observation"], obs[row])
        assert len(ends) >= 2, mode
        venv.close()


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_envpool_is_a_vec_env_that_shows_no_step_without_a_transition():
    envpool = pytest.importorskip("envpool")
    venv = from_vector_env(envpool.make_gymnasium("CartPole-v1", num_envs=3, seed=0))
    before = venv.reset()
    assert before.shape == (3, 4)
    lengths, steps = [], np.zeros(3, int)
    rng = np.random.default_rng(0)
    for _ in range(120):
        obs, rewards, done, infos = venv.step(rng.integers(0, 2, 3))
        np.testing.assert_array_equal(rewards, 1)
        steps += 1
        for row in range(3):
            after = obs[row]
            if done[row]:
                after = infos[row]["terminal_observation"]
                assert np.abs(after[[0, 2]]).max() > 0.2
                assert np.abs(obs[row]).max() < 0.06
                lengths.append(steps[row])
                steps[row] = 0
            # The cart goes on where it was, whichever rows were reset.
            np.testing.assert_allclose(after[0], before[row, 0] + 0.02 * before[row, 1], rtol=1e-4)
        before = obs.copy()
    assert len(lengths) > 6
    venv.close()


@pytest.mark.filterwarnings("ignore:.*precision lowered by casting")
def test_envpool_gets_neither_too_few_actions_nor_resets_of_some_rows():
    envpool = pytest.importorskip("envpool")
    venv = from_vector_env(envpool.make_gymnasium("CartPole-v1", num_envs=3, seed=0))
    first = venv.reset()
    with pytest.raises(ValueError, match="got 2 actions for 3 environments"):
        venv.step_async(np.zeros(2, int))
    with pytest.raises(NotImplementedError, match=r"rows \[1\] of EnvPool alone"):
        venv.reset([1])
    obs, *_ = venv.step([1, 1, 1])  # nothing is pending
    np.testing.assert_allclose(obs[:, 0], first[:, 0] + 0.02 * first[:, 1], rtol=1e-4)
    venv.close()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_sb3s_ppo_trains_on_envpool_and_on_atari():
    envpool = pytest.importorskip("envpool")
    vector_env = pytest.importorskip("ale_py.vector_env")
    ppo = pytest.importorskip("stable_baselines3").PPO
    pools = {
        "MlpPolicy": envpool.make_gymnasium("CartPole-v1", num_envs=4, seed=0),
        "CnnPolicy": vector_env.AtariVectorEnv("pong", 4, autoreset_mode=SAME),
    }
    for policy, env in pools.items():
        venv = from_vector_env(env)
        model = ppo(policy, venv, n_steps=64, batch_size=256, n_epochs=1, device="cpu")
        model.learn(2000)
        assert model.num_timesteps >= 2000
        venv.close()
