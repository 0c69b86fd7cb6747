"""Arguments of calls from Python: what has another type, or is out of bounds, is reported with the argument's name."""

import operator
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from graphmill.base.errors import InvalidInputError

Item = TypeVar("Item")


def whole_number(name: str, given: Any, *, least: int = 1, most: int = 2**31 - 1) -> int:  # noqa: ANN401
    """Return a whole number within its bounds; numpy's are taken, 2.5 is not."""
    try:
        number = operator.index(given)
    except (TypeError, RuntimeError):
        number = least - 1
    if not least <= number <= most:
        raise InvalidInputError(f"{name} is {given!r:.40}", fix=f"give a whole number from {least} to {most}")
    return number


def share(name: str, given: Any) -> float:  # noqa: ANN401
    """Return a number from 0 to 1."""
    try:
        number = float(given)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        number = -1.0
    if isinstance(given, str | bytes) or not 0 <= number <= 1:
        raise InvalidInputError(f"{name} is {given!r:.40}", fix="give a number from 0 to 1")
    return number


def flag(name: str, given: Any) -> bool:  # noqa: ANN401
    """Return a value that is true or false; arrays of several are neither."""
    try:
        return bool(given)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidInputError(f"{name} is {given!r:.40}", fix="give True or False") from None


def one_of(name: str, given: Any, choices: tuple[str, ...]) -> str:  # noqa: ANN401
    """Return the given word, which must be one of `choices`."""
    if not (isinstance(given, str) and given in choices):
        raise InvalidInputError(f"{name} is {given!r:.40}", fix=f"give {', '.join(choices[:-1])} or {choices[-1]}")
    return given


def path_of(name: str, given: Any) -> Path:  # noqa: ANN401
    """Return a path that was given as text or as a `Path`."""
    is_path = isinstance(given, str) or (isinstance(given, os.PathLike) and isinstance(os.fspath(given), str))
    if not is_path or "\0" in os.fspath(given):
        raise InvalidInputError(f"{name} is {given!r:.40}", fix="give a path, as text or as a pathlib.Path")
    return Path(given)


def items_of(name: str, given: Iterable[Item]) -> Iterator[Item]:
    """Return an iterator over the items of an iterable."""
    try:
        return iter(given)
    except TypeError:
        raise InvalidInputError(f"{name} is {given!r:.40}", fix="give a list, or another iterable") from None
