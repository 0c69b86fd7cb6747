"""Linear deterministic greedy: nodes in a stream, each to the part that has most of its neighbours and room.

The graph is mapped and streamed a few times, so it needs no memory beside the parts: for graphs that a partitioner does
not fit.
"""

from typing import Final

import numpy as np

from graphmill.partition.balance import graph_of
from graphmill.partition.problem import Parts, Problem, nothing_assigned

_STREAMS: Final = 5  # after the first, all neighbours of a node are somewhere


def ldg(problem: Problem) -> Parts:
    """The seed decides where in the order of ids the stream begins."""
    parts = nothing_assigned(problem.num_nodes)
    first = int(np.random.default_rng(problem.rng_seed).integers(problem.num_nodes))
    graph = graph_of(problem, parts)
    for _ in range(_STREAMS):
        graph.stream(first)
    return parts
