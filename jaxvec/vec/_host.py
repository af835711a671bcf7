"""`HostVecEnv`: N classic gymnasium environments behind a pool, wherever they live."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxvec.core._arguments import check_one_of
from jaxvec.core._transform import Timestep
from jaxvec.core._xp import map_obs
from jaxvec.errors import AlreadyPendingError, NotPendingError
from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._base import ColumnVecEnv, Where
from jaxvec.vec._convert import action_rows, everywhere, opened
from jaxvec.vec._indices import Indices
from jaxvec.vec._pools import Pool
from jaxvec.vec._serve import Served, class_name
from jaxvec.vec._utils import has_pictures


class HostVecEnv(ColumnVecEnv):
    """N gymnasium environments behind a pool.

    Args:
      pool: where they live.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        super().__init__(pool.num_envs, pool.observation_space, pool.action_space)

    @property
    def waiting(self) -> bool:
        """Whether a step is pending."""
        return self._pool.pending in ("step", "rows")

    def step_async(self, actions: Action) -> None:
        """Starts a step; see `VecEnv.step_async`."""
        if self._pool.pending is not None:
            self._check_idle("step_async")
        self._pool.send("step", action_rows(actions, self.num_envs))

    def _wait_columns(self) -> Timestep:
        if self._pool.pending != "step":
            raise NotPendingError(
                f"{type(self).__name__}: step_wait() was called, but no step is pending; call "
                "step_async(actions) first."
            )
        served, columns = self._pool.recv(), self._pool.columns
        return self._timestep(
            served,
            everywhere(self.num_envs),
            columns.reward.copy(),
            columns.terminated.copy(),
            columns.truncated.copy(),
        )

    def send(self, actions: Action, indices: Indices = None) -> None:
        """Starts a step of some environments; those sent before may still be under way.

        Args:
          actions: one for each of `indices`.
          indices: which ones; None for all. None of them may be under way.

        Raises:
          AlreadyPendingError: if one of them is under way, or a step is pending; nothing is sent then.
          ValueError: if there are not as many actions as environments; nothing is sent then.
        """
        if self._pool.pending == "step":
            self._check_idle("send")
        rows = list(self._get_indices(indices))
        busy = sorted(set(rows) & set(self._pool.rows_under_way))
        if busy or len(set(rows)) != len(rows):
            raise AlreadyPendingError(
                f"{type(self).__name__}.send: the environments {busy or rows} are under way already, or "
                "named twice; take them back by recv() first. Nothing was sent."
            )
        checked = action_rows(actions, len(rows))
        if rows:
            self._pool.send("rows", (rows, checked))

    def recv_arrays(self, min_envs: int | None = None) -> Timestep:
        """Waits for some of the environments that were sent; see `recv`.

        Returns:
          The columns of all N; `valid` holds where a row was ready, the others stand still.
        """
        under_way = len(self._pool.rows_under_way)
        if under_way < max(min_envs or 0, 1) or (min_envs is not None and min_envs < 1):
            raise NotPendingError(
                f"{type(self).__name__}.recv: min_envs={min_envs}, but {under_way} environments are under "
                "way; send actions first, and ask for 1 to as many."
            )
        served = self._pool.recv(min_envs)
        valid = np.zeros(self.num_envs, bool)
        valid[list(served.rows)] = True
        columns = self._pool.columns
        return self._timestep(
            served,
            valid,
            np.where(valid, columns.reward, np.float32(0)),
            columns.terminated & valid,
            columns.truncated & valid,
        )

    def _timestep(
        self, served: Served, valid: Array, reward: Array, terminated: Array, truncated: Array
    ) -> Timestep:
        """Returns the timestep of a step that the pool has served, its observations copied."""
        columns = self._pool.columns
        done = terminated | truncated
        final_obs, final_rows = None, None
        if 1 in done.tobytes():  # a tenth of what `any` costs
            final_rows = np.flatnonzero(done)
            final_obs = map_obs(lambda column: column[final_rows], columns.final)
            for row in final_rows.tolist():
                self.reset_infos[row] = served.reset_infos.get(row, {})
        return Timestep(
            obs=self._obs(),
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            first=done,
            final_obs=final_obs,
            final_rows=final_rows,
            rows=[served.infos.get(row) for row in range(self.num_envs)] if served.infos else None,
        )

    def _obs(self) -> Obs:
        obs = self._pool.columns.obs
        if type(obs) is np.ndarray:
            return obs.copy()
        if isinstance(obs, dict):
            return OrderedDict((key, column.copy()) for key, column in obs.items())
        return map_obs(np.copy, obs)

    def _reset_columns(self, indices: Indices = None) -> Timestep:
        rows = list(dict.fromkeys(self._get_indices(indices)))
        under_way = (
            range(self.num_envs) if self._pool.pending == "step" else self._pool.rows_under_way
        )
        lost = sorted(set(under_way) - set(rows))
        if lost:
            raise AlreadyPendingError(
                f"{type(self).__name__}.reset: the environments {lost} are being stepped and not to be "
                "reset: what their step led to would be lost. Finish it by recv() (or step_wait()) first. "
                "Nothing was sent."
            )
        if len(self._options) <= max(rows, default=-1):
            raise IndexError(
                f"reset: set_options got options for {len(self._options)} environments, but there are "
                f"{self.num_envs}; give one dict for all, or one for each. Nothing was reset."
            )
        self._pool.drop()
        self._pool.send("reset", [(row, self._seeds[row], self._options[row]) for row in rows])
        served: Served = self._pool.recv()
        self._forget_seeds_and_options(rows)
        for row in rows:
            self.reset_infos[row] = served.reset_infos.get(row, {})
        first = np.zeros(self.num_envs, bool)
        first[rows] = True
        return opened(self._obs(), first, list(self.reset_infos))

    def _forget_seeds_and_options(self, rows: Sequence[int]) -> None:
        """Each is used once. The lists are new ones: `seed` handed the old one out."""
        used = set(rows)
        self._seeds = [None if row in used else seed for row, seed in enumerate(self._seeds)]
        self._options = [
            {} if row in used else options for row, options in enumerate(self._options)
        ]

    def _check_idle(self, what: str) -> None:
        if self._pool.pending is not None:
            raise AlreadyPendingError(
                f"{type(self).__name__}.{what}: a step is pending already; finish it with step_wait() "
                "(or recv()) first. Nothing was sent."
            )

    def set_options(
        self,
        options: Sequence[dict[str, Any]] | dict[str, Any] | None = None,
        *,
        sticky: bool = False,
    ) -> None:
        """Sets the options of the next reset; each environment gets a copy of its own.

        Args:
          options: one dict for all, or N of them, or None for none.
          sticky: use them at every reset from now on, the automatic ones included, until they are set
            anew (None ends it). SB3 uses them once, at the next explicit reset.
        """
        if not sticky:
            super().set_options(options)
            return
        each = self._options_of(options)
        if len(each) != self.num_envs:
            raise ValueError(
                f"set_options: {len(each)} dicts for {self.num_envs} environments; give one dict for all, "
                "or one for each."
            )
        self._request("sticky", dict(enumerate(each)), "set_options")

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each environment, its wrappers searched from the outside in."""
        return self._ask("get_attr", indices, attr_name)

    def has_attr(self, attr_name: str) -> bool:
        """Tells whether all environments have an attribute."""
        return all(self._ask("has_attr", None, attr_name))

    def set_attr(
        self, attr_name: str, value: Any, indices: Indices = None, *, where: Where = "outermost"
    ) -> None:
        """Sets an attribute of each environment.

        Args:
          attr_name: of the attribute.
          value: the same for all.
          indices: which environments; None for all.
          where: on the "outermost" wrapper, as SB3 does (the environment inside does not see it), or on
            the "unwrapped" environment.
        """
        check_one_of("set_attr", "where", where, ("outermost", "unwrapped"))
        self._ask("set_attr", indices, attr_name, value, where)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of each environment and returns the results."""
        return self._ask("env_method", indices, method_name, method_args, method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Tells for each environment whether it is wrapped by a class.

        The class is looked for by name: it need not be importable where the environments live.
        """
        return self._ask("is_wrapped", indices, class_name(wrapper_class))

    def get_images(self) -> Sequence[Array | None]:
        """Returns what each environment renders, `[H, W, C]`; None each where the mode is another."""
        if not has_pictures(self):
            return [None] * self.num_envs
        return self._ask("render", None)

    def _ask(self, name: str, indices: Indices, *arguments: Any) -> list[Any]:
        requests = [(row, arguments) for row in self._get_indices(indices)]
        answers: list[Any] = self._request("ask", (name, requests), name)
        return answers

    def _request(self, command: str, payload: Any, what: str) -> Any:
        if self._pool.concurrent and self._pool.pending in ("step", "rows"):
            self._check_idle(what)
        return self._pool.request(command, payload)

    def close(self, *, timeout: float = 5.0) -> None:
        """Closes all environments and gives back what they hold.

        Args:
          timeout: seconds; what has not ended by then is killed.
        """
        self._pool.close(timeout)
