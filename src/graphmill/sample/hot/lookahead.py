"""`lookahead`: the batches to come are known, because draws are keyed, so a row is fetched when one will need it.

Batches are taken in windows of equally many, so that all ranks exchange rows at the same steps: what a window needs and
is not held is fetched at once, before its first batch. Between windows those rows stay whose next use is nearest
(Belady 1966), as far as the budget goes. So no row is fetched that is not needed, and none twice for one window.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[Any]  # node ids of other parts, ascending, none twice: int32 or int64


@dataclass(frozen=True, slots=True)
class Window:
    """What to do for some batches in a row, before the first and after the last of them."""

    first_batch: int  # counted from 0 over the batches that were given
    num_batches: int
    fetch: Rows  # before: to be fetched from their owners
    keep: Rows  # after: of what was held before and fetched, these stay; the rest is dropped


@dataclass(slots=True)
class Lookahead:
    """Plans windows of `window` batches, the last of an epoch may be shorter, and keeps up to `max_rows` between them.

    While a window lasts, what it needs is held besides. `horizon`: how many batches after a window are looked at to
    decide what stays; at least `window`. Takes 4 bytes per node of the graph.
    """

    num_nodes: int
    window: int
    max_rows: int
    horizon: int
    _scratch: NDArray[np.int32] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.window <= self.horizon or self.max_rows < 0:
            raise ValueError(f"windows of {self.window} batches, {self.horizon} ahead, {self.max_rows} rows kept")
        self._scratch = np.zeros(self.num_nodes, dtype=np.int32)

    def windows(self, needs: Iterable[Rows]) -> Iterator[Window]:
        """The plan for batches that need these rows; they are asked for `horizon` batches ahead and no earlier."""
        coming, ahead, first = iter(needs), deque[Rows](), 0
        held: Rows = np.empty(0, dtype=np.int32)
        while True:
            ahead.extend(islice(coming, self.window + self.horizon - len(ahead)))
            now = [ahead.popleft() for _ in range(min(self.window, len(ahead)))]
            if not now:
                return
            fetch = np.setdiff1d(_union(now), held, assume_unique=True)
            held = self._kept(_union([held, fetch]), list(ahead))
            yield Window(first, len(now), fetch, held)
            first += len(now)

    def _kept(self, rows: Rows, following: Sequence[Rows]) -> Rows:
        """Of `rows` at most `max_rows` that `following` batches need: nearest use first, then most uses."""
        scratch = self._scratch
        for batch in following:
            scratch[batch] += 1
        uses = scratch[rows]
        for number, batch in reversed(list(enumerate(following))):
            scratch[batch] = number
        nearest = scratch[rows] // self.window  # what one window needs is needed at once
        for batch in following:
            scratch[batch] = 0
        needed = np.flatnonzero(uses)
        if len(needed) > self.max_rows:
            needed = needed[np.lexsort((-uses[needed], nearest[needed]))[: self.max_rows]]
        return np.sort(rows[needed])


def _union(some: Sequence[Rows]) -> Rows:
    """Ascending, none twice."""
    if len(some) == 1:
        return some[0]
    merged = np.concatenate(some)
    merged.sort(kind="stable")  # of ascending runs: a merge
    is_first = np.ones(len(merged), dtype=np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=is_first[1:])
    return merged[is_first]
