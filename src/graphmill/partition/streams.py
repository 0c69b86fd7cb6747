"""Arrays on disk, read and written a few rows at a time: memory stays bounded however long they are."""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import numpy as np
import xxhash
from numpy.typing import NDArray

from graphmill.graph.arrays import HashingFile, check_array
from graphmill.graph.header import ArrayRecord, damaged

Advance = Callable[[int], None]
"""To be called with numbers of bytes as they are written."""

_CHUNK_BYTES: Final = 2**24


class ArrayReader:
    """Rows of an array from first to last, read once. At the end the checksum of what was read is compared."""

    def __init__(self, path: Path, record: ArrayRecord) -> None:
        header = check_array(path, record)
        self.dtype, self.num_rows = header.dtype, header.shape[0]
        self._row_shape = header.shape[1:]
        self._row_items = int(np.prod(self._row_shape, dtype=np.int64))
        self._path, self._record = path, record
        self._digest = xxhash.xxh3_128()
        self._file = path.open("rb", buffering=0)
        self._digest.update(self._file.read(header.offset))

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self._row_items * self.dtype.itemsize

    def read(self, count: int) -> NDArray[Any]:
        """The next rows [count, …]."""
        found = np.fromfile(self._file, dtype=self.dtype, count=count * self._row_items)
        if len(found) != count * self._row_items:
            raise damaged(self._path, "it ends before its last row")
        self._digest.update(found.data)
        return found.reshape(count, *self._row_shape)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        left = b"" if kind else self._file.read(1)
        self._file.close()
        if kind is None and (left or self._digest.hexdigest() != self._record.xxh3):
            raise damaged(self._path, f"its checksum is {self._digest.hexdigest()}, not {self._record.xxh3}")


class ArrayWriter:
    """An array whose shape is known before its rows are."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...], advance: Advance) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._dtype, self._shape, self._path, self._advance = dtype.newbyteorder("<"), shape, path, advance
        self._num_rows = 0
        self._file: IO[bytes] = path.open("wb", buffering=0)
        self._hashing = HashingFile(self._file)
        described = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._hashing, described)

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows."""
        data = np.ascontiguousarray(rows, dtype=self._dtype)
        self._hashing.write(data.data.cast("B") if data.size else b"")
        self._num_rows += len(data)
        self._advance(data.nbytes)

    def finish(self) -> ArrayRecord:
        """Close the file; the record holds the checksum of what was written."""
        self._file.close()
        if self._num_rows != self._shape[0]:
            raise RuntimeError(f"{self._path} has {self._num_rows} rows of {self._shape[0]}")
        return ArrayRecord(
            dtype=self._dtype.name, shape=self._shape, bytes=self._path.stat().st_size, xxh3=self._hashing.hexdigest()
        )


def copy_array(source: Path, record: ArrayRecord, target: Path, advance: Advance) -> ArrayRecord:
    """Copy a whole file, whose checksum must be that of its record."""
    check_array(source, record)
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file, target.open("wb") as copy:
        hashing = HashingFile(copy)
        while chunk := file.read(_CHUNK_BYTES):
            hashing.write(chunk)
            advance(len(chunk))
    if hashing.hexdigest() != record.xxh3:
        raise damaged(source, f"its checksum is {hashing.hexdigest()}, and metadata.json says {record.xxh3}")
    return record
