"""Rows of a hidden layer while exact inference needs them: on a disk of the host, unless they are few."""

import errno
import logging
import os
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures
from graphmill.graph.pages import evict
from graphmill.runtime.roots import scratch_folder
from graphmill.sample.distributed.wire import Wire
from graphmill.spec.parted_memory import BLOCK_BYTES

Ids = NDArray[np.int64]
_log = logging.getLogger(__name__)
_WRITTEN_AT_A_TIME: Final = 1 << 20  # bytes
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True, slots=True)
class HiddenRows:
    """Rows of a layer's result that later layers read, for the nodes that this rank owns.

    On a disk they are pages of a file, which the kernel writes back and drops when memory is short; with memory to
    spare they stay there, and are read as fast as an array. While they are written the process does not count them as
    its own. Rows that take no more than a block of inputs does (`BLOCK_BYTES`) are an array: a file would save less
    than what a block takes anyway.
    """

    table: DenseFeatures  # [num_rows, width], in the order in which they were named
    _places: NDArray[np.int32]  # [num_owned]: the place of each owned row in the table; -1: not stored

    @classmethod
    def of(cls, rows: Ids, num_owned: int, width: int, wire: Wire) -> "HiddenRows":
        """Room for these of the rank's owned rows. All ranks must call it; `UserError` on all if a disk has no room."""
        needed, x = 4 * len(rows) * width, None
        if needed <= BLOCK_BYTES:
            x = np.zeros((len(rows), width), dtype=np.float32)
        else:
            folder = scratch_folder()
            _say_where(folder, needed)
            x = _made(folder, (len(rows), width))
        lacking = np.array([0 if x is not None else needed])
        heard = [int(m[0]) for m in wire.swap([lacking] * wire.world_size, [1] * wire.world_size)]
        if x is None or any(heard):
            raise _no_room({rank: number for rank, number in enumerate(heard) if number})
        places = np.full(num_owned, -1, dtype=np.int32)
        places[rows] = np.arange(len(rows), dtype=np.int32)
        return cls(DenseFeatures(x, "float32"), places)

    def write(self, begin: int, rows: NDArray[np.float32]) -> None:
        """Write rows [n, width] of the table from `begin` on."""
        step = max(1, _WRITTEN_AT_A_TIME // (4 * rows.shape[1]))
        for first in range(0, len(rows), step):
            piece = rows[first : first + step]
            room = self.table.x[begin + first : begin + first + len(piece)]
            room[:] = piece
            evict(room)

    def find(self, rows: Ids) -> Ids:
        """Where owned rows [n] are in the table."""
        return self._places[rows].astype(np.int64)


def _made(folder: Path | None, shape: tuple[int, int]) -> NDArray[np.float32] | None:
    """Make the table; None: the disk has no room."""
    if folder is None:
        return np.zeros(shape, dtype=np.float32)
    try:
        return _on_disk(folder, shape)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        return None


def _on_disk(folder: Path, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Zeros mapped from a file in `folder` that is gone when the array or the process is.

    Its blocks are on the disk before anything is written, so that a full one is an `OSError` here: a write to a mapped
    page that finds no room would end the process.
    """
    with tempfile.TemporaryFile(dir=folder, prefix=".graphmill-") as file:
        os.posix_fallocate(file.fileno(), 0, 4 * shape[0] * shape[1])
        return np.memmap(file, dtype=np.float32, mode="r+", shape=shape)


def _no_room(lacking: dict[int, int]) -> UserError:
    ranks = ", ".join(f"rank {rank}: {number / 2**20:,.0f} MiB" for rank, number in lacking.items())
    return UserError(
        f"the rows of a hidden layer do not fit on the disk where exact evaluation keeps them: {ranks}",
        fix="make room in the folder that $SLURM_TMPDIR or $TMPDIR names there, else /tmp, or set TMPDIR to another",
    )


@cache
def _say_where(folder: Path | None, num_bytes: int) -> None:
    size = f"{num_bytes / 2**20:,.0f} MiB of rows of a hidden layer"
    if folder is None:
        _log.warning(
            f"exact evaluation keeps {size} in memory: no folder for temporary files of this host is on a disk"
            "\n  → set TMPDIR to one that is"
        )
    else:
        _log.info(f"exact evaluation keeps {size} in {folder} while it lasts")
