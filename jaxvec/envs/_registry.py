"""Environments by name: `make("CartPole-v1")`.

The table holds where a factory lies, not the factory: an environment's module is imported when it is made.
An id with a colon, such as `gymnax:Breakout-MinAtar`, names a library before it, which need not be imported
to be known. An installed package adds a library by an entry point of the group `jaxvec.envs`, whose name is
what stands before the colon and whose value is "module:function", a function `(name, **options) -> Env`.
"""

import difflib
import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from jaxvec.envs._env import Env
from jaxvec.errors import UnknownEnvError

Factory = Callable[..., Env[Any, Any]]
"""Makes one environment; its keyword arguments are the options of `make`."""

_FACTORIES: dict[str, Factory | str] = {
    "CartPole-v1": "jaxvec.envs.classic:cart_pole",
    "Pendulum-v1": "jaxvec.envs.classic:pendulum",
    "Acrobot-v1": "jaxvec.envs.classic:acrobot",
    "MountainCar-v0": "jaxvec.envs.classic:mountain_car",
    "MountainCarContinuous-v0": "jaxvec.envs.classic:continuous_mountain_car",
    "Breakout-MinAtar-v1": "jaxvec.envs.minatar_breakout:breakout",
}

NamedFactory = Callable[..., Env[Any, Any]]
"""Makes one of a library's environments: `(name, **options) -> Env`."""

_GROUP = "jaxvec.envs"  # of entry points

_NAMESPACES: dict[str, NamedFactory | str] = {
    "brax": "jaxvec.envs.adapters._brax:make",
    "craftax": "jaxvec.envs.adapters._craftax:make",
    "crax": "jaxvec.envs.adapters._brax:make_crax",
    "gymnax": "jaxvec.envs.adapters._gymnax:make",
    "jaxmarl": "jaxvec.envs.adapters._jaxmarl:make",
    "jumanji": "jaxvec.envs.adapters._jumanji:make",
    "navix": "jaxvec.envs.adapters._navix:make",
    "octax": "jaxvec.envs.adapters._octax:make",
    "pgx": "jaxvec.envs.adapters._pgx:make",
    "playground": "jaxvec.envs.adapters._brax:make_playground",
    "xminigrid": "jaxvec.envs.adapters._xminigrid:make",
}


def make(id: str, **options: Any) -> Env[Any, Any]:
    """Makes one environment of a registered kind.

    >>> from jaxvec.envs import make
    >>> env = make("CartPole-v1", sutton_barto_reward=True)
    >>> env.action_space, env.max_episode_steps
    (Discrete(2), 500)

    Args:
      id: its name, one of `available()`; or "library:name", where the library is one of
        `namespaces()`, such as "gymnax:Breakout-MinAtar".
      **options: what its factory takes, or that of the library.

    Returns:
      The environment. Its `metadata["name"]` is the id, unless the factory gave it another.

    Raises:
      UnknownEnvError: if nothing is registered under that id; the message lists the near ones.
      MissingExtraError: if the library is not installed; the message names the extra that brings it.
      TypeError: if the factory has no such option, or returns something else than an `Env`.
    """
    namespace, colon, name = id.partition(":")
    factory: Factory
    if colon:
        factory = _named_factory(id, namespace)
        env = factory(name, **options)
    else:
        factory = _factory(id)
        _check_options(id, factory, options)
        env = factory(**options)
    if not isinstance(env, Env):
        raise TypeError(
            f"make({id!r}): its factory {factory!r} returned {type(env).__name__}, not a "
            "jaxvec.Env. Adapt it first, for instance by jaxvec.envs.from_gymnasium_func."
        )
    return env._replace(metadata={"name": id, **env.metadata})


def register(id: str, factory: Factory | str, *, replace: bool = False) -> None:
    """Gives an environment a name, for `make` and for the command line.

    Args:
      id: the name, by custom `Name-v0`.
      factory: returns an `Env`; or where it lies, as "module:attribute", to be imported when needed.
      replace: whether an environment of that name may be replaced.

    Raises:
      ValueError: if the id is taken, empty or holds a colon, or if the factory's text is no
        "module:attribute".
      TypeError: if the factory is neither callable nor a text.
    """
    if not id or ":" in id:
        raise ValueError(
            f"register: id={id!r}, but a name must not be empty and has no ':', which parts a "
            "library from its environment."
        )
    if isinstance(factory, str):
        module, _, attribute = factory.partition(":")
        if not (module and attribute):
            raise ValueError(
                f"register({id!r}): factory={factory!r} must read 'module:attribute', as in "
                "'my_package.envs:make_maze'."
            )
    elif not callable(factory):
        raise TypeError(
            f"register({id!r}): factory={factory!r} cannot be called. Give a function that returns "
            "the environment, such as `lambda: env`."
        )
    if id in _FACTORIES and not replace:
        raise ValueError(
            f"register: {id!r} is taken, by {_FACTORIES[id]!r}. Choose another name, or pass "
            "replace=True."
        )
    _FACTORIES[id] = factory


def available() -> list[str]:
    """Returns the ids without a library that `make` knows, in alphabetical order."""
    return sorted(_FACTORIES)


def namespaces() -> list[str]:
    """Returns what `make` knows before a colon, in alphabetical order; not all need be installed."""
    return sorted({*_NAMESPACES, *entry_points(group=_GROUP).names})


def _factory(id: str) -> Factory:
    if id not in _FACTORIES:
        raise UnknownEnvError(_unknown(id))
    return _found(_FACTORIES[id])


def _named_factory(id: str, namespace: str) -> NamedFactory:
    if namespace in _NAMESPACES:
        return _found(_NAMESPACES[namespace])
    for entry in entry_points(group=_GROUP, name=namespace):
        loaded: NamedFactory = entry.load()
        return loaded
    raise UnknownEnvError(
        f"make: {id!r} names the library {namespace!r} before its ':', which is none of "
        f"{', '.join(namespaces())}. Adapt the environment yourself and register it under a name of "
        "its own (jaxvec.envs.register)."
    )


def _found(factory: Factory | str) -> Factory:
    if isinstance(factory, str):
        module, _, attribute = factory.partition(":")
        found: Factory = getattr(import_module(module), attribute)
        return found
    return factory


def _unknown(id: str) -> str:
    by_lower = {name.lower(): name for name in _FACTORIES}
    near = difflib.get_close_matches(id.lower(), by_lower, n=3, cutoff=0.6)
    if near:
        names = " or ".join(repr(by_lower[name]) for name in near)
        return f"make: there is no environment {id!r}. Did you mean {names}?"
    return (
        f"make: there is no environment {id!r}, and none of a like name: {', '.join(available())}."
    )


def _check_options(id: str, factory: Factory, options: dict[str, Any]) -> None:
    signature = inspect.signature(factory)
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(map(str, signature.parameters.values())) or "none"
        raise TypeError(f"make({id!r}): {error}. Its options are: {takes}.") from None
