"""Problems of a file or a request, collected so that all are reported at once (house rule 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphmill.base.errors import UserError

KeyPath = tuple[str | int, ...]
"""Path of a value: ("train", "num_neighbors", 0)."""

_MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: what is wrong, where, and what to type instead."""

    where: str  # file:line, or the override as given
    what: str
    fix: str


def dotted(path: KeyPath) -> str:
    """Spell a key as overrides write it.

    >>> dotted(("train", "num_neighbors", 0))
    'train.num_neighbors[0]'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def refuse(problems: Sequence[Problem], source: str) -> None:
    """Raise one `UserError` with all `problems` of `source`; return if there is none."""
    if not problems:
        return
    if len(problems) == 1:
        only = problems[0]
        raise UserError(f"{only.where}: {only.what}", fix=only.fix)
    lines = [f"{problem.where}: {problem.what} → {problem.fix}" for problem in problems[:_MOST_SHOWN]]
    if len(problems) > _MOST_SHOWN:
        lines.append(f"… and {len(problems) - _MOST_SHOWN} more")
    raise UserError(
        f"{len(problems)} problems in {source}:\n  " + "\n  ".join(lines),
        fix="correct them all",
    )


def add_problem(problems: list[Problem], where: str, error: UserError) -> None:
    """Add what an error says of one part of many, unless an earlier part has the same problem."""
    if error.message not in {problem.what for problem in problems}:
        problems.append(Problem(where, error.message, error.fix))
