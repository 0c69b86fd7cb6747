"""Read untrusted .npy files and .npz archives: no pickles, and every header is checked against the size of its data."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import UNREADABLE, read_npy_header, reason

_FIX = "write it again with numpy.savez_compressed, with plain arrays of numbers or strings"


def npz_keys(path: Path) -> tuple[str, ...]:
    """Names of the arrays in the archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist())
    except FileNotFoundError:
        raise UserError(f"{path} does not exist", fix="give the path of a .npz file") from None
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read as .npz: {reason(error)}", fix=_FIX) from error


def read_npz(path: Path, *, required: Collection[str], optional: Collection[str] = ()) -> dict[str, NDArray[Any]]:
    """The arrays `required` and those of `optional` that are there."""
    present = npz_keys(path)
    missing = sorted(set(required) - set(present))
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing)}; it has {', '.join(sorted(present)) or 'nothing'}",
            fix=f"write the archive with the keys {', '.join(sorted(required))}",
        )
    wanted = [key for key in present if key in required or key in optional]
    with zipfile.ZipFile(path) as archive:
        return {key: _read_member(archive, path, key) for key in wanted}


def read_npy(path: Path) -> NDArray[Any]:
    """The array in a .npy file."""
    try:
        with path.open("rb") as file:
            header = read_npy_header(file)
            if header.num_bytes != (found := path.stat().st_size):
                raise ValueError(f"its header asks for {header.num_bytes} bytes, and it has {found}")
            file.seek(0)
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except UNREADABLE as error:
        raise UserError(
            f"{path} cannot be read as .npy: {reason(error)}", fix="write it again with numpy.save"
        ) from error


def _read_member(archive: zipfile.ZipFile, path: Path, key: str) -> NDArray[Any]:
    try:
        info = archive.getinfo(f"{key}.npy")
        with archive.open(info) as member:
            header = read_npy_header(member)
            if header.num_bytes != info.file_size:
                raise ValueError(f"its header asks for {header.num_bytes} bytes, and it has {info.file_size}")
        with archive.open(info) as member:
            return np.asarray(np.lib.format.read_array(member, allow_pickle=False))
    except UNREADABLE as error:
        raise UserError(f"{path}, key {key}: it cannot be read: {reason(error)}", fix=_FIX) from error
