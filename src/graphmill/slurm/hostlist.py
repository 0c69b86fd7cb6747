"""Slurm's short form of host names (`nid[001-003,7],login1`), without scontrol: it is not there in containers."""

import itertools
import re
from collections.abc import Iterator
from typing import Final

from graphmill.base.errors import UserError

_MOST: Final = 100_000
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")
_NAME: Final = re.compile(r"(?:[^\[\],\s]|\[[\d,-]+\])+")


def expand_hostlist(text: str) -> list[str]:
    """All host names in the order of the list, which is the order of the ranks. An empty text names none."""
    names = [name for entry in _entries(text) for name in itertools.islice(_expanded(entry), _MOST)]
    if len(names) > _MOST:
        raise _damaged(text)
    return names


def _entries(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    position = 0
    while position < len(text):
        found = _NAME.match(text, position)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise _damaged(text)
        yield found.group()
        position = found.end() + 1
        if position == len(text):
            raise _damaged(text)


def _expanded(entry: str) -> Iterator[str]:
    parts = re.split(r"\[([^\]]*)\]", entry)  # text and ranges in turn
    choices = [list(_numbers(part, entry)) if index % 2 else [part] for index, part in enumerate(parts)]
    return ("".join(chosen) for chosen in itertools.product(*choices))


def _numbers(ranges: str, entry: str) -> Iterator[str]:
    """`001-003,7` → 001 002 003 7: the width of the first number is that of all in its range."""
    for text in ranges.split(","):
        found = _RANGE.fullmatch(text)
        if found is None:
            raise _damaged(entry)
        first, last = found.group(1), found.group(2) or found.group(1)
        if not int(first) <= int(last) < int(first) + _MOST:
            raise _damaged(entry)
        yield from (f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1))


def _damaged(text: str) -> UserError:
    return UserError(f"{text!r} is not a list of hosts as Slurm writes them", fix="see `echo $SLURM_JOB_NODELIST`")
