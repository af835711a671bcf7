"""`VecVideoRecorder`: what the environments render, to mp4 files, frame by frame."""

import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from jaxvec.core._transform import Timestep, chain
from jaxvec.errors import MissingExtraError
from jaxvec.typing import Array
from jaxvec.vec._classic import DummyVecEnv, SubprocVecEnv
from jaxvec.vec._host import HostVecEnv
from jaxvec.vec._results import FilePath
from jaxvec.vec._sb3 import namesakes
from jaxvec.vec._transform import VecTransform, obs_is_fresh

_FRAGMENTED = ["-movflags", "+frag_keyframe+empty_moov"]
"""Has ffmpeg write an mp4 that can be played as far as it goes, whenever the process ends."""


class VecVideoRecorder(VecTransform):
    """Records videos of what the environments render. Frames go to the encoder at once, none is kept.

    Args:
      venv: the VecEnv inside, of `render_mode="rgb_array"`.
      video_folder: where the videos go; it is made if it is missing.
      record_video_trigger: is asked whether to begin a video, with the number of steps so far: at each
        reset, and after each step while none is being recorded.
      video_length: steps; a video has one frame more.
      name_prefix: of the files, `<prefix>-step-<first>-to-step-<last>.mp4`.
      env_index: which environment to show; None shows all, tiled.

    Raises:
      AssertionError: if the environments render in another mode.
      MissingExtraError: if imageio-ffmpeg is not installed.
    """

    video_name: str
    video_path: str

    def __init__(
        self,
        venv: Any,
        video_folder: FilePath,
        record_video_trigger: Callable[[int], bool],
        video_length: int = 200,
        name_prefix: str = "rl-video",
        *,
        env_index: int | None = None,
    ) -> None:
        super().__init__(venv, chain())
        self.env = venv
        venv.metadata = _metadata(venv)
        assert venv.render_mode == "rgb_array", (
            f"VecVideoRecorder: the render_mode must be 'rgb_array', not {venv.render_mode!r}; make the "
            "environments with it"
        )
        _encoder()
        self.frames_per_sec = venv.metadata.get("render_fps", 30)
        self.record_video_trigger = record_video_trigger
        self.video_folder = os.path.abspath(video_folder)
        Path(self.video_folder).mkdir(parents=True, exist_ok=True)
        self.name_prefix = name_prefix
        self.video_length = video_length
        self.env_index = env_index
        self.step_id = 0
        self._video: _Video | None = None

    @property
    def recording(self) -> bool:
        """Whether a video is being recorded."""
        return self._video is not None

    def _after_reset(self, timestep: Timestep) -> None:
        if self.record_video_trigger(self.step_id):
            self._begin()

    def _after_step(self, timestep: Timestep) -> Timestep:
        self.step_id += 1
        if self._video is not None:
            self._add_frame(self._video)
        elif self.record_video_trigger(self.step_id):
            self._begin()
        return timestep

    def _begin(self) -> None:
        self._end()
        last = self.step_id + self.video_length
        self.video_name = f"{self.name_prefix}-step-{self.step_id}-to-step-{last}.mp4"
        self.video_path = os.path.join(self.video_folder, self.video_name)
        self._video = _Video(self.video_path, self.frames_per_sec)
        self._add_frame(self._video)

    def _add_frame(self, video: "_Video") -> None:
        frame = self._frame()
        if not isinstance(frame, np.ndarray):
            self._end()
            warnings.warn(
                f"VecVideoRecorder: the recording of {self.video_path} stopped, because render() returned "
                f"{frame!r} and not an image [H, W, 3].",
                stacklevel=4,
            )
            return
        video.append(frame)
        if video.num_frames > self.video_length:
            self._end()

    def _frame(self) -> Any:
        if self.env_index is None:
            return self.venv.render()
        return self.venv.env_method("render", indices=[self.env_index])[0]

    def _end(self) -> None:
        if self._video is not None:
            self._video.close()
            self._video = None

    def _obs_is_fresh(self) -> bool:
        return obs_is_fresh(self.venv)

    def close(self) -> None:
        """Ends the video that is being recorded, and closes the VecEnv inside."""
        try:
            super().close()
        finally:
            self._end()


class _Video:
    """One mp4 file; it is whole after `close`, and also when nobody closes it."""

    def __init__(self, path: str, frames_per_second: float) -> None:
        self._path, self._fps = path, frames_per_second
        self._writer: Any = None
        self.num_frames = 0

    def append(self, frame: Array) -> None:
        """Adds a frame, `[H, W, 3]` uint8."""
        # H.264 halves both sides for the colours: odd ones get their last line twice.
        height, width = frame.shape[:2]
        if height % 2 or width % 2:
            frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
        if self._writer is None:
            self._writer = _encoder().write_frames(
                self._path,
                (frame.shape[1], frame.shape[0]),
                fps=float(self._fps),
                macro_block_size=1,
                output_params=_FRAGMENTED,
            )
            with _plainly_started():
                self._writer.send(None)
            self._finalizer = weakref.finalize(self, self._writer.close)
        self._writer.send(np.ascontiguousarray(frame, np.uint8))
        self.num_frames += 1

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None:
            self._finalizer()


@contextmanager
def _plainly_started() -> Iterator[None]:
    """Has imageio-ffmpeg start ffmpeg with no Python between fork and exec.

    That would keep Ctrl-C from ffmpeg, and may wait for ever for a lock that a thread of JAX held.
    """
    name = "IMAGEIO_FFMPEG_NO_PREVENT_SIGINT"
    if "jax" not in sys.modules or name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _encoder() -> Any:
    try:
        return import_module("imageio_ffmpeg")
    except ImportError as error:
        raise MissingExtraError(
            "VecVideoRecorder encodes with ffmpeg by imageio-ffmpeg, which is not installed: install "
            "jaxvec[video]."
        ) from error


def _metadata(venv: Any) -> dict[str, Any]:
    """Returns the metadata of the first environment."""
    base = venv.unwrapped
    hosts: tuple[type[Any], ...] = (HostVecEnv, *namesakes(DummyVecEnv), *namesakes(SubprocVecEnv))
    metadata: dict[str, Any] = (
        base.get_attr("metadata")[0] if isinstance(base, hosts) else base.metadata
    )
    return metadata
