"""Linear deterministic greedy: nodes in a stream, each to the part that has most of its neighbours and room.

The graph is mapped and read once, so it needs no memory beside the parts: for graphs that a partitioner does not fit.
"""

import numpy as np

from graphmill import _native
from graphmill.partition.problem import Parts, Problem, nothing_assigned


def ldg(problem: Problem) -> Parts:
    """The seed decides where in the order of ids the stream begins."""
    parts = nothing_assigned(problem.num_nodes)
    graph = _native.GraphParts(
        problem.graph.indptr, problem.graph.indices, problem.amounts, problem.limits, parts, problem.num_parts
    )
    graph.stream(int(np.random.default_rng(problem.rng_seed).integers(problem.num_nodes)))
    return parts
