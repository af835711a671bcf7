"""The connection to Ray: taken over where there is one, made and ended here where there is none."""

import os
from importlib import import_module
from typing import Any

from jaxvec.errors import MissingExtraError


def ray_module(owner: str) -> Any:
    """Returns the library.

    Raises:
      MissingExtraError: if it is not installed.
    """
    try:
        return import_module("ray")
    except ImportError as error:
        raise MissingExtraError(
            f"{owner} runs environments in Ray's actors, and Ray is not installed: pip install "
            "'jaxvec[ray]'. On one machine SubprocVecEnv needs nothing else, and is faster."
        ) from error


class Connection:
    """This process's connection to Ray, as far as jaxvec made it: used by several pools, ended by the last.

    A process has one connection to Ray, which Ray itself keeps in a global; so this is one object too.
    """

    def __init__(self) -> None:
        self._users = 0
        self._owner = 0  # process that made it; a fork has a copy of this, but no connection

    def join(self, ray: Any, address: str | None, owner: str) -> bool:
        """Connects, unless that is done already.

        Args:
          ray: the library.
          address: of a cluster; None for the one that `RAY_ADDRESS` names, or else a local one.
          owner: name of the VecEnv's class, for messages.

        Returns:
          Whether `leave` is to be called in the end: the connection is jaxvec's.

        Raises:
          ValueError: if this process is connected to another cluster.
        """
        if ray.is_initialized():
            _check_same(ray, address, owner)
            is_ours = self._users > 0 and self._owner == os.getpid()
            self._users += is_ours
            return is_ours
        address = address or os.environ.get("RAY_ADDRESS") or "local"
        options: dict[str, Any] = {"configure_logging": False, "log_to_driver": False}
        if address == "local":
            options["include_dashboard"] = False
            # A library does not report to anybody behind the back of who uses it.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address=address, **options)
        self._users, self._owner = 1, os.getpid()
        return True

    def leave(self, ray: Any) -> None:
        """Ends the connection if nobody else uses it; a local Ray ends with it, a cluster goes on."""
        self._users -= 1
        if self._users == 0 and ray.is_initialized():
            ray.shutdown()


CONNECTION = Connection()


def _check_same(ray: Any, address: str | None, owner: str) -> None:
    connected = ray.get_runtime_context().gcs_address
    if address in (None, "auto", connected):
        return
    raise ValueError(
        f"{owner}: address={address!r}, but this process is connected to Ray at {connected!r} already. Leave "
        "address out to use that, or call ray.shutdown() first."
    )
