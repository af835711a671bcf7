"""Rows over several devices: the same numbers, each device with a share of the rows."""

import math

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxvec.core._arguments import check_count
from jaxvec.core._transform import Timestep
from jaxvec.envs._env import BatchedEnv, check_batched
from jaxvec.typing import Action, Array, Key, PyTree


def device_mesh(num_devices: int | None = None, *, axis: str = "env") -> Mesh:
    """Returns a mesh of one axis over the first devices, or all.

    On a CPU the devices are those of `jax.config.update("jax_num_cpu_devices", n)`, which must come
    before JAX is first used; one for each core is a good choice.

    Args:
      num_devices: how many, of `jax.devices()` (those of all processes); None takes all.
      axis: its name.

    Raises:
      ValueError: if it is no count, or there are fewer.
    """
    devices = jax.devices()
    wanted = len(devices)
    if num_devices is not None:
        wanted = check_count("device_mesh", "num_devices", num_devices)
    if wanted > len(devices):
        raise ValueError(
            f"device_mesh: num_devices={num_devices} came, but JAX sees {len(devices)} "
            f"{devices[0].platform} device(s). On a CPU, call "
            f'jax.config.update("jax_num_cpu_devices", {num_devices}) before JAX is first used.'
        )
    return Mesh(np.array(devices[:wanted]), (axis,))


def row_shardings(
    where: str, num_envs: int, mesh: Mesh, axes: tuple[str, ...]
) -> tuple[NamedSharding, NamedSharding]:
    """Returns how arrays with rows lie on a mesh, and how all others do.

    Args:
      where: whose mesh it is, for messages.
      num_envs: N.
      mesh: the devices; of any axis types.
      axes: those of its axes that the rows are spread over.

    Raises:
      TypeError: if it is no mesh of devices.
      ValueError: if the mesh has no such axis, or N does not divide among its devices.
    """
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"{where}: mesh is of type {type(mesh).__name__}, but a jax.sharding.Mesh is needed: pass "
            "jaxvec.device_mesh()."
        )
    unknown = [name for name in axes if name not in mesh.shape]
    if unknown:
        raise ValueError(
            f"{where}: axis {unknown[0]!r} came, but the mesh has the axes {list(mesh.shape)}."
        )
    parts = math.prod(mesh.shape[name] for name in axes)
    if num_envs % parts:
        raise ValueError(
            f"{where}: {num_envs} environments do not divide among {parts} devices (of {axes}); "
            f"{num_envs // parts * parts or parts} or {(num_envs // parts + 1) * parts} would."
        )
    # jax.make_mesh gives axes that ask every operation how its result lies; here XLA may find out.
    mesh = Mesh(mesh.devices, mesh.axis_names)
    return NamedSharding(mesh, PartitionSpec(axes)), NamedSharding(mesh, PartitionSpec())


def has_rows(leaf: Array, num_envs: int) -> bool:
    """Tells whether an array has an axis of N rows in front.

    Where the statistics of N columns are taken for N rows, they lie otherwise, and are no other.
    """
    return bool(leaf.ndim > 0 and leaf.shape[0] == num_envs)


def shard(
    env: BatchedEnv, mesh: Mesh | None = None, axis: str | tuple[str, ...] = "env"
) -> BatchedEnv:
    """Lays the rows of a batched environment, and of all its layers, over a mesh of devices.

    Nothing is computed otherwise: rows never look at each other, so that a step needs no talk between
    devices but for what is learned over ALL rows (`normalize_observation(update="step")`; with
    `update="rollout"` that is once a rollout). Put it outermost, over `wrap`. It works in any jit, and
    in several processes of `jax.distributed`, where the arrays are global ones.

    Args:
      env: N environments.
      mesh: the devices; None: all (`device_mesh()`).
      axis: the axis of the mesh, or the axes, that the rows are spread over. Over its other axes the
        rows are copied.

    Returns:
      The same environments: what `reset`, `reset_rows` and `step` return lies on the mesh, everything
      with rows spread by them, all else copied to each device.

    Raises:
      TypeError: if `env` is no `BatchedEnv`, or `mesh` no mesh of devices.
      ValueError: if the mesh has no such axis, or N does not divide among its devices.
    """
    check_batched("shard", env)
    mesh = device_mesh() if mesh is None else mesh
    axes = (axis,) if isinstance(axis, str) else tuple(axis)
    num_envs = env.spec.num_envs
    rows, copies = row_shardings("shard", num_envs, mesh, axes)

    def laid(leaf: Array) -> Array:
        spread = has_rows(leaf, num_envs)
        return jax.lax.with_sharding_constraint(leaf, rows if spread else copies)

    def lay(state: PyTree, timestep: Timestep) -> tuple[PyTree, Timestep]:
        state, timestep = jax.tree.map(laid, (state, timestep))
        return state, timestep

    def reset(keys: Key, options: PyTree = None) -> tuple[PyTree, Timestep]:
        return lay(*env.reset(laid(keys), options))

    def reset_rows(
        state: PyTree, mask: Array, keys: Key | None = None, options: PyTree = None
    ) -> tuple[PyTree, Timestep]:
        return lay(*env.reset_rows(state, mask, keys, options))

    def step(state: PyTree, action: Action) -> tuple[PyTree, Timestep]:
        return lay(*env.step(state, action))

    def end_rollout(state: PyTree) -> PyTree:
        return jax.tree.map(laid, env.end_rollout(state))

    return env._replace(reset=reset, reset_rows=reset_rows, step=step, end_rollout=end_rollout)
