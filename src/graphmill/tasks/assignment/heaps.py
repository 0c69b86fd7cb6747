"""The heaps of an HDF5 file, where data of variable length lie, walked before HDF5 reads them.

HDF5 (2.0) does not end on some heaps whose sizes are damaged. Format: "Disk Format: Level 1E - Global Heap" of the HDF5
file format specification.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_SIGNATURE: Final = b"GCOL\x01\0\0\0"  # with its version
_HEAD: Final = struct.Struct("<8sQ")  # signature, size of the whole
_OBJECT: Final = struct.Struct("<HHIQ")  # index, references, reserved, size of what follows; index 0: the free rest


def heap_problem(path: Path) -> str | None:
    """Where the sizes in a heap contradict each other; None: nowhere. A file without heaps has none that do."""
    if path.stat().st_size < _HEAD.size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(_SIGNATURE)
        while at >= 0:
            _, size = _HEAD.unpack_from(content, at) if at + _HEAD.size <= len(content) else (b"", 0)
            if not _HEAD.size <= size <= len(content) - at:
                return f"the heap at byte {at:,} says that it has {size:,} bytes"
            wrong = next(_wrong_objects(content, at + _HEAD.size, at + size), None)
            if wrong is not None:
                return f"the heap at byte {at:,} has an object of a wrong size at byte {wrong:,}"
            at = content.find(_SIGNATURE, at + size)
    return None


def _wrong_objects(content: mmap.mmap, at: int, end: int) -> Iterator[int]:
    """Places of objects that do not end where others may begin."""
    while end - at >= _OBJECT.size:
        index, _, _, size = _OBJECT.unpack_from(content, at)
        if index == 0:
            if size != end - at:
                yield at
            return
        step = _OBJECT.size + (size + 7) // 8 * 8
        if step > end - at:
            yield at
            return
        at += step
