"""Copy files in parallel, in large blocks, and read the copies back from the disk to compare checksums."""

import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import xxhash

T = TypeVar("T")
R = TypeVar("R")

BLOCK_BYTES: Final = 64 << 20  # of a file, that one thread copies at a time
_READ_BYTES: Final = 8 << 20
_CANNOT: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY)
_LIBC: Final = ctypes.CDLL(None, use_errno=True)

Moved = Callable[[int], None]
"""Called with a number of bytes, from any thread, as they are done."""


@dataclass(frozen=True, slots=True)
class _Block:
    source: Path
    target: Path
    begin: int
    length: int


def copy_files(names: Mapping[str, int], source: Path, target: Path, *, threads: int, moved: Moved) -> None:
    """Copy the files `names` (relative path → bytes) from one folder into another, and make them durable.

    The first error ends the copying, and is raised; what was copied until then stays. The space of each file is
    reserved before its first byte, if the file system can: it is full at once, or not at all.
    """
    for name, num_bytes in names.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        _reserve(target / name, num_bytes)
    blocks = [
        _Block(source / name, target / name, begin, min(BLOCK_BYTES, num_bytes - begin))
        for name, num_bytes in names.items()
        for begin in range(0, num_bytes, BLOCK_BYTES)
    ]
    stop = threading.Event()
    _in_parallel(lambda block: _copy_block(block, moved, stop), blocks, threads, stop)
    _in_parallel(_make_durable, [target / name for name in names], threads, stop)


def checksums(paths: Sequence[Path], *, threads: int, moved: Moved) -> list[str]:
    """xxh3-128 of each file, as read back from the disk: what the page cache holds is dropped first, if possible."""
    stop = threading.Event()
    return _in_parallel(lambda path: _checksum(path, moved, stop), paths, threads, stop)


def needed_bytes(sizes: Iterable[int], block: int = 4096) -> int:
    """What files of these sizes take on a disk, rounded up to its blocks."""
    return sum(-(-size // block) * block for size in sizes)


def free_bytes(folder: Path) -> int:
    """What this user may still write where `folder` is."""
    return shutil.disk_usage(folder).free


def _in_parallel(work: Callable[[T], R], items: Sequence[T], threads: int, stop: threading.Event) -> list[R]:
    with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException:  # the user, or the scheduler, does not want to wait for the rest
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
        if waiting:
            stop.set()
            pool.shutdown(cancel_futures=True)
        for future in done:
            future.result()
        return [future.result() for future in futures]


def _reserve(path: Path, num_bytes: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        # Not os.posix_fallocate: if the file system cannot, that writes a byte into every block.
        if num_bytes and _LIBC.fallocate(fd, 0, ctypes.c_int64(0), ctypes.c_int64(num_bytes)) != 0:
            number = ctypes.get_errno()
            if number in (errno.ENOSPC, errno.EDQUOT):
                raise OSError(number, os.strerror(number), str(path))
            os.ftruncate(fd, num_bytes)
    finally:
        os.close(fd)


def _copy_block(block: _Block, moved: Moved, stop: threading.Event) -> None:
    source = os.open(block.source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(block.target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            done = 0
            while done < block.length and not stop.is_set():
                step = _move(source, target, block.begin + done, min(_READ_BYTES, block.length - done))
                if step == 0:
                    raise OSError(errno.EIO, "the file became shorter while it was copied", str(block.source))
                moved(step)
                done += step
        finally:
            os.close(target)
    finally:
        os.close(source)


def _move(source: int, target: int, offset: int, length: int) -> int:
    """Copy a piece within the kernel if it can, else through memory."""
    try:
        step = os.copy_file_range(source, target, length, offset, offset)
        if step:  # some file systems return 0, and mean that they cannot
            return step
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    piece = os.pread(source, length, offset)
    rest = memoryview(piece)
    while rest:
        written = os.pwrite(target, rest, offset)
        rest, offset = rest[written:], offset + written
    return len(piece)


def _make_durable(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def _checksum(path: Path, moved: Moved, stop: threading.Event) -> str:
    digest = xxhash.xxh3_128()
    buffer = bytearray(_READ_BYTES)
    view = memoryview(buffer)
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while (length := file.readinto(buffer)) and not stop.is_set():
            digest.update(view[:length])
            moved(length)
    return digest.hexdigest()
