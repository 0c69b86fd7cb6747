"""The edges of a batch as fused layers read them: made once for each `edge_index`, for all layers and their gradients.

What is made is kept with the tensor, and goes when the tensor goes. A change in place is seen by the tensor's version,
which torch counts; one that goes around torch (`.data`, numpy on the same memory) is not.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import TensorWeakRef, WeakTensorKeyDictionary
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from graphmill import _native
from graphmill.graph.batch import SparseRows
from graphmill.nn.attention import EdgeGroups, group_edges
from graphmill.nn.operators import segment_mean, sparse_linear
from graphmill.nn.relations import RelationEdges, RelationPairs

T = TypeVar("T")

_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # of each edge_index: (its version, {what: made})


@dataclass(frozen=True)
class LayerEdges:
    """The in-edges of each target in compressed sparse rows."""

    indptr: Tensor  # int64 [num_targets + 1]
    indices: Tensor  # int32 [num_edges]: sources
    order: Tensor | None  # int64 [num_edges]: the caller's number of each edge; None: as they stand
    num_sources: int
    values: Tensor | None = None  # float32 [num_edges]: what each edge counts in a sum; None: 1

    @property
    def num_targets(self) -> int:
        """Rows."""
        return len(self.indptr) - 1

    @cached_property
    def reached(self) -> "LayerEdges":
        """Edges without the rows at the end that have none: in a sampled batch, those of the last hop."""
        last = int(torch.searchsorted(self.indptr, len(self.indices)))
        return _for_training(lambda: replace(self, indptr=self.indptr[: last + 1]))

    @cached_property
    def _weights(self) -> Tensor:
        return _for_training(lambda: torch.ones(len(self.indices))) if self.values is None else self.values

    def aggregate(self, x: Tensor, how: str) -> Tensor:
        """The "mean" or "sum" over in-edges of the rows x [num_sources, n] → [num_targets, n]; of none it is 0."""
        if how == "mean":
            return segment_mean(x, self.indptr, self.indices)
        return sparse_linear(SparseRows(self.indptr, self.indices, self._weights, self.num_sources), x.contiguous())

    def in_order(self, values: Tensor) -> Tensor:
        """Values [num_edges, …] by the caller's numbers, as the edges stand here."""
        return values if self.order is None else values[self.order]


def kept(edge_index: Tensor, what: Hashable, others: tuple[Tensor, ...], make: Callable[[], T]) -> T:
    """What `make` makes of `edge_index` and `others`: made once, unless one of them is another tensor or was changed.

    It must not hold `edge_index`, which would then never go.
    """
    if any(each.is_inference() for each in (edge_index, *others)):  # torch counts no versions of these
        return make()
    version, made = _made.get(edge_index, (None, None))  # type: ignore[no-untyped-call]  # torch: unannotated
    if made is None or version != edge_index._version:
        made = {}
        _made[edge_index] = (edge_index._version, made)
    found: tuple[list[tuple[Any, int]], T] | None = made.get((what, len(others)))
    if found is not None and all(
        ref() is each and was == each._version for (ref, was), each in zip(found[0], others, strict=True)
    ):
        return found[1]
    result = _for_training(make)
    made[what, len(others)] = ([(TensorWeakRef(each), each._version) for each in others], result)
    return result


def _for_training(make: Callable[[], T]) -> T:
    """What is made under `torch.inference_mode` and kept must serve a gradient later."""
    with torch.inference_mode(False), torch.no_grad():
        return make()


def compressed(edge_index: Tensor, num_sources: int, num_targets: int) -> LayerEdges | None:
    """Rows of `edge_index` int64 [2, num_edges]; None where an edge leads to no node."""
    num_edges = edge_index.shape[1]
    sources, targets = edge_index[0].contiguous(), edge_index[1].contiguous()
    indptr, order = (torch.empty(count, dtype=torch.int64) for count in (num_targets + 1, num_edges))
    indices = torch.empty(num_edges, dtype=torch.int32)
    try:
        stayed = _native.compress(sources, targets, num_sources, indptr, indices, order, torch.get_num_threads())
    except ValueError:
        return None
    return LayerEdges(indptr, indices, None if stayed else order, num_sources)


def edges_of(edge_index: Tensor, num_sources: int, num_targets: int) -> LayerEdges | None:
    """`compressed`, kept."""
    what = ("edges", num_sources, num_targets)
    return kept(edge_index, what, (), lambda: compressed(edge_index, num_sources, num_targets))


def weighted_edges(
    edge_index: Tensor, edge_weight: Tensor | None, num_sources: int, num_targets: int
) -> LayerEdges | None:
    """Edges that count `edge_weight` float32 [num_edges] each."""
    edges = edges_of(edge_index, num_sources, num_targets)
    if edges is None or edge_weight is None:
        return edges
    return replace(edges, values=edges.in_order(edge_weight.detach()).contiguous())


def normalised_edges(
    edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, *, improved: bool, add_self_loops: bool
) -> LayerEdges | None:
    """The edges of GCN's normalised matrix, with its loops, as PyG makes them; kept."""

    def make() -> LayerEdges | None:
        ends, weight = gcn_norm(edge_index, edge_weight, num_nodes, improved, add_self_loops, dtype=torch.float32)
        made = compressed(ends, num_nodes, num_nodes)
        return None if made is None else replace(made, values=made.in_order(weight).contiguous())

    others = () if edge_weight is None else (edge_weight,)
    return kept(edge_index, ("normalised", num_nodes, improved, add_self_loops), others, make)


def pairs_of(edge_index: Tensor, edge_type: Tensor, num_nodes: tuple[int, int], num_relations: int) -> Any:  # noqa: ANN401
    """`RelationPairs` of the rows that have edges, kept; None where an edge or its relation is out of range."""

    def make() -> RelationPairs | None:
        edges = edges_of(edge_index, *num_nodes)
        if edges is None or (len(edge_type) and not 0 <= int(edge_type.min()) <= int(edge_type.max()) < num_relations):
            return None
        typed = RelationEdges(edges.reached.indptr, edges.indices, edges.in_order(edge_type), num_relations)
        return RelationPairs.of(typed)

    return kept(edge_index, ("pairs", num_nodes, num_relations), (edge_type,), make)


def groups_of(edge_index: Tensor, num_sources: int, num_targets: int, num_loops: int) -> EdgeGroups | None:
    """Edges as attention reads them, with `num_loops` loops, kept; None where an edge leads to no node."""
    by_source = torch.is_grad_enabled()  # for the gradient

    def make() -> Any:  # noqa: ANN401  # its tensors: the whole would hold edge_index
        try:
            return group_edges(edge_index, num_sources, num_targets, num_loops, by_source=by_source).tensors
        except ValueError:
            return None

    tensors = kept(edge_index, ("groups", num_sources, num_targets, num_loops, by_source), (), make)
    return None if tensors is None else EdgeGroups(edge_index, tensors, num_sources, num_targets, num_loops)
