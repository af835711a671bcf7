"""`check_transform` on jaxvec's own layers, and on layers with one fault each: it names the broken law."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec import Transform, episode_statistics, frame_stack
from jaxvec.core._xp import namespace
from jaxvec.errors import CheckError
from jaxvec.testing import check_transform
from tests.core.table import ACTION_SPACES, SPACES, TRANSFORMS

RUNS = "It runs with NumPy, and NumPy in gives NumPy out"
UNWRITTEN = "Nothing it is given is written to"
PROMISED = "What leaves lies in the space that `spec` promises"
STILL = "Reset and update return the same trees, shapes and dtypes"
EQUAL = "NumPy and compiled JAX give the same numbers"
ONCE = "One compilation serves every step"
PARTIAL = "A reset of no rows changes nothing"
ALL = [RUNS, UNWRITTEN, PROMISED, STILL, EQUAL, ONCE, PARTIAL]


def report(transform, **options):
    return check_transform(transform, num_steps=6, raise_on_failure=False, **options)


def broken(transform, **options):
    """Returns the broken laws' details by their names."""
    return {law.name: law.detail for law in report(transform, **options).failures}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_jaxvecs_own_layers_hold_every_law(name):
    entry = TRANSFORMS[name]
    # float32 against float64: stacked and normalized, a spread of almost nothing divides the rounding.
    found = report(
        entry.make(),
        observation_space=SPACES[entry.spaces[-1]](),
        action_space=ACTION_SPACES[entry.actions](),
        rtol=1e-3 if "chain" in name else 1e-5,
    )
    assert [law.name for law in found.laws] == ALL
    assert found.failures == ()


def layer(update=lambda state, timestep: (state, timestep), **fields):
    """Returns a layer that counts steps, unless told otherwise."""
    defaults = {
        "init": lambda spec, keys: np.zeros(spec.num_envs, np.int32),
        "reset": lambda state, timestep, mask=None: (state, timestep),
        "update": update,
    }
    return Transform(**{**defaults, **fields})


def test_a_good_layer_of_ones_own_holds_every_law():
    def update(state, timestep):
        return state + timestep.valid, timestep._replace(reward=timestep.reward * 2)

    assert broken(layer(update)) == {}


def test_a_new_key_in_the_info_that_it_was_given_is_found():
    def update(state, timestep):
        timestep.info["count"] = state * 1
        return state, timestep

    found = broken(layer(update))
    assert "written to" in found[UNWRITTEN]
    assert "count" in found[UNWRITTEN]


def test_a_value_that_is_replaced_deep_in_the_info_that_it_was_given_is_found():
    def update(state, timestep):
        timestep.info["below"]["number"] = timestep.info["below"]["number"] * 2
        return state, timestep

    found = broken(layer(update))
    assert found[UNWRITTEN] == (
        "timestep.info['below']['number'] was written to; return a new array."
    )


def in_place(write):
    """Returns a layer that writes into what it was given, where that is NumPy."""

    def update(state, timestep):
        if isinstance(timestep.obs, np.ndarray):
            write(state, timestep)
        return state, timestep

    return layer(update)


WRITES = [
    (lambda state, timestep: np.clip(timestep.obs, -1, 1, out=timestep.obs), "timestep.obs"),
    (lambda state, timestep: timestep.reward.fill(3), "timestep.reward"),
    (lambda state, timestep: timestep.final_obs.fill(0), "timestep.final_obs"),
    (lambda state, timestep: np.add(state, 1, out=state), "state"),
]


@pytest.mark.parametrize(("write", "where"), WRITES, ids=[where for _, where in WRITES])
def test_an_array_that_is_written_to_is_found_by_its_name(write, where):
    # To clip twice changes nothing more: it must be seen the first time.
    assert broken(in_place(write))[UNWRITTEN] == f"{where} was written to; return a new array."


def test_an_action_that_is_written_to_is_found():
    def action(state, action):
        if isinstance(action, np.ndarray):
            action[:] = 0
        return state, action

    assert "action was written to" in broken(layer(action=action))[UNWRITTEN]


def test_numpy_that_differs_from_jax_is_found_with_the_step_and_by_how_much():
    def update(state, timestep):
        host = isinstance(timestep.reward, np.ndarray)
        return state, timestep._replace(reward=timestep.reward + (0.25 if host else 0.0))

    found = broken(layer(update))
    assert set(found) == {EQUAL}
    assert (
        found[EQUAL] == "timestep.reward after 1 steps differs by up to 0.25 between NumPy and JAX."
    )


def test_actions_that_differ_are_found_too():
    def action(state, action):
        return state, action if isinstance(action, np.ndarray) else action * 0

    assert broken(layer(action=action))[EQUAL].startswith("action after")


def test_a_state_whose_dtype_drifts_compiles_twice_and_is_found():
    def update(state, timestep):
        return state + 0.5, timestep

    found = broken(layer(update))
    assert "6 steps were compiled 2 times" in found[ONCE]


def test_an_observation_whose_dtype_differs_between_reset_and_update_is_found():
    def update(state, timestep):
        return state, timestep._replace(obs=timestep.obs.astype(np.float16))

    found = broken(layer(update))
    assert "float16" in found[STILL]
    assert "with NumPy, after reset and after step 0" in found[STILL]


def test_an_info_that_only_update_has_is_found():
    def update(state, timestep):
        return state, timestep._replace(info={**timestep.info, "count": state})

    assert ".info['count']" in broken(layer(update))[STILL]


def test_a_spec_that_promises_another_space_is_found():
    stack = frame_stack(2)
    assert set(broken(stack._replace(spec=lambda spec: spec))) == {PROMISED}

    def shifted(state, timestep):
        return state, timestep._replace(obs=timestep.obs + np.float32(5))

    found = broken(layer(shifted))
    assert found[PROMISED].startswith("after 1 steps row 0 leaves as array([")


def test_jax_arrays_for_numpy_are_found_by_their_name():
    def update(state, timestep):
        return state, timestep._replace(truncated=jnp.asarray(timestep.truncated))

    found = broken(layer(update))
    assert set(found) == {RUNS}
    assert found[RUNS].startswith("['truncated'] is a ArrayImpl; NumPy in must give NumPy out")


def test_a_layer_that_raises_is_told_so_once():
    def update(state, timestep):
        raise KeyError("no such part")

    found = report(layer(update))
    assert [law.name for law in found.laws] == [RUNS]
    assert found.failures[0].detail == "it raised KeyError: 'no such part'"
    assert list(found.not_run) == ALL[1:]


def test_a_layer_that_does_not_fit_the_space_is_told_so_once():
    found = report(frame_stack(2), observation_space=spaces.Discrete(3))
    assert [law.name for law in found.laws] == [RUNS]
    assert "it has no channel axis" in found.failures[0].detail


def test_a_reset_of_some_rows_that_clears_all_is_found():
    def reset(state, timestep, mask=None):
        return state * 0, timestep

    found = broken(layer(lambda state, timestep: (state + 1, timestep), reset=reset))
    assert set(found) == {PARTIAL}


def test_a_layer_may_keep_a_typed_key_in_its_state():
    def init(spec, keys):
        xp = np if spec.backend == "numpy" else jnp
        return xp.zeros(4) if xp is np else jax.random.key(0)

    assert broken(layer(init=init)) == {}


def test_infos_of_one_check_do_not_reach_the_next():
    def update(state, timestep):
        timestep.info["leaked"] = 1
        return state, timestep

    def reset(state, timestep, mask=None):
        timestep.info["leaked"] = 1
        return state, timestep

    broken(layer(update, reset=reset))
    assert broken(layer()) == {}


def test_the_space_that_is_given_draws_on_as_if_nothing_had_been():
    space = spaces.Box(-1, 1, (2,), seed=4)
    check_transform(episode_statistics(), observation_space=space, num_steps=2)
    assert np.array_equal(space.sample(), spaces.Box(-1, 1, (2,), seed=4).sample())


def test_what_is_no_transform_is_refused():
    with pytest.raises(TypeError, match=r"check_transform: <function frame_stack .* is a function"):
        check_transform(frame_stack)


def test_a_failure_raises_with_the_law_and_its_detail():
    def update(state, timestep):
        return state, timestep._replace(reward=timestep.reward * namespace(timestep.reward).pi)

    check_transform(layer(update), num_steps=2)
    with pytest.raises(
        CheckError, match=rf"(?s)the transform breaks 1 of its laws:\n  - {PARTIAL}"
    ):
        check_transform(
            layer(
                lambda state, timestep: (state + 1, timestep),
                reset=lambda state, timestep, mask=None: (state * 0, timestep),
            ),
            num_steps=2,
        )


def test_seed_and_number_of_rows_decide_the_stream():
    seen = []

    def update(tag, state, timestep):
        if isinstance(timestep.obs, np.ndarray):
            seen.append((tag, timestep.obs.copy()))
        return state, timestep

    for tag, options in enumerate(({"seed": 1}, {"seed": 1}, {"seed": 2}, {"num_envs": 3})):
        check_transform(layer(partial(update, tag)), num_steps=1, **options)
    first = [next(obs for tag, obs in seen if tag == wanted) for wanted in range(4)]
    assert np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], first[2])
    assert first[3].shape == (3, 3)


ARGUMENTS = [
    *[("num_envs", value) for value in (0, -3, 2.0, "4", True, None)],
    *[("num_steps", value) for value in (0, -1, 1.5, None)],
    *[("seed", value) for value in (-1, 0.5, None)],
    *[("rtol", value) for value in (-1e-5, np.nan, np.inf, "small", None)],
    ("raise_on_failure", "no"),
]


@pytest.mark.parametrize(("name", "value"), ARGUMENTS, ids=str)
def test_arguments_that_cannot_be_are_the_callers_fault_and_refused_by_name(name, value):
    with pytest.raises(ValueError, match=rf"check_transform: {name}={value!r}, but it must be"):
        check_transform(layer(), **{name: value})


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
def test_a_space_of_another_library_is_the_callers_fault(name):
    with pytest.raises(TypeError, match=f"check_transform: {name}='Box', but .* gymnasium space"):
        check_transform(layer(), **{name: "Box"})
