"""GraphLearn-for-PyTorch's frequency partitioner: parts take turns at the nodes that their training nodes sample most.

Edges between nodes that are not near a part's seeds are not looked at, so the cut is near that of random parts.
"""

import numpy as np
from numpy.typing import NDArray

from graphmill.partition.inclusion import hotness
from graphmill.partition.problem import PartitionProblem, Parts

_CHUNK = 10_000  # nodes that a part takes when it is its turn


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
