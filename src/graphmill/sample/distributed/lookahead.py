"""Looking ahead: rows of other parts that stay from window to window, for as long as a batch in sight needs them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.features import Features
from graphmill.graph.sampled import NodeIds
from graphmill.sample.distributed.features import CachedRows, FeatureFetcher, RowsOfBatch
from graphmill.sample.distributed.rows import rows_of
from graphmill.sample.hot.lookahead import Lookahead, LookaheadCache


@dataclass(slots=True)
class LookaheadFetcher:
    """Rows of the windows of one rank, in the order of its batches. All ranks must fetch equally often.

    What stays is decided when the next window comes, not when the one before has been used: by then it has been
    sampled, and at the end of an epoch no guess is needed. Other fetches of the same `fetcher` change nothing here.
    """

    fetcher: FeatureFetcher
    planner: Lookahead
    _cache: LookaheadCache = field(init=False)
    _tables: tuple[Features, ...] = field(init=False)
    _rows: NDArray[np.int64] = field(init=False)  # of each node in cache, its row in the tables

    def __post_init__(self) -> None:
        self._cache = LookaheadCache(self.planner)
        self._tables, self._rows = self.fetcher.features, np.empty(0, dtype=np.int64)

    def fetch(self, window: Sequence[NodeIds], following: Sequence[Sequence[NodeIds]]) -> list[RowsOfBatch]:
        """Find the rows of each batch of a window. `following`: what the windows after it will need."""
        held = self._held_for([window, *following])
        found, new = self.fetcher.fetch_besides(window, held)
        self._cache.add(new.nodes)
        self._tables = (held.features, new.features)
        self._rows = np.concatenate([np.arange(held.features.num_nodes), new.places + held.features.num_nodes])
        return found

    def _held_for(self, coming: Sequence[Sequence[NodeIds]]) -> CachedRows:
        """What stays, in a table of its own; that of the window before is let go, before anything is fetched."""
        stays = self._cache.keep(coming)
        features = rows_of(self._tables, self._rows[stays], self.fetcher.num_threads)
        self._tables = (features,)
        return CachedRows.of(self._cache.nodes, features)
