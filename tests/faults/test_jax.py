"""Environments in JAX: fresh episodes, stable types, one compilation, keys used once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxvec
from jaxvec.envs import vectorize
from jaxvec.random import keys_from
from tests.envs.toys import avals, counter, play, simple

MODES = ["SameStep", "NextStep", "Disabled"]
KINDS = ["hash", "raw"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_episode_of_every_row_begins_from_a_draw_of_its_own(kind):
    steps = play(vectorize(counter(), 3, prng_impl=kind), 12).steps
    starts = steps.obs[2::3, :, 1]  # what the resets drew that opened four episodes
    assert len(np.unique(starts)) == 12


@pytest.mark.parametrize("mode", MODES)
def test_nothing_of_an_episode_is_left_in_the_next_one(mode):
    env = vectorize(counter(), 2, autoreset_mode=mode)
    played = play(env, 3)
    if mode == "Disabled":
        state, _ = jax.jit(env.reset_rows)(played.state, np.ones(2, bool))
    elif mode == "NextStep":
        state, _ = jax.jit(env.step)(played.state, jnp.zeros(2, jnp.int32))
    else:
        state = played.state
    assert np.asarray(state.env.t).tolist() == [0, 0]
    assert np.asarray(state.steps).tolist() == [0, 0]
    assert (np.asarray(state.env.start) != np.asarray(played.opened.env.start)).all()


def odd_rewards():
    return {
        "int": 1,
        "int32": jnp.int32(1),
        "python float": 1.0,
        "weak": jnp.asarray(1.0) * 1,
        "bool": True,
        "float16": jnp.float16(1),
        "one number in an axis": jnp.ones(1),
    }


@pytest.mark.parametrize("kind", odd_rewards())
def test_a_reward_of_any_kind_leaves_as_one_float32_and_can_be_scanned(kind):
    env = simple(lambda key: 0, lambda key, state: state + 1, reward=lambda s: odd_rewards()[kind])
    steps = play(vectorize(env, 2), 3).steps
    assert steps.reward.dtype == np.float32
    assert steps.reward.tolist() == [[1, 1]] * 3


def test_a_reward_of_two_numbers_is_refused_before_anything_runs():
    with pytest.raises(ValueError, match="reward"):
        vectorize(simple(lambda key: 0, lambda key, state: state, reward=jnp.ones(2)), 2)


@pytest.mark.parametrize("mode", MODES)
def test_a_step_is_traced_once_over_resets_and_steps(mode):
    traces = []

    def step(key, state):
        traces.append(1)
        return {"ret": state["ret"] + 1.0, "len": state["len"] + 1}

    env = vectorize(simple(lambda key: {"ret": 0, "len": 0}, step), 2, autoreset_mode=mode)
    before = len(traces)
    reset, step_all = jax.jit(env.reset), jax.jit(env.step)
    state, _ = reset(keys_from(0, 2))
    opened = avals(state)
    for _ in range(4):
        state, _ = step_all(state, jnp.zeros(2, jnp.int32))
    assert len(traces) - before == 1
    assert avals(state) == opened
    assert step_all._cache_size() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_rows_resets_and_steps_never_share_a_draw(kind):
    played = play(vectorize(counter(), 3, prng_impl=kind), 5)
    steps = played.steps
    starts = [played.first.obs[:, 1], steps.obs[2, :, 1]]  # the third step opens episodes
    drawn = np.concatenate([*starts, steps.final_obs[..., 2].ravel()])
    assert len(np.unique(drawn)) == len(drawn)


@pytest.mark.parametrize("keys", ["typed", "raw", "threefry"])
def test_keys_of_either_style_are_taken(keys):
    given = {
        "typed": lambda: keys_from(3, 2),
        "raw": lambda: jax.random.split(jax.random.PRNGKey(3), 2),
        "threefry": lambda: jax.random.split(jax.random.key(3), 2),
    }[keys]()
    assert play(vectorize(counter(), 2), 3, keys=given).steps.reward.shape == (3, 2)


def test_a_repeated_action_pays_nothing_after_the_end():
    steps = play(vectorize(counter(), 2, action_repeat=2), 2).steps
    # Rewards are 1, 2, 3, and the third step ends the episode: nothing comes of the fourth.
    assert steps.reward.tolist() == [[3, 3], [3, 3]]
    assert steps.terminated.tolist() == [[False, False], [True, True]]
    assert steps.final_obs[1, :, 0].tolist() == [3, 3]


def primitives(jaxpr):
    """Returns the names of all primitives of a program, those of its parts too."""
    names = set()
    for equation in jaxpr.eqns:
        names.add(equation.primitive.name)
        for value in equation.params.values():
            for each in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(each, "jaxpr", each)
                if hasattr(inner, "eqns"):
                    names |= primitives(inner)
    return names


@pytest.mark.parametrize("source", ["fresh", "cached", "pool"])
def test_resets_of_many_rows_are_chosen_at_once_and_not_row_by_row(source):
    env = vectorize(counter(), 8, reset_source=source)
    state, _ = jax.eval_shape(env.reset, keys_from(0, 8))
    program = jax.make_jaxpr(env.step)(state, jnp.zeros(8, jnp.int32))
    assert not primitives(program.jaxpr) & {"while", "scan"}
    assert "select_n" in primitives(program.jaxpr)


def test_a_branch_on_a_traced_flag_is_refused_with_the_environments_own_error():
    def step(key, state):
        return state + 1 if state < 3 else state

    with pytest.raises(jax.errors.TracerBoolConversionError):
        vectorize(simple(lambda key: 0, step), 2)


@pytest.mark.parametrize("mode", MODES)
def test_infos_of_reset_and_step_are_one_tree(mode):
    env = vectorize(counter(), 2, autoreset_mode=mode)
    state, first = jax.eval_shape(env.reset, keys_from(0, 2))
    _, timestep = jax.eval_shape(env.step, state, jnp.zeros(2, jnp.int32))
    for one, other in ((first.info, timestep.info), (first.reset_info, timestep.reset_info)):
        assert jax.tree.structure(one) == jax.tree.structure(other)
        assert [(x.shape, x.dtype) for x in jax.tree.leaves(one)] == [
            (x.shape, x.dtype) for x in jax.tree.leaves(other)
        ]


def test_automatic_resets_can_be_done_without():
    env = vectorize(counter(), 2, autoreset_mode="Disabled")
    steps = play(env, 6).steps
    assert steps.terminated[2:].all()
    assert steps.obs[2:, :, 0].tolist() == [[3, 3]] * 4
    assert steps.valid.tolist() == [[True] * 2] * 3 + [[False] * 2] * 3


def test_finished_episodes_alone_are_averaged():
    env = jaxvec.wrap(vectorize(counter(), 2), jaxvec.episode_statistics())
    steps = play(env, 7).steps
    done = steps.terminated | steps.truncated
    assert np.unique(steps.info["episode"]["r"][done]).tolist() == [6]  # 1 + 2 + 3
    assert steps.info["episode"]["r"][~done].max() < 6
    assert done.sum() == 4
