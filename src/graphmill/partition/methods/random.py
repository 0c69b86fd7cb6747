"""Parts drawn at random, of equally many nodes: what the others are compared with."""

import numpy as np

from graphmill.partition.problem import PartitionProblem, Parts

_STREAM = 0x70617274  # apart from whatever else is drawn with the seed: a planted partition must not come out


def random_parts(problem: PartitionProblem) -> Parts:
    """Put every node in a part, whatever its edges."""
    parts = np.arange(problem.num_nodes, dtype=np.int32) % problem.num_parts
    return np.random.default_rng([problem.rng_seed, _STREAM]).permutation(parts)
