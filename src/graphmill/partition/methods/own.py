"""Partitioners of our own, which need no package: random parts, linear deterministic greedy, and by hotness.

Random parts are what the others are compared with.

LDG takes nodes in a stream, each to the part that has most of its neighbours and room. The graph is mapped and streamed
a few times, so it needs little memory beside the parts: for graphs that a partitioner does not fit. It balances the one
weight that partitioners see: with three amounts at once the fullest decides, and what the stream begins with decides
what is full. Ids that are near each other are often of one community or one degree. That helps some graphs and misleads
the stream on others, so the order of ids is tried beside that of shuffled blocks.

By hotness is GraphLearn-for-PyTorch's frequency partitioner: parts take turns at the nodes that their training nodes
sample most. Edges between nodes that are not near a part's seeds are not looked at, so the cut is near that of random
parts.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from graphmill.partition.balance import graph_of, limits_of
from graphmill.partition.inclusion import hotness
from graphmill.partition.problem import PartitionProblem, Parts, nothing_assigned
from graphmill.partition.quality import crossing

_STREAM = 0x70617274  # apart from whatever else is drawn with the seed: a planted partition must not come out
_STREAMS: Final = 5  # after the first, all neighbours of a node are somewhere
_WIDTH: Final = 64  # nodes of a block: rows that are read from a mapped file together
_CHUNK = 10_000  # nodes that a part takes when it is its turn


def random_parts(problem: PartitionProblem) -> Parts:
    """Put every node in a part, whatever its edges."""
    parts = np.arange(problem.num_nodes, dtype=np.int32) % problem.num_parts
    return np.random.default_rng([problem.rng_seed, _STREAM]).permutation(parts)


def ldg(problem: PartitionProblem) -> Parts:
    """Linear deterministic greedy: put every node in a part.

    The seed decides where in the order of ids the stream begins, and the order of the shuffled blocks.
    """
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


def hotness_parts(problem: PartitionProblem) -> Parts:
    """Put every node in a part; the numbers of nodes of the parts are equal, or differ by one in the last round.

    GraphLearn's drops training nodes that are left over when they are dealt to parts; here all are in a share.
    """
    num_parts, num_nodes = problem.num_parts, problem.num_nodes
    reached = np.empty((num_parts, num_nodes), dtype=np.float32)
    for part, seeds in enumerate(np.array_split(problem.train, num_parts)):
        reached[part] = hotness(problem.graph, seeds, problem.fanouts)
    score = num_parts * reached
    score -= reached.sum(axis=0) - reached  # what the others would lose
    return _take_turns(score)


def _take_turns(score: NDArray[np.float32]) -> Parts:
    """Blobs of ids, in each of which every part picks the same number of nodes; the first to pick changes."""
    num_parts, num_nodes = score.shape
    chunk = min(_CHUNK, -(-num_nodes // num_parts))
    parts = np.empty(num_nodes, dtype=np.int32)
    for blob, start in enumerate(range(0, num_nodes, chunk * num_parts)):
        free = np.arange(start, min(start + chunk * num_parts, num_nodes))
        for turn in range(num_parts):
            part = (blob + turn) % num_parts
            quota = -(-len(free) // (num_parts - turn))
            best = np.argsort(-score[part, free], kind="stable")[:quota]
            parts[free[best]] = part
            free = np.delete(free, best)
    return parts
