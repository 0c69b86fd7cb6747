"""What decides how a rank reads mini-batches of a prepared graph, and what it asks of the graph. It needs no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.edge_features import EdgeFeatures
from graphmill.graph.features import Features
from graphmill.graph.splits import Split
from graphmill.graph.topology import Topology
from graphmill.spec.gpu_graph import GpuDraws, GpuRows
from graphmill.spec.partition import PartitionSpec
from graphmill.spec.plan import Plan
from graphmill.spec.sign import Propagation
from graphmill.spec.transform import FeatureTransform

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GpuGraph:
    """How a graph lies for the GPUs of ranks."""

    num_bytes: int  # that it may have of each GPU
    draws: GpuDraws = "measured"  # who draws of it
    rows: GpuRows = "own"  # where its rows of features are


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSpec:
    """What a run reads of its graph: which neighbourhoods are drawn, which data are read, and where they lie.

    It says nothing of a model, a loss or of what the nodes' labels mean.
    """

    plan: Plan  # its rng seed, batches, calendar, threads and prefetch
    num_train: int  # seeds of an epoch: all training nodes, or fewer
    num_features: int  # columns of the nodes' features
    fanouts: tuple[int, ...]  # first hop first; -1: all in-neighbours; (): no neighbours are read
    relation_fanouts: tuple[tuple[int, ...], ...]  # of each relation in turn; (): fan-outs are for all together
    resample: bool  # whether a node draws its neighbours anew at each hop (blocks), or once (PyG's subgraphs)
    undirected: bool  # whether messages pass along both directions of every edge
    features: FeatureTransform
    edge_columns: tuple[int, ...]  # of the edges' features that a batch carries; (): none
    node_types: bool  # whether a batch carries the types of its nodes
    has_weighted_means: bool  # whether that is one column, and means of neighbours divide by it
    partition: PartitionSpec | None  # None: the graph is stored whole
    evaluates_whole: bool  # a model of unknown layers: by one call on the whole graph; False: on neighbourhoods
    presampled: Path | None  # folder of sampled epochs; None: neighbourhoods are drawn when they are needed
    propagation: Propagation | None = None  # of features, before anything is read; None: they are as stored
    edge_dropout: float = 0.0  # probability that a step leaves out an edge that was drawn for it
    gpu: GpuGraph | None = None  # how the graph lies for GPUs; None: the CPU draws and gathers


class NodeStore(Protocol):
    """A prepared graph as a task has opened it, whole or in parts."""

    @property
    def path(self) -> Path:
        """Folder of the prepared graph."""

    @property
    def metadata(self) -> Any:  # noqa: ANN401  # GraphMetadata, or PartsMetadata
        """Header of the prepared graph."""

    @property
    def node_type(self) -> NDArray[Any]:
        """Type of each node [num_nodes], of a graph with types."""

    def nodes_in(self, split: Split) -> Ids:
        """Ascending ids of the nodes of a split."""


class WholeStore(NodeStore, Protocol):
    """Prepared graph that is stored whole; `GraphStore` and a split of its nodes."""

    @property
    def features(self) -> Features:
        """Features of all nodes."""

    def topology(self, *, undirected: bool) -> Topology:
        """In-neighbours as given, or the union of both directions."""

    def edge_features(self, *, undirected: bool) -> EdgeFeatures:
        """Features of the edges, for the entries of `topology` with the same `undirected`."""
