"""A file for HDF5 to write to, which stays usable when the disk is full.

HDF5 cannot close a file that it could not write: it tries again when the process ends, and crashes. So an error is kept
here, and what is written after it stays in memory, for the little time until the writer has looked and closed the file.
"""

import io
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Final

_PAGE_BYTES: Final = 1 << 16


class SurvivingFile(io.RawIOBase):
    """What h5py needs of a file object. `raise_error` tells whether the file on the disk is as HDF5 believes."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("w+b", buffering=0)
        self._at = self._end = 0
        self._error: OSError | None = None
        self._pages: dict[int, bytearray] = {}  # after an error: what differs from the file on the disk

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        super().__exit__(kind, error, trace)

    def raise_error(self) -> None:
        """Raise the first error of a write, if there was one."""
        if self._error is not None:
            raise self._error

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As files have it."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  # whatever has bytes
        """As files have it."""
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._end - self._at))
        view[:count] = self._read(self._at, count)
        self._at += count
        return count

    def write(self, data: Any) -> int:  # noqa: ANN401  # whatever has bytes
        """To the disk, or to memory since the disk was full."""
        view = memoryview(data).cast("B")
        if self._error is None:
            try:
                self._to_disk(view)
            except OSError as error:
                self._error = error
        if self._error is not None:
            self._to_pages(view)
        self._at += len(view)
        self._end = max(self._end, self._at)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """As files have it."""
        self._end = self._at if size is None else size
        if self._error is None:
            try:
                self._file.truncate(self._end)
            except OSError as error:
                self._error = error
        return self._end

    def _to_disk(self, view: memoryview) -> None:
        self._file.seek(self._at)
        while view:
            view = view[self._file.write(view) :]

    def _to_pages(self, view: memoryview) -> None:
        at = self._at
        while view:
            number, begin = divmod(at, _PAGE_BYTES)
            part = view[: _PAGE_BYTES - begin]
            if number not in self._pages:
                self._pages[number] = bytearray(self._from_disk(number * _PAGE_BYTES, _PAGE_BYTES))
            self._pages[number][begin : begin + len(part)] = part
            at, view = at + len(part), view[len(part) :]

    def _read(self, at: int, count: int) -> bytes:
        if not self._pages:
            return self._from_disk(at, count)
        parts = []
        while count:
            number, begin = divmod(at, _PAGE_BYTES)
            length = min(count, _PAGE_BYTES - begin)
            page = self._pages.get(number)
            parts.append(self._from_disk(at, length) if page is None else bytes(page[begin : begin + length]))
            at, count = at + length, count - length
        return b"".join(parts)

    def _from_disk(self, at: int, count: int) -> bytes:
        """Zeros where the disk has nothing."""
        return os.pread(self._file.fileno(), count, at).ljust(count, b"\0")
