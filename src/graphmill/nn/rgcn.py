"""R-GCN on sampled mini-batches (Schlichtkrull et al. 2018, arXiv 1703.06103), and GraphSAGE by types."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from graphmill.graph.batch import DenseRows, InputForm, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.keyed_dropout import KeyedDropout
from graphmill.nn.operators import RELU, Activation, activate, linear, sparse_linear
from graphmill.nn.relations import RelationEdges, TypedRows, relation_sum
from graphmill.nn.standardise import Standardise


class RelationalLayer(nn.Module):
    """h'ᵥ = W₀ hᵥ + Σᵣ Wᵣ · mean of h over the sampled in-neighbours of v by relation r, + b (equation 2).

    `root` [out_channels, in_channels] is W₀, and b is `bias` [out_channels]. With `num_node_types` each type of nodes
    has W₀ and b of its own, [num_node_types, …]: as PyG's `to_hetero` of SAGEConv with aggr="sum", whose own matrices
    of the relations that lead to a type add up to one. With bases Wᵣ = Σ_b comp[r, b] weight[b] (equation 3): `weight`
    [num_bases, out_channels, in_channels], `comp` [num_relations, num_bases]; without, `weight` [num_relations, …]
    holds each Wᵣ.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        num_relations: int,
        num_bases: int | None,
        num_node_types: int | None,
        training_dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.num_node_types = num_node_types
        of_types = () if num_node_types is None else (num_node_types,)
        self.in_channels, self.out_channels, self.num_relations = in_channels, out_channels, num_relations
        self.training_dtype = training_dtype
        self.weight = nn.Parameter(torch.empty(num_bases or num_relations, out_channels, in_channels))
        self.comp = None if num_bases is None else nn.Parameter(torch.empty(num_relations, num_bases))
        self.root = nn.Parameter(torch.empty(*of_types, out_channels, in_channels))
        self.bias = nn.Parameter(torch.zeros(*of_types, out_channels))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Xavier-uniform weights, each matrix on its own; zero bias."""
        for matrix in (*self.weight.data, *self.root.data.view(-1, self.out_channels, self.in_channels)):
            nn.init.xavier_uniform_(matrix, generator=generator)
        if self.comp is not None:
            nn.init.xavier_uniform_(self.comp, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, h: Tensor, node_types: Tensor, edges: RelationEdges, activation: Activation | None) -> Tensor:
        """Result from rows h [n, in_channels], the first num_rows of which are its own; float32 outside training.

        `node_types` int64 [n] is read where types of nodes have matrices of their own.
        """
        dtype = self.training_dtype if self.training else torch.float32
        own = self._self_term(h[: edges.num_rows], node_types[: edges.num_rows], dtype)
        out = own + relation_sum(h, edges, self.weight, self.comp, dtype)
        return out if activation is None else activate(out, activation)

    def _self_term(self, h: Tensor, node_types: Tensor, dtype: torch.dtype) -> Tensor:
        if self.num_node_types is None:
            return linear(h.to(dtype), self.root, self.bias)
        return TypedRows.of(node_types, self.num_node_types).linear(h, self.root, self.bias, dtype)


class RelationalGcn(nn.Module):
    """L relational layers, ReLU and dropout after all but the last.

    Sparse features are projected to `hidden_channels` before the first, which is the product of a matrix for each node
    type where types have columns of their own. Each layer computes only the rows that the next one reads. Dropout is
    keyed by (seed, epoch, step, layer, node, channel).
    """

    def __init__(
        self,
        *,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        num_relations: int,
        num_bases: int | None,
        num_node_types: int | None = None,
        projects_inputs: bool,
        dropout: float,
        input_dropout: float,
        seed: int,
        training_dtype: torch.dtype = torch.float32,
        standardise: Standardise | None = None,
    ) -> None:
        """`num_node_types`: each has a matrix for its own rows; None: all share one.

        `projects_inputs`: features are sparse. `training_dtype`: of the factors of dense products in training.

        `standardise`: of dense inputs; None: they are taken as they are.
        """
        super().__init__()
        self.standardise, self.in_channels, self.num_relations = standardise, in_channels, num_relations
        self.num_node_types, self.is_sparse = num_node_types, projects_inputs
        first = hidden_channels if projects_inputs else in_channels
        self.projection = nn.Parameter(torch.empty(in_channels, first)) if projects_inputs else None
        widths = [first, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(
            RelationalLayer(
                a,
                b,
                num_relations=num_relations,
                num_bases=num_bases,
                num_node_types=num_node_types,
                training_dtype=training_dtype,
            )
            for a, b in pairwise(widths)
        )
        self.dropout = KeyedDropout(seed, of_inputs=input_dropout, of_hidden=dropout)
        generator = torch.Generator().manual_seed(key_of(seed, Purpose.INITIAL_WEIGHTS) >> 1)
        if self.projection is not None:
            nn.init.xavier_uniform_(self.projection, generator=generator)
        for layer in self.layers:
            assert isinstance(layer, RelationalLayer)
            layer.reset_parameters(generator)

    @property
    def input_form(self) -> InputForm:
        """Features of every node of the batch."""
        return "rows"

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds [num_seeds, out_channels]; the last column of `batch.edge_attr` is the relations."""
        inputs = batch.inputs
        if isinstance(inputs, DenseRows) and self.standardise is not None:
            inputs = DenseRows(self.standardise(inputs.x))
        if self.training:
            inputs = self.dropout.inputs(inputs, batch)
        h = self.read(inputs)
        for number, layer in enumerate(self.layers):
            edges = RelationEdges.of_layer(batch, number, self.num_relations)
            h = layer(h, batch.node_types, edges, self._activation(batch, number))
        return h

    def read(self, inputs: Inputs) -> Tensor:
        """What the first layer reads [n, …]: projected if the model was made for sparse features."""
        match inputs:
            case DenseRows(x):
                return x.float() if self.projection is None else x.float() @ self.projection
            case SparseRows() as x:
                assert self.projection is not None, "a model of dense features was given sparse ones"
                return sparse_linear(x, self.projection)
            case SelfAndMean():
                raise AssertionError("a model that reads rows was given averages")

    def _activation(self, batch: MiniBatch, number: int) -> Activation | None:
        """Activation after layer `number`, counted from 0; None after the last."""
        if number == len(self.layers) - 1:
            return None
        return self.dropout.after(number, batch) if self.training else RELU
