"""One thing that was checked, and the result."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from graphmill.base.errors import UnreadableError, UserError

Group = Literal["files", "job", "metrics", "distributed", "data", "checkpoints"]
_SHOWN = 3  # problems of one check; the others are counted


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the answer. `warn`: could not be checked here, or is worth knowing; the run may still be true.

    `unfinished`: what is missing is what a run that was stopped, or still runs, has not done yet.
    """

    group: Group
    name: str
    result: Literal["ok", "warn", "unfinished", "fail"]
    detail: str


class NotYet(str):
    """A problem that a run has until it is done, and that says nothing against it before."""

    __slots__ = ()


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
    untrue = [problem for problem in found if not isinstance(problem, NotYet)]
    shown = [*untrue, *(problem for problem in found if isinstance(problem, NotYet))]
    return Check(group, name, "fail" if untrue else "unfinished", "; ".join(shown[:_SHOWN]) + more)


def in_a_line(error: Exception) -> str:
    """The message of an error, without its fix."""
    if isinstance(error, UserError):
        return error.message
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
