"""One rank's access to a partitioned graph: its own parts, and the other ranks for the rest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.access.graph import Collects, Ids, LayerwiseModel, SeedNodes
from graphmill.access.layerwise_parts import PartedInference
from graphmill.access.spec import AccessSpec
from graphmill.access.transform import transformed
from graphmill.graph.edge_features import refuse_negative_weights
from graphmill.graph.features import DenseFeatures
from graphmill.graph.sampled import NodeIds, Sampled
from graphmill.graph.statistics import statistics_of
from graphmill.partition.parts import PartedGraph, read_parts_metadata
from graphmill.partition.placement import Owners, placement_of
from graphmill.runtime.machine import return_free_memory
from graphmill.sample.collect import Collector, Fetched, NeighbourSource
from graphmill.sample.distributed.announced import AnnouncedFetcher, as_fetched
from graphmill.sample.distributed.edges import EdgeFetcher
from graphmill.sample.distributed.features import FeatureFetcher
from graphmill.sample.distributed.held import LookaheadFetcher, hold
from graphmill.sample.distributed.hottest import budget_of, ranked, read_most
from graphmill.sample.distributed.rows import row_bytes_of
from graphmill.sample.distributed.sampler import sampler_of
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.sample.hot.lookahead import Lookahead
from graphmill.sample.hot.rank import Draws, StaticPolicy
from graphmill.spec.columns import Cell
from graphmill.spec.parted_memory import HOPS_TOGETHER
from graphmill.spec.partition import LookaheadSpec, NoCacheSpec, PartitionSpec, PresampledCacheSpec
from graphmill.sync.group import MIB, Group
from graphmill.sync.pause import Pause


@dataclass(frozen=True, slots=True)
class PartedTables:
    """Features of nodes wherever they are stored."""

    announced: AnnouncedFetcher
    lookahead: LookaheadFetcher | None  # of windows of an epoch; None: each fetches what is not held

    @property
    def fetcher(self) -> FeatureFetcher:
        """Fetcher of the rows of any nodes."""
        return self.announced.features

    def fetch(self, window: Sequence[Sampled], following: Sequence[Sequence[Sampled]] | None = None) -> list[Fetched]:
        """Find the rows of each batch's nodes, and the rows of its edges in their order."""
        if following is None:
            found = self.fetcher.fetch(_nodes_of(window))
        elif self.lookahead is None:
            return self.announced.fetch(window, following[0] if following else None)
        else:
            found = self.lookahead.fetch(_nodes_of(window), [_nodes_of(one) for one in following])
        edges = self.announced.edges
        return as_fetched(found, None if edges is None else edges.fetch(window))


def _nodes_of(window: Sequence[Sampled]) -> list[NodeIds]:
    return [sampled.node_ids for sampled in window]


def _refuse_negative_weights(shares: Shares, spec: AccessSpec) -> None:
    """Refuse negative weights of edges to nodes of the parts that are read here; other ranks check the others."""
    for part in shares.parts:
        weights = part.edge_attr(undirected=spec.undirected)[:, spec.edge_columns[0]]
        refuse_negative_weights(weights, shares.graph.metadata.name)


@dataclass(frozen=True, slots=True)
class GraphInParts:
    """A partitioned graph, of which this rank reads the parts of its host, or its own only."""

    spec: AccessSpec
    partition: PartitionSpec
    group: Group
    shares: Shares
    wire: Wire
    wire_of_batches: Wire  # the same, or one that carries nothing
    tables: PartedTables
    window: int
    windows_ahead: int
    marked: list[int] = field(default_factory=lambda: [0] * 5)

    @classmethod
    def of(cls, spec: AccessSpec, partition: PartitionSpec, path: Path, group: Group) -> "GraphInParts":
        """Open this rank's parts in the folder `path`."""
        num_parts = read_parts_metadata(path).num_parts
        placement = placement_of(partition.placement, num_parts, ranks=group.world_size, hosts=group.num_hosts)
        is_replicated = partition.topology == "replicated"
        graph = PartedGraph.open(path, parts=placement.parts_of(group.rank), whole_topology=is_replicated)
        shares, wire = Shares(graph, placement, group.rank), Wire.between(group.rank, group.world_size)
        of_batches = wire.of_batches(placement)
        features = tuple(transformed(part.features, spec.features) for part in shares.parts)
        edges = EdgeFetcher(shares, of_batches, spec.edge_columns, spec.undirected) if spec.edge_columns else None
        if spec.has_weighted_means:
            _refuse_negative_weights(shares, spec)
        fetcher = FeatureFetcher(shares, of_batches, features, spec.plan.threads)
        cache, lookahead, window, windows_ahead = partition.cache, None, 1, int(not placement.is_local)
        if isinstance(cache, LookaheadSpec):
            budget = budget_of(cache.ratio, cache.mib)
            max_rows = budget.max_rows(shares.book.num_nodes, int(row_bytes_of(features[0])))
            lookahead = LookaheadFetcher(fetcher, Lookahead(max_rows, cache.horizon))
            window, windows_ahead = cache.window, cache.horizon - 1
        tables = PartedTables(AnnouncedFetcher(fetcher, edges), lookahead)
        return cls(spec, partition, group, shares, wire, of_batches, tables, window, windows_ahead)

    @property
    def owners(self) -> Owners:
        """Owners of all nodes."""
        return self.shares.owners

    @property
    def sampled_together(self) -> int:
        """Batches that are sampled together: more than a window where each hop asks other ranks."""
        return max(self.window, HOPS_TOGETHER) if self.partition.topology == "partitioned" else self.window

    @property
    def is_shared(self) -> bool:
        """Whether another rank has parts that this one does not read."""
        return not self.shares.placement.is_local

    def sampler(self, fanouts: tuple[int, ...], *, resample: bool) -> NeighbourSource:
        """Sampler of the whole topology where every host has it, else of the parts of all ranks."""
        # One thread samples while others compute: a batch is a millisecond's work, and waking helpers takes a share.
        return sampler_of(
            self.shares,
            self.wire_of_batches,
            self.partition.topology,
            fanouts,
            self.spec.plan.seed,
            num_threads=1,
            resample=resample,
            undirected=self.spec.undirected,
            with_edge_ids=self.tables.announced.edges is not None,
        )

    def collecting(self, collector: Collector) -> Collects:
        """Return the collector itself: it makes batches on the CPU."""
        return collector

    def statistics(self, nodes: Ids) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Rank 0 reads their rows, of all parts, and the others take what it finds."""

        def rows_of(block: Ids) -> DenseFeatures:
            wanted = NodeIds(block if self.group.rank == 0 else block[:0])
            (found,) = self.tables.fetcher.fetch([wanted])
            table = found.gathered(self.spec.plan.threads)
            assert isinstance(table, DenseFeatures), "the plan was refused for sparse ones"
            return table

        found = np.stack(statistics_of(rows_of, nodes, self.spec.num_features))
        heard = self.wire.swap([found] * self.group.world_size, [2] * self.group.world_size)[0]
        return heard[0].copy(), heard[1].copy()

    def sweep(self, model: LayerwiseModel, nodes: Ids, pause: Pause) -> tuple[Ids, Tensor]:
        """Nodes of `nodes` that this rank owns, and their rows, computed layer by layer."""
        column = self.spec.edge_columns[0] if self.spec.has_weighted_means else None
        inference = PartedInference(
            model, self.shares, self.wire, self.tables.fetcher, self.spec.undirected, column, pause
        )
        return inference.logits(nodes)

    def warm_up(self, sampler: NeighbourSource, seeds: SeedNodes, nodes: Ids, num_steps: int) -> None:
        """Fetch the rows of other parts that are held all the time, before the first step of an attempt."""
        cache, fetcher = self.partition.cache, self.tables.fetcher
        if isinstance(cache, NoCacheSpec | LookaheadSpec) or not self.is_shared:
            return
        num_nodes, row_bytes = self.shares.book.num_nodes, int(row_bytes_of(fetcher.features[0]))
        budget = budget_of(cache.ratio, cache.mib)
        if isinstance(cache, PresampledCacheSpec):
            epochs = product(range(cache.epochs), range(num_steps))
            learnt = (seeds.schedule.seeds(epoch, step, self.group.rank) for epoch, step in epochs)
            sampled = (sampler.sample(seeds.nodes_of(each)) for each in learnt)
            order = read_most(self.shares, self.wire, sampled)
        else:
            order = self._ranked(np.asarray(nodes), cache.policy, budget.max_rows(num_nodes, row_bytes))
        held = budget.cut(order, num_nodes, row_bytes)
        hold(fetcher, held.astype(np.int64))
        return_free_memory()  # messages that filled the cache

    def _ranked(self, seeds: Ids, policy: StaticPolicy, most: int | None) -> NDArray[Any]:
        plan = self.spec.plan
        if self.partition.seeds == "owner":
            owners, host_ranks = self.shares.owner_of(NodeIds(seeds)), self.shares.host_ranks
            seeds = seeds[(owners >= host_ranks.start) & (owners < host_ranks.stop)]
        return ranked(
            self.shares,
            seeds,
            Draws(fanouts=self.spec.fanouts, batch_size=plan.batch_size),
            policy,
            most=most,
            topology=self.partition.topology,
            undirected=self.spec.undirected,
            num_threads=plan.threads,
        )

    def mark(self) -> None:
        """Start a new count of what `facts` reports."""
        self.marked[:] = self._counted()

    def facts(self) -> Mapping[str, Cell]:
        """What loaders have fetched since `mark`, of all ranks together. All ranks must call it."""
        added = torch.tensor(self._counted(), dtype=torch.float64) - torch.tensor(self.marked, dtype=torch.float64)
        remote, repeated, fetched, fetched_bytes, loader_bytes = self.group.sum_numbers(added).tolist()
        return {
            "remote_rows": int(remote),
            "cache_hit_rate": 1 - fetched / remote if remote else None,
            "repeated_rows": int(repeated),
            "fetched_rows": int(fetched),
            "fetched_mib": fetched_bytes / MIB,
            "loader_mib": loader_bytes / MIB,
        }

    def received_bytes(self) -> int:
        """Bytes that this rank received from others so far: `wire_of_batches` is the same wire, or carries nothing."""
        return self.wire.received_bytes

    def _counted(self) -> list[int]:
        counts = self.tables.fetcher.counts
        return [
            counts.needed - counts.local,
            counts.reused,
            counts.fetched,
            counts.fetched_bytes,
            self.wire_of_batches.received_bytes,
        ]
