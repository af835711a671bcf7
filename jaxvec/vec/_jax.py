"""`JaxVecEnv`: environments that JAX steps, on Stable-Baselines3's face."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from jaxvec.core._transform import Timestep, Transform
from jaxvec.core._xp import check_one_of, map_obs
from jaxvec.envs import BatchedEnv
from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.random import bits_rows, row_words_from_seeds
from jaxvec.typing import Action, Array, Obs, PyTree
from jaxvec.vec._actions import Check, action_check
from jaxvec.vec._base import ColumnVecEnv, SeedMode
from jaxvec.vec._call import Results
from jaxvec.vec._convert import StepReturn
from jaxvec.vec._fused import Fusable, Run
from jaxvec.vec._indices import Indices
from jaxvec.vec._jax_edge import (
    Output,
    check_info_keys,
    hand_of,
    merged_rows,
    option_arrays,
    same_tree,
)
from jaxvec.vec._packing import Layout, Packed
from jaxvec.vec._program import Groups, Program

_FIRST_WORD, _SECOND_WORD = 0x72657365, 0x74206B65
"""Salts of the two words of a later episode's key."""


class JaxVecEnv(Fusable, ColumnVecEnv):
    """N environments that JAX steps, as SB3's VecEnv.

    Layers above it (`VecNormalize`, `VecFrameStack`, `VecMonitor`, any `VecTransform`) run in the same
    compiled call. An environment draws its random numbers from its own seed, so that its trace depends
    neither on N nor on its place.

    Args:
      env: the environments, of `vectorize` (autoreset_mode "SameStep").
      seed: of the first reset, as if by `seed(seed)`, unless another one is set until then.
      output: what observations, rewards and dones are: "numpy" arrays, which the caller may write into;
        "jax" arrays, which stay on the device; or "torch" tensors, which share the device's memory.
      info_keys: the entries of the environment's own info that infos show.
      render_mode: "rgb_array", "human", or None.

    Raises:
      TypeError: if `env` is no BatchedEnv.
      ValueError: if an option does not exist, or the environments are reset in another mode.
      KeyError: if there is no such entry of the info.
    """

    _passes = True
    _reset_info: dict[str, PyTree]

    def __init__(
        self,
        env: BatchedEnv,
        seed: int = 0,
        *,
        output: Output = "numpy",
        info_keys: Sequence[str] = (),
        render_mode: str | None = None,
    ) -> None:
        check_one_of("JaxVecEnv", "output", output, ("numpy", "jax", "torch"))
        if not isinstance(env, BatchedEnv):
            raise TypeError(
                f"JaxVecEnv: env is of type {type(env).__name__}, but N environments are needed: pass "
                "jaxvec.vectorize(env, num_envs)."
            )
        if env.spec.autoreset_mode != AutoresetMode.SAME_STEP:
            raise ValueError(
                f"JaxVecEnv: the environments have autoreset_mode={env.spec.autoreset_mode}, but a VecEnv "
                "shows a new episode's first observation in the step that ended the old one: vectorize "
                "them with 'SameStep'."
            )
        self._env = env
        self._wanted_mode = render_mode
        self._info_keys = tuple(info_keys)
        self._hand = hand_of(output)
        self._programs: dict[Any, Program] = {}
        self._packed: Packed | None = None
        self._pending: tuple[Run, Results] | None = None
        self._latest: tuple[Run, Results | Obs] | None = None
        self._closed = False
        self._words = row_words_from_seeds([seed + row for row in range(env.spec.num_envs)])
        self._resets = np.full(env.spec.num_envs, -1)
        self._run: Run = Run(self, ())
        if info_keys:
            check_info_keys(env, self._info_keys)
        super().__init__(env.spec.num_envs, env.spec.observation_space, env.spec.action_space)

    @property
    def waiting(self) -> bool:
        """Whether a step is pending."""
        return self._pending is not None

    def step_async(self, actions: Action) -> None:
        """Checks the actions, hands them to the device, and returns; see `VecEnv.step_async`.

        Raises:
          TypeError: if the actions are of the wrong kind.
          ValueError: if they have the wrong shape, lie outside the action space, or are not finite.
          AlreadyPendingError: if a step is pending already. In all these cases nothing is stepped.
        """
        self._run.step_async(actions)

    def step_wait(self) -> StepReturn:
        """Finishes the step that was started; see `VecEnv.step_wait`."""
        return self._run.wait()

    def reset(self, indices: Indices = None) -> Obs:
        """Resets all environments, or some; see `ColumnVecEnv.reset`.

        An environment that got no seed goes on drawing from its last one.
        """
        return self._run.reset(indices)[0]

    def wait_arrays(self) -> Timestep:
        """Finishes the pending step, and returns columns: what a layer on NumPy calls."""
        return self._wait_columns()

    def reset_arrays(self, indices: Indices = None) -> Timestep:
        """Resets, and returns columns: what a layer on NumPy calls."""
        return self._reset_columns(indices)

    def _wait_columns(self) -> Timestep:
        return self._run.wait_arrays()

    def _reset_columns(self, indices: Indices) -> Timestep:
        return self._run.reset_arrays(indices)

    def seed(
        self, seed: int | None = None, *, mode: SeedMode = "sequential"
    ) -> Sequence[int | None]:
        """Sets the seeds of the next reset; see `VecEnv.seed`. They must be 0 or more, below 2**64."""
        old = self._seeds
        seeds = super().seed(seed, mode=mode)
        try:
            row_words_from_seeds([each for each in seeds if each is not None])
        except (TypeError, ValueError):
            self._seeds = old
            raise
        return seeds

    def close(self) -> None:
        """Gives back what the environments hold."""
        self._closed = True
        self._pending = self._latest = self._packed = None
        self._programs.clear()

    # What follows is for the run that is stepped, and for layers.

    def _program_of(self, transforms: tuple[Transform, ...], reads: Any) -> Program:
        """Returns the compiled functions of these layers; they are kept."""
        key = transforms, reads
        if key not in self._programs:
            self._programs[key] = Program(self._env, transforms, reads, self._info_keys, self._hand)
        return self._programs[key]

    def _check_of(self, space: spaces.Space[Any]) -> Check:
        return action_check(space, self.num_envs)

    def _packed_state(self, state: PyTree) -> Packed:
        """Returns the state of a layer as a run keeps it."""
        return Packed.holding(state)

    @property
    def reset_infos(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The info of each environment's last reset: N dicts with the entries of `info_keys`."""
        return [
            map_obs(lambda column, row=row: column[row], self._reset_info)
            for row in range(self.num_envs)
        ]

    def _check_can_step(self) -> None:
        if self._pending is not None:
            raise AlreadyPendingError(
                "JaxVecEnv.step_async: a step is pending already; finish it with step_wait() first. "
                "Nothing was stepped."
            )
        if self._packed is None:
            self._check_open()
            raise RuntimeError(
                "JaxVecEnv.step_async: the environments have not been reset; call reset() first."
            )

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("JaxVecEnv: it was closed; make a new one.")

    def _take(self, run: Run) -> Results:
        """Returns what the pending step has shown, to the run that started it."""
        if self._pending is None:
            raise NotPendingError(
                "JaxVecEnv: step_wait() was called, but no step is pending; call step_async(actions) "
                "first."
            )
        started, results = self._pending
        if started is not run:
            raise NotPendingError(
                "JaxVecEnv: step_wait() was called on another layer than step_async(). A compiled step is "
                "that of all layers at once: finish it where it was started."
            )
        self._pending = None
        self._latest = run, results
        return results

    def _drop(self) -> None:
        """Drops a pending step: its results are not wanted, its states are those of now."""
        self._check_open()
        if self._pending is not None:
            self._take(self._pending[0])

    def _ensure_started(self) -> None:
        """Makes the environments, by a reset of all of them."""
        if self._packed is None:
            self._run.reset()

    def _begin(self, layout: Layout) -> None:
        """Makes room for the environments' state."""
        self._packed = Packed(layout)

    def _next_resets(self, indices: Indices) -> tuple[Array, Array, Groups]:
        """Returns which rows are reset, the words of their keys, and the options; uses these up.

        Returns:
          Bool `[N]`; uint32 `[N, 2]`, to be read where that holds; and which of these rows get which options.
        """
        rows = np.array(list(dict.fromkeys(self._get_indices(indices))), int)
        mask = np.zeros(self.num_envs, bool)
        mask[rows] = True
        options = self._grouped_options(rows)
        seeded = [row for row in rows.tolist() if self._seeds[row] is not None]
        if seeded:
            self._words[seeded] = row_words_from_seeds([self._seeds[row] for row in seeded])
        self._resets[rows] += 1
        self._resets[seeded] = 0
        later = [bits_rows(self._words, self._resets, salt) for salt in (_FIRST_WORD, _SECOND_WORD)]
        keys = np.where((self._resets == 0)[:, None], self._words, np.stack(later, axis=-1))
        self._seeds = [None if used else seed for used, seed in zip(mask, self._seeds, strict=True)]
        self._options = [
            {} if used else each for used, each in zip(mask, self._options, strict=True)
        ]
        return mask, keys, options

    def _grouped_options(self, rows: Array) -> Groups:
        """Returns pairs of rows, bool `[N]`, and the options that these get; the rows are `rows` in all."""
        if len(self._options) != self.num_envs:
            raise IndexError(
                f"reset: set_options got options for {len(self._options)} environments, but there are "
                f"{self.num_envs}; give one dict for all, or one for each."
            )
        groups: list[tuple[Array, Any]] = []
        for row in rows.tolist():
            options = option_arrays(self._options[row])
            for mask, other in groups:
                if same_tree(options, other):
                    mask[row] = True
                    break
            else:
                mask = np.zeros(self.num_envs, bool)
                mask[row] = True
                groups.append((mask, options))
        return tuple(groups)

    def _last_obs(self, run: Run) -> Obs:
        """Returns what a run has shown last, for the rows that a reset leaves alone."""
        if self._latest is None or self._latest[0] is not run:
            raise RuntimeError(
                "JaxVecEnv.reset(indices): the other environments were last stepped through another "
                "layer, so that their observations are not known to this one. Reset all through it first."
            )
        latest = self._latest[1]
        return latest.handed_out()[0] if isinstance(latest, Results) else latest

    def _after_opening(self, run: Run, results: Results, mask: Array, old: Obs | None) -> Obs:
        """Returns the observations of all rows after a reset, and keeps its infos."""
        obs = results.handed_out()[0]
        if old is not None:
            obs = map_obs(partial(merged_rows, mask), obs, old)
        self._latest = run, obs if self._hand else map_obs(np.copy, obs)
        self._keep_reset_infos(results, mask)
        return obs

    def _keep_reset_infos(self, results: Results, mask: Array) -> None:
        """Keeps what resets told of the rows where the mask holds."""
        if not (self._info_keys and mask.any()):
            return
        new = {key: map_obs(np.asarray, each) for key, each in results.reset_info().items()}
        old = self._reset_info or new
        self._reset_info = map_obs(partial(merged_rows, mask), new, old)

    def _clear_reset_infos(self) -> None:
        self._reset_info = {}

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each environment."""
        if attr_name == "render_mode":
            return [self._wanted_mode for _ in self._get_indices(indices)]
        raise AttributeError(attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        raise AttributeError(attr_name)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        raise AttributeError(method_name)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Tells for each environment whether it is wrapped by a class."""
        return [False for _ in self._get_indices(indices)]
