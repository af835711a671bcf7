"""Pictures of JAX-native environments, and a window to show them in.

painter_of     draws single environments: the environment's own picture, or gymnasium's for classic control
is_drawable    tells whether there is something that draws an environment
Window         shows pictures on the screen
"""

from jaxvec.render._painters import Painter, is_drawable, painter_of
from jaxvec.render._window import Window

__all__ = ["Painter", "Window", "is_drawable", "painter_of"]
