"""Which code may be run: what this person named on this machine. Whatever else a run folder names was handed over.

A plan may name a model, a loss, measures and a task by dotted path, with options: to use its run is to import and call
them. Who owns the file says nothing: `cp`, `tar`, `git clone` and `pull` make the reader its owner. So a person's own
commands keep a list of what they were asked to run, `~/.config/graphmill/trusted`, and what is read from a folder is
compared with it. Processes that have no such list (ranks in a container, on another host) read the environment.
"""

import hashlib
import json
import logging
import os
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.base.retries import retried
from graphmill.runtime.roots import config_folder

_log = logging.getLogger(__name__)

TRUST_VARIABLE: Final = "GRAPHMILL_TRUST_MODELS"  # dotted paths, separated by commas: reaches ranks on any host
LIST_FILE: Final = "trusted"  # in the folder of graphmill's configuration; JSON lines
_MOST_HANDED_ON: Final = 500  # a variable of the environment may have 128 KiB
_DIGITS: Final = 24


@dataclass(frozen=True, slots=True)
class Code:
    """What is imported and called: a dotted path, or a script, and a digest of what it is called with."""

    target: str
    options: str  # digest

    @classmethod
    def of(cls, target: str, options: object) -> "Code":
        """Code that `target` names, called with `options` as they are."""
        try:
            text = options if isinstance(options, str) else json.dumps(options, sort_keys=True, default=repr)
        except (ValueError, TypeError, RecursionError):  # as of a number of 5,000 digits: what no one can have named
            text = os.urandom(_DIGITS).hex()
        return cls(target, hashlib.sha256(text.encode()).hexdigest()[:_DIGITS])

    def __str__(self) -> str:
        """Text that `TRUST_VARIABLE` may hold; a dotted path alone stands there for any options."""
        return f"{self.target}#{self.options}"


_named: set[Code] = set()  # by who started this process
_foreign: dict[Code, UserError] = {}  # read from a folder, and named by nobody here; why it is refused


def code_in(document: object) -> list[Code]:
    """All code that a plan, an experiment, or another document of JSON names, at any depth."""
    found: list[Code] = []
    todo = [document]  # no recursion: what was handed over may be nested as deep as its maker liked
    while todo:
        each = todo.pop()
        if isinstance(each, Mapping):
            found += _named_by(each)
            todo += reversed(list(each.values()))
        elif isinstance(each, list | tuple):
            todo += reversed(each)
    return list(dict.fromkeys(found))


def _named_by(section: Mapping[str, Any]) -> Iterator[Code]:
    task, target = section.get("task"), section.get("target")
    kind = task.get("kind") if isinstance(task, Mapping) else task
    if isinstance(kind, str) and ":" in kind:
        yield Code.of(kind, {})
    if isinstance(target, str):
        yield Code.of(target, section.get("options") or {})


def code_of_file(path: Path) -> list[Code]:
    """What a file of JSON names, without importing anything; nothing of one that cannot be read."""
    try:
        return code_in(parse_json(retried(path, Path.read_bytes)))
    except (OSError, ValueError):  # said where it is read for what it is
        return []


def vouch_for(codes: Iterable[Code]) -> None:
    """Note that the person named these codes, for this process only."""
    _named.update(codes)


def is_named(code: Code) -> bool:
    """Whether the person did: in this process, on this machine, or where it was started from."""
    if code in _named or {code.target, str(code)} & {*filter(None, os.environ.get(TRUST_VARIABLE, "").split(","))}:
        return True
    return code in _listed()


def unnamed(codes: Iterable[Code]) -> list[Code]:
    """Codes that the person did not name."""
    return [code for code in codes if not is_named(code)]


def remember(codes: Iterable[Code]) -> None:
    """Put them on the list of this machine, and name them in this process. Other processes may write it as well."""
    codes = list(codes)
    vouch_for(codes)
    new = set(codes) - _listed()
    path = _list_path()
    if not new or path is None:
        return
    text = "".join(json.dumps({"target": code.target, "options": code.options}) + "\n" for code in codes if code in new)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # by a full disk: it is not to spoil this line
            os.write(fd, f"{chr(10) if torn else ''}{text}".encode())
        finally:
            os.close(fd)
    except OSError as error:
        _log.warning(f"{path} cannot be written ({error.strerror}): evaluating or resuming the run will ask once more")


def hand_on(codes: Iterable[Code], environ: MutableMapping[str, str]) -> None:
    """Let processes with this environment run them, wherever they are."""
    earlier = [entry for entry in environ.get(TRUST_VARIABLE, "").split(",") if entry]
    entries = list(dict.fromkeys([*earlier, *map(str, codes)]))
    if entries:
        environ[TRUST_VARIABLE] = ",".join(entries[-_MOST_HANDED_ON:])


def agree(
    path: Path,
    codes: Sequence[Code],
    trusted: Iterable[str] = (),
    ask: Callable[[Path, Sequence[Code], UserError], None] | None = None,
) -> None:
    """See to it that the person has named all that `path` names, here and in what is started from here.

    Args:
        path: the file that names them.
        codes: what it names.
        trusted: dotted paths that the person names now.
        ask: asks about the others, and raises the error that it is given for a no; None: they are refused.

    Raises:
        UserError: the person did not name them.
    """
    new, given = unnamed(codes), set(trusted)
    asked = [code for code in new if code.target not in given]
    if asked:
        refused = refusal(path, asked)
        if ask is None:
            raise refused
        ask(path, asked, refused)
    remember(new)
    hand_on(codes, os.environ)


def note_read(path: Path, document: object) -> None:
    """Note what was read from `path`: code that the person did not name cannot be imported any more.

    A task is imported to read the plan, so one that was not named is refused at once.
    """
    codes = code_in(document)
    foreign = unnamed(codes)
    for code in codes:
        _foreign.pop(code, None)
    for code in foreign:
        _foreign[code] = refusal(path, foreign)
    if any(":" in code.target for code in foreign):
        raise refusal(path, foreign)


def refuse_foreign(target: str, options: Mapping[str, Any]) -> None:
    """Raise a `UserError` if this was read from a folder, and the person did not name it. Ask before any import."""
    code = Code.of(target, dict(options))
    known = next((why for each, why in _foreign.items() if each.target == target), None)
    if known is not None and not is_named(code):
        raise known


def refuse_foreign_code(document: object) -> None:
    """Raise a `UserError` if a document holds code to be refused; ask before a process imports it, or a run is made."""
    for code in code_in(document):
        if code in _foreign and not is_named(code):
            raise _foreign[code]


def refusal(path: Path, codes: Sequence[Code]) -> UserError:
    """What is to be typed before the code that `path` names is run."""
    targets = list(dict.fromkeys(code.target for code in codes))
    words = [shlex.quote(target) for target in targets]  # what is to be typed is a shell's, and they are a stranger's
    return UserError(
        f"{path} names {' and '.join(targets)}, which you have not run on this machine: to use it is to import and"
        " call that, with the options that it gives",
        fix=f"read it and that code; then name it: {TRUST_VARIABLE}={','.join(words)} before the command,"
        f" {' '.join(f'--trust {word}' for word in words)} where it has that option, or trust={targets!r} in"
        " Python",
    )


def _list_path() -> Path | None:
    folder = config_folder(os.environ)
    return None if folder is None else folder / LIST_FILE


def _listed() -> set[Code]:
    path = _list_path()
    try:
        lines = [] if path is None else _own_text(path).splitlines()
    except OSError:  # there is none, or it may not be read: then nothing was named
        return set()
    return {code for code in map(_parsed, lines) if code is not None}


def _own_text(path: Path) -> str:
    """What the person wrote there; nothing of a list that others wrote, or may write: it would be their word."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe is not waited for
    with os.fdopen(fd, encoding="utf-8", errors="replace") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
            _warn_once(
                f"{path} is not a file that you alone may write to, so what it names counts for nothing:"
                f" chmod go-w {shlex.quote(str(path))}, if it is yours and right"
            )
            return ""
        return file.read()


@cache
def _warn_once(text: str) -> None:
    _log.warning(text)


def _parsed(line: str) -> Code | None:
    try:
        found = parse_json(line)
        return Code(found["target"], found["options"])
    except (ValueError, KeyError, TypeError):  # torn: what it named is asked for again
        return None
