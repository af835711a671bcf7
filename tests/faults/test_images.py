"""Images: channels found where they are, pictures tiled, videos that never wait in memory."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces

from jaxvec.vec import VecFrameStack, VecTransposeImage, VecVideoRecorder, is_vecenv_wrapped
from tests.faults.backends import HOST, Counter, made

every_host = pytest.mark.parametrize("backend", HOST)


def image(*shape):
    return spaces.Box(0, 255, shape, np.uint8)


class Numbered(Counter):
    """Every channel of its image has a number of its own: ten times the step, and its place."""

    def __init__(self, shape, axis):
        super().__init__(4, space=image(*shape))
        self.axis = axis

    def _observe(self):
        shape = self.observation_space.shape
        places = np.arange(shape[self.axis]).reshape(
            [-1 if a == self.axis else 1 for a in range(3)]
        )
        return np.broadcast_to(10 * self.steps + places, shape).astype(np.uint8)


class Maker:
    """Makes such an environment; a class, so that it can be pickled."""

    def __init__(self, shape, axis):
        self.arguments = shape, axis

    def __call__(self):
        return Numbered(*self.arguments)


def test_an_image_with_its_channels_first_is_not_transposed_again():
    with pytest.raises(AssertionError, match="must follow the channel last"):
        VecTransposeImage(made("dummy", space=image(3, 8, 9)))
    with VecTransposeImage(made("dummy", space=image(3, 8, 9)), skip=True) as venv:
        assert venv.reset().shape == (2, 3, 8, 9)
    with VecTransposeImage(made("dummy", space=image(8, 9, 3))) as venv:
        assert venv.observation_space.shape == (3, 8, 9)
        assert venv.reset().shape == (2, 3, 8, 9)


@every_host
@pytest.mark.parametrize(("shape", "axis"), [((3, 8, 9), 0), ((8, 9, 3), 2)], ids=["first", "last"])
def test_a_stack_multiplies_the_axis_of_the_channels_and_moves_whole_frames(backend, shape, axis):
    with VecFrameStack(HOST[backend]([Maker(shape, axis)] * 2), 2) as venv:
        wanted = [size * 2 if place == axis else size for place, size in enumerate(shape)]
        assert venv.observation_space.shape == tuple(wanted)

        def channels(stack):
            return np.moveaxis(stack, axis, -1)[0, 0].tolist()

        assert channels(venv.reset()[0]) == [0, 0, 0, 0, 1, 2]
        assert channels(venv.step([0, 0])[0][0]) == [0, 1, 2, 10, 11, 12]
        assert channels(venv.step([0, 0])[0][0]) == [10, 11, 12, 20, 21, 22]
        venv.step([0, 0])
        obs, *_, infos = venv.step([0, 0])
        assert channels(infos[0]["terminal_observation"]) == [30, 31, 32, 40, 41, 42]
        assert channels(obs[0]) == [0, 0, 0, 0, 1, 2]


def test_an_image_whose_middle_axis_is_smallest_warns_and_is_stacked_last():
    venv = made("dummy", space=image(4, 2, 8))
    with pytest.warns(UserWarning, match="smallest axis in the middle"):
        stacked = VecFrameStack(venv, 2)
    assert stacked.observation_space.shape == (4, 2, 16)


def test_frames_with_an_axis_in_front_are_no_images_and_are_said_to_be_none():
    with pytest.raises(AssertionError, match="must be an image"):
        VecTransposeImage(made("dummy", space=image(2, 3, 8, 9)))


class Painting(Counter):
    """Renders its number."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 9}  # noqa: RUF012

    def __init__(self, render_mode="rgb_array"):
        super().__init__(50)
        self.render_mode = render_mode

    def render(self):
        return np.full((16, 16, 3), self.steps, np.uint8)


@every_host
def test_three_pictures_are_tiled_into_a_square_with_a_black_cell(backend):
    with HOST[backend]([Painting] * 3) as venv:
        venv.reset()
        venv.step([0] * 3)
        picture = venv.render()
        assert picture.shape == (32, 32, 3)
        assert (picture[:16] == 1).all()
        assert (picture[16:, :16] == 1).all()
        assert (picture[16:, 16:] == 0).all()
        with pytest.warns(UserWarning, match="made with render_mode"):
            assert venv.render(mode="ansi") is None
        with pytest.raises(AssertionError, match="render_mode must be the same"):
            HOST[backend]([Painting, lambda: Painting(None)])
    with (
        HOST[backend]([lambda: Painting(None)]) as venv,
        pytest.warns(UserWarning, match="no `render_mode`"),
    ):
        assert venv.render() is None


def test_a_recorder_holds_no_frame(tmp_path, monkeypatch):
    pytest.importorskip("imageio_ffmpeg")
    import gc
    import weakref

    alive: list[weakref.ref] = []

    class Watched(Painting):
        def render(self):
            frame = super().render()
            alive.append(weakref.ref(frame))
            return frame

    venv = VecVideoRecorder(
        made_of(Watched), str(tmp_path), lambda step: step == 0, 30, env_index=0
    )
    venv.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            venv.step([0])
    gc.collect()
    assert len(alive) >= 20
    assert sum(each() is not None for each in alive) <= 1
    venv.close()
    assert is_vecenv_wrapped(venv, VecVideoRecorder)


def made_of(kind):
    return HOST["dummy"]([kind])
