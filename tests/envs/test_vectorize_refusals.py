"""What `vectorize` refuses, and that it says which leaf, what came and what is needed."""

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import episode_statistics, random_policy, rollout, vectorize, wrap
from jaxvec.envs import begin
from jaxvec.random import keys_from
from tests.envs.toys import counter, observing, simple
from tests.modes import in_32_bits

U8 = spaces.Box(0, 255, (2,), np.uint8)
KEYS = keys_from(0, 2)


def parts(**changes):
    """Returns an environment with some of the values of reset (`0_`) or step (`1_`) replaced."""
    opened = {"state": {"a": jnp.int32(0)}, "obs": jnp.zeros(1), "info": {}}
    stepped = {**opened, "reward": 0.0, "terminated": False, "truncated": False}
    opened |= {name[2:]: value for name, value in changes.items() if name.startswith("0_")}
    stepped |= {name[2:]: value for name, value in changes.items() if name.startswith("1_")}
    order = ("state", "obs", "reward", "terminated", "truncated", "info")
    return simple(lambda key: 0, lambda key, state: state)._replace(
        reset=lambda key, params: tuple(opened[name] for name in ("state", "obs", "info")),
        step=lambda key, state, action, params: tuple(stepped[name] for name in order),
    )


F32 = jnp.float32(0)
REFUSED = {
    "state shape": (
        parts(**{"1_state": {"a": jnp.zeros(1, jnp.int32)}}),
        r"the state of Simple\['a'\] has shape \(\) after reset and \(1,\) after step",
    ),
    "state dtype": (
        parts(**{"1_state": {"a": F32}}),
        r"the state of Simple\['a'\] is int32 after reset and float32 after step: cast one",
    ),
    "state bool": (
        parts(**{"0_state": {"a": False}, "1_state": {"a": 1}}),
        r"the state of Simple\['a'\] is bool after reset and int32 after step",
    ),
    "state structure": (
        parts(**{"1_state": {"a": jnp.int32(0), "b": 0}}),
        r"the state of Simple has another structure .* only after step \[\"\['b'\]\"\]",
    ),
    "info missing": (
        parts(**{"0_info": {"t": 0}}),
        r"the info of Simple has another structure .* only after reset \[\"\['t'\]\"\]",
    ),
    "info dtype": (
        parts(**{"0_info": {"t": jnp.int32(0)}, "1_info": {"t": F32}}),
        r"the info of Simple\['t'\] is int32",
    ),
    "obs shape": (
        parts(**{"1_obs": jnp.zeros(2)}),
        r"step of Simple returns an observation whose part whole has shape \(2,\); its space says Box",
    ),
    "obs dtype": (
        parts(**{"0_obs": jnp.zeros(1, jnp.complex64)}),
        r"reset of Simple returns an observation whose part whole is complex64; .* cast would change",
    ),
    "obs structure": (
        parts(**{"0_obs": {"x": jnp.zeros(1)}}),
        r"reset of Simple returns an observation PyTreeDef\(\{'x': \*\}\), but its space is Box",
    ),
    "reward": (
        parts(**{"1_reward": jnp.zeros(2)}),
        r"step of Simple returns reward as float32 of shape",
    ),
    "no reward": (parts(**{"1_reward": None}), r"returns reward as None; it must be one real"),
    "flags in a dict": (
        parts(**{"1_terminated": {"all": True}}),
        r"returns terminated as \{'all': ",
    ),
    "complex": (parts(**{"1_reward": 1j}), r"returns reward as complex64 of shape \(\)"),
    "flag": (
        parts(**{"1_truncated": jnp.zeros((1, 2), bool)}),
        r"returns truncated as bool of shape",
    ),
    "reset count": (
        simple(lambda key: 0, lambda key, s: s)._replace(reset=lambda key, p: (jnp.zeros(1), 0)),
        r"reset of Simple returns 2 values; it must return \(state, obs, info\)",
    ),
    "step count": (
        simple(lambda key: 0, lambda key, s: s)._replace(
            step=lambda key, s, a, p: (s, jnp.zeros(1), 0.0, False, {})
        ),
        r"step of Simple returns 5 values; it must return \(state, obs, reward, terminated,",
    ),
    "persistent": (
        simple(
            lambda key: {"level": 0},
            lambda key, state: state,
            persistent=lambda ended, fresh: {"level": ended["level"] + 0.5},
        ),
        r"state of Simple\['level'\] is int32 after reset and float32 after persistent",
    ),
    "wide integers in a byte": (
        observing(U8, jnp.int32([3, 4])),
        r"part whole is int32; its space says Box\(0, 255, \(2,\), uint8\), and a cast would change",
    ),
    "a Python fraction in whole numbers": (
        observing(spaces.Discrete(2), 0.5),
        r"part whole is float32; its space says Discrete\(2\), and a cast would change",
    ),
    "one part of several": (
        observing(spaces.Dict(x=U8, y=spaces.Discrete(2)), {"x": jnp.zeros(2), "y": 1}),
        r"whose part \['x'\] is float32",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
@in_32_bits("the messages name the dtypes")
def test_what_does_not_fit_is_refused_by_the_name_of_the_leaf_before_anything_runs(fault):
    env, message = REFUSED[fault]
    with pytest.raises(ValueError, match=message):
        vectorize(env, 2)


ACTIONS = [
    (spaces.Discrete(3), np.zeros((2, 1), int), r"shapes \[\(2, 1\)\] came.*shapes \[\(2,\)\]"),
    (spaces.Discrete(3), np.zeros(3, int), r"shapes \[\(3,\)\] came, but 2 environments"),
    (
        spaces.Box(-1, 1, (4,)),
        np.zeros((2, 3), np.float32),
        r"one element of Box\(-1.0, 1.0, \(4,\)",
    ),
    (spaces.Dict(a=spaces.Discrete(2)), np.zeros(2, int), r"need PyTreeDef\(\{'a': \*\}\)"),
]


@pytest.mark.parametrize(("space", "action", "message"), ACTIONS, ids=str)
def test_actions_of_another_shape_than_the_spaces_are_refused(space, action, message):
    env = vectorize(simple(lambda key: 0, lambda key, s: s, action_space=space), 2)
    state, _ = env.reset(KEYS)
    with pytest.raises(ValueError, match=message):
        env.step(state, action)


FLOATS = [
    (spaces.Discrete(3), np.float32([0, 1])),
    (spaces.Discrete(3), np.array([np.nan, 1.0])),
    (spaces.Discrete(3), np.array([0.7, 1.0])),
    (spaces.MultiDiscrete([2, 3]), np.zeros((2, 2), np.float16)),
    (spaces.MultiBinary(2), np.zeros((2, 2))),
    (spaces.Box(0, 9, (1,), np.uint8), np.zeros((2, 1), np.float32)),
    (spaces.Box(-1, 1, (1,)), np.zeros((2, 1), np.complex64)),
    (spaces.Dict(a=spaces.Discrete(2)), {"a": np.zeros(2)}),
]


@pytest.mark.parametrize(("space", "action"), FLOATS, ids=str)
def test_actions_of_a_dtype_that_would_be_cut_off_are_refused_while_tracing(space, action):
    env = vectorize(simple(lambda key: 0, lambda key, s: s, action_space=space), 2)
    state, _ = env.reset(KEYS)
    for step in (env.step, jax.jit(env.step)):
        with pytest.raises(TypeError, match=r"step: actions of dtype (float|complex)\d+ came, but"):
            step(state, action)


@pytest.mark.parametrize("number", [2**40, -(2**31) - 1, 2**63])
@in_32_bits("64 cut nothing off")
def test_whole_numbers_that_32_bits_would_cut_off_are_refused_with_their_value(number):
    env = vectorize(counter(), 2)
    state, _ = env.reset(KEYS)
    with pytest.raises(ValueError, match=rf"step: the actions hold {number}, which u?int32 cannot"):
        env.step(state, np.array([1, number], np.int64 if number < 2**63 else np.uint64))


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_actions_of_whole_numbers_of_any_width_are_allowed_and_all_do_the_same(dtype):
    env = vectorize(counter(), 2)
    state, _ = env.reset(KEYS)
    given = np.array([0, 1])
    _, wanted = env.step(state, given.astype(np.int32))
    _, found = env.step(state, given.astype(dtype))
    np.testing.assert_array_equal(found.obs, wanted.obs)
    np.testing.assert_array_equal(found.reward, wanted.reward)


OPTIONS = [
    ({"num_envs": 0}, "num_envs=0"),
    ({"num_envs": 2.0}, r"num_envs=2\.0"),
    ({"num_envs": True}, "num_envs=True"),
    ({"pool_size": 0}, "pool_size=0"),
    ({"action_repeat": -1}, "action_repeat=-1"),
    ({"max_episode_steps": 0}, "max_episode_steps=0"),
    ({"max_episode_steps": "none"}, "max_episode_steps='none'"),
    ({"max_episode_steps": 2**31}, r"max_episode_steps=2147483648, .* from 1 to 2147483647"),
    ({"max_episode_steps": 2.5}, r"max_episode_steps=2\.5"),
    ({"max_episode_steps": np.arange(2)}, r"max_episode_steps=array"),
    ({"num_envs": None}, "num_envs=None"),
    ({"reset_source": "stale"}, r"reset_source='stale' .* 'fresh', 'cached', 'pool'"),
    ({"autoreset_mode": "SAME_STEP"}, r"autoreset_mode='SAME_STEP' .* 'NextStep', 'SameStep'"),
]


@pytest.mark.parametrize(("options", "message"), OPTIONS, ids=str)
def test_an_option_that_does_not_exist_is_refused_with_its_value(options, message):
    with pytest.raises(ValueError, match=f"vectorize: {message}"):
        vectorize(counter(), **{"num_envs": 2, **options})


def test_one_environment_where_many_are_needed_is_refused_and_the_other_way_round():
    def act(key, obs):
        return jnp.zeros(2, jnp.int32)

    for call in (
        lambda env: wrap(env, episode_statistics()),
        lambda env: rollout(env, act, KEYS[0], 3),
        lambda env: begin(env, act, KEYS[0]),
        random_policy,
    ):
        with pytest.raises(TypeError, match=r"env is Env, .* vectorize\(env, num_envs\)"):
            call(counter())
    for env in ("CartPole-v1", vectorize(counter(), 2)):
        with pytest.raises(
            TypeError, match=r"vectorize: env is ('CartPole-v1'|BatchedEnv), .*jaxvec\.Env"
        ):
            vectorize(env, 2)


WRONG = [
    (None, r"env is None, but"),
    (counter, r"env is the function counter, but .* call it first"),
    (simple(lambda key: 0, lambda key, s: s).step, r"env is the function .*, but .* call it first"),
    (gym.Env, r"env is the class Env, but .* call it first"),
    (gym.Env(), r"env is Env, but .*DummyVecEnv"),
    ("CartPole-v1", r"env is 'CartPole-v1', but .* make\(id\)"),
]


@pytest.mark.parametrize(
    ("env", "message"), WRONG, ids=lambda part: getattr(part, "__name__", str(part))
)
def test_what_is_no_environment_is_named_and_what_to_do_about_it(env, message):
    with pytest.raises(TypeError, match=f"vectorize: {message}"):
        vectorize(env, 2)
    with pytest.raises(TypeError, match=f"wrap: {message}"):
        wrap(env, episode_statistics())


PARTS = [
    ("reset", None, "a function"),
    ("step", 3, "a function"),
    ("persistent", "kept", "a function or None"),
    ("render", True, "a function or None"),
    ("observation_space", "Box", "a gymnasium space"),
    ("action_space", None, "a gymnasium space"),
    ("metadata", "fast", "a dict or None"),
    ("methods", ["masks"], "a dict or None"),
]


@pytest.mark.parametrize(("part", "value", "kind"), PARTS, ids=str)
def test_a_part_of_an_environment_of_a_wrong_kind_is_refused_by_its_name(part, value, kind):
    with pytest.raises(TypeError, match=rf"vectorize: env\.{part} is .*, but it must be {kind}"):
        vectorize(counter()._replace(**{part: value}), 2)


def test_an_environment_may_come_without_metadata_and_methods():
    env = vectorize(counter(metadata=None, methods=None), 2)
    assert (env.env.metadata, env.env.methods) == ({}, {})


def test_a_time_limit_of_the_environments_own_that_int32_cannot_hold_is_refused():
    with pytest.raises(ValueError, match=r"vectorize: env\.max_episode_steps=4294967296"):
        vectorize(counter(max_episode_steps=2**32), 2)
