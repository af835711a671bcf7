"""Observations in another form: transposed, taken apart, flattened, cast, encoded.

Each of these maps an observation by itself: `obs` and `final_obs`, dense or sparse, go through one function.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxvec.core._arguments import check_finite_number, check_flag
from jaxvec.core._images import is_channels_first, is_image_space
from jaxvec.core._layers import (
    Space,
    box_bounds,
    categories,
    check_keys,
    encode_one_hot,
    flat_rows,
    leaf_layer,
    named_branches,
    observation_layer,
    only_named,
)
from jaxvec.core._transform import Transform, VecSpec
from jaxvec.core._xp import (
    Namespace,
    backend_namespace,
    canonical_dtype,
    is_integer_or_bool,
    map_obs,
    namespace,
    obs_leaves,
    space_tree,
    tree_space,
)
from jaxvec.typing import Array, Obs, PyTree


def transpose_image(*, keys: Sequence[Any] | None = None, skip: bool = False) -> Transform:
    """Moves the channels of images to the front, `[H, W, C]` to `[C, H, W]`, as PyTorch wants them.

    What is an image, and where its channels are, is decided as Stable-Baselines3 decides: a Box of
    three axes, uint8, from 0 to 255, whose smallest axis is not the first.

    Args:
      keys: the keys of a Dict space (indices of a Tuple space) that hold the images; None for every
        image in it.
      skip: leave everything as it is, for images that have their channels first already.

    Returns:
      The transform. Its images are views on those below.

    Raises:
      ValueError: once the spaces are known, if a plain observation or a named key is no image, if a
        key does not exist, or if an image has its channels first.
    """
    check_flag("transpose_image", "skip", skip)
    check_keys("transpose_image", keys)

    def transposed(space: spaces.Box) -> spaces.Box:
        if is_channels_first(space):
            raise ValueError(
                f"transpose_image: the image {space} has its channels first: its smallest axis is "
                "axis 0. Nothing is left to transpose: drop this layer, or pass skip=True."
            )
        height, width, channels = space.shape
        return spaces.Box(0, 255, (channels, height, width), np.uint8)

    def leaves(spec: VecSpec) -> PyTree:
        tree = space_tree(spec.observation_space)
        if skip:
            return map_obs(lambda leaf: None, tree)
        if keys is not None:
            tree = only_named(tree, keys, "transpose_image")
        if keys is not None or not isinstance(tree, dict | tuple):
            map_obs(_check_image, tree)
        return map_obs(lambda leaf: transposed(leaf) if is_image_space(leaf) else None, tree)

    return leaf_layer(leaves, lambda image: image.transpose(0, 3, 1, 2))


def extract_key(key: Any) -> Transform:
    """Takes one part of a dict or tuple observation for the whole.

    Args:
      key: the key in a Dict space, or the index in a Tuple space.

    Raises:
      TypeError: if no dict can have such a key; once the spaces are known, if the observation has no
        parts.
      ValueError: once the spaces are known, if it has no such part.
    """
    if not isinstance(key, Hashable):
        raise TypeError(f"extract_key: key={key!r}, but it must be ONE key or index.")

    def part(spec: VecSpec) -> Space:
        space = spec.observation_space
        if not isinstance(space, spaces.Dict | spaces.Tuple):
            raise TypeError(
                f"extract_key: the observation space is {space}, which has no key {key!r}: only Dict "
                "and Tuple spaces have parts. Drop this layer."
            )
        branch: Space = tree_space(named_branches(space_tree(space), [key], "extract_key")[key])
        return branch

    return observation_layer(lambda spec: (), lambda obs, state: obs[key], part)


def flatten_observation() -> Transform:
    """Makes one vector of an observation, in the order and dtype of `gymnasium.spaces.flatten`.

    Discrete parts are one-hot; dict keys come in the order of the space. On the device, where JAX holds
    no 64 bits, the vector and its space have 32.

    Raises:
      TypeError: once the spaces are known, if a part has no fixed size (Text, Sequence, Graph).
      ValueError: once the spaces are known, if there is no part with a number in it.
    """

    def plan(spec: VecSpec) -> PyTree:
        return _flat_plan(spec.observation_space, backend_namespace(spec.backend))

    def apply(obs: Obs, plan: PyTree) -> Array:
        parts = list(_flat_parts(obs, plan))
        xp = namespace(parts[0])
        dtype = canonical_dtype(np.result_type(*(part.dtype for part in parts)), xp)
        return xp.concatenate([part.astype(dtype) for part in parts], 1)

    def flat(spec: VecSpec) -> Space:
        _flat_plan(spec.observation_space, np)
        # Part by part: gymnasium cannot flatten an empty Dict or Tuple.
        leaves = [leaf for _, leaf in obs_leaves(space_tree(spec.observation_space))]
        if not leaves:
            raise ValueError(
                f"flatten_observation: {spec.observation_space} holds no numbers: drop this layer."
            )
        boxes: list[Any] = [spaces.flatten_space(leaf) for leaf in leaves]
        xp = backend_namespace(spec.backend)
        held = np.result_type(*(canonical_dtype(box.dtype, xp) for box in boxes))
        dtype = canonical_dtype(held, xp)
        bounds = [box_bounds(box, dtype) for box in boxes]
        low, high = (np.concatenate(ends) for ends in zip(*bounds, strict=True))
        return spaces.Box(low, high, dtype=dtype.type)

    return observation_layer(plan, apply, flat)


def cast_observation(dtype: Any, *, scale: float | None = None) -> Transform:
    """Casts every Box part to a dtype, and multiplies it; the bounds follow. Others stay as they are.

    >>> layer = cast_observation("float32", scale=1 / 255)  # an image in [0, 1]

    Args:
      dtype: the dtype. A whole-number one takes parts of whole numbers that fit into it only.
      scale: what to multiply with after the cast; for floating dtypes only.

    Raises:
      ValueError: if `scale` is 0, not finite, or given for whole numbers; once the spaces are known, if
        a part does not fit into the dtype, or JAX would not hold it (64 bits without x64).
      TypeError: if `dtype` is not one that a Box can have.
    """
    target = _box_dtype(dtype)
    if scale is not None:
        check_finite_number("cast_observation", "scale", scale)
        if target.kind != "f" or scale == 0:
            raise ValueError(
                f"cast_observation: scale={scale!r} with dtype={target} cannot be: a scale is not 0, and "
                "for floating dtypes."
            )

    def cast(x: Array) -> Array:
        x = x.astype(target)
        return x if scale is None else x * target.type(scale)

    def cast_box(box: spaces.Box) -> spaces.Box:
        if target.kind != "f":
            _check_whole(box, target)
            return spaces.Box(box.low, box.high, box.shape, target.type)
        ends = box_bounds(box, target)
        if scale is not None:
            with np.errstate(over="ignore"):
                ends = ends[0] * target.type(scale), ends[1] * target.type(scale)
        return spaces.Box(np.minimum(*ends), np.maximum(*ends), box.shape, target.type)

    def leaves(spec: VecSpec) -> PyTree:
        held = canonical_dtype(target, backend_namespace(spec.backend))
        if held != target:
            raise ValueError(
                f"cast_observation: dtype={target} needs 64 bits, which JAX holds only after "
                f'jax.config.update("jax_enable_x64", True); without it, ask for {held}.'
            )
        tree = space_tree(spec.observation_space)
        return map_obs(lambda leaf: cast_box(leaf) if isinstance(leaf, spaces.Box) else None, tree)

    return leaf_layer(leaves, cast)


def one_hot() -> Transform:
    """Encodes Discrete and MultiDiscrete parts as one-hot float32 vectors; others stay as they are.

    A MultiDiscrete part gives the vectors of its numbers one after the other. A number that is not in
    the space gives zeros.
    """

    def plan(spec: VecSpec) -> PyTree:
        xp = backend_namespace(spec.backend)
        return map_obs(lambda leaf: categories(leaf, xp), space_tree(spec.observation_space))

    def apply(obs: Obs, plan: PyTree) -> Obs:
        def encode(x: Array, values: tuple[Array, ...] | None) -> Array:
            return x if values is None else encode_one_hot(x, values, np.float32)

        return map_obs(encode, obs, plan)

    def box(leaf: Space) -> Space:
        if not isinstance(leaf, spaces.Discrete | spaces.MultiDiscrete):
            return leaf
        return spaces.Box(0, 1, (spaces.flatdim(leaf),), np.float32)

    def encoded(spec: VecSpec) -> Space:
        new: Space = tree_space(map_obs(box, space_tree(spec.observation_space)))
        return new

    return observation_layer(plan, apply, encoded)


def _box_dtype(dtype: Any) -> np.dtype[Any]:
    message = f"cast_observation: dtype={dtype!r} is none of a Box: give a float or int dtype."
    if dtype is None:  # NumPy takes it for float64
        raise TypeError(message)
    try:
        target: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(message) from error
    if target.kind not in "fiu":
        raise TypeError(message)
    return target


def _check_image(leaf: Any) -> None:
    if leaf is not None and not is_image_space(leaf):
        raise ValueError(
            f"transpose_image: {leaf} is no image, which is a Box of three axes, uint8, from 0 to "
            "255. Put this layer below those that change images, or name the keys of the images."
        )


def _check_whole(box: spaces.Box, target: np.dtype[Any]) -> None:
    limits = np.iinfo(target)
    whole = is_integer_or_bool(box.dtype)
    if not whole or int(box.low.min()) < limits.min or int(box.high.max()) > limits.max:
        raise ValueError(
            f"cast_observation: {box} does not fit into {target}, whole numbers from {limits.min} to "
            f"{limits.max}: values would change. Cast to a floating dtype, or to a wider one."
        )


def _flat_plan(space: Space, xp: Namespace) -> PyTree:
    """Returns, for each leaf in the order of the space, its categories, or None where it is numbers."""
    if isinstance(space, spaces.Dict):
        # One dict per key: JAX sorts the keys of a dict, a tuple keeps the order of the space.
        return tuple({key: _flat_plan(each, xp)} for key, each in space.spaces.items())
    if isinstance(space, spaces.Tuple):
        return tuple(_flat_plan(each, xp) for each in space.spaces)
    if not isinstance(
        space, spaces.Box | spaces.MultiBinary | spaces.Discrete | spaces.MultiDiscrete
    ):
        raise TypeError(
            f"flatten_observation: {space} has no fixed number of entries: only Box, Discrete, "
            "MultiDiscrete, MultiBinary, and Dict and Tuple of these, are flattened."
        )
    return categories(space, xp)


def _flat_parts(obs: Obs, plan: PyTree) -> Iterator[Array]:
    if isinstance(obs, dict):
        for branch in plan:
            for key, inner in branch.items():
                yield from _flat_parts(obs[key], inner)
    elif isinstance(obs, tuple):
        for branch, inner in zip(obs, plan, strict=True):
            yield from _flat_parts(branch, inner)
    else:
        yield flat_rows(obs) if plan is None else encode_one_hot(obs, plan, plan[0].dtype)
