"""What a `JaxVecEnv` gives of single environments: attributes, results of methods, pictures."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from jaxvec.envs import BatchedEnv
from jaxvec.typing import Array
from jaxvec.vec._base import ColumnVecEnv, Where
from jaxvec.vec._indices import Indices
from jaxvec.vec._jax_attributes import RowAttributes
from jaxvec.vec._jax_pictures import Pictures
from jaxvec.vec._monitor_env import Monitor
from jaxvec.vec._packing import Packed
from jaxvec.vec._sb3 import MONITORS, loaded
from jaxvec.vec._utils import has_pictures


class Reachable(ColumnVecEnv):
    """Compiled environments whose rows can be looked at, and their parameters set."""

    _env: BatchedEnv
    _packed: Packed | None
    _info_keys: tuple[str, ...]
    _wanted_mode: str | None
    _pictures: Pictures | None
    _row_attributes: RowAttributes | None

    @abstractmethod
    def _ensure_started(self) -> None:
        """Makes the environments, if nobody has reset them yet; their first reset stays to come."""

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Returns an attribute of each environment: a parameter, its state, a method, or what all share.

        Raises:
          AttributeError: if there is no such attribute; the message lists those that exist.
        """
        rows = list(self._get_indices(indices))
        if attr_name == "render_mode":
            return [self._wanted_mode for _ in rows]
        return self._attributes().get(attr_name, rows)

    def set_attr(
        self, attr_name: str, value: Any, indices: Indices = None, *, where: Where = "outermost"
    ) -> None:
        """Sets a parameter of each environment, from the next step on; nothing is compiled for it.

        Args:
          attr_name: of the parameter, such as "gravity".
          value: the same for all.
          indices: which environments; None for all.
          where: for other VecEnvs; here there are no wrappers.

        Raises:
          AttributeError: if there is no such parameter, or the parameters are compiled in.
          ValueError: if the value does not fit it.
        """
        del where
        self._attributes().put(attr_name, value, list(self._get_indices(indices)))

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Calls a method of the environment's record, `(state, params, ...)`, and returns the results.

        Raises:
          AttributeError: if there is no such method; the message lists those that exist.
        """
        rows = list(self._get_indices(indices))
        if method_name != "render":
            return self._attributes().call(method_name, rows, method_args, method_kwargs)
        if self._pictures is None:
            return [None for _ in rows]
        if self.render_mode == "rgb_array":
            return self._pictures.draw(self._attributes(), rows)
        self._pictures.show(self._attributes(), rows)
        return [None for _ in rows]

    def get_images(self) -> Sequence[Array | None]:
        """Returns a picture of each environment, `[H, W, 3]`; None each unless made for "rgb_array"."""
        if not has_pictures(self):
            return [None] * self.num_envs
        return self.env_method("render")

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Indices = None) -> list[bool]:
        """Tells for each environment whether it is wrapped by a class.

        Only by a Monitor it can be: where infos have "episode" because a layer of `jaxvec.wrap` made it.
        """
        monitored = "episode" in self._info_keys and wrapper_class in (
            Monitor,
            *loaded("Monitor", MONITORS),
        )
        return [monitored for _ in self._get_indices(indices)]

    def _attributes(self) -> RowAttributes:
        self._ensure_started()
        if self._row_attributes is None:
            assert self._packed is not None
            self._row_attributes = RowAttributes(self._env, self._packed)
        return self._row_attributes
