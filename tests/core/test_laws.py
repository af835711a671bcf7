"""The laws that every transform obeys, over the table of all transforms and all kinds of spaces."""

import copy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxvec.core._episode import episode_statistics
from jaxvec.core._normalize import normalize_reward
from jaxvec.core._transform import chain
from jaxvec.io import load, save
from tests.core.table import (
    CASES,
    COMPILED_CASES,
    NUM_ENVS,
    ONE_CASE_EACH,
    REFUSED_CASES,
    TRANSFORMS,
    Run,
    Stream,
    as_run,
    assert_close,
    assert_runs_close,
    at,
    contains,
    jax_spec,
    on_device,
    permuted,
    run_numpy,
    scan_function,
    scan_inputs,
    stacked,
    stream_of,
)

over_all = pytest.mark.parametrize(("name", "space"), CASES)


def over(quick: list[tuple[str, str]]) -> Any:
    """Runs a law on all cases, but in the quick run on some: compiling takes long."""
    return pytest.mark.parametrize(
        ("name", "space"),
        [pytest.param(*case, marks=() if case in quick else pytest.mark.long) for case in CASES],
    )


# Layers that do not look at observations are compiled over one kind of them, or two.
over_compiled = over(COMPILED_CASES)
# What depends little on the space runs on one of each transform here, and on the others in the full run.
over_one = over(ONE_CASE_EACH)
TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}  # float64 statistics against pairs of float32


def tolerance(name: str) -> dict[str, float]:
    """Sums over rows depend on their order; all else is exact."""
    return TOLERANCE if TRANSFORMS[name].mixes_rows else {}


@cache
def compiled_scan(name: str, space: str) -> Any:
    stream = stream_of(name, space)
    return jax.jit(scan_function(TRANSFORMS[name].make(), stream.spec))


@cache
def scanned(name: str, space: str) -> Run:
    return as_run(compiled_scan(name, space)(*on_device(scan_inputs(stream_of(name, space)))))


@cache
def on_host(name: str, space: str) -> Run:
    return run_numpy(TRANSFORMS[name].make(), stream_of(name, space))


def avals(function: Callable[..., tuple[Any, Any]], *inputs: Any) -> list[Any]:
    """Returns structure, shapes, dtypes and weak types of the state that a function returns."""
    leaves, structure = jax.tree.flatten(jax.eval_shape(function, *inputs)[0])
    return [structure, [(leaf.shape, leaf.dtype, leaf.weak_type) for leaf in leaves]]


def as_jax_holds_it(run: Run) -> Run:
    """A host run in the dtypes that JAX has without x64 (flattened Discrete spaces are int64)."""
    return jax.tree.map(lambda x: x.astype(jax.dtypes.canonicalize_dtype(x.dtype)), run)


@over_compiled
def test_numpy_equals_compiled_jax(name: str, space: str) -> None:
    host = as_jax_holds_it(on_host(name, space))
    assert_runs_close(host, scanned(name, space), **TOLERANCE)


@over_all
def test_sparse_and_dense_final_rows_agree(name: str, space: str) -> None:
    dense = run_numpy(TRANSFORMS[name].make(), stream_of(name, space), dense=True)
    assert_runs_close(on_host(name, space), dense)
    assert any(step.final_rows is not None for step in on_host(name, space).steps)


@over_compiled
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_numpy_equals_compiled_jax_in_every_autoreset_mode(
    name: str, space: str, mode: AutoresetMode
) -> None:
    stream = stream_of(name, space, mode=mode, seed=1)
    got = as_run(compiled_scan(name, space)(*on_device(scan_inputs(stream))))
    host = as_jax_holds_it(run_numpy(TRANSFORMS[name].make(), stream))
    assert_runs_close(host, got, **TOLERANCE)


@over_one
def test_a_loop_equals_a_scan_and_compiles_once(name: str, space: str) -> None:
    transform, stream = TRANSFORMS[name].make(), stream_of(name, space)
    traces = {"reset": 0, "update": 0, "action": 0}

    def counted(function: str) -> Any:
        def call(*args: Any) -> Any:
            traces[function] += 1
            return getattr(transform, function)(*args)

        return jax.jit(call)

    reset, update, act = map(counted, traces)
    state = transform.init(jax_spec(stream.spec), on_device(stream.keys))
    steps, actions = [], []
    state, opening = reset(state, on_device(stream.opening), None)
    for timestep, action in zip(stream.steps, stream.actions, strict=True):
        state, action = act(state, on_device(action))
        state, timestep = update(state, on_device(timestep))
        steps.append(at(timestep, ...))
        actions.append(at(action, ...))
    assert traces == {"reset": 1, "update": 1, "action": 1}
    got = Run(state, at(opening, ...), steps, actions)
    assert_runs_close(got, scanned(name, space), **TOLERANCE)


@over_all
def test_the_avals_of_a_state_never_change(name: str, space: str) -> None:
    transform, stream = TRANSFORMS[name].make(), stream_of(name, space)
    state = transform.init(jax_spec(stream.spec), on_device(stream.keys))
    wanted = avals(lambda: (state, None))
    timestep, action = on_device((stream.steps[0], stream.actions[0]))
    mask = on_device(np.ones(NUM_ENVS, bool))
    for function, inputs in [
        (transform.reset, (timestep, None)),
        (transform.reset, (timestep, mask)),
        (transform.update, (timestep,)),
        (transform.action, (action,)),
        (lambda state: (transform.end_rollout(state), None), ()),
    ]:
        assert avals(function, state, *inputs) == wanted, function


@over_all
def test_nothing_is_written_into_what_was_passed_in(name: str, space: str) -> None:
    transform, stream = TRANSFORMS[name].make(), stream_of(name, space)
    rows = tuple({"object": [i]} for i in range(NUM_ENVS))
    stream = stream._replace(
        opening=stream.opening._replace(rows=rows),
        steps=[step._replace(rows=rows) for step in stream.steps],
    )
    stream = jax.tree.map(lambda x: _frozen(x) if isinstance(x, np.ndarray) else x, stream)
    before = copy.deepcopy(stream)
    run_numpy(transform, stream, dense=True)  # a write into a frozen array raises
    run_numpy(transform, stream)
    _assert_identical(stream, before)
    state = transform.init(stream.spec, stream.keys)
    for timestep, action in zip(stream.steps, stream.actions, strict=True):
        state = jax.tree.map(_frozen, state)
        state, _ = transform.action(state, action)
        state = jax.tree.map(_frozen, state)
        state, out = transform.update(state, timestep)
        assert out.rows is timestep.rows


@over_all
def test_equal_arguments_give_equal_results(name: str, space: str) -> None:
    transform, stream = TRANSFORMS[name].make(), stream_of(name, space)
    run_numpy(transform, stream)  # a transform that remembers anything itself would differ now
    again = run_numpy(transform, stream)
    assert_runs_close(again, on_host(name, space))
    assert_close(again.state, on_host(name, space).state)


@over_compiled
def test_permuted_rows_give_permuted_results(name: str, space: str) -> None:
    order = np.random.default_rng(3).permutation(NUM_ENVS)
    keys, opening, steps, actions = scan_inputs(stream_of(name, space))
    shuffled = (
        permuted(keys, order),
        permuted(opening, order),
        permuted(steps, order, 1),
        permuted(actions, order, 1),
    )
    got = as_run(compiled_scan(name, space)(*on_device(shuffled)))
    want = scanned(name, space)
    want = Run(
        want.state,
        permuted(want.opening, order),
        [permuted(step, order) for step in want.steps],
        [permuted(action, order) for action in want.actions],
    )
    assert_runs_close(got, want, **tolerance(name))


@over_one
def test_vmap_over_seeds_equals_a_loop_over_seeds(name: str, space: str) -> None:
    streams = [stream_of(name, space, seed=seed) for seed in (0, 1)]
    batched = on_device(stacked([scan_inputs(stream) for stream in streams]))
    function = scan_function(TRANSFORMS[name].make(), streams[0].spec)
    got = jax.jit(jax.vmap(function))(*batched)
    for seed, stream in enumerate(streams):
        want = as_run(compiled_scan(name, space)(*on_device(scan_inputs(stream))))
        assert_runs_close(as_run(at(got, seed)), want, **TOLERANCE)


@over_one
def test_rows_on_two_devices_equal_rows_on_one(name: str, space: str) -> None:
    inputs = scan_inputs(stream_of(name, space))
    outputs = compiled_scan(name, space)(*on_two_devices(inputs))
    assert_runs_close(as_run(outputs), scanned(name, space), **tolerance(name))
    assert len(outputs[2].reward.sharding.device_set) == 2


@over_all
def test_the_spec_holds_what_is_produced(name: str, space: str) -> None:
    stream, run = stream_of(name, space), on_host(name, space)
    spec = TRANSFORMS[name].make().spec(stream.spec)
    assert spec.num_envs == stream.spec.num_envs
    for timestep in (run.opening, *run.steps):
        contains(spec.observation_space, timestep.obs)
        if timestep.final_obs is not None:
            contains(spec.observation_space, timestep.final_obs)
        assert timestep.reward.dtype == np.float32


@over_all
def test_what_it_does_not_own_passes_untouched(name: str, space: str) -> None:
    stream = stream_of(name, space)
    run = run_numpy(TRANSFORMS[name].make(), stream)
    for before, after in zip(stream.steps, run.steps, strict=True):
        for field in ("terminated", "truncated", "valid", "first"):
            assert getattr(after, field) is getattr(before, field)
        assert after.info["score"] is before.info["score"]
        assert after.reset_info["score"] is before.reset_info["score"]


@over_compiled
@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_a_state_is_saved_and_loaded_to_the_last_bit(
    name: str, space: str, backend: str, tmp_path: Path
) -> None:
    transform, stream = TRANSFORMS[name].make(), stream_of(name, space)
    run = on_host(name, space) if backend == "numpy" else scanned(name, space)
    save(tmp_path / "state.npz", run.state)
    spec = stream.spec._replace(backend=backend)
    keys = stream.keys if backend == "numpy" else on_device(stream.keys)
    loaded = load(tmp_path / "state.npz", transform.init(spec, keys))
    assert jax.tree.structure(loaded) == jax.tree.structure(run.state)
    for mine, theirs in zip(jax.tree.leaves(loaded), jax.tree.leaves(run.state), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


@over_all
def test_chain_is_associative(name: str, space: str) -> None:
    a, b, c = episode_statistics(), TRANSFORMS[name].make(), normalize_reward()
    stream = stream_of(name, space)
    flat, left, right = (
        run_numpy(each, stream)
        for each in (chain(a, b, c), chain(chain(a, b), c), chain(a, chain(b, c)))
    )
    for other in (left, right):
        assert_runs_close(other, flat)
        assert_close(tuple(jax.tree.leaves(other.state)), tuple(jax.tree.leaves(flat.state)))


@pytest.mark.parametrize(("name", "space"), REFUSED_CASES)
@pytest.mark.parametrize("function", ["init", "spec"])
def test_a_space_that_a_layer_cannot_be_put_on_is_refused_by_name_before_the_first_step(
    name: str, space: str, function: str
) -> None:
    entry, stream = TRANSFORMS[name], stream_of(name, space)
    arguments = (stream.keys,) if function == "init" else ()
    layer = getattr(entry.make, "func", entry.make).__name__
    with pytest.raises((ValueError, TypeError), match=f"^{layer}: ") as caught:
        getattr(entry.make(), function)(stream.spec, *arguments)
    # It names what came, or what there is to choose among.
    whole = str(stream.spec.observation_space)
    assert whole in str(caught.value) or "choose among" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in TRANSFORMS if name.endswith("_rollout")])
def test_updates_per_rollout_put_no_collective_into_the_loop(name: str) -> None:
    stream = stream_of(name, "box")
    sharded = on_two_devices(scan_inputs(stream))
    function = jax.jit(scan_function(TRANSFORMS[name].make(), stream.spec))
    text = function.lower(*sharded).compile().as_text()
    assert _collectives_in_loops(text) == []
    every_step = jax.jit(scan_function(TRANSFORMS["chain"].make(), stream.spec))
    assert _collectives_in_loops(every_step.lower(*sharded).compile().as_text()) != []


def on_two_devices(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Shards the rows of a scan's inputs, as plain `jit` wants it: the compiler adds what is needed."""
    devices = np.array(jax.devices("cpu")[:2])
    mesh = Mesh(devices, ("env",))
    row, step = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("env",), (None, "env")))
    placed: tuple[Any, ...] = jax.device_put(inputs, (row, row, step, step))
    return placed


def _collectives_in_loops(hlo: str) -> list[str]:
    """Returns the lines with a collective in the computations that loops call, of compiled text."""
    computations: dict[str, list[str]] = {}
    current: list[str] = []
    for line in hlo.splitlines():
        if line.endswith("{") and "->" in line:
            current = computations.setdefault(line.removeprefix("ENTRY ").split()[0].strip("%"), [])
        current.append(line)
    bodies = {
        word.split("=")[1].strip("%,")
        for lines in computations.values()
        for line in lines
        for word in line.split()
        if word.startswith("body=")
    }
    assert bodies, "no loop found: the test reads the text wrongly"
    kinds = ("all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter")
    return [
        line
        for body in bodies
        for line in computations[body]
        if any(kind in line for kind in kinds)
    ]


def _frozen(x: Any) -> np.ndarray:
    array = np.array(x)
    array.flags.writeable = False
    return array


def _assert_identical(got: Stream, want: Stream) -> None:
    for mine, theirs in zip([got.opening, *got.steps], [want.opening, *want.steps], strict=True):
        assert mine.rows == theirs.rows
        assert list(mine.info) == list(theirs.info)
        assert list(mine.reset_info) == list(theirs.reset_info)
        assert_close(mine._replace(rows=None), theirs._replace(rows=None))
