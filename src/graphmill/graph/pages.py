"""Pages of mapped files that a process has read, and need not count as its own any longer."""

import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray


def evict(array: NDArray[Any]) -> None:
    """Hand the pages of a mapped array, or of consecutive rows of one, back to the page cache.

    They stay mapped and are found there again while there is room; what was written to them is kept. Without this a
    process counts as its own, in time, all of a file that it has read. An array in memory is left as it is.
    """
    pages = _pages_of(array)
    if pages is None or array.size == 0 or not hasattr(mmap, "MADV_DONTNEED"):
        return
    first = np.frombuffer(pages, dtype=np.uint8).__array_interface__["data"][0]
    low, high = np.lib.array_utils.byte_bounds(array)
    begin = (low - first) // mmap.PAGESIZE * mmap.PAGESIZE
    pages.madvise(mmap.MADV_DONTNEED, begin, high - first - begin)


def _pages_of(array: NDArray[Any]) -> mmap.mmap | None:
    """The shared mapping of a file that `array` is a view of, if it is one: pages that are not shared would be lost."""
    base: Any = array
    is_shared = False
    while base is not None and not isinstance(base, mmap.mmap):
        is_shared |= isinstance(base, np.memmap) and base.mode != "c"
        base = getattr(base, "base", None)
    found: mmap.mmap | None = base
    return found if is_shared else None
