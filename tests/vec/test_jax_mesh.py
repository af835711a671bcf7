"""A JaxVecEnv over a mesh of devices: the numbers of one device, and what cannot be spread."""

import textwrap

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxvec import episode_statistics, sticky_action, vectorize, wrap
from jaxvec.envs import device_mesh, make
from jaxvec.vec import (
    JaxVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransform,
    make_vec_env,
)
from tests.processes import run_two_processes
from tests.vec.jax_envs import SPACES, counter, draws, random_actions

pytestmark = pytest.mark.usefixtures("quick_compilation")
N = 8


def layered(venv):
    return VecNormalize(
        VecFrameStack(VecMonitor(VecTransform(venv, sticky_action(0.2), seed=5)), 2)
    )


def cart_poles():
    env = make("CartPole-v1")
    env = env._replace(methods={"pull": lambda state, params: state.vector[0] * params.gravity})
    per_row = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (N, *np.shape(leaf))), env.params)
    return vectorize(env, N, max_episode_steps=12, params=per_row)


def rows_per_device(array):
    return array.sharding.shard_shape(array.shape)[0]


def assert_equal_steps(ours, theirs, steps):
    """Checks that both show the same; what is normalized, to rounding."""
    ended = 0
    near = {"rtol": 1e-5, "atol": 1e-5}
    for actions in steps:
        (obs, rewards, dones, infos), wanted = ours.step(actions), theirs.step(actions)
        np.testing.assert_allclose(obs, wanted[0], **near)
        np.testing.assert_allclose(rewards, wanted[1], **near)
        np.testing.assert_array_equal(dones, wanted[2])
        np.testing.assert_array_equal(ours.get_original_obs(), theirs.get_original_obs())
        for row, (info, expected) in enumerate(zip(infos, wanted[3], strict=True)):
            assert info.keys() == expected.keys()
            if dones[row]:
                assert info["TimeLimit.truncated"] == expected["TimeLimit.truncated"]
                assert info["episode"]["l"] == expected["episode"]["l"]
                final = expected["terminal_observation"]
                np.testing.assert_allclose(info["terminal_observation"], final, **near)
                ended += 1
    return ended


def assert_spread(venv, devices):
    """Checks that each device has its rows of every state, and all of everything else."""
    while True:
        buffers, slots = venv._packed.buffers, venv._packed.layout.slots
        for buffer, slot in ((buffers[slot.buffer], slot) for slot in slots):
            assert slot.spread == (slot.shape[:1] == (N,))
            assert rows_per_device(buffer) == (N // devices if slot.spread else len(buffer))
        if venv is venv.unwrapped:
            break
        venv = venv.venv


@pytest.mark.parametrize("devices", [pytest.param(2, marks=pytest.mark.long), 4])
def test_it_is_the_vec_env_of_one_device_whatever_is_done_with_it(devices):
    ours = layered(JaxVecEnv(cart_poles(), seed=3, mesh=device_mesh(devices)))
    theirs = layered(JaxVecEnv(cart_poles(), seed=3))
    actions = random_actions(ours.action_space, 40, N)
    np.testing.assert_allclose(ours.reset(), theirs.reset(), rtol=1e-5, atol=1e-5)
    ended = assert_equal_steps(ours, theirs, actions[:10])
    for venv in (ours, theirs):
        venv.set_attr("gravity", 3.7, indices=[1, 6])
    assert ours.get_attr("gravity") == theirs.get_attr("gravity")
    ended += assert_equal_steps(ours, theirs, actions[10:20])
    for row in (0, N - 1):
        (one,), (other,) = (venv.get_attr("state", row) for venv in (ours, theirs))
        np.testing.assert_array_equal(one.vector, other.vector)
    for venv in (ours, theirs):
        venv.seed(11)
    some = [venv.reset([0, 5]) for venv in (ours, theirs)]
    np.testing.assert_allclose(*some, rtol=1e-5, atol=1e-5)
    ended += assert_equal_steps(ours, theirs, actions[20:30])
    for venv in (ours, theirs):
        venv.state = venv.state
        venv.obs_rms.mean = venv.obs_rms.mean + 1
        venv.returns = np.arange(N)
    ended += assert_equal_steps(ours, theirs, actions[30:])
    assert ended > N
    for one, other in ((ours.obs_rms, theirs.obs_rms), (ours.ret_rms, theirs.ret_rms)):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(one.var, other.var, rtol=1e-6, atol=1e-6)
        assert one.count == other.count
    np.testing.assert_allclose(ours.returns, theirs.returns, rtol=1e-6)
    assert_spread(ours, devices)


@pytest.mark.parametrize("space", ["dict", pytest.param("tuple", marks=pytest.mark.long)])
def test_any_observation_and_every_kind_of_leaf_is_spread(space):
    env = draws(SPACES[space], methods={"steps": lambda state, params, more: state["steps"] + more})
    options = {"info_keys": ["draw", "at"]}
    ours, theirs = (
        JaxVecEnv(vectorize(env, N), mesh=mesh, **options) for mesh in (device_mesh(2), None)
    )
    for venv in (ours, theirs):
        venv.seed(2)
    assert_same_obs(ours.reset(), theirs.reset())
    assert [each["draw"] for each in ours.reset_infos] == [
        each["draw"] for each in theirs.reset_infos
    ]
    for actions in random_actions(env.action_space, 12, N):
        (obs, rewards, dones, infos), wanted = ours.step(actions), theirs.step(actions)
        assert_same_obs(obs, wanted[0])
        np.testing.assert_array_equal(rewards, wanted[1])
        np.testing.assert_array_equal(dones, wanted[2])
        for info, expected in zip(infos, wanted[3], strict=True):
            assert info["draw"] == expected["draw"]
            assert info["at"]["step"] == expected["at"]["step"]
    rewards[:] = 0  # the caller may write into what it got
    assert ours.env_method("steps", 2) == theirs.env_method("steps", 2)
    assert [each["steps"] for each in ours.get_attr("state")] == [
        each["steps"] for each in theirs.get_attr("state")
    ]


def assert_same_obs(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_options_of_a_reset_reach_their_rows():
    env = counter()
    ours, theirs = (JaxVecEnv(vectorize(env, N), mesh=mesh) for mesh in (device_mesh(4), None))
    for venv in (ours, theirs):
        venv.set_options([{"start": row % 3} if row % 2 else {} for row in range(N)])
    np.testing.assert_array_equal(ours.reset(), theirs.reset())


def test_arrays_of_jax_stay_on_their_devices():
    venv = VecFrameStack(JaxVecEnv(cart_poles(), output="jax", mesh=device_mesh(4)), 2)
    obs = venv.reset()
    for _ in range(3):
        actions = jax.jit(lambda obs: (obs[:, 0] > 0).astype(int))(obs)
        obs, rewards, dones, _ = venv.step(actions)
        for each in (obs, rewards, dones):
            assert rows_per_device(each) == N // 4
    again = venv.reset([0])
    np.testing.assert_array_equal(again[1:], obs[1:])


def test_rows_are_spread_over_all_axes_of_whatever_mesh():
    env = vectorize(counter(), N)
    for mesh in (
        jax.make_mesh((2, 2), ("seed", "env")),
        Mesh(np.array(jax.devices()[::-1]).reshape(2, 2), ("a", "b")),
    ):
        ours, theirs = (JaxVecEnv(env, mesh=each) for each in (mesh, None))
        np.testing.assert_array_equal(ours.reset(), theirs.reset())
        for actions in random_actions(ours.action_space, 3, N):
            np.testing.assert_array_equal(ours.step(actions)[0], theirs.step(actions)[0])
        assert {rows_per_device(each) for each in ours._packed.buffers} >= {N // 4}


def test_make_vec_env_takes_a_mesh():
    ours, theirs = (
        make_vec_env(counter(), N, seed=1, backend="jax", vec_env_kwargs=options)
        for options in ({"mesh": device_mesh(2)}, {})
    )
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for actions in random_actions(ours.action_space, 5, N):
        np.testing.assert_array_equal(ours.step(actions)[0], theirs.step(actions)[0])
    assert {rows_per_device(each) for each in ours.unwrapped._packed.buffers} >= {N // 2}


def test_layers_inside_the_environment_are_spread_too():
    env = wrap(vectorize(counter(), N), episode_statistics())
    ours, theirs = (
        JaxVecEnv(env, info_keys=["episode"], mesh=mesh) for mesh in (device_mesh(4), None)
    )
    for venv in (ours, theirs):
        venv.reset()
    ended = 0
    for actions in random_actions(ours.action_space, 25, N):
        for info, wanted in zip(ours.step(actions)[3], theirs.step(actions)[3], strict=True):
            assert info.get("episode") == wanted.get("episode")
            ended += "episode" in info
    assert ended


def test_it_compiles_each_function_once():
    compiled = []

    def listen(event, duration, **details):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    venv = layered(JaxVecEnv(cart_poles(), mesh=device_mesh(4)))
    actions = random_actions(venv.action_space, 6, N)
    for _ in range(2):
        venv.reset()
        venv.step(actions[0])
        venv.set_attr("gravity", 9.0)
        venv.reset([3])
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for each in actions:
            venv.step(each)
            venv.set_attr("gravity", 8.0)
            venv.reset([1])
            venv.reset()
            venv.state = venv.state
            venv.obs_rms.mean = venv.obs_rms.mean
    finally:
        jax.monitoring.clear_event_listeners()
    assert not compiled


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"mesh": "all"}, TypeError, "JaxVecEnv: mesh is of type str.*device_mesh"),
        (
            {"mesh": 3},
            ValueError,
            "JaxVecEnv: 8 environments do not divide among 3 devices.*6 or 9",
        ),
        ({"mesh": 2, "output": "torch"}, ValueError, "output='torch'.*2 device.*'numpy' or 'jax'"),
        ({"process_local": True}, ValueError, "process_local=True.*mesh=None.*device_mesh"),
    ],
)
def test_what_cannot_be_spread_is_refused_before_anything_runs(options, error, words):
    if isinstance(options.get("mesh"), int):
        options = {**options, "mesh": device_mesh(options["mesh"])}
    pytest.importorskip("torch")
    with pytest.raises(error, match=words):
        JaxVecEnv(cart_poles(), **options)


PROCESS = textwrap.dedent(
    """
    import pytest

    from jaxvec.envs import device_mesh
    from jaxvec.vec import JaxVecEnv
    from tests.vec.test_jax_mesh import N, cart_poles, layered, scripted_run

    mesh = device_mesh(4)
    with pytest.raises(ValueError, match="2 of the mesh's 4 devices belong to other.*process_local=True"):
        JaxVecEnv(cart_poles(), mesh=mesh)
    venv = layered(JaxVecEnv(cart_poles(), seed=3, mesh=mesh, process_local=True))
    with pytest.raises(ValueError, match="set_options.*all processes"):
        venv.set_options({"low": 0.0})
    assert venv.num_envs == N // 2
    np.savez(sys.argv[3], **scripted_run(venv, slice(number * N // 2, (number + 1) * N // 2)))

    on_device = JaxVecEnv(cart_poles(), mesh=mesh, process_local=True, output="jax")
    obs = on_device.reset()
    assert obs.shape == (N // 2, 4) and obs.is_fully_addressable
    assert obs.sharding.shard_shape(obs.shape) == (N // 4, 4)
    """
)


def scripted_run(venv, rows):
    """Does with some of the N rows all that a VecEnv can do, and returns what was seen of them."""
    numbers = list(range(N))[rows]

    def own(*some):
        return [numbers.index(row) for row in some if row in numbers]

    seen = {"obs": [venv.reset()], "rewards": [], "dones": [], "final": []}
    for turn, actions in enumerate(random_actions(venv.action_space, 40, N)):
        obs, rewards, dones, infos = venv.step(actions[rows])
        seen["obs"].append(obs)
        seen["rewards"].append(rewards)
        seen["dones"].append(dones)
        nothing = np.zeros_like(obs[0])
        seen["final"].append([info.get("terminal_observation", nothing) for info in infos])
        if turn == 10:
            venv.set_attr("gravity", 3.7, indices=own(1, 6))
        elif turn == 20:
            venv.seed(11)
            seen["obs"].append(venv.reset(own(0, 1)))  # the second process has none of them
        elif turn == 30:
            venv.state = venv.state
            venv.obs_rms.mean = venv.obs_rms.mean + 1
            seen["obs"].append(venv.reset())
    state = venv.get_attr("state")
    return {
        **{name: np.swapaxes(columns, 0, 1) for name, columns in seen.items()},
        "vector": np.stack([each.vector for each in state]),
        "gravity": venv.get_attr("gravity"),
        "pull": venv.env_method("pull"),
        "raw": venv.get_original_obs(),
        "returns": venv.returns,
        "mean": venv.obs_rms.mean,
        "var": venv.obs_rms.var,
        "count": venv.obs_rms.count,
    }


@pytest.mark.long
def test_two_processes_step_their_own_rows_and_learn_from_all(tmp_path):
    found = run_two_processes(PROCESS, tmp_path)
    wanted = scripted_run(layered(JaxVecEnv(cart_poles(), seed=3)), slice(0, N))
    for name, expected in wanted.items():
        parts = [each[name] for each in found]
        if name in ("mean", "var", "count"):
            np.testing.assert_array_equal(*parts)
            np.testing.assert_allclose(parts[0], expected, rtol=1e-6, atol=1e-6)
            continue
        whole = np.concatenate(parts)
        if name in ("dones", "vector", "gravity", "pull", "raw"):
            np.testing.assert_array_equal(whole, expected, err_msg=name)
        else:
            np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-5, err_msg=name)
    assert wanted["dones"].sum() > N
