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

from graphmill.graph.features import DenseFeatures
from graphmill.graph.sampled import NodeIds, Sampled
from graphmill.nn.graphsage import GraphSage
from graphmill.nn.standardise import Standardise
from graphmill.partition.parts import LabelsOfSplits, PartedGraph
from graphmill.partition.placement import Placement
from graphmill.runtime.machine import return_free_memory
from graphmill.sample.collect import Fetched, NeighbourSource
from graphmill.sample.distributed.announced import AnnouncedFetcher, as_fetched
from graphmill.sample.distributed.edges import EdgeFetcher
from graphmill.sample.distributed.features import FeatureFetcher
from graphmill.sample.distributed.held import hold
from graphmill.sample.distributed.hottest import budget_of, ranked, read_most
from graphmill.sample.distributed.lookahead import LookaheadFetcher
from graphmill.sample.distributed.rows import row_bytes_of
from graphmill.sample.distributed.sampler import sampler_of
from graphmill.sample.distributed.shares import Shares
from graphmill.sample.distributed.wire import Wire
from graphmill.sample.hot.lookahead import Lookahead
from graphmill.sample.hot.rank import Draws, StaticPolicy
from graphmill.sample.schedule import Assign, SeedSchedule, shares_by_owner
from graphmill.spec.columns import Cell
from graphmill.spec.parted_memory import HOPS_TOGETHER
from graphmill.spec.partition import LookaheadSpec, NoCacheSpec, PartitionSpec, PresampledCacheSpec
from graphmill.sync.group import MIB, Group
from graphmill.tasks.node_classification.page import NodeClassificationPlan
from graphmill.tasks.node_classification.parted_inference import PartedInference
from graphmill.tasks.node_classification.parts import PartedLabelledGraph
from graphmill.tasks.node_classification.transform import transformed
from graphmill.tasks.same_data import refuse_other_data
from graphmill.tasks.standardise import statistics_of
from graphmill.tasks.task import Pause, Split


@dataclass(frozen=True, slots=True)
class PartedTables:
    """Features of nodes wherever they are stored."""

    announced: AnnouncedFetcher
    lookahead: LookaheadFetcher | None  # of windows of an epoch; None: each fetches what is not held

    @property
    def fetcher(self) -> FeatureFetcher:
        """Of rows of any nodes."""
        return self.announced.features

    def fetch(self, window: Sequence[Sampled], following: Sequence[Sequence[Sampled]] | None = None) -> list[Fetched]:
        """Of each batch where the rows of its nodes are, and those of its edges in their order."""
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


@dataclass(frozen=True, slots=True)
class GraphInParts:
    """A partitioned graph, of which this rank reads the parts of its host, or its own only."""

    own: NodeClassificationPlan
    seed: int
    num_threads: int
    batch_size: int
    group: Group
    shares: Shares = field(init=False)
    labels: LabelsOfSplits = field(init=False)
    wire: Wire = field(init=False)
    wire_of_batches: Wire = field(init=False)  # the same, or one that carries nothing
    tables: PartedTables = field(init=False)
    window: int = field(init=False)
    windows_ahead: int = field(init=False)
    sampled_together: int = field(init=False)
    is_shared: bool = field(init=False)
    marked: list[int] = field(default_factory=lambda: [0] * 5, init=False)

    def __post_init__(self) -> None:
        own, path, group = self.own, Path(self.own.dataset.path), self.group
        store = PartedLabelledGraph.open(path)
        refuse_other_data(own.dataset, store.metadata.checksum)
        placement = placement_of(self.asked, store.metadata.num_parts, ranks=group.world_size, hosts=group.num_hosts)
        graph = PartedGraph.open(
            path,
            parts=placement.parts_of(group.rank),
            whole_topology=self.asked.topology == "replicated",
        )
        shares = Shares(graph, placement, group.rank)
        wire = Wire.between(group.rank, group.world_size)
        of_batches = wire.of_batches(placement)
        features = tuple(transformed(part.features, own.features) for part in shares.parts)
        edges = EdgeFetcher(shares, of_batches, own.edge_columns, own.undirected) if own.edge_columns else None
        fetcher = FeatureFetcher(shares, of_batches, features, self.num_threads)
        asked, lookahead, window, windows_ahead = self.asked.cache, None, 1, int(not placement.is_local)
        if isinstance(asked, LookaheadSpec):
            budget = budget_of(asked.ratio, asked.mib)
            max_rows = budget.max_rows(shares.book.num_nodes, int(row_bytes_of(features[0])))
            lookahead = LookaheadFetcher(fetcher, Lookahead(max_rows, asked.horizon))
            window, windows_ahead = asked.window, asked.horizon - 1
        for name, value in {
            "shares": shares,
            "labels": store.labels,
            "wire": wire,
            "wire_of_batches": of_batches,
            "tables": PartedTables(AnnouncedFetcher(fetcher, edges), lookahead),
            "window": window,
            "windows_ahead": windows_ahead,
            "sampled_together": max(window, HOPS_TOGETHER) if self.asked.topology == "partitioned" else window,
            "is_shared": not placement.is_local,
        }.items():
            object.__setattr__(self, name, value)

    @property
    def asked(self) -> PartitionSpec:
        """The plan's section."""
        assert self.own.partition is not None
        return self.own.partition

    @property
    def assign(self) -> Assign | None:
        """Seeds go to the rank that owns them, or are shared out equally."""
        return self._to_owners if self.asked.seeds == "owner" else None

    def nodes_in(self, split: Split) -> NDArray[np.int64]:
        """Ascending ids of the nodes of a split, of all parts."""
        return self.shares.graph.nodes_in(split)

    def standardise(self) -> Standardise | None:
        """Of all training nodes: rank 0 reads their rows, of all parts, and the others take what it finds."""
        if self.own.features != "standardised":
            return None
        nodes = self.nodes_in("train")

        def rows_of(block: NDArray[np.int64]) -> DenseFeatures:
            wanted = NodeIds(block if self.group.rank == 0 else block[:0])
            (found,) = self.tables.fetcher.fetch([wanted])
            table = found.together(self.num_threads)
            assert isinstance(table, DenseFeatures), "the plan was refused for sparse ones"
            return table

        found = np.stack(statistics_of(rows_of, nodes, self.own.dataset.num_features))
        heard = self.wire.swap([found] * self.group.world_size, [2] * self.group.world_size)[0]
        return Standardise(torch.from_numpy(heard[0].copy()), torch.from_numpy(heard[1].copy()))

    def sampler(self, fanouts: tuple[int, ...], *, resample: bool) -> NeighbourSource:
        """Of the whole topology where every host has it, else of the parts of all ranks."""
        # One thread samples while others compute: a batch is a millisecond's work, and waking helpers takes a share.
        return sampler_of(
            self.shares,
            self.wire_of_batches,
            self.asked.topology,
            fanouts,
            self.seed,
            num_threads=1,
            resample=resample,
            undirected=self.own.undirected,
            with_edge_ids=self.tables.announced.edges is not None,
        )

    def exact_logits(
        self, model: GraphSage, nodes: NDArray[np.int64], pause: Pause
    ) -> tuple[NDArray[np.int64], Tensor]:
        """Of those of `nodes` that this rank owns."""
        self.labels.forget()
        inference = PartedInference(model, self.shares, self.wire, self.tables.fetcher, self.own.undirected, pause)
        return inference.logits(nodes)

    def warm_up(self, sampler: NeighbourSource, schedule: SeedSchedule, num_steps: int) -> None:
        """Fetch the rows of other parts that are held all the time, before the first step of an attempt."""
        asked, fetcher = self.asked.cache, self.tables.fetcher
        if isinstance(asked, NoCacheSpec | LookaheadSpec) or not self.is_shared:
            return
        num_nodes, row_bytes = self.shares.book.num_nodes, int(row_bytes_of(fetcher.features[0]))
        budget = budget_of(asked.ratio, asked.mib)
        if isinstance(asked, PresampledCacheSpec):
            epochs = product(range(asked.epochs), range(num_steps))
            sampled = (sampler.sample(schedule.seeds(epoch, step, self.group.rank)) for epoch, step in epochs)
            order = read_most(self.shares, self.wire, sampled)
        else:
            order = self._ranked(asked.policy, budget.max_rows(num_nodes, row_bytes))
        held = budget.cut(order, num_nodes, row_bytes)
        hold(fetcher, held.astype(np.int64))
        return_free_memory()  # messages that filled the cache

    def _ranked(self, policy: StaticPolicy, most: int | None) -> NDArray[Any]:
        own, seeds = self.own, self.nodes_in("train")
        if self.asked.seeds == "owner":
            owners, mates = self.shares.owner_of(NodeIds(seeds)), self.shares.mates
            seeds = seeds[(owners >= mates.start) & (owners < mates.stop)]
        return ranked(
            self.shares,
            np.asarray(seeds),
            Draws(fanouts=own.num_neighbors, batch_size=self.batch_size),
            policy,
            most=most,
            topology=self.asked.topology,
            undirected=own.undirected,
            num_threads=self.num_threads,
        )

    def mark(self) -> None:
        """From here on `facts` counts."""
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
        """By this rank, of other ranks, so far: `wire_of_batches` is the same wire, or carries nothing."""
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

    def _to_owners(self, batch: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        return shares_by_owner(batch, self.shares.owner_of(NodeIds(batch)), self.group.world_size)


def placement_of(asked: PartitionSpec, num_parts: int, *, ranks: int, hosts: int) -> Placement:
    """Where parts lie, in hosts or in single ranks: those of this attempt, however many were planned."""
    if asked.placement == "per_rank":
        return Placement(num_parts, ranks, 1)
    return Placement(num_parts, hosts, ranks // hosts)
