"""`DummyVecEnv` and `SubprocVecEnv`: classic environments in this process, or in worker processes."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from jaxvec.typing import Action
from jaxvec.vec._crew import Options
from jaxvec.vec._host import HostVecEnv
from jaxvec.vec._pools import LocalPool
from jaxvec.vec._processes import SubprocessPool
from jaxvec.vec._starting import warn_of_fork

EnvFns = Iterable[Callable[[], Any]]


class DummyVecEnv(HostVecEnv):
    """N environments in this process, stepped one after the other.

    Args:
      env_fns: build one environment each; no two may return the same instance.

    Attributes:
      envs: the environments.
    """

    _pool: LocalPool

    def __init__(self, env_fns: EnvFns) -> None:
        pool = LocalPool(env_fns)
        self.envs = pool.group.envs
        super().__init__(pool)
        self.metadata = self.envs[0].metadata

    def step_async(self, actions: Action) -> None:
        """Starts a step; actions after the N-th are left out, as SB3's DummyVecEnv does it."""
        if isinstance(actions, np.ndarray | list | tuple) and len(actions) > self.num_envs:
            actions = actions[: self.num_envs]
        super().step_async(actions)


class SubprocVecEnv(HostVecEnv):
    """N environments in worker processes, several in each.

    With the start methods "forkserver" and "spawn" a script must guard its main part by
    `if __name__ == "__main__":`, because the processes import it. A worker has one global random
    generator (`np.random.rand()`) for all its environments: they should draw from `self.np_random`.

    Args:
      env_fns: build one environment each; they are called in the workers.
      start_method: "forkserver" (default where it exists), "spawn", or "fork", which is not safe once
        threads run (JAX and PyTorch start some; where JAX is loaded, that is warned of).
      num_workers: how many processes. "auto" is one for each core; where environments wait (for a
        simulator, a network) rather than compute, more are faster, and a warning names the number.
      shared_memory: whether observations, rewards and flags lie in memory that the processes share.
        Parts of observations that cannot (Text, Graph, Sequence, custom spaces) travel by messages
        anyway.
      caller_steps: whether the caller's process steps a share of the environments itself while it waits.
        It saves a process switch, but an environment that crashes takes the trainer down.
      timeout: seconds that a step, a reset or a call may take; None waits for ever.
      restart_workers: whether a process that died is started again, with a warning. The running episodes
        of its environments end as truncated, at the observation seen last, with reward 0.

    Raises:
      ValueError: if the environments' spaces differ.
    """

    def __init__(
        self,
        env_fns: EnvFns,
        start_method: str | None = None,
        *,
        num_workers: int | Literal["auto"] = "auto",
        shared_memory: bool = True,
        caller_steps: bool = False,
        timeout: float | None = None,
        restart_workers: bool = False,
    ) -> None:
        warn_of_fork(start_method)
        options = Options(
            start_method,
            num_workers,
            shared_memory,
            caller_steps,
            timeout,
            restart_workers,
            type(self).__name__,
        )
        pool = SubprocessPool(env_fns, options)
        try:
            super().__init__(pool)
        except BaseException:
            pool.close(timeout=1.0)
            raise

    _pool: SubprocessPool

    @property
    def closed(self) -> bool:
        """Whether it was closed, by `close()` or by a fault."""
        return self._pool.closed
