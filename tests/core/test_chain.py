"""Chains: the order of layers, the state they share, and what a chain refuses."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.core._episode import episode_statistics
from jaxvec.core._frame_stack import frame_stack
from jaxvec.core._normalize import normalize_observation, normalize_reward
from jaxvec.core._transform import Timestep, Transform, VecSpec, chain, named_chain
from tests.core.table import assert_close, assert_runs_close, make_stream, run_numpy

SPEC = VecSpec(2, spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2), backend="numpy")


class Seen(NamedTuple):
    calls: tuple[Any, ...]


def marker(name: str, log: list[str]) -> Transform:
    """A layer that writes down who is called, scales rewards by 10 and adds its name's number."""
    digit = int(name)

    def init(spec: VecSpec, keys: Any = None) -> Seen:
        log.append(f"init {name} {spec.observation_space.shape}")
        return Seen((keys,))

    def reset(state: Seen, timestep: Timestep, mask: Any = None) -> tuple[Seen, Timestep]:
        log.append(f"reset {name} {mask}")
        return state, timestep

    def update(state: Seen, timestep: Timestep) -> tuple[Seen, Timestep]:
        log.append(f"update {name}")
        return Seen((*state.calls, "update")), timestep._replace(
            reward=timestep.reward * 10 + digit
        )

    def action(state: Seen, action: Any) -> tuple[Seen, Any]:
        log.append(f"action {name}")
        return Seen((*state.calls, "action")), action * 10 + digit

    def spec(spec: VecSpec) -> VecSpec:
        box = spec.observation_space
        return spec._replace(observation_space=spaces.Box(-1, 1, (box.shape[0] + digit,)))

    def end_rollout(state: Seen) -> Seen:
        log.append(f"end_rollout {name}")
        return Seen((*state.calls, "end"))

    return Transform(init, reset, update, action, spec, end_rollout)


def step() -> Timestep:
    no = np.zeros(2, bool)
    return Timestep(np.zeros((2, 3), np.float32), np.zeros(2, np.float32), no, no, ~no, no)


@pytest.mark.parametrize("named", [False, True])
def test_observations_pass_first_to_last_and_actions_last_to_first(named: bool) -> None:
    log: list[str] = []
    one, two = marker("1", log), marker("2", log)
    layers = named_chain(inner=one, outer=two) if named else chain(one, two)
    state = layers.init(SPEC, "keys")
    state, _ = layers.reset(state, step(), None)
    state, _ = layers.reset(state, step(), "mask")
    state, action = layers.action(state, 5)
    state, out = layers.update(state, step())
    state = layers.end_rollout(state)
    assert log == [
        "init 1 (3,)",
        "init 2 (4,)",
        "reset 1 None",
        "reset 2 None",
        "reset 1 mask",
        "reset 2 mask",
        "action 2",
        "action 1",
        "update 1",
        "update 2",
        "end_rollout 1",
        "end_rollout 2",
    ]
    assert action == 521
    assert out.reward.tolist() == [12, 12]
    seen = Seen(("keys", "action", "update", "end"))
    assert state == ({"inner": seen, "outer": seen} if named else (seen, seen))
    assert layers.spec(SPEC).observation_space.shape == (6,)


def test_layers_see_the_space_that_the_layer_below_hands_out() -> None:
    layers = chain(frame_stack(2), normalize_observation())
    state = layers.init(SPEC, None)
    assert state[1].statistics.moments.mean.shape == (6,)
    assert layers.spec(SPEC).observation_space.shape == (6,)


def test_the_order_of_layers_decides_which_rewards_are_summed() -> None:
    stream = make_stream(SPEC.observation_space)
    true = run_numpy(chain(episode_statistics(), normalize_reward()), stream)
    scaled = run_numpy(chain(normalize_reward(), episode_statistics()), stream)
    reward = stream.steps[0].reward
    assert np.array_equal(true.steps[0].info["episode"]["r"], reward)
    assert np.array_equal(scaled.steps[0].info["episode"]["r"], scaled.steps[0].reward)
    assert not np.allclose(scaled.steps[0].reward, reward)


def test_a_chain_of_nothing_changes_nothing() -> None:
    stream = make_stream(SPEC.observation_space)
    run = run_numpy(chain(), stream)
    assert run.state == ()
    assert chain().spec(stream.spec) is stream.spec
    untouched = run._replace(opening=stream.opening, steps=stream.steps, actions=stream.actions)
    assert_runs_close(run, untouched)


def test_a_chain_of_one_is_that_layer() -> None:
    stream = make_stream(SPEC.observation_space)
    alone, chained = run_numpy(frame_stack(2), stream), run_numpy(chain(frame_stack(2)), stream)
    assert_runs_close(chained, alone)
    assert_close(chained.state, (alone.state,))


def test_names_change_the_state_and_nothing_else() -> None:
    stream = make_stream(SPEC.observation_space)
    plain = run_numpy(chain(frame_stack(2), normalize_observation()), stream)
    named = run_numpy(named_chain(b=frame_stack(2), a=normalize_observation()), stream)
    assert_runs_close(named, plain)
    assert list(named.state) == ["b", "a"]
    assert_close((named.state["b"], named.state["a"]), plain.state)


def test_jax_hands_a_named_chains_state_back_in_any_order() -> None:
    import jax

    layers = named_chain(b=frame_stack(2), a=normalize_observation())
    state = jax.tree.map(lambda x: x, layers.init(SPEC._replace(backend="jax"), None))
    assert list(state) == ["a", "b"]
    state, out = layers.update(state, jax.tree.map(jax.numpy.asarray, step()))
    assert out.obs.shape == (2, 6)
    assert list(state) == ["b", "a"]


@pytest.mark.parametrize("wrong", [frame_stack, None, (frame_stack(2),)])
def test_what_is_no_transform_is_refused_at_once(wrong: Any) -> None:
    for build in (lambda: chain(wrong), lambda: named_chain(wrong=wrong)):
        with pytest.raises(TypeError, match="is not a Transform"):
            build()


def test_layers_and_states_of_different_numbers_are_refused() -> None:
    layers = chain(frame_stack(2), normalize_reward())
    state = layers.init(SPEC, None)
    for function in (
        lambda: layers.update(state[:1], step()),
        lambda: layers.action(state[:1], 0),
        lambda: layers.end_rollout(state[:1]),
    ):
        with pytest.raises(ValueError, match="shorter"):
            function()
