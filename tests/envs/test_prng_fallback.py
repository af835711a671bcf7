"""Which kind of random keys an environment gets: cheap ones, or the first kind that it can be traced with."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxvec import rollout, vectorize
from jaxvec.random import as_impl, hash_impl, keys_from
from tests.envs.toys import counter, draw, play, simple, words

pytestmark = pytest.mark.usefixtures("quick_compilation")

HASH = jax.random.key(0, impl=hash_impl()).dtype
THREEFRY = jax.random.key(0).dtype


def seen_keys(reset_body=lambda key: None, step_body=lambda key, state: None):
    """Returns an environment that uses its keys so, and the list of the keys' dtypes that it was given."""
    seen = []

    def reset(key):
        seen.append(key.dtype)
        reset_body(key)
        return {"key": key}

    def step(key, state):
        step_body(key, state)
        return {"key": key}

    return simple(reset, step), seen


def state_keys(env):
    state, _ = jax.eval_shape(env.reset, keys_from(0, 2))
    return state.keys.dtype


def test_an_environment_that_can_gets_cheap_keys_without_a_word():
    env, seen = seen_keys()
    batched = vectorize(env, 2)
    assert set(seen) == {HASH}
    assert state_keys(batched) == HASH


def test_a_distribution_that_only_threefry_has_gets_threefry_and_one_warning_with_the_cause():
    env, seen = seen_keys(lambda key: jax.random.poisson(key, 3.0))
    with pytest.warns(UserWarning, match="cannot be traced with cheap hash keys") as caught:
        batched = vectorize(env, 2)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "Simple" in message
    assert "NotImplementedError" in message
    assert "poisson" in message
    assert "prng_impl='threefry2x32'" in message
    assert caught[0].filename == __file__  # it points at whoever called vectorize
    assert seen[-1] == THREEFRY
    assert state_keys(batched) == THREEFRY
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        play(batched, 2)  # nor is there any other later


def test_poisson_draws_of_the_fallback_have_the_rate_they_should():
    env = simple(
        lambda key: jax.random.poisson(key, 3.0),
        lambda key, state: state,
        observe=lambda state: jnp.float32([state]),
    )
    with pytest.warns(UserWarning, match="poisson"):
        batched = vectorize(env, 4000)
    _, first = jax.jit(batched.reset)(keys_from(0, 4000))
    np.testing.assert_allclose(first.obs.mean(), 3, atol=0.11)  # 4 standard errors
    np.testing.assert_allclose(first.obs.var(), 3, atol=0.3)


RAW_USES = [
    lambda key: key[0] + key[1],  # words of a raw key
    lambda key: jnp.zeros((*key.shape[:-1], 3)) + jnp.zeros(3) * key.shape[-1],
    lambda key: jax.random.wrap_key_data(key),
]


@pytest.mark.parametrize("use", RAW_USES, ids=["words", "shape", "wrap"])
def test_an_environment_written_for_raw_keys_gets_raw_keys(use):
    env, seen = seen_keys(lambda key: use(key))
    with pytest.warns(UserWarning, match="it gets 'raw' keys") as caught:
        batched = vectorize(env, 2)
    assert len(caught) == 1
    assert seen[-1] == jnp.uint32
    state = play(batched, 2).state
    assert state.env["key"].shape == (2, 2)
    assert state.keys.dtype == THREEFRY  # what vectorize folds into stays typed


def test_raw_keys_are_the_words_of_the_threefry_keys_of_the_same_rows():
    # An environment that draws with jax.random alone: raw and typed threefry keys must draw the same.
    raw, typed = (
        play(vectorize(counter(), 3, prng_impl=kind), 4) for kind in ("raw", "threefry2x32")
    )
    np.testing.assert_array_equal(raw.steps.obs, typed.steps.obs)
    np.testing.assert_array_equal(raw.first.obs, typed.first.obs)


def test_an_environment_that_mixes_its_own_threefry_key_with_the_given_one_gets_threefry():
    env = simple(
        lambda key: jax.random.key(7),
        lambda key, state: jnp.where(True, key, state),
    )
    with pytest.warns(UserWarning, match="it gets 'threefry2x32' keys") as caught:
        batched = vectorize(env, 2)
    assert len(caught) == 1
    assert play(batched, 2).state.env.dtype == THREEFRY


def test_a_state_whose_key_changes_its_kind_is_named_where_no_kind_helps():
    env = simple(lambda key: jax.random.key(0, impl="rbg"), lambda key, state: key)
    with pytest.raises(
        ValueError, match=r"the state of Simple is key<rbg> after reset and key<jxh>"
    ):
        vectorize(env, 2)


def test_a_broken_environment_raises_its_own_first_error_and_warns_of_nothing():
    error = RuntimeError("the floor is missing")
    kinds = []

    def reset(key):
        kinds.append(key.dtype)
        if len(kinds) == 1:
            raise error
        raise RuntimeError("another one, later")

    with pytest.raises(RuntimeError) as caught:
        vectorize(simple(reset, lambda key, state: state), 2)
    assert caught.value is error
    assert len(kinds) == 3


def test_a_step_that_fails_after_a_good_reset_is_found_before_anything_is_compiled():
    def step(key, state):
        raise KeyError("no such joint")

    with pytest.raises(KeyError, match="no such joint"):
        vectorize(simple(lambda key: 0, step), 2)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("hash", HASH), ("threefry2x32", THREEFRY), ("raw", np.dtype(np.uint32))]
)
def test_prng_impl_decides_without_a_warning(kind, dtype):
    env, seen = seen_keys()
    vectorize(env, 2, prng_impl=kind)
    assert set(seen) == {dtype}


def test_a_kind_that_was_decided_upon_does_not_fall_back():
    env, _ = seen_keys(lambda key: jax.random.poisson(key, 3.0))
    with pytest.raises(NotImplementedError, match="poisson"):
        vectorize(env, 2, prng_impl="hash")
    vectorize(env, 2, prng_impl="threefry2x32")


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match=r"vectorize: prng_impl='rbg' .* 'threefry2x32', 'raw'"):
        vectorize(counter(), 2, prng_impl="rbg")


GIVEN = {
    "threefry": lambda num: keys_from(jax.random.key(3), num),
    "raw": lambda num: keys_from(jax.random.PRNGKey(3), num),
    "raw NumPy": lambda num: np.asarray(keys_from(jax.random.PRNGKey(3), num)),
    "hash": lambda num: as_impl(keys_from(jax.random.key(3), num), "hash"),
    "rbg": lambda num: keys_from(jax.random.key(3, impl="rbg"), num),
}


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("kind", ["hash", "raw"])
def test_keys_of_every_kind_are_accepted_and_those_of_equal_words_start_alike(kind, given):
    env = vectorize(counter(), 3, prng_impl=kind)
    _, first = env.reset(GIVEN[given](3))
    assert len(set(np.asarray(first.obs[:, 1]))) == 3  # rows differ
    _, same = env.reset(GIVEN["threefry"](3))
    assert np.array_equal(first.obs, same.obs) == (given != "rbg")  # four words, not two


@pytest.mark.parametrize("given", ["threefry", "raw", "hash"])
def test_reset_rows_takes_every_kind_too(given):
    env = vectorize(counter(), 3)
    state, first = env.reset(GIVEN["threefry"](3))
    _, opened = env.reset_rows(state, np.ones(3, bool), GIVEN[given](3))
    np.testing.assert_array_equal(opened.obs, first.obs)


WRONG = [
    (lambda: keys_from(0, 2), r"keys of shape \(2,\) came, but 3 environments need one each"),
    (lambda: jax.random.key(0), r"keys of shape \(\) came.*keys_from\(key, 3\)"),
]


@pytest.mark.parametrize(("keys", "message"), WRONG)
def test_too_few_keys_are_refused_with_what_makes_enough(keys, message):
    with pytest.raises(ValueError, match=message):
        vectorize(counter(), 3).reset(keys())


def test_rows_and_steps_and_resets_all_draw_apart():
    # One key for all rows, or for reset and step alike, shows as equal draws.
    _, first, steps, _ = play(vectorize(counter(), 8), 6)
    drawn = [*first.obs[:, 1], *steps.obs[..., 1][steps.first], *steps.final_obs[..., 2].ravel()]
    assert len(set(drawn)) == len(drawn) == 8 + 2 * 8 + 6 * 8


def test_the_reset_of_a_step_draws_nothing_that_the_step_drew():
    env = simple(lambda key: draw(key), lambda key, state: draw(key), terminated=lambda state: True)
    opened = play(vectorize(env, 4), 1).state.env
    stepped = play(vectorize(env, 4, autoreset_mode="Disabled"), 1).state.env
    assert not {*opened.tolist()} & {*stepped.tolist()}


@pytest.mark.parametrize("given", [jax.random.key(5), jax.random.PRNGKey(5)])
def test_a_rollout_takes_typed_and_raw_keys_alike(given):
    env = vectorize(counter(), 2)

    def policy(key, obs):
        return jax.random.randint(key, (2,), 0, 4)

    carry, (obs, action, _) = rollout(env, policy, given, 4)
    _, (same_obs, same_action, _) = rollout(env, policy, jax.random.key(5), 4)
    np.testing.assert_array_equal(obs, same_obs)
    np.testing.assert_array_equal(action, same_action)
    assert carry.key.dtype == given.dtype
    assert words(carry.key).shape == (2,)
