"""`jaxvec rollout --video`: what is in the file, and what is wrong is one line before anything runs."""

import json
import subprocess
import sys

import numpy as np
import pytest

from jaxvec.cli import main
from jaxvec.envs import make
from jaxvec.random import hash_key
from jaxvec.render import painter_of


def frames_of(path, side):
    ffmpeg = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    command = [ffmpeg, "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, side, side, 3)


def test_the_first_environments_are_recorded_tiled_beside_the_run(tmp_path, capsys):
    pytest.importorskip("imageio_ffmpeg")
    file = tmp_path / "breakout.mp4"
    words = (
        "rollout Breakout-MinAtar-v1 --num-envs 12 --num-steps 20 --frame-stack 2 --json --video"
    )
    assert main([*words.split(), str(file)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["files"] == {"video": str(file)}
    assert report["env_steps"] == 12 * 20  # the run itself is not cut down to what is shown
    picture = painter_of(env := make("Breakout-MinAtar-v1"))(
        env.reset(hash_key(0), env.params)[0], env.params
    )
    frames = frames_of(file, 3 * len(picture))  # nine square pictures, three by three
    assert len(frames) == 21
    assert (frames[1:] != frames[0]).any()
    assert [each.name for each in tmp_path.iterdir()] == ["breakout.mp4"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("CartPole-v1 --video run.gif", "must end with .mp4"),
        (
            "CartPole-v1 --backend dummy --video run.mp4",
            "--video is for --backend scan and jax-vec",
        ),
        ("CartPole-v1 --video nowhere/run.mp4", "there is no folder"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(words, message, tmp_path, monkeypatch, capsys):
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.chdir(tmp_path)
    assert main(["rollout", *words.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_encoder_is_said_before_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setattr("jaxvec.cli._video.find_spec", lambda name: None)
    assert main(["rollout", "CartPole-v1", "--video", str(tmp_path / "a.mp4")]) == 2
    assert "jaxvec[video]" in capsys.readouterr().err
