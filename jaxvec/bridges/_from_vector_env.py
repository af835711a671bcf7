"""Gymnasium's vector environments as VecEnvs."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from jaxvec.core._arguments import check_one_of
from jaxvec.core._transform import Timestep
from jaxvec.core._xp import map_obs
from jaxvec.errors import AlreadyPendingError, NotPendingError
from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._base import ColumnVecEnv, Where
from jaxvec.vec._convert import everywhere, opened, rows_of, stack_rows
from jaxvec.vec._indices import Indices


def mode_of(env: Any, given: AutoresetMode | str | None) -> AutoresetMode:
    """Returns when a vector environment resets: as given, as its metadata say, or in the next step."""
    if given is None:
        given = (getattr(env, "metadata", None) or {}).get("autoreset_mode")
    if given is None:
        return AutoresetMode.NEXT_STEP
    if not isinstance(given, AutoresetMode):
        modes = [mode.value for mode in AutoresetMode]
        check_one_of("from_vector_env", "autoreset_mode", given, modes)
    return AutoresetMode(given)


class VectorVecEnv(ColumnVecEnv):
    """A vector environment as a VecEnv.

    Args:
      env: the vector environment.
      mode: when it resets.
    """

    def __init__(self, env: Any, mode: AutoresetMode) -> None:
        self.env, self.mode = env, mode
        prefix = "" if getattr(env, "single_action_space", None) is None else "single_"
        self._pending: Action | None = None
        super().__init__(
            env.num_envs,
            getattr(env, f"{prefix}observation_space"),
            getattr(env, f"{prefix}action_space"),
        )

    def step_async(self, actions: Action) -> None:
        """Starts a step; see `VecEnv.step_async`.

        Raises:
          AlreadyPendingError: if a step is pending already.
        """
        if self._pending is not None:
            raise AlreadyPendingError(
                "from_vector_env: a step is pending already; finish it with step_wait() first."
            )
        self._start(actions)
        self._pending = actions

    def _start(self, actions: Action) -> None:
        start = getattr(self.env, "step_async", None)
        if start is not None:
            start(actions)

    def _wait_columns(self) -> Timestep:
        obs, reward, terminated, truncated, infos = self._stepped()
        terminated = np.array(terminated, bool)
        truncated = np.array(truncated, bool) & ~terminated
        done = terminated | truncated
        final_obs, final_rows = None, None
        finals = None
        if 1 in done.tobytes():
            final_rows = np.flatnonzero(done)
            if self.mode == AutoresetMode.SAME_STEP:
                final_obs = _last_of(infos["final_obs"], final_rows)
                finals = infos.get("final_info", infos)
                self._keep_reset_infos(infos, done)
            else:
                final_obs = map_obs(np.copy, rows_of(obs, final_rows))
                obs, finals, infos = self._with_resets(obs, done), infos, infos
        return Timestep(
            obs=obs,
            reward=np.asarray(reward),
            terminated=terminated,
            truncated=truncated,
            valid=everywhere(self.num_envs),
            first=done,
            final_obs=final_obs,
            final_rows=final_rows,
            rows=InfoRows(infos, finals, done),
        )

    def _stepped(self) -> Any:
        if self._pending is None:
            raise NotPendingError(
                "from_vector_env: no step is pending; call step_async(actions) first."
            )
        actions, self._pending = self._pending, None
        return self._finish(actions)

    def _finish(self, actions: Action) -> Any:
        if getattr(self.env, "step_async", None) is not None:
            return self.env.step_wait()
        return self.env.step(actions)

    def _with_resets(self, obs: Obs, done: Array) -> Obs:
        """Resets the rows that ended, and returns their first observations among the others'."""
        opening, infos = self._reset_rows(done, None, None)
        self._keep_reset_infos(infos, done)

        def merged(old: Any, new: Any) -> Any:
            column = np.array(old)
            column[done] = new[done]
            return column

        return map_obs(merged, obs, opening)

    def _reset_rows(
        self, mask: Array, seeds: list[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[Obs, Any]:
        chosen: Any = None
        if seeds is not None:
            chosen = seeds
            if getattr(self.env, "ale", None) is not None:  # one for each row that is reset
                chosen = np.array(
                    [each for each, is_reset in zip(seeds, mask, strict=True) if is_reset]
                )
        full: Any = self.env.reset(
            seed=chosen, options={**(options or {}), "reset_mask": np.array(mask)}
        )
        return full[0], full[1]

    def _reset_columns(self, indices: Indices) -> Timestep:
        if self._pending is not None:
            self._stepped()
        rows = list(dict.fromkeys(self._get_indices(indices)))
        mask = np.zeros(self.num_envs, bool)
        mask[rows] = True
        seeds = self._seeds if any(each is not None for each in self._seeds) else None
        options = next((each for each in self._options if each), None)
        if not mask.all():
            obs, infos = self._reset_rows(mask, seeds, options)
        else:
            obs, infos = self._reset_all(seeds, options)
        self._reset_seeds()
        self._reset_options()
        self._keep_reset_infos(infos, mask)
        return opened(obs, mask, list(self.reset_infos))

    def _reset_all(
        self, seeds: list[int | None] | None, options: dict[str, Any] | None
    ) -> tuple[Obs, Any]:
        seed: Any = seeds
        if seeds is not None and getattr(self.env, "ale", None) is not None:
            seed = np.array(seeds)
        full: Any = self.env.reset(seed=seed, options=options)
        return full[0], full[1]

    def _keep_reset_infos(self, infos: Any, mask: Array) -> None:
        read = InfoRows(infos, None, np.zeros(self.num_envs, bool))
        for row in np.flatnonzero(mask).tolist():
            self.reset_infos[row] = read[row]

    def close(self) -> None:
        """Closes the vector environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each environment, by its `get_attr` where there is one."""
        rows = list(self._get_indices(indices))
        if attr_name == "render_mode":
            return [getattr(self.env, "render_mode", None) for _ in rows]
        each = getattr(self.env, "get_attr", None)
        if each is None:
            return [getattr(self.env, attr_name) for _ in rows]
        values = each(attr_name)
        return [values[row] for row in rows]

    def set_attr(
        self, attr_name: str, value: Any, indices: Indices = None, *, where: Where = "outermost"
    ) -> None:
        """Sets an attribute of each environment, where the vector environment can; see `VecEnv.set_attr`."""
        del where
        rows = list(self._get_indices(indices))
        if rows == list(range(self.num_envs)):
            self.env.set_attr(attr_name, [value] * self.num_envs)
            return
        values = list(self.env.get_attr(attr_name))
        for row in rows:
            values[row] = value
        self.env.set_attr(attr_name, values)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of each environment.

        Raises:
          NotImplementedError: if some environments alone were meant: the vector environment's `call`
            calls all.
        """
        rows = list(self._get_indices(indices))
        if rows != list(range(self.num_envs)):
            raise NotImplementedError(
                f"from_vector_env: env_method({method_name!r}) for rows {rows} alone, but a vector "
                "environment calls all. Leave indices out."
            )
        return list(self.env.call(method_name, *method_args, **method_kwargs))

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Tells for each environment whether it is wrapped by a class: nobody can say, so False."""
        del wrapper_class
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[Array | None]:
        """Returns what each environment renders."""
        pictures = self.env.render()
        return [None] * self.num_envs if pictures is None else list(pictures)


class InfoRows(Sequence[dict[str, Any]]):
    """Gymnasium's columns of infos as N dicts, each made when it is read.

    Args:
      infos: columns, each with a mask of the rows that have it under its name with a `_` before;
        without a mask all rows have it.
      finals: the columns of the rows that ended; None where no row did.
      done: bool `[N]`.
    """

    def __init__(self, infos: dict[str, Any], finals: dict[str, Any] | None, done: Array) -> None:
        self._infos, self._finals, self._done = infos, finals, done

    def __len__(self) -> int:
        return len(self._done)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[each] for each in range(len(self))[row]]
        row = range(len(self))[row]
        ended = self._finals is not None and self._done[row]
        return _row_of((self._finals or {}) if ended else self._infos, row, len(self))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[row] for row in range(len(self)))


_NOT_OF_A_ROW = ("final_obs", "final_info", "final_observation")


def _row_of(infos: dict[str, Any], row: int, num_envs: int) -> dict[str, Any]:
    found = {}
    for key, column in infos.items():
        mask = infos.get(f"_{key}")
        hidden = key in _NOT_OF_A_ROW or (key.startswith("_") and key[1:] in infos)
        if hidden or (mask is not None and not mask[row]):
            continue
        if isinstance(column, dict):
            found[key] = _row_of(column, row, num_envs)
        elif isinstance(column, np.ndarray | list | tuple) and len(column) == num_envs:
            found[key] = column[row]
    return found


def _last_of(finals: Any, rows: Array) -> Obs:
    """Returns the last observations `[F, *D]` of rows: gymnasium has objects `[N]`, ale-py one array."""
    if isinstance(finals, np.ndarray) and finals.dtype != object:
        return finals[rows]
    return stack_rows([finals[row] for row in rows.tolist()])
