"""Flat arrays that grow instance by instance in a folder beside the store: what was kept survives a kill.

An array is a .npy file whose header is written last. What the arrays hold for sure stands in journal.json, which is
replaced when they are on the disk; whatever they hold beyond that is cut off before the next instance is added.
"""

import io
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from graphmill.base.files import write_json
from graphmill.base.json_text import parse_json
from graphmill.graph.arrays import record_of
from graphmill.graph.header import ArrayRecord
from graphmill.tasks.assignment.data.instance import NO_SEQUENCE, SPLITS, TO_BE_DRAWN, Instance

INDEX: Final = np.dtype(
    [
        *((name, "<i4") for name in ("rows", "cols", "tag_bytes", "size", "sequence", "own_sequence", "frame")),
        *(("fingerprint", "<u8", (2,)), ("optimum", "<f8"), ("noise_std", "<f4"), ("family", "<i2"), ("split", "i1")),
    ]
)
"""What is known of an instance besides what the flat arrays hold."""
_KEEP_EVERY_S: Final = 2.0
_SMALL_BYTES: Final = 4096
_HEADER_BYTES: Final = 128  # of a .npy file of one dimension
_DAMAGED_SHOWN: Final = 20


class Journal(BaseModel):
    """What is kept for sure."""

    model_config = ConfigDict(extra="forbid")

    taken: int = 0  # of the source's instances, in their order: written, or left out
    written: int = 0
    families: list[str] = []
    num_duplicates: int = 0
    num_damaged: int = 0
    damaged: list[str] = []
    num_solved_again: int = 0


class GrowingArrays:
    """The arrays of a store that is being made, in `folder`. Used as a context: what was added is kept at its end."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self.folder = folder
        self.arrays = folder / "arrays"
        self.arrays.mkdir(parents=True, exist_ok=True)
        self.journal = self._read_journal()
        self._dtypes = {"costs": dtype, "u": "float64", "v": "float64", "columns": "int32"}
        self._dtypes |= {"row_ids": "int32", "tags": "uint8"}
        self._kept_at = time.monotonic()
        self._index_path = folder / "index.bin"
        rows = self._rows_kept()
        self._seen = {tuple(each) for each in rows["fingerprint"].tolist()}
        self._last_frames = self._last_frames_of(rows)
        self._num_sequences = int(rows["sequence"].max(initial=NO_SEQUENCE)) + 1
        self.num_bytes = 0
        self._files = {name: self._opened(name, count) for name, count in self._counts(rows).items()}
        self._index = _cut(self._index_path, len(rows) * INDEX.itemsize)

    def __enter__(self) -> "GrowingArrays":
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self.keep()
        finally:
            for file in (*self._files.values(), self._index):
                file.close()

    def add(self, instance: Instance, *, drops_duplicates: bool) -> None:
        """The next instance of the source."""
        fingerprint, journal = instance.fingerprint(), self.journal
        if fingerprint in self._seen and drops_duplicates:
            self._commit(num_duplicates=journal.num_duplicates + 1)
            return
        about = instance.about
        families = journal.families if about.family in journal.families else [*journal.families, about.family]
        tag = np.frombuffer(about.tag.encode(), np.uint8)
        row = np.zeros(1, INDEX)
        row["rows"], row["cols"] = instance.shape
        row["tag_bytes"], row["size"], row["noise_std"] = len(tag), about.size, about.noise_std
        row["sequence"], row["own_sequence"], row["frame"] = self._sequence_of(instance), about.sequence, about.frame
        row["fingerprint"], row["optimum"] = fingerprint, instance.optimum
        row["family"] = families.index(about.family)
        row["split"] = TO_BE_DRAWN if about.split is None else SPLITS.index(about.split)
        row_ids = np.full(instance.shape[0], NO_SEQUENCE) if instance.row_ids is None else instance.row_ids
        parts = {"costs": instance.costs, "u": instance.u, "v": instance.v, "columns": instance.columns}
        parts |= {"row_ids": row_ids, "tags": tag}
        for name, part in parts.items():
            self._write(name, part)
        _write_all(self._index, row.tobytes())
        self._seen.add(fingerprint)
        num_solved_again = journal.num_solved_again + instance.is_solved_again
        self._commit(written=journal.written + 1, families=families, num_solved_again=num_solved_again)

    def leave_out(self, name: str, problem: str) -> None:
        """The next instance of the source is damaged."""
        shown = [*self.journal.damaged, f"{name}: {problem}"][:_DAMAGED_SHOWN]
        self._commit(num_damaged=self.journal.num_damaged + 1, damaged=shown)

    def keep(self) -> None:
        """Put on the disk what was added so far."""
        for file in (*self._files.values(), self._index):
            os.fsync(file.fileno())
        write_json(self.folder / "journal.json", self.journal.model_dump())
        self._kept_at = time.monotonic()

    def finished(self) -> tuple[NDArray[Any], Mapping[str, ArrayRecord]]:
        """Write the headers → what is known of each instance [num_instances], and the records of the flat arrays."""
        self.keep()
        rows = self._rows_kept()
        records = {}
        for name, count in self._counts(rows).items():
            file = self._files[name]
            file.seek(0)
            _write_all(file, _header(np.dtype(self._dtypes[name]), count))
            records[name] = record_of(self.arrays / f"{name}.npy")
        return rows, records

    def _write(self, name: str, part: NDArray[Any]) -> None:
        array = np.ascontiguousarray(part, dtype=np.dtype(self._dtypes[name]).newbyteorder("<"))
        _write_all(self._files[name], array.tobytes() if array.nbytes < _SMALL_BYTES else array.reshape(-1).data)
        self.num_bytes += array.nbytes

    def _commit(self, **changes: Any) -> None:  # noqa: ANN401  # of fields of Journal
        """One instance more, at one stroke: whatever interrupts, it is taken whole or not at all."""
        self.journal = self.journal.model_copy(update={"taken": self.journal.taken + 1, **changes})
        if time.monotonic() - self._kept_at >= _KEEP_EVERY_S:
            self.keep()

    def _sequence_of(self, instance: Instance) -> int:
        """Sequences are numbered as they come: those of two sources that have the same number are two."""
        about = instance.about
        if about.sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        key = (about.family, about.size, about.sequence)
        number, frame = self._last_frames.get(key, (NO_SEQUENCE, 0))
        if number == NO_SEQUENCE or about.frame <= frame:
            number = self._num_sequences
            self._num_sequences += 1
        self._last_frames[key] = (number, about.frame)
        return number

    def _last_frames_of(self, rows: NDArray[Any]) -> dict[tuple[str, int, int], tuple[int, int]]:
        """Sequences by family, size and number in the source: number here, and the last frame so far."""
        found: dict[tuple[str, int, int], tuple[int, int]] = {}
        for row in rows[rows["sequence"] != NO_SEQUENCE]:
            family = self.journal.families[int(row["family"])]
            key = (family, int(row["size"]), int(row["own_sequence"]))
            found[key] = (int(row["sequence"]), int(row["frame"]))
        return found

    def _read_journal(self) -> Journal:
        path = self.folder / "journal.json"
        return Journal.model_validate_json(path.read_bytes()) if path.exists() else Journal()

    def _rows_kept(self) -> NDArray[Any]:
        if not self.journal.written:
            return np.empty(0, INDEX)
        return np.fromfile(self._index_path, INDEX, count=self.journal.written)

    def _counts(self, rows: NDArray[Any]) -> dict[str, int]:
        num_rows, num_cols = rows["rows"].astype(np.int64), rows["cols"].astype(np.int64)
        return {
            "costs": int((num_rows * num_cols).sum()),
            "u": int(num_rows.sum()),
            "v": int(num_cols.sum()),
            "columns": int(num_rows.sum()),
            "row_ids": int(num_rows.sum()),
            "tags": int(rows["tag_bytes"].sum(dtype=np.int64)),
        }

    def _opened(self, name: str, count: int) -> io.FileIO:
        num_bytes = count * np.dtype(self._dtypes[name]).itemsize
        self.num_bytes += num_bytes
        return _cut(self.arrays / f"{name}.npy", _HEADER_BYTES + num_bytes)


def is_whole(folder: Path, dtype: str) -> bool:
    """Whether the arrays in `folder` have all that its journal says: not after a power failure that lost files."""
    try:
        journal = Journal.model_validate_json((folder / "journal.json").read_bytes())
        num_bytes = (folder / "index.bin").stat().st_size
        rows = np.fromfile(folder / "index.bin", INDEX, count=journal.written)
        entries = (rows["rows"].astype(np.int64) * rows["cols"]).sum()
        costs = (folder / "arrays" / "costs.npy").stat().st_size
    except (OSError, ValueError):
        return False
    needed = _HEADER_BYTES + int(entries) * np.dtype(dtype).itemsize
    return num_bytes >= journal.written * INDEX.itemsize and costs >= needed


def start_anew(folder: Path) -> None:
    """Forget what was kept; the lock stays."""
    shutil.rmtree(folder / "arrays", ignore_errors=True)
    for name in ("journal.json", "index.bin", "asked.json"):
        (folder / name).unlink(missing_ok=True)


def read_json(path: Path) -> Mapping[str, Any] | None:
    """The object in a file of ours; None: it is not there, or not whole."""
    try:
        found: Mapping[str, Any] = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found


def _write_all(file: io.FileIO, data: bytes | memoryview) -> None:
    """Write without a buffer: what could be written before the disk was full is there, and can be kept."""
    rest = memoryview(data).cast("B") if len(data) else memoryview(b"")
    while rest:
        rest = rest[file.write(rest) :]


def _cut(path: Path, num_bytes: int) -> io.FileIO:
    """Open a file to write on, after its first `num_bytes` bytes."""
    path.touch()
    file = path.open("r+b", buffering=0)
    file.truncate(num_bytes)
    file.seek(0, os.SEEK_END)
    return file


def _header(dtype: np.dtype[Any], count: int) -> bytes:
    text = io.BytesIO()
    description = {"descr": dtype.newbyteorder("<").str, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(text, description)
    assert text.tell() == _HEADER_BYTES, "a header of numpy has another length"
    return text.getvalue()
