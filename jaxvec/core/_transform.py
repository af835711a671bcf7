"""The idea of jaxvec: a layer is a value, a record of pure functions; composing is a function on values.

Shape legend, here and everywhere: `N` environments, `T` steps, `F` ended rows, `*D` any shape.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from gymnasium.spaces import Space
from gymnasium.vector import AutoresetMode

from jaxvec.core._xp import all_rows
from jaxvec.typing import Action, Array, Key, Obs, PyTree


class VecSpec(NamedTuple):
    """What a layer knows before the first array. Both spaces are those of ONE environment.

    Attributes:
      num_envs: N.
      observation_space: of ONE environment.
      action_space: of ONE environment.
      autoreset_mode: when an episode that ended is followed by a new one.
      backend: whose arrays a layer's state holds.
    """

    num_envs: int  # N
    observation_space: Space[Any]
    action_space: Space[Any]
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP
    backend: Literal["numpy", "jax"] = "jax"


class Timestep(NamedTuple):
    """One step of N environments, in columns: the only record that travels between layers.

    On the device `final_obs` is dense (`final_rows` is None; where nobody reads it the compiler drops
    it). On the host it holds the F ended rows only, `final_rows` says which, and both are None where no
    row ended.

    In `SAME_STEP` mode a row that ends shows the next episode's first observation in `obs` (`first`
    holds there) and its own last one in `final_obs`. In `NEXT_STEP` mode it shows its last observation
    in both, and the step after that is its reset: `first` holds, `valid` does not. In `DISABLED` mode
    a row that ended stands still, with `valid` False, until it is reset.

    Attributes:
      obs: `[N, *D]`, or a dict or tuple of such.
      reward: float32 `[N]`.
      terminated: bool `[N]`: the episode ended by the environment's own rule.
      truncated: bool `[N]`: cut off from outside (a time limit); never where terminated.
      valid: bool `[N]`: a transition took place; False on rows that reset or stood still.
      first: bool `[N]`: `obs` opens an episode.
      final_obs: `[N, *D]` or `[F, *D]`: the observation that this step led to.
      final_rows: integers `[F]`, host only: which rows `final_obs` holds.
      info: columns `[N, ...]` of the transition; never written to.
      reset_info: columns of the resets, to be read where `first` holds.
      rows: host only: N dicts, the environments' own infos; never written to.
    """

    obs: Obs  # [N, *D], or a dict or tuple of such
    reward: Array  # float32 [N]
    terminated: Array  # bool [N]: the episode ended by the environment's own rule
    truncated: Array  # bool [N]: cut off from outside (a time limit); never where terminated
    valid: Array  # bool [N]: a transition took place; False on rows that reset or stood still
    first: Array  # bool [N]: `obs` opens an episode
    final_obs: Obs = None  # [N, *D] or [F, *D]: the observation that this step led to
    final_rows: Array = None  # integers [F], host only: which rows `final_obs` holds
    info: dict[str, PyTree] = {}  # noqa: RUF012  columns [N, ...] of the transition; never written to
    reset_info: dict[str, PyTree] = {}  # noqa: RUF012  columns of the resets, to be read where `first`
    rows: Any = None  # host only: N dicts, the environments' own infos; never written to

    @property
    def done(self) -> Array:
        """Bool `[N]`: the episode ended in this step, for either reason."""
        return self.terminated | self.truncated

    @property
    def moved(self) -> Array:
        """Bool `[N]`: `obs` is new, by a transition or a reset. All rows unless some stand still."""
        return self.valid if all_rows(self.valid) else self.valid | self.first

    # A host loop does these several times a step; they cost a third of `_replace`.

    def with_obs(self, obs: Obs, final_obs: Obs) -> "Timestep":
        """Returns the timestep with other observations."""
        return Timestep._make((obs, *self[1:6], final_obs, *self[7:]))

    def with_reward(self, reward: Array) -> "Timestep":
        """Returns the timestep with other rewards."""
        return Timestep._make((self[0], reward, *self[2:]))

    def with_info(self, info: dict[str, PyTree]) -> "Timestep":
        """Returns the timestep with other columns of info."""
        return Timestep._make((*self[:8], info, *self[9:]))


def stateless(spec: VecSpec, keys: Key | None) -> PyTree:
    """The `init` of a transform that remembers nothing."""
    del spec, keys
    return ()


def unchanged(spec: VecSpec) -> VecSpec:
    """The `spec` of a transform that leaves the spaces as they are."""
    return spec


def passthrough(state: PyTree, action: Action) -> tuple[PyTree, Action]:
    """The `action` of a transform that leaves actions as they are."""
    return state, action


def nothing_to_merge(state: PyTree) -> PyTree:
    """The `end_rollout` of a transform that sets nothing aside during a rollout."""
    return state


class Transform(NamedTuple):
    """One layer, as five pure functions and a hook. The first argument is its state, as in `lax.scan`.

    The state holds all that changes between steps, switches such as `training` included (array
    leaves: flipping one compiles nothing again). Options are closed over. `keys` are `[N]` row keys
    (typed, or raw uint32 `[N, 2]`): what a row draws depends on its own key alone, never on N.

    `end_rollout` folds what was set aside during a rollout into the statistics (`update="rollout"`);
    `jaxvec.rollout` calls it once after its scan, so that the loop itself needs no reduction over rows.

    Attributes:
      init: `(spec, keys) -> state`; `keys` may be None where nothing is random.
      reset: `(state, timestep, mask) -> (state, timestep)`: the rows where the mask (bool `[N]`) holds
        start anew; None: all rows.
      update: `(state, timestep) -> (state, timestep)`: one step of all rows.
      action: `(state, action) -> (state, action)`, on the way down.
      spec: `(spec) -> spec`: what it does to the spaces.
      end_rollout: `(state) -> state`: merges what was set aside.
    """

    init: Callable[[VecSpec, Key | None], PyTree]
    reset: Callable[[PyTree, Timestep, Array | None], tuple[PyTree, Timestep]]
    update: Callable[[PyTree, Timestep], tuple[PyTree, Timestep]]
    action: Callable[[PyTree, Action], tuple[PyTree, Action]] = passthrough
    spec: Callable[[VecSpec], VecSpec] = unchanged
    end_rollout: Callable[[PyTree], PyTree] = nothing_to_merge


def chain(*transforms: Transform) -> Transform:
    """Composes transforms into one; the first stands nearest to the environment.

    Observations pass them first to last, actions last to first. Its state is the tuple of theirs.

    >>> from jaxvec import chain, episode_statistics, frame_stack, normalize_observation
    >>> layers = chain(episode_statistics(), frame_stack(4), normalize_observation())

    Args:
      *transforms: the layers; with none of them nothing changes.

    Raises:
      TypeError: if one is no `Transform`.
    """
    return _compose(tuple, lambda state: state, transforms)


def named_chain(**transforms: Transform) -> Transform:
    """Does what `chain` does, with a name for each layer; its state is a dict, in the order given.

    >>> from jaxvec import frame_stack, named_chain, normalize_observation
    >>> layers = named_chain(norm=normalize_observation(), stack=frame_stack(4))

    Args:
      **transforms: the layers by name, the first nearest to the environment.

    Raises:
      TypeError: if one is no `Transform`.
    """
    names = tuple(transforms)
    return _compose(
        lambda values: dict(zip(names, values, strict=True)),
        lambda state: tuple(state[name] for name in names),
        tuple(transforms.values()),
    )


def _compose(
    pack: Callable[[Any], PyTree],
    unpack: Callable[[PyTree], tuple[PyTree, ...]],
    transforms: tuple[Transform, ...],
) -> Transform:
    for transform in transforms:
        if not isinstance(transform, Transform):
            raise TypeError(
                f"chain: {transform!r} is not a Transform. Call the layer's function first, as in "
                "chain(frame_stack(4), normalize_observation())."
            )

    def init(spec: VecSpec, keys: Key | None = None) -> PyTree:
        states = []
        for transform in transforms:
            states.append(transform.init(spec, keys))
            spec = transform.spec(spec)
        return pack(states)

    def reset(
        state: PyTree, timestep: Timestep, mask: Array | None = None
    ) -> tuple[PyTree, Timestep]:
        states = []
        for transform, inner in zip(transforms, unpack(state), strict=True):
            inner, timestep = transform.reset(inner, timestep, mask)
            states.append(inner)
        return pack(states), timestep

    def update(state: PyTree, timestep: Timestep) -> tuple[PyTree, Timestep]:
        states = []
        for transform, inner in zip(transforms, unpack(state), strict=True):
            inner, timestep = transform.update(inner, timestep)
            states.append(inner)
        return pack(states), timestep

    def action(state: PyTree, action: Action) -> tuple[PyTree, Action]:
        states = []
        for transform, inner in zip(reversed(transforms), reversed(unpack(state)), strict=True):
            inner, action = transform.action(inner, action)
            states.append(inner)
        return pack(states[::-1]), action

    def spec(spec: VecSpec) -> VecSpec:
        for transform in transforms:
            spec = transform.spec(spec)
        return spec

    def end_rollout(state: PyTree) -> PyTree:
        inner = zip(transforms, unpack(state), strict=True)
        return pack([transform.end_rollout(each) for transform, each in inner])

    return Transform(init, reset, update, action, spec, end_rollout)
