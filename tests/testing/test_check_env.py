"""`check_env` on environments with one fault each: it names the law that is broken, and no other."""

import random
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import vectorize
from jaxvec.errors import CheckError
from jaxvec.testing import check_env
from tests.envs.toys import CounterParams, counter, draw, simple

SPACES = "The spaces are gymnasium's"
FIT = "Reset and step return the same trees, shapes and dtypes"
INSIDE = "Every observation lies in the observation space"
FINITE = "Rewards and observations are finite"
SAME_TRACE = "The same key and actions give the same trace"
ROWS = "A row does not depend on the others, nor on N"
SAME_RESET = "The same key gives the same reset"
NO_RESET = "The environment does not reset by itself"
PLAIN = "Compiled, it does what it does in plain Python"
ONCE = "One compilation serves every step"
ALL = [SPACES, FIT, INSIDE, FINITE, SAME_TRACE, ROWS, SAME_RESET, NO_RESET, PLAIN, ONCE]


def report(env, **options):
    options = {"num_envs": 5, "num_steps": 8, "raise_on_failure": False, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return check_env(env, **options)


def broken(env, **options):
    """Returns the broken laws' details by their names."""
    return {law.name: law.detail for law in report(env, **options).failures}


def drawing(step=lambda key, state: state, **parts):
    """Returns an environment that starts at a random number, and steps so."""
    return simple(draw, step, observe=lambda state: jnp.float32([state]), **parts)


def quiet(**record):
    """Returns a counter whose only action ends no episode: each lasts 4 steps."""
    fields = {"params": CounterParams(length=4), "action_space": spaces.Discrete(1)}
    return counter(**{**fields, **record})


def test_a_good_environment_holds_every_law_in_order_and_its_spaces_are_left_as_they_were():
    env = quiet(action_space=spaces.Discrete(4, seed=3), params=CounterParams(length=7))
    found = report(env, num_envs=20)
    assert [law.name for law in found.laws] == ALL
    assert all(law.holds for law in found.laws)
    assert found.failures == ()
    assert found.subject == "Counter"
    assert not any(law.detail for law in found.laws)
    fresh = spaces.Discrete(4, seed=3)
    assert [env.action_space.sample() for _ in range(5)] == [fresh.sample() for _ in range(5)]


def auto_resetting(**record):
    env = counter(**record)

    def step(key, state, action, params):
        after, obs, reward, terminated, truncated, info = env.step(key, state, action, params)
        fresh, first, fresh_info = env.reset(key, params)
        after, obs, info = jax.tree.map(
            lambda new, old: jnp.where(terminated | truncated, new, old),
            (fresh, first, fresh_info),
            (after, obs, info),
        )
        return after, obs, reward, terminated, truncated, info

    return env._replace(step=step)


def test_an_environment_that_resets_by_itself_is_found_and_told_to_give_its_raw_step():
    # Some episodes end with their first step, whose state before was a fresh one: they cannot tell.
    found = broken(auto_resetting(params=CounterParams(length=4)), num_envs=40)
    assert set(found) == {NO_RESET}
    assert "state after the last step looks like a fresh one" in found[NO_RESET]
    assert "raw step" in found[NO_RESET]


def test_a_time_limit_does_not_hide_an_environment_that_resets_by_itself():
    # What the limit cuts off shows an old state; most rows are.
    env = auto_resetting(params=CounterParams(length=99), max_episode_steps=3)
    assert set(broken(env, num_envs=80)) == {NO_RESET}


def test_random_numbers_of_python_and_numpy_are_found():
    env = simple(
        lambda key: jnp.int32(np.random.randint(2**20)),  # noqa: NPY002  as such code has it
        lambda key, state: state + random.randrange(1, 2**20),
        observe=lambda state: jnp.float32([state]),
    )
    assert set(broken(env)) >= {SAME_TRACE, SAME_RESET}


def test_random_numbers_that_a_callback_brings_in_are_found():
    source = np.random.default_rng(0)

    def step(key, state):
        number = jax.ShapeDtypeStruct((), jnp.int32)
        return state * 0 + jax.pure_callback(
            lambda: np.int32(source.integers(2**20)), number, vmap_method="sequential"
        )

    assert SAME_TRACE in broken(drawing(step))


def test_state_that_lives_outside_of_the_state_is_found():
    count = [0]

    def step(key, state):
        count[0] += 1
        return state + count[0]

    found = broken(drawing(step))
    assert SAME_TRACE in found
    assert "is there a global, a Python random number" in found[SAME_TRACE]


def test_rows_that_know_of_each_other_are_found():
    @jax.custom_batching.custom_vmap
    def crowded(x):
        return x

    @crowded.def_vmap
    def _(size, batched, x):
        return x + size, True

    found = broken(drawing(lambda key, state: crowded(state)))
    assert set(found) == {ROWS}
    assert "row 0 or 1 of 5 differs from the same row of 2" in found[ROWS]


def test_an_observation_outside_of_its_space_is_shown_with_the_step_and_the_row():
    found = broken(quiet(observation_space=spaces.Box(0, np.float32([2, 2**20, 2**20]))))
    assert set(found) == {INSIDE}
    assert found[INSIDE].startswith("after step 2, row 0 observes array([3.")


def test_an_observation_of_the_reset_outside_of_its_space_is_found():
    env = simple(lambda key: draw(key), lambda key, s: s, space=spaces.Box(1, 2, (1,)))
    assert broken(env)[INSIDE].startswith("after reset, row 0 observes array([0.]")


def test_a_reward_that_is_not_finite_is_found_with_its_step():
    found = broken(quiet(reward=lambda t: jnp.where(t == 2, np.inf, 1.0)))
    assert set(found) == {FINITE}
    assert found[FINITE].startswith("the reward of step 1, row 0")


def test_an_observation_that_is_not_finite_is_named_by_its_part():
    space = spaces.Dict(x=spaces.Box(-np.inf, np.inf, (1,)), y=spaces.Discrete(2))
    env = simple(
        draw,
        lambda key, state: -abs(state),
        observe=lambda state: {"x": jnp.sqrt(1.0 * state)[None], "y": 1},
        space=space,
    )
    assert broken(env)[FINITE].startswith("the observation['x'] of step 0, row 0 is NaN")


UNFIT = {
    "info": (
        simple(lambda key: 0, lambda key, s: s)._replace(
            step=lambda key, s, a, p: (s, jnp.zeros(1), 0.0, False, False, {"t": s})
        ),
        "the info of Simple has another structure after step",
    ),
    "drift": (
        simple(lambda key: jnp.int32(0), lambda key, s: s + 0.5),
        "the state of Simple is int32 after reset and float32 after step",
    ),
    "flags": (
        simple(lambda key: 0, lambda key, s: s, terminated=lambda s: jnp.zeros(2, bool)),
        "step of Simple returns terminated as bool of shape (2,)",
    ),
    "shape": (
        simple(lambda key: 0, lambda key, s: s, observe=lambda s: jnp.zeros(2)),
        "part whole has shape (2,)",
    ),
    "branch": (
        simple(lambda key: 0, lambda key, s: s + 1 if s > 2 else s),
        "it raised TracerBoolConversionError: Attempted boolean conversion",
    ),
}


@pytest.mark.parametrize("fault", UNFIT)
def test_what_cannot_be_vectorized_is_told_once_and_ends_the_examination(fault):
    env, message = UNFIT[fault]
    found = report(env)
    assert [law.name for law in found.laws] == [SPACES, FIT]
    assert [law.name for law in found.failures] == [FIT]
    assert message in found.failures[0].detail
    assert list(found.not_run) == ALL[2:]


def test_one_mistake_that_breaks_many_laws_is_told_once_with_the_laws_that_could_not_be_examined():
    env, calls, allowed = counter(), [], 1000

    def step(key, state, action, params):
        calls.append(action)
        if len(calls) > allowed:
            raise RuntimeError("the table is not loaded")
        return env.step(key, state, action, params)

    faulty = env._replace(step=step)
    vectorize(faulty, 5, autoreset_mode="Disabled")
    allowed = len(calls)  # so that the second law holds, and all that plays raises
    calls.clear()
    found = report(faulty)
    assert [law.name for law in found.failures] == [INSIDE]
    assert found.failures[0].detail == "it raised RuntimeError: the table is not loaded"
    assert set(found.not_run) >= {FINITE, SAME_TRACE, ROWS, NO_RESET, PLAIN}
    assert {law.name for law in found.laws}.isdisjoint(found.not_run)
    calls.clear()
    with pytest.raises(CheckError) as caught:
        check_env(faulty, num_envs=2, num_steps=3)
    assert str(caught.value).count("the table is not loaded") == 1
    assert f"others from being examined: {FINITE}; " in str(caught.value)


def test_spaces_of_another_library_are_told_first():
    found = report(counter(action_space="Discrete(2)"))
    assert [(law.name, law.holds) for law in found.laws] == [(SPACES, False)]
    assert "action_space is 'Discrete(2)' (str)" in found.laws[0].detail


def test_remarks_say_what_may_be_meant_and_what_could_not_be_told():
    env = simple(
        lambda key: jax.random.poisson(key, 0.01) * 0,
        lambda key, state: state,
        max_episode_steps=99,
    )
    found = {law.name: law for law in report(env).laws}
    assert all(law.holds for law in found.values())
    assert found[SAME_RESET].detail == "256 resets gave 1 different state(s): is that meant?"
    assert "only 0 episode(s) ended in 8 steps" in found[NO_RESET].detail
    assert "it gets 'threefry2x32' keys" in found[FIT].detail  # once, and no warning


def test_what_is_no_environment_is_refused():
    with pytest.raises(
        TypeError, match=r"check_env: 'CartPole-v1' is a str; it takes a jaxvec\.Env"
    ):
        check_env("CartPole-v1")


ARGUMENTS = [
    *[("num_envs", value) for value in (0, 1, -3, 2.0, "4", True, None)],
    *[("num_steps", value) for value in (0, -1, 1.5, None)],
    *[("seed", value) for value in (-1, 0.5, None, 2**63)],
    ("raise_on_failure", "no"),
]


@pytest.mark.parametrize(("name", "value"), ARGUMENTS, ids=str)
def test_arguments_that_cannot_be_are_the_callers_fault_and_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"check_env: {name}={value!r}, but it must be"):
        check_env(counter(), **{name: value})


def test_a_failure_raises_with_every_broken_law_and_its_detail():
    env = counter(
        reward=lambda t: jnp.nan * t, observation_space=spaces.Box(0, np.float32([0, 1, 1]))
    )
    with pytest.raises(CheckError) as caught:
        check_env(env, num_envs=2, num_steps=3)
    message = str(caught.value)
    assert message.startswith("Counter breaks 2 of its laws:")
    assert f"- {INSIDE}: after reset, row 0" in message
    assert f"- {FINITE}: the reward of step 0, row 0" in message


def test_the_seed_decides_keys_and_actions():
    env = counter(observation_space=spaces.Box(0, np.float32([9, 1, 1])))
    details = [report(env, num_steps=1, seed=seed).failures[0].detail for seed in (0, 1)]
    assert details[0] != details[1]
