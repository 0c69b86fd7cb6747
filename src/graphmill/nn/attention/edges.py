"""Edges as attention reads them: by target, and for the gradient by source, with their places in the caller's order."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmill import _native
from graphmill.nn.define import define
from graphmill.nn.operators import segment_mean

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "min": "amin", "max": "amax", "mul": "prod"}


@dataclass(frozen=True, slots=True)
class EdgeGroups:
    """The edges of a graph, grouped once for any number of layers and epochs (`group_edges`).

    With loops, node i < num_loops has one edge to itself whose id is num_edges + i, and edges from a node to itself
    that the caller gave are left out: their room at the end of each tensor of edges is not used.
    """

    edge_index: Tensor  # int64 [2, num_edges], as given
    tensors: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
    num_sources: int
    num_targets: int
    num_loops: int

    @property
    def indptr(self) -> Tensor:
        """int64 [num_targets + 1]."""
        return self.tensors[0]

    @property
    def edge_ids(self) -> Tensor:
        """int32 [num_edges]: the place of each grouped edge in the caller's order."""
        return self.tensors[2]


def _group_edges(
    edge_index: Tensor, num_sources: int, num_targets: int, num_loops: int, by_source: bool
) -> list[Tensor]:
    made = _empty_groups(edge_index, num_sources, num_targets, num_loops, by_source)
    for_gradient = made[3:] if by_source else [None] * 3
    _native.group_edges(
        edge_index[0].contiguous(), edge_index[1].contiguous(), num_sources, num_targets, num_loops, *made[:3],
        *for_gradient,
    )  # fmt: skip
    return made


def _empty_groups(
    edge_index: Tensor, num_sources: int, num_targets: int, num_loops: int, by_source: bool
) -> list[Tensor]:
    def empty(count: int, dtype: torch.dtype) -> Tensor:
        return edge_index.new_empty(count, dtype=dtype)

    num_edges = edge_index.shape[1]
    outgoing = (num_sources + 1, num_edges) if by_source else (0, 0)
    return [
        empty(num_targets + 1, torch.int64), empty(num_edges, torch.int32), empty(num_edges, torch.int32),
        empty(outgoing[0], torch.int64), empty(outgoing[1], torch.int32), empty(outgoing[1], torch.int32),
    ]  # fmt: skip


def _sorted_groups(
    edge_index: Tensor, num_sources: int, num_targets: int, num_loops: int, by_source: bool
) -> list[Tensor]:
    """Group edges by node with stable sorts, on the device of `edge_index`, without waiting for it."""
    sources, targets = edge_index
    inside = (sources >= 0) & (sources < num_sources) & (targets >= 0) & (targets < num_targets)
    torch._assert_async(inside.all(), f"an edge leads beyond {num_sources} sources or {num_targets} targets")
    if num_loops:
        targets = torch.where(sources == targets, num_targets, targets)  # left out: beyond all rows
    indptr, order, by_target = _rows_of(targets, num_targets)
    is_used = torch.arange(len(order), device=order.device) < indptr[-1]
    edge_ids, incoming = (torch.where(is_used, each, 0) for each in (order, sources[order]))
    made = [indptr, incoming.int(), edge_ids.int()]
    if not by_source:
        return [*made, *_empty_groups(edge_index, num_sources, num_targets, num_loops, by_source)[3:]]
    out_indptr, slots, _ = _rows_of(torch.where(is_used, incoming, num_sources), num_sources)
    outgoing = (torch.where(is_used, each, 0).int() for each in (by_target[slots], slots))
    return [*made, out_indptr, *outgoing]


def _rows_of(rows: Tensor, num_rows: int) -> tuple[Tensor, Tensor, Tensor]:
    """(where each row begins [num_rows + 1], entries in the order of their rows, rows in that order)."""
    in_order, order = torch.sort(rows.int(), stable=True)
    begins = torch.arange(num_rows + 1, dtype=torch.int32, device=rows.device)
    return torch.searchsorted(in_order, begins), order, in_order


_grouped = define(
    "group_edges(Tensor edge_index, SymInt num_sources, SymInt num_targets, SymInt num_loops, bool by_source) "
    "-> Tensor[]",
    _group_edges,
    _empty_groups,
    on_gpu=_sorted_groups,
)


def group_edges(
    edge_index: Tensor, num_sources: int, num_targets: int, num_loops: int, *, by_source: bool = True
) -> EdgeGroups:
    """Group edges by target and by source, once for all layers and steps that read them.

    Args:
        edge_index: int64 [2, num_edges], in any order, sources first.
        num_sources: nodes that edges may come from.
        num_targets: nodes that edges may lead to.
        num_loops: nodes, from the first on, that get an edge to themselves in place of any they have; 0: edges stay as
            they are.
        by_source: may be False where no gradient will be asked for.

    Returns:
        What the layers take in place of `edge_index`.

    Raises:
        ValueError: an edge leads from or to a node that does not exist; on a GPU the device reports it, later.
    """
    first, second, third, fourth, fifth, sixth = _grouped(edge_index, num_sources, num_targets, num_loops, by_source)
    tensors = (first, second, third, fourth, fifth, sixth)
    return EdgeGroups(edge_index, tensors, num_sources, num_targets, num_loops)


def loop_features(edge_attr: Tensor, fill_value: float | Tensor | str, groups: EdgeGroups) -> Tensor:
    """Features of the loops [num_loops, edge_dim]: a value, or what reduces those of the edges to the same node."""
    shape = (groups.num_loops, edge_attr.shape[1])
    if isinstance(fill_value, Tensor):
        return fill_value.to(edge_attr).expand(shape).contiguous()
    if not isinstance(fill_value, str):
        return edge_attr.new_full(shape, fill_value)
    if fill_value == "mean" and groups.num_loops:
        if edge_attr.device.type == "cpu":
            return segment_mean(edge_attr, groups.indptr[: groups.num_loops + 1], groups.edge_ids)
        return summed_mean(edge_attr, groups)
    return reduced_features(edge_attr, fill_value, groups.edge_index, groups.num_targets)[: groups.num_loops]


def summed_mean(edge_attr: Tensor, groups: EdgeGroups) -> Tensor:
    """Means [num_loops, edge_dim] over the edges to each node, by one sum over segments: the same in every run.

    An embedding bag would take the unused room at the end of `edge_ids` for the last node's.
    """
    begins = groups.indptr[: groups.num_loops + 1]
    rows = edge_attr[groups.edge_ids.long()].float()
    sums = torch.segment_reduce(rows, "sum", offsets=begins, axis=0, initial=0.0)
    return (sums / begins.diff().clamp(min=1).unsqueeze(1)).to(edge_attr.dtype)


def reduced_features(edge_attr: Tensor, fill_value: str, edge_index: Tensor, num_targets: int) -> Tensor:
    """[num_targets, edge_dim]: features of the edges to each node but for its own loop, reduced; 0 of none (mul: 1)."""
    sources, targets = edge_index
    rows = torch.where(sources == targets, num_targets, targets).unsqueeze(1).expand_as(edge_attr)
    made = edge_attr.new_full((num_targets + 1, edge_attr.shape[1]), 1.0 if fill_value == "mul" else 0.0)
    return made.scatter_reduce(
        0, rows, edge_attr, REDUCTIONS[fill_value], include_self=fill_value in {"mul", "add", "sum"}
    )[:num_targets]
