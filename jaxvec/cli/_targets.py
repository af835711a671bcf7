"""What a word on the command line stands for: an environment or a policy, by id or "module:attribute"."""

import reprlib
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from jaxvec.cli._failure import Failure, failing


def load_env(text: str) -> Any:
    """Returns the `Env` that a word names: an id, or an `Env` or a factory of one in a module.

    Args:
      text: such as "CartPole-v1", "gymnax:Pong-misc" or "my_package.maze:make_maze".

    Raises:
      Failure: if there is no such environment.
    """
    from jaxvec.envs import Env, make, namespaces

    library, colon, _ = text.partition(":")
    if not colon or library in namespaces():
        with failing(""):
            return make(text)
    found = load_attribute(text)
    if not isinstance(found, Env) and callable(found):
        with failing(f"{text} failed"):
            found = found()
    if not isinstance(found, Env):
        raise Failure(
            f"{text} is {_kind(found)}, not a jaxvec.Env nor a function without arguments that "
            "returns one."
        )
    return found._replace(metadata={**(found.metadata or {}), "name": text})


def classic_maker(text: str, time_limit: int | None) -> Callable[[], Any]:
    """Returns what makes one classic environment, here or in a worker process.

    Args:
      text: an id of gymnasium's, or "module:attribute", a function or class that makes a gymnasium.Env.
      time_limit: where its episodes are truncated, steps; None where it does so itself.

    Raises:
      Failure: if there is no such environment; one is made, to find out.
    """
    make = partial(_made_classic, text, time_limit)
    with failing(f"{text} failed" if _is_attribute(text) else ""):
        make().close()
    return make


def _made_classic(text: str, time_limit: int | None) -> Any:
    import gymnasium

    if not _is_attribute(text):
        from jaxvec.envs import available

        try:
            return gymnasium.make(text, max_episode_steps=time_limit)
        except gymnasium.error.NameNotFound as error:
            hint = f"; {text} is one of jaxvec's: take --backend scan or jax-vec"
            raise ValueError(f"{error}{hint if text in available() else ''}") from None
    made = load_attribute(text)
    if isinstance(made, gymnasium.Env):
        raise TypeError(
            f"{text} is one environment, but each row needs its own: name what makes it."
        )
    if callable(made):
        made = made()
    if not isinstance(made, gymnasium.Env):
        # An Env of jaxvec's is a record, and says the backends that take it.
        hint = "; --backend scan and jax-vec take that" if hasattr(made, "_fields") else ""
        raise TypeError(
            f"{text} is {_kind(made)}, not a function or class that makes a gymnasium.Env{hint}."
        )
    if time_limit is None:
        return made
    own = made.spec.max_episode_steps if made.spec is not None else None
    if own is not None and own < time_limit:
        made.close()
        raise ValueError(
            f"{text} truncates at {own} steps itself, before --time-limit {time_limit}."
        )
    return gymnasium.wrappers.TimeLimit(made, time_limit)


def _is_attribute(text: str) -> bool:
    """Tells "module:attribute" from gymnasium's "module:Name-v0"."""
    return ":" in text and "-" not in text.rpartition(":")[2]


def load_policy(text: str) -> Any:
    """Returns the policy that a word names: a function `(key, obs) -> action`, or a `Policy`.

    Args:
      text: "random" or "module:attribute".

    Returns:
      The policy; None for "random".

    Raises:
      Failure: if there is no such policy.
    """
    from jaxvec.envs import Policy

    if text == "random":
        return None
    if ":" not in text:
        raise Failure(f"--policy {text!r} must be 'random' or 'module:function'.")
    found = load_attribute(text)
    if not isinstance(found, Policy) and not callable(found):
        raise Failure(
            f"--policy {text} is {_kind(found)}, not a function (key, obs) -> action nor a "
            "jaxvec.Policy."
        )
    return found


def load_attribute(text: str) -> Any:
    """Imports "module:attribute"; modules in the current directory are found too."""
    name, _, attribute = text.partition(":")
    if not name or not attribute:
        raise Failure(f"{text!r} must read 'module:attribute', as in 'my_package.maze:make_maze'.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with failing(f"cannot import the module {name!r} of {text!r}"):
        found: Any = import_module(name)
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Failure(f"{text!r}: {_kind(found)} has no attribute {part!r}.") from None
    return found


def _kind(value: Any) -> str:
    name = getattr(value, "__name__", None)
    return f"{type(value).__name__} {reprlib.repr(value) if name is None else name}"
