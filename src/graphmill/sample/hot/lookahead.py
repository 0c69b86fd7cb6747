"""`lookahead`: the batches to come are known, because draws are keyed, so a row is fetched when one will need it.

Batches are taken in windows, so that all ranks exchange rows at the same steps: what a window needs and is not held is
fetched at once, before its first batch. Before that those rows stay whose next use is nearest (Belady 1966), as far as
the budget goes. So no row is fetched that is not needed, and none twice for one window.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native

Ids = NDArray[np.int64]
Rows = NDArray[Any]  # node ids of other parts, ascending, none twice: int32 or int64
_OUT_OF_SIGHT: Final = np.iinfo(np.int32).max


@dataclass(frozen=True, slots=True)
class Window:
    """What to do for some batches in a row, before the first of them."""

    batches: range  # counted from 0 over the batches that were given
    held: Rows  # of what the window before held and fetched, these stay; the rest is dropped
    fetch: Rows  # and these are fetched from their owners


@dataclass(frozen=True, slots=True)
class Lookahead:
    """Which rows stay from window to window, of those that one held and fetched.

    `horizon`: how many of the windows that come next are looked at. `max_rows` stay at most: what is needed in the
    nearest window first, then what most batches in sight need, then, if there is room, what most windows so far have
    needed. None: all that is needed in sight, and nothing else.
    """

    max_rows: int | None = None
    horizon: int = 1

    def __post_init__(self) -> None:
        if self.horizon < 1 or (self.max_rows is not None and self.max_rows < 0):
            raise ValueError(f"{self.horizon} windows ahead, {self.max_rows} rows kept")

    def windows(self, needs: Sequence[Rows], epochs: Sequence[Sequence[range]]) -> Iterator[Window]:
        """The plan for batches that need these rows, in windows. A window looks ahead to the end of its epoch only."""
        cache = LookaheadCache(self)
        for windows in epochs:
            of_windows = [[needs[batch] for batch in window] for window in windows]
            for number, window in enumerate(windows):
                cache.keep(of_windows[number : number + self.horizon])
                held = np.sort(cache.nodes)
                fetch = np.setdiff1d(_union(of_windows[number]), held, assume_unique=True)
                cache.add(fetch)
                yield Window(window, held, fetch)


@dataclass(slots=True)
class LookaheadCache:
    """The nodes whose rows a rank has of other parts, while windows go by."""

    lookahead: Lookahead
    nodes: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64), init=False)  # distinct, in any order
    _num_uses: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32), init=False)
    """Windows that have needed each node since it was fetched."""

    def keep(self, coming: Sequence[Sequence[NDArray[Any]]]) -> Ids:
        """Drop what is not to stay for the windows that come next → where in `nodes` stood what stays, ascending.

        `coming`: of each window, of each of its batches, the nodes that it needs, none twice; of other nodes, too.
        """
        nearest, num_batches = self._in_sight(coming)
        stays = (
            np.flatnonzero(nearest != _OUT_OF_SIGHT) if self.lookahead.max_rows is None else np.arange(len(self.nodes))
        )
        if self.lookahead.max_rows is not None and len(stays) > self.lookahead.max_rows:
            order = np.lexsort((self.nodes, -self._num_uses, -num_batches, nearest))
            stays = np.sort(order[: self.lookahead.max_rows])
        self.nodes, self._num_uses = self.nodes[stays], self._num_uses[stays] + (nearest[stays] == 0)
        return stays

    def add(self, nodes: NDArray[Any]) -> None:
        """Add nodes fetched for the first window of the last `keep`; they come behind those that were kept."""
        self.nodes = np.concatenate([self.nodes, nodes])
        self._num_uses = np.concatenate([self._num_uses, np.ones(len(nodes), dtype=np.int32)])

    def _in_sight(self, coming: Sequence[Sequence[NDArray[Any]]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """First window that needs each node, and the number of batches that need it."""
        nearest = np.full(len(self.nodes), _OUT_OF_SIGHT, dtype=np.int32)
        num_batches = np.zeros(len(self.nodes), dtype=np.int32)
        if not len(self.nodes):
            return nearest, num_batches
        table = _native.NodeTable(self.nodes)
        for number, window in reversed(list(enumerate(coming))):
            for batch in window:
                places = np.empty(len(batch), dtype=np.int64)
                table.find(batch.astype(np.int64, copy=False), places)
                here = places[places >= 0]
                num_batches[here] += 1
                nearest[here] = number
        return nearest, num_batches


def _union(some: Sequence[Rows]) -> Rows:
    """Ascending, none twice."""
    if len(some) == 1:
        return some[0]
    merged = np.concatenate(some)
    merged.sort(kind="stable")  # of ascending runs: a merge
    is_first = np.ones(len(merged), dtype=np.bool_)
    np.not_equal(merged[1:], merged[:-1], out=is_first[1:])
    return merged[is_first]
