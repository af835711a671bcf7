"""Automatic resets: what ended is told as it ended, and nothing of it is seen afterwards."""

import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.vec import (
    DummyVecEnv,
    Monitor,
    VecCheckNan,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransform,
    VecTransposeImage,
)
from tests.faults.backends import BACKENDS, HOST, STACKS, Counter, made, parts, stacked

IMAGE = spaces.Box(0, 255, (4, 5, 3), np.uint8)
DICT = spaces.Dict(image=IMAGE, speed=spaces.Box(-1000, 1000, (2,), np.float32))
every_host = pytest.mark.parametrize("backend", HOST)
every_stack = pytest.mark.parametrize(("backend", "layer"), STACKS)


@every_host
@pytest.mark.parametrize("space", [None, DICT], ids=["box", "dict"])
def test_an_array_that_is_used_again_does_not_overwrite_the_terminal_observation(backend, space):
    with made(backend, reuse=True, space=space) as venv:
        venv.reset()
        for _ in range(3):
            obs, *_, infos = venv.step([0, 0])
        for _ in range(
            2
        ):  # as it is handed out, and after the next episode has overwritten the array
            for info in infos:
                assert all((part == 3).all() for part in parts(info["terminal_observation"]))
            assert all((part == 0).all() for part in parts(obs))
            venv.step([0, 0])


@every_host
def test_an_array_that_is_used_again_survives_steps_of_single_rows(backend):
    with made(backend, reuse=True) as venv:
        venv.reset()
        for _ in range(3):
            venv.send([0], [1])
            rows, obs, *_, infos = venv.recv()
        assert rows.tolist() == [1]
        assert infos[0]["terminal_observation"].tolist() == [3, 3]
        assert obs.tolist() == [[0, 0]]


@every_host
def test_an_info_that_is_used_again_is_neither_written_to_nor_seen_to_change(backend):
    with made(backend, reuse=True) as venv:
        venv.reset()
        seen = [venv.step([0, 0])[3][0] for _ in range(5)]
        assert [info["step"] for info in seen] == [1, 2, 3, 1, 2]
        assert [info["deep"] for info in seen] == [[1], [2], [3], [1], [2]]
        ends = ["terminal_observation" in info for info in seen]
        assert ends == [False, False, True, False, False]
        assert [set(own) for own in venv.env_method("peek")] == [{"step", "deep"}] * 2


@pytest.mark.parametrize("layer", [Monitor, "venv"])
def test_monitors_write_nothing_into_an_info_that_is_used_again(layer):
    if layer is Monitor:
        venv = DummyVecEnv([lambda: Monitor(Counter(reuse=True))])
    else:
        venv = VecMonitor(DummyVecEnv([lambda: Counter(reuse=True)]))
    venv.reset()
    seen = [venv.step([0])[3][0] for _ in range(4)]
    assert ["episode" in info for info in seen] == [False, False, True, False]
    assert set(venv.env_method("peek")[0]) == {"step", "deep"}


@every_stack
def test_what_was_handed_out_stays_as_it_was(backend, layer):
    with stacked(backend, layer) as venv:
        before = venv.reset()
        kept = before.copy()
        for _ in range(4):
            after, rewards, dones, infos = venv.step([0, 0])
            assert not np.shares_memory(before, after)
            np.testing.assert_array_equal(before, kept)
            before, kept = after, after.copy()
            held = rewards.copy(), dones.copy(), [dict(info) for info in infos]
        venv.step([0, 0])
        assert (rewards == held[0]).all()
        assert (dones == held[1]).all()
        assert [set(info) for info in infos] == [set(info) for info in held[2]]


@every_stack
def test_an_episode_of_n_steps_shows_n_plus_1_observations(backend, layer):
    with stacked(backend, layer) as venv:
        shown = [venv.reset()[0]]
        for _ in range(3):
            obs, _, dones, infos = venv.step([0, 0])
            shown.append(infos[0]["terminal_observation"] if dones[0] else obs[0])
        assert dones.all()
        assert len({each.tobytes() for each in shown}) == 4
        for info in infos:
            last = info["terminal_observation"]
            assert (last.shape, last.dtype) == (obs[0].shape, obs.dtype)


def image_of(obs):
    return obs["image"]


def both_transposed(obs):
    return {**obs, "image": np.moveaxis(obs["image"], -1, 0)}


SHOWN = {
    "normalize": (VecNormalize, None, lambda venv, raw: venv.normalize_obs(raw)),
    "normalize dict": (
        lambda venv: VecNormalize(venv, norm_obs_keys=["speed"]),
        DICT,
        lambda venv, raw: venv.normalize_obs(raw),
    ),
    "transpose": (VecTransposeImage, IMAGE, lambda venv, raw: np.moveaxis(raw, -1, 0)),
    "transpose dict": (VecTransposeImage, DICT, lambda venv, raw: both_transposed(raw)),
    "extract": (
        lambda venv: VecExtractDictObs(venv, "image"),
        DICT,
        lambda venv, raw: image_of(raw),
    ),
    "stack": (
        lambda venv: VecFrameStack(venv, 3),
        None,
        lambda venv, raw: np.concatenate([raw - 2, raw - 1, raw]),
    ),
    "monitor": (VecMonitor, None, lambda venv, raw: raw),
    "check": (VecCheckNan, None, lambda venv, raw: raw),
}


@every_host
@pytest.mark.parametrize("layer", SHOWN)
def test_a_terminal_observation_is_what_the_layer_makes_of_the_raw_one(backend, layer):
    wrap, space, expected = SHOWN[layer]
    with wrap(made(backend, space=space)) as venv:
        raw = Counter(space=space)
        venv.reset()
        raw.reset()
        for _ in range(3):
            obs, *_, infos = venv.step([0, 0])
            raw_obs = raw.step(0)[0]
        found, wanted = infos[1]["terminal_observation"], expected(venv, raw_obs)
        rows = obs if isinstance(obs, dict) else {None: obs}
        found = found if isinstance(found, dict) else {None: found}
        wanted = wanted if isinstance(wanted, dict) else {None: wanted}
        assert found.keys() == wanted.keys() == rows.keys()
        for key, row in rows.items():
            np.testing.assert_array_equal(found[key], wanted[key])
            assert found[key].dtype == row.dtype
            assert found[key].shape == row.shape[1:]


def test_a_compiled_terminal_observation_is_what_the_layers_make_of_the_raw_one():
    with VecFrameStack(VecNormalize(made("jax")), 2) as layered, made("jax") as raw:
        layered.reset()
        raw.reset()
        for _ in range(3):
            obs, *_, infos = layered.step([0, 0])
            *_, raw_infos = raw.step([0, 0])
        last = infos[1]["terminal_observation"]
        wanted = layered.venv.normalize_obs(raw_infos[1]["terminal_observation"])
        np.testing.assert_allclose(last[3:], wanted, rtol=1e-6)
        assert last[:3].any()  # the frame before it
        assert (last.dtype, last.shape) == (obs.dtype, obs.shape[1:])


@every_host
def test_seeds_and_options_wait_for_the_next_reset_that_is_asked_for(backend):
    with made(backend) as venv:
        venv.reset()
        venv.seed(7)
        venv.set_options({"level": 2})
        for _ in range(3):
            venv.step([0, 0])
        assert [resets[-1] for resets in venv.get_attr("resets")] == [(None, None)] * 2
        venv.reset()
        assert [resets[-1] for resets in venv.get_attr("resets")] == [
            (7, {"level": 2}),
            (8, {"level": 2}),
        ]
        venv.reset()
        assert [resets[-1] for resets in venv.get_attr("resets")] == [(None, None)] * 2


def test_options_wait_for_the_next_reset_that_is_asked_for_in_compiled_environments_too():
    with made("jax") as venv:
        venv.reset()
        venv.set_options({"start": 5})
        for _ in range(3):
            obs = venv.step([0, 0])[0]
        assert (obs[:, 1] != 5).all()
        assert (venv.reset()[:, 1] == 5).all()
        assert (venv.reset()[:, 1] != 5).all()


@every_host
def test_an_environment_that_empties_its_options_takes_them_from_no_other(backend):
    with made(backend, count=3) as venv:
        given = {"deep": [1]}
        venv.set_options(given)
        assert venv._options[0]["deep"] is not venv._options[1]["deep"]
        venv.reset()
        assert given == {"deep": [1]}
        assert [resets[-1][1] for resets in venv.get_attr("resets")] == [{"deep": [1]}] * 3
        venv.set_options(given, sticky=True)
        venv.reset()
        venv.reset()
        assert [resets[-1][1] for resets in venv.get_attr("resets")] == [{"deep": [1]}] * 3


@every_stack
def test_a_reset_returns_observations_alone_and_its_infos_are_seen_through_every_layer(
    backend, layer
):
    with stacked(backend, layer) as venv:
        obs = venv.reset()
        assert isinstance(obs, np.ndarray)
        assert len(obs) == 2
        key = "t" if backend == "jax" else "step"
        assert [info[key] for info in venv.reset_infos] == [0, 0]
        assert venv.reset_infos == venv.unwrapped.reset_infos


def test_a_transform_of_ones_own_sees_the_terminal_observation_of_every_backend():
    from jaxvec import clip_reward

    for backend in BACKENDS:
        with VecTransform(made(backend), clip_reward(-0.5, 0.5)) as venv:
            venv.reset()
            for _ in range(3):
                _, rewards, _, infos = venv.step([0, 0])
            assert rewards.tolist() == [0.5, 0.5]
            assert infos[0]["terminal_observation"][0] == 3
