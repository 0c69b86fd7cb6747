"""User-supplied text, quoted so that its place in a script takes it literally, or refused.

Three places: a word of bash, the value of an `#SBATCH` option (no shell reads those lines, but sbatch's own parser
does), and a file name of Slurm's, where % begins a pattern.
"""

import re
import shlex
from typing import Final

from graphmill.base.errors import UserError
from graphmill.spec.job.text import is_one_line, is_text

_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_./:=,@%+-]+")
_RESERVED: Final = frozenset(  # words that begin something longer than a line
    "if then else elif fi case esac for select while until do done in function time coproc".split()  # noqa: SIM905
)
_PLAIN_LINE: Final = re.compile(r"[A-Za-z_./~][A-Za-z0-9_./~@%+:,=-]*(?: [A-Za-z0-9_./~@%+:,=-]+)*")


def bash_word(text: str, *, field: str) -> str:
    """`text` as one word of bash, on one line.

    >>> bash_word("two words", field="x"), bash_word("a\\nb", field="x")
    ("'two words'", "$'a\\\\nb'")
    """
    if not is_text(text):
        raise UserError(f"{field} is {text!a}, which no process can be handed", fix=f"change {field}")
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_escaped(character) for character in text) + "'"


def bash_words(texts: tuple[str, ...] | list[str], *, field: str) -> str:
    """Several words with spaces between."""
    return " ".join(bash_word(text, field=field) for text in texts)


def bash_line(line: str) -> str:
    """A line of shell that the user wrote, kept from affecting the lines after it.

    It is left as it is if it is plainly one command; else bash reads it separately, through `eval`, so that an open
    quote or here-document ends with it.
    """
    if _PLAIN_LINE.fullmatch(line) and line.split(" ", maxsplit=1)[0] not in _RESERVED:
        return line
    return f"eval {bash_word(line, field='slurm.setup_lines')}"


def sbatch_value(text: str, *, field: str) -> str:
    """`text` as sbatch's parser of `#SBATCH` lines reads it back: blanks end an option, # begins a comment, quotes and
    backslashes are taken off."""
    if not is_one_line(text):
        raise UserError(
            f"{field} is {text!a}, which no #SBATCH line can hold: it takes one line of printable text",
            fix=f"change {field}",
        )
    if _PLAIN_VALUE.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def slurm_file_name(folder: str, pattern: str, *, field: str) -> str:
    """A file name of Slurm's: `folder` literally, then `pattern` with its % signs."""
    if "\\" in folder:
        raise UserError(f"{field} is {folder!r}, and Slurm's file names take no backslash", fix=f"change {field}")
    return f"{folder.replace('%', '%%').rstrip('/')}/{pattern}"


def _escaped(character: str) -> str:
    """Escape one character inside $'…'."""
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", "'": "\\'"}
    if character in named:
        return named[character]
    if character.isprintable():
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode())
