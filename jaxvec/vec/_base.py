"""`VecEnv`: Stable-Baselines3's face, and the columns beneath it.

There are two ways to be a VecEnv. SB3's: override `reset`, `step_async` and `step_wait`; the layers above
get columns that are made of the tuple. jaxvec's own (`ColumnVecEnv`): write `_reset_columns` and
`_wait_columns`; SB3's tuple is made once, for the outermost caller. A class that overrides SB3's methods
below one of the second kind is read by SB3's methods again, so that no layer passes it by.
"""

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal, Self

import numpy as np
from gymnasium.spaces import Space

from jaxvec.core._arguments import check_one_of
from jaxvec.core._transform import Timestep
from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._convert import (
    StepReturn,
    rows_of,
    step_return,
    timestep_of_reset,
    timestep_of_step,
)
from jaxvec.vec._indices import Indices, row_indices
from jaxvec.vec._sb3 import RegistersItself
from jaxvec.vec._utils import SeedMode, seeds_of_rows, show, tile_images

Where = Literal["outermost", "unwrapped"]


class VecEnv(RegistersItself):
    """N environments that are stepped as one.

    Args:
      num_envs: N.
      observation_space: of one environment.
      action_space: of one environment.

    Attributes:
      reset_infos: the info of each environment's last reset, N dicts.
      render_mode: the one of all environments.
      metadata: `{"render_modes": [...]}`.
    """

    num_envs: int
    reset_infos: list[dict[str, Any]]
    metadata: dict[str, Any]

    def __init__(
        self, num_envs: int, observation_space: Space[Any], action_space: Space[Any]
    ) -> None:
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self._clear_reset_infos()
        self._reset_seeds()
        self._reset_options()
        self.render_mode = self._common_render_mode()
        modes = ["human", "rgb_array"] if self.render_mode == "rgb_array" else [self.render_mode]
        self.metadata = {"render_modes": modes if self.render_mode is not None else []}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A subclass in SB3's style changes what a step or a reset returns, whatever its parent's
        # columns say: from here on the columns are made of what these methods return.
        own = vars(cls)
        if "step_wait" in own and "wait_arrays" not in own:
            cls.wait_arrays = VecEnv.wait_arrays  # type: ignore[method-assign]
        if "reset" in own and "reset_arrays" not in own:
            cls.reset_arrays = VecEnv.reset_arrays  # type: ignore[method-assign]

    def _clear_reset_infos(self) -> None:
        self.reset_infos = [{} for _ in range(self.num_envs)]

    def _reset_seeds(self) -> None:
        """Forgets the seeds for the next reset."""
        self._seeds: list[int | None] = [None] * self.num_envs

    def _reset_options(self) -> None:
        """Forgets the options for the next reset."""
        self._options: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]

    def _common_render_mode(self) -> str | None:
        try:
            modes = self.get_attr("render_mode")
        except AttributeError:
            warnings.warn(
                "The `render_mode` attribute is not defined in your environment. It will be set to None.",
                stacklevel=3,
            )
            return None
        assert all(mode == modes[0] for mode in modes), (
            f"render_mode must be the same for all environments, but they have {modes}"
        )
        mode: str | None = modes[0]
        return mode

    @abstractmethod
    def reset(self) -> Obs:
        """Resets all environments, with the seeds and options that were set for it.

        A step that is pending is finished first, and its result dropped.

        Returns:
          The first observations, `[N, *D]`; the infos are in `reset_infos`.
        """

    @abstractmethod
    def step_async(self, actions: Action) -> None:
        """Starts a step; `step_wait` returns what came of it.

        Args:
          actions: N of them, one for each environment.

        Raises:
          AlreadyPendingError: if a step is pending already.
        """

    @abstractmethod
    def step_wait(self) -> StepReturn:
        """Finishes the step that was started.

        Returns:
          `(obs, rewards, dones, infos)`. An environment whose episode ended was reset: `obs` shows the
          first observation of the next episode, `infos[i]["terminal_observation"]` the last one.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes all environments and gives back what they hold."""

    @abstractmethod
    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each environment, its wrappers searched from the outside in."""

    @abstractmethod
    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of each environment."""

    @abstractmethod
    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of each environment and returns the results."""

    @abstractmethod
    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Tells for each environment whether it is wrapped by a class."""

    def step(self, actions: Action) -> StepReturn:
        """Steps all environments; see `step_async` and `step_wait`."""
        self.step_async(actions)
        return self.step_wait()

    def reset_arrays(self, indices: Indices = None) -> Timestep:
        """Resets, and returns columns: what the layer above calls. See `ColumnVecEnv.reset`."""
        if indices is not None:
            raise NotImplementedError(
                f"{type(self).__name__} overrides `reset()` in SB3's style: it cannot reset the rows "
                f"{indices} alone. Reset all, or write it as a transform."
            )
        return timestep_of_reset(self.reset(), self.num_envs, getattr(self, "reset_infos", None))

    def wait_arrays(self) -> Timestep:
        """Finishes the pending step, and returns columns: what the layer above calls."""
        return timestep_of_step(*self.step_wait())

    def step_arrays(self, actions: Action) -> Timestep:
        """Steps, and returns columns."""
        self.step_async(actions)
        return self.wait_arrays()

    def send(self, actions: Action, indices: Indices = None) -> None:
        """Starts a step of some environments; `recv` returns those that are ready first."""
        raise self._knows_no_rows()

    def recv_arrays(self, min_envs: int | None = None) -> Timestep:
        """Waits for some of the environments sent; the rows that were ready are `valid`."""
        raise self._knows_no_rows()

    def _knows_no_rows(self) -> NotImplementedError:
        name = type(self).__name__
        return NotImplementedError(f"{name} cannot step single rows; use step_async and step_wait.")

    def recv(self, min_envs: int | None = None) -> tuple[Array, Obs, Array, Array, Any]:
        """Waits until some of the environments that were sent are ready.

        Args:
          min_envs: k, how many to wait for; None waits for all that were sent.

        Returns:
          `(indices, obs, rewards, dones, infos)` of the K >= k environments that are ready, in
          ascending order; the others stay under way.

        Raises:
          NotPendingError: if fewer than `min_envs` were sent.
        """
        timestep = self.recv_arrays(min_envs)
        ready = np.flatnonzero(np.asarray(timestep.valid))
        obs, rewards, dones, infos = step_return(timestep)
        rows = [infos[row] for row in ready]
        return ready, rows_of(obs, ready), rewards[ready], dones[ready], rows

    def has_attr(self, attr_name: str) -> bool:
        """Tells whether all environments have an attribute."""
        try:
            self.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    def get_images(self) -> Sequence[Array | None]:
        """Returns what each environment renders, `[H, W, C]`; see `render`."""
        raise NotImplementedError(f"{type(self).__name__} has no pictures to show.")

    def render(self, mode: str | None = None) -> Array | None:
        """Renders the environments.

        Args:
          mode: None for the mode that the environments were made with. "human" over "rgb_array" shows
            the picture in a window (OpenCV). Any other mode than theirs warns and does nothing.

        Returns:
          The tiled picture for "rgb_array"; None otherwise.
        """
        own = self.render_mode
        if mode and mode != own and not (mode == "human" and own == "rgb_array"):
            warnings.warn(
                f"render(mode={mode!r}): the environments were made with render_mode={own!r}, and "
                "gymnasium fixes the mode when an environment is made. Make them with that mode.",
                stacklevel=2,
            )
            return None
        mode = mode or own
        if mode is None:
            warnings.warn(
                "You tried to call render() but no `render_mode` was passed to the env constructor.",
                stacklevel=2,
            )
            return None
        if own != "rgb_array":
            self.env_method("render")
            return None
        picture = tile_images(self.get_images())
        if mode != "human":
            return picture
        show(picture)
        return None

    def seed(
        self, seed: int | None = None, *, mode: SeedMode = "sequential"
    ) -> Sequence[int | None]:
        """Sets the seeds of the next reset; nothing is reset now.

        Args:
          seed: of the first environment. None draws one from NumPy's global generator.
          mode: "sequential" gives environment i the seed `seed + i`, so that runs with neighbouring
            seeds share environments' seeds; "spawn" gives seeds that overlap with no other run's.

        Returns:
          The seeds, N of them.
        """
        check_one_of("seed", "mode", mode, ("sequential", "spawn"))
        if seed is None:
            # SB3's draw, from the global generator: np.random.seed makes it reproducible.
            seed = int(np.random.randint(0, np.iinfo(np.uint32).max, dtype=np.uint32))  # noqa: NPY002
        self._seeds = seeds_of_rows(seed, mode, self._row_numbers())
        return self._seeds

    def _row_numbers(self) -> Sequence[int]:
        """Returns the numbers of the environments, by which they are seeded."""
        return range(self.num_envs)

    def set_options(self, options: Sequence[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Sets the options of the next reset; each environment gets a copy of its own.

        Args:
          options: one dict for all, or N of them, or None for none.
        """
        self._options = self._options_of(options)

    def _options_of(
        self, options: Sequence[dict[str, Any]] | dict[str, Any] | None
    ) -> list[dict[str, Any]]:
        if options is None or isinstance(options, dict):
            return [deepcopy(options or {}) for _ in range(self.num_envs)]
        return [deepcopy(each) for each in options]

    @property
    def unwrapped(self) -> "VecEnv":
        """The VecEnv beneath all wrappers."""
        return self

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        """Returns the class whose attribute that of a wrapper above would hide; None if there is none."""
        if already_found and hasattr(self, name):
            return f"{type(self).__module__}.{type(self).__name__}"
        return None

    def _get_indices(self, indices: Indices) -> Iterable[int]:
        return row_indices(indices, self.num_envs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class ColumnVecEnv(VecEnv):
    """A VecEnv that speaks columns: SB3's methods are made of two that return a `Timestep`."""

    @abstractmethod
    def _reset_columns(self, indices: Indices) -> Timestep:
        """Resets these environments; the timestep's `first` holds where."""

    @abstractmethod
    def _wait_columns(self) -> Timestep:
        """Finishes the pending step."""

    def reset(self, indices: Indices = None) -> Obs:
        """Resets all environments, or some, with the seeds and options that were set for them.

        A step that is pending is finished first, and its result dropped; it may concern no other rows.

        Args:
          indices: which ones; None for all.

        Returns:
          The current observations of all N environments, `[N, *D]`: the first ones where it reset.
          The infos are in `reset_infos`.
        """
        return self._reset_columns(indices).obs

    def step_wait(self) -> StepReturn:
        """Finishes the step that was started; see `VecEnv.step_wait`."""
        return step_return(self._wait_columns())

    def reset_arrays(self, indices: Indices = None) -> Timestep:
        """Resets, and returns columns: what the layer above calls."""
        return self._reset_columns(indices)

    def wait_arrays(self) -> Timestep:
        """Finishes the pending step, and returns columns: what the layer above calls."""
        return self._wait_columns()
