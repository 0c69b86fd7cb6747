"""A copy of the user's own code, `LOGS_ROOT/.code/<sha256>/`: written once, verified, and imported from.

A job that waits for days trains the code that it was submitted with: what lies in the copy, not what lies now where it
was copied from. `files.json` has the SHA-256 of every file, and the folder is called by the SHA-256 of that, so the
same code is one folder however often it is submitted, and what was changed in it shows. Files lie below `0/`, `1/`, …:
one folder for each folder of `sys.path` that they came from, in its order.
"""

import hashlib
import importlib.util
import json
import os
import stat
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath
from typing import Final

from graphmill.base.errors import UserError
from graphmill.base.files import refuse_link, replacing_folder
from graphmill.base.json_text import parse_json
from graphmill.base.retries import retried

FOLDER: Final = ".code"  # in the logs root
VARIABLE: Final = "GRAPHMILL_CODE"  # of the environment of a job's processes: which copy they import
_LIST: Final = "files.json"
_NO_BYTECODE: Final = "PYTHONDONTWRITEBYTECODE"


@dataclass(frozen=True)
class Snapshot:
    """Which copy, where it lies, and which folders it was copied from, in the order of its own."""

    sha256: str
    folder: str  # absolute
    origins: tuple[str, ...]

    def in_environment(self) -> str:
        """Snapshot as the environment variable `VARIABLE` holds it."""
        return json.dumps(asdict(self))


def snapshot_in(environ: Mapping[str, str]) -> Snapshot | None:
    """The copy that this process is to import, or imports."""
    text = environ.get(VARIABLE)
    if not text:
        return None
    found = parse_json(text)
    return Snapshot(found["sha256"], found["folder"], tuple(found["origins"]))


def own_code(environ: Mapping[str, str]) -> str:
    """SHA-256 of the copy that this process imports; "": there is none."""
    snapshot = snapshot_in(environ)
    return "" if snapshot is None else snapshot.sha256


def put_into(environ: MutableMapping[str, str], snapshot: Snapshot | None) -> None:
    """Let the processes with this environment import it; None: nothing, whatever stood there."""
    if environ.pop(VARIABLE, None) is not None:
        environ.pop(_NO_BYTECODE, None)
    if snapshot is not None:
        environ[VARIABLE] = snapshot.in_environment()
        environ[_NO_BYTECODE] = "1"  # what a process of the user's own starts is not to write there either


def digest_of(files: Mapping[str, bytes]) -> str:
    """The SHA-256 that a copy of these files is called by. By path, such as `0/models/sage.py`."""
    return hashlib.sha256(_list_text(files).encode()).hexdigest()


def write_snapshot(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the copy, whole or not at all, for reading only. One that is there and whole is left as it is.

    `folder` must be called by `digest_of(files)`.
    """
    if folder.is_dir() and damage(folder) is None:
        return
    _make_shared(folder.parent)
    with replacing_folder(folder) as temporary:
        for name, content in {**files, _LIST: _list_text(files).encode()}.items():
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o444)


def _make_shared(copies: Path) -> None:
    """Make the folder of all copies, to which those who may write to the logs root may add one."""
    refuse_link(copies)
    with suppress(FileExistsError):
        copies.mkdir(parents=True)
        copies.chmod(stat.S_IMODE(copies.parent.stat().st_mode))  # mkdir's has lost what the umask takes


def damage(folder: Path) -> str | None:
    """What is wrong with a copy, in words; None: it holds what its name says, and nothing else that Python would find.

    Bytecode and compiled modules come before the source that they are called like. What is hidden has no module's name.
    Raises `UnreadableError` where that is unknown.
    """
    try:
        text = retried(folder / _LIST, Path.read_bytes)
    except OSError:
        return f"{_LIST} is missing" if folder.is_dir() else "it is gone"
    if hashlib.sha256(text).hexdigest() != folder.name:
        return f"{_LIST} was changed"
    known: dict[str, str] = parse_json(text)
    for name, checksum in known.items():
        try:
            content = retried(folder / name, Path.read_bytes)
        except OSError:
            return f"{name} is missing"
        if hashlib.sha256(content).hexdigest() != checksum:
            return f"{name} was changed"
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    here = {path.as_posix() for path in files if not any(part.startswith(".") for part in path.parts)}
    return next((f"{name} was added" for name in sorted(here - known.keys() - {_LIST})), None)


def import_from_snapshot(environ: Mapping[str, str]) -> None:
    """Have code of the user's imported from the copy that the environment names, if it names one.

    No bytecode is written beside it, so that what else is found there was added by someone. Its folders come first in
    `sys.path`, and those that it was copied from are taken out: what was not copied is
    missing then, and never imported as it lies there now. Raises `UserError` if the copy is damaged or gone, or if
    something else would be imported in its place.
    """
    snapshot = snapshot_in(environ)
    if snapshot is None:
        return
    sys.dont_write_bytecode = True
    folder = Path(snapshot.folder)
    problem = damage(folder)
    if problem is not None:
        raise UserError(
            f"the copy of your code in {folder} cannot be used: {problem}",
            fix="submit what it was made of again, which restores it; or continue with the code as it lies there now:"
            " graphmill submit --resume RUN --code-snapshot",
        )
    here = [str(folder / str(number)) for number in range(len(snapshot.origins))]
    live = {os.path.realpath(origin) for origin in snapshot.origins}
    sys.path[:] = [*here, *(entry for entry in sys.path if entry not in here and os.path.realpath(entry) not in live)]
    importlib.invalidate_caches()
    _refuse_others(folder, here)


def _refuse_others(folder: Path, search_path: list[str]) -> None:
    """Refuse code that another finder before `sys.path` would import, or that is imported already.

    A folder without `__init__.py` is a package only where no other is called so, here as anywhere in Python.
    """
    for name in sorted({_top(path) for path in parse_json((folder / _LIST).read_bytes())}):
        wanted = PathFinder.find_spec(name, search_path)
        loaded = getattr(sys.modules.get(name), "__spec__", None)
        found = loaded or importlib.util.find_spec(name)
        if wanted is not None and wanted.origin is None:
            continue
        if wanted is None or found is None or found.origin != wanted.origin:
            raise UserError(
                f"{name} would be imported from {found.origin if found else 'nowhere'}, not from the copy in {folder}",
                fix="submit with --no-code-snapshot: it is imported as it lies there when the job starts",
            )


def _top(name: str) -> str:
    """The module that is imported for a file: `sage` for `0/sage.py`, `models` for `0/models/sage.py`."""
    return PurePosixPath(name).parts[1].removesuffix(".py")


def _list_text(files: Mapping[str, bytes]) -> str:
    known = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return json.dumps(known, indent=2, sort_keys=True) + "\n"
