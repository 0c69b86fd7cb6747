"""Fetches that follow each other: rows of a window come with the question for the next, in one collective a window.

The next window is known, because the schedule is: it is sampled one window earlier than it is needed, and announced. At
the first of an epoch the questions go out alone, and with the last rows none is asked; so n windows take n + 1
collectives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.edge_features import EdgeRows
from graphmill.graph.sampled import NodeIds, Sampled
from graphmill.sample.collect import Fetched
from graphmill.sample.distributed.edges import EdgeFetcher, RequestedEdges
from graphmill.sample.distributed.features import FeatureFetcher, NewRows, RowsNeeded, RowsOfBatch
from graphmill.sample.distributed.messages import Bytes, Exchange, KnownRows
from graphmill.sample.distributed.rows import all_rows
from graphmill.sample.distributed.shares import Questions

_NOTHING: Final = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class _WindowRequest:
    """What this rank asks for, for a window."""

    window: Sequence[Sampled]
    needs: RowsNeeded
    rows: Questions
    edges: RequestedEdges | None

    @property
    def sections(self) -> list[Sequence[NDArray[Any]]]:
        """Ids of rows that each rank is asked for, and what it is asked of edges [2][world_size]."""
        return [self.rows.ids, [_NOTHING] * len(self.rows.ids) if self.edges is None else self.edges.messages]


@dataclass(frozen=True, slots=True)
class _Heard:
    """What each rank asks for, for its window [world_size]."""

    rows: list[NDArray[Any]]
    edges: list[Bytes]


@dataclass(slots=True)
class AnnouncedFetcher:
    """Rows of one rank's windows, in the order of its batches.

    All ranks must fetch equally often, windows of as many batches, and announce or not alike. Fetches of `features` and
    `edges` by others may come between.
    """

    features: FeatureFetcher
    edges: EdgeFetcher | None  # None: no features of edges are read
    _firsts: Exchange = field(init=False)  # of an epoch: questions alone
    _between: Exchange = field(init=False)
    _lasts: Exchange = field(init=False)  # answers alone
    _pending: tuple[_WindowRequest, _Heard] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        wire = self.features.wire
        self._firsts, self._between, self._lasts = Exchange(wire), Exchange(wire), Exchange(wire)

    def fetch(self, window: Sequence[Sampled], following: Sequence[Sampled] | None) -> list[Fetched]:
        """Find the rows of each batch. `following`: the window of the next call; None: nothing is asked for it.

        Where another window comes than was announced, as in an attempt that stopped within an epoch, it is asked for.
        """
        sent, heard = self._pending or (None, None)
        self._pending = None
        if sent is None or heard is None or not _are_same(sent.window, window):
            sent = self._ask(window)
            alone = KnownRows.none(len(sent.rows.ids))
            heard = self._heard(*self._firsts.swap_sections(alone, sent.sections, len(window)).sections)
        coming = None if following is None else self._ask(following)
        new, edges, heard_of_next = self._swap(sent, heard, coming)
        if coming is not None:
            self._pending = coming, heard_of_next
        found = self.features.put_together(sent.needs, new)
        if sent.edges is None or self.edges is None:
            return as_fetched(found, None)
        return as_fetched(found, self.edges.put_together(sent.edges, edges))

    def _ask(self, window: Sequence[Sampled]) -> _WindowRequest:
        needs = self.features.look_up([sampled.node_ids for sampled in window], self.features.held)
        edges = None if self.edges is None else self.edges.ask(window)
        return _WindowRequest(window, needs, self.features.shares.questions(NodeIds(needs.lacking)), edges)

    def _heard(self, rows: Sequence[Bytes], edges: Sequence[Bytes]) -> _Heard:
        own = self.features.wire.rank
        rows, edges = (
            # Those of others came with rows, whose memory would stay as long.
            [ids if rank == own else ids.copy() for rank, ids in enumerate(questions)]
            for questions in (rows, edges)
        )
        return _Heard(self.features.heard(rows), edges)

    def _swap(
        self, sent: _WindowRequest, heard: _Heard, coming: _WindowRequest | None
    ) -> tuple[NewRows, list[EdgeRows], _Heard]:
        """Rows to and from all ranks, and the questions for what is coming."""
        none = [_NOTHING] * len(heard.rows)
        rows, of_rows = self.features.answer(heard.rows, sent.rows)
        edges = none if self.edges is None else [self.edges.answer(question) for question in heard.edges]
        questions = [none, none] if coming is None else coming.sections
        exchange = self._lasts if coming is None else self._between
        received = exchange.swap_sections(rows, [*questions, edges, of_rows], len(sent.window))
        *questions, edges, of_rows = received.sections
        new = NewRows(sent.needs.lacking, *self.features.table(received, of_rows, sent.rows))
        return new, self._edge_rows(edges), self._heard(*questions)

    def _edge_rows(self, answers: Sequence[NDArray[Any]]) -> list[EdgeRows]:
        if self.edges is None:
            return []
        return [answer.view(np.float32).reshape(-1, len(self.edges.columns)) for answer in answers]


def as_fetched(rows: Sequence[RowsOfBatch], edges: Sequence[EdgeRows] | None) -> list[Fetched]:
    """Join the rows of each batch's nodes with those of its edges, in their order; None: no batch reads edges."""
    if edges is None:
        return [Fetched(of_nodes.tables, of_nodes.rows) for of_nodes in rows]
    return [
        Fetched(of_nodes.tables, of_nodes.rows, of_edges, all_rows(len(of_edges)))
        for of_nodes, of_edges in zip(rows, edges, strict=True)
    ]


def _are_same(one: Sequence[Sampled], other: Sequence[Sampled]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
