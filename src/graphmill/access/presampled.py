"""The sampled neighbourhoods of a plan's epochs, made before the run and read in it. Nothing here needs torch."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from graphmill.access.seeds import assign_of, owners_of, schedule_of
from graphmill.access.spec import AccessSpec, NodeStore, WholeStore
from graphmill.graph.topology import Topology
from graphmill.partition.parts import PartedGraph
from graphmill.partition.placement import Owners
from graphmill.sample.neighbor import WholeSampler
from graphmill.sample.presampled.packing import Form
from graphmill.sample.presampled.recut import RecutSampler
from graphmill.sample.presampled.schedule import EpochSource, PresampledSampler, ScheduleIdentity, identity_to_read


def epoch_source(spec: AccessSpec, store: NodeStore) -> EpochSource:
    """How the epochs of a plan are sampled, as its own ranks and hosts would."""
    plan, known, undirected = spec.plan, store.metadata, spec.undirected
    resample, with_edge_ids = spec.resample, bool(spec.edge_columns)
    owners = owners_of(spec, store.path, ranks=plan.ranks, hosts=plan.ranks // plan.ranks_per_host)
    schedule = schedule_of(spec, store, assign_of(spec, owners, plan.ranks))
    identity = ScheduleIdentity(
        data=known.checksum if spec.partition is None else known.store_checksum,  # the cut changes no batch
        num_train=schedule.num_seeds,
        undirected=undirected,
        seed=plan.seed,
        num_neighbors=spec.fanouts,
        batch_size=plan.batch_size,
        ranks=plan.ranks,
        seeds=_seeds_by(spec, owners, known.checksum),
        resample=resample,
        edge_ids=with_edge_ids,
    )
    num_entries = known.num_undirected_edges if undirected else known.num_edges
    return EpochSource(
        identity=identity,
        form=Form.of(known.num_nodes, num_entries, spec.fanouts, resample=resample, with_edge_ids=with_edge_ids),
        num_steps=plan.batches.num_steps,
        schedule=schedule,
        sampler=lambda: WholeSampler(
            _topology(spec, store),
            spec.fanouts,
            plan.seed,
            plan.threads,
            resample=resample,
            with_edge_ids=with_edge_ids,
        ),
    )


def presampled(
    spec: AccessSpec, store: NodeStore, path: Path, rank: int, world_size: int
) -> PresampledSampler | RecutSampler:
    """What a rank of `world_size` reads in place of sampling. `UserError` if the folder is another run's."""
    source = epoch_source(spec, store)
    found = identity_to_read(path, source.identity)
    folder = replace(source.folder(path), identity=found)
    if found == source.identity and world_size == spec.plan.ranks:
        return PresampledSampler(folder, rank)
    return RecutSampler(folder, rank, world_size, store.metadata.num_nodes)


def _seeds_by(spec: AccessSpec, owners: Owners | None, checksum: str) -> str:
    """Which rank has which seeds, as the identity of presampled epochs says it."""
    if owners is None or spec.partition is None or spec.partition.seeds != "owner":
        return "equal"
    lie = owners.placement
    return f"owner, {lie.num_places} times {lie.ranks_per_place} ranks of parts {checksum}"


def _topology(spec: AccessSpec, store: NodeStore) -> Topology:
    """Topology of the whole graph, which need not be on this host where the graph is in parts."""
    if spec.partition is None:
        whole: WholeStore = cast("WholeStore", store)
        return whole.topology(undirected=spec.undirected)
    return PartedGraph.open(store.path, parts=(), whole_topology=True).topology(undirected=spec.undirected)
