"""GraphSAGE and R-GCN outside training: called on a whole graph, as PyTorch Geometric's models are."""

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.access.transform import transformed
from graphmill.base.errors import InvalidInputError
from graphmill.graph.batch import Block, DenseRows, Inputs, SparseRows
from graphmill.graph.features import SparseFeatures
from graphmill.graph.raw import refuse_wrong_edges
from graphmill.nn.graphsage import GraphSage, MeanLayer
from graphmill.nn.operators import RELU, self_and_mean
from graphmill.nn.relations import RelationEdges
from graphmill.nn.rgcn import RelationalGcn
from graphmill.nn.standardise import Standardise
from graphmill.sample.checked_data import array_of
from graphmill.spec.transform import FeatureTransform


class NodeClassifier(nn.Module):
    """A trained GraphSAGE: every node over all its in-neighbours, without sampling and without dropout.

    On the CPU in one thread its logits are those of `graphmill evaluate`, bit for bit, if features and edges are the
    prepared ones: sparse features as a sparse CSR tensor, and with `dataset.undirected` both directions of every edge.
    """

    def __init__(self, model: GraphSage, features: FeatureTransform) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits [num_nodes, num_classes].

        Args:
            x: features [num_nodes, num_features] as they were prepared (`dataset.features` is applied here), strided or
                sparse CSR.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1; an edge that is there twice counts
                twice.

        Raises:
            InvalidInputError (a ValueError): a shape does not fit, or an edge names a node that is not there.
        """
        return self._layers(x, edge_index, len(self.model.layers))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """What the last layer reads [num_nodes, hidden_channels]: `graphmill predict --embeddings`."""
        if len(self.model.layers) == 1:
            raise InvalidInputError(
                "a model of one layer has no embeddings", fix="call it for logits: model(x, edge_index)"
            )
        return self._layers(x, edge_index, len(self.model.layers) - 1)

    def _layers(self, x: Tensor, edge_index: Tensor, number: int) -> Tensor:
        layers = [layer for layer in self.model.layers if isinstance(layer, MeanLayer)]
        _refuse_strange_features(x, layers[0].in_channels)
        block = whole_graph(edge_index, x.shape[0])
        activations = [*[RELU] * (len(layers) - 1), None]
        rows = rows_of(x, self.features, keeps_sparse=self.model.standardise is None)
        if isinstance(rows, SparseRows):
            h = layers[0].on_sparse(rows, block, activations[0])
        else:
            read = self_and_mean(rows, block.indptr, block.indices)
            if self.model.standardise is not None:
                read = self.model.standardise.of_self_and_mean(read, block.indptr)
            h = layers[0].on_self_and_mean(read, activations[0])
        for layer, activation in zip(layers[1:number], activations[1:number], strict=True):
            h = layer.on_rows(h, block, activation)
        return h


class RelationalClassifier(nn.Module):
    """A trained R-GCN: every node over all its in-neighbours, without sampling and without dropout.

    On the CPU its logits are those of `graphmill evaluate`, bit for bit, if features and edges are the prepared ones.
    """

    def __init__(self, model: RelationalGcn, features: FeatureTransform) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        """Logits [num_nodes, num_classes].

        Args:
            x: features [num_nodes, num_features] as they were prepared (`dataset.features` is applied here), strided or
                sparse CSR.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1.
            edge_type: whole numbers [num_edges], the type of each edge as the prepared graph numbers them.

        Raises:
            InvalidInputError: a shape does not fit, an edge names a node that is not there, or has a type unknown.
        """
        model = self.model
        _refuse_strange_features(x, model.in_channels)
        _refuse_strange_types(edge_type, edge_index.shape[-1], model.num_relations)
        block, order = _by_target(edge_index, x.shape[0])
        edges = RelationEdges(block.indptr, block.indices, edge_type.long()[order], model.num_relations)
        h = model.read(self._inputs(x))
        for number, layer in enumerate(model.layers):
            h = layer(h, edges, RELU if number < len(model.layers) - 1 else None)
        return h

    def _inputs(self, x: Tensor) -> Inputs:
        standardise = self.model.standardise
        rows = rows_of(x, self.features, keeps_sparse=self.model.projection is not None)
        if isinstance(rows, SparseRows):
            return rows
        return DenseRows(rows if standardise is None else standardise(rows))


def rows_of(x: Tensor, features: FeatureTransform, *, keeps_sparse: bool) -> Tensor | SparseRows:
    """Features as the model was trained on them, of those as they were prepared [num_nodes, num_features]."""
    if x.layout == torch.sparse_csr and keeps_sparse:
        return _sparse_rows(x, features)
    x = x.to_dense() if x.layout == torch.sparse_csr else x
    x = x.float()
    if features == "binary":
        return (x != 0).float()
    if features == "row_normalised":
        sums = x.sum(dim=1, keepdim=True)
        return x / torch.where(sums == 0, 1.0, sums)
    return x


def _sparse_rows(x: Tensor, features: FeatureTransform) -> SparseRows:
    stored = SparseFeatures(
        x.crow_indices().cpu().numpy().astype(np.int64),
        x.col_indices().cpu().numpy().astype(np.int32),
        x.values().cpu().numpy().astype(np.float32),
        x.shape[1],
    )
    rows = transformed(stored, features)
    assert isinstance(rows, SparseFeatures)
    indptr, indices, values = (torch.from_numpy(each).to(x.device) for each in (rows.indptr, rows.indices, rows.values))
    return SparseRows(indptr, indices, values, x.shape[1])


class OnStandardised(nn.Module):
    """A model of the user's own that was trained on standardised features: called with those as they were prepared.

    Edge features are not standardised; they are passed on by name.
    """

    def __init__(self, standardise: Standardise, inner: nn.Module) -> None:
        super().__init__()
        self.standardise, self.inner = standardise, inner

    def forward(self, x: Tensor, edge_index: Tensor, **edges: Tensor) -> Tensor:
        """What the model makes of them, [num_nodes, num_classes]. `edges`: edge_weight or edge_attr, as in training."""
        out: Tensor = self.inner(self.standardise(x), edge_index, **edges)
        return out


def whole_graph(edge_index: Tensor, num_nodes: int) -> Block:
    """The in-edges of every node in compressed sparse rows, sources ascending within a row."""
    return _by_target(edge_index, num_nodes)[0]


def _by_target(edge_index: Tensor, num_nodes: int) -> tuple[Block, Tensor]:
    """The same, and which edge each of its entries is [num_edges]."""
    _refuse_strange_nodes(edge_index, num_nodes)
    sources, targets = edge_index.long()
    order = torch.argsort(targets * num_nodes + sources, stable=True)
    degrees = torch.zeros(num_nodes, dtype=torch.int64, device=edge_index.device)
    degrees = degrees.scatter_add(0, targets, torch.ones_like(targets))  # bincount's length would depend on values
    return Block(torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]), sources[order].int()), order


def _refuse_strange_nodes(edge_index: Tensor, num_nodes: int) -> None:
    """An edge that names a node that is not there; in a program of `torch.export`, which cannot ask, when it runs."""
    if torch.compiler.is_compiling():
        is_there = ((edge_index >= 0) & (edge_index < num_nodes)).all()
        torch.ops.aten._assert_async.msg(is_there, "edge_index names a node that x has no row for")
    else:
        given = edge_index.cpu() if isinstance(edge_index, Tensor) else edge_index
        refuse_wrong_edges(array_of("edge_index", given), num_nodes)


def _refuse_strange_features(x: Tensor, width: int) -> None:
    if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[1] != width or x.is_complex():
        what = f"{x.dtype} {list(x.shape)}" if isinstance(x, Tensor) else f"a {type(x).__name__}"
        raise InvalidInputError(
            f"x is {what}, and the model reads [num_nodes, {width}]", fix="give the features it was trained on"
        )
    if x.layout not in (torch.strided, torch.sparse_csr):
        raise InvalidInputError(f"x is {x.layout}", fix="give x.to_dense(), or x.to_sparse_csr()")


def _refuse_strange_types(edge_type: Tensor, num_edges: int, num_types: int) -> None:
    fix = "give the type of each edge as the prepared graph numbers them: graphmill inspect"
    if edge_type.shape != (num_edges,) or edge_type.is_complex():
        raise InvalidInputError(
            f"edge_type is {edge_type.dtype} {list(edge_type.shape)}, and there are {num_edges} edges", fix=fix
        )
    if num_edges and not 0 <= int(edge_type.min()) <= int(edge_type.max()) < num_types:
        has = f"{int(edge_type.min())} to {int(edge_type.max())}"
        raise InvalidInputError(f"edge_type has types {has}, and the model knows {num_types}", fix=fix)
