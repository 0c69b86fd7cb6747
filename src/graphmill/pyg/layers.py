"""PyG's layers, computed by graphmill's operators on CPUs: the same classes, `state_dict`s and results.

Each is a subclass of PyG's and says when PyG's own code computes. For all of them that is:

- `x` or parameters are not on the CPU, not float32, or not matrices (`x` may be a sparse CSR tensor, but for GIN and
  RGCN); `x` is empty; `edge_index` is not a plain int64 [2, num_edges] (a `SparseTensor`, a sparse tensor or an
  `EdgeIndex`), or leads to nodes that do not exist;
- under `torch.compile`, `torch.jit`, autocast, `torch.func` and explainers, with `flow="target_to_source"`, with
  `decomposed_layers`, with hooks on the steps of message passing or on the parts of a layer, before a lazy layer knows
  its shapes, and in a class that overrides a step of message passing.

Results differ from PyG's by roundings. There are first derivatives only: a second one raises, and says so.
"""

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import nn as peers
from torch_geometric.typing import OptPairTensor, OptTensor

from graphmill.nn.operators import linear, self_and_sum
from graphmill.nn.relations import pair_sum
from graphmill.pyg.layer_choice import (
    LayerEnds,
    aggregates_first,
    aggregation_of,
    are_weights,
    ends_of,
    is_ours,
    projected,
)
from graphmill.pyg.layer_edges import LayerEdges, edges_of, normalised_edges, pairs_of, weighted_edges


class SAGEConv(peers.SAGEConv):  # type: ignore[misc]  # PyG is not typed
    """PyG's `SAGEConv`: x'ᵢ = W_r xᵢ + W_l · mean of xⱼ over the edges j → i, + b (arXiv 1706.02216).

    Fused for `aggr` "mean", "sum" and "add". PyG's own code computes in the cases that `graphmill.pyg.layers` lists
    (GPU, float64, sparse adjacency, …), for other aggregations ("max", "lstm", several), with `project=True`, and
    for (sources, None) without a `size`.
    """

    propagate_type: ClassVar = {"x": OptPairTensor}  # PyG would search the text of the class for it, by its name

    def forward(
        self, x: Tensor | OptPairTensor, edge_index: Tensor, size: tuple[int, int] | None = None
    ) -> Tensor:  # fmt: skip
        """[num_targets, out_channels].

        Args:
            x: float32 [num_nodes, in_channels], or (sources [num_sources, …], targets [num_targets, …] or None).
            edge_index: int64 [2, num_edges], sources first, in any order; sorted by target it costs one pass.
            size: (num_sources, num_targets).
        """
        ends = ends_of(x, size)
        how = aggregation_of(self, peers.SAGEConv)
        parts = [self.lin_l, *([self.lin_r] if self.root_weight else [])]
        if ends is None or how is None or self.project or not is_ours(ends, edge_index, parts, sparse=True):
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        edges = edges_of(edge_index, *ends.sizes)
        if edges is None:
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        out = self._sum(ends, edges.reached, how)
        return F.normalize(out, p=2.0, dim=-1) if self.normalize else out

    def _sum(self, ends: LayerEnds, edges: LayerEdges, how: str) -> Tensor:
        weight, bias = self.lin_l.weight, self.lin_l.bias
        if aggregates_first(edges, ends.source, self.out_channels):
            part = linear(edges.aggregate(ends.source, how), weight, None)
        else:
            part = edges.aggregate(projected(ends.source, weight, None), how)
        if self.root_weight and ends.target is not None:
            own = projected(ends.target, self.lin_r.weight, bias)
        else:
            shape = (ends.sizes[1], self.out_channels)
            own = part.new_zeros(shape) if bias is None else bias.repeat(shape[0], 1)
        return _added(own, part)


class GCNConv(peers.GCNConv):  # type: ignore[misc]
    """PyG's `GCNConv`: D^(-1/2) (A + I) D^(-1/2) x W + b (arXiv 1609.02907); the matrix is made once for all layers.

    PyG's own code computes in the cases that `graphmill.pyg.layers` lists (GPU, float64, sparse adjacency, …), where
    `edge_weight` asks for a gradient or is not float32 [num_edges], with `cached=True`, and for an `aggr` other than
    "add" and "sum".
    """

    propagate_type: ClassVar = {"x": Tensor, "edge_weight": OptTensor}

    def forward(
        self, x: Tensor | tuple[Tensor, Tensor], edge_index: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        """[num_nodes, out_channels].

        Args:
            x: float32 [num_nodes, in_channels]; with `normalize=False`, (sources [num_sources, …], targets
                [num_targets, …]) too, of which targets are counted alone: the result is [num_targets, out_channels].
            edge_index: int64 [2, num_edges], sources first, in any order.
            edge_weight: float32 [num_edges]; None: 1 each.
        """
        rows, num_targets = x, None
        if isinstance(x, tuple) and not self.normalize:
            rows, num_targets = x[0], len(x[1])
        edges = self._edges(rows, edge_index, edge_weight, num_targets)
        if edges is None or not isinstance(rows, Tensor):
            out = super().forward(rows, edge_index, edge_weight)
            return out if num_targets is None else out[:num_targets]  # type: ignore[no-any-return]
        weight = self.lin.weight
        if aggregates_first(edges, rows, self.out_channels):
            return linear(edges.aggregate(rows, "sum"), weight, self.bias)
        out = edges.aggregate(projected(rows, weight, None), "sum")
        return out if self.bias is None else out.add_(self.bias)

    def _edges(
        self, x: object, edge_index: Tensor, edge_weight: Tensor | None, num_targets: int | None
    ) -> LayerEdges | None:
        """Edges as the layer reads them; None: PyG's own code computes. `num_targets`: None for as many as sources."""
        ends = ends_of(x, None) if isinstance(x, Tensor) else None
        if not isinstance(x, Tensor) or ends is None or self.cached or aggregation_of(self, peers.GCNConv) != "sum":
            return None
        if not is_ours(ends, edge_index, [self.lin], sparse=True) or not are_weights(edge_weight, edge_index):
            return None
        if not self.normalize:
            return weighted_edges(edge_index, edge_weight, len(x), len(x) if num_targets is None else num_targets)
        return normalised_edges(
            edge_index, edge_weight, len(x), improved=self.improved, add_self_loops=self.add_self_loops
        )


class GINConv(peers.GINConv):  # type: ignore[misc]
    """PyG's `GINConv`: nn((1 + eps) xᵢ + Σ xⱼ over the edges j → i) (arXiv 1810.00826); `nn` runs as it is.

    Fused for `aggr` "add", "sum" and "mean". PyG's own code computes in the cases that `graphmill.pyg.layers` lists
    (GPU, float64, sparse adjacency, …), for other aggregations, and for (sources, None) without a `size`.
    """

    propagate_type: ClassVar = {"x": OptPairTensor}

    def forward(
        self, x: Tensor | OptPairTensor, edge_index: Tensor, size: tuple[int, int] | None = None
    ) -> Tensor:  # fmt: skip
        """What `nn` makes of the sums [num_targets, in_channels].

        Args:
            x: float32 [num_nodes, in_channels], or (sources [num_sources, …], targets [num_targets, …] or None).
            edge_index: int64 [2, num_edges], sources first, in any order.
            size: (num_sources, num_targets).
        """
        ends, how = ends_of(x, size), aggregation_of(self, peers.GINConv)
        if ends is None or how is None or not is_ours(ends, edge_index, [], self.eps):
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        edges = edges_of(edge_index, *ends.sizes)
        if edges is None:
            return super().forward(x, edge_index, size)  # type: ignore[no-any-return]
        if how == "sum" and ends.target is ends.source:
            return self.nn(self_and_sum(ends.source, self.eps, edges.indptr, edges.indices))  # type: ignore[no-any-return]
        out = edges.aggregate(ends.source, how)
        out = out if ends.target is None else torch.addcmul(out, ends.target, 1 + self.eps)
        return self.nn(out)  # type: ignore[no-any-return]


class RGCNConv(peers.RGCNConv):  # type: ignore[misc]
    """PyG's `RGCNConv`: W₀ xᵢ + Σᵣ Wᵣ · mean of xⱼ over the edges j → i of relation r, + b (arXiv 1703.06103).

    Fused for `aggr` "mean", "sum" and "add", with and without `num_bases`; pyg-lib's `segment_matmul` is not used.
    PyG's own code computes in the cases that `graphmill.pyg.layers` lists (GPU, float64, sparse adjacency, …), for
    `aggr="max"`, with `num_blocks`, for x that is None or numbers of nodes, and where an `edge_type` is out of range.
    """

    propagate_type: ClassVar = {"x": Tensor, "edge_type_ptr": OptTensor}

    def forward(
        self, x: Tensor | tuple[Tensor | None, Tensor] | None, edge_index: Tensor, edge_type: Tensor | None = None
    ) -> Tensor:  # fmt: skip
        """[num_targets, out_channels].

        Args:
            x: float32 [num_nodes, in_channels], or (sources [num_sources, …], targets [num_targets, …]).
            edge_index: int64 [2, num_edges], sources first, in any order.
            edge_type: int64 [num_edges], from 0 to num_relations - 1.
        """
        ends = ends_of(x, None)
        pairs = None if ends is None else self._pairs(ends, edge_index, edge_type)
        if ends is None or pairs is None:
            return super().forward(x, edge_index, edge_type)  # type: ignore[no-any-return]
        assert ends.target is not None
        weight = self.weight
        if self.num_bases is not None:
            weight = (self.comp @ weight.flatten(1)).view(self.num_relations, *weight.shape[1:])
        weight = weight.transpose(1, 2).contiguous()
        part = pair_sum(ends.source, pairs, weight, of_sums=aggregation_of(self, peers.RGCNConv) == "sum")
        if self.root is not None:
            return _added(linear(ends.target.contiguous(), self.root.t().contiguous(), self.bias), part)
        shape = (ends.sizes[1], self.out_channels)
        return _added(part.new_zeros(shape) if self.bias is None else self.bias.repeat(shape[0], 1), part)

    def _pairs(self, ends: LayerEnds, edge_index: Tensor, edge_type: Tensor | None) -> Any:  # noqa: ANN401
        """Pairs of relations as the layer reads them; None: PyG's own code computes."""
        if self.num_blocks is not None or ends.target is None or aggregation_of(self, peers.RGCNConv) is None:
            return None
        if not is_ours(ends, edge_index, [], self.weight):
            return None
        if ends.source.shape[1] != self.weight.shape[1] or (
            self.root is not None and ends.target.shape[1] != self.root.shape[0]
        ):
            return None
        if type(edge_type) is not Tensor or edge_type.dtype != torch.int64 or edge_type.shape != edge_index.shape[1:]:
            return None
        return pairs_of(edge_index, edge_type, ends.sizes, self.num_relations)


class _Added(torch.autograd.Function):
    """own[: len(part)] += part, in place."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, part: Tensor) -> Tensor:  # noqa: ANN401
        ctx.num_rows = len(part)
        ctx.mark_dirty(rows)
        rows[: len(part)] += part
        return rows

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        return grad, grad[: ctx.num_rows]


def _added(rows: Tensor, part: Tensor) -> Tensor:
    """`rows` [num_targets, n], whose first rows have `part` [num_reached, n] added."""
    return _Added.apply(rows, part)  # type: ignore[no-any-return,no-untyped-call]
