"""A batch under construction on the device: nodes of a type, edges of a relation, and what a hop adds to them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphmill.base.errors import InvalidInputError
from graphmill.device.kernels import DeviceKernels, HopRows
from graphmill.device.numbers import NodeNumbers
from graphmill.device.structures import DeviceColumns, HopRule


class GrowingTensor:
    """Values that are appended to, with room for more; what there is moves when there is no more room."""

    def __init__(self, kernels: DeviceKernels, dtype: torch.dtype) -> None:
        self._kernels = kernels
        self.values = kernels.empty(0, dtype)

    def reserve(self, room: int) -> None:
        """Make room for `room` values altogether."""
        if room <= len(self.values):
            return
        grown = self._kernels.empty(max(room, 2 * len(self.values)), self.values.dtype)
        grown[: len(self.values)] = self.values
        self.values = grown


@dataclass(slots=True)
class BatchNodes:
    """The batch's nodes of one type, in the order in which they were met."""

    kernels: DeviceKernels
    numbers: NodeNumbers
    is_disjoint: bool
    most: int = 0  # nodes that a subgraph can have: each once, seeds as often as they stand there
    room: int = 0  # at most so many there are
    hop_room: int = 0  # at most so many the hop before has found
    count: Tensor = field(init=False)  # int64 [1]
    span: Tensor = field(init=False)  # int64 [2]: what the hop before has found
    ids: GrowingTensor = field(init=False)  # int64
    subgraphs: GrowingTensor = field(init=False)  # int32

    def __post_init__(self) -> None:
        self.most = self.numbers.num_nodes
        self.count = self.kernels.zeros(1, torch.int64)
        self.span = self.kernels.zeros(2, torch.int64)
        self.ids = GrowingTensor(self.kernels, torch.int64)
        self.subgraphs = GrowingTensor(self.kernels, torch.int32)

    def reserve(self, extra: int) -> None:
        """Make room for `extra` more nodes."""
        room = self.room + extra if self.is_disjoint else min(self.room + extra, self.most)
        self.ids.reserve(room)
        if self.is_disjoint:
            self.subgraphs.reserve(room)
            self.numbers.make_room(room, self.ids.values, self.subgraphs.values, self.count)
        self.room = room

    def place_seeds(self, seeds: Tensor, first_subgraph: int) -> None:
        """Begin with seeds [n], int64 on the device; of one that stands twice the first counts."""
        first, count = self.room, len(seeds)
        self.most += count
        self.reserve(count)
        self.ids.values[first : first + count] = seeds
        subgraphs = None
        if self.is_disjoint:
            subgraphs = torch.arange(
                first_subgraph, first_subgraph + count, dtype=torch.int32, device=self.kernels.device
            )
            self.subgraphs.values[first : first + count] = subgraphs
        self.numbers.place_seeds(seeds, subgraphs, first)
        self.count = self.count + count

    def end_hop(self, most_new: int) -> None:
        """End a hop: nodes found since the last call, at most `most_new`, ask next."""
        self.span = torch.cat([self.span[1:], self.count])
        self.hop_room = most_new if self.is_disjoint else min(most_new, self.most)

    def subgraphs_or_none(self) -> Tensor | None:
        """int32, of each node; None where there is one subgraph."""
        return self.subgraphs.values if self.is_disjoint else None

    def clear(self) -> None:
        """Forget the batch's nodes."""
        self.numbers.clear(self.ids.values, self.count, self.room)


@dataclass(slots=True)
class BatchEdges:
    """The batch's edges of one relation."""

    kernels: DeviceKernels
    room: int = 0
    count: Tensor = field(init=False)  # int64 [1]
    positions: GrowingTensor = field(init=False)  # int64: in the columns
    targets: GrowingTensor = field(init=False)  # int32: numbers in the batch, where they are asked for
    sources: GrowingTensor = field(init=False)  # int32: numbers in the batch

    def __post_init__(self) -> None:
        self.count = self.kernels.zeros(1, torch.int64)
        self.positions = GrowingTensor(self.kernels, torch.int64)
        self.targets = GrowingTensor(self.kernels, torch.int32)
        self.sources = GrowingTensor(self.kernels, torch.int32)

    def reserve(self, extra: int, *, with_targets: bool) -> None:
        """Make room for `extra` more edges."""
        self.room += extra
        self.positions.reserve(self.room)
        self.sources.reserve(self.room)
        if with_targets:
            self.targets.reserve(self.room)


@dataclass(frozen=True, slots=True)
class HopOutcome:
    """What a hop added."""

    ends: Tensor  # int64 [rows.room + 1]: where the edges of each row lie among the batch's
    room: int  # at most so many edges were added


def sample_hop(
    kernels: DeviceKernels,
    columns: DeviceColumns,
    rows: HopRows,
    rule: HopRule,
    key: int,
    *,
    sources: BatchNodes,
    edges: BatchEdges,
    with_targets: bool,
    num_edges: int | None = None,
) -> HopOutcome:
    """Pick the in-edges that a hop takes, and number their sources.

    Args:
        kernels: of the device.
        columns: the topology.
        rows: the hop's, nodes of the type that edges lead to.
        rule: how many edges of each row, and which.
        key: of the hop.
        sources: nodes of the type that edges come from; new ones are appended.
        edges: of the relation; the hop's are appended.
        with_targets: whether the nodes that edges lead to are wanted for each edge.
        num_edges: that the hop takes, where it takes all and their number is known; None: it is not.

    Returns:
        Where the edges lie.
    """
    with_targets = with_targets or rule.fanout < 0 or sources.is_disjoint
    offered = kernels.offer(columns, rows, rule, edges.count, num_edges)
    edges.reserve(offered.room, with_targets=with_targets)
    edge_span = torch.cat([edges.count, offered.ends[-1:]])
    targets = edges.targets.values if with_targets else None
    if targets is not None:
        kernels.targets(rows, offered, edge_span, targets)
    kernels.draw(
        columns, rows, rule, offered, key=key, edge_span=edge_span, edges=edges.positions.values, targets=targets
    )
    sources.reserve(offered.room)
    sources.count = sources.numbers.meet(
        columns,
        offered,
        edges=edges.positions.values,
        targets=targets,
        target_subgraphs=rows.subgraphs,
        edge_span=edge_span,
        nodes=sources.ids.values,
        subgraphs=sources.subgraphs_or_none(),
        num_nodes=sources.count,
        indices=edges.sources.values,
    )
    edges.count = edge_span[1:]
    return HopOutcome(offered.ends, offered.room)


def seeds_on_device(kernels: DeviceKernels, seeds: Tensor, num_nodes: int, *, distinct: bool) -> Tensor:
    """Seeds as kernels take them. Those that come from the host are checked there; the device's own are trusted.

    Args:
        kernels: of the device.
        seeds: int64 [n].
        num_nodes: of their type.
        distinct: whether none may stand twice.

    Returns:
        int64 [n] on the device.

    Raises:
        InvalidInputError: a seed is not a node, or stands twice.
    """
    if seeds.device.type == "cpu" and len(seeds):
        least, largest = torch.aminmax(seeds)
        if least < 0 or largest >= num_nodes:
            wrong = int(least if least < 0 else largest)
            raise InvalidInputError(
                f"seed {wrong} is not one of the {num_nodes} nodes of its type", fix="give ids of nodes"
            )
        if distinct and len(torch.unique(seeds)) < len(seeds):
            raise InvalidInputError("a seed stands twice in one batch", fix="give each node once")
    return seeds.to(kernels.device, torch.int64, non_blocking=True).contiguous()
