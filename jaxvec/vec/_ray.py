"""`RayVecEnv`: classic environments in actors of Ray, on this machine or on a cluster."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from jaxvec.vec._host import HostVecEnv
from jaxvec.vec._ray_crew import Options
from jaxvec.vec._ray_pool import RayPool


class RayVecEnv(HostVecEnv):
    """N environments in actors of Ray, several in each.

    Args:
      env_fns: build one environment each; they are called in the actors. On a cluster their machines need
        jaxvec and what the environments need: installed, or by `ray_options={"runtime_env": ...}`.
      num_actors: how many actors. "auto" is one for each core of the cluster.
      ray_options: for each actor, as its `.options()` takes them: `num_cpus`, `resources`, `runtime_env`,
        ... By default actors are spread over the machines and hold no core for themselves.
      address: of a cluster, as `ray.init` takes it. None is Ray as this process uses it already, or else
        the cluster that `RAY_ADDRESS` names, or else one of this machine alone. What was not running is
        ended when the last RayVecEnv is closed.
      timeout: seconds that a step, a reset or a call may take; None waits for ever.
      restart_workers: whether an actor that died is started again, with a warning. The running episodes
        of its environments end as truncated, at the observation seen last, with reward 0.

    Raises:
      MissingExtraError: if Ray is not installed.
      ValueError: if the environments' spaces differ, an option is no good, or this process is connected to
        another cluster.
    """

    _pool: RayPool

    def __init__(
        self,
        env_fns: Iterable[Callable[[], Any]],
        *,
        num_actors: int | Literal["auto"] = "auto",
        ray_options: Mapping[str, Any] | None = None,
        address: str | None = None,
        timeout: float | None = None,
        restart_workers: bool = False,
    ) -> None:
        options = Options(
            num_actors, ray_options or {}, address, timeout, restart_workers, type(self).__name__
        )
        pool = RayPool(env_fns, options)
        try:
            super().__init__(pool)
        except BaseException:
            pool.close(timeout=1.0)
            raise

    @property
    def closed(self) -> bool:
        """Whether it was closed, by `close()` or by a fault."""
        return self._pool.closed
