"""`jaxvec rollout --video`: the first steps of the first environments, tiled, as an mp4 file.

They are played in a run of their own, through a VecEnv: a compiled loop of thousands of rows stops for no
picture.
"""

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from jaxvec.cli._failure import FAILED, Failure, failing
from jaxvec.envs import BatchedEnv, Policy, PolicyFunction
from jaxvec.errors import MissingExtraError
from jaxvec.io._targets import replacing

MOST_ENVS = 9
MOST_STEPS = 500


def check_video(path: Path) -> None:
    """Finds what would keep a video from being written.

    Raises:
      MissingExtraError: if there is no encoder.
      ValueError: if the file's name does not end with .mp4.
    """
    if find_spec("imageio_ffmpeg") is None:
        raise MissingExtraError("imageio-ffmpeg is not installed: pip install 'jaxvec[video]'.")
    if path.suffix.lower() != ".mp4":
        raise ValueError(f"{path} must end with .mp4.")


def record_video(
    path: Path,
    bare: BatchedEnv,
    policy: PolicyFunction | Policy | None,
    seed: int,
    num_steps: int,
    **layers: Any,
) -> None:
    """Plays some steps, and writes their pictures.

    Args:
      path: the file.
      bare: the environments that are shown, without layers.
      policy: what acts, for the environments with their layers; None for random actions.
      seed: of environments and policy.
      num_steps: how many steps; the video has one picture more.
      **layers: as `VecRun` takes them.

    Raises:
      Failure: if there are no pictures of the environment, or the run fails.
    """
    from jaxvec.cli._vec_run import VecRun
    from jaxvec.vec import JaxVecEnv, VecVideoRecorder

    with tempfile.TemporaryDirectory() as folder:

        def make() -> VecVideoRecorder:
            venv = JaxVecEnv(bare, render_mode="rgb_array")
            return VecVideoRecorder(venv, folder, lambda step: step == 0, num_steps)

        played = VecRun(make, policy, seed, num_steps, **layers)
        try:
            for _ in played.pieces():
                pass
        finally:
            played.close()
        videos = list(Path(folder).glob("*.mp4"))
        if not videos:
            raise Failure(f"--video {path}: no picture was drawn.", FAILED)
        with (
            failing(f"--video {path}", FAILED),
            videos[0].open("rb") as recorded,
            replacing("--video", path) as file,
        ):
            shutil.copyfileobj(recorded, file)
