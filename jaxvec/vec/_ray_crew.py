"""Actors of Ray that hold groups of environments: started, replaced and ended here."""

import contextlib
import os
import pickle
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from jaxvec.errors import WorkerDiedError
from jaxvec.vec._answers import Built
from jaxvec.vec._channel import Fault, raised
from jaxvec.vec._ray_actor import GroupActor, Whereabouts
from jaxvec.vec._ray_cluster import CONNECTION, ray_module
from jaxvec.vec._running import Ending
from jaxvec.vec._starting import pickled_env_fns

GRACE = 1.0  # seconds that actors have to end in after a fault
LOOK = 0.5  # seconds between looks whether an actor has died while others are busy
_PATIENCE = 60.0  # seconds without actors after which it is said that the cluster may have no room
_KILLED = 2.0  # seconds that killed actors have to be gone in
_LARGE = 100_000  # bytes: what Ray itself would store for each call
_OURS = (  # options of actors that would break what the pool promises
    *("max_restarts", "max_task_retries", "max_concurrency", "concurrency_groups"),
    *("name", "namespace", "lifetime", "get_if_exists"),
)


class Options(NamedTuple):
    """How a pool of actors is to be; see `RayVecEnv`."""

    num_actors: int | Literal["auto"]
    ray_options: Mapping[str, Any]
    address: str | None
    timeout: float | None
    restart_workers: bool
    owner: str  # name of the VecEnv's class, for messages


@dataclass
class Actor:
    """One actor, as the caller sees it."""

    number: int
    rows: range  # its environments
    handle: Any
    place: Whereabouts | None = None  # known once it stands


class _Cast:
    """What is to be ended: it refers to the pool by nothing, so that it can be ended when that is gone."""

    def __init__(self, ray: Any, is_ours: bool) -> None:
        self._ray, self._is_ours, self._caller = ray, is_ours, os.getpid()
        self._connection = _connection(ray)
        self.actors: list[Actor] = []

    def end(self, timeout: float) -> Ending:
        """Lets all actors close their environments, kills them, and leaves Ray.

        Args:
          timeout: seconds that closing may take, for all together.
        """
        ray, deadline = self._ray, time.monotonic() + timeout
        ending = Ending([], [])
        actors, self.actors = self.actors, []
        # In a fork, or after ray.shutdown(), which ends actors too, there is nothing to end.
        if os.getpid() != self._caller or self._connection != _connection(ray):
            return ending
        try:
            closing = {actor.handle.close.remote(): actor for actor in actors}
            ready, late = _wait(ray, list(closing), timeout)
            for reference in ready:
                with contextlib.suppress(ray.exceptions.RayError):  # it is dead
                    farewell = ray.get(reference)
                    ending.faults.extend([pickle.loads(farewell)] if farewell else [])
            for reference in late:
                ending.killed.extend(closing[reference].rows)
            for actor in actors:
                ray.kill(actor.handle)
            # A call of an actor that is gone fails.
            gone = [actor.handle.close.remote() for actor in actors]
            _wait(ray, gone, max(0.0, deadline - time.monotonic()) + _KILLED)
        finally:
            if self._is_ours:
                CONNECTION.leave(ray)
        return ending


class RayCrew:
    """The actors of one pool. Nothing of them is left after `end`, or once it is gone itself.

    Args:
      env_fns: of all N environments.
      options: how.

    Attributes:
      ray: the library.
      actors: those that run.
    """

    def __init__(self, env_fns: Sequence[Callable[[], Any]], options: Options) -> None:
        self._options, self._num_envs = options, len(env_fns)
        _check_options(options)
        self._env_fns = pickled_env_fns(env_fns, "ray", options.owner)
        self.ray = ray_module(options.owner)
        is_ours = CONNECTION.join(self.ray, options.address, options.owner)
        self._cast = _Cast(self.ray, is_ours)
        self._at_exit = weakref.finalize(self, self._cast.end, GRACE)
        # Ray's own default would fill one machine after the other, as idle actors take no share of it.
        given = {"scheduling_strategy": "SPREAD", **options.ray_options}
        self._make = self.ray.remote(GroupActor).options(**given)

    @property
    def actors(self) -> list[Actor]:
        """Those that run."""
        return self._cast.actors

    def cores(self) -> int:
        """Returns how many cores the cluster has."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def start(self, shares: Sequence[range]) -> list[Built]:
        """Starts all actors, and waits until their environments stand.

        Args:
          shares: the environments of each.
        """
        self.actors.extend(
            Actor(number, rows, self._make.remote()) for number, rows in enumerate(shares)
        )
        return self._built(self.actors)

    def _built(self, actors: Sequence[Actor]) -> list[Built]:
        """Waits until the environments of some actors stand, or one has failed to."""
        pickled = self._env_fns
        calls = {
            actor.handle.start.remote(
                actor.rows, pickled[actor.rows.start : actor.rows.stop]
            ): actor
            for actor in actors
        }
        built: dict[int, Built] = {}
        began, told = time.monotonic(), False
        while len(built) < len(actors):
            ready, late = _wait(self.ray, list(calls), LOOK)
            for call in ready:
                actor = calls[call]
                if actor.number not in built:
                    actor.place, message = self.result(call, actor, "__init__")
                    answer = pickle.loads(message)
                    if isinstance(answer, Fault):
                        raise raised(answer, self._options.owner)
                    built[actor.number] = answer
            if late and time.monotonic() - began > _PATIENCE and not told:
                told = True
                self._tell_late([row for call in late for row in calls[call].rows])
        return [built[actor.number] for actor in actors]

    def _tell_late(self, rows: list[int]) -> None:
        warnings.warn(
            f"{self._options.owner}: the environments {rows} have not been built after {_PATIENCE:.0f} "
            "seconds. Either they take that long, or Ray has no room for their actors: "
            f"ray_options={dict(self._options.ray_options)}, and what is free is "
            f"{self.ray.available_resources()}.",
            RuntimeWarning,
            stacklevel=6,
        )

    def bind(self, actors: Sequence[Actor]) -> None:
        """Lets actors make room for their results. Calls of an actor are done in order: no need to wait."""
        for actor in actors:
            actor.handle.bind.remote(self._num_envs)

    def shared(self, message: bytes) -> Any:
        """Returns what to send to all actors in place of a message: a large one is stored once for all."""
        return self.ray.put(message) if len(message) > _LARGE else message

    def wait(self, calls: list[Any], count: int, seconds: float) -> list[Any]:
        """Waits until `count` of some calls have come back, or the time is over; returns all that have."""
        ready, _ = self.ray.wait(calls, num_returns=count, timeout=seconds)
        if count < len(calls):
            ready, _ = _wait(self.ray, calls, 0)
        return list(ready)

    def result(self, call: Any, actor: Actor, command: str) -> Any:
        """Returns what came of a call.

        Raises:
          WorkerDiedError: if the actor has died, or what it answered is lost.
        """
        try:
            return self.ray.get(call)
        except self.ray.exceptions.RayError as error:
            raise _died(actor, command, self._options.owner, error) from error

    def replace(self, actor: Actor) -> Actor:
        """Starts a new actor in the place of one that died, with new environments."""
        self.ray.kill(actor.handle)  # where its death was one of the network only
        new = Actor(actor.number, actor.rows, self._make.remote())
        self.actors[self.actors.index(actor)] = new
        self._built([new])
        self.bind([new])
        return new

    def end(self, grace: float) -> Ending:
        """Ends all actors, and leaves Ray."""
        self._at_exit.detach()
        return self._cast.end(grace)


def _connection(ray: Any) -> tuple[str, str] | None:
    """Returns what tells this process's connection to Ray from later ones; None if there is none."""
    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_worker_id()


def _wait(ray: Any, calls: list[Any], seconds: float) -> tuple[list[Any], list[Any]]:
    """Waits for all of some calls; returns those that have come back in time, and the others."""
    if not calls:
        return [], []
    ready, late = ray.wait(calls, num_returns=len(calls), timeout=seconds)
    return ready, late


def _check_options(options: Options) -> None:
    count, owner = options.num_actors, options.owner
    if count != "auto" and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
        raise ValueError(f"{owner}: num_actors={count!r}; give a whole number from 1, or 'auto'.")
    refused = sorted(set(_OURS) & set(options.ray_options))
    if refused:
        raise ValueError(
            f"{owner}: ray_options has {refused}, which would change how actors answer or live; "
            "restart_workers=True starts those again that died. Leave these out."
        )


def _died(actor: Actor, command: str, owner: str, error: Exception) -> WorkerDiedError:
    """Returns the error that says that an actor has died."""
    rows = actor.rows
    which = f"{rows.start}-{rows.stop - 1}" if len(rows) > 1 else f"{rows.start}"
    where = f" (process {actor.place.pid} on {actor.place.host})" if actor.place else ""
    lines = str(error).strip().split("\n")
    why = next((line for line in lines if "is dead because" in line), lines[0]).strip()
    return WorkerDiedError(
        f"{owner}: the actor of environments {which}{where} died while `{command}` was pending. This VecEnv "
        "is now closed. Run the same `env_fns` in a DummyVecEnv to debug the environment. Ray says "
        f"({type(error).__name__}): {why:.600}",
        rows.start,
    )
