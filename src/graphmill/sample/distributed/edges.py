"""Features of sampled edges: they are stored with the edge's target, so the owners of the targets are asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.edge_features import EdgeRows
from graphmill.graph.sampled import NodeIds, Sampled
from graphmill.graph.topology import EdgeIds
from graphmill.sample.distributed.messages import Bytes, Exchange
from graphmill.sample.distributed.shares import Questions, Shares
from graphmill.sample.distributed.wire import Wire

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RequestedEdges:
    """Questions to other ranks for the edges of a window."""

    targets: Questions  # of the edges of all its batches [num_edges]
    nums_edges: list[int]  # of each batch
    messages: list[Bytes]  # [world_size]: ids of edges, then their targets


@dataclass(frozen=True, slots=True)
class EdgeFetcher:
    """Features of any edges. All ranks must fetch equally often, in the same order."""

    shares: Shares
    wire: Wire
    columns: Sequence[int]  # of the stored features, in the order in which a model reads them
    undirected: bool
    _questions: Exchange = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_questions", Exchange(self.wire))

    def fetch(self, window: Sequence[Sampled]) -> list[EdgeRows]:
        """Rows of each batch's edges, in their order [num_edges, num_columns]: ids go to owners, rows come back."""
        questions = self.ask(window)
        answers = [self.answer(question) for question in self._questions.swap(questions.messages, len(window))]
        return self.put_together(questions, self.wire.swap(answers, questions.targets.counts))

    def ask(self, window: Sequence[Sampled]) -> RequestedEdges:
        """What to ask the ranks for; the rank itself is asked, too."""
        targets = [_targets(sampled) for sampled in window]
        questions = self.shares.questions(NodeIds(np.concatenate(targets)))
        edge_ids = np.concatenate([sampled.edge_ids for sampled in window])[questions.order]
        of_ranks = np.split(edge_ids, np.cumsum(questions.counts)[:-1])
        messages = [
            np.concatenate([of_rank.view(np.uint8), ids.view(np.uint8)])
            for of_rank, ids in zip(of_ranks, questions.ids, strict=True)
        ]
        return RequestedEdges(questions, [len(of_one) for of_one in targets], messages)

    def answer(self, question: Bytes) -> EdgeRows:
        """Rows of the edges that a rank asks for [n, num_columns]."""
        dtype = self.shares.book.id_dtype
        of_ids = len(question) // (8 + dtype.itemsize) * 8
        return self._serve(NodeIds(question[of_ids:].view(dtype).astype(np.int64)), question[:of_ids].view(np.int64))

    def put_together(self, request: RequestedEdges, answers: Sequence[EdgeRows]) -> list[EdgeRows]:
        """Rows of each batch's edges, in their order, from the answers of all ranks [world_size]."""
        received = np.concatenate(answers)
        values = np.empty_like(received)
        values[request.targets.order] = received
        return np.split(values, np.cumsum(request.nums_edges)[:-1])

    def _serve(self, targets: NodeIds, edge_ids: EdgeIds) -> EdgeRows:
        found = self.shares.locate(targets)
        values = np.empty((len(targets), len(self.columns)), dtype=np.float32)
        for part in self.shares.parts:
            here = np.flatnonzero(found.parts == part.number)
            rows = found.rows[here]
            begins = part.topology(undirected=self.undirected).indptr[rows]
            entries = edge_ids[here] - part.first_entries(undirected=self.undirected)[rows] + begins
            values[here] = part.edge_attr(undirected=self.undirected)[entries][:, list(self.columns)]
        return values


def _targets(sampled: Sampled) -> Ids:
    """Targets of the edges of all hops, in their order [num_edges]."""
    outermost = sampled.blocks[0]
    # Of one subgraph that block has all edges; where nodes draw at every hop it has its hop's, and begins later.
    blocks = sampled.blocks[::-1] if outermost.indptr[0] else (outermost,)
    of_blocks = [np.repeat(sampled.node_ids[: block.num_rows], np.diff(block.indptr)) for block in blocks]
    return np.concatenate(of_blocks)
