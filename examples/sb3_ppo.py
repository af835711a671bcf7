"""Stable-Baselines3's PPO on compiled CartPoles, with no line of it changed.

    python examples/sb3_ppo.py

Sixteen environments and the layers around them are one compiled call a step. SB3 sees a VecEnv as it knows
them: it trains, evaluates, saves and loads. Half a minute, and the pole stands more than five times as long.
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import jaxvec


def main() -> None:
    """Trains, evaluates, and goes on from a file."""
    if find_spec("stable_baselines3") is None:
        print("This example needs Stable-Baselines3: pip install 'jaxvec[sb3]'")
        sys.exit(0)
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)  # networks this small are slower on several

    def environments(n_envs: int, seed: int) -> jaxvec.VecEnv:
        return jaxvec.make_vec_env("CartPole-v1", n_envs, seed=seed, backend="jax")

    venv = jaxvec.VecNormalize(environments(16, seed=0), norm_reward=False)
    settings: dict[str, Any] = {"n_steps": 32, "batch_size": 256, "n_epochs": 10, "gamma": 0.98}
    settings |= {"gae_lambda": 0.8, "learning_rate": lambda left: 2e-3 * left}
    model = PPO("MlpPolicy", venv, **settings, seed=1, device="cpu")
    test_venv = environments(8, seed=100)
    before = np.mean(evaluate_policy(model, test_venv, 8, deterministic=False)[0])
    model.learn(30_000)

    # Statistics go where the policy goes: saved beside it, and loaded into any number of environments.
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        venv.save(Path(folder) / "statistics.npz")
        test_venv = jaxvec.VecNormalize.load(Path(folder) / "statistics.npz", test_venv)
        test_venv.training = False
        model = PPO.load(Path(folder) / "model", device="cpu")
    after = np.mean(evaluate_policy(model, test_venv, 8)[0])
    print(f"mean return of 8 episodes: {before:.0f} before, {after:.0f} after 30,000 steps")

    assert after > 5 * before


if __name__ == "__main__":
    main()
