"""Compressed files that others made: what would unpack to far more than such files hold is refused.

A header can ask for any amount of memory, and a megabyte of gzip unpacks to a gigabyte of zeros. A small file of
regular text does no harm, and a large one that is meant to be so is unpacked by hand first.
"""

import gzip
import io
import lzma
import shlex
from pathlib import Path
from typing import Final

from graphmill.base.errors import UserError

_SUSPECT_BYTES: Final = 1 << 28  # unpacked; smaller ones do no harm
_MOST_RATIO: Final = 500  # unpacked ÷ packed; deflate reaches 1032, of zeros alone
_BUFFER_BYTES: Final = 1 << 20
_GZIP: Final = b"\x1f\x8b"
_OTHERS: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"x\x01": "zlib", b"x\x9c": "zlib", b"x\xda": "zlib"}


def is_inflated(num_bytes: int, stored_bytes: int) -> bool:
    """Whether data have more bytes in memory than data with that number of bytes in the file should have."""
    return num_bytes > max(_SUSPECT_BYTES, _MOST_RATIO * stored_bytes)


def open_packed(path: Path) -> io.BufferedReader:
    """The file, unpacked as its name says (.gz, .xz). Reading raises a `UserError` once it is inflated."""
    if path.suffix not in (".gz", ".xz"):
        return path.open("rb")
    return _bounded(gzip.GzipFile(path) if path.suffix == ".gz" else lzma.LZMAFile(path), path)


def csv_source(path: Path, *, first_bytes: int = -1) -> Path | io.BytesIO:
    """What polars reads a CSV from, which would unpack it whatever its name and size. `first_bytes`: no more of it."""
    with path.open("rb") as file:
        begin = file.read(4)
    for magic, name in _OTHERS.items():
        if begin.startswith(magic):
            raise UserError(f"{path} is compressed with {name}, which is not read", fix="unpack it, or use gzip")
    if not begin.startswith(_GZIP):
        return path
    with _bounded(gzip.GzipFile(path), path) as unpacked:
        return io.BytesIO(unpacked.read(first_bytes))


def _bounded(file: gzip.GzipFile | lzma.LZMAFile, path: Path) -> io.BufferedReader:
    return io.BufferedReader(_Bounded(file, path), _BUFFER_BYTES)


class _Bounded(io.RawIOBase):
    """What is read of a compressed file, counted."""

    def __init__(self, file: gzip.GzipFile | lzma.LZMAFile, path: Path) -> None:
        super().__init__()
        self._file, self._path, self._done = file, path, 0
        self._stored = path.stat().st_size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # as io asks for
        piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        self._done += len(piece)
        if is_inflated(self._done, self._stored):
            unpack = f"{'xz -dk' if self._path.suffix == '.xz' else 'gunzip -k'} {shlex.quote(str(self._path))}"
            raise UserError(
                f"{self._path} has {self._stored:,} bytes, and would unpack to more than {self._done:,}",
                fix=f"if that is meant, unpack it, and give what comes of it: {unpack}",
            )
        return len(piece)

    def close(self) -> None:
        self._file.close()
        super().close()
