"""Classic environments in compiled programs: equal to the same VecEnv stepped from Python."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import jaxvec
from jaxvec.bridges.callback import from_vec_env, own_errors
from jaxvec.random import keys_from
from jaxvec.vec import DummyVecEnv, SubprocVecEnv


class BoomError(ValueError):
    """An exception of a user's own."""


class Counter(gym.Env):
    """Counts its steps and its seed; action 1 truncates, 2 terminates, 3 raises."""

    observation_space = spaces.Dict(
        {"count": spaces.Discrete(100), "seed": spaces.Box(0, np.inf, (2,), np.float64)}
    )
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = self.np_random.random(2) if seed is not None else self.start + 1
        self.count = 0
        return self._obs(), {}

    def step(self, action):
        if action == 3:
            raise BoomError("action 3 came")
        self.count += 1
        return self._obs(), float(self.count), action == 2, action == 1, {}

    def _obs(self):
        return {"count": self.count, "seed": self.start.copy()}


def counters(num=2):
    return DummyVecEnv([Counter] * num)


def cart_poles(kind, num=3):
    return kind([lambda: gym.make("CartPole-v1", max_episode_steps=12)] * num)


def run(env, actions):
    """Resets, and takes these actions `[T, N]` in one compiled scan."""

    @jax.jit
    def go(key, actions):
        state, opening = env.reset(keys_from(key, env.spec.num_envs))
        state, steps = jax.lax.scan(env.step, state, actions)
        return state, opening, steps

    return jax.device_get(go(jax.random.key(5), actions))


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_a_compiled_scan_sees_what_the_same_vec_env_shows_from_python(kind):
    actions = np.random.default_rng(0).integers(0, 2, (60, 3))
    venv = cart_poles(kind)
    _, opening, steps = run(from_vec_env(venv), actions)
    # The same again by hand; the seed is the one that the compiled reset set.
    by_hand = cart_poles(DummyVecEnv)
    key = keys_from(jax.random.key(5), 3)
    seed = int(jaxvec.random.bits_rows(jaxvec.random.key_words(key)[:1], 0, 0x73656564)[0] >> 1)
    by_hand.seed(seed)
    np.testing.assert_array_equal(opening.obs, by_hand.reset())
    ended = 0
    for step in range(60):
        obs, reward, done, infos = by_hand.step(actions[step])
        np.testing.assert_array_equal(steps.obs[step], obs)
        np.testing.assert_array_equal(steps.reward[step], reward)
        np.testing.assert_array_equal(steps.first[step], done)
        for row in range(3):
            truncated = infos[row]["TimeLimit.truncated"]
            assert steps.truncated[step, row] == truncated
            assert steps.terminated[step, row] == (done[row] and not truncated)
            last = infos[row].get("terminal_observation", obs[row])
            np.testing.assert_array_equal(steps.final_obs[step, row], last)
        ended += done.sum()
    assert ended > 6
    assert steps.truncated.any()
    assert steps.terminated.any()
    venv.close()
    by_hand.close()


def test_a_vec_env_of_sb3s_own_runs_as_jaxvecs():
    sb3 = pytest.importorskip("stable_baselines3.common.vec_env")
    actions = np.random.default_rng(0).integers(0, 2, (30, 3))
    results = [
        run(from_vec_env(cart_poles(kind)), actions) for kind in (DummyVecEnv, sb3.DummyVecEnv)
    ]
    for left, right in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_array_equal(left, right)


def test_dicts_and_wide_dtypes_come_in_the_dtypes_of_jax():
    actions = np.array([[0, 1], [0, 0], [2, 0]])
    _, opening, steps = run(from_vec_env(counters()), actions)
    assert opening.obs["count"].dtype == np.int32
    assert opening.obs["seed"].dtype == np.float32
    assert steps.final_obs["count"].tolist() == [[1, 1], [2, 1], [3, 2]]
    assert steps.obs["count"].tolist() == [[1, 0], [2, 1], [0, 2]]
    assert steps.truncated.tolist() == [[False, True], [False, False], [False, False]]
    assert steps.terminated.tolist() == [[False, False], [False, False], [True, False]]
    assert steps.reward.tolist() == [[1, 1], [2, 1], [3, 2]]


def test_rollouts_go_on_under_layers_and_equal_keys_give_equal_traces():
    def returns(key):
        venv = cart_poles(DummyVecEnv, 4)
        env = jaxvec.wrap(from_vec_env(venv), jaxvec.episode_statistics(), jaxvec.frame_stack(2))
        policy = jaxvec.random_policy(env)
        carry, (obs, _, first) = jaxvec.rollout(env, policy, key, 20)
        _, (_, _, second) = jaxvec.rollout(env, policy, key, 20, start=carry)
        assert obs.shape == (20, 4, 8)
        return jax.device_get([(each.reward, each.done, each.info) for each in (first, second)])

    once, again, other = (returns(jax.random.key(seed)) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, once, again)
    assert any(
        not np.array_equal(*pair) for pair in zip(*map(jax.tree.leaves, (once, other)), strict=True)
    )
    lengths = once[0][2]["episode"]["l"][once[0][1]]
    assert (lengths <= 12).all()
    assert (lengths > 0).all()


def test_an_environments_exception_has_its_own_type_under_own_errors():
    env = from_vec_env(counters())
    actions = np.array([[0, 0], [0, 3], [0, 0]])
    with pytest.raises(BoomError, match="action 3 came"), own_errors(env):
        run(env, actions)
    with pytest.raises(jax.errors.JaxRuntimeError, match="action 3 came"):
        run(env, actions)
    run(env, np.zeros((3, 2), int))  # and it can be used on
    with pytest.raises(TypeError, match="not made by from_vec_env"), own_errors(3):
        pass


def test_vmap_over_copies_is_refused_by_name():
    env = from_vec_env(counters())
    policy = jaxvec.random_policy(env)
    with pytest.raises(NotImplementedError, match=r"from_vec_env: vmap over 3 copies"):
        jax.vmap(lambda key: jaxvec.rollout(env, policy, key, 4)[0].obs)(
            jax.random.split(jax.random.key(0), 3)
        )


def test_an_old_state_cannot_be_stepped_again():
    env = from_vec_env(counters())
    state, _ = env.reset(keys_from(jax.random.key(0), 2))
    later, _ = env.step(state, jnp.zeros(2, int))
    with pytest.raises(RuntimeError, match=r"the state of call 1 came.*at call 2"), own_errors(env):
        env.step(state, jnp.zeros(2, int))
    env.step(later, jnp.zeros(2, int))


def test_some_rows_are_reset_alone():
    env = from_vec_env(counters(3))
    reset_rows = jax.jit(env.reset_rows)
    state, opening = env.reset(keys_from(jax.random.key(0), 3))
    state, _ = env.step(state, jnp.zeros(3, int))
    state, timestep = reset_rows(state, jnp.array([False, True, False]))
    assert timestep.obs["count"].tolist() == [1, 0, 1]
    assert timestep.first.tolist() == [False, True, False]
    assert not timestep.valid.any()
    state, timestep = env.step(state, jnp.zeros(3, int))
    assert timestep.obs["count"].tolist() == [2, 1, 2]
    _, timestep = reset_rows(state, jnp.ones(3, bool), keys_from(jax.random.key(0), 3))
    np.testing.assert_array_equal(timestep.obs["seed"], opening.obs["seed"])


def test_every_step_is_taken_though_nobody_reads_it():
    venv = counters()
    env = from_vec_env(venv)

    @jax.jit
    def go(key):
        state, _ = env.reset(keys_from(key, 2))
        return jax.lax.fori_loop(0, 7, lambda _, s: env.step(s, jnp.zeros(2, int))[0], state).ticket

    go(jax.random.key(0)).block_until_ready()
    assert venv.get_attr("count") == [7, 7]


def test_options_and_what_is_no_vec_env_are_refused():
    with pytest.raises(TypeError, match="has no num_envs"):
        from_vec_env(Counter())
    env = from_vec_env(counters())
    with pytest.raises(ValueError, match=r"options=\{'a': 1\} came; set them on the host"):
        env.reset(keys_from(jax.random.key(0), 2), {"a": 1})
