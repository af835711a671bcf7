"""Layers above a JaxVecEnv: one compiled call, equal to the same layers on NumPy and to a pure rollout."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import jaxvec
from jaxvec import scale_reward, sticky_action, vectorize, wrap
from jaxvec.core._transform import Transform, stateless
from jaxvec.envs import Carry, make, rollout
from jaxvec.errors import NotPendingError
from jaxvec.random import keys_from_seeds, row_words_from_seeds
from jaxvec.vec import (
    DummyVecEnv,
    JaxVecEnv,
    RunningMeanStd,
    VecCheckNan,
    VecEnvWrapper,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransform,
    VecTransposeImage,
    sync_envs_normalization,
)
from jaxvec.vec._call import Call
from tests.envs.toys import TRUNCATE, assert_same
from tests.vec.jax_envs import LIMIT, SPACES, counter, draws, random_actions, twins

N = 4


def layered(venv):
    return VecNormalize(VecFrameStack(VecMonitor(venv), 4))


@pytest.fixture(scope="module")
def cart_poles():
    return vectorize(make("CartPole-v1"), N)


class Compiled:
    """Counts the programs that XLA compiles, and the calls of compiled steps."""

    def __init__(self, monkeypatch):
        self.programs = self.calls = 0
        original = Call.__call__

        def counting(call, *arguments):
            self.calls += 1
            return original(call, *arguments)

        monkeypatch.setattr(Call, "__call__", counting)
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event, duration, **details):
        self.programs += event == "/jax/core/compile/backend_compile_duration"

    def since(self):
        """Returns programs and calls since this was asked last."""
        counted, self.programs, self.calls = (self.programs, self.calls), 0, 0
        return counted


@pytest.fixture
def compiled(monkeypatch):
    counter = Compiled(monkeypatch)
    yield counter
    jax.monitoring.clear_event_listeners()


def test_three_layers_are_one_compiled_call_and_one_program(cart_poles, compiled):
    venv = layered(JaxVecEnv(cart_poles))
    compiled.since()
    venv.reset()
    assert compiled.since() == (1, 1)
    actions = random_actions(venv.action_space, 40, N)
    venv.step(actions[0])
    assert compiled.since() == (1, 1)
    for each in actions:
        assert len(venv.step(each)[3]) == N
    assert compiled.since() == (0, 40)


def test_switches_seeds_and_resets_compile_nothing_again(cart_poles, compiled):
    venv = layered(JaxVecEnv(cart_poles))
    actions = random_actions(venv.action_space, 8, N)
    for _ in range(2):
        venv.reset()
        venv.step(actions[0])
    assert len((venv.obs_rms.mean, venv.state)) == 2  # whatever is read
    compiled.since()
    for turn, each in enumerate(actions):
        venv.training = turn % 2 == 0
        venv.norm_reward = turn % 3 == 0
        venv.step(each)
        venv.seed(turn)
        venv.reset()
        venv.ret_rms.var = 2.0 + turn
        venv.state = venv.state
        sync_envs_normalization(venv, venv)
    assert compiled.since() == (0, 16)


def test_it_equals_the_same_layers_on_numpy_for_two_thousand_steps(cart_poles):
    num_steps = 2000
    ours = layered(JaxVecEnv(cart_poles))
    theirs = layered(DummyVecEnv(twins(make("CartPole-v1"), N)))
    theirs.seed(0)
    near = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(ours.reset(), theirs.reset(), **near)
    ended = 0
    for actions in random_actions(ours.action_space, num_steps, N):
        (obs, rewards, dones, infos), expected = ours.step(actions), theirs.step(actions)
        np.testing.assert_allclose(obs, expected[0], **near)
        np.testing.assert_allclose(rewards, expected[1], **near)
        np.testing.assert_array_equal(dones, expected[2])
        for row, (info, wanted) in enumerate(zip(infos, expected[3], strict=True)):
            assert info.keys() == wanted.keys()
            assert info["TimeLimit.truncated"] == wanted["TimeLimit.truncated"]
            if dones[row]:
                final = wanted["terminal_observation"]
                np.testing.assert_allclose(info["terminal_observation"], final, **near)
                assert [info["episode"][key] for key in "rl"] == [
                    wanted["episode"][key] for key in "rl"
                ]
                ended += 1
        np.testing.assert_array_equal(ours.get_original_obs(), theirs.get_original_obs())
        np.testing.assert_array_equal(ours.get_original_reward(), theirs.get_original_reward())
    assert ended > 300
    for one, other in ((ours.obs_rms, theirs.obs_rms), (ours.ret_rms, theirs.ret_rms)):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(one.var, other.var, rtol=1e-5)
        assert one.count == pytest.approx(other.count, rel=1e-14)
    np.testing.assert_allclose(ours.returns, theirs.returns, rtol=1e-5)


def test_it_equals_a_pure_rollout_of_the_same_chain_to_the_last_bit(cart_poles):
    venv = layered(JaxVecEnv(cart_poles))
    actions = random_actions(venv.action_space, 500, N)
    first = venv.reset()
    steps = [venv.step(each)[:3] for each in actions]
    layers = venv.venv.venv.transform, venv.venv.transform, venv.transform
    pure = wrap(cart_poles, *layers)
    state, timestep = jax.jit(pure.reset)(keys_from_seeds(np.arange(N)))
    np.testing.assert_array_equal(first, timestep.obs)
    script = jnp.asarray(actions, jnp.int32)
    policy = jaxvec.Policy(
        lambda key, spec: jnp.int32(0), lambda at, key, obs, first: (at + 1, script[at])
    )
    start = Carry(state, timestep.obs, timestep.first, jnp.int32(0), jax.random.key(0))
    _, (_, _, timesteps) = rollout(pure, policy, jax.random.key(0), len(actions), start=start)
    expected = timesteps.obs, timesteps.reward, timesteps.done
    for column, wanted in zip(zip(*steps, strict=True), expected, strict=True):
        np.testing.assert_array_equal(np.stack(column), wanted)


def test_a_layer_inside_can_be_stepped_between_and_states_are_handed_back(cart_poles):
    venv = layered(JaxVecEnv(cart_poles))
    stack, monitor = venv.venv, venv.venv.venv
    base = monitor.venv
    actions = random_actions(venv.action_space, 9, N)
    venv.reset()
    obs = venv.step(actions[0])[0]
    assert obs.shape == (N, 16)
    kept = venv.obs_rms.count
    inner = stack.step(actions[1])[0]
    frames = np.split(inner, 4, axis=1)
    np.testing.assert_array_equal(frames[2], venv.get_original_obs()[:, 12:])
    assert venv.obs_rms.count == kept
    bare = base.step(actions[2])[0]
    np.testing.assert_array_equal(monitor.episode_lengths, [2] * N)  # it saw two of three
    venv.step(actions[3])
    newest = np.split(venv.get_original_obs(), 4, axis=1)
    assert not np.array_equal(newest[2], bare)  # the stack did not see that step
    np.testing.assert_array_equal(newest[2], frames[3])
    assert venv.obs_rms.count == kept + N


def test_two_wrappers_over_one_base_each_own_their_state(cart_poles):
    base = JaxVecEnv(cart_poles)
    left, right = VecNormalize(base, norm_obs=False), VecFrameStack(base, 2)
    actions = random_actions(base.action_space, 20, N)
    alone = JaxVecEnv(cart_poles)
    alone.reset()
    left.reset()
    before = right.step(actions[0])[0][:, 4:]
    np.testing.assert_array_equal(before, alone.step(actions[0])[0])
    for turn, each in enumerate(actions[1:]):
        venv = left if turn % 2 else right
        obs, _, dones, _ = venv.step(each)
        expected = alone.step(each)[0]
        np.testing.assert_array_equal(obs[:, -4:], expected)
        if venv is right:
            past = np.where(dones[:, None], 0, before)
            np.testing.assert_array_equal(obs[:, :4], past)
            before = expected
    assert left.ret_rms.count == pytest.approx(N * 9 + 1e-4)


def test_two_stacks_of_the_same_layers_over_one_base_learn_apart(cart_poles):
    base = JaxVecEnv(cart_poles)
    left, right = VecNormalize(base), VecNormalize(base)
    left.reset()
    for each in random_actions(base.action_space, 5, N):
        left.step(each)
    assert right.obs_rms.count == pytest.approx(1e-4)
    right.step(np.zeros(N, int))
    assert right.obs_rms.count == pytest.approx(N + 1e-4)
    assert left.obs_rms.count == pytest.approx(6 * N + 1e-4)


class Halved(VecEnvWrapper):
    """A user's wrapper in SB3's style."""

    def reset(self):
        return self.venv.reset() / 2

    def step_wait(self):
        obs, rewards, dones, infos = self.venv.step_wait()
        for info in infos:
            info["halved"] = True
        return obs / 2, rewards, dones, infos


class HalvedNormalize(VecNormalize):
    """The same by inheritance."""

    def reset(self):
        return super().reset() / 2

    def step_wait(self):
        obs, *rest = super().step_wait()
        return obs / 2, *rest


@pytest.mark.parametrize(
    "middle",
    [lambda venv: Halved(VecNormalize(venv)), HalvedNormalize],
    ids=["wrapper", "subclass"],
)
def test_a_users_own_wrapper_ends_the_run_and_all_still_works(cart_poles, compiled, middle):
    def stacked(venv):
        return VecMonitor(VecFrameStack(middle(VecMonitor(venv)), 2))

    ours = stacked(JaxVecEnv(cart_poles))
    theirs = stacked(DummyVecEnv(twins(make("CartPole-v1"), N)))
    theirs.seed(0)
    np.testing.assert_allclose(ours.reset(), theirs.reset(), atol=1e-6)
    compiled.since()
    for actions in random_actions(ours.action_space, 60, N):
        one, other = ours.step(actions), theirs.step(actions)
        for column, wanted in zip(one[:3], other[:3], strict=True):
            np.testing.assert_allclose(column, wanted, atol=2e-6)
        for info, wanted in zip(one[3], other[3], strict=True):
            assert info.keys() == wanted.keys()
            if "episode" in info:
                assert info["episode"]["l"] == wanted["episode"]["l"]
                final = wanted["terminal_observation"]
                np.testing.assert_allclose(info["terminal_observation"], final, atol=2e-6)
    assert compiled.since()[1] == 60
    assert type(ours.venv.state.stack) is np.ndarray


def test_a_state_that_was_read_is_changed_by_no_step_and_can_be_put_back(cart_poles):
    venv = layered(JaxVecEnv(cart_poles))
    actions = random_actions(venv.action_space, 30, N)
    venv.reset()
    venv.step(actions[0])
    layers = venv, venv.venv, venv.venv.venv
    states = [layer.state for layer in layers]
    copies = [jax.tree.map(np.array, state) for state in states]
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(states))
    for each in actions:
        venv.step(each)
    for state, copied in zip(states, copies, strict=True):
        assert_same(jax.tree.map(np.asarray, state), copied)
    for layer, state in zip(layers, states, strict=True):
        layer.state = state
    for layer, copied in zip(layers, copies, strict=True):
        assert_same(jax.tree.map(np.asarray, layer.state), copied)
    venv.step(actions[0])
    for state, copied in zip(states, copies, strict=True):
        assert_same(jax.tree.map(np.asarray, state), copied)


def test_a_state_of_another_shape_is_refused():
    venv = VecFrameStack(JaxVecEnv(vectorize(counter(), 2)), 2)
    other = VecFrameStack(JaxVecEnv(vectorize(counter(), 3)), 2)
    with pytest.raises(ValueError, match=r"\(3, 6\).*\(2, 6\)"):
        venv.state = other.state
    with pytest.raises(ValueError, match="structure"):
        venv.state = ()


def test_a_transform_whose_state_changes_shape_is_named():
    def grow(state, timestep):
        return jnp.zeros(state.shape[0] + 1), timestep

    growing = Transform(lambda spec, keys: jnp.zeros(1), lambda s, t, mask: (s, t), grow)
    venv = VecTransform(VecFrameStack(JaxVecEnv(vectorize(counter(), 2)), 2), growing)
    venv.reset()
    with pytest.raises(ValueError, match=r"layer 2 .*\(1,\).*\(2,\)"):
        venv.step(np.zeros(2, int))


def test_moments_on_the_device_read_and_write_as_sb3s_do(cart_poles):
    venv = VecNormalize(JaxVecEnv(cart_poles))
    rms = venv.obs_rms
    venv.reset()
    assert rms is venv.obs_rms
    assert rms.mean.dtype == rms.var.dtype == np.float64
    assert type(rms.count) is float
    before = rms.mean.copy()
    venv.step(np.zeros(N, int))
    assert not np.array_equal(rms.mean, before)  # a view: it follows the device
    rms.mean = np.array([1.0, 2.0, 3.0, 1 / 3])
    rms.count = 67109864.0001
    assert rms.mean.tolist()[:3] == [1, 2, 3]
    assert rms.mean[3] == pytest.approx(1 / 3, rel=1e-13)
    assert rms.count == 67109864.0001
    assert np.asarray(venv.state.observation.statistics.moments.mean)[1] == 2
    copied = copy.deepcopy(rms)
    assert type(copied) is RunningMeanStd
    assert type(pickle.loads(pickle.dumps(rms))) is RunningMeanStd
    batch = np.random.default_rng(0).normal(size=(50, 4))
    copied.update(batch)
    rms.update(batch)
    np.testing.assert_allclose(rms.var, copied.var, rtol=1e-12)
    assert rms.count == pytest.approx(copied.count, rel=1e-14)
    venv.obs_rms = RunningMeanStd(shape=(4,))
    assert rms.count == pytest.approx(1e-4, rel=1e-12)
    venv.ret_rms = copied_scalar = RunningMeanStd()
    copied_scalar.update(np.array([5.0, 7.0]))
    assert venv.ret_rms.count == pytest.approx(1e-4)  # its numbers were taken, not the object
    venv.returns = np.arange(N)
    assert venv.returns.tolist() == list(range(N))


def test_normalize_obs_on_a_batch_is_what_the_device_does(cart_poles):
    venv = VecNormalize(JaxVecEnv(cart_poles), clip_obs=2.0)
    venv.reset()
    for each in random_actions(venv.action_space, 30, N):
        obs, rewards, *_ = venv.step(each)
        np.testing.assert_allclose(venv.normalize_obs(venv.get_original_obs()), obs, atol=2e-6)
        raw = venv.get_original_reward()
        np.testing.assert_allclose(venv.normalize_reward(raw), rewards, rtol=2e-6)
        inside = np.abs(obs) < 2
        undone = venv.unnormalize_obs(obs)
        np.testing.assert_allclose(undone[inside], venv.get_original_obs()[inside], atol=2e-6)
    raw = venv.get_original_obs()
    raw[:] = 0
    assert venv.get_original_obs().any()


def test_moments_are_fetched_once_a_step(cart_poles, monkeypatch):
    venv = VecNormalize(JaxVecEnv(cart_poles))
    venv.reset()
    fetched = []
    original = type(venv._packed).leaf
    monkeypatch.setattr(
        type(venv._packed), "leaf", lambda *arguments: fetched.append(1) or original(*arguments)
    )
    for _ in range(5):
        venv.normalize_obs(np.zeros((7, 4)))
    assert len(fetched) == 6


@pytest.mark.parametrize("training", [True, False])
def test_while_it_does_not_train_statistics_stand_still(cart_poles, training):
    venv = VecNormalize(JaxVecEnv(cart_poles), training=training, norm_reward=False)
    venv.reset()
    obs, rewards, *_ = venv.step(np.zeros(N, int))
    assert (venv.obs_rms.count > 1) == training
    assert rewards.tolist() == [1] * N
    if not training:
        np.testing.assert_allclose(obs, venv.get_original_obs(), rtol=1e-6)
    venv.training = not training
    venv.norm_reward = True
    counted = venv.obs_rms.count
    _, rewards, *_ = venv.step(np.zeros(N, int))
    assert (venv.obs_rms.count > counted) != training
    venv.clip_obs = 0.01  # a setting, for which a program is compiled
    assert np.abs(venv.step(np.zeros(N, int))[0]).max() <= np.float32(0.01)


def test_statistics_are_synced_between_device_and_host_and_back(cart_poles):
    device = layered(JaxVecEnv(cart_poles))
    host = layered(DummyVecEnv(twins(make("CartPole-v1"), 2)))
    device.reset()
    for each in random_actions(device.action_space, 20, N):
        device.step(each)
    sync_envs_normalization(device, host)
    np.testing.assert_array_equal(host.obs_rms.mean, device.obs_rms.mean)
    assert host.obs_rms.count == device.obs_rms.count
    host.reset()
    device.step(np.zeros(N, int))
    assert host.obs_rms.count == device.obs_rms.count + 2 - N
    sync_envs_normalization(host, device)
    np.testing.assert_allclose(device.obs_rms.var, host.obs_rms.var, rtol=1e-13)
    assert device.ret_rms.count == host.ret_rms.count
    device.step(np.zeros(N, int))
    assert device.obs_rms.count == host.obs_rms.count + N


@pytest.mark.parametrize("name", ["saved.pkl", "saved.npz"])
def test_statistics_are_saved_and_loaded_into_any_number_of_environments(
    cart_poles, tmp_path, name
):
    venv = VecNormalize(JaxVecEnv(cart_poles), clip_obs=5.0)
    venv.reset()
    venv.step(np.zeros(N, int))
    venv.training = False
    venv.save(tmp_path / name)
    for base in (
        JaxVecEnv(vectorize(make("CartPole-v1"), 2)),
        DummyVecEnv(twins(make("CartPole-v1"), 3)),
    ):
        loaded = VecNormalize.load(tmp_path / name, base)
        assert not loaded.training
        assert loaded.clip_obs == 5
        np.testing.assert_allclose(loaded.obs_rms.mean, venv.obs_rms.mean, rtol=1e-13)
        assert loaded.ret_rms.count == venv.ret_rms.count
        loaded.reset()
        obs = loaded.step(np.zeros(base.num_envs, int))[0]
        np.testing.assert_allclose(obs, venv.normalize_obs(loaded.get_original_obs()), atol=2e-6)


def test_a_pickle_goes_on_over_another_vec_env(cart_poles):
    venv = VecNormalize(JaxVecEnv(cart_poles))
    venv.reset()
    venv.step(np.zeros(N, int))
    again = pickle.loads(pickle.dumps(venv))
    again.set_venv(JaxVecEnv(vectorize(make("CartPole-v1"), 2)))
    np.testing.assert_allclose(again.obs_rms.mean, venv.obs_rms.mean, rtol=1e-13)
    again.reset()
    again.step(np.zeros(2, int))
    assert again.obs_rms.count == pytest.approx(venv.obs_rms.count + 4)


def test_a_monitor_writes_the_episodes_of_the_raw_rewards(cart_poles, tmp_path):
    base = JaxVecEnv(vectorize(counter(), 2), info_keys=["start"])
    venv = VecNormalize(VecMonitor(base, str(tmp_path / "log"), info_keywords=("start",)))
    venv.reset()
    starts = venv.get_original_obs()[:, 1]
    for _ in range(2):
        venv.step(np.zeros(2, int))
    assert venv.venv.episode_returns.tolist() == [3, 3]
    assert venv.venv.episode_lengths.tolist() == [2, 2]
    infos = venv.step(np.array([0, TRUNCATE]))[3]
    for row in range(2):
        episode = infos[row]["episode"]
        assert (episode["r"], episode["l"], episode["start"]) == (6, 3, starts[row])
        assert 0 < episode["t"] < 60
    assert venv.venv.episode_count == 2
    venv.close()
    lines = (tmp_path / "log.monitor.csv").read_text().splitlines()
    assert lines[1] == "r,l,t,start"
    assert [line.split(",")[0] for line in lines[2:]] == ["6.0", "6.0"]


def test_of_two_monitors_each_reports_the_rewards_that_it_saw(tmp_path):
    inner = VecMonitor(JaxVecEnv(vectorize(counter(), 2)), str(tmp_path / "inner"))
    venv = VecMonitor(VecTransform(inner, scale_reward(10)), str(tmp_path / "outer"))
    venv.reset()
    for _ in range(3):
        infos = venv.step(np.zeros(2, int))[3]
    assert infos[0]["episode"]["r"] == 60
    venv.close()
    logs = [(tmp_path / f"{name}.monitor.csv").read_text() for name in ("inner", "outer")]
    assert [log.splitlines()[2].split(",")[0] for log in logs] == ["6.0", "60.0"]


def test_bad_numbers_are_found_on_either_way():
    def step(key, state, action, params):
        state, obs, reward, *rest = counter().step(key, state, 0, params)
        return state, obs, reward / jnp.where(action[0] > 0.5, 0.0, 1.0), *rest

    box = spaces.Box(-1, 1, (1,), np.float32)
    env = vectorize(counter()._replace(step=step, action_space=box), 2)
    venv = VecFrameStack(VecCheckNan(JaxVecEnv(env), raise_exception=True), 2)
    venv.reset()
    venv.step(np.zeros((2, 1), np.float32))
    with pytest.raises(ValueError, match="inf in rewards"):
        venv.step(np.ones((2, 1), np.float32))
    with pytest.raises(ValueError, match="nan in actions"):
        venv.step(np.full((2, 1), np.nan, np.float32))
    assert venv.step(np.zeros((2, 1), np.float32))[0].shape == (2, 6)


def test_images_and_dicts_pass_the_small_wrappers_compiled(compiled):
    def stacked(venv):
        return VecFrameStack(VecExtractDictObs(VecTransposeImage(venv), "image"), 2)

    space = spaces.Dict(image=spaces.Box(0, 255, (40, 36, 3), np.uint8), speed=SPACES["box"])
    env = draws(space)
    ours, theirs = stacked(JaxVecEnv(vectorize(env, 2))), stacked(DummyVecEnv(twins(env, 2)))
    assert ours.observation_space == theirs.observation_space
    theirs.seed(0)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    compiled.since()
    for actions in random_actions(env.action_space, 2 * LIMIT, 2):
        one, other = ours.step(actions), theirs.step(actions)
        for column, wanted in zip(one[:3], other[:3], strict=True):
            np.testing.assert_array_equal(column, wanted)
        for row in np.flatnonzero(one[2]):
            final = other[3][row]["terminal_observation"]
            np.testing.assert_array_equal(one[3][row]["terminal_observation"], final)
    assert compiled.since()[1] == 2 * LIMIT


def test_actions_are_checked_against_the_space_outside_and_changed_on_the_device():
    pendulum = vectorize(make("Pendulum-v1"), 2)
    levels = Transform(
        stateless,
        lambda state, timestep, mask: (state, timestep),
        lambda state, timestep: (state, timestep),
        action=lambda state, action: (state, jnp.float32(action[:, None] - 2)),
        spec=lambda spec: spec._replace(action_space=spaces.Discrete(5)),
    )
    ours = VecTransform(JaxVecEnv(pendulum), levels)
    bare = JaxVecEnv(pendulum)
    assert ours.action_space == spaces.Discrete(5)
    np.testing.assert_array_equal(ours.reset(), bare.reset())
    with pytest.raises(ValueError, match="5 for environment 1"):
        ours.step([0, 5])
    obs = ours.step([0, 3])[0]
    np.testing.assert_array_equal(obs, bare.step(np.array([[-2], [1]], np.float32))[0])


def test_randomness_of_a_layer_is_its_own_and_equal_on_either_side(cart_poles):
    def sticky(venv):
        return VecTransform(venv, sticky_action(0.5), seed=3)

    ours = sticky(JaxVecEnv(cart_poles))
    theirs = sticky(DummyVecEnv(twins(make("CartPole-v1"), N)))
    theirs.seed(0)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    for actions in random_actions(ours.action_space, 50, N):
        np.testing.assert_array_equal(ours.step(actions)[0], theirs.step(actions)[0])


def test_some_rows_are_reset_through_all_layers(cart_poles):
    ours = layered(JaxVecEnv(cart_poles))
    ours.reset()
    first = [ours.step(each)[0] for each in random_actions(ours.action_space, 5, N)][-1].copy()
    kept = ours.venv.state
    counted = ours.obs_rms.count
    obs = ours.reset([1])
    np.testing.assert_array_equal(obs[[0, 2, 3]], first[[0, 2, 3]])
    assert ours.obs_rms.count == counted + 1
    stack = np.asarray(ours.venv.state.stack)
    np.testing.assert_array_equal(stack[[0, 2, 3]], np.asarray(kept.stack)[[0, 2, 3]])
    assert not stack[1, :12].any()
    np.testing.assert_array_equal(ours.venv.venv.episode_lengths, [5, 0, 5, 5])


def test_a_step_is_finished_where_it_was_started(cart_poles):
    venv = layered(JaxVecEnv(cart_poles))
    venv.reset()
    venv.step_async(np.zeros(N, int))
    with pytest.raises(NotPendingError, match="another layer"):
        venv.venv.step_wait()
    assert venv.step_wait()[0].shape == (N, 16)


def test_hooks_read_what_their_layer_made_and_their_info_goes_on():
    class Seen(VecTransform):
        _reads = ("obs", "reward", "info")

        def __init__(self, venv, transform):
            super().__init__(venv, transform)
            self.seen = []

        def _after_reset(self, timestep):
            self.seen.append(timestep.first.copy())

        def _after_step(self, timestep):
            self.seen.append((timestep.obs.copy(), timestep.reward.copy()))
            return timestep._replace(info={**timestep.info, "seen": np.array([len(self.seen)] * 2)})

    inner = Seen(JaxVecEnv(vectorize(counter(), 2)), scale_reward(2))
    venv = VecFrameStack(VecTransform(inner, scale_reward(5)), 2)
    venv.reset()
    assert inner.seen[0].tolist() == [True, True]
    _, rewards, _, infos = venv.step(np.zeros(2, int))
    assert rewards.tolist() == [10, 10]
    obs, reward = inner.seen[1]
    assert obs.shape == (2, 3)
    assert reward.tolist() == [2, 2]
    assert infos[1]["seen"] == 2


def test_info_of_a_transform_is_read_from_the_device_when_it_is_read():
    def note(state, timestep):
        info = {**timestep.info, "double": {"reward": timestep.reward * 2}}
        return state, timestep._replace(info=info)

    noting = Transform(stateless, lambda s, t, mask: (s, t), note)
    venv = VecTransform(JaxVecEnv(vectorize(counter(), 2), output="jax"), noting)
    venv.reset()
    obs, rewards, dones, infos = venv.step(np.zeros(2, int))
    assert all(isinstance(each, jax.Array) for each in (obs, rewards, dones))
    assert infos[0]["double"]["reward"] == 2
    assert infos[0].keys() == {"TimeLimit.truncated", "double"}


def test_row_keys_of_a_layer_are_those_of_its_seed():
    seen = []

    def init(spec, keys):
        seen.append(keys)
        return ()

    VecTransform(
        JaxVecEnv(vectorize(counter(), 3)),
        Transform(init, lambda s, t, mask: (s, t), lambda s, t: (s, t)),
        seed=5,
    )
    np.testing.assert_array_equal(seen[0], row_words_from_seeds([5, 6, 7]))
