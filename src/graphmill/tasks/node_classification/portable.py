"""GraphSAGE outside training: called as `model(x, edge_index)` on a whole graph, as PyTorch Geometric's models are."""

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.graph.batch import Block, SparseRows
from graphmill.graph.features import SparseFeatures
from graphmill.nn.graphsage import GraphSage, MeanLayer
from graphmill.nn.operators import RELU, self_and_mean
from graphmill.nn.standardise import Standardise
from graphmill.spec.kinds.node_classification import FeatureTransform
from graphmill.tasks.node_classification.transform import transformed


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
            ValueError: a shape does not fit, or an edge names a node that is not there.
        """
        return self._layers(x, edge_index, len(self.model.layers))

    def embed(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """What the last layer reads [num_nodes, hidden_channels]: `graphmill predict --embeddings`."""
        if len(self.model.layers) == 1:
            raise ValueError("a model of one layer has no embeddings")
        return self._layers(x, edge_index, len(self.model.layers) - 1)

    def _layers(self, x: Tensor, edge_index: Tensor, number: int) -> Tensor:
        layers = [layer for layer in self.model.layers if isinstance(layer, MeanLayer)]
        if x.dim() != 2 or x.shape[1] != layers[0].in_channels:
            raise ValueError(f"x is {list(x.shape)}, and the model reads [num_nodes, {layers[0].in_channels}]")
        block = whole_graph(edge_index, x.shape[0])
        activations = [*[RELU] * (len(layers) - 1), None]
        rows = self._rows(x)
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

    def _rows(self, x: Tensor) -> Tensor | SparseRows:
        if x.layout == torch.sparse_csr and self.model.standardise is None:
            return self._sparse_rows(x)
        x = x.to_dense() if x.layout == torch.sparse_csr else x
        x = x.float()
        if self.features == "binary":
            return (x != 0).float()
        if self.features == "row_normalised":
            sums = x.sum(dim=1, keepdim=True)
            return x / torch.where(sums == 0, 1.0, sums)
        return x

    def _sparse_rows(self, x: Tensor) -> SparseRows:
        stored = SparseFeatures(
            x.crow_indices().cpu().numpy().astype(np.int64),
            x.col_indices().cpu().numpy().astype(np.int32),
            x.values().cpu().numpy().astype(np.float32),
            x.shape[1],
        )
        rows = transformed(stored, self.features)
        assert isinstance(rows, SparseFeatures)
        indptr, indices, values = (
            torch.from_numpy(each).to(x.device) for each in (rows.indptr, rows.indices, rows.values)
        )
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
    if edge_index.dim() != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index is {list(edge_index.shape)}, not [2, num_edges]")
    sources, targets = edge_index.long()
    _refuse_strange_nodes(edge_index, num_nodes)
    order = torch.argsort(targets * num_nodes + sources, stable=True)
    degrees = torch.zeros(num_nodes, dtype=torch.int64, device=edge_index.device)
    degrees = degrees.scatter_add(0, targets, torch.ones_like(targets))  # bincount's length would depend on values
    return Block(torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]), sources[order].int())


def _refuse_strange_nodes(edge_index: Tensor, num_nodes: int) -> None:
    """An edge that names a node that is not there; in a program of `torch.export`, which cannot ask, when it runs."""
    if torch.compiler.is_compiling():
        is_there = ((edge_index >= 0) & (edge_index < num_nodes)).all()
        torch.ops.aten._assert_async.msg(is_there, "edge_index names a node that x has no row for")
    elif edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < num_nodes:
        raise ValueError(
            f"edge_index names nodes {int(edge_index.min())} to {int(edge_index.max())}, x has {num_nodes} rows"
        )
