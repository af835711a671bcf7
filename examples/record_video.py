"""Videos of compiled environments: all of them in one picture, step by step into an mp4 file.

    python examples/record_video.py [FOLDER]

`VecVideoRecorder` has Stable-Baselines3's name and arguments; it sends each picture to the encoder at once,
so that a long video takes no memory. Classic environments are recorded in the same way, if they are made with
`render_mode="rgb_array"`.
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import jaxvec

N, STEPS = 4, 60


def record(folder: Path) -> Path:
    """Records a policy that pushes to the side that the pole leans to; returns the file."""
    venv = jaxvec.make_vec_env(
        "CartPole-v1", N, seed=0, backend="jax", env_kwargs={"render_mode": "rgb_array"}
    )
    venv = jaxvec.VecVideoRecorder(
        venv,
        folder,
        record_video_trigger=lambda step: step == 0,
        video_length=STEPS,
        name_prefix="carts",
    )
    obs = venv.reset()
    for _ in range(STEPS):
        obs, _, _, _ = venv.step((obs[:, 2] > 0).astype(int))
    venv.close()
    return Path(venv.video_path)


def main() -> None:
    """Records, and reads the file again."""
    libraries = ("pygame", "imageio_ffmpeg")
    if missing := [library for library in libraries if find_spec(library) is None]:
        print(f"This example needs {' and '.join(missing)}: pip install 'jaxvec[video]'")
        return
    import imageio_ffmpeg

    with tempfile.TemporaryDirectory() as scratch:
        file = record(Path(sys.argv[1] if len(sys.argv) > 1 else scratch))
        frames = imageio_ffmpeg.read_frames(str(file))
        width, height = next(frames)["size"]
        pictures = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in frames]
    print(f"{file.name}: {len(pictures)} pictures of {width} x {height}")
    assert len(pictures) == STEPS + 1  # the first shows the reset
    assert (height, width) == (2 * 400, 2 * 600)  # four carts, tiled
    assert (pictures[0] != pictures[-1]).any()


if __name__ == "__main__":
    main()
