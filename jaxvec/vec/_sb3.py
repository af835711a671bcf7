"""How Stable-Baselines3 comes to accept jaxvec's classes as its own, without either importing the other.

SB3's classes are abstract base classes: jaxvec's become virtual subclasses of their namesakes. That cannot
be done before SB3 is imported, and jaxvec never imports it (that would load torch). So it is done when
somebody asks: `isinstance(venv, ...)` looks at `venv.__class__`, which registers first. `Monitor` and
`RunningMeanStd` are ordinary classes of SB3's; an object of jaxvec's says that it is of a class that
inherits from both. The same holds for lit_sb3, which has classes of its own.
"""

import sys
from abc import ABC
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # A type checker cannot see what is registered: to it, VecEnv inherits from SB3's, so that it passes where
    # SB3 asks for one. Where SB3 is not installed, the base is unknown to it.
    from stable_baselines3.common.vec_env.base_vec_env import (  # pyright: ignore[reportMissingImports]
        VecEnv as _VecEnvOfSB3,
    )
else:
    _VecEnvOfSB3 = ABC

PACKAGES = ("stable_baselines3.common.vec_env", "lit_sb3.vec_env")
"""Where VecEnv and its wrappers are found."""

NAMESAKES = (
    *(
        "VecEnvWrapper",
        "DummyVecEnv",
        "SubprocVecEnv",
        "VecNormalize",
        "VecMonitor",
        "VecFrameStack",
    ),
    *("VecTransposeImage", "VecCheckNan", "VecExtractDictObs", "VecVideoRecorder", "VecEnv"),
)
"""Classes that jaxvec has under the name that SB3 has them."""

_LAST = "sync_envs_normalization"

MONITORS = ("stable_baselines3.common.monitor", "lit_sb3.wrappers.monitor")
MEAN_STDS = ("stable_baselines3.common.running_mean_std", "lit_sb3.core.running_mean_std")


def loaded(name: str, modules: tuple[str, ...]) -> tuple[type[Any], ...]:
    """Returns others' classes of a name in those of the modules that have been imported."""
    found = (vars(sys.modules[module]).get(name) for module in modules if module in sys.modules)
    # Some put jaxvec's classes in the place of SB3's.
    return tuple(each for each in found if isinstance(each, type) and not _is_own(each))


def _is_own(each: type[Any]) -> bool:
    return each.__module__.startswith("jaxvec.")


def namesakes(own: type[Any]) -> tuple[type[Any], ...]:
    """Returns a class, and if it is jaxvec's those of its name in SB3 and lit_sb3, where they are loaded."""
    return (own, *loaded(own.__name__, PACKAGES)) if _is_own(own) else (own,)


def register_loaded() -> bool:
    """Makes jaxvec's classes virtual subclasses of SB3's and lit_sb3's, where these are loaded.

    Returns:
      Whether one of them is.
    """
    done = False
    for package in PACKAGES:
        module = sys.modules.get(package)
        # The last name of the page: without it the page is being imported, and whoever asks asks again.
        if module is not None and _LAST in module.__dict__:
            _register(module)
            done = True
    return done


@cache
def _register(package: ModuleType) -> None:
    ours: Any = import_module("jaxvec.vec")
    for name in NAMESAKES:
        getattr(package, name).register(getattr(ours, name))


class RegistersItself(_VecEnvOfSB3):
    """Objects whose class is registered with SB3 at the latest when somebody asks what it is."""

    # It cannot be assigned, as checkers ask: it follows from what is loaded.
    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The object's class; SB3 knows it from here on."""
        register_loaded()
        return type(self)


def apparent_class(own: Any, modules: tuple[str, ...]) -> type[Any]:
    """Returns the class that an object of jaxvec's says it is of.

    Args:
      own: its class.
      modules: where SB3 and lit_sb3 have the class of that name.

    Returns:
      `own`; where one of those is loaded, a class that inherits from both, and does all as `own` does.
    """
    theirs = loaded(own.__name__, modules)
    return _both(own, theirs) if theirs else own


@cache
def _both(own: Any, theirs: tuple[type[Any], ...]) -> type[Any]:
    return type(own.__name__, (own, *theirs), {"__module__": own.__module__})
