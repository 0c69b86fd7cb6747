"""The sampled neighbourhoods of a plan's epochs, made before the run and read in it. Nothing here needs torch."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from graphmill.graph.keys import drawn
from graphmill.graph.topology import Topology
from graphmill.partition.parts import PartedGraph
from graphmill.partition.placement import Placement
from graphmill.sample.neighbor import NeighborSampler
from graphmill.sample.presampled.packing import Form
from graphmill.sample.presampled.recut import RecutSampler
from graphmill.sample.presampled.schedule import EpochSource, PresampledSampler, ScheduleIdentity, identity_to_read
from graphmill.sample.schedule import Assign, SeedSchedule
from graphmill.spec.plan import Plan
from graphmill.tasks.node_classification.data.store import LabelledGraphStore
from graphmill.tasks.node_classification.owners import Owners
from graphmill.tasks.node_classification.page import NodeClassificationPlan
from graphmill.tasks.node_classification.parts import PartedLabelledGraph, open_graph


@dataclass(frozen=True, slots=True)
class _Graph:
    """What sampling needs of a prepared graph, whole or in parts."""

    checksum: str  # of the whole graph: what it was cut into changes no batch
    num_entries: int  # of its topology
    topology: Callable[[], Topology]  # the whole graph's; where it is in parts, it may not be on this host
    seeds: str  # which rank has which
    assign: Assign | None  # None: equal shares


def epoch_source(plan: Plan) -> EpochSource:
    """How the epochs of a plan are sampled; `UserError` if its data are not prepared."""
    own = plan.task
    assert isinstance(own, NodeClassificationPlan)
    own.dataset.prepared_checksum  # noqa: B018  # raises where there is none
    store = open_graph(Path(own.dataset.path))
    graph = _whole(own, store) if isinstance(store, LabelledGraphStore) else _in_parts(plan, own, store)
    resample, with_edge_ids = own.resamples, bool(own.edge_columns)
    train_ids = drawn(store.nodes_in("train"), own.dataset.num_train, plan.seed)
    identity = ScheduleIdentity(
        data=graph.checksum,
        num_train=len(train_ids),
        undirected=own.undirected,
        seed=plan.seed,
        num_neighbors=own.num_neighbors,
        batch_size=plan.batch_size,
        ranks=plan.ranks,
        seeds=graph.seeds,
        resample=resample,
        edge_ids=with_edge_ids,
    )
    return EpochSource(
        identity=identity,
        form=Form.of(
            store.metadata.num_nodes,
            graph.num_entries,
            own.num_neighbors,
            resample=resample,
            with_edge_ids=with_edge_ids,
        ),
        num_steps=plan.batches.num_steps,
        schedule=SeedSchedule.equal(train_ids, plan.batches, plan.seed, graph.assign),
        sampler=lambda: NeighborSampler(
            graph.topology(),
            own.num_neighbors,
            plan.seed,
            plan.threads,
            resample=resample,
            with_edge_ids=with_edge_ids,
        ),
    )


def presampled(plan: Plan, path: Path, rank: int, world_size: int) -> PresampledSampler | RecutSampler:
    """What a rank of `world_size` reads in place of sampling. `UserError` if the folder is another run's."""
    own, source = plan.task, epoch_source(plan)
    assert isinstance(own, NodeClassificationPlan)
    found = identity_to_read(path, source.identity)
    folder = replace(source.folder(path), identity=found)
    if found == source.identity and world_size == plan.ranks:
        return PresampledSampler(folder, rank)
    return RecutSampler(folder, rank, world_size, own.dataset.num_nodes)


def _whole(own: NodeClassificationPlan, store: LabelledGraphStore) -> _Graph:
    topology = store.topology(undirected=own.undirected)
    return _Graph(store.metadata.checksum, topology.num_edges, lambda: topology, "equal", None)


def _in_parts(plan: Plan, own: NodeClassificationPlan, store: PartedLabelledGraph) -> _Graph:
    known, asked = store.metadata, own.partition
    assert asked is not None
    num_entries = known.num_undirected_edges if own.undirected else known.num_edges
    seeds, assign = "equal", None
    if asked.seeds == "owner":
        per_place = 1 if asked.placement == "per_rank" else plan.ranks_per_host
        placement = Placement(known.num_parts, plan.ranks // per_place, per_place)
        owners = Owners(PartedGraph.open(store.path, parts=(), whole_topology=False), placement)
        seeds, assign = f"owner, {plan.ranks // per_place} times {per_place} ranks of parts {known.checksum}", owners
    return _Graph(
        known.store_checksum, num_entries, lambda: _whole_topology(store, undirected=own.undirected), seeds, assign
    )


def _whole_topology(store: PartedLabelledGraph, *, undirected: bool) -> Topology:
    return PartedGraph.open(store.path, parts=(), whole_topology=True).topology(undirected=undirected)
