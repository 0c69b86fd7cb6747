"""Read untrusted .npy files and .npz archives: no pickles, and every header is checked against the size of its data."""

import shutil
import struct
import tempfile
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.packed import is_inflated
from graphmill.graph.arrays import UNREADABLE, NpyHeader, read_npy_array, read_npy_header, reason

MAPPED: Final = ("edge_index", "x")  # what is largest in the .npz of a graph
MAPPED_BYTES: Final = 2**24  # of an array that `read_npz` may map: smaller ones are read
_CHUNK_BYTES: Final = 2**24
_LOCAL_HEADER: Final = struct.Struct("<4s5H3I2H")  # of a zip member; the last two: lengths of its name and extra field
_FIX = "write it again with numpy.savez_compressed, with plain arrays of numbers or strings"


def refuse_inflated(path: Path, members: Iterable[zipfile.ZipInfo]) -> None:
    """`UserError` if members would unpack to far more than such files hold: a header can ask for any amount of memory.

    Also if together they have more bytes than the archive: some share them.
    """
    members = list(members)
    if sum(info.compress_size for info in members) > path.stat().st_size:
        raise UserError(f"{path} is damaged: its members have more bytes than it", fix=_FIX)
    for info in members:
        if is_inflated(info.file_size, info.compress_size):
            raise UserError(
                f"{path}: {info.filename} has {info.compress_size:,} bytes, and would unpack to {info.file_size:,}",
                fix="if that is meant, write it without compression: numpy.savez for .npz, zip -0 for others",
            )


def npz_keys(path: Path) -> tuple[str, ...]:
    """Names of the arrays in the archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist())
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", fix="give the path of a .npz file") from None
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read as .npz: {reason(error)}", fix=_FIX) from error


def read_npz(
    path: Path,
    *,
    required: Collection[str],
    optional: Collection[str] = (),
    mapped: Collection[str] = (),
    scratch: Path | None = None,
) -> dict[str, NDArray[Any]]:
    """The arrays `required` and those of `optional` that are there.

    Of those in `mapped` the large ones are mapped read-only, as by `map_npz`; a folder `scratch` is needed for that.
    """
    present = npz_keys(path)
    missing = sorted(set(required) - set(present))
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(present)) or 'nothing'}",
            fix=f"write the archive with the keys {', '.join(sorted(required))}",
        )
    wanted = [key for key in present if key in required or key in optional]
    with zipfile.ZipFile(path) as archive:
        sizes = {key: archive.getinfo(f"{key}.npy") for key in wanted}
        refuse_inflated(path, sizes.values())
        large = {key for key in mapped if key in sizes and sizes[key].file_size >= MAPPED_BYTES}
        found = {key: _read_member(archive, path, key) for key in wanted if key not in large}
    if large:
        assert scratch is not None
        found |= {key: map_npz(path, key, scratch) for key in sorted(large)}
    return found


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a .npy file."""
    try:
        with path.open("rb") as file:
            header = read_npy_header(file)
            if header.num_bytes != (found := path.stat().st_size):
                raise ValueError(f"its header asks for {header.num_bytes} bytes, and it has {found}")
            file.seek(0)
            return read_npy_array(file)
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read as .npy: {reason(error)}", fix="write it again with numpy.save"
        ) from error


def map_npz(path: Path, key: str, scratch: Path) -> NDArray[Any]:
    """An array of the archive, mapped read-only: it need not fit into memory.

    It is read once, so that its checksum is compared. What is compressed is unpacked into a file in `scratch`, which
    has no name: it is gone when the array is.
    """
    if key not in npz_keys(path):
        raise UserError(f"{path} lacks {key}", fix=f"write the archive with the key {key}")
    try:
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo(f"{key}.npy")
            refuse_inflated(path, [info])
            with archive.open(info) as member:
                header = read_npy_header(member)
            if header.num_bytes != info.file_size:
                raise ValueError(f"its header asks for {header.num_bytes} bytes, and it has {info.file_size}")
            with archive.open(info) as member:
                if info.compress_type == zipfile.ZIP_STORED:
                    while member.read(_CHUNK_BYTES):
                        pass
                    return _mapped(path, header, _begin_of(path, info))
                scratch.mkdir(parents=True, exist_ok=True)
                with tempfile.NamedTemporaryFile(dir=scratch, prefix=f".{key}.") as file:
                    shutil.copyfileobj(member, file, _CHUNK_BYTES)
                    file.flush()
                    return _mapped(Path(file.name), header, 0)
    except UNREADABLE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # no space left, for one: nothing is wrong with the archive
        raise UserError(f"{path}, key {key}: it cannot be read: {reason(error)}", fix=_FIX) from error


def _begin_of(path: Path, info: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin: its local header has lengths of its own."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    return info.header_offset + _LOCAL_HEADER.size + int(name_length) + int(extra_length)


def _mapped(path: Path, header: NpyHeader, begin: int) -> NDArray[Any]:
    if 0 in header.shape:
        return np.empty(header.shape, dtype=header.dtype)
    order: Literal["F", "C"] = "F" if header.is_fortran else "C"
    return np.asarray(np.memmap(path, header.dtype, "r", begin + header.offset, header.shape, order))


def _read_member(archive: zipfile.ZipFile, path: Path, key: str) -> NDArray[Any]:
    try:
        info = archive.getinfo(f"{key}.npy")
        with archive.open(info) as member:
            header = read_npy_header(member)
            if header.num_bytes != info.file_size:
                raise ValueError(f"its header asks for {header.num_bytes} bytes, and it has {info.file_size}")
        with archive.open(info) as member:
            return read_npy_array(member)
    except UNREADABLE as error:
        raise UserError(f"{path}, key {key}: it cannot be read: {reason(error)}", fix=_FIX) from error
