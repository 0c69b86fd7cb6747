"""Suggest the nearest known name for an unknown one."""

import difflib
from collections.abc import Iterable

_ALIKE = 0.75  # a typo or two; below it, names that only look alike (profile_steps, milestones) lead astray


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, whatever its dashes and capitals; None if none is close, or two are alike.

    >>> nearest("lerning_rate", ["learning_rate", "dropout"])
    'learning_rate'
    >>> nearest("folsd", ["fold", "folds"])
    'folds'
    >>> nearest("--optimizer", ["--batch_size", "--epochs"])
    """
    by_form = {_form(each): each for each in known}
    swapped = [form for form in by_form if sorted(form) == sorted(_form(name))]  # two letters in the wrong order
    matches = swapped or difflib.get_close_matches(_form(name), by_form, n=2, cutoff=_ALIKE)
    if not matches or (len(matches) > 1 and _alike(matches[0], name) == _alike(matches[1], name)):
        return None
    return by_form[matches[0]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A clause for an error message: the nearest name, else all known ones."""
    names = sorted(known)
    match = nearest(name, names)
    return f"did you mean {match!r}?" if match else f"known: {', '.join(names)}"


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    >>> counted(1, "rank"), counted(3, "rank")
    ('1 rank', '3 ranks')
    """
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _alike(form: str, name: str) -> float:
    return difflib.SequenceMatcher(None, form, _form(name)).ratio()


def _form(name: str) -> str:
    return name.lstrip("-").replace("-", "_").lower()
