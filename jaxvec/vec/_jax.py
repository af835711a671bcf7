"""`JaxVecEnv`: environments that JAX steps, on Stable-Baselines3's face."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from jax.sharding import Mesh

from jaxvec.core._arguments import check_one_of
from jaxvec.core._transform import Timestep, Transform
from jaxvec.core._xp import map_obs
from jaxvec.envs import BatchedEnv
from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.random import row_words_from_seeds
from jaxvec.typing import Action, Array, Obs, PyTree
from jaxvec.vec._actions import Check, action_check
from jaxvec.vec._call import Results
from jaxvec.vec._convert import StepReturn
from jaxvec.vec._fused import Fusable, Run
from jaxvec.vec._indices import Indices
from jaxvec.vec._jax_edge import Output, check_info_keys, hand_of, merged_rows
from jaxvec.vec._jax_identity import Identity
from jaxvec.vec._jax_pictures import Pictures
from jaxvec.vec._jax_reach import Reachable
from jaxvec.vec._jax_resets import ResetInfos, RowKeys, next_resets
from jaxvec.vec._packing import Layout, Packed
from jaxvec.vec._placement import placement_of
from jaxvec.vec._program import Groups, Program
from jaxvec.vec._utils import SeedMode


class JaxVecEnv(Identity, Fusable, Reachable):
    """N environments that JAX steps, as SB3's VecEnv.

    Layers above it (`VecNormalize`, `VecFrameStack`, `VecMonitor`, any `VecTransform`) run in the same
    compiled call. An environment draws its random numbers from its own seed, so that its trace depends
    neither on N nor on its place.

    On a CPU, `jax.config.update("jax_cpu_enable_async_dispatch", False)` before the first use of JAX can make
    steps of few environments faster: a step then runs in the thread that calls it. It holds for the whole
    program, so it is left to you.

    Args:
      env: the environments, of `vectorize` (autoreset_mode "SameStep").
      seed: of the first reset, as if by `seed(seed)`, unless another one is set until then.
      output: what observations, rewards and dones are: "numpy" arrays, which the caller may write into;
        "jax" arrays, which stay on the device; or "torch" tensors, which share the device's memory.
      info_keys: the entries of the environment's own info that infos show.
      render_mode: "rgb_array" for pictures: the environment's own, or gymnasium's for classic control;
        "human" for a window that shows them; None for neither.
      mesh: devices (`device_mesh()`) that the environments and all layers are spread over, each with a share
        of the rows; statistics are over all of them. None: JAX's default device.
      process_local: for a mesh of several processes (`jax.distributed`): this process hands in the actions
        of its own rows, and sees these rows only. `num_envs` is their number; a row has the seed of its
        place among those of all processes. All processes then make the same calls in the same order, also
        `reset(indices)`, where `[]` is for a process with no row to reset.

    Raises:
      TypeError: if `env` is no BatchedEnv, or `mesh` no mesh of devices.
      ValueError: if an option does not exist, or the environments are reset in another mode; if N does not
        divide among the mesh's devices, or some of them belong to other processes, without `process_local`.
      KeyError: if there is no such entry of the info.
    """

    _passes = True
    _reset_infos: ResetInfos

    def __init__(
        self,
        env: BatchedEnv,
        seed: int = 0,
        *,
        output: Output = "numpy",
        info_keys: Sequence[str] = (),
        render_mode: str | None = None,
        mesh: Mesh | None = None,
        process_local: bool = False,
    ) -> None:
        check_one_of("JaxVecEnv", "output", output, ("numpy", "jax", "torch"))
        check_one_of("JaxVecEnv", "render_mode", render_mode, (None, "rgb_array", "human"))
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
        self._placement = placement = placement_of(env, mesh, process_local, output)
        # Arguments of a compiled call, where it runs. No method of its own: this is done in every step.
        self._placed = placement.put_rows
        self._env = env = placement.env(env)
        self._wanted_mode = render_mode
        self._pictures = None if render_mode is None else Pictures(env)
        self._info_keys = tuple(info_keys)
        self._hand = placement.hand(hand_of(output))
        self._programs: dict[Any, Program] = {}
        self._packed: Packed | None = None
        self._pending: tuple[Run, Results] | None = None
        self._latest: tuple[Run, Results | Obs] | None = None
        self._closed = False
        self._row_attributes = None
        rows = self._row_numbers()
        self._keys = RowKeys([seed + row for row in rows])
        self._run: Run = Run(self, ())
        if info_keys:
            check_info_keys(env, self._info_keys)
        super().__init__(len(rows), env.spec.observation_space, env.spec.action_space)
        if env.env is not None:
            self.metadata = {**env.env.metadata, **self.metadata}

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

    def set_options(self, options: Sequence[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Sets the options of the next reset; see `VecEnv.set_options`.

        Raises:
          ValueError: if the mesh has devices of other processes: they decide which function is called.
        """
        if self._placement.is_partial and any(self._options_of(options)):
            raise ValueError(
                f"JaxVecEnv.set_options: {options} came, but which options there are decides which function "
                "is compiled, and all processes of the mesh must call the same. Make what is to differ a "
                "parameter (vectorize(params=...), set_attr)."
            )
        super().set_options(options)

    def close(self) -> None:
        """Gives back what the environments hold."""
        self._closed = True
        self._pending = self._latest = self._packed = self._row_attributes = None
        self._programs.clear()
        if self._pictures is not None:
            self._pictures.close()

    def _program_of(self, transforms: tuple[Transform, ...], reads: Any) -> Program:
        """Returns the compiled functions of these layers; they are kept."""
        key = transforms, reads
        if key not in self._programs:
            self._programs[key] = Program(
                self._env, transforms, reads, self._info_keys, self._hand, self._placement
            )
        return self._programs[key]

    def _row_numbers(self) -> Sequence[int]:
        return self._placement.row_numbers(self._env.spec.num_envs)

    def _check_of(self, space: spaces.Space[Any]) -> Check:
        return action_check(space, self.num_envs)

    def _packed_state(self, init: Callable[[Sequence[int]], PyTree]) -> Packed:
        """Returns the state of a layer as a run keeps it.

        Args:
          init: makes it for the rows of these numbers.
        """
        state, whole = init(self._row_numbers()), None
        if self._placement.is_partial:
            whole = jax.eval_shape(lambda: init(range(self._env.spec.num_envs)))
        return Packed.holding(state, self._placement, whole)

    @property
    def reset_infos(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The info of each environment's last reset: N dicts with the entries of `info_keys`."""
        return self._reset_infos.rows()

    def _check_can_step(self) -> None:
        if self._pending is not None:
            raise AlreadyPendingError(
                "JaxVecEnv.step_async: a step is pending already; finish it with step_wait() first. "
                "Nothing was stepped."
            )
        if self._latest is None:
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
        if self._pending is not None:
            self._take(self._pending[0])

    def _ensure_started(self) -> None:
        """Makes the environments, if nobody has reset them yet; their first reset stays to come."""
        if self._packed is None:
            self._check_open()
            kept = self._seeds, self._options, self._keys.copy()
            self._run.reset()
            self._seeds, self._options, self._keys = kept
            self._latest = None
            self._clear_reset_infos()

    def _begin(self, layout: Layout) -> None:
        """Makes room for the environments' state."""
        self._packed = Packed(layout)

    def _next_resets(self, indices: Indices) -> tuple[Array, Array, Groups]:
        """Returns what a reset of these rows takes (see `next_resets`), and uses seeds and options up."""
        rows = np.array(list(dict.fromkeys(self._get_indices(indices))), int)
        mask, keys, groups = next_resets(rows, self._keys, self._seeds, self._options)
        self._seeds = [None if used else seed for used, seed in zip(mask, self._seeds, strict=True)]
        self._options = [
            {} if used else each for used, each in zip(mask, self._options, strict=True)
        ]
        if self._placement.is_partial:
            # The same call as in the other processes, which may have rows to reset.
            groups = groups or ((mask, None),)
        return mask, keys, groups

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
        if self._info_keys:
            self._reset_infos.keep(results.reset_info(), mask)

    def _clear_reset_infos(self) -> None:
        self._reset_infos = ResetInfos(self.num_envs)
