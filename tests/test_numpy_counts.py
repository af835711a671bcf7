"""A NumPy integer is as good as Python's wherever something is counted, numbered or seeded."""

import gymnasium
import jax
import numpy as np
import pytest

import jaxvec
from jaxvec.vec import JaxVecEnv, make_vec_env

TWO = np.int64(2)


def make():
    return gymnasium.make("CartPole-v1")


def batched(num_envs=2, **options):
    return jaxvec.vectorize(jaxvec.envs.make("CartPole-v1"), num_envs, **options)


def same_reset(first, second):
    np.testing.assert_array_equal(first.reset(), second.reset())


def seeded(venv, seed):
    venv.seed(seed)
    return venv


CASES = {
    "vectorize": lambda: batched(TWO, max_episode_steps=TWO, action_repeat=TWO),
    "a pool of resets": lambda: batched(reset_source="pool", pool_size=TWO),
    "rollout": lambda: jaxvec.rollout(
        batched(), jaxvec.random_policy(batched()), jax.random.key(0), TWO
    ),
    "frame_stack": lambda: jaxvec.wrap(batched(), jaxvec.frame_stack(TWO)),
    "time_fraction": lambda: jaxvec.wrap(batched(), jaxvec.time_fraction(TWO)),
    "keys": lambda: jaxvec.random.keys_from(jaxvec.random.hash_key(TWO), TWO),
    "sample": lambda: jaxvec.spaces.sample(jax.random.key(0), make().action_space, TWO),
    "batch_space": lambda: jaxvec.spaces.batch_space(make().action_space, TWO),
    "VecFrameStack": lambda: jaxvec.VecFrameStack(jaxvec.DummyVecEnv([make]), TWO),
    "one environment of many": lambda: jaxvec.DummyVecEnv([make] * 3).get_attr("spec", TWO),
    "DummyVecEnv.seed": lambda: same_reset(
        seeded(jaxvec.DummyVecEnv([make] * 2), TWO), seeded(jaxvec.DummyVecEnv([make] * 2), 2)
    ),
    "JaxVecEnv's seed": lambda: same_reset(JaxVecEnv(batched(), TWO), JaxVecEnv(batched(), 2)),
    "make_vec_env": lambda: same_reset(
        make_vec_env("CartPole-v1", TWO, seed=TWO), make_vec_env("CartPole-v1", 2, seed=2)
    ),
    "make_vec_env, compiled": lambda: same_reset(
        make_vec_env("CartPole-v1", TWO, seed=TWO, backend="jax"),
        make_vec_env("CartPole-v1", 2, seed=2, backend="jax"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_numpy_integer_counts(case):
    CASES[case]()


def test_a_number_of_workers_may_be_numpys():
    venv = jaxvec.SubprocVecEnv([make] * 2, num_workers=np.int64(1))
    try:
        assert venv.reset().shape == (2, 4)
    finally:
        venv.close()


def test_a_fraction_is_no_seed():
    with pytest.raises(TypeError):
        jaxvec.DummyVecEnv([make]).seed(1.5)
