"""`JaxVecEnv`: environments that JAX steps, on Stable-Baselines3's face."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from jaxvec.core._arguments import check_one_of
from jaxvec.core._transform import Timestep, Transform
from jaxvec.core._xp import map_obs
from jaxvec.envs import BatchedEnv
from jaxvec.errors import AlreadyPendingError, ClosedError, NotPendingError
from jaxvec.random import row_words_from_seeds
from jaxvec.typing import Action, Array, Obs, PyTree
from jaxvec.vec._actions import Check, action_check
from jaxvec.vec._base import ColumnVecEnv, SeedMode, Where
from jaxvec.vec._call import Results
from jaxvec.vec._convert import StepReturn
from jaxvec.vec._fused import Fusable, Run
from jaxvec.vec._indices import Indices
from jaxvec.vec._jax_attributes import RowAttributes
from jaxvec.vec._jax_edge import Output, check_info_keys, hand_of, merged_rows
from jaxvec.vec._jax_identity import Identity
from jaxvec.vec._jax_pictures import Pictures
from jaxvec.vec._jax_resets import ResetInfos, RowKeys, next_resets
from jaxvec.vec._monitor_env import Monitor
from jaxvec.vec._packing import Layout, Packed
from jaxvec.vec._program import Groups, Program
from jaxvec.vec._sb3 import MONITORS, loaded
from jaxvec.vec._utils import has_pictures


class JaxVecEnv(Identity, Fusable, ColumnVecEnv):
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

    Raises:
      TypeError: if `env` is no BatchedEnv.
      ValueError: if an option does not exist, or the environments are reset in another mode.
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
        self._env = env
        self._wanted_mode = render_mode
        self._pictures = None if render_mode is None else Pictures(env)
        self._info_keys = tuple(info_keys)
        self._hand = hand_of(output)
        self._programs: dict[Any, Program] = {}
        self._packed: Packed | None = None
        self._pending: tuple[Run, Results] | None = None
        self._latest: tuple[Run, Results | Obs] | None = None
        self._closed = False
        self._row_attributes: RowAttributes | None = None
        self._keys = RowKeys([seed + row for row in range(env.spec.num_envs)])
        self._run: Run = Run(self, ())
        if info_keys:
            check_info_keys(env, self._info_keys)
        super().__init__(env.spec.num_envs, env.spec.observation_space, env.spec.action_space)
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

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each environment: a parameter, its state, a method, or what all share.

        Raises:
          AttributeError: if there is no such attribute; the message lists those that exist.
        """
        rows = list(self._get_indices(indices))
        if attr_name == "render_mode":
            return [self._wanted_mode for _ in rows]
        return self._attributes().get(attr_name, rows)

    def set_attr(
        self, attr_name: str, value: Any, indices: Indices = None, *, where: Where = "outermost"
    ) -> None:
        """Sets a parameter of each environment, from the next step on; nothing is compiled for it.

        Args:
          attr_name: of the parameter, such as "gravity".
          value: the same for all.
          indices: which environments; None for all.
          where: for other VecEnvs; here there are no wrappers.

        Raises:
          AttributeError: if there is no such parameter, or the parameters are compiled in.
          ValueError: if the value does not fit it.
        """
        del where
        self._attributes().put(attr_name, value, list(self._get_indices(indices)))

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of the environment's record, `(state, params, ...)`, and returns the results.

        Raises:
          AttributeError: if there is no such method; the message lists those that exist.
        """
        rows = list(self._get_indices(indices))
        if method_name != "render":
            return self._attributes().call(method_name, rows, method_args, method_kwargs)
        if self._pictures is None:
            return [None for _ in rows]
        if self.render_mode == "rgb_array":
            return self._pictures.draw(self._attributes(), rows)
        self._pictures.show(self._attributes(), rows)
        return [None for _ in rows]

    def get_images(self) -> Sequence[Array | None]:
        """Returns a picture of each environment, `[H, W, 3]`; None each unless made for "rgb_array"."""
        if not has_pictures(self):
            return [None] * self.num_envs
        return self.env_method("render")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Tells for each environment whether it is wrapped by a class.

        Only by a Monitor it can be: where infos have "episode" because a layer of `jaxvec.wrap` made it.
        """
        monitored = "episode" in self._info_keys and wrapper_class in (
            Monitor,
            *loaded("Monitor", MONITORS),
        )
        return [monitored for _ in self._get_indices(indices)]

    def _attributes(self) -> RowAttributes:
        self._ensure_started()
        if self._row_attributes is None:
            assert self._packed is not None
            self._row_attributes = RowAttributes(self._env, self._packed)
        return self._row_attributes
