"""What a `JaxVecEnv` shows of its environments: one row's state is fetched for each picture."""

from collections.abc import Sequence

from jaxvec.envs import BatchedEnv
from jaxvec.render import Painter, Window, is_drawable, painter_of
from jaxvec.typing import Array
from jaxvec.vec._jax_attributes import RowAttributes
from jaxvec.vec._utils import tile_images


class Pictures:
    """Draws rows, and shows them in a window.

    Args:
      env: the environments.

    Raises:
      ValueError: if nothing is known that draws them.
      MissingExtraError: if pygame is needed, and not installed.
    """

    def __init__(self, env: BatchedEnv) -> None:
        if env.env is None or not (is_drawable(env.env) or painter_of(env.env)):
            name = None if env.env is None else env.env.metadata.get("name")
            raise ValueError(
                f"JaxVecEnv: there are no pictures of the environment {name!r}: its record has no "
                "`render`. Add `render=(state) -> uint8 [H, W, 3]` to the Env, or make the VecEnv without "
                "a render_mode."
            )
        self._env = env.env
        self._painter: Painter | None = None  # made for the first picture: it may load pygame
        self._window: Window | None = None

    def draw(self, attributes: RowAttributes, rows: Sequence[int]) -> list[Array]:
        """Returns a picture of each of these rows, uint8 `[H, W, 3]`."""
        if self._painter is None:
            self._painter = painter_of(self._env)
            assert self._painter is not None
        return [self._painter(*attributes.row(row)) for row in rows]

    def show(self, attributes: RowAttributes, rows: Sequence[int]) -> None:
        """Shows these rows, tiled, in a window.

        Raises:
          RuntimeError: if there is no display.
        """
        if self._window is None:
            self._window = Window("JaxVecEnv")
        self._window.show(tile_images(self.draw(attributes, rows)))

    def close(self) -> None:
        """Closes the window."""
        if self._window is not None:
            self._window.close()
            self._window = None
