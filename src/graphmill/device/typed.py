"""Sampling over nodes and edges of several types: what `_native.TypedNeighborSampler` computes, on the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch
from torch import Tensor

from graphmill import _native
from graphmill.base.errors import InvalidInputError
from graphmill.device.growth import BatchEdges, BatchNodes, HopOutcome, sample_hop, seeds_on_device
from graphmill.device.kernels import DeviceKernels, HopRows
from graphmill.device.numbers import NodeNumbers, SubgraphNodeNumbers
from graphmill.device.structures import DeviceColumns, HopRule

_OF_RELATION: Final = 1 << 32  # coordinates of relations, apart from those of hops
_NO_TIME: Final = torch.iinfo(torch.int64).max  # until which all edges exist
_LAST: Final = torch.iinfo(torch.int32).max  # behind all subgraphs


@dataclass(frozen=True, slots=True)
class TypedSeedsOnDevice:
    """Seeds of one type."""

    type_: int
    nodes: Tensor  # int64 [n]; a node may stand twice
    times: Tensor | None = None  # int64 [n]; only where each seed has a subgraph of its own


@dataclass(frozen=True, slots=True)
class TypedRule:
    """How neighbourhoods are sampled."""

    fanouts: Sequence[Sequence[int]]  # of each relation, hop by hop
    key: int
    replace: bool = False
    last: bool = False
    disjoint: bool = False  # a subgraph of its own around each seed
    induced: bool = False  # with all edges between the nodes of a subgraph


@dataclass(frozen=True, slots=True)
class TypedOnDevice:
    """What was sampled, as `_native.TypedSubgraph` has it; of each type or relation, cut to what it holds."""

    node_ids: list[Tensor]  # int64 [num_nodes]
    subgraphs: list[Tensor]  # int32 [num_nodes], empty where seeds share one
    edge_index: list[Tensor]  # int32 [2, num_edges]: sources, targets, numbered in their types
    edge_ids: list[Tensor]  # int64 [num_edges]: the caller's numbers
    num_nodes_per_hop: list[list[int]]
    num_edges_per_hop: list[list[int]]  # none where all edges of subgraphs were taken


class TypedDeviceSampler:
    """Samples around seeds of any type, in relations between types; batches are bit-identical to the CPU's."""

    def __init__(self, kernels: DeviceKernels, num_nodes: Sequence[int], relations: Sequence[DeviceColumns]) -> None:
        self.kernels = kernels
        self._num_nodes = list(num_nodes)
        self._relations = list(relations)
        self._together: list[NodeNumbers] | None = None
        self._apart: list[NodeNumbers] | None = None

    def sample(self, seeds: Sequence[TypedSeedsOnDevice], rule: TypedRule) -> TypedOnDevice:
        """The neighbourhood of seeds; the host waits at its end to know how large it is.

        Args:
            seeds: of each type at most once; numbered through in their order they are the numbers of subgraphs.
            rule: how many edges, and which.

        Raises:
            InvalidInputError: a seed is not a node, or has a time where seeds share a subgraph.
        """
        batch = _TypedBatch(self, rule)
        batch.place(seeds)
        for hop in range(len(rule.fanouts[0]) if rule.fanouts else 0):
            batch.hop(hop)
        if rule.induced:
            batch.induce()
        sampled = batch.result()
        for nodes in batch.nodes:
            nodes.clear()
        return sampled

    def numbers(self, *, disjoint: bool) -> list[NodeNumbers]:
        """Tables of the nodes of each type and their numbers, kept from batch to batch."""
        if disjoint:
            if self._apart is None:
                self._apart = [SubgraphNodeNumbers(self.kernels, count) for count in self._num_nodes]
            return self._apart
        if self._together is None:
            self._together = [NodeNumbers(self.kernels, count) for count in self._num_nodes]
        return self._together

    @property
    def relations(self) -> list[DeviceColumns]:
        """Relations in the order of their numbers."""
        return self._relations


class _TypedBatch:
    """A neighbourhood under construction."""

    def __init__(self, sampler: TypedDeviceSampler, rule: TypedRule) -> None:
        self._kernels = sampler.kernels
        self._relations = sampler.relations
        self._rule = rule
        numbers = sampler.numbers(disjoint=rule.disjoint)
        self.nodes = [BatchNodes(self._kernels, of_type, rule.disjoint) for of_type in numbers]
        self._edges = [BatchEdges(self._kernels) for _ in self._relations]
        self._times: Tensor | None = None
        self._node_counts: list[list[Tensor]] = [[] for _ in self.nodes]
        self._edge_counts: list[list[Tensor]] = [[] for _ in self._relations]

    def place(self, seeds: Sequence[TypedSeedsOnDevice]) -> None:
        first, times = 0, []
        for of_type in seeds:
            nodes = self.nodes[of_type.type_]
            if of_type.times is not None and not self._rule.disjoint:
                raise InvalidInputError("seeds with times share a subgraph", fix="sample with disjoint=True")
            on_device = seeds_on_device(self._kernels, of_type.nodes, nodes.numbers.num_nodes, distinct=False)
            nodes.place_seeds(on_device, first)
            first += len(on_device)
            if of_type.times is None:
                times.append(torch.full((len(on_device),), _NO_TIME, dtype=torch.int64, device=self._kernels.device))
            else:
                times.append(of_type.times.to(self._kernels.device, torch.int64, non_blocking=True))
        if any(of_type.times is not None for of_type in seeds):
            self._times = torch.cat(times)
        self._end_hop([nodes.room for nodes in self.nodes])

    def hop(self, hop: int) -> None:
        found = [0] * len(self.nodes)
        begins = [nodes.count for nodes in self.nodes]
        edges_before = [edges.count for edges in self._edges]
        reached = [0] * len(self.nodes)
        for number in range(len(self._relations)):
            outcome = self._relation_hop(number, hop)
            if outcome is not None:
                found[self._relations[number].source_type] += outcome.room
                reached[self._relations[number].source_type] += 1
        for type_, times in enumerate(reached):
            if times > 1 and self._rule.disjoint:
                self._put_by_subgraph(type_, begins[type_], found[type_], edges_before)
        self._end_hop(found)

    def _relation_hop(self, number: int, hop: int) -> HopOutcome | None:
        columns, rule = self._relations[number], self._rule
        fanout = rule.fanouts[number][hop]
        if fanout == 0:
            return None
        target = self.nodes[columns.target_type]
        key = rule.key if len(self._relations) == 1 else _native.subkey(rule.key, _OF_RELATION + number)
        return sample_hop(
            self._kernels,
            columns,
            self._rows(target, target.span, target.hop_room),
            HopRule(fanout, rule.replace, rule.last),
            _native.subkey(key, hop),
            sources=self.nodes[columns.source_type],
            edges=self._edges[number],
            with_targets=True,
        )

    def _rows(self, target: BatchNodes, span: Tensor, room: int) -> HopRows:
        return HopRows(target.ids.values, span, room, subgraphs=target.subgraphs_or_none(), times=self._times)

    def _end_hop(self, most_new: list[int]) -> None:
        for type_, nodes in enumerate(self.nodes):
            nodes.end_hop(most_new[type_])
            self._node_counts[type_].append(nodes.count)
        for number, edges in enumerate(self._edges):
            self._edge_counts[number].append(edges.count)

    def _put_by_subgraph(self, type_: int, begin: Tensor, room: int, edges_before: list[Tensor]) -> None:
        """Order new nodes that several relations found one after the other by their subgraphs.

        On the CPU each subgraph is grown by itself, so that its nodes stand together.
        """
        nodes = self.nodes[type_]
        places = begin + torch.arange(room, device=self._kernels.device)
        is_node = places < nodes.count
        subgraphs, ids = nodes.subgraphs.values, nodes.ids.values
        places = torch.where(is_node, places, places.new_full((), len(ids) - 1))
        order = torch.argsort(torch.where(is_node, subgraphs[places], _LAST), stable=True)
        rank = torch.empty_like(order)
        rank[order] = torch.arange(room, device=self._kernels.device)
        sorted_ids, sorted_subgraphs = ids[places[order]], subgraphs[places[order]]
        span = torch.cat([begin, nodes.count])
        self._overwrite(ids, sorted_ids, span)
        self._overwrite(subgraphs, sorted_subgraphs, span)
        launch = self._kernels.driver.launch
        launch("renumber", room, nodes.numbers.struct(), ids, subgraphs, span, room)
        for number, edges in enumerate(self._edges):
            if self._relations[number].source_type == type_:
                self._renumber_sources(edges, edges_before[number], begin, rank)

    def _overwrite(self, values: Tensor, sorted_: Tensor, span: Tensor) -> None:
        """Put `sorted_` at span[0] of values, as many as the span is long."""
        places = torch.arange(len(values), device=self._kernels.device)
        is_new = (places >= span[0]) & (places < span[1])
        values.copy_(torch.where(is_new, sorted_[(places - span[0]).clamp(0, len(sorted_) - 1)], values))

    def _renumber_sources(self, edges: BatchEdges, before: Tensor, begin: Tensor, rank: Tensor) -> None:
        sources = edges.sources.values
        places = torch.arange(len(sources), device=self._kernels.device)
        is_new = (places >= before) & (places < edges.count) & (sources >= begin)
        moved = begin + rank[(sources - begin).clamp(0, len(rank) - 1)]
        sources.copy_(torch.where(is_new, moved, sources))

    def induce(self) -> None:
        """Replace the edges that were drawn by all edges between the nodes of a subgraph."""
        self._edges = [self._induced(columns) for columns in self._relations]

    def _induced(self, columns: DeviceColumns) -> BatchEdges:
        target, launch = self.nodes[columns.target_type], self._kernels.driver.launch
        count = int(target.count)
        order = torch.arange(count, device=self._kernels.device)
        if self._rule.disjoint:
            order = torch.argsort(target.subgraphs.values[:count], stable=True)
        rows = self._rows(target, torch.cat([torch.zeros_like(target.count), target.count]), count)
        places = self.nodes[columns.source_type].numbers.struct()
        counts = self._kernels.empty(count, torch.int64)
        launch("induce", count, columns.struct(), places, rows.struct(), order, None, counts, None, None, None)
        ends = torch.cat([torch.zeros_like(target.count), counts.cumsum(0)])
        edges = BatchEdges(self._kernels)
        edges.reserve(int(ends[-1]), with_targets=True)
        launch(
            "induce", count, columns.struct(), places, rows.struct(), order, ends, counts, edges.sources.values,
            edges.targets.values, edges.positions.values,
        )  # fmt: skip
        edges.count = ends[-1:]
        return edges

    def result(self) -> TypedOnDevice:
        nodes, edges = self._host_counts(self._node_counts), self._host_counts(self._edge_counts)
        totals = torch.cat([one.count for one in self._edges]).tolist() if self._edges else []
        out = TypedOnDevice([], [], [], [], [], [])
        for of_type, ends in zip(self.nodes, nodes, strict=True):
            out.node_ids.append(of_type.ids.values[: ends[-1]])
            out.subgraphs.append(of_type.subgraphs.values[: ends[-1]])
            out.num_nodes_per_hop.append([ends[0], *_steps(ends)])
        for columns, relation, ends, total in zip(self._relations, self._edges, edges, totals, strict=True):
            positions = relation.positions.values[:total]
            out.edge_index.append(torch.stack([relation.sources.values[:total], relation.targets.values[:total]]))
            out.edge_ids.append(positions if columns.order is None else columns.order[positions])
            out.num_edges_per_hop.append([] if self._rule.induced else _steps(ends))
        return out

    @staticmethod
    def _host_counts(counts: list[list[Tensor]]) -> list[list[int]]:
        if not counts:
            return []
        ends: list[list[int]] = torch.stack([torch.cat(of_one) for of_one in counts]).tolist()
        return ends


def _steps(ends: list[int]) -> list[int]:
    return [end - begin for begin, end in pairwise(ends)]
