"""Features of sampled edges: they are stored with the edge's target, so the owners of the targets are asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.edge_features import EdgeRows
from graphmill.graph.sampled import NodeIds, Sampled
from graphmill.graph.topology import EdgeIds, index_dtype
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EdgeFetcher:
    """Features of any edges. All ranks must fetch equally often, in the same order."""

    shares: Shares
    wire: Wire
    columns: Sequence[int]  # of the stored features, in the order in which a model reads them
    undirected: bool

    def fetch(self, sampled: Sampled) -> EdgeRows:
        """Of the edges of a batch, in their order [num_edges, num_columns]."""
        targets = _targets(sampled)
        order, ends = self.shares.by_server(self.shares.locate(NodeIds(targets)).servers)
        narrow = targets[order].astype(index_dtype(self.shares.book.num_nodes))
        edge_ids = sampled.edge_ids[order]
        asked = self.wire.swap([narrow[begin:end] for begin, end in pairwise(ends)])
        counts = [len(nodes) for nodes in asked]
        of_edges = self.wire.swap([edge_ids[begin:end] for begin, end in pairwise(ends)], counts)
        answers = [self._serve(NodeIds(t.astype(np.int64)), e) for t, e in zip(asked, of_edges, strict=True)]
        received = np.concatenate(self.wire.swap(answers, np.diff(ends).tolist()))
        values = np.empty_like(received)
        values[order] = received
        return values

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
    """Of the edges of all hops, in their order [num_edges]."""
    outermost = sampled.blocks[0]
    # Of one subgraph that block has all edges; where nodes draw at every hop it has its hop's, and begins later.
    blocks = sampled.blocks[::-1] if outermost.indptr[0] else (outermost,)
    of_blocks = [np.repeat(sampled.node_ids[: block.num_rows], np.diff(block.indptr)) for block in blocks]
    return np.concatenate(of_blocks)
