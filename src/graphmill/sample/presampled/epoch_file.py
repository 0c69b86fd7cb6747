"""The neighbourhoods of one epoch in one file: whole or absent, each with a checksum of its own.

MAGIC · length of the header (8 bytes) · header (JSON) · neighbourhood after neighbourhood · index · tail. The index has
a line for each neighbourhood, in the order (step, rank); the tail says where the index begins, what its checksum is,
and MAGIC again. All is aligned to 8 bytes and little-endian.
"""

import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import IO, Final

import numpy as np
import xxhash
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.files import remove_leftovers, replacing
from graphmill.base.json_text import parse_json
from graphmill.graph.sampled import Sampled
from graphmill.sample.presampled.packing import Form, is_count, num_bytes_of, packed, unpacked

MAGIC: Final = b"GMSCHED1"
_LENGTH: Final = struct.Struct("<Q")
_TAIL: Final = struct.Struct("<QQ8s")
_ALIGNED: Final = 8
_MOST_HEADER_BYTES: Final = 1 << 16
_OFFSET, _CHECKSUM, _COUNTS = 0, 1, 2  # columns of the index


@dataclass(frozen=True, slots=True)
class EpochHeader:
    """What the file says before its first neighbourhood."""

    epoch: int
    num_steps: int
    num_ranks: int
    schedule: str  # checksum of what the schedule depends on
    form: Form

    @property
    def num_batches(self) -> int:
        """Neighbourhoods in the file."""
        return self.num_steps * self.num_ranks

    def as_bytes(self) -> bytes:
        """Bytes of the header as they stand in the file, padded."""
        known = {
            "epoch": self.epoch,
            "num_steps": self.num_steps,
            "num_ranks": self.num_ranks,
            "schedule": self.schedule,
            "form": self.form.as_text(),
        }
        text = json.dumps(known, sort_keys=True).encode()
        return text.ljust(-(-len(text) // _ALIGNED) * _ALIGNED)

    @classmethod
    def of(cls, path: Path) -> "EpochHeader":
        """What a file says of itself. `UserError` if it says nothing that can be understood."""
        try:
            with path.open("rb") as file:
                opening = file.read(len(MAGIC) + _LENGTH.size)
                known = parse_json(file.read(min(_LENGTH.unpack(opening[len(MAGIC) :])[0], _MOST_HEADER_BYTES)))
            header = cls(**{**known, "form": Form.from_text(known["form"])})
        except (struct.error, ValueError, TypeError, KeyError):
            raise damaged(path, "its header cannot be read") from None
        if not all(map(is_count, (header.epoch, header.num_steps, header.num_ranks))):
            raise damaged(path, "its header counts what cannot be counted")
        return header


@dataclass(slots=True)
class EpochWriter:
    """Takes the neighbourhoods of an epoch in the order (step, rank)."""

    file: IO[bytes]
    header: EpochHeader
    index: list[NDArray[np.int64]] = field(default_factory=list)

    def add(self, sampled: Sampled) -> int:
        """Append one; its bytes."""
        data, counts = packed(sampled, self.header.form)
        digest = np.uint64(xxhash.xxh3_64_intdigest(data)).astype(np.int64)
        self.index.append(np.concatenate([np.array([self.file.tell(), digest]), counts]))
        return self.file.write(data.ljust(-(-len(data) // _ALIGNED) * _ALIGNED))

    def finish(self) -> None:
        """Write index and tail. ValueError unless every neighbourhood was added."""
        if len(self.index) != self.header.num_batches:
            raise ValueError(f"{len(self.index)} of {self.header.num_batches} neighbourhoods were added")
        begin, index = self.file.tell(), np.array(self.index, dtype="<i8").tobytes()
        self.file.write(index)
        self.file.write(_TAIL.pack(begin, xxhash.xxh3_64_intdigest(index), MAGIC))


@contextmanager
def writing(path: Path, header: EpochHeader) -> Iterator[EpochWriter]:
    """A writer of `path`, which is there only if the block succeeds."""
    remove_leftovers(path)
    with replacing(path) as temporary, temporary.open("wb") as file:
        text = header.as_bytes()
        file.write(MAGIC + _LENGTH.pack(len(text)) + text)
        writer = EpochWriter(file, header)
        yield writer
        writer.finish()


@dataclass(frozen=True, slots=True)
class EpochReader:
    """Reads the neighbourhoods of an epoch in any order. Each is in memory of its own."""

    path: Path
    header: EpochHeader
    index: NDArray[np.int64]  # [num_batches, 2 + form.num_counts]
    _file: BufferedReader = field(repr=False)

    @classmethod
    def open(cls, path: Path, wanted: EpochHeader) -> "EpochReader":
        """Open `path`, which must be what `wanted` says. `UserError` if it is not, or is damaged."""
        file = path.open("rb")
        try:
            return cls(path, wanted, _read_index(file, path, wanted), file)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        """Close the file: nothing can be read any more."""
        self._file.close()

    def read(self, step: int, rank: int) -> Sampled:
        """The neighbourhood of a rank at a step. `UserError` if it is damaged."""
        line = self.index[step * self.header.num_ranks + rank]
        begin, counts, which = int(line[_OFFSET]), line[_COUNTS:], f"the batch of step {step}, rank {rank}"
        room = os.fstat(self._file.fileno()).st_size - begin if begin >= 0 else -1
        try:
            buffer = np.empty(num_bytes_of(counts, self.header.form, room), dtype=np.uint8)
            self._file.seek(begin)
            num_read = self._file.readinto(buffer.data)
            digest = xxhash.xxh3_64_intdigest(buffer.data)
            if num_read != len(buffer) or digest != int(line[_CHECKSUM].astype(np.uint64)):
                raise damaged(self.path, f"{which} has another checksum")
            return unpacked(buffer, counts, self.header.form, self.header.epoch, step)
        except ValueError as error:
            raise damaged(self.path, f"{which} leads out of the file, or of the graph: {error}") from None

    def verify(self) -> None:
        """Read every neighbourhood; `UserError` if one is damaged."""
        for number in range(self.header.num_batches):
            self.read(*divmod(number, self.header.num_ranks))


def _read_index(file: IO[bytes], path: Path, wanted: EpochHeader) -> NDArray[np.int64]:
    expected = wanted.as_bytes()
    opening = file.read(len(MAGIC) + _LENGTH.size + len(expected))
    if opening[: len(MAGIC)] != MAGIC:
        raise damaged(path, "it does not begin as a presampled epoch does")
    if opening[len(MAGIC) + _LENGTH.size :] != expected:
        raise damaged(path, "its header is that of another schedule, or epoch")
    size, num_columns = os.fstat(file.fileno()).st_size, _COUNTS + wanted.form.num_counts
    length = wanted.num_batches * num_columns * 8
    file.seek(max(0, size - _TAIL.size))
    tail = file.read(_TAIL.size)
    begin, checksum, magic = _TAIL.unpack(tail) if len(tail) == _TAIL.size else (0, 0, b"")
    if magic != MAGIC or begin + length + _TAIL.size != size:
        raise damaged(path, "it is cut short")
    file.seek(begin)
    index = file.read(length)
    if xxhash.xxh3_64_intdigest(index) != checksum:
        raise damaged(path, "its index has another checksum")
    table: NDArray[np.int64] = np.frombuffer(index, dtype="<i8").reshape(wanted.num_batches, num_columns)
    return table


def damaged(path: Path, problem: str) -> UserError:
    """The error of a file of a schedule."""
    return UserError(
        f"{path} is damaged: {problem}", fix="delete it, and run graphmill presample again: it is made anew"
    )
