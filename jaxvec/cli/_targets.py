"""What a word on the command line stands for: an environment or a policy, by id or "module:attribute"."""

import reprlib
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from jaxvec.cli._failure import Failure, failing


def load_env(text: str) -> Any:
    """Returns the `Env` that a word names: an id, or an `Env` or a factory of one in a module.

    Args:
      text: such as "CartPole-v1" or "my_package.maze:make_maze".

    Raises:
      Failure: if there is no such environment.
    """
    from jaxvec.envs import Env, available, make

    if text in available() or ":" not in text:
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
    return found._replace(metadata={**found.metadata, "name": text})


def load_policy(text: str, env: Any) -> Any:
    """Returns the policy that a word names: "random", a function `(key, obs) -> action` or a `Policy`.

    Args:
      text: "random" or "module:attribute".
      env: the batched environment that it acts in.

    Raises:
      Failure: if there is no such policy.
    """
    from jaxvec.envs import Policy, random_policy

    if text == "random":
        return random_policy(env)
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
