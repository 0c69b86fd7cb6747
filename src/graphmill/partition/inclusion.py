"""How likely each node is in a mini-batch, computed and not sampled: `vip` and `hotness`.

Both follow one recurrence, hop by hop. A node v that is in the batch with probability p(v) takes a given in-neighbour
with probability p(v)·min(1, k / degree(v)) for fan-out k, so

    p'(u) = 1 − (1 − p(u)) · Π over all v that u is an in-neighbour of (1 − p(v)·min(1, k / degree(v)))

They differ in what they begin with. The product is a sum of logarithms along the edges, in the order of the rows, so
the result is the same for any number of threads.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.topology import Topology

Ids = NDArray[np.int64]
Probabilities = NDArray[np.float64]  # [num_nodes]

_SEED_HOTNESS = 1.0
_ROWS_AT_A_TIME = 2**18
_OTHER_HOTNESS = 0.01  # GraphLearn-for-PyTorch's: any node may be reached from the seeds of other parts


def vertex_inclusion(
    topology: Topology, seeds: Ids, fanouts: Sequence[int], batch_size: int, *, num_threads: int = 1
) -> Probabilities:
    """The probability that a node is in a batch of `batch_size` of `seeds` (SALIENT++, arXiv 2305.03152, section 3).

    Batches of `WholeSampler` with `resample`: whatever is known draws again at each hop. Where a node draws once
    (PyG's way), in-neighbours of seeds come out a little too likely.
    """
    inclusion = np.zeros(topology.num_nodes)
    if len(seeds):
        inclusion[seeds] = min(1.0, batch_size / len(seeds))
    for fanout in fanouts:
        inclusion = _after_hop(topology, inclusion, fanout, num_threads)
    return inclusion


def hotness(topology: Topology, seeds: Ids, fanouts: Sequence[int], *, num_threads: int = 1) -> Probabilities:
    """The analytic pre-sampling of GraphLearn-for-PyTorch (`sample_prob`): all seeds at once, in place of a batch.

    Seeds begin with 1, every other node with 0.01; a node without neighbours stays at 0. Its own reads a node's row for
    the nodes that reach it, which is the same on an undirected graph and the wrong way round on a directed one.
    """
    unreached = occurrences(topology, None, num_threads=num_threads) == 0
    found = np.full(topology.num_nodes, _OTHER_HOTNESS)
    found[seeds] = _SEED_HOTNESS
    for fanout in fanouts:
        found = _after_hop(topology, found, fanout, num_threads)
        found[unreached] = 0
    return found


def occurrences(topology: Topology, rows: NDArray[np.bool_] | None, *, num_threads: int = 1) -> NDArray[np.float64]:
    """Number of `rows` [num_nodes] (None: all) of which each node is an in-neighbour → [num_nodes], whole numbers."""
    counts = np.zeros(topology.num_nodes)
    of_rows = np.ones(topology.num_nodes) if rows is None else rows.astype(np.float64)
    _native.sum_by_source(topology.indptr, topology.indices, of_rows, counts, num_threads)
    return counts


def _after_hop(topology: Topology, inclusion: Probabilities, fanout: int, num_threads: int) -> Probabilities:
    """The recurrence for one hop; `inclusion` is used up. Two numbers of a node are held at once."""
    log_missed = np.empty_like(inclusion)  # of the probability that a row does not take an in-neighbour
    sums = np.negative(inclusion, out=inclusion)
    with np.errstate(divide="ignore"):  # of certainty it is −∞, and sums and powers of that are what they should be
        for start in range(0, len(sums), _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            missed = sums[rows].copy()
            if fanout >= 0:
                degrees = np.diff(topology.indptr[start : start + len(missed) + 1])
                missed *= np.minimum(1.0, fanout / np.maximum(degrees, 1))
            np.log1p(missed, out=log_missed[rows])
        np.log1p(sums, out=sums)
    _native.sum_by_source(topology.indptr, topology.indices, log_missed, sums, num_threads)
    return np.negative(np.expm1(sums, out=sums), out=sums)
