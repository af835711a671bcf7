"""What a `JaxVecEnv` is called in logs, and why it stays in its process."""

from typing import Any, NoReturn

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from jaxvec.envs import BatchedEnv


class Identity:
    """The name of compiled environments, and the refusal to pickle them."""

    _env: BatchedEnv

    @property
    def spec(self) -> EnvSpec | None:
        """The environment's name as gymnasium's record of one, for logs; None if it has none."""
        env = self._env.env
        if env is None or "name" not in env.metadata:
            return None
        try:
            return EnvSpec(env.metadata["name"], max_episode_steps=env.max_episode_steps)
        except gym.error.Error:  # no name of gymnasium's form
            return None

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: it holds compiled functions and memory of a device, so it can be "
            "neither pickled nor copied. Send what makes it (a function that calls make_vec_env), and save "
            "statistics with VecNormalize.save."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        self.__reduce__()
