"""One thing that was checked, and the result."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from graphmill.base.errors import UnreadableError, UserError

Group = Literal["files", "job", "metrics", "distributed", "data", "checkpoints"]
_SHOWN = 3  # problems of one check; the others are counted


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer. `warn`: could not be checked here, or is worth knowing; the run may still be true."""

    group: Group
    name: str
    result: Literal["ok", "warn", "fail"]
    detail: str


def judged(group: Group, name: str, problems: Callable[[], Iterable[str]], good: str) -> Check:
    """A check that fails with the first of the `problems`, or passes with the text `good`.

    A promised file that cannot be read is a problem as well: the check fails and says so.
    """
    found: list[str] = []
    try:
        found.extend(problems())
    except (UserError, UnreadableError, OSError, ValueError, OverflowError) as error:
        found.append(f"unknown: {in_a_line(error)}")
    if not found:
        return Check(group, name, "ok", good)
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    return Check(group, name, "fail", "; ".join(found[:_SHOWN]) + more)


def in_a_line(error: Exception) -> str:
    """The message of an error, without its fix."""
    if isinstance(error, UserError):
        return error.message
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
