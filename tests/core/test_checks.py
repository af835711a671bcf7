"""NaN and infinity are flagged in the row they are in, and named at the host's edge."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.core._checks import check_finite, raise_if_not_finite
from jaxvec.core._transform import Timestep, VecSpec

BACKENDS = ("numpy", "jax")
N = 3
NAN, INF = np.nan, np.inf
VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)


def put(tree, backend):
    return tree if backend == "numpy" else jax.tree.map(jnp.asarray, tree)


def vectors(row=None, value=0.0):
    """Returns zeros `[N, 2]` with one value in the second column of a row."""
    x = np.zeros((N, 2), np.float32)
    if row is not None:
        x[row, 1] = value
    return x


def timestep(backend, obs=None, reward=(0, 0, 0), final=None, ended=(), first=(), info=None):
    """Returns a step; NumPy holds the final observations of the ended rows only."""
    flags = np.isin(np.arange(N), ended)
    rows = None
    if backend == "numpy" and final is not None:
        rows = np.array(ended, int)
        final = jax.tree.map(lambda x: x[rows], final)
    step = Timestep(
        obs=vectors() if obs is None else obs,
        reward=np.array(reward, np.float32),
        terminated=flags,
        truncated=np.zeros(N, bool),
        valid=np.ones(N, bool),
        first=np.isin(np.arange(N), first),
        final_obs=final,
        info={} if info is None else info,
    )
    return put(step, backend)._replace(final_rows=rows)


def flags_of(layer, backend, step, action=None):
    """Returns the rows that a layer flags, by column."""
    state = layer.init(VecSpec(N, VECTOR, VECTOR, backend=backend), None)
    if action is not None:
        given = put(action, backend)
        state, sent = layer.action(state, given)
        assert sent is given
    state, out = layer.update(state, step)
    found = out.info["non_finite"]
    assert list(found) == ["action", "obs", "reward"]
    for flag in found.values():
        assert flag.shape == (N,)
        assert flag.dtype == bool
        assert isinstance(flag, np.ndarray) == (backend == "numpy")
    assert out._replace(info=None) == step._replace(info=None)
    return {name: np.flatnonzero(flag).tolist() for name, flag in found.items()}


@pytest.mark.parametrize("backend", BACKENDS)
class TestFlags:
    def test_nothing_is_flagged_where_all_is_finite(self, backend):
        found = flags_of(check_finite(), backend, timestep(backend), vectors())
        assert found == {"obs": [], "reward": [], "action": []}

    @pytest.mark.parametrize("value", [NAN, INF, -INF])
    def test_each_kind_of_value_is_flagged_in_its_row(self, backend, value):
        step = timestep(backend, vectors(1, value), [0, 0, value])
        found = flags_of(check_finite(), backend, step, vectors(0, value))
        assert found == {"obs": [1], "reward": [2], "action": [0]}
        found = flags_of(check_finite(check_inf=False), backend, step, vectors(0, value))
        if np.isnan(value):
            assert found == {"obs": [1], "reward": [2], "action": [0]}
        else:
            assert found == {"obs": [], "reward": [], "action": []}

    def test_parts_of_whole_numbers_are_passed_over_and_others_found(self, backend):
        obs = {
            "image": np.full((N, 4, 4, 1), 255, np.uint8),
            "pair": (np.array([1, 2, 3]), vectors(2, NAN)),
            "scalar": np.array([0, INF, 0], np.float32),
        }
        assert flags_of(check_finite(), backend, timestep(backend, obs))["obs"] == [1, 2]
        whole = {"image": obs["image"], "flag": np.zeros((N, 2), bool)}
        step = timestep(backend, whole, final=whole, ended=[0])
        found = flags_of(check_finite(), backend, step, np.array([0, 1, 2]))
        assert found == {"obs": [], "reward": [], "action": []}

    def test_half_precision_is_scanned_too(self, backend):
        obs = vectors(1, NAN).astype(np.float16)
        assert flags_of(check_finite(), backend, timestep(backend, obs))["obs"] == [1]
        if backend == "jax":
            step = timestep(backend)._replace(obs=jnp.asarray(obs, jnp.bfloat16))
            assert flags_of(check_finite(), backend, step)["obs"] == [1]

    def test_the_last_observation_of_an_ended_row_counts(self, backend):
        final = vectors(2, NAN)
        step = timestep(backend, final=final, ended=[0, 2])
        assert flags_of(check_finite(), backend, step)["obs"] == [2]

    def test_a_dense_final_observation_of_a_row_that_goes_on_does_not_count(self, backend):
        step = timestep(backend, final=vectors(1, NAN), ended=[0])
        assert flags_of(check_finite(), backend, step)["obs"] == []

    def test_a_dict_of_actions_is_scanned(self, backend):
        action = {"a": np.array([0, 1, 2]), "b": vectors(2, INF)}
        assert flags_of(check_finite(), backend, timestep(backend), action)["action"] == [2]

    def test_an_action_is_reported_until_the_next_one_and_forgotten_by_a_reset(self, backend):
        layer = check_finite()
        state = layer.init(VecSpec(N, VECTOR, VECTOR, backend=backend), None)
        bad, step = put(vectors(1, NAN), backend), timestep(backend)
        state, _ = layer.action(state, bad)
        again, out = layer.update(state, step)
        assert np.asarray(out.info["non_finite"]["action"]).tolist() == [False, True, False]
        fine, _ = layer.action(again, put(vectors(), backend))
        assert not np.asarray(layer.update(fine, step)[1].info["non_finite"]["action"]).any()
        other, _ = layer.reset(again, step, put(np.array([True, False, False]), backend))
        assert np.asarray(other.action).tolist() == [False, True, False]
        same, _ = layer.reset(again, step, put(np.array([False, True, False]), backend))
        assert not np.asarray(same.action).any()
        everywhere, out = layer.reset(again, step, None)
        assert not np.asarray(everywhere.action).any()
        assert not np.asarray(out.info["non_finite"]["action"]).any()

    def test_a_reset_reports_the_same_columns_and_a_partial_one_its_own_rows_only(self, backend):
        layer = check_finite()
        state = layer.init(VecSpec(N, VECTOR, VECTOR, backend=backend), None)
        obs = vectors(1, NAN)
        obs[2] = INF
        step = timestep(backend, obs)
        _, out = layer.reset(state, step, None)
        assert np.asarray(out.info["non_finite"]["obs"]).tolist() == [False, True, True]
        _, out = layer.reset(state, step, put(np.array([True, True, False]), backend))
        assert np.asarray(out.info["non_finite"]["obs"]).tolist() == [False, True, False]
        _, updated = layer.update(state, step)
        assert jax.tree.structure(updated.info) == jax.tree.structure(out.info)

    def test_the_info_below_is_kept_and_not_written_to(self, backend):
        info = {"x": np.arange(N)}
        step = timestep(backend, info=info)
        layer = check_finite()
        state = layer.init(VecSpec(N, VECTOR, VECTOR, backend=backend), None)
        _, out = layer.update(state, step)
        assert set(step.info) == {"x"}
        assert set(out.info) == {"x", "non_finite"}


def checked(backend, step, action=None):
    layer = check_finite()
    state = layer.init(VecSpec(N, VECTOR, VECTOR, backend=backend), None)
    if action is not None:
        state, _ = layer.action(state, put(action, backend))
    return layer.update(state, step)[1]


@pytest.mark.parametrize("backend", BACKENDS)
class TestRaise:
    def test_finite_steps_pass(self, backend):
        raise_if_not_finite(checked(backend, timestep(backend), vectors()))

    def test_row_name_place_and_value_are_told(self, backend):
        obs = {"pair": (np.arange(N), vectors(1, -INF))}
        step = checked(backend, timestep(backend, obs))
        with pytest.raises(ValueError, match=r"in row 1, obs\['pair'\]\[1\]\[1\] is -inf \(1 row"):
            raise_if_not_finite(step)
        step = checked(backend, timestep(backend, reward=[0, 0, NAN]), vectors(2, INF))
        with pytest.raises(ValueError, match=r"in row 2, action .* and reward is nan"):
            raise_if_not_finite(step)
        with pytest.raises(ValueError, match=r"action\[1\] is inf and .*action was \[0.0, inf\]"):
            raise_if_not_finite(step, vectors(2, INF))

    def test_the_last_observation_of_an_episode_is_named(self, backend):
        step = checked(backend, timestep(backend, final=vectors(2, NAN), ended=[0, 2]))
        with pytest.raises(ValueError, match=r"in row 2, final_obs\[1\] is nan"):
            raise_if_not_finite(step)

    def test_a_value_that_a_layer_above_has_changed_is_said_to_be_gone(self, backend):
        step = checked(backend, timestep(backend, vectors(0, NAN)))
        step = step._replace(obs=put(vectors(), backend))
        with pytest.raises(ValueError, match=r"in row 0, obs was not finite when check_finite saw"):
            raise_if_not_finite(step)

    def test_a_step_without_flags_is_refused(self, backend):
        with pytest.raises(ValueError, match="put check_finite"):
            raise_if_not_finite(timestep(backend))


def test_the_earliest_step_of_a_rollout_is_named():
    layer = check_finite()
    state = layer.init(VecSpec(N, VECTOR, VECTOR, backend="jax"), None)
    steps = [timestep("jax", vectors(row, value)) for row, value in ((0, 0), (2, INF), (1, NAN))]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
    _, out = jax.jit(lambda s, x: jax.lax.scan(layer.update, s, x))(state, stacked)
    with pytest.raises(ValueError, match=r"in row 2 of step 1, obs\[1\] is inf \(2 rows"):
        raise_if_not_finite(out)


@pytest.mark.parametrize("backend", ["numpy", "jax"])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_actions_for_another_number_of_environments_are_refused(backend, shape):
    layer = check_finite()
    spec = VecSpec(4, spaces.Box(0, 1, (2,)), spaces.Box(0, 1, ()), backend=backend)
    with pytest.raises(ValueError, match=r"check_finite: the actions have shape .*pass \[4, ...\]"):
        layer.action(layer.init(spec, None), np.zeros(shape, np.float32))
