"""The operators of layers that have a matrix for each relation of the edges, or for each type of the rows.

On the CPU in float32 the work is native and writes no message per edge and basis: edges of a row and a relation are
averaged first, so each such pair is one row of a product, and the rows of a relation lie together. No bit depends on
the number of threads. Elsewhere the same sums are torch's, of operators that never wait for the device and add up in
the same order every time.

Typed rows: on the CPU in float32 those of a type lie together for one product a type; results do not depend on the
number of threads. Elsewhere each type's product is made for all rows, and each row takes its own: no wait for the
device.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill.graph.batch import MiniBatch, SparseRows
from graphmill.nn import native
from graphmill.nn.layer_edges import edges_of
from graphmill.nn.operators import is_native, linear, sparse_linear


@dataclass(frozen=True, slots=True)
class RelationEdges:
    """The edges that a layer reads in compressed sparse rows, and the relation of each."""

    indptr: Tensor  # int64 [num_rows + 1], from 0
    sources: Tensor  # int32 [num_edges]
    relations: Tensor  # int64 [num_edges], from 0 to num_relations - 1
    num_relations: int

    @property
    def num_rows(self) -> int:
        """Rows of the layer's result."""
        return len(self.indptr) - 1

    @classmethod
    def of_layer(cls, batch: MiniBatch, number: int, num_relations: int) -> "RelationEdges":
        """Edges of layer `number`, counted from 0; the relation of an edge is the last column of `edge_attr`."""
        block, edge_attr = edges_of(batch, number)
        return cls(block.indptr, block.indices, edge_attr[:, -1].long(), num_relations)


def relation_sum(h: Tensor, edges: RelationEdges, weight: Tensor, comp: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Σᵣ Wᵣ · mean of h over the in-neighbours by relation r → float32 [num_rows, num_out]; the mean of nothing is 0.

    `h` [n, num_in]. `comp` None: `weight` [num_relations, num_out, num_in] holds each Wᵣ; else `weight` [num_bases,
    num_out, num_in] and `comp` [num_relations, num_bases] make Wᵣ = Σ_b comp[r, b] weight[b] (equation 3 of arXiv
    1703.06103). `dtype`: of the factors of the dense product.
    """
    if is_native(h) and dtype == torch.float32:
        return pair_sum(h, RelationPairs.of(edges), weight if comp is None else combined(weight, comp))
    return _by_bases(h, edges, weight, comp, dtype)


def combined(weight: Tensor, comp: Tensor) -> Tensor:
    """Wᵣ = Σ_b comp[r, b] weight[b] → [num_relations, num_out, num_in]."""
    return linear(comp, weight.flatten(1).t().contiguous(), None).view(len(comp), *weight.shape[1:])


@dataclass(frozen=True, slots=True)
class RelationPairs:
    """The (relation, row) pairs that have edges, by relation, then row."""

    indptr: Tensor  # int64 [num_pairs + 1]: the edges of each
    sources: Tensor  # int32 [num_edges], by pair
    of_relation: Tensor  # int64 [num_relations + 1]: the pairs of each
    of_row: SparseRows  # [num_rows, num_pairs], of ones: which pairs a row has

    @classmethod
    def of(cls, edges: RelationEdges) -> "RelationPairs":
        """Find the pairs of `edges`, which are on the CPU."""
        counted = np.min_scalar_type(edges.num_relations)  # of a byte or two numpy sorts by counting
        order = np.argsort(edges.relations.numpy().astype(counted), kind="stable")  # by row they are already
        relations = edges.relations.numpy()[order]
        rows = np.repeat(np.arange(edges.num_rows), edges.indptr.diff().numpy())[order]
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = (np.diff(relations) != 0) | (np.diff(rows) != 0)
        begins = np.flatnonzero(is_first)
        of_row = np.zeros(edges.num_rows + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows[begins], minlength=edges.num_rows), out=of_row[1:])
        return cls(
            torch.from_numpy(np.append(begins, len(order))),
            edges.sources[torch.from_numpy(order)],
            torch.from_numpy(np.searchsorted(relations[begins], np.arange(edges.num_relations + 1))),
            SparseRows(
                torch.from_numpy(of_row),
                torch.from_numpy(np.argsort(rows[begins], kind="stable").astype(np.int32)),
                torch.ones(len(begins)),
                len(begins),
            ),
        )


def pair_sum(h: Tensor, pairs: RelationPairs, weight: Tensor, *, of_sums: bool = False) -> Tensor:
    """Σᵣ Wᵣ · mean of h over the in-neighbours by relation r → [num_rows, num_out], for float32 on the CPU.

    `h` [n, num_in], `weight` [num_relations, num_out, num_in]. `of_sums`: their sum in place of their mean.
    """
    h = h.contiguous()
    if of_sums:
        of_pairs = sparse_linear(SparseRows(pairs.indptr, pairs.sources, torch.ones(len(pairs.sources)), len(h)), h)
    else:
        of_pairs = native.segment_mean(h, pairs.indptr, pairs.sources)
    return sparse_linear(pairs.of_row, native.grouped_linear(of_pairs, weight, None, pairs.of_relation))


def _by_bases(h: Tensor, edges: RelationEdges, weight: Tensor, comp: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Sum over relations: for each basis the neighbours by their relations' shares, then one product for all."""
    shares = _means_of(edges, h.dtype)
    of_basis = [
        F.embedding_bag(
            edges.sources.long(),
            h,
            edges.indptr,
            mode="sum",
            include_last_offset=True,
            per_sample_weights=shares * _share_of(basis, edges, comp),
        )
        for basis in range(len(weight))
    ]
    together = weight.permute(1, 0, 2).flatten(1)  # [num_out, num_bases * num_in]
    return linear(torch.cat(of_basis, dim=1).to(dtype), together, None)


def _share_of(basis: int, edges: RelationEdges, comp: Tensor | None) -> Tensor:
    """How much of a basis the matrix of each edge's relation has [num_edges]."""
    if comp is None:
        return edges.relations == basis
    # Not comp[relations]: the gradient of that adds up in an order that a GPU chooses anew each time.
    return F.embedding(edges.relations, comp[:, basis : basis + 1]).squeeze(1)


def _means_of(edges: RelationEdges, dtype: torch.dtype) -> Tensor:
    """1 / number of edges of the same row and relation, for each edge [num_edges]."""
    rows = torch.arange(edges.num_rows, device=edges.indptr.device)
    row_of_edge = torch.repeat_interleave(rows, edges.indptr.diff(), output_size=len(edges.sources))
    pair = row_of_edge * edges.num_relations + edges.relations
    counts = torch.zeros(edges.num_rows * edges.num_relations, dtype=dtype, device=pair.device)
    counts = counts.index_add(0, pair, torch.ones_like(pair, dtype=dtype))  # whole numbers: exact in any order
    return 1 / counts[pair]


@dataclass(frozen=True, slots=True)
class TypedRows:
    """The types of some rows, and on the CPU an order in which the rows of a type lie together."""

    types: Tensor  # int64 [n]
    num_types: int
    order: Tensor  # int32 [n]: which row is at each place; [0] elsewhere than on the CPU
    places: Tensor  # int32 [n]: its inverse
    indptr: Tensor  # int64 [num_types + 1]: the places of each type

    @classmethod
    def of(cls, types: Tensor, num_types: int) -> "TypedRows":
        """Order rows by their types [n], whole numbers below `num_types`."""
        if types.device.type != "cpu":
            empty = torch.empty(0, dtype=torch.int32)
            return cls(types.long(), num_types, empty, empty, torch.empty(0, dtype=torch.int64))
        order = np.argsort(types.numpy().astype(np.min_scalar_type(num_types)), kind="stable")  # by counting
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        indptr = np.zeros(num_types + 1, np.int64)
        np.cumsum(np.bincount(types.numpy(), minlength=num_types), out=indptr[1:])
        ordered = torch.from_numpy(order.astype(np.int32))
        return cls(types.long(), num_types, ordered, torch.from_numpy(places), torch.from_numpy(indptr))

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.float32) -> Tensor:
        """x · weight[type]ᵀ + bias[type] → float32 [n, num_out].

        Args:
            x: [n, num_in].
            weight: [num_types, num_out, num_in].
            bias: [num_types, num_out], or None.
            dtype: of the factors of the product.
        """
        if is_native(x) and dtype == torch.float32:
            return taken(native.grouped_linear(taken(x, self.order), weight, bias, self.indptr), self.places)

        out = torch.zeros(len(x), weight.shape[1], device=x.device)
        for number, matrix in enumerate(weight):
            out = torch.where((self.types == number).unsqueeze(1), linear(x.to(dtype), matrix, None), out)
        return out if bias is None else out + F.embedding(self.types, bias)


def taken(x: Tensor, rows: Tensor) -> Tensor:
    """Rows int32 [m] of x [n, num_columns] → [m, num_columns].

    As a product of sparse rows, whose gradient adds up in the same order for any number of threads.
    """
    if not is_native(x):
        return F.embedding(rows.long(), x)
    begins = torch.arange(len(rows) + 1)
    return sparse_linear(SparseRows(begins, rows, torch.ones(len(rows)), len(x)), x.contiguous())
