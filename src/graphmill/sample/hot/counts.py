"""How often each node was in a batch, over epochs that are sampled for the purpose: `presample`."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.sampled import SeedIds, Seeds
from graphmill.graph.topology import Topology
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.schedule import KeyedOrder

Ids = NDArray[np.int64]


def presampled_counts(
    topology: Topology,
    seeds: Ids,
    fanouts: Sequence[int],
    batch_size: int,
    *,
    epochs: Sequence[int],
    rng_seed: int,
    num_threads: int = 1,
) -> NDArray[np.int64]:
    """Count the batches of `epochs` that each node was in → [num_nodes]; batches have `batch_size` of `seeds` [n].

    Draws are keyed: with a run's own seed and epochs these are the run's counts (of one rank that has all `seeds`),
    with others they are a sample of the same distribution. The last batch of an epoch may be smaller.
    """
    counts = np.zeros(topology.num_nodes, dtype=np.int64)
    if not len(seeds):
        return counts
    sampler = WholeSampler(topology, tuple(fanouts), rng_seed, num_threads, resample=True)
    order = KeyedOrder(seeds, rng_seed)
    for epoch in epochs:
        ordered = order(epoch)
        for step, begin in enumerate(range(0, len(ordered), batch_size)):
            batch = Seeds(epoch, step, SeedIds(ordered[begin : begin + batch_size]))
            counts[sampler.sample(batch).node_ids] += 1
    return counts
