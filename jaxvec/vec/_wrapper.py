"""`VecEnvWrapper`: a layer around a VecEnv, in Stable-Baselines3's style."""

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from gymnasium.spaces import Space

from jaxvec.typing import Action, Array, Obs
from jaxvec.vec._base import VecEnv, Where
from jaxvec.vec._convert import StepReturn
from jaxvec.vec._indices import Indices
from jaxvec.vec._utils import SeedMode


class VecEnvWrapper(VecEnv):
    """A VecEnv around another one; a subclass overrides `reset` and `step_wait`.

    Args:
      venv: the one inside; anything that has SB3's API.
      observation_space: as it looks from outside; None for that of `venv`.
      action_space: the same.
    """

    def __init__(
        self,
        venv: VecEnv,
        observation_space: Space[Any] | None = None,
        action_space: Space[Any] | None = None,
    ) -> None:
        self.venv = venv
        super().__init__(
            num_envs=venv.num_envs,
            observation_space=observation_space or venv.observation_space,
            action_space=action_space or venv.action_space,
        )
        self.class_attributes = dict(inspect.getmembers(self.__class__))

    # The attribute may be a property that can be assigned: pyright wants one kind everywhere.
    @property
    def reset_infos(self) -> list[dict[str, Any]]:
        """The infos of the last resets, as the VecEnv inside has them."""
        return self.venv.reset_infos

    @reset_infos.setter
    def reset_infos(  # pyright: ignore[reportIncompatibleVariableOverride]
        self, infos: list[dict[str, Any]]
    ) -> None:
        self.venv.reset_infos = infos

    @property
    def unwrapped(self) -> VecEnv:
        """The VecEnv beneath all wrappers."""
        return self.venv.unwrapped

    def _clear_reset_infos(self) -> None:
        """Leaves them: they are those of the VecEnv inside."""

    @abstractmethod
    def reset(self) -> Obs:
        """Resets `venv` and returns what this layer makes of its observations."""

    @abstractmethod
    def step_wait(self) -> StepReturn:
        """Finishes the step of `venv` and returns what this layer makes of it."""

    def step_async(self, actions: Action) -> None:
        """Hands the actions on."""
        self.venv.step_async(actions)

    def seed(
        self, seed: int | None = None, *, mode: SeedMode = "sequential"
    ) -> Sequence[int | None]:
        """Sets the seeds of the next reset; see `VecEnv.seed`."""
        return self.venv.seed(seed, **_unless("sequential", mode=mode))

    def set_options(
        self,
        options: Sequence[dict[str, Any]] | dict[str, Any] | None = None,
        *,
        sticky: bool = False,
    ) -> None:
        """Sets the options of the next reset; see `HostVecEnv.set_options`."""
        self.venv.set_options(options, **_unless(False, sticky=sticky))

    def close(self) -> None:
        """Closes the VecEnv inside."""
        self.venv.close()

    def render(self, mode: str | None = None) -> Array | None:
        """Renders the VecEnv inside."""
        return self.venv.render(mode=mode)

    def get_images(self) -> Sequence[Array | None]:
        """Returns the pictures of the VecEnv inside."""
        return self.venv.get_images()

    def has_attr(self, attr_name: str) -> bool:
        """Tells whether all environments have an attribute."""
        return self.venv.has_attr(attr_name)

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each environment."""
        return self.venv.get_attr(attr_name, indices)

    def set_attr(
        self, attr_name: str, value: Any, indices: Indices = None, *, where: Where = "outermost"
    ) -> None:
        """Sets an attribute of each environment; see `HostVecEnv.set_attr`."""
        return self.venv.set_attr(attr_name, value, indices, **_unless("outermost", where=where))

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of each environment and returns the results."""
        return self.venv.env_method(method_name, *method_args, indices=indices, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Tells for each environment whether it is wrapped by a class."""
        return self.venv.env_is_wrapped(wrapper_class, indices=indices)

    def __getattr__(self, name: str) -> Any:
        """Finds an attribute that this layer lacks in those inside, unless two of them have it."""
        if "class_attributes" not in self.__dict__ or "venv" not in self.__dict__:
            # Not built yet (a pickle is being read): there is nothing inside to ask.
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in self.class_attributes:  # it is there: a property, which raised by itself
            raise AttributeError(
                f"the property {name!r} of {type(self).__name__} raised AttributeError"
            )
        hidden = self.getattr_depth_check(name, already_found=False)
        if hidden is not None:
            own = f"{type(self).__module__}.{type(self).__name__}"
            raise AttributeError(
                f"Error: Recursive attribute lookup for {name} from {own} is ambiguous and hides "
                f"attribute from {hidden}"
            )
        return self.getattr_recursive(name)

    def _get_all_attributes(self) -> dict[str, Any]:
        return {**self.__dict__, **self.class_attributes}

    def getattr_recursive(self, name: str) -> Any:
        """Returns an attribute of this layer or of the nearest one inside that has it.

        Raises:
          AttributeError: if none has it.
        """
        if name in self._get_all_attributes():
            return getattr(self, name)
        inner = getattr(self.venv, "getattr_recursive", None)
        return getattr(self.venv, name) if inner is None else inner(name)

    def getattr_depth_check(self, name: str, already_found: bool) -> str | None:
        """Returns the name of the class whose attribute a wrapper's would hide; None if there is none."""
        has_it = name in self._get_all_attributes()
        if has_it and already_found:
            return f"{type(self).__module__}.{type(self).__name__}"
        return self.venv.getattr_depth_check(name, already_found or has_it)


def _unless(default: Any, **option: Any) -> dict[str, Any]:
    """Returns an option only if it is not the default: SB3's own VecEnvs inside do not know it."""
    return {name: value for name, value in option.items() if value != default}
