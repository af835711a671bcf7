"""Pictures of JAX-native environments, and a window to show them in.

painter_of     draws single environments: the environment's own picture, or gymnasium's for classic control
Window         shows pictures on the screen
"""

from jaxvec.render._painters import Painter, painter_of
from jaxvec.render._window import Window

__all__ = ["Painter", "Window", "painter_of"]
