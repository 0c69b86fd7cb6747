"""GraphSAGE, R-GCN and SIGN outside training: called on a whole graph, as PyTorch Geometric's models are."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.access.propagated import propagated
from graphmill.access.transform import transformed
from graphmill.base.errors import InvalidInputError
from graphmill.graph.batch import Block, DenseRows, Inputs, SparseRows
from graphmill.graph.features import DenseFeatures, SparseFeatures
from graphmill.graph.raw import refuse_wrong_edges
from graphmill.graph.topology import Topology
from graphmill.nn.graphsage import GraphSage, MeanLayer
from graphmill.nn.hgt import Hgt
from graphmill.nn.layer_edges import WeightedBlock
from graphmill.nn.operators import RELU, self_and_mean
from graphmill.nn.relations import RelationEdges
from graphmill.nn.rgcn import RelationalGcn
from graphmill.nn.sign import Sign
from graphmill.nn.standardise import Standardise
from graphmill.sample.checked_data import array_of
from graphmill.spec.sign import Propagation
from graphmill.spec.transform import FeatureTransform
from graphmill.tasks.hetero_model import HeteroModel, OnStandardisedTypes
from graphmill.tasks.label_propagation import KnownLabels, label_shares_of_others
from graphmill.tasks.node_encoders import EdgeIndexModel, NodeEncoder


class NodeClassifier(nn.Module):
    """A trained GraphSAGE: every node over all its in-neighbours, without sampling and without dropout.

    On the CPU in one thread its logits are those of `graphmill evaluate`, bit for bit, if features and edges are the
    prepared ones: sparse features as a sparse CSR tensor, and with `dataset.undirected` both directions of every edge.
    """

    def __init__(self, model: GraphSage, features: FeatureTransform) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """Logits [num_nodes, num_classes].

        Args:
            x: features [num_nodes, num_features] as they were prepared (`dataset.features` is applied here), strided or
                sparse CSR.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1; an edge that is there twice counts
                twice.
            edge_weight: [num_edges], finite and not negative, if the model was trained with
                `dataset.edge_features: edge_weight`; else None.

        Raises:
            InvalidInputError (a ValueError): a shape does not fit, an edge names a node that is not there, or weights
                are missing, too many, or negative.
        """
        rows, readout = self._layers(x, edge_index, edge_weight, len(self.model.layers)), self.model.readout
        return rows[-1] if readout is None else readout(rows)

    def embed(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """What the last layer, or the head, reads [num_nodes, num_channels]: `graphmill predict --embeddings`."""
        readout = self.model.readout
        if readout is not None:
            return readout.read(self._layers(x, edge_index, edge_weight, len(self.model.layers)))
        if len(self.model.layers) == 1:
            raise InvalidInputError(
                "a model of one layer has no embeddings", fix="call it for logits: model(x, edge_index)"
            )
        return self._layers(x, edge_index, edge_weight, len(self.model.layers) - 1)[-1]

    def _layers(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, number: int) -> list[Tensor]:
        """Rows [num_nodes, …] that each of the first `number` layers gives: of the last one alone, but for a head."""
        layers = [layer for layer in self.model.layers if isinstance(layer, MeanLayer)]
        _refuse_strange_features(x, layers[0].in_channels)
        block = self._block(edge_index, edge_weight, x.shape[0])
        activations = [*[RELU] * (len(layers) - 1), None if self.model.readout is None else RELU]
        rows = rows_of(x, self.features, keeps_sparse=self.model.standardise is None)
        if isinstance(rows, SparseRows):
            h = layers[0].on_sparse(rows, block, activations[0])
        elif isinstance(block, WeightedBlock):
            rows = rows if self.model.standardise is None else self.model.standardise(rows)
            h = layers[0].on_rows(rows, block, activations[0])
        else:
            read = self_and_mean(rows, block.indptr, block.indices)
            if self.model.standardise is not None:
                read = self.model.standardise.of_self_and_mean(read, block.indptr)
            h = layers[0].on_self_and_mean(read, activations[0])
        found = [h]
        for layer, activation in zip(layers[1:number], activations[1:number], strict=True):
            h = layer.on_rows(h, block, activation)
            found = [h] if self.model.readout is None else [*found, h]
        return found

    def _block(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> Block | WeightedBlock:
        """All edges, with their weights if the model reads them."""
        if edge_weight is None and not self.model.is_weighted:
            return whole_graph(edge_index, num_nodes)
        if edge_weight is None or not self.model.is_weighted:
            does, fix = ("reads", "give") if self.model.is_weighted else ("does not read", "leave out")
            raise InvalidInputError(
                f"edge_weight is {'not ' if edge_weight is None else ''}given, and the model {does} weights of edges",
                fix=f"{fix} edge_weight",
            )
        _refuse_strange_weights(edge_weight, edge_index.shape[-1])
        block, order = _by_target(edge_index, num_nodes)
        return WeightedBlock.of(block, edge_weight.float()[order])


class RelationalClassifier(nn.Module):
    """A trained R-GCN, R-SAGE or HGT: every node over all its in-neighbours, without sampling and without dropout.

    On the CPU its logits are those of `graphmill evaluate`, bit for bit, if features and edges are the prepared ones.
    """

    def __init__(self, model: RelationalGcn | Hgt, features: FeatureTransform) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, node_type: Tensor | None = None) -> Tensor:
        """Logits [num_nodes, num_classes].

        Args:
            x: features [num_nodes, num_features] as they were prepared (`dataset.features` is applied here), strided or
                sparse CSR.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1.
            edge_type: whole numbers [num_edges], the type of each edge as the prepared graph numbers them.
            node_type: whole numbers [num_nodes], likewise; R-GCN reads none.

        Raises:
            InvalidInputError: a shape does not fit, an edge names a node that is not there, or a type is unknown.
        """
        model = self.model
        _refuse_strange_features(x, model.in_channels)
        _refuse_strange_types("edge", edge_type, edge_index.shape[-1], model.num_relations)
        kinds = torch.zeros(len(x), dtype=torch.int64) if node_type is None else node_type.long()
        if model.num_node_types is not None:
            _refuse_strange_types("node", node_type, len(x), model.num_node_types)
        by_type = torch.argsort(edge_type, stable=True)  # of edges between the same nodes, as prepared graphs have them
        block, order = _by_target(edge_index[:, by_type], x.shape[0])
        edges = RelationEdges(block.indptr, block.indices, edge_type.long()[by_type][order], model.num_relations)
        layers = range(len(model.layers))
        if isinstance(model, Hgt):
            return model.computed(self._inputs(x), kinds, [edges for _ in layers], [None, *(None for _ in layers)])
        h = model.read(self._inputs(x))
        for number in layers:
            h = model.layers[number](h, kinds, edges, RELU if number < len(model.layers) - 1 else None)
        return h

    def _inputs(self, x: Tensor) -> Inputs:
        standardise = self.model.standardise
        rows = rows_of(x, self.features, keeps_sparse=self.model.is_sparse)
        if isinstance(rows, SparseRows):
            return rows
        return DenseRows(rows if standardise is None else standardise(rows))


class PropagatedClassifier(nn.Module):
    """A trained SIGN: features are propagated over the edges that it is called with, then each row is computed.

    On the CPU its logits are those of `graphmill evaluate` to rounding, if features and edges are the prepared ones,
    and labels those of the training nodes. No gradient reaches `x`.
    """

    def __init__(self, model: Sign, features: FeatureTransform, propagation: Propagation) -> None:
        super().__init__()
        self.model, self.features, self.propagation = model, features, propagation

    def forward(self, x: Tensor, edge_index: Tensor, labels: Tensor | None = None) -> Tensor:
        """Logits [num_nodes, num_classes].

        Args:
            x: features [num_nodes, num_features] as they were prepared (`dataset.features` is applied here), strided or
                sparse CSR.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1; an edge that is there twice counts
                twice.
            labels: if the model was trained with `model.label_propagation`, what is known of the nodes; else None.
                Whole numbers: classes [num_nodes], or 0 and 1 of several labels [num_nodes, num_labels]; -1 where they
                are not known. No node reads its own.

        Raises:
            InvalidInputError (a ValueError): a shape does not fit, an edge names a node that is not there, or labels
                are missing, too many, or none.
        """
        _refuse_strange_features(x, self.model.in_channels)
        block = whole_graph(edge_index, x.shape[0])
        topology = Topology(block.indptr.cpu().numpy(), block.indices.cpu().numpy())
        x = x.detach()
        if self.model.is_sparse and x.layout != torch.sparse_csr:  # of which the largest values are kept
            x = x.to_sparse_csr()
        rows = rows_of(x, self.features, keeps_sparse=self.model.is_sparse)
        stored: DenseFeatures | SparseFeatures
        if isinstance(rows, SparseRows):
            indptr, indices, values = (each.cpu().numpy() for each in (rows.indptr, rows.indices, rows.values))
            stored = SparseFeatures(indptr, indices, values, rows.num_features)
        else:
            stored = DenseFeatures(rows.cpu().numpy(), "float32")
        beside = self._label_columns(topology, labels)
        return self.model.evaluated(_inputs_of(propagated(stored, topology, self.propagation, beside), x.device))

    def _label_columns(self, topology: Topology, labels: Tensor | None) -> NDArray[np.float32] | None:
        number = self.model.num_extra_columns
        if (labels is None) != (number == 0):
            does, fix = ("reads", "give") if number else ("does not read", "leave out")
            raise InvalidInputError(
                f"labels are {'not ' if labels is None else ''}given, and the model {does} labels of other nodes",
                fix=f"{fix} labels",
            )
        if labels is None:
            return None
        given = array_of("labels", labels.cpu() if isinstance(labels, Tensor) else labels)
        _refuse_strange_labels(given, topology.num_nodes, number)
        known = np.flatnonzero(given.reshape(len(given), -1)[:, 0] >= 0)
        return label_shares_of_others(topology, KnownLabels(known, given[known], number), self.model.seed)


def _inputs_of(features: DenseFeatures | SparseFeatures, device: torch.device) -> Inputs:
    if isinstance(features, DenseFeatures):
        return DenseRows(torch.from_numpy(features.x).to(device))
    arrays = (features.indptr, features.indices, features.values)
    indptr, indices, values = (torch.from_numpy(each).to(device) for each in arrays)
    return SparseRows(indptr, indices, values, features.num_features)


def portable(encoder: NodeEncoder, features: FeatureTransform, propagation: Propagation | None = None) -> nn.Module:
    """A trained encoder as it is called without prepared data: model(x, edge_index, …).

    One by dotted path is returned as it is, unless what it reads is standardised. `propagation`: of the features that
    SIGN reads.
    """
    if isinstance(encoder, Sign):
        assert propagation is not None, "the plan of such a model has it"
        return PropagatedClassifier(encoder, features, propagation)
    if isinstance(encoder, HeteroModel):
        return encoder.inner if encoder.standardise is None else OnStandardisedTypes(encoder)
    if isinstance(encoder, EdgeIndexModel):
        return encoder.inner if encoder.standardise is None else OnStandardised(encoder.standardise, encoder.inner)
    if isinstance(encoder, RelationalGcn | Hgt):
        return RelationalClassifier(encoder, features)
    return NodeClassifier(encoder, features)


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
    """Compressed rows of the in-edges of every node, and which edge each entry is [num_edges]."""
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


def _refuse_strange_weights(edge_weight: Tensor, num_edges: int) -> None:
    fix = "give the weight of each edge: finite, and not negative"
    if edge_weight.shape != (num_edges,) or edge_weight.is_complex():
        raise InvalidInputError(
            f"edge_weight is {edge_weight.dtype} {list(edge_weight.shape)}, and there are {num_edges} edges", fix=fix
        )
    is_fine = (edge_weight >= 0) & edge_weight.isfinite()
    if torch.compiler.is_compiling():
        torch.ops.aten._assert_async.msg(is_fine.all(), "edge_weight has a weight that is negative or not finite")
    elif not is_fine.all():
        raise InvalidInputError(f"edge_weight has {float(edge_weight[~is_fine][0]):g}", fix=fix)


def _refuse_strange_labels(labels: NDArray[Any], num_nodes: int, num_labels: int) -> None:
    most = {(num_nodes,): num_labels - 1, (num_nodes, num_labels): 1}.get(labels.shape)
    fix = "give the class of each node, or 0 and 1 of each of its labels, as whole numbers; -1 where they are not known"
    if most is None or labels.dtype.kind not in "iu":
        raise InvalidInputError(
            f"labels are {labels.dtype} {list(labels.shape)}, and there are {num_nodes} nodes and {num_labels} labels",
            fix=fix,
        )
    if labels.size and not -1 <= labels.min() <= labels.max() <= most:
        raise InvalidInputError(f"labels are {labels.min()} to {labels.max()}, and the largest is {most}", fix=fix)


def _refuse_strange_types(what: str, types: Tensor | None, count: int, num_types: int) -> None:
    """`what`: node or edge, of which there are `count`."""
    fix = f"give the type of each {what} as the prepared graph numbers them: graphmill inspect"
    if types is None:
        raise InvalidInputError(f"the model reads types of {what}s, and {what}_type is None", fix=fix)
    if types.shape != (count,) or types.is_complex():
        raise InvalidInputError(
            f"{what}_type is {types.dtype} {list(types.shape)}, and there are {count} {what}s", fix=fix
        )
    if count and not 0 <= int(types.min()) <= int(types.max()) < num_types:
        has = f"{int(types.min())} to {int(types.max())}"
        raise InvalidInputError(f"{what}_type has types {has}, and the model knows {num_types}", fix=fix)
