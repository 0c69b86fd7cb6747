"""How a spec becomes one rank's access: the only place that chooses how a graph is read."""

from typing import cast

import numpy as np
from numpy.typing import NDArray

from graphmill.access.device import DeviceGraph
from graphmill.access.device_kernels import kernels_of
from graphmill.access.draws import EitherSampler
from graphmill.access.graph import GraphAccess, GraphSource, SeedNodes
from graphmill.access.local import LocalAccess
from graphmill.access.parts import GraphInParts
from graphmill.access.presampled import presampled
from graphmill.access.seeds import training_nodes
from graphmill.access.served import ServedAccess
from graphmill.access.spec import AccessSpec, NodeStore, WholeStore
from graphmill.access.whole import WholeGraph, by_relation
from graphmill.sample.collect import NeighbourSource
from graphmill.sample.edge_dropout import EdgeDropout
from graphmill.sample.service.served import SamplerClient
from graphmill.sync.group import Group


def open_access(
    spec: AccessSpec,
    store: NodeStore,
    group: Group,
    served: SamplerClient | None = None,
    seeds: SeedNodes | None = None,
    extra_columns: NDArray[np.float32] | None = None,
) -> GraphAccess:
    """One rank's way to mini-batches.

    Args:
        spec: what is read, and how.
        store: the prepared graph, as its task has opened it; where batches are served, its splits alone are read.
        group: the ranks that share the seeds out.
        served: by a process that samples, which holds the graph; None: this one does.
        seeds: what steps learn from, of a graph that this process reads; None: the nodes of the training split.
        extra_columns: columns [num_nodes, n] that are read beside propagated features; None: no others are.
    """
    if served is not None:
        return ServedAccess(spec, store, group, served)
    source = source_of(spec, store, group, extra_columns)
    seeds = seeds or training_nodes(spec, store, source.owners, group.world_size)
    return LocalAccess(spec, store, source, sampler_of(spec, store, source, group), seeds, group)


def source_of(
    spec: AccessSpec, store: NodeStore, group: Group, extra_columns: NDArray[np.float32] | None = None
) -> GraphSource:
    """Where neighbourhoods and rows come from."""
    if spec.partition is not None:
        return GraphInParts.of(spec, spec.partition, store.path, group)
    whole_graph = WholeGraph.of(spec, cast("WholeStore", store), group, extra_columns)
    if spec.gpu is not None and group.device.type != "cpu":  # a model may be used where no GPU is
        return DeviceGraph.of(spec, whole_graph, spec.gpu, kernels_of(group.device))
    return whole_graph


def sampler_of(spec: AccessSpec, store: NodeStore, source: GraphSource, group: Group) -> NeighbourSource:
    """Sampler that draws the neighbourhoods of training batches, and drops a share of their edges if asked to."""
    drawing = _drawing(spec, store, source, group)
    if not spec.edge_dropout:
        return drawing
    num_nodes = int(store.metadata.num_nodes)
    return EdgeDropout(drawing, spec.edge_dropout, spec.plan.seed, num_nodes, spec.resample)


def _drawing(spec: AccessSpec, store: NodeStore, source: GraphSource, group: Group) -> NeighbourSource:
    if spec.presampled is not None:
        return presampled(spec, store, spec.presampled, group.rank, group.world_size)
    if spec.relation_fanouts:
        return by_relation(spec, cast("WholeStore", store))
    sampler = source.sampler(spec.fanouts, resample=spec.resample)
    if isinstance(source, DeviceGraph):
        of_cpu = source.whole_graph.sampler(spec.fanouts, resample=spec.resample)
        return EitherSampler({"device": sampler, "cpu": of_cpu}, source.gpu.draws)
    return sampler
