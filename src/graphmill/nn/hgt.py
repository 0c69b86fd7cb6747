"""Heterogeneous graph transformer on sampled mini-batches (Hu et al. 2020, arXiv 2003.01332)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.graph.batch import DenseRows, InputForm, Inputs, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn import native
from graphmill.nn.attention.edges import EdgeGroups, group_edges
from graphmill.nn.attention.operator import EdgeScores, Scores, attention
from graphmill.nn.draws import drop_values, on_device_of, row_keys
from graphmill.nn.edge_dots import edge_dots
from graphmill.nn.keyed_dropout import KeyedDropout
from graphmill.nn.operators import RELU, Activation, activate, is_native, linear, sparse_linear
from graphmill.nn.relations import RelationEdges, TypedRows, taken
from graphmill.nn.standardise import Standardise


@dataclass(frozen=True, slots=True)
class Groups:
    """(relation, type of the source) pairs that occur: each has a matrix for keys and one for messages."""

    relations: Tensor  # int64 [num_groups]
    source_types: Tensor  # int64 [num_groups]
    of_pair: Tensor  # int64 [num_relations, num_node_types]: which group, -1: no edge of the relation begins there

    @classmethod
    def of(cls, source_types: Sequence[int | None], num_node_types: int) -> "Groups":
        """Groups of relations whose sources have the types `source_types` [num_relations]; None: of any type."""
        found = [
            (relation, kind)
            for relation, source in enumerate(source_types)
            for kind in (range(num_node_types) if source is None else (source,))
        ]
        of_pair = torch.full((len(source_types), num_node_types), -1)
        for number, pair in enumerate(found):
            of_pair[pair] = number
        relations, kinds = torch.tensor(found).t()
        return cls(relations, kinds, of_pair)


@dataclass(frozen=True, slots=True)
class GroupedSources:
    """The (group, source) pairs that a layer's edges read, by group: a row of keys and messages is made for each."""

    nodes: Tensor  # int32 [num_pairs]: the row of each pair's source
    indptr: Tensor  # int64 [num_groups + 1]: the pairs of each group
    edges: EdgeGroups  # from pairs to the layer's rows

    @classmethod
    def of(cls, edges: RelationEdges, node_types: Tensor, groups: Groups) -> "GroupedSources":
        """Make the pairs that edges read, on the CPU; elsewhere all pairs, since counting would wait for the device."""
        n, num_groups = len(node_types), len(groups.relations)
        sources = edges.sources.long()
        keys = groups.of_pair[edges.relations, node_types[sources]] * n + sources
        rows = torch.arange(edges.num_rows, device=sources.device)
        targets = torch.repeat_interleave(rows, edges.indptr.diff(), output_size=len(sources))
        if keys.device.type != "cpu":
            nodes = torch.arange(n, device=keys.device, dtype=torch.int32).repeat(num_groups)
            indptr = torch.arange(num_groups + 1, device=keys.device) * n
            return cls(nodes, indptr, _grouped(keys, targets, len(nodes), edges.num_rows))
        occurs = np.zeros(num_groups * n, np.bool_)
        occurs[keys.numpy()] = True
        pairs = np.flatnonzero(occurs)
        places = np.empty(num_groups * n, np.int64)
        places[pairs] = np.arange(len(pairs))
        begins = np.searchsorted(pairs, np.arange(num_groups + 1) * n)
        of_edges = torch.from_numpy(places[keys.numpy()])
        return cls(
            torch.from_numpy((pairs % max(n, 1)).astype(np.int32)),
            torch.from_numpy(begins),
            _grouped(of_edges, targets, len(pairs), edges.num_rows),
        )

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """A row of each pair [num_pairs, num_out]: its source's of x [n, num_in] by the matrix of its group."""
        if is_native(x):
            return native.grouped_linear(taken(x, self.nodes), weight, bias, self.indptr)
        return torch.cat([linear(x, matrix, line) for matrix, line in zip(weight, bias, strict=True)])


def _grouped(sources: Tensor, targets: Tensor, num_sources: int, num_targets: int) -> EdgeGroups:
    edge_index = torch.stack([sources, targets])
    return group_edges(edge_index, num_sources, num_targets, 0, by_source=torch.is_grad_enabled())


class HgtLayer(nn.Module):
    """Attention over in-neighbours of all relations together, with matrices by types of nodes and of edges.

    For an edge from s to t by the relation r, and each head (equations 3 to 5 of arXiv 2003.01332):

        score = (K[type of s] hₛ) · A[r] · (Q[type of t] hₜ) · μ[r] / √d        softmax over all edges to t
        message = (V[type of s] hₛ) · M[r]
        h'ₜ = β O[type of t] gelu(Σ attention · message) + (1 − β) hₜ,          β = sigmoid(skip[type of t])

    as PyG's `HGTConv` has it. A[r] and M[r] are multiplied into K and V first, so that a row of keys and one of
    messages is made for each source and relation, and nothing of edges × channels.
    """

    def __init__(self, channels: int, heads: int, *, num_relations: int, num_node_types: int) -> None:
        super().__init__()
        depth = channels // heads
        self.heads = heads

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape))

        self.key, self.query, self.value, self.out = (parameter(num_node_types, channels, channels) for _ in range(4))
        self.key_bias, self.query_bias, self.value_bias, self.out_bias = (
            parameter(num_node_types, channels) for _ in range(4)
        )
        self.key_relation, self.value_relation = (parameter(num_relations, heads, depth, depth) for _ in range(2))
        self.prior = parameter(num_relations, heads)
        self.skip = parameter(num_node_types)

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Xavier-uniform matrices, each on its own; zero biases; priors and skips 1."""
        for matrices in (self.key, self.query, self.value, self.out, self.key_relation, self.value_relation):
            for matrix in matrices.data.flatten(0, -3):
                nn.init.xavier_uniform_(matrix, generator=generator)
        for bias in (self.key_bias, self.query_bias, self.value_bias, self.out_bias):
            nn.init.zeros_(bias)
        nn.init.ones_(self.prior)
        nn.init.ones_(self.skip)

    def forward(self, h: Tensor, node_types: Tensor, edges: RelationEdges, groups: Groups) -> tuple[Tensor, Tensor]:
        """What the layer adds to its rows before they are let through, and how much of it: (β O gelu(…), 1 − β).

        Args:
            h: [n, channels], of which the first num_rows are the result's own.
            node_types: int64 [n].
            edges: that it reads.
            groups: of the relations.
        """
        read = GroupedSources.of(edges, node_types, groups)
        rows = TypedRows.of(node_types[: edges.num_rows], len(self.skip))
        keys = read.linear(h, *self._of_groups(self.key, self.key_bias, self._scaled(), groups))
        values = read.linear(h, *self._of_groups(self.value, self.value_bias, self.value_relation, groups))
        queries = rows.linear(h[: edges.num_rows], self.query, self.query_bias)
        mixed = self._mixed(queries, keys, values, read.edges)
        share = torch.sigmoid(F.embedding(rows.types, self.skip.unsqueeze(1)))
        return share * rows.linear(F.gelu(mixed), self.out, self.out_bias), 1 - share

    def _scaled(self) -> Tensor:
        depth = self.key_relation.shape[-1]
        return self.key_relation * (self.prior / math.sqrt(depth))[:, :, None, None]

    def _of_groups(self, weight: Tensor, bias: Tensor, relation: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
        """Matrices [num_groups, channels, channels] and biases: of a node type, then of a relation, head by head."""
        kinds, of_relation = groups.source_types, relation[groups.relations]
        count, _, width = weight[kinds].shape
        of_heads = weight[kinds].view(count, self.heads, -1, width)
        matrices = torch.einsum("ghio,ghij->ghoj", of_relation, of_heads).flatten(1, 2)
        lines = torch.einsum("ghio,ghi->gho", of_relation, bias[kinds].view(count, self.heads, -1))
        return matrices.contiguous(), lines.flatten(1).contiguous()

    def _mixed(self, queries: Tensor, keys: Tensor, values: Tensor, edges: EdgeGroups) -> Tensor:
        """Σ attention · message [num_rows, channels]; 0 of a row without edges.

        The scores reach the operator as features of edges that it takes as they are: slope 1, and the identity.
        """
        heads = self.heads
        features = EdgeScores(
            edge_dots(queries, keys, heads, edges),
            queries.new_empty(0, heads),
            torch.eye(heads, device=queries.device),
        )
        none = (queries.new_zeros(len(each), heads) for each in (queries, keys))
        scores = Scores(next(none), next(none), None, 1.0)
        return attention(values, heads, scores, features, None, edges)[0]


class Hgt(nn.Module):
    """A matrix for the features of each type of nodes and ReLU, L layers, and one matrix for the result.

    Sparse features have one matrix: where types have columns of their own, that is one for each type. Each layer
    computes only the rows that the next one reads. Dropout follows the input matrix and each layer's O, keyed by (seed,
    epoch, step, layer, node, channel).
    """

    def __init__(
        self,
        *,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        heads: int,
        source_types: Sequence[int | None],
        num_node_types: int,
        is_sparse: bool,
        dropout: float,
        input_dropout: float,
        seed: int,
        standardise: Standardise | None = None,
    ) -> None:
        """`source_types`: of each relation the type of nodes that it begins at; None: at several."""
        super().__init__()
        self.standardise, self.in_channels, self.num_relations = standardise, in_channels, len(source_types)
        self.num_node_types, self.is_sparse = num_node_types, is_sparse
        of_types = () if is_sparse else (num_node_types,)
        shape = (in_channels, hidden_channels) if is_sparse else (hidden_channels, in_channels)
        self.projection = nn.Parameter(torch.empty(*of_types, *shape))
        self.projection_bias = nn.Parameter(torch.zeros(num_node_types, hidden_channels))
        self.layers = nn.ModuleList(
            HgtLayer(hidden_channels, heads, num_relations=len(source_types), num_node_types=num_node_types)
            for _ in range(num_layers)
        )
        self.result = nn.Linear(hidden_channels, out_channels)
        self.dropout = KeyedDropout(seed, of_inputs=input_dropout, of_hidden=dropout)
        groups = Groups.of(source_types, num_node_types)
        for name in ("relations", "source_types", "of_pair"):
            self.register_buffer(f"_group_{name}", getattr(groups, name), persistent=False)
        self._reset_parameters(torch.Generator().manual_seed(key_of(seed, Purpose.INITIAL_WEIGHTS) >> 1))

    def _reset_parameters(self, generator: torch.Generator) -> None:
        for matrix in self.projection.data.view(-1, *self.projection.shape[-2:]):
            nn.init.xavier_uniform_(matrix, generator=generator)
        for layer in self.layers:
            assert isinstance(layer, HgtLayer)
            layer.reset_parameters(generator)
        nn.init.xavier_uniform_(self.result.weight, generator=generator)
        nn.init.zeros_(self.result.bias)

    @property
    def input_form(self) -> InputForm:
        """Features of every node of the batch."""
        return "rows"

    @property
    def groups(self) -> Groups:
        """Groups of the model's relations, on its device."""
        return Groups(*(self.get_buffer(f"_group_{name}") for name in ("relations", "source_types", "of_pair")))

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds [num_seeds, out_channels]; the last column of `batch.edge_attr` is the relations."""
        inputs = batch.inputs
        if isinstance(inputs, DenseRows) and self.standardise is not None:
            inputs = DenseRows(self.standardise(inputs.x))
        if self.training:
            inputs = self.dropout.inputs(inputs, batch)
        dropped = self.training and self.dropout.of_hidden > 0
        keys = [self._keys(batch, layer) if dropped else None for layer in range(len(self.layers) + 1)]
        edges = [RelationEdges.of_layer(batch, number, self.num_relations) for number in range(len(self.layers))]
        return self.computed(inputs, batch.node_types, edges, keys)[: len(batch.seeds.ids)]

    def computed(
        self, inputs: Inputs, node_types: Tensor, edges: Sequence[RelationEdges], keys: Sequence[Tensor | None]
    ) -> Tensor:
        """Logits of the rows of the last layer.

        Args:
            inputs: features of all nodes, standardised where the model is.
            node_types: int64 [num_nodes].
            edges: that each layer reads.
            keys: of dropout, after the input and after each layer, int64 [num_rows]; None: nothing is dropped.
        """
        p = self.dropout.of_hidden
        h = self._read(inputs, node_types, RELU if keys[0] is None else Activation(keys[0], p))
        for layer, its, key in zip(self.layers, edges, keys[1:], strict=True):
            added, rest = layer(h, node_types[: len(h)], its, self.groups)
            if key is not None:
                columns = torch.arange(added.shape[1], device=added.device)
                added = drop_values(added, on_device_of(key, added).unsqueeze(1), columns, p)
            h = added + rest * h[: its.num_rows]
        return linear(h, self.result.weight, self.result.bias)

    def _keys(self, batch: MiniBatch, layer: int) -> Tensor:
        """Dropout keys of rows after the input (layer 0) or a layer, at coordinate layer + 1: 0 is the features'."""
        rows = batch.node_ids if layer == 0 else batch.node_ids[: batch.blocks[layer - 1].num_rows]
        return row_keys(batch.seeds.key(self.dropout.seed, Purpose.DROPOUT, layer + 1), rows)

    def _read(self, inputs: Inputs, node_types: Tensor, activation: Activation) -> Tensor:
        match inputs:
            case DenseRows(x):
                rows = TypedRows.of(node_types, self.num_node_types)
                return activate(rows.linear(x.float(), self.projection, self.projection_bias), activation)
            case SparseRows() as x:
                h = sparse_linear(x, self.projection) + F.embedding(node_types, self.projection_bias)
                return activate(h, activation)
            case SelfAndMean():
                raise AssertionError("a model that reads rows was given averages")
