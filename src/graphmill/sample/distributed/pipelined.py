"""Fetches that follow each other: rows of a window come with the question for the next, in one collective a window.

The next window is known, because the schedule is: it is sampled one window earlier than it is needed. At the first of
an epoch the ids go out alone, and with the last rows no question is asked; so n windows take n + 1 collectives.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.edge_features import EdgeRows
from graphmill.graph.features import Features
from graphmill.graph.sampled import Sampled
from graphmill.sample.collect import Fetched
from graphmill.sample.distributed.edges import EdgeFetcher, EdgesAsked
from graphmill.sample.distributed.features import FeatureFetcher, NewRows, RowsAsked, RowsNeeded
from graphmill.sample.distributed.letters import Bytes, KnownRows, Letters, packed, unpacked
from graphmill.sample.distributed.rows import all_rows

_NOTHING = np.empty(0, dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What this rank asks for, for a window."""

    window: Sequence[Sampled]
    needs: RowsNeeded
    rows: RowsAsked
    edges: EdgesAsked | None


@dataclass(frozen=True, slots=True)
class _Heard:
    """What the other ranks ask for, for theirs [world_size]."""

    rows: list[NDArray[Any]]
    edges: list[Bytes]


@dataclass(slots=True)
class PipelinedFetcher:
    """Rows of one rank's windows, in the order of its batches. All ranks must fetch equally often.

    Fetches of `features` and `edges` by others may come between.
    """

    features: FeatureFetcher
    edges: EdgeFetcher | None  # None: no features of edges are read
    _firsts: Letters = field(init=False)  # of an epoch: questions alone
    _between: Letters = field(init=False)
    _lasts: Letters = field(init=False)  # answers alone
    _pending: tuple[_Asked, _Heard] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        wire = self.features.wire
        self._firsts, self._between, self._lasts = Letters(wire), Letters(wire), Letters(wire)

    def fetch(self, window: Sequence[Sampled], following: Sequence[Sampled] | None) -> list[Fetched]:
        """Of each batch where its rows are. `following`: the window of the next call; None: nothing is asked for it.

        Where another window comes than was announced, as in an attempt that stopped within an epoch, it is asked for.
        """
        asked, heard = self._pending or (None, None)
        if asked is None or heard is None or not _are_same(asked.window, window):
            asked = self._ask(window)
            heard = self._heard(self._firsts.swap(_questions(asked), len(window)))
        self._pending, coming = None, None if following is None else self._ask(following)
        new, edges, questions = self._swap(asked, heard, coming)
        if coming is not None:
            self._pending = coming, self._heard(questions)
        found = self.features.put_together(asked.needs, new)
        if asked.edges is None or self.edges is None:
            return [Fetched(of_nodes.tables, of_nodes.rows) for of_nodes in found]
        values = self.edges.put_together(asked.edges, edges)
        return [
            Fetched(of_nodes.tables, of_nodes.rows, of_edges, all_rows(len(of_edges)))
            for of_nodes, of_edges in zip(found, values, strict=True)
        ]

    def _ask(self, window: Sequence[Sampled]) -> _Asked:
        needs = self.features.look_up([sampled.node_ids for sampled in window], self.features.held)
        edges = None if self.edges is None else self.edges.ask(window)
        return _Asked(window, needs, self.features.ask(needs.lacking), edges)

    def _heard(self, questions: Sequence[Bytes]) -> _Heard:
        own = [question.copy() for question in questions]  # they came with rows, whose memory would stay as long
        rows, edges = zip(*(unpacked(question, 2) for question in own), strict=True)
        return _Heard(self.features.heard(rows), list(edges))

    def _swap(self, asked: _Asked, heard: _Heard, coming: _Asked | None) -> tuple[NewRows, list[EdgeRows], list[Bytes]]:
        """Rows to and from all ranks, and the questions for what is coming."""
        features, none = self.features, [_NOTHING] * len(heard.rows)
        edges: Sequence[NDArray[Any]] = none
        if self.edges is not None:
            edges = [self.edges.answer(question) for question in heard.edges]
        sparse = features.sparse_rows(heard.rows) if features.is_sparse else none
        questions = none if coming is None else _questions(coming)
        messages = [packed(sections) for sections in zip(questions, edges, sparse, strict=True)]
        letters = self._lasts if coming is None else self._between
        received = letters.swap_behind(self._in_front(heard, asked), messages, len(asked.window))
        of_next, of_edges, of_rows = zip(*(unpacked(letter, 3) for letter in received.letters), strict=True)
        table: Features
        if features.is_sparse:
            table, places = features.sparse_table(of_rows, asked.rows.counts), asked.rows.in_turn
            features.counts.fetched_bytes += sum(map(len, of_rows)) - len(of_rows[features.wire.rank])
        else:
            table, places = features.dense_table(received, asked.rows)
        return NewRows(asked.needs.lacking, table, places), self._edge_rows(of_edges), list(of_next)

    def _in_front(self, heard: _Heard, asked: _Asked) -> KnownRows:
        if self.features.is_sparse:
            return KnownRows.none(len(heard.rows))
        return self.features.dense_rows(heard.rows, asked.rows)

    def _edge_rows(self, answers: Sequence[Bytes]) -> list[EdgeRows]:
        if self.edges is None:
            return []
        return [answer.view(np.float32).reshape(-1, len(self.edges.columns)) for answer in answers]


def _are_same(one: Sequence[Sampled], other: Sequence[Sampled]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _questions(asked: _Asked) -> list[Bytes]:
    edges = [_NOTHING] * len(asked.rows.questions) if asked.edges is None else asked.edges.questions
    return [packed(sections) for sections in zip(asked.rows.questions, edges, strict=True)]
