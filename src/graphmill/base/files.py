"""A file is whole or absent: temporary sibling, fsync, rename, fsync of the folder (DESIGN invariant 7)."""

import errno
import json
import os
import re
import shlex
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from graphmill.base.errors import UserError
from graphmill.base.retries import insist

_TEMPORARY = re.compile(r"\..+@[0-9]+(\.(new|old))?\.tmp")
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)  # a file system without hard links


def fsync_folder(folder: Path) -> None:
    """Make the names in `folder` durable; without this a rename can be lost in a power failure."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_file(path: Path) -> None:
    """Make the content of `path` durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refuse_link(folder: Path) -> None:
    """`UserError` if a folder of ours in a logs root is a link, which others may have put there to lead anywhere."""
    if folder.is_symlink():
        raise UserError(
            f"{folder} is a link, to {folder.resolve()}: nothing is written through it",
            fix=f"put a folder in its place, or remove it: rm {shlex.quote(str(folder))}",
        )


@contextmanager
def replacing(path: Path, *, is_new: bool = False) -> Iterator[Path]:
    """Yield a temporary sibling that takes the place of `path` only if the block succeeds.

    `is_new`: there must be no such file, else `FileExistsError`: of several writers at once, one is the first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = threading.get_native_id()  # Linux: of the main thread it is the process's
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}@{writer}.tmp")
    try:
        _make_own(temporary)
        yield temporary
        fsync_file(temporary)
        (_put_new if is_new else os.replace)(temporary, path)
        fsync_folder(path.parent)
    finally:
        with suppress(OSError):  # it must not hide why the block failed
            temporary.unlink(missing_ok=True)


def _make_own(temporary: Path) -> None:
    """Make the file: its name can be guessed, and where others may write, a link of theirs may wait under it.

    It does not hold against one who may write to the folder and changes the file while it is written.
    """
    temporary.unlink(missing_ok=True)
    os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))


def _put_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        temporary.replace(path)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary sibling folder that takes the place of `folder` only if the block succeeds.

    Every file in it is made durable before the rename. An existing `folder` is renamed as a whole before it is
    deleted, so a writer that is killed leaves the old one, the new one or none, never a part. What a killed writer
    leaves under a temporary name is for `remove_leftovers`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary_folder(folder, "new")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        yield temporary
        put_folder(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def put_folder(made: Path, folder: Path) -> None:
    """Let the folder `made`, on the same file system, take the place of `folder`, as `replacing_folder` does."""
    aside = _temporary_folder(folder, "old")
    try:
        for child in made.rglob("*"):
            if child.is_file():
                fsync_file(child)
        fsync_folder(made)
        _exchange(made, folder, aside)
        fsync_folder(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def leftovers(root: Path) -> list[Path]:
    """Temporary files and folders that writers below `root` have not put in place, of live writers, too."""
    return sorted(path for path in root.rglob(".*@*.tmp") if _TEMPORARY.fullmatch(path.name))


def remove_leftovers(folder: Path) -> None:
    """Delete what writers of `folder`, or of a file, left when they were killed on this host. Live ones keep theirs."""
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):
        host, _, rest = leftover.name.removeprefix(f".{folder.name}.").partition("@")
        pid = rest.split(".", 1)[0]
        if host != socket.gethostname() or not pid.isdecimal() or Path(f"/proc/{pid}").exists():
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _temporary_folder(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{socket.gethostname()}@{os.getpid()}.{kind}.tmp")


def _exchange(temporary: Path, folder: Path, replaced: Path) -> None:
    for _ in range(100):  # another writer may put its folder there between our two renames
        shutil.rmtree(replaced, ignore_errors=True)
        try:
            if folder.exists():
                folder.replace(replaced)
            temporary.replace(folder)
        except FileNotFoundError:
            continue  # the other writer moved `folder` away first
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
        else:
            return
    raise OSError(errno.EBUSY, "other processes keep replacing this folder", str(folder))


def write_text(path: Path, text: str, *, is_new: bool = False) -> None:
    """Write `text` to `path`, whole or not at all; again from the start after an I/O error. `is_new`: `replacing`'s."""
    num_tries = 0

    def write() -> None:
        nonlocal num_tries
        num_tries += 1
        try:
            with replacing(path, is_new=is_new) as temporary:
                temporary.write_text(text, encoding="utf-8")
        except FileExistsError:
            if num_tries == 1 or path.read_text(encoding="utf-8") != text:  # else an earlier try has put it there
                raise

    insist(write)


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401  # whatever json can carry
    """Write `value` to `path` as `json_text` has it, whole or not at all."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:  # noqa: ANN401  # whatever json can carry
    """Sorted, indented JSON. NaN is refused."""
    return json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
