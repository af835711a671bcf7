"""Octax: games for the CHIP-8, on an emulator in JAX."""

from typing import Any

import jax
from gymnasium import spaces

from jaxvec.envs._env import Env
from jaxvec.envs.adapters._common import library, space_of_avals
from jaxvec.typing import Action, Key, Obs, PyTree


def from_octax(env: Any) -> Env[Any, None]:
    """Makes an environment of one of Octax.

    Args:
      env: an `octax.env.OctaxEnv`, or the name of a game for `octax.environments.create_environment`,
        such as "brix".

    Returns:
      The environment. It observes the last frames, bool `[frame_skip, 64, 32]`; its time limit is that of
      the `OctaxEnv`; it has pictures where that has a `render_mode`. All episodes start alike but for
      the key that the game draws from.

    Raises:
      MissingExtraError: if a name came and Octax is not installed.
      TypeError: if `env` is no environment of Octax.
    """
    if isinstance(env, str):
        return make(env)
    if not callable(getattr(env, "terminated_fn", None)):
        raise TypeError(
            f"from_octax: env={env!r} has no terminated_fn. Pass an octax.env.OctaxEnv, or the name of a "
            "game."
        )

    def reset(key: Key, params: None) -> tuple[PyTree, Obs, dict[str, Any]]:
        state, obs, info = env.reset(key)
        return state, obs, info

    def step(
        key: Key, state: PyTree, action: Action, params: None
    ) -> tuple[PyTree, Obs, Any, Any, Any, dict[str, Any]]:
        del key  # what a game draws comes from the key in its state
        state, obs, reward, terminated, _, info = env.step(state, action)
        return state, obs, reward, terminated, False, info

    obs = jax.eval_shape(lambda: env.reset(jax.random.PRNGKey(0))[1])
    return Env(
        reset=reset,
        step=step,
        params=None,
        observation_space=space_of_avals(obs),
        action_space=spaces.Discrete(env.num_actions),
        max_episode_steps=int(env.max_num_steps_per_episodes),
        render=env.render if env.render_mode else None,
        metadata={"name": "octax"},
    )


def make(name: str, **options: Any) -> Env[Any, Any]:
    """Makes `octax:NAME`; options go to `octax.environments.create_environment`."""
    games = library(f"make('octax:{name}')", "octax.environments", "octax")
    env = from_octax(games.create_environment(name, **{"render_mode": "rgb_array", **options})[0])
    return env._replace(metadata={"name": f"octax:{name}"})
