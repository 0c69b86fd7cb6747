"""One array, one .npy file: written with its checksum, mapped back only if it matches its record."""

import io
import lzma
import os
import struct
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from graphmill.graph.header import FILE_NAME, ArrayRecord, damaged
from graphmill.graph.pages import evict

# Everything that numpy, zipfile and zlib raise on a damaged file; readers turn these, and only these, into a UserError.
UNREADABLE = (
    ArithmeticError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

_CHUNK_BYTES = 2**20  # read at once: by a thread of a process that trains, too
_PARSER = threading.Lock()
"""Python 3.11 counts the depth of what its parser makes for all threads together, and takes that for a mistake of its
own (gh-106905): numpy parses headers."""


class NpyHeader(NamedTuple):
    """The header of a .npy file."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    is_fortran: bool
    offset: int  # bytes before the data

    @property
    def num_bytes(self) -> int:
        """Size that the whole file must have. Python's integers: a forged shape cannot overflow."""
        size = self.dtype.itemsize
        for extent in self.shape:
            size *= extent
        return self.offset + size


class HashingFile:
    """A file that hashes what is written through it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = xxhash.xxh3_128()

    def write(self, data: bytes | memoryview) -> int:
        """Write all of `data`, whatever kind of file it is."""
        self._digest.update(data)
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        return len(data)

    def hexdigest(self) -> str:
        """xxh3-128 of what has been written."""
        return self._digest.hexdigest()


def write_array(path: Path, array: NDArray[Any]) -> ArrayRecord:
    """Write `array` in C order and little-endian; the record holds the checksum of what was written.

    A mapped array is read block by block, and need not fit into memory.
    """
    array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    values, step = array.reshape(-1), max(1, _CHUNK_BYTES // max(1, array.dtype.itemsize))
    with path.open("wb") as file:
        hashing = HashingFile(file)
        np.lib.format.write_array_header_1_0(hashing, np.lib.format.header_data_from_array_1_0(array))
        for start in range(0, len(values), step):
            block = values[start : start + step]
            hashing.write(block.tobytes())
            evict(block)
    return ArrayRecord(dtype=array.dtype.name, shape=array.shape, bytes=path.stat().st_size, xxh3=hashing.hexdigest())


def record_of(path: Path) -> ArrayRecord:
    """The record of a whole .npy file that was written piece by piece: it is read once more."""
    with path.open("rb") as file:
        header = read_npy_header(file)
    return ArrayRecord(dtype=header.dtype.name, shape=header.shape, bytes=path.stat().st_size, xxh3=_checksum_of(path))


def read_npy_header(file: IO[bytes]) -> NpyHeader:
    """Read the header of an open .npy file. Raises one of `UNREADABLE`, also for arrays of Python objects."""
    version = np.lib.format.read_magic(file)
    with _PARSER:
        if version == (1, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} of the npy format")
    if dtype.hasobject:
        raise ValueError("it holds Python objects, and reading those would run code")
    if any(extent < 0 for extent in shape):
        raise ValueError(f"shape {list(shape)}")
    return NpyHeader(dtype, shape, is_fortran, file.tell())


def read_npy_array(file: IO[bytes]) -> NDArray[Any]:
    """Read an open .npy file from its beginning, whose header `read_npy_header` took."""
    with _PARSER:
        return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def check_array(path: Path, record: ArrayRecord) -> NpyHeader:
    """Compare the file's size and header with its record, without reading the data."""
    try:
        num_bytes = path.stat().st_size
        with path.open("rb") as file:
            header = read_npy_header(io.BytesIO(file.read(2**16 + 64)))
    except FileNotFoundError:
        raise damaged(path, "the file is missing") from None
    except UNREADABLE as error:
        raise damaged(path, f"the header cannot be read: {reason(error)}") from error
    if num_bytes != record.bytes or num_bytes != header.num_bytes:
        wanted = record.bytes if num_bytes != record.bytes else header.num_bytes
        raise damaged(path, f"the file has {num_bytes} bytes and should have {wanted}")
    if header.dtype.name != record.dtype or header.dtype.newbyteorder("<") != header.dtype:
        raise damaged(path, f"it holds {header.dtype.str}, and metadata.json says {record.dtype}")
    if header.shape != record.shape:
        raise damaged(path, f"its shape is {list(header.shape)}, and metadata.json says {list(record.shape)}")
    if header.is_fortran:
        raise damaged(path, "it is in Fortran order")
    return header


def check_arrays(folder: Path, records: Mapping[str, ArrayRecord], *, notes: bool = True) -> None:
    """Compare the size and header of every file with its record; the data too, if it is newer than metadata.json.

    Reading all data at every start would take longer than many runs. A file that was changed, or copied without its
    times, is newer; if its data are intact, metadata.json is touched, so that they are read once. Not without `notes`:
    a reader of some of the files must not vouch for the others.
    """
    metadata = folder / FILE_NAME
    younger = []
    for name, record in records.items():
        path = folder / f"{name}.npy"
        check_array(path, record)
        if path.stat().st_mtime_ns > metadata.stat().st_mtime_ns:
            younger.append((path, record))
    for path, record in younger:
        check_checksum(path, record)
    if younger and notes:
        with suppress(OSError):  # another user's data: they are read again the next time
            os.utime(metadata)


def map_array(path: Path, record: ArrayRecord) -> NDArray[Any]:
    """The array, mapped read-only and shared with every process that maps it."""
    header = check_array(path, record)
    if 0 in header.shape:
        return np.empty(header.shape, dtype=header.dtype)
    try:
        return np.asarray(np.memmap(path, dtype=header.dtype, mode="r", offset=header.offset, shape=header.shape))
    except UNREADABLE as error:
        raise damaged(path, f"it cannot be mapped: {reason(error)}") from error


def refuse_beyond(path: Path, values: NDArray[Any], end: int, *, least: int = 0) -> None:
    """`UserError` if one of the numbers in `path` is not from `least` to below `end`: what is looked up, or counted, by
    it would lie outside, or ask for any amount of memory. Checksums tell damage, not who wrote the file.
    """
    if values.size and not least <= values.min() <= values.max() < end:
        raise damaged(path, f"it holds {values.min()} to {values.max()}, and should hold {least} to {end - 1}")


def check_checksum(path: Path, record: ArrayRecord) -> None:
    """Read the whole file and compare its checksum with the record's."""
    try:
        found = _checksum_of(path)
    except OSError as error:
        raise damaged(path, f"it cannot be read: {reason(error)}") from error
    if found != record.xxh3:
        raise damaged(path, f"its checksum is {found}, and metadata.json says {record.xxh3}")


def check_checksums(folder: Path, records: Mapping[str, ArrayRecord]) -> None:
    """Compare the checksum of each file of a folder with its record's."""
    for name, record in records.items():
        check_checksum(folder / f"{name}.npy", record)


def _checksum_of(path: Path) -> str:
    digest, chunk = xxhash.xxh3_128(), memoryview(bytearray(_CHUNK_BYTES))
    with path.open("rb", buffering=0) as file:
        while num_bytes := file.readinto(chunk):
            digest.update(chunk[:num_bytes])
    return digest.hexdigest()


def reason(error: BaseException) -> str:
    """The message of a reader's error, or its type if the message is uninformative (KeyError: 0)."""
    text = str(error)
    return text if len(text) > 4 else f"it is cut short or damaged ({type(error).__name__}{text and ': '}{text})"
