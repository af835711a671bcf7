"""What `vectorize` refuses, and that it says which leaf, what came and what is needed."""

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import episode_statistics, random_policy, rollout, vectorize, wrap
from jaxvec.envs import begin
from jaxvec.random import keys_from
from tests.envs.toys import counter, observing, simple

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
    "one part of several": (
        observing(spaces.Dict(x=U8, y=spaces.Discrete(2)), {"x": jnp.zeros(2), "y": 1}),
        r"whose part \['x'\] is float32",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
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


OPTIONS = [
    ({"num_envs": 0}, "num_envs=0"),
    ({"num_envs": 2.0}, r"num_envs=2\.0"),
    ({"num_envs": True}, "num_envs=True"),
    ({"pool_size": 0}, "pool_size=0"),
    ({"action_repeat": -1}, "action_repeat=-1"),
    ({"max_episode_steps": 0}, "max_episode_steps=0"),
    ({"max_episode_steps": "none"}, "max_episode_steps='none'"),
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
        with pytest.raises(TypeError, match=r"vectorize: env is (str|BatchedEnv), .*jaxvec\.Env"):
            vectorize(env, 2)
