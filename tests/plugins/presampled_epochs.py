"""Epochs of a random symmetric graph, ready to be presampled."""

import numpy as np
from graphs_in_parts import topology_of

from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.presampled.packing import Form
from graphmill.sample.presampled.schedule import EpochSource, ScheduleIdentity
from graphmill.sample.schedule import SeedSchedule
from graphmill.spec.calendar import EqualBatches

NUM_NODES, SEED = 300, 21


def epoch_source(
    ranks: int, fanouts: tuple[int, ...], batch_size: int, *, num_edges: int, resample: bool, with_edge_ids: bool
) -> EpochSource:
    """Every third node is a seed."""
    ends = np.random.default_rng(4).integers(0, NUM_NODES, (num_edges, 2))
    topology = topology_of(NUM_NODES, map(tuple, ends.tolist()), symmetric=True)
    seeds = np.arange(0, NUM_NODES, 3)
    batches = EqualBatches(len(seeds), batch_size, ranks)
    identity = ScheduleIdentity(
        data="0" * 32,
        num_train=len(seeds),
        undirected=True,
        seed=SEED,
        num_neighbors=fanouts,
        batch_size=batch_size,
        ranks=ranks,
        seeds="equal",
        resample=resample,
        edge_ids=with_edge_ids,
    )
    return EpochSource(
        identity,
        Form.of(topology.num_nodes, topology.num_edges, fanouts, resample=resample, with_edge_ids=with_edge_ids),
        batches.num_steps,
        SeedSchedule.equal(seeds, batches, SEED),
        lambda: WholeSampler(topology, fanouts, SEED, 1, resample=resample, with_edge_ids=with_edge_ids),
    )
