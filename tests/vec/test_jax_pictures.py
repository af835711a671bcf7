"""Pictures of compiled environments: gymnasium's renderers fed with one row's state, tiles, a window."""

import os
import warnings

import gymnasium as gym
import jax.numpy as jnp
import numpy as np
import pytest

from jaxvec import vectorize
from jaxvec.envs import make
from jaxvec.render import Window, painter_of
from jaxvec.vec import JaxVecEnv, VecFrameStack, VecVideoRecorder, tile_images
from tests.envs.toys import counter
from tests.vec.jax_envs import random_actions

pytest.importorskip("pygame")

CLASSIC = {
    "CartPole-v1": lambda state: state.vector,
    "Acrobot-v1": lambda state: [state.theta1, state.theta2, state.dtheta1, state.dtheta2],
    "Pendulum-v1": lambda state: [state.theta, state.theta_dot],
    "MountainCar-v0": lambda state: [state.position, state.velocity],
    "MountainCarContinuous-v0": lambda state: [state.position, state.velocity],
}


@pytest.mark.parametrize("name", CLASSIC)
def test_each_row_is_drawn_as_gymnasium_draws_its_state(name):
    venv = JaxVecEnv(vectorize(make(name), 3), render_mode="rgb_array")
    venv.reset()
    for actions in random_actions(venv.action_space, 4, 3):
        venv.step(actions)
    theirs = gym.make(name, render_mode="rgb_array").unwrapped
    theirs.reset(seed=0)
    images = venv.get_images()
    for image, state in zip(images, venv.get_attr("state"), strict=True):
        theirs.state = np.array(CLASSIC[name](state), np.float64)
        np.testing.assert_array_equal(image, theirs.render())
    assert len({image.tobytes() for image in images}) > 1
    np.testing.assert_array_equal(venv.render(), tile_images(images))
    one = venv.env_method("render", indices=[-1])
    np.testing.assert_array_equal(one, images[2:])


def test_parameters_of_a_row_show_in_its_picture():
    env = make("CartPole-v1")
    params = env.params.replace(length=np.array([0.5, 1.0], np.float32))
    venv = JaxVecEnv(vectorize(env, 2, params=params), render_mode="rgb_array")
    venv.set_options({"low": 0.0, "high": 0.0})
    venv.reset()
    short, long = (np.all(image == (202, 152, 101), axis=-1).sum() for image in venv.get_images())
    assert long > 1.8 * short  # pixels in the pole's colour


def test_an_environments_own_picture_comes_first():
    def render(state):
        return jnp.full((4, 5, 3), state.t * 10, jnp.uint8)

    venv = JaxVecEnv(vectorize(counter()._replace(render=render), 3), render_mode="rgb_array")
    stacked = VecFrameStack(venv, 2)
    stacked.reset()
    stacked.step(np.array([0, 0, 2]))
    assert [image[0, 0, 0] for image in stacked.get_images()] == [10, 10, 0]
    assert stacked.render().shape == (8, 10, 3)
    assert stacked.render_mode == "rgb_array"
    breakout = JaxVecEnv(vectorize(make("Breakout-MinAtar-v1"), 2), render_mode="rgb_array")
    breakout.reset()
    assert breakout.render().shape == (320, 160, 3)


def test_the_metadata_are_the_environments():
    venv = JaxVecEnv(vectorize(make("Acrobot-v1"), 1), render_mode="rgb_array")
    assert venv.metadata["render_fps"] == 15
    assert venv.metadata["render_modes"] == ["human", "rgb_array"]


def test_without_pictures_it_is_refused_or_warns():
    with pytest.raises(ValueError, match="no pictures of the environment 'Counter'"):
        JaxVecEnv(vectorize(counter(), 1), render_mode="rgb_array")
    with pytest.raises(ValueError, match="render_mode='ansi'"):
        JaxVecEnv(vectorize(counter(), 1), render_mode="ansi")
    venv = JaxVecEnv(vectorize(counter(), 2))
    with pytest.warns(UserWarning, match="render_mode=None"):
        assert venv.get_images() == [None, None]
    with pytest.warns(UserWarning, match="no `render_mode`"):
        assert venv.render() is None
    assert painter_of(counter()) is None


def test_a_window_shows_all_rows_where_there_is_a_display(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    venv = JaxVecEnv(vectorize(make("CartPole-v1"), 2), render_mode="human")
    venv.reset()
    assert venv.render() is None
    window = venv._pictures._window
    shown = np.array(window._pygame.surfarray.array3d(window._screen)).swapaxes(0, 1)
    drawn = venv._pictures.draw(venv._attributes(), [0, 1])
    np.testing.assert_array_equal(shown, tile_images(drawn))
    venv.close()
    assert venv._pictures._window is None


def test_without_a_display_a_window_says_so(monkeypatch):
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RuntimeError, match=r"needs a display.*rgb_array"):
        Window("nothing")


def test_a_video_is_recorded_over_it(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    base = JaxVecEnv(vectorize(make("CartPole-v1"), 2), render_mode="rgb_array")
    venv = VecVideoRecorder(
        VecFrameStack(base, 2), str(tmp_path), lambda step: step == 0, video_length=3, env_index=1
    )
    assert venv.frames_per_sec == 50
    with warnings.catch_warnings(record=True) as caught:  # JAX's, of a fork beside its threads
        warnings.simplefilter("always")
        venv.reset()
    assert not caught
    assert "IMAGEIO_FFMPEG_NO_PREVENT_SIGINT" not in os.environ
    for _ in range(4):
        assert venv.step(np.zeros(2, int))[0].shape == (2, 8)
    venv.close()
    assert [path.name for path in tmp_path.iterdir()] == ["rl-video-step-0-to-step-3.mp4"]
    assert next(tmp_path.iterdir()).stat().st_size > 1000
