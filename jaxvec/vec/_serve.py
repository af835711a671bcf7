"""A group of environments in one process: step, automatic reset, and everything else one asks of them.

Written once; the caller's process and every worker serve their environments by it. It imports neither
jax nor flax nor torch, so that a worker starts light.
"""

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from inspect import signature
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from jaxvec.errors import MissingExtraError
from jaxvec.vec._columns import FLOAT32_MAX, Carried, Columns, obs_writer, reward_value

Info = dict[str, Any]
ClassName = tuple[str, str]
"""Module and qualified name of a class: what is sent in place of the class itself."""

_MONITOR = ("jaxvec.vec._monitor_env", "Monitor")
_STANDS_FOR: dict[ClassName, tuple[ClassName, ...]] = {
    _MONITOR: (
        ("stable_baselines3.common.monitor", "Monitor"),
        ("lit_sb3.wrappers.monitor", "Monitor"),
    )
}
"""Wrappers of jaxvec that answer to the names of others."""

_STEP_PARTS = "observation, reward, terminated, truncated, info"
_RESET_PARTS = "observation, info"
_PLAIN = (int, float, bool, str, type(None), np.generic)


class Served(NamedTuple):
    """What came of a step or a reset, beside the columns."""

    infos: dict[int, Info]  # row -> info of the step, of rows that have any
    reset_infos: dict[int, Info]  # row -> info of the reset, of rows that were reset and have any
    rows: Sequence[int] | None = None  # which rows were served; None for all
    lost: Sequence[int] = ()  # rows whose process died and was started again
    carried: Carried = []  # noqa: RUF012  never written


class Group:
    """The environments of one process; `build` makes them, `bind` says where their results go.

    Args:
      rows: their numbers among all N.

    Attributes:
      envs: the environments.
      current: the row that is being served: who raised, if something does.
    """

    def __init__(self, rows: range) -> None:
        self.rows = rows
        self.envs: list[gym.Env[Any, Any]] = []
        self.current = rows.start
        self._sticky: list[dict[str, Any]] = [{} for _ in rows]

    def build(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        """Builds the environments, one by each function.

        Raises:
          ValueError: if something is no environment, or one instance is returned twice.
        """
        for row, env_fn in zip(self.rows, env_fns, strict=True):
            self.current = row
            self.envs.append(adopted(env_fn()))
        self._check_distinct()

    def _check_distinct(self) -> None:
        seen: dict[int, int] = {}
        for row, env in zip(self.rows, self.envs, strict=True):
            other = seen.setdefault(id(env.unwrapped), row)
            if other != row:
                self.current = row
                raise ValueError(
                    f"env_fns {other} and {row} returned the same environment instance: each must make "
                    "a new one. `lambda: env` returns the one that exists; build it inside, as in "
                    "`lambda: gymnasium.make(...)`. See "
                    "https://github.com/DLR-RM/stable-baselines3/issues/1151."
                )

    def build_noting(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        """Builds the environments in the caller's process: where one raises, those before are closed."""
        try:
            self.build(env_fns)
        except BaseException as error:
            note_source(error, self.current, "__init__")
            with contextlib.suppress(Exception):  # the first exception is the one to tell
                self.close()
            raise

    def bind(self, columns: Columns) -> None:
        """Says where the results go."""
        self._columns = columns
        self._write = obs_writer(self.envs[0].observation_space)

    def step(self, actions: Any, rows: Sequence[int] | None = None) -> Served:
        """Steps environments in order; one whose episode ends is reset at once.

        Args:
          actions: one for each row.
          rows: which; None for all of the group.

        Returns:
          The infos; all else is in the columns.
        """
        infos: dict[int, Info] = {}
        reset_infos: dict[int, Info] = {}
        columns, write, start = self._columns, self._write, self.rows.start
        obs_column, reward_column = columns.obs, columns.reward
        terminated_column, truncated_column = columns.terminated, columns.truncated
        least, largest = -FLOAT32_MAX, FLOAT32_MAX
        for place, row in enumerate(self.rows if rows is None else rows):
            self.current = row
            env = self.envs[row - start]
            result = env.step(actions[place])
            try:
                obs, reward, terminated, truncated, info = result
            except (TypeError, ValueError) as error:
                raise _wrong_result(result, "step", _STEP_PARTS, row) from error
            # Written so that NaN is looked at as well.
            if type(reward) is not float or not least <= reward <= largest:
                reward = reward_value(reward, row)
            reward_column[row] = reward
            terminated = bool(terminated)
            truncated = not terminated and bool(truncated)
            terminated_column[row] = terminated
            truncated_column[row] = truncated
            if info or type(info) is not dict:
                infos[row] = copied(info, row)
            if terminated or truncated:
                # Written before the reset: an environment may reuse the array it returned.
                write(columns.final, row, obs)
                obs, reset_info = _reset(env, row, self._sticky_of(row))
                if reset_info:
                    reset_infos[row] = reset_info
            write(obs_column, row, obs)
        return Served(infos, reset_infos, rows)

    def reset(self, requests: Sequence[tuple[int, int | None, dict[str, Any]]]) -> Served:
        """Resets environments.

        Args:
          requests: row, seed and options of each; options are passed only if there are any.
        """
        reset_infos: dict[int, Info] = {}
        rows = []
        for row, seed, options in requests:
            self.current = row
            env = self.envs[row - self.rows.start]
            given = {"options": options} if options else self._sticky_of(row)
            obs, info = _reset(env, row, {**given, "seed": seed})
            self._write(self._columns.obs, row, obs)
            if info:
                reset_infos[row] = info
            rows.append(row)
        return Served({}, reset_infos, rows)

    def ask(self, name: str, requests: Sequence[tuple[int, tuple[Any, ...]]]) -> list[Any]:
        """Answers questions about environments, one after the other.

        Args:
          name: of one of the methods below.
          requests: row and arguments of each.
        """
        answers = []
        for row, arguments in requests:
            self.current = row
            env = self.envs[row - self.rows.start]
            answers.append(_ANSWERS[name](env, *arguments))
        return answers

    def set_sticky(self, options: dict[int, dict[str, Any]]) -> None:
        """Sets the options that every reset gets, the automatic ones too; by row, empty for none."""
        for row, each in options.items():
            self._sticky[row - self.rows.start] = {"options": each} if each else {}

    def _sticky_of(self, row: int) -> dict[str, Any]:
        """Returns what every reset of a row is given: a copy, which the environment may write into."""
        sticky = self._sticky[row - self.rows.start]
        return copy.deepcopy(sticky) if sticky else sticky

    def do(self, command: str, arguments: tuple[Any, ...]) -> Any:
        """Does what a command says; the arguments are those of the method."""
        return _COMMANDS[command](self, *arguments)

    def close(self) -> None:
        """Closes all environments, also where one raises; the first exception is raised at the end."""
        errors = list(self._close_each())
        if errors:
            self.current, error = errors[0]
            raise error

    def _close_each(self) -> Iterator[tuple[int, Exception]]:
        for row, env in zip(self.rows, self.envs, strict=False):
            try:
                env.close()
            except Exception as error:
                yield row, error


_COMMANDS: dict[str, Callable[..., Any]] = {
    "step": Group.step,
    "rows": Group.step,
    "reset": Group.reset,
    "ask": Group.ask,
    "sticky": Group.set_sticky,
}


def _reset(env: Any, row: int, arguments: dict[str, Any]) -> tuple[Any, Info]:
    """Resets an environment; returns the observation, and a copy of the info, if there is any."""
    result = env.reset(**arguments)
    # An array of two numbers, from before gymnasium, could be unpacked.
    if not isinstance(result, tuple | list) or len(result) != 2:
        raise _wrong_result(result, "reset", _RESET_PARTS, row)
    obs, info = result
    return obs, copied(info, row) if info or type(info) is not dict else info


def _wrong_result(result: Any, method: str, parts: str, row: int) -> TypeError:
    count = f" with {len(result)} parts" if isinstance(result, tuple | list) else ""
    return TypeError(
        f"environment {row}: {method}() returned {result!r:.200} of type {type(result).__name__}{count}; "
        f"gymnasium's is ({parts}). Environments of OpenAI Gym need shimmy or the new form."
    )


def note_source(error: BaseException, row: int, command: str) -> None:
    """Notes on an exception which environment raised it."""
    error.add_note(f"(raised by environment {row}, at `{command}`)")


def _get_attr(env: Any, name: str) -> Any:
    return env.get_wrapper_attr(name)


def _has_attr(env: Any, name: str) -> bool:
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def _set_attr(env: Any, name: str, value: Any, where: str) -> None:
    setattr(env.unwrapped if where == "unwrapped" else env, name, value)


def _env_method(env: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return env.get_wrapper_attr(name)(*args, **kwargs)


def _render(env: Any) -> Any:
    return env.render()


def is_wrapped(env: Any, wrapper: ClassName) -> bool:
    """Tells whether a wrapper of that class is around an environment, by the names of its bases."""
    while isinstance(env, gym.Wrapper):
        for base in type(env).__mro__:
            name = class_name(base)
            if name == wrapper or wrapper in _STANDS_FOR.get(name, ()):
                return True
        env = env.env
    return False


def class_name(kind: type[Any]) -> ClassName:
    """Returns module and qualified name of a class; a spawned process has `__main__` under another name."""
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return module, kind.__qualname__


_ANSWERS: dict[str, Callable[..., Any]] = {
    "get_attr": _get_attr,
    "has_attr": _has_attr,
    "set_attr": _set_attr,
    "env_method": _env_method,
    "is_wrapped": is_wrapped,
    "render": _render,
}


def copied(info: Any, row: int) -> Info:
    """Copies an info, so that nothing in it is written later by the environment.

    Raises:
      TypeError: if it is no dict.
    """
    if type(info) is not dict and not isinstance(info, Mapping):
        raise TypeError(
            f"environment {row}: the info is {info!r:.200} of type {type(info).__name__}; a dict is needed, "
            "which may be empty."
        )
    if all(isinstance(value, _PLAIN) for value in info.values()):
        return dict(info)
    return copy.deepcopy(dict(info))


def adopted(env: Any) -> gym.Env[Any, Any]:
    """Returns what a constructor returned as a gymnasium environment; OpenAI Gym's by shimmy.

    Raises:
      ValueError: if it is none.
      MissingExtraError: if it is OpenAI Gym's and shimmy is not installed.
    """
    if isinstance(env, gym.Env):
        return env
    openai_gym = sys.modules.get("gym")
    if openai_gym is None or not isinstance(env, openai_gym.Env):
        raise ValueError(
            f"The environment is of type {type(env)}, but a gymnasium.Env is needed. Let the function "
            "return an environment, for example gymnasium.make(...)."
        )
    try:
        shimmy: Any = import_module("shimmy")
    except ImportError as error:
        raise MissingExtraError(
            f"The environment is OpenAI Gym's ({type(env)}), and shimmy, which translates it to "
            "gymnasium, is not installed: install shimmy>=2.0."
        ) from error
    takes_seed = "seed" in signature(env.unwrapped.reset).parameters
    translated = shimmy.GymV26CompatibilityV0 if takes_seed else shimmy.GymV21CompatibilityV0
    adapted: gym.Env[Any, Any] = translated(env=env)
    return adapted
