"""Which rank learns from which seeds: placement of parts, owners of nodes, shares of a batch, schedule of a run.

Every way to mini-batches takes them from here, so that ranks, samplers and presampled epochs agree exactly.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphmill.access.spec import AccessSpec, NodeStore
from graphmill.graph.keys import drawn
from graphmill.graph.sampled import NodeIds, Sampled, Seeds
from graphmill.partition.parts import PartedGraph
from graphmill.partition.placement import Owners, placement_of
from graphmill.sample.schedule import Assign, SeedSchedule, contiguous_shares, shares_by_owner


@dataclass(frozen=True, slots=True)
class NodesThemselves:
    """`SeedNodes` where seeds are nodes."""

    schedule: SeedSchedule

    def nodes_of(self, seeds: Seeds) -> Seeds:
        """Return the seeds themselves: they are nodes."""
        return seeds

    def kept(self, sampled: Sampled) -> Sampled:
        """Return the whole neighbourhood: no edge of it is to be predicted."""
        return sampled


def owners_of(spec: AccessSpec, path: Path, *, ranks: int, hosts: int) -> Owners | None:
    """Owners of the nodes if `ranks` ranks on `hosts` hosts hold the parts in `path`; None: no parts."""
    if spec.partition is None:
        return None
    graph = PartedGraph.open(path, parts=(), whole_topology=False)
    placement = placement_of(spec.partition.placement, graph.metadata.num_parts, ranks=ranks, hosts=hosts)
    return Owners(graph.book, placement)


def assign_of(spec: AccessSpec, owners: Owners | None, ranks: int, nodes: NDArray[np.int64] | None = None) -> Assign:
    """How `ranks` ranks share a global batch out: each seed to its owner, or in equal contiguous shares.

    `nodes`: of each seed the node whose owner has it; None: seeds are nodes.
    """
    if owners is None or spec.partition is None or spec.partition.seeds != "owner":
        return partial(contiguous_shares, world_size=ranks)
    return partial(_to_owners, owners, nodes)


def schedule_of(spec: AccessSpec, store: NodeStore, assign: Assign) -> SeedSchedule:
    """Which training nodes each rank has at each step of the plan."""
    plan = spec.plan
    ids = drawn(store.nodes_in("train"), spec.num_train, plan.seed)
    return SeedSchedule.equal(ids, plan.batches, plan.seed, assign)


def training_nodes(spec: AccessSpec, store: NodeStore, owners: Owners | None, ranks: int) -> NodesThemselves:
    """The nodes of the training split, shared out among `ranks` ranks."""
    return NodesThemselves(schedule_of(spec, store, assign_of(spec, owners, ranks)))


def _to_owners(
    owners: Owners, nodes: NDArray[np.int64] | None, batch: NDArray[np.int64]
) -> tuple[NDArray[np.int64], ...]:
    ids = NodeIds(batch if nodes is None else nodes[batch])
    return shares_by_owner(batch, owners.owner_of(ids), owners.placement.world_size)
