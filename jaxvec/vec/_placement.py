"""Where the arrays of a `JaxVecEnv` lie: on one device, or their rows spread over a mesh of devices.

In several processes of `jax.distributed` an array spans the devices of all of them. A process then hands in
its own rows, and sees its own rows: no process ever fetches those of another.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxvec.envs import BatchedEnv, shard
from jaxvec.envs._shard import has_rows, row_shardings
from jaxvec.typing import Array, PyTree


class Placement:
    """Arrays on one device: JAX's default one.

    Attributes:
      is_partial: whether there are rows that this process does not see.
    """

    is_partial = False

    def row_numbers(self, num_envs: int) -> range | list[int]:
        """Returns the numbers of the rows that this process sees, of N."""
        return range(num_envs)

    def env(self, env: BatchedEnv) -> BatchedEnv:
        """Returns environments whose arrays lie here."""
        return env

    def has_rows(self, leaf: Any) -> bool:
        """Tells whether an array has rows to be spread."""
        return False

    def shape_here(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of what this process sees of an array with rows."""
        return shape

    def sharding(self, spread: bool) -> Any:
        """Returns how an array lies, with rows spread or not."""
        return None

    def jit_options(self, shardings: Callable[[], Any]) -> dict[str, Any]:
        """Returns options of `jax.jit` for results that lie so."""
        return {}

    def put(self, array: Array, spread: bool = False) -> Array:
        """Returns an array on the device or devices, of what this process sees of it."""
        return jnp.asarray(array)

    def put_rows(self, tree: PyTree) -> PyTree:
        """Returns the arguments of a compiled call: what has rows is handed over as rows."""
        return tree

    def fetch(self, array: Array) -> Array:
        """Returns what this process sees of an array as NumPy has it; not to be written to."""
        return np.asarray(array)

    def copy(self, array: Array) -> Array:
        """Returns what this process sees of an array with rows as NumPy has it; nobody else holds it."""
        return np.array(array)

    def row(self, array: Array, row: int) -> Array:
        """Returns one of the rows that this process sees; no other is fetched."""
        return np.array(array[row])

    def hand(self, hand: Callable[[Array], Any] | None) -> Callable[[Array], Any] | None:
        """Returns what makes an array with rows what the caller gets."""
        return hand


ONE_DEVICE = Placement()


class MeshPlacement(Placement):
    """Arrays on a mesh: rows spread over all its devices, everything else copied to each.

    Args:
      mesh: the devices.
      num_envs: N, of all processes.
      process_local: whether this process hands in and sees its own rows only.

    Raises:
      TypeError: if it is no mesh of devices.
      ValueError: if N does not divide among its devices, if devices of other processes are among them
        without `process_local`, or none of this one.
    """

    def __init__(self, mesh: Mesh, num_envs: int, process_local: bool) -> None:
        axes = tuple(getattr(mesh, "axis_names", ()))
        self._rows, self._copies = row_shardings("JaxVecEnv", num_envs, mesh, axes)
        self._mesh: Any = self._rows.mesh
        self._num_envs = num_envs
        own = [each for each in mesh.devices.flat if each.process_index == jax.process_index()]
        if len(own) < mesh.size and not process_local:
            raise ValueError(
                f"JaxVecEnv: {mesh.size - len(own)} of the mesh's {mesh.size} devices belong to other "
                "processes, whose rows this one cannot see. Pass process_local=True: each process then hands "
                "in and sees its own rows; or a mesh of jax.local_devices()."
            )
        if not own:
            raise ValueError(
                f"JaxVecEnv: none of the mesh's {mesh.size} devices belongs to this process (number "
                f"{jax.process_index()} of {jax.process_count()}), so that it has no rows."
            )
        self.is_partial = len(own) < mesh.size
        found = self._rows.addressable_devices_indices_map((num_envs,))
        starts = sorted(index[0].start or 0 for index in found.values() if index is not None)
        self._rows_per_device = num_envs // mesh.size
        self._numbers = [start + row for start in starts for row in range(self._rows_per_device)]

    def row_numbers(self, num_envs: int) -> list[int]:
        """Returns the numbers of the rows that this process sees, of N."""
        return self._numbers

    def env(self, env: BatchedEnv) -> BatchedEnv:
        """Returns environments whose arrays lie here."""
        return shard(env, self._mesh, tuple(self._mesh.axis_names))

    def has_rows(self, leaf: Any) -> bool:
        """Tells whether an array has rows to be spread."""
        return has_rows(leaf, self._num_envs)

    def shape_here(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the shape of what this process sees of an array with rows."""
        return (len(self._numbers), *shape[1:])

    def sharding(self, spread: bool) -> NamedSharding:
        """Returns how an array lies, with rows spread or not."""
        return self._rows if spread else self._copies

    def jit_options(self, shardings: Callable[[], Any]) -> dict[str, Any]:
        """Returns options of `jax.jit` for results that lie so."""
        return {"out_shardings": shardings()}

    def put(self, array: Array, spread: bool = False) -> Array:
        """Returns an array on the devices, of what this process sees of it."""
        sharding = self.sharding(spread)
        if not self.is_partial:
            return jax.device_put(array, sharding)
        shape = (self._num_envs, *array.shape[1:]) if spread else array.shape
        return jax.make_array_from_process_local_data(sharding, array, shape)

    def put_rows(self, tree: PyTree) -> PyTree:
        """Returns the arguments of a compiled call: what has rows is handed over as rows."""
        num_envs = len(self._numbers)
        return jax.tree.map(lambda leaf: self.put(leaf, has_rows(leaf, num_envs)), tree)

    def fetch(self, array: Array) -> Array:
        """Returns what this process sees of an array as NumPy has it; not to be written to."""
        return np.asarray(array) if array.is_fully_replicated else self.copy(array)

    def copy(self, array: Array) -> Array:
        """Returns what this process sees of an array with rows as NumPy has it; nobody else holds it."""
        return np.concatenate([np.asarray(part) for part in self._parts(array)])

    def row(self, array: Array, row: int) -> Array:
        """Returns one of the rows that this process sees; no other is fetched."""
        part, row = divmod(row, self._rows_per_device)
        return np.array(self._parts(array)[part][row])

    def hand(self, hand: Callable[[Array], Any] | None) -> Callable[[Array], Any] | None:
        """Returns what makes an array with rows what the caller gets: of this process's devices alone."""
        if hand is None or not self.is_partial:
            return hand
        local = NamedSharding(self._mesh.local_mesh, PartitionSpec(tuple(self._mesh.axis_names)))

        def handed(array: Array) -> Any:
            parts = [shard.data for shard in array.addressable_shards]
            shape = self.shape_here(array.shape)
            return hand(jax.make_array_from_single_device_arrays(shape, local, parts))

        return handed

    def _parts(self, array: Any) -> list[Array]:
        """Returns this process's rows, device by device, in their order."""
        shards = sorted(array.addressable_shards, key=lambda each: each.index[0].start or 0)
        return [each.data for each in shards]


def placement_of(env: BatchedEnv, mesh: Mesh | None, process_local: bool, output: str) -> Placement:
    """Returns where a `JaxVecEnv` with these arguments has its arrays.

    Raises:
      TypeError: if `mesh` is no mesh of devices.
      ValueError: if the arguments do not go together.
    """
    if mesh is None:
        if process_local:
            raise ValueError(
                "JaxVecEnv: process_local=True says that a mesh spans several processes, but mesh=None came. "
                "Pass mesh=jaxvec.device_mesh()."
            )
        return ONE_DEVICE
    placement = MeshPlacement(mesh, env.spec.num_envs, process_local)
    if output == "torch":
        raise ValueError(
            f"JaxVecEnv: output='torch' came with a mesh of {mesh.size} device(s), but a tensor lies on one. "
            "Pass output='numpy' or 'jax', or no mesh."
        )
    params = None if env.env is None else env.env.params
    if placement.is_partial and any(
        map(placement.has_rows, map(np.asarray, jax.tree.leaves(params)))
    ):
        raise ValueError(
            f"JaxVecEnv: a parameter of the environment has {env.spec.num_envs} entries, as many as there "
            "are environments in all processes: it cannot be told from one value for each. Take another "
            "number of environments."
        )
    return placement
