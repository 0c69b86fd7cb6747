"""A partitioned graph opened in a PyG user's script: it takes the place of `data` in `graphmill.NeighborLoader`.

The ranks are those of torch.distributed, if the script has initialised it; else one process, which reads all parts.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from graphmill.base.arguments import flag, one_of, path_of, share, whole_number
from graphmill.base.errors import UserError
from graphmill.graph.features import Features, SparseFeatures, to_float32
from graphmill.graph.sampled import Sampled
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.typed import ANY, EdgeType, NodeType
from graphmill.partition.metadata import PartsMetadata
from graphmill.partition.parts import LabelsOfSplits, PartedGraph, read_parts_metadata
from graphmill.partition.placement import placement_of
from graphmill.sample.collect import NeighbourSource
from graphmill.sample.distributed.announced import AnnouncedFetcher
from graphmill.sample.distributed.edges import EdgeFetcher
from graphmill.sample.distributed.features import FeatureFetcher, RowsOfBatch
from graphmill.sample.distributed.held import hold
from graphmill.sample.distributed.hottest import budget_of, ranked
from graphmill.sample.distributed.rows import row_bytes_of
from graphmill.sample.distributed.sampler import sampler_of
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.sample.hot.rank import Draws
from graphmill.spec.typed_graph import no_union_of_types


def name_types(batch: Any, nodes: Sequence[NodeType], edges: Sequence[EdgeType]) -> None:  # noqa: ANN401  # a Data
    """What `batch.to_heterogeneous()` reads; not where a relation is of several types of nodes: it cannot take that."""
    if any(ANY in (each.source, each.target) for each in edges):
        return
    batch._node_type_names = [each.name for each in nodes]
    batch._edge_type_names = [tuple(each.relation) for each in edges]


@dataclass(frozen=True, slots=True)
class PartitionedData:
    """A graph in parts as this rank reads it: its own parts, and the other ranks for the rest. See `open_partitioned`.

    `NeighborLoader` takes it in place of a PyG `Data`.
    """

    shares: Shares
    topology: Literal["replicated", "partitioned"]
    undirected: bool
    cache_ratio: float

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return self._metadata.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of edges of the whole graph, in the directions in which it is sampled."""
        return self._metadata.num_undirected_edges if self.undirected else self._metadata.num_edges

    @property
    def num_features(self) -> int:
        """Columns of `x`."""
        return self._metadata.num_features

    @property
    def num_classes(self) -> int:
        """Classes of `y`; 0: its nodes have none."""
        return int(self._metadata.store.get("num_classes", 0))

    def nodes_in(self, split: Split) -> Tensor:
        """Ids of the nodes of a split of the whole graph, ascending: what a loader takes as `input_nodes`."""
        one_of("split", split, SPLITS)
        return torch.from_numpy(np.array(self.shares.graph.nodes_in(split)))

    @property
    def _metadata(self) -> PartsMetadata:
        return self.shares.graph.metadata


def open_partitioned(
    path: str | Path,
    *,
    topology: Literal["replicated", "partitioned"] = "replicated",
    undirected: bool = False,
    cache_ratio: float = 0.0,
    ranks_per_host: int | None = None,
) -> PartitionedData:
    """Open a folder that `graphmill partition` wrote, for `graphmill.NeighborLoader`. All ranks must open the same one.

    Args:
        path: the parts folder, such as `datasets/parts/ogbn-products/4-kaminpar`.
        topology: `replicated`, each host maps the whole topology, and only features travel; `partitioned`, each hop's
            nodes go to the ranks that own them.
        undirected: sample along both directions of every edge.
        cache_ratio: rows of other parts that a loader holds, as a share of all nodes: those that it will most
            probably sample (VIP, arXiv 2305.03152). Ranks of a host hold them together, once.
        ranks_per_host: ranks that share the parts of their host; None: torchrun's LOCAL_WORLD_SIZE if it is set, else
            1, so that each rank reads its own parts only.

    Returns:
        The parts of this rank's host, and where all others are; `nodes_in("train")` gives a loader its seeds.

    Raises:
        UserError: the folder holds no parts, or they cannot be divided among the ranks.

    Example:
        >>> parts = graphmill.open_partitioned("datasets/parts/ogbn-products/2-kaminpar")
        ... loader = graphmill.NeighborLoader(parts, [15, 10, 5], parts.nodes_in("train"), batch_size=512, shuffle=True)
    """
    one_of("topology", topology, ("replicated", "partitioned"))
    undirected, cache_ratio = flag("undirected", undirected), share("cache_ratio", cache_ratio)
    folder = path_of("path", path).expanduser()
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    together = _ranks_per_host(ranks_per_host, world_size)
    num_parts, hosts = read_parts_metadata(folder).num_parts, world_size // together
    placement = placement_of("per_host", num_parts, ranks=world_size, hosts=hosts)
    graph = PartedGraph.open(folder, parts=placement.parts_of(rank), whole_topology=topology == "replicated")
    if undirected and graph.metadata.edge_types and not graph.metadata.is_symmetric:
        raise no_union_of_types(graph.metadata.name, "undirected")
    return PartitionedData(Shares(graph, placement, rank), topology, undirected, cache_ratio)


def _ranks_per_host(requested: int | None, world_size: int) -> int:
    if requested is not None:
        requested = whole_number("ranks_per_host", requested)
    found = (
        requested if requested is not None else int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if world_size > 1 else 1
    )
    if found < 1 or world_size % found:
        raise UserError(
            f"ranks_per_host is {found}, and {world_size} ranks do not divide into hosts of as many",
            fix="give a divisor of the number of ranks; 1 if each rank reads its own parts only",
        )
    return found


@dataclass(slots=True)
class PartedLoaderGraph:
    """What one loader reads of a graph in parts. It has a process group of its own: loaders may be used in turn."""

    data: PartitionedData
    num_threads: int
    num_nodes: int = field(init=False)
    rank: int = field(init=False)
    world_size: int = field(init=False)
    is_shared: bool = field(init=False)
    _wire: Wire = field(init=False)
    _wire_of_batches: Wire = field(init=False)  # the same, or one that carries nothing
    _announced: AnnouncedFetcher = field(init=False)
    _classes: LabelsOfSplits | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        shares, metadata = self.data.shares, self.data.shares.graph.metadata
        self.num_nodes, self.rank, self.world_size = metadata.num_nodes, shares.rank, shares.placement.world_size
        self.is_shared = not shares.placement.is_local
        self._wire = Wire.between(self.rank, self.world_size)
        self._wire_of_batches = self._wire.of_batches(shares.placement)
        features = tuple(part.features for part in shares.parts)
        fetcher = FeatureFetcher(shares, self._wire_of_batches, features, self.num_threads)
        columns = range(len(metadata.edge_features))
        edges = EdgeFetcher(shares, self._wire_of_batches, columns, self.data.undirected) if columns else None
        self._announced = AnnouncedFetcher(fetcher, edges)

    def sampler(self, fanouts: tuple[int, ...], seed: int) -> NeighbourSource:
        """Sampler of the whole topology where every host has it, else of the parts of all ranks."""
        return sampler_of(
            self.data.shares,
            self._wire_of_batches,
            self.data.topology,
            fanouts,
            seed,
            num_threads=self.num_threads,
            resample=False,
            undirected=self.data.undirected,
            with_edge_ids=True,
        )

    def prepare(self, input_ids: NDArray[np.int64], batch_size: int, fanouts: tuple[int, ...], settings: str) -> None:
        """Compare the ranks' loaders, which would wait for each other if they differed; fetch what is held."""
        settings += f" {self.data.topology} {self.data.undirected} {self.data.cache_ratio} {self.num_nodes}"
        digest = np.frombuffer(hashlib.sha256(settings.encode() + input_ids.tobytes()).digest(), dtype=np.int64)
        heard = self._wire.swap([digest] * self.world_size, [len(digest)] * self.world_size)
        others = [rank for rank, its in enumerate(heard) if not np.array_equal(its, digest)]
        if others:
            raise UserError(
                f"the loaders of ranks {self.rank} and {others[0]} differ, and batches in parts are made together",
                fix="give every rank the same arguments, with the input_nodes of all ranks: the loader shares them out",
            )
        self._classes = self._classes_of(input_ids)
        if self.data.cache_ratio and self.is_shared:
            self._hold(np.sort(input_ids), Draws(fanouts=fanouts, batch_size=batch_size))

    def fill(self, batch: Any, sampled: Sampled, following: Sampled | None) -> None:  # noqa: ANN401  # a PyG Data
        """`x` of all nodes, float32; `y` of the seeds, where all `input_nodes` are in splits; `edge_attr` if any.

        Of a typed graph also `node_type` and `edge_type`.
        """
        (found,) = self._announced.fetch([sampled], None if following is None else [following])
        batch.e_id = torch.from_numpy(sampled.edge_ids)
        rows = RowsOfBatch(found.features, found.rows)
        batch.x = torch.from_numpy(_dense_rows(rows.gathered(self.num_threads)))
        if self._announced.edges is not None:
            self._fill_edges(batch, torch.from_numpy(found.edge_values))
        if self._classes is not None:
            batch.y = torch.from_numpy(self._classes[sampled.seeds.ids])

    def _fill_edges(self, batch: Any, columns: Tensor) -> None:  # noqa: ANN401  # a PyG Data
        graph = self.data.shares.graph
        known = graph.metadata
        if not known.edge_types:
            batch.edge_attr = columns
            return
        batch.edge_type = columns[:, -1].long()
        batch.node_type = torch.from_numpy(graph.node_type[batch.n_id.numpy()].astype(np.int64))
        if columns.shape[1] > 1:
            batch.edge_attr = columns[:, :-1]
        name_types(batch, known.node_types, known.edge_types)

    def _classes_of(self, input_ids: NDArray[np.int64]) -> LabelsOfSplits | None:
        """Classes of the nodes of splits; None if one of `input_ids` is in no split."""
        labels = self.data.shares.graph.labels
        return labels if labels.has(input_ids).all() else None

    def _hold(self, seeds: NDArray[np.int64], draws: Draws) -> None:
        shares, budget = self.data.shares, budget_of(self.data.cache_ratio, None)
        row_bytes = int(row_bytes_of(self._announced.features.features[0]))
        order = ranked(
            shares,
            seeds,
            draws,
            "vip",
            most=budget.max_rows(self.num_nodes, row_bytes),
            topology=self.data.topology,
            undirected=self.data.undirected,
            num_threads=self.num_threads,
        )
        held = budget.cut(order, self.num_nodes, row_bytes)
        hold(self._announced.features, held.astype(np.int64))


def _dense_rows(table: Features) -> NDArray[np.float32]:
    if not isinstance(table, SparseFeatures):
        return to_float32(table)
    rows = np.zeros((table.num_nodes, table.num_features), dtype=np.float32)
    rows[np.repeat(np.arange(table.num_nodes), np.diff(table.indptr)), table.indices] = table.values
    return rows
