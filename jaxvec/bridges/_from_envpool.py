"""EnvPool's vector environments as VecEnvs."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from jaxvec.bridges._from_vector_env import InfoRows, VectorVecEnv
from jaxvec.core._transform import Timestep
from jaxvec.core._xp import map_obs, no_rows
from jaxvec.spaces import create_empty_array
from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._convert import action_rows, everywhere, rows_of


def is_envpool(env: Any) -> bool:
    """Tells whether a vector environment is EnvPool's, which steps rows alone by their ids."""
    return getattr(env, "all_env_ids", None) is not None


class EnvPoolVecEnv(VectorVecEnv):
    """A pool of `envpool.make_gymnasium` as a VecEnv.

    A pool resets in the next step, so one more round trip to its threads is made for the rows that ended,
    in the same step; that is most of what a step costs beyond the pool's own. Its arrays are new in each
    step: they are handed on, and first observations are written into them.

    Args:
      env: the pool.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env, AutoresetMode.NEXT_STEP)
        self._action_name, spec = list(env.spec.action_array_spec.items())[-1]
        self._action_dtype = spec.dtype
        self._any_actions: Action = create_empty_array(self.action_space, self.num_envs)

    def _start(self, actions: Action) -> None:
        action_rows(actions, self.num_envs)  # with fewer, EnvPool would read beyond their end
        self._send(actions, self.env.all_env_ids)

    def _send(self, actions: Action, ids: Array) -> None:
        if not isinstance(actions, dict):
            actions = {self._action_name: np.asarray(actions).astype(self._action_dtype)}
        # With the ids of the (single) players in it, EnvPool need not find them out.
        self.env.send({**actions, "env_id": ids, "players.env_id": ids})

    def _finish(self, actions: Action) -> Any:
        return self.env.recv()

    def _wait_columns(self) -> Timestep:
        obs, reward, terminated, truncated, infos = self._stepped()
        done = terminated | truncated
        final_obs, final_rows = None, None
        if not no_rows(done):
            rows = final_rows = np.flatnonzero(done)
            # An environment that ended is reset by any action. Threads do so while this one copies.
            any_actions = map_obs(lambda column: column[: len(rows)], self._any_actions)
            self._send(any_actions, rows.astype(np.int32))
            final_obs = rows_of(obs, rows)
            for row in rows.tolist():
                self.reset_infos[row] = {}

            def open_rows(column: Array, opening: Array) -> None:
                column[rows] = opening

            map_obs(open_rows, obs, self.env.recv(reset=True)[0])
        return Timestep(
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            valid=everywhere(self.num_envs),
            first=done,
            final_obs=final_obs,
            final_rows=final_rows,
            rows=InfoRows(infos, infos, done),
        )

    def _reset_all(
        self, seeds: list[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[Obs, Any]:
        # Its older versions take a seed when they are made only.
        obs, _ = self.env.reset() if seeds is None else self.env.reset(seed=seeds)
        return obs, {}

    def _reset_rows(
        self, mask: Array, seeds: list[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[Obs, Any]:
        raise NotImplementedError(
            f"from_vector_env: rows {np.flatnonzero(mask).tolist()} of EnvPool alone were to be reset; it "
            "does not say what the others observe. Reset all."
        )
