"""Stable-Baselines3's PPO on Atari's Pong, in worker processes, with four frames stacked.

    python examples/sb3_atari.py

The usual preprocessing (no-ops, frame skip, 84 x 84 grey pictures, clipped rewards) is SB3's own; the
processes, the shared memory that pictures come through, and the frame stack are jaxvec's. It trains for
seconds only: a game takes millions of frames to learn.
"""

from importlib.util import find_spec

import numpy as np

import jaxvec

N, STEPS = 4, 256
LIBRARIES = ("stable_baselines3", "ale_py", "cv2")


def main() -> None:
    """Looks at some frames, then trains."""
    if missing := [library for library in LIBRARIES if find_spec(library) is None]:
        print(f"This example needs {' and '.join(missing)}: pip install 'jaxvec[atari]'")
        return
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)

    # The package before the colon is imported in the workers too, where it registers its games.
    venv = jaxvec.make_atari_env("ale_py:PongNoFrameskip-v4", N, seed=0, backend="subproc")
    venv = jaxvec.VecFrameStack(venv, n_stack=4)
    try:
        before = venv.reset()
        assert before.shape == (N, 84, 84, 4)
        assert before.dtype == np.uint8
        assert not before[..., :3].any()  # an episode begins with empty frames before its first
        for _ in range(20):
            after, _, done, _ = venv.step(np.full(N, 2))  # up
            assert not done.any()
            # The stack moved on by one frame; the newest is the last.
            np.testing.assert_array_equal(after[..., :3], before[..., 1:])
            before = after
        assert len({frame.tobytes() for frame in np.moveaxis(before, -1, 1)[0]}) > 1  # it moves

        model = PPO("CnnPolicy", venv, n_steps=STEPS // N, batch_size=64, n_epochs=1, device="cpu")
        start = model.policy.get_parameter("action_net.weight").detach().clone()
        model.learn(STEPS)
        assert model.num_timesteps == STEPS
        assert not torch.equal(start, model.policy.get_parameter("action_net.weight"))
    finally:
        venv.close()
    print(f"{STEPS} steps of {N} Pongs in worker processes, and one update of a CNN policy")


if __name__ == "__main__":  # workers load this file, too
    main()
