"""Arguments and options refused where they come in: one function for each kind of mistake.

A wrong one raises `ValueError` with the function's name, the argument, its value and what it must be.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxvec.core._xp import is_traced

INT32_MAX = 2**31 - 1
"""The largest count: steps and rows are counted in int32."""


def check_one_of(where: str, name: str, value: object, options: Sequence[object]) -> None:
    """Refuses an option that does not exist.

    Raises:
      ValueError: if `value` is none of `options`.
    """
    if not any(_is_option(value, option) for option in options):
        listed = ", ".join(map(repr, options))
        raise ValueError(f"{where}: {name}={value!r} is not an option; choose one of {listed}.")


def check_count(
    where: str, name: str, value: Any, *, least: int = 1, most: int | None = INT32_MAX
) -> int:
    """Returns a whole number of Python, after a look that it is one within its bounds.

    Args:
      where: the function that was called, for the message.
      name: the argument.
      value: what came. True and 2.0 are no counts: who writes them means something else.
      least: the smallest number allowed.
      most: the largest one; None if there is none.

    Raises:
      ValueError: if it is no such number.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"{where}: {name}={value!r}, but it must be a whole number from {least} on."
        )
    if most is not None and value > most:
        raise ValueError(
            f"{where}: {name}={value!r}, but it must be a whole number from {least} to {most}."
        )
    return int(value)


def check_number(
    where: str, name: str, value: Any, accepts: Callable[[Any], bool], wanted: str
) -> None:
    """Refuses what is not one real number with some property. A traced one passes: nobody can know it.

    Args:
      where: the function that was called, for the message.
      name: the argument.
      value: what came.
      accepts: tells whether a number will do; comparisons refuse NaN by themselves.
      wanted: what it must be, such as "a number from 0 to 1".

    Raises:
      ValueError: if it is no such number.
    """
    if is_traced(value):
        return
    if np.ndim(value) or np.asarray(value).dtype.kind not in "fiu" or not accepts(value):
        raise ValueError(f"{where}: {name}={value!r}, but it must be {wanted}.")


def check_clip(where: str, name: str, value: Any) -> None:
    """Refuses what cannot be the largest magnitude that leaves a normalization.

    Raises:
      ValueError: if it is no number above 0.
    """
    check_number(where, name, value, lambda x: x > 0, "a number above 0 (inf clips nothing)")


def check_epsilon(where: str, name: str, value: Any) -> None:
    """Refuses what cannot be added to a variance.

    Raises:
      ValueError: if it is no finite number from 0 on.
    """
    check_number(where, name, value, lambda x: 0 <= x < np.inf, "a finite number from 0 on")


def check_fraction(where: str, name: str, value: Any) -> None:
    """Refuses what is no probability, discount or other part of 1.

    Raises:
      ValueError: if it is no number from 0 to 1.
    """
    check_number(where, name, value, lambda x: 0 <= x <= 1, "a number from 0 to 1")


def check_finite_number(where: str, name: str, value: Any) -> None:
    """Refuses what is no finite number.

    Raises:
      ValueError: if it is not.
    """
    check_number(where, name, value, lambda x: bool(np.isfinite(x)), "a finite number")


def check_flag(where: str, name: str, value: Any) -> None:
    """Refuses what is neither True nor False: a string or number would count as one of them.

    Raises:
      ValueError: if it is no bool.
    """
    if is_traced(value):
        return
    if np.ndim(value) or np.asarray(value).dtype != bool:
        raise ValueError(f"{where}: {name}={value!r}, but it must be True or False.")


def _is_option(value: object, option: object) -> bool:
    # 1 == True and an array == anything: what is compared has the option's type.
    return value is option or (isinstance(value, type(option)) and value == option)
