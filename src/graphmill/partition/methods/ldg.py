"""Linear deterministic greedy: nodes in a stream, each to the part that has most of its neighbours and room.

The graph is mapped and streamed a few times, so it needs little memory beside the parts: for graphs that a partitioner
does not fit. It balances the one weight that partitioners see: with three amounts at once the fullest decides, and what
the stream begins with decides what is full. Ids that are near each other are often of one community or one degree. That
helps some graphs and misleads the stream on others, so the order of ids is tried beside that of shuffled blocks.
"""

from typing import Final

import numpy as np

from graphmill.partition.balance import graph_of, limits_of
from graphmill.partition.problem import PartitionProblem, Parts, nothing_assigned
from graphmill.partition.quality import crossing

_STREAMS: Final = 5  # after the first, all neighbours of a node are somewhere
_WIDTH: Final = 64  # nodes of a block: rows that are read from a mapped file together


def ldg(problem: PartitionProblem) -> Parts:
    """The seed decides where in the order of ids the stream begins, and the order of the shuffled blocks."""
    weights = np.minimum(problem.weights, 2**32 - 1).astype(np.uint32)[:, None]
    limits = limits_of(weights, problem.num_parts)
    has_edges = np.diff(problem.graph.indptr) > 0
    if int(weights[has_edges].sum(dtype=np.int64)) <= limits[0]:  # nothing need be cut
        return np.where(has_edges, np.int32(0), np.int32(-1))
    rng = np.random.default_rng(problem.rng_seed)
    blocks = np.arange(-(-problem.num_nodes // _WIDTH))
    found = []
    for order in (np.roll(blocks, -int(rng.integers(len(blocks)))), rng.permutation(blocks)):
        parts = nothing_assigned(problem.num_nodes)
        graph = graph_of(problem, parts, limits, weights)
        for _ in range(_STREAMS):
            graph.stream(order, _WIDTH)
        found.append(parts)
    return min(found, key=lambda parts: _cut(problem, parts))


def _cut(problem: PartitionProblem, parts: Parts) -> int:
    placed = np.maximum(parts, 0)  # nodes without neighbours are in none yet, and cost no cut
    return crossing(problem.graph, placed, problem.num_parts)[0]
