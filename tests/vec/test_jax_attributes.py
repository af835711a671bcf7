"""Attributes of single rows of a JaxVecEnv: parameters read and set, methods called."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxvec import Env, episode_statistics, vectorize, wrap
from jaxvec.envs import make
from jaxvec.vec import JaxVecEnv, Monitor, VecFrameStack, VecMonitor
from tests.envs.toys import counter
from tests.vec.jax_envs import random_actions


def per_row(env: Env, num_envs):
    """Returns the environment's parameters, each with one value per row."""
    return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (num_envs, *np.shape(leaf))), env.params)


def cart_poles(num_envs=4, **options):
    env = make("CartPole-v1")
    return JaxVecEnv(vectorize(env, num_envs, params=per_row(env, num_envs)), **options)


def test_parameters_are_read_row_by_row():
    venv = VecFrameStack(cart_poles(), 2)
    assert venv.get_attr("gravity") == [np.float32(9.8)] * 4
    assert venv.get_attr("length", [1, -1]) == [0.5, 0.5]
    assert venv.get_attr("total_mass") == [np.float32(1.1)] * 4  # follows from two of them
    assert venv.get_attr("kinematics_integrator", 0) == ["euler"]
    assert venv.get_attr("params", 2)[0].gravity == np.float32(9.8)
    assert venv.get_attr("max_episode_steps") == [500] * 4
    assert venv.get_attr("metadata")[0]["render_fps"] == 50
    assert venv.get_attr("render_mode") == [None] * 4
    assert venv.has_attr("gravity")
    assert not venv.has_attr("colour")


def test_a_parameter_is_set_in_some_rows_and_the_physics_follows():
    venv, other = cart_poles(), cart_poles()
    for each in (venv, other):
        each.seed(3)
    np.testing.assert_array_equal(venv.reset(), other.reset())
    venv.set_attr("gravity", 3.7, indices=[0, 2])
    assert venv.get_attr("gravity") == [np.float32(each) for each in (3.7, 9.8, 3.7, 9.8)]
    actions = random_actions(venv.action_space, 5, 4)
    for each in actions:
        changed, same = venv.step(each)[0], other.step(each)[0]
    np.testing.assert_array_equal(changed[[1, 3]], same[[1, 3]])
    assert not np.isclose(changed[[0, 2]], same[[0, 2]]).all(axis=1).any()
    mars = make("CartPole-v1")
    mars = JaxVecEnv(vectorize(mars._replace(params=mars.params.replace(gravity=3.7)), 4))
    mars.seed(3)
    mars.reset()
    for each in actions:
        expected = mars.step(each)[0]
    np.testing.assert_allclose(changed[[0, 2]], expected[[0, 2]], rtol=1e-5)


def test_what_was_set_stays_over_resets_and_may_be_set_before_the_first():
    venv, plain = cart_poles(), cart_poles()
    venv.set_attr("gravity", 3.7)
    np.testing.assert_array_equal(venv.reset(), plain.reset())  # the first reset is still the first
    venv.seed(0)
    venv.reset()
    assert venv.get_attr("gravity") == [np.float32(3.7)] * 4
    for each in random_actions(venv.action_space, 60, 4):
        venv.step(each)
    assert venv.get_attr("gravity") == [np.float32(3.7)] * 4


def test_setting_compiles_nothing():
    venv = cart_poles()
    venv.reset()
    venv.step(np.zeros(4, int))
    compiled = []

    def listen(event, duration, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    for value in (1, 2.5, np.float64(3)):
        venv.set_attr("masspole", value, indices=slice(1, 3))
        venv.step(np.zeros(4, int))
    jax.monitoring.clear_event_listeners()
    assert not compiled
    assert venv.get_attr("masspole")[1] == 3


def test_one_value_for_all_is_set_for_all_or_refused():
    env = make("CartPole-v1")
    venv = JaxVecEnv(vectorize(env, 3, params=env.params))
    venv.set_attr("gravity", 5.0)
    assert venv.get_attr("gravity") == [5, 5, 5]
    with pytest.raises(ValueError, match=r"'gravity'.*one number for all.*\[0\]"):
        venv.set_attr("gravity", 6.0, indices=0)


def test_parameters_may_be_arrays_and_states_may_lie_beneath_layers():
    env = make("Acrobot-v1")
    batched = wrap(vectorize(env, 2, params=per_row(env, 2)), episode_statistics())
    venv = JaxVecEnv(batched, info_keys=["episode"])
    venv.set_attr("AVAIL_TORQUE", np.array([-2.0, 0.0, 2.0]), indices=1)
    torques = venv.get_attr("AVAIL_TORQUE")
    assert [each.tolist() for each in torques] == [[-1, 0, 1], [-2, 0, 2]]
    state = venv.get_attr("state", 1)[0]
    assert abs(state.theta1) <= 0.1
    with pytest.raises(ValueError, match=r"shape \(3,\).*\(2,\)"):
        venv.set_attr("AVAIL_TORQUE", np.zeros(2))


def test_names_that_do_not_exist_are_answered_with_those_that_do():
    venv = cart_poles()
    with pytest.raises(AttributeError, match=r"'colour'.*'gravity'.*'total_mass'"):
        venv.get_attr("colour")
    with pytest.raises(AttributeError, match=r"no parameter 'total_mass'.*'gravity'"):
        venv.set_attr("total_mass", 1.0)
    with pytest.raises(AttributeError, match="'kinematics_integrator' is fixed"):
        venv.set_attr("kinematics_integrator", "euler")
    with pytest.raises(AttributeError, match=r"no method 'jump'.*\[\].*set_attr"):
        venv.env_method("jump")
    compiled_in = JaxVecEnv(vectorize(make("CartPole-v1"), 2))
    assert compiled_in.get_attr("gravity") == [np.float32(9.8)] * 2
    with pytest.raises(AttributeError, match=r"compiled in.*vectorize"):
        compiled_in.set_attr("gravity", 3.7)


def test_a_value_that_the_parameter_cannot_hold_is_refused():
    env = counter()
    params = env.params._replace(length=np.full(2, 3, np.int32), unit=np.ones(2, np.float32))
    venv = JaxVecEnv(vectorize(env, 2, params=params))
    with pytest.raises(ValueError, match=r"'length' is int32.*2\.5"):
        venv.set_attr("length", 2.5)
    venv.set_attr("length", 1, indices=1)
    venv.set_attr("unit", 1 / 3)
    venv.reset()
    _, rewards, dones, _ = venv.step(np.zeros(2, int))
    assert dones.tolist() == [False, True]
    np.testing.assert_allclose(rewards, [1 / 3] * 2, rtol=1e-6)


def with_methods():
    def scaled(state, params, by, offset=0):
        return {"t": state.t * by + offset, "unit": params.unit}

    def named(state, params, word):
        return f"{word} {int(state.t)}"

    env = counter()
    env = env._replace(methods={"scaled": scaled, "named": named})
    return JaxVecEnv(vectorize(env, 3, params=per_row(env, 3)))


def test_methods_are_called_for_each_row():
    venv = with_methods()
    venv.reset()
    venv.step(np.array([0, 2, 0]))
    venv.set_attr("unit", 7.0, indices=2)
    results = venv.env_method("scaled", 10, offset=3)
    assert [result["t"] for result in results] == [13, 3, 13]
    assert [result["unit"] for result in results] == [1, 1, 7]
    assert [each["t"] for each in venv.env_method("scaled", np.int32(2), indices=[2, 1])] == [2, 0]
    assert venv.env_method("named", "row", indices=0) == ["row 1"]
    assert venv.has_attr("scaled")
    assert venv.get_attr("scaled")[0](5)["t"] == 5


def test_a_method_is_compiled_once_whatever_its_numbers():
    traced = []

    def method(state, params, by):
        traced.append(by)
        return state.t + by

    env = counter()._replace(methods={"plus": method})
    venv = JaxVecEnv(vectorize(env, 2))
    venv.reset()
    for by in (1, 2, 3):
        assert venv.env_method("plus", by) == [by, by]
        venv.step(np.ones(2, int))
    assert len(traced) == 1


def test_it_says_that_it_is_monitored_only_where_its_infos_have_episodes():
    bare = JaxVecEnv(vectorize(counter(), 2))
    assert bare.env_is_wrapped(Monitor) == [False, False]
    assert VecMonitor(bare).env_is_wrapped(Monitor, indices=0) == [False]
    inside = JaxVecEnv(wrap(vectorize(counter(), 2), episode_statistics()), info_keys=["episode"])
    assert inside.env_is_wrapped(Monitor) == [True, True]
    assert inside.env_is_wrapped(dict) == [False, False]
    inside.reset()
    for _ in range(3):
        infos = inside.step(np.zeros(2, int))[3]
    assert infos[1]["episode"] == {"r": 6, "l": 3}


@pytest.mark.parametrize("source", ["cached", "pool"])
def test_a_seed_decides_all_that_follows_whatever_resets_come_from(source):
    def trace(venv):
        obs = [venv.reset()]
        obs += [venv.step(np.zeros(2, int))[0] for _ in range(9)]
        return np.array(obs)[:, :, 1]  # what the episode's reset drew

    batched = vectorize(counter(), 2, reset_source=source, pool_size=4)
    venv, fresh = JaxVecEnv(batched, seed=1), JaxVecEnv(batched, seed=7)
    expected = trace(fresh)
    other = trace(venv)
    venv.seed(7)
    np.testing.assert_array_equal(trace(venv), expected)
    assert not np.isin(other, expected).any()
    if source == "cached":
        assert (expected == expected[0]).all()


def test_hand_made_environments_have_no_parameters_to_set():
    env = vectorize(counter(), 2)
    wrapped = env._replace(
        reset=lambda keys, options=None: _in_list(env.reset(keys, options)),
        step=lambda state, action: _in_list(env.step(state[0], action)),
        reset_rows=lambda state, *rest: _in_list(env.reset_rows(state[0], *rest)),
        env=None,
    )
    venv = JaxVecEnv(wrapped)
    venv.reset()
    with pytest.raises(AttributeError, match=r"'t'.*\[\]"):
        venv.get_attr("t")
    with pytest.raises(AttributeError, match="no parameter"):
        venv.set_attr("t", 1)
    assert venv.step(np.zeros(2, int))[0][:, 0].tolist() == [1, 1]
    venv.reset([0])


def _in_list(result):
    state, timestep = result
    return [state], timestep


def test_reading_a_state_with_typed_keys_gives_keys():
    def reset(key, params):
        return {"key": key, "t": jnp.int32(0)}, jnp.zeros(3), {}

    def step(key, state, action, params):
        state = {"key": key, "t": state["t"] + 1}
        return state, jnp.zeros(3), 0.0, False, False, {}

    venv = JaxVecEnv(vectorize(counter()._replace(reset=reset, step=step), 2))
    venv.reset()
    state = venv.get_attr("state")[0]
    assert jnp.issubdtype(state["key"].dtype, jax.dtypes.prng_key)
    assert state["t"] == 0
