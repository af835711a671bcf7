"""A stream of the table as a VecEnv of Stable-Baselines3's, so that its wrappers can be the oracle."""

import copy
from typing import Any

import numpy as np
import pytest

from jaxvec.core._xp import map_obs
from tests.core.table import Stream

vec_env = pytest.importorskip("stable_baselines3.common.vec_env")


class ScriptedVecEnv(vec_env.VecEnv):
    """Says what the stream says; actions are ignored."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.time = stream, 0
        self.render_mode = None
        spec = copy.deepcopy(stream.spec)  # VecNormalize writes into the space that it wraps
        super().__init__(spec.num_envs, spec.observation_space, spec.action_space)

    def reset(self) -> Any:
        return map_obs(np.copy, self.stream.opening.obs)

    def step_async(self, actions: Any) -> None:
        pass

    def step_wait(self) -> Any:
        timestep = self.stream.steps[self.time]
        self.time += 1
        infos: list[dict[str, Any]] = []
        for row, done in enumerate(timestep.done):
            info = {"TimeLimit.truncated": bool(timestep.truncated[row])}
            if done:
                info["terminal_observation"] = map_obs(
                    lambda x, row=row: np.copy(x[row]), timestep.final_obs
                )
            infos.append(info)
        return map_obs(np.copy, timestep.obs), timestep.reward.copy(), timestep.done, infos

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def terminal_rows(infos: Any, rows: Any) -> Any:
    """Returns the terminal observations of some rows, stacked `[F, *D]`."""
    seen = [infos[row]["terminal_observation"] for row in rows]
    if isinstance(seen[0], dict):
        return {key: np.stack([obs[key] for obs in seen]) for key in seen[0]}
    return np.stack(seen)
