"""Videos: which frames they have, and that their files are whole."""

import gc
import subprocess
import sys

import numpy as np
import pytest

from jaxvec.errors import MissingExtraError
from jaxvec.vec import DummyVecEnv, SubprocVecEnv, VecNormalize, VecVideoRecorder
from tests.vec.host_envs import CountEnv

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")


class Painted(CountEnv):
    """Every pixel is 20 times the step, and 10 more in another environment."""

    def __init__(self, offset=0, size=(32, 48), render_mode="rgb_array"):
        super().__init__(length=100, render_mode=render_mode)
        self.offset, self.size = offset, size
        self.rendered = 0

    def render(self):
        self.rendered += 1
        return np.full((*self.size, 3), 20 * self.steps + self.offset, np.uint8)


def painted(num=2, **options):
    return DummyVecEnv([lambda i=i: Painted(10 * i, **options) for i in range(num)])


def frames(path, height=64, width=48):
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", str(path)]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def run(venv, steps):
    venv.reset()
    for _ in range(steps):
        venv.step([0] * venv.num_envs)


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_a_video_has_a_frame_of_every_step_and_one_of_its_beginning(tmp_path):
    venv = VecVideoRecorder(
        VecNormalize(painted()), tmp_path / "new", lambda step: step in (0, 6), 3, "run"
    )
    run(venv, 11)
    venv.close()
    assert names(tmp_path / "new") == ["run-step-0-to-step-3.mp4", "run-step-6-to-step-9.mp4"]
    for first, name in zip((0, 6), names(tmp_path / "new"), strict=True):
        shown = frames(tmp_path / "new" / name)
        assert len(shown) == 4
        for place, frame in enumerate(shown):
            np.testing.assert_allclose(frame[:30].mean(), 20 * (first + place), atol=4)
            np.testing.assert_allclose(frame[34:].mean(), 20 * (first + place) + 10, atol=4)
    assert venv.frames_per_sec == 7


def test_a_video_of_one_environment_renders_no_other(tmp_path):
    venv = VecVideoRecorder(painted(3), tmp_path, lambda step: step == 0, 2, env_index=2)
    run(venv, 4)
    shown = frames(venv.video_path, 32)
    assert len(shown) == 3
    np.testing.assert_allclose(shown.mean((1, 2, 3)), [20, 40, 60], atol=4)
    assert venv.get_attr("rendered") == [0, 0, 3]


def test_closing_ends_the_video_and_can_be_repeated(tmp_path):
    venv = VecVideoRecorder(painted(), tmp_path, lambda step: step == 0, 100)
    run(venv, 4)
    assert venv.recording
    venv.close()
    venv.close()
    assert not venv.recording
    assert len(frames(venv.video_path)) == 5


def test_what_is_stepped_after_close_is_recorded_again(tmp_path):
    venv = VecVideoRecorder(painted(), tmp_path, lambda step: step in (0, 4), 2)
    run(venv, 3)
    venv.close()
    run(venv, 5)
    assert len(names(tmp_path)) == 2
    assert len(frames(tmp_path / "rl-video-step-4-to-step-6.mp4")) == 3


def test_a_file_is_whole_when_nobody_closes_the_recorder(tmp_path):
    venv = VecVideoRecorder(painted(), tmp_path, lambda step: step == 0, 100)
    run(venv, 4)
    path = venv.video_path
    del venv
    gc.collect()
    assert len(frames(path)) == 5


def test_a_reset_that_is_asked_for_begins_a_new_video(tmp_path):
    venv = VecVideoRecorder(painted(), tmp_path, lambda step: step in (0, 2), 50)
    run(venv, 2)
    venv.reset()
    venv.step([0, 0])
    venv.close()
    assert len(frames(tmp_path / "rl-video-step-0-to-step-50.mp4")) == 3
    assert len(frames(tmp_path / "rl-video-step-2-to-step-52.mp4")) == 2


def test_odd_sizes_are_filled_up(tmp_path):
    venv = VecVideoRecorder(painted(1, size=(31, 47)), tmp_path, lambda step: step == 0, 1)
    run(venv, 2)
    assert len(frames(venv.video_path, 32)) == 2


def test_environments_in_workers_are_recorded(tmp_path):
    venv = VecVideoRecorder(SubprocVecEnv([Painted]), tmp_path, lambda step: step == 0, 2)
    run(venv, 3)
    venv.close()
    assert len(frames(venv.video_path, 32)) == 3


def test_another_render_mode_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="rgb_array"):
        VecVideoRecorder(painted(render_mode="human"), tmp_path, lambda step: True)


def test_a_frame_that_is_no_image_ends_the_video_with_a_warning(tmp_path):
    venv = VecVideoRecorder(painted(1), tmp_path, lambda step: step == 0, 50)
    venv.reset()
    venv.venv.envs[0].render = lambda: None
    venv.env_index = 0
    with pytest.warns(UserWarning, match="stopped"):
        venv.step([0])
    assert not venv.recording
    assert len(frames(venv.video_path, 32)) == 1


def test_a_missing_encoder_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtraError, match=r"jaxvec\[video\]"):
        VecVideoRecorder(painted(), tmp_path, lambda step: True)
