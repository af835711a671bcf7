"""Any tree, leaf by leaf and with paths, without JAX unless a node of the tree is JAX's own."""

import copy
import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np


def map_leaves(
    visit: Callable[[str, Any], Any], node: Any, path: str = "", stop: type | tuple[type, ...] = ()
) -> Any:
    """Rebuilds a tree from what `visit(path, leaf)` returns; nodes of the types `stop` count as leaves.

    Paths read as JAX's (`[0].stack['camera']`). Plain recursion: it needs no JAX unless a node does.
    """
    if node is None:
        return None
    if isinstance(node, stop):
        return visit(path, node)
    if isinstance(node, dict):
        new = copy.copy(node)
        for key, branch in node.items():
            new[key] = map_leaves(visit, branch, f"{path}[{key!r}]", stop)
        return new
    if isinstance(node, tuple | list):
        names = getattr(node, "_fields", None)
        branches = [
            map_leaves(visit, branch, f"{path}.{names[i]}" if names else f"{path}[{i}]", stop)
            for i, branch in enumerate(node)
        ]
        make: Callable[..., Any] = getattr(node, "_make", type(node))
        return make(branches)
    if isinstance(node, np.ndarray | np.generic | int | float):
        return visit(path, node)
    if "jax" in sys.modules:
        from jax import tree_util

        branches, structure = tree_util.tree_flatten_with_path(
            node, is_leaf=lambda branch: branch is not node
        )
        if not tree_util.treedef_is_leaf(structure):
            new_branches = [
                map_leaves(visit, branch, path + tree_util.keystr(key), stop)
                for key, branch in branches
            ]
            return tree_util.tree_unflatten(structure, new_branches)
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        record = copy.copy(node)
        for field in dataclasses.fields(node):
            branch = map_leaves(visit, getattr(node, field.name), f"{path}.{field.name}", stop)
            object.__setattr__(record, field.name, branch)  # a frozen one too; no constructor runs
        return record
    return visit(path, node)


def leaves_by_path(node: Any, stop: type | tuple[type, ...] = ()) -> dict[str, Any]:
    """Returns the leaves of a tree by their paths, in its order.

    Raises:
      ValueError: if two leaves have one path, because two keys of a dict read alike.
    """
    found: dict[str, Any] = {}

    def visit(path: str, leaf: Any) -> Any:
        if path in found:
            raise ValueError(
                f"two leaves are called {named(path)}: give their keys different names."
            )
        found[path] = leaf
        return leaf

    map_leaves(visit, node, stop=stop)
    return found


def named(where: str) -> str:
    """Returns how a message speaks of a leaf."""
    return f"`{where}`" if where else "the tree itself"
