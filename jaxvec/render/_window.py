"""A window on the screen that shows pictures, by pygame."""

import os
from importlib import import_module
from typing import Any

import numpy as np

from jaxvec.errors import MissingExtraError
from jaxvec.typing import Array

_NO_SCREEN = ("dummy", "offscreen")
"""What SDL draws to where there is no display."""


class Window:
    """Shows one picture after the other.

    Args:
      title: of the window.

    Raises:
      MissingExtraError: if pygame is not installed.
      RuntimeError: if there is no display.
    """

    def __init__(self, title: str) -> None:
        try:
            self._pygame: Any = import_module("pygame")
        except ImportError as error:
            raise MissingExtraError(
                'render_mode="human" shows a window with pygame, which is not installed: install '
                'jaxvec[video], or use render_mode="rgb_array".'
            ) from error
        self._title = title
        self._screen: Any = None
        display = self._pygame.display
        if display.get_init() and display.get_driver() in _NO_SCREEN:
            display.quit()  # it was opened for pictures; now a screen is looked for
        try:
            display.init()
        except self._pygame.error as error:
            raise _no_display(str(error)) from error
        driver = display.get_driver()
        if driver in _NO_SCREEN and os.environ.get("SDL_VIDEODRIVER") != driver:
            raise _no_display(f"SDL found only {driver!r}")

    def show(self, picture: Array) -> None:
        """Shows a picture.

        Args:
          picture: uint8 `[H, W, 3]`.
        """
        size = picture.shape[1], picture.shape[0]
        if self._screen is None or self._screen.get_size() != size:
            self._screen = self._pygame.display.set_mode(size)
            self._pygame.display.set_caption(self._title)
        surface = self._pygame.surfarray.make_surface(np.swapaxes(picture, 0, 1))
        self._screen.blit(surface, (0, 0))
        self._pygame.event.pump()
        self._pygame.display.flip()

    def close(self) -> None:
        """Closes the window."""
        if self._screen is not None:
            self._screen = None
            self._pygame.display.quit()


def _no_display(cause: str) -> RuntimeError:
    return RuntimeError(
        f'render_mode="human" needs a display, and there is none here ({cause}). Use '
        'render_mode="rgb_array" and record a video (VecVideoRecorder), or set DISPLAY.'
    )
