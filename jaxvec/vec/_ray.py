"""`RayVecEnv`: classic environments in actors of Ray, on this machine or on a cluster."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from jaxvec.core._arguments import check_count
from jaxvec.core._transform import Timestep
from jaxvec.core._xp import map_obs
from jaxvec.typing import Array, Obs
from jaxvec.vec._chunk import Chunk, HostPolicy, dense_final
from jaxvec.vec._host import HostVecEnv
from jaxvec.vec._ray_crew import Options
from jaxvec.vec._ray_pool import RayPool


class RayVecEnv(HostVecEnv):
    """N environments in actors of Ray, several in each: for several machines, or environments that are slow.

    One call of an actor steps all of its environments. Beside their own time such a step costs two to four
    empty calls of Ray, and an empty call as much as ten to twenty steps of CartPole in this process. So it
    pays from about 1 ms a step and environment on: eight environments that wait, in four actors, stepped
    0.9 times as fast as in one process where each step took 1 ms, 1.9 times at 3 ms and 3.0 times at 10 ms
    (SubprocVecEnv: 3.3, 3.6 and 3.9 times, so on one machine that is the better one). `rollout_in_actors`
    takes many steps in one call: with 16 it was 2.3 times at 0.3 ms, 2.9 at 1 ms and 3.9 at 10 ms.
    `examples/benchmarks/ray_actors.py` measures it.

    Rows that `send` names in one call come back together where they live in one actor.

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

    def _roll_out(self, policy: HostPolicy, num_steps: int, seed: int | None) -> Chunk:
        self._check_idle("rollout_in_actors")
        chunk: Chunk = self._pool.request("rollout", (policy, num_steps, seed))
        for row, info in chunk.reset_infos.items():
            self.reset_infos[row] = info
        return chunk

    @property
    def closed(self) -> bool:
        """Whether it was closed, by `close()` or by a fault."""
        return self._pool.closed


def rollout_in_actors(
    venv: RayVecEnv, policy: HostPolicy, num_steps: int, *, seed: int | None = None
) -> tuple[Obs, Array, Timestep]:
    """Takes T steps in one call of each actor: the policy travels to the environments.

    It goes on where the last step or reset has left the environments, and leaves them where the next one
    goes on. It is a function, not a method, because layers around a VecEnv would not see its steps.

    Args:
      venv: not wrapped; it has been reset.
      policy: `(rng, obs) -> actions`, for the observations `[g, *D]` of the environments of one actor and as
        many actions. It is pickled by value and sent anew with each call: what it should know from one call
        to the next, weights for example, must be in it, and what it remembers in an actor is lost. An actor
        loads what the policy needs: NumPy is there, JAX is not.
      num_steps: T, from 1.
      seed: starts the random numbers `rng` of all actors anew; None goes on with them. They differ from
        actor to actor, so that a trace with them depends on `num_actors`.

    Returns:
      Observations before each step `[T, N, *D]`, actions `[T, N, *A]`, and a `Timestep` whose columns are
      `[T, N, ...]`: as `jaxvec.rollout` gives them. `final_obs` is dense, `rows` holds T lists of N infos or
      None. Where an actor died and was started again, the first step of its rows ends their episodes as
      truncated, and they stand still in the others: `valid` does not hold there.

    Raises:
      TypeError: if `venv` is no RayVecEnv, or wrapped.
      ValueError: if `num_steps` is no whole number from 1, or the policy gives another number of actions.
      AlreadyPendingError: if a step is pending.
    """
    if not isinstance(venv, RayVecEnv):
        raise TypeError(
            f"rollout_in_actors: got a {type(venv).__name__}; a RayVecEnv is needed. Layers around one do "
            "not see steps in actors: pass `venv.unwrapped`, and normalize or count what comes back."
        )
    check_count("rollout_in_actors", "num_steps", num_steps)
    chunk = venv._roll_out(policy, num_steps, seed)
    count = range(venv.num_envs)
    done = chunk.terminated | chunk.truncated
    timestep = Timestep(
        obs=map_obs(lambda column: column[1:], chunk.obs),
        reward=chunk.reward,
        terminated=chunk.terminated,
        truncated=chunk.truncated,
        valid=chunk.valid,
        first=done,
        final_obs=dense_final(chunk),
        rows=[[chunk.infos.get((step, row)) for row in count] for step in range(num_steps)],
    )
    return map_obs(lambda column: column[:-1], chunk.obs), chunk.actions, timestep
