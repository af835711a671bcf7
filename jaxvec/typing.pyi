"""The words of `typing.py`; of an alias of Any, pyright would take `x | y` for a union of types."""

from typing import Any as Action
from typing import Any as Array
from typing import Any as Key
from typing import Any as Obs
from typing import Any as PyTree

__all__ = ["Action", "Array", "Key", "Obs", "PyTree"]
