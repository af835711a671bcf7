"""VecEnvs and compiled environments as gymnasium VectorEnvs."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from jaxvec.core._transform import Timestep
from jaxvec.core._xp import map_obs
from jaxvec.envs import BatchedEnv
from jaxvec.random import keys_from_seeds
from jaxvec.spaces import concatenate, create_empty_array, iterate
from jaxvec.typing import Action, Array, Obs, PyTree
from jaxvec.vec import VecEnv
from jaxvec.vec._convert import timestep_of_step


class _ColumnsVectorEnv(VectorEnv[Any, Any, Any]):
    """What both kinds share: spaces, and a timestep in gymnasium's words."""

    def _describe(
        self, num_envs: int, observation_space: Any, action_space: Any, mode: AutoresetMode
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space = observation_space
        self.single_action_space = action_space
        self.observation_space = batch_space(observation_space, num_envs)
        self.action_space = batch_space(action_space, num_envs)
        self.metadata = {**self.metadata, "autoreset_mode": mode}

    def _reset_mask(self, options: dict[str, Any]) -> Array | None:
        """Takes the mask out of the options, as gymnasium's own vector environments read it."""
        mask = options.pop("reset_mask", None)
        if mask is None:
            return None
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(
                f"reset: options['reset_mask']={mask!r}; it must be a NumPy array of bool."
            )
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(
                f"reset: options['reset_mask']={mask!r}; it must have shape ({self.num_envs},) and hold "
                "for at least one environment."
            )
        return mask

    def _add_columns(self, infos: dict[str, Any], columns: dict[str, Any], mask: Array) -> None:
        """Puts columns `[N, ...]`, and dicts of such, into gymnasium's infos where the mask holds."""
        for key, column in columns.items():
            if isinstance(column, dict):
                inner: dict[str, Any] = infos.setdefault(key, {})
                self._add_columns(inner, column, mask)
            else:
                infos[key] = np.asarray(column)
            infos[f"_{key}"] = mask.copy()

    def _add_ended(self, infos: dict[str, Any], timestep: Timestep) -> dict[str, Any]:
        """Puts the last observations of the rows that ended into infos."""
        if timestep.final_rows is None:
            return infos
        rows = timestep.final_rows.tolist()
        finals = np.full(self.num_envs, None, dtype=object)
        last = list(
            iterate(batch_space(self.single_observation_space, len(rows)), timestep.final_obs)
        )
        for place, row in enumerate(rows):
            finals[row] = last[place]
        mask = np.zeros(self.num_envs, bool)
        mask[rows] = True
        return {**infos, "final_obs": finals, "_final_obs": mask}


class VecEnvVectorEnv(_ColumnsVectorEnv):
    """A VecEnv as a gymnasium VectorEnv, which resets in the step that ends an episode.

    Args:
      venv: N environments with SB3's interface. `unwrapped_venv` gives it back.
    """

    def __init__(self, venv: Any) -> None:
        self.venv = venv
        self.metadata = dict(venv.metadata)
        self.render_mode = venv.render_mode
        self._describe(
            venv.num_envs, venv.observation_space, venv.action_space, AutoresetMode.SAME_STEP
        )

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Obs, dict[str, Any]]:
        """Resets all environments, or those of `options["reset_mask"]`.

        Args:
          seed: of the first environment; the others follow. A list must say the same.
          options: "reset_mask", bool `[N]`; all else goes to the environments.
        """
        rest = dict(options or {})
        mask = self._reset_mask(rest)
        if seed is not None:
            self.venv.seed(_first_seed(seed, self.num_envs))
        if rest:
            self.venv.set_options(rest)
        rows = () if mask is None else (np.flatnonzero(mask).tolist(),)
        obs = self.venv.reset(*rows)
        infos: dict[str, Any] = {}
        for row, info in enumerate(self.venv.reset_infos):
            if info and (mask is None or mask[row]):
                infos = self._add_info(infos, dict(info), row)
        return obs, infos

    def step(self, actions: Action) -> tuple[Obs, Array, Array, Array, dict[str, Any]]:
        """Steps all environments; what ended an episode is in `infos["final_obs"]` and `["final_info"]`."""
        if isinstance(self.venv, VecEnv):
            timestep = self.venv.step_arrays(actions)
        else:
            timestep = timestep_of_step(*self.venv.step(actions))
        done = np.asarray(timestep.done)
        infos: dict[str, Any] = {}
        final_info: dict[str, Any] = {}
        columns = jax.tree.map(np.asarray, timestep.info)
        if columns:
            self._add_columns(infos, columns, ~done)
            self._add_columns(final_info, columns, done)
        for row, info in enumerate(timestep.rows or []):
            if info and done[row]:
                kept = {key: each for key, each in info.items() if key not in _SB3_ONLY}
                final_info = self._add_info(final_info, kept, row)
            elif info:
                kept = {key: each for key, each in info.items() if key not in _SB3_ONLY}
                infos = self._add_info(infos, kept, row)
        if 1 in done.tobytes():
            for row in np.flatnonzero(done).tolist():
                infos = self._add_info(infos, dict(self.venv.reset_infos[row]), row)
            infos = self._add_ended(infos, timestep)
            infos |= {"final_info": final_info, "_final_info": done.copy()}
        rewards = np.asarray(timestep.reward, np.float64)
        flags = np.array(timestep.terminated), np.array(timestep.truncated)
        return timestep.obs, rewards, *flags, infos

    def render(self) -> tuple[Any, ...] | None:
        """Returns a picture of each environment."""
        return None if self.render_mode is None else tuple(self.venv.get_images())

    def close_extras(self, **kwargs: Any) -> None:
        """Closes the environments."""
        self.venv.close()


class BatchedVectorEnv(_ColumnsVectorEnv):
    """N compiled environments as a gymnasium VectorEnv, in their own autoreset mode.

    Args:
      env: of `vectorize` or `wrap`.
    """

    def __init__(self, env: BatchedEnv) -> None:
        self.env = env
        self._step, self._reset = jax.jit(env.step), jax.jit(env.reset)
        self._reset_rows = jax.jit(env.reset_rows)
        self._state: PyTree = None
        if env.env is not None:
            self.metadata = dict(env.env.metadata)
        spec = env.spec
        self._describe(
            spec.num_envs, spec.observation_space, spec.action_space, spec.autoreset_mode
        )

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Obs, dict[str, Any]]:
        """Resets all environments, or those of `options["reset_mask"]`.

        Args:
          seed: of the first environment, or one for each; None draws them.
          options: "reset_mask", bool `[N]`; all else goes to the environments' own reset.
        """
        left = dict(options or {})
        mask = self._reset_mask(left)
        rest = left or None
        keys = keys_from_seeds(self._row_seeds(seed))
        if mask is None:
            self._state, timestep = self._reset(keys, rest)
            self._obs = self._host(timestep.obs)
            mask = np.ones(self.num_envs, bool)
        else:
            if self._state is None:
                raise RuntimeError(
                    "reset: some rows alone came, but none was reset yet; reset all."
                )
            self._state, timestep = self._reset_rows(self._state, mask, keys, rest)
            self._obs = map_obs(
                lambda new, old: np.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                self._host(timestep.obs),
                self._obs,
            )
        infos: dict[str, Any] = {}
        self._add_columns(infos, jax.tree.map(np.asarray, timestep.info), mask)
        return map_obs(np.copy, self._obs), infos

    def step(self, actions: Action) -> tuple[Obs, Array, Array, Array, dict[str, Any]]:
        """Steps all environments; in "SameStep" mode `infos["final_obs"]` has what ended an episode."""
        if self._state is None:
            raise RuntimeError("step: the environments were not reset yet; call reset() first.")
        self._state, timestep = self._step(self._state, actions)
        self._obs = self._host(timestep.obs)
        done = np.array(timestep.done)
        same_step = self.env.spec.autoreset_mode == AutoresetMode.SAME_STEP
        infos: dict[str, Any] = {}
        columns = jax.tree.map(np.asarray, timestep.info)
        self._add_columns(infos, columns, ~done if same_step else np.array(timestep.valid))
        if same_step and 1 in done.tobytes():
            rows = np.flatnonzero(done)
            opened = jax.tree.map(np.asarray, timestep.reset_info)
            for key, column in opened.items():
                infos[key] = _merged(infos.get(key), column, done)
                infos[f"_{key}"] = np.ones(self.num_envs, bool)
            final_obs = map_obs(lambda column: column[rows], self._host(timestep.final_obs))
            infos = self._add_ended(infos, timestep._replace(final_obs=final_obs, final_rows=rows))
            final_info: dict[str, Any] = {}
            self._add_columns(final_info, columns, done)
            infos |= {"final_info": final_info, "_final_info": done.copy()}
        rewards = np.asarray(timestep.reward, np.float64)
        flags = np.array(timestep.terminated), np.array(timestep.truncated)
        return map_obs(np.copy, self._obs), rewards, *flags, infos

    def _host(self, obs: Obs) -> Obs:
        """Returns observations as gymnasium has them: NumPy, in the dtypes of their space."""
        columns = map_obs(np.asarray, obs)
        rows = iterate(batch_space(self.single_observation_space, self.num_envs), columns)
        empty = create_empty_array(self.single_observation_space, self.num_envs)
        return concatenate(self.single_observation_space, list(rows), empty)

    def _row_seeds(self, seed: int | Sequence[int | None] | None) -> list[int]:
        if isinstance(seed, int | np.integer):
            return [int(seed) + row for row in range(self.num_envs)]
        seeds: list[int | None] = list(seed) if seed is not None else [None] * self.num_envs
        if len(seeds) != self.num_envs:
            raise ValueError(
                f"reset: {len(seeds)} seeds came for {self.num_envs} environments; give one each."
            )
        drawn = self.np_random.integers(2**31, size=self.num_envs).tolist()
        return [drawn[row] if each is None else each for row, each in enumerate(seeds)]


_SB3_ONLY = ("TimeLimit.truncated", "terminal_observation")


def _first_seed(seed: int | Sequence[int | None], num_envs: int) -> int:
    if isinstance(seed, int | np.integer):
        return int(seed)
    seeds = list(seed)
    if not seeds or seeds[0] is None or seeds != [seeds[0] + row for row in range(num_envs)]:
        raise ValueError(
            f"reset: seed={seeds}, but a VecEnv seeds its environments one after the other: give the "
            f"first one alone, or {num_envs} neighbouring ones."
        )
    return int(seeds[0])


def _merged(stepped: Any, opened: Any, done: Array) -> Any:
    """Returns the columns of a step, with those of the resets where episodes ended."""
    if isinstance(opened, dict):
        merged = {key: _merged((stepped or {}).get(key), opened[key], done) for key in opened}
        return merged | {f"_{key}": np.ones(len(done), bool) for key in opened}
    return np.where(done.reshape(-1, *[1] * (opened.ndim - 1)), opened, stepped)
