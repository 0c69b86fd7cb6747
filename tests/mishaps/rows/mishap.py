"""One mishap of a person: what lies there, what is typed, and what must be said."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def nothing(folder: Path) -> None:
    """The folder stays empty."""
    del folder


@dataclass(frozen=True, slots=True)
class Mishap:
    """A row of the tables beside this file. `says` are key words and numbers, never sentences."""

    id: str
    words: str  # what is typed after `graphmill`; split as a shell does
    says: tuple[str, ...]
    make: Callable[[Path], object] = nothing
    status: int = 2
    leaves: tuple[str, ...] = ()  # folders and files that may be there afterwards; else all is as before
    slow: bool = False
    needs_run: bool = False  # there is a finished run, logs/one
    users_traceback: bool = False  # of the person's own code, and no other
