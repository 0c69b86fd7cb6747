"""Suggest the nearest known name for an unknown one."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None if none is close.

    >>> nearest("lerning_rate", ["learning_rate", "dropout"])
    'learning_rate'
    """
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return matches[0] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause for an error message: the nearest name, else all known ones."""
    names = sorted(known)
    match = nearest(name, names)
    return f"did you mean {match!r}?" if match else f"known: {', '.join(names)}"
