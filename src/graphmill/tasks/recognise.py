"""What raw data are: every task is asked, and says how sure it is and why. One that is not clear is a question."""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.spec.kinds import all_kinds
from graphmill.spec.kinds.kind import AnyKind
from graphmill.tasks.stores import load


class Certainty(IntEnum):
    """How much a look says."""

    WEAK = 1
    """Much else looks like that: numbers alone, the name of one column, the ending of the file."""
    SHAPED = 2
    """What is in it has the shape of a layout: its keys, its header with its rows."""
    NAMED = 3
    """Its files, or all its keys, have the names of a layout of this task alone."""


@dataclass(frozen=True, slots=True)
class Look:
    """A task's yes to raw data."""

    certainty: Certainty
    reason: str  # completes "because …"


def weak(reason: str) -> Look:
    """Answer that the data look like this, as much else does."""
    return Look(Certainty.WEAK, reason)


def shaped(reason: str) -> Look:
    """Answer that the data have the shape of a layout."""
    return Look(Certainty.SHAPED, reason)


def named(reason: str) -> Look:
    """Answer that the data have the names of a layout of one task alone."""
    return Look(Certainty.NAMED, reason)


def best_of(looks: list[Look | None]) -> Look | None:
    """The first of the surest."""
    found = [look for look in looks if look is not None]
    return max(found, key=lambda look: look.certainty) if found else None


def looks_of(path: Path) -> list[tuple[AnyKind, Look]]:
    """What each task that says yes to the file or folder says."""
    asked = ((kind, load(kind.data.recognise)(path)) for kind in all_kinds() if kind.data.recognise)
    return [(kind, look) for kind, look in asked if look is not None]


def recognised(path: Path) -> tuple[AnyKind, str] | None:
    """The task whose raw data are at `path`, and why; None: no task says yes.

    `UserError`, a question, if two are equally sure, or the only ones are not.
    """
    looks = looks_of(path)
    if not looks:
        return None
    most = max(look.certainty for _, look in looks)
    best = [(kind, look) for kind, look in looks if look.certainty == most]
    if most > Certainty.WEAK and len(best) == 1:
        kind, look = best[0]
        return kind, look.reason
    likes = ", or like ".join(f"{kind.name} because {look.reason}" for kind, look in best)
    unsure = "" if len(best) > 1 else ", and so does much else"
    raise UserError(
        f"{path} looks like {likes}{unsure}",
        fix=f"say what it is: {' or '.join(f'--task {kind.name}' for kind, _ in best)}"
        + ("" if len(best) > 1 else ", or another"),
    )
