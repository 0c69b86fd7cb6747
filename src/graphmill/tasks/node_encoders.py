"""Models that give a row to each seed node of a mini-batch: GraphSAGE, GAT, GATv2, R-GCN, HGT, SIGN, one by path."""

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import assert_never

import torch
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.batch import InputForm, MiniBatch
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.draws import seed_torch
from graphmill.nn.graphsage import GraphSage
from graphmill.nn.hgt import Hgt
from graphmill.nn.node_attention import NodeAttention
from graphmill.nn.rgcn import RelationalGcn
from graphmill.nn.sign import Sign
from graphmill.nn.standardise import Standardise
from graphmill.nn.subgraph import csr_rows, dense_rows, edge_index
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.node_models import (
    EdgeArgument,
    GraphSageSpec,
    NodeAttentionSpec,
    NodeCustomModelSpec,
    NodeModelSpec,
    reads_node_types,
)
from graphmill.spec.plan import Plan
from graphmill.spec.relational import HgtSpec, RelationalSpec
from graphmill.spec.sign import SignSpec
from graphmill.spec.typed_graph import TypedInfo, source_types
from graphmill.tasks.custom_model import construct, try_out
from graphmill.tasks.hetero_model import HeteroModel, Types, check_hetero, construct_hetero

DTYPE_OF = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeModelInputs:
    """What a model reads of a batch, and how wide its rows are."""

    in_channels: int  # features of a node
    out_channels: int  # of the result: classes, or the width of an embedding
    is_sparse: bool  # features
    types: TypedInfo  # of nodes and edges; those of a graph without any are empty
    edge_columns: int  # features of an edge
    edge_argument: EdgeArgument | None  # how a model by dotted path is called with them; GraphSAGE reads edge_weight


@dataclass(frozen=True, slots=True)
class CalledWith:
    """What models of PyG are called with that others are not."""

    hops: bool = False  # sizes of the batch's hops: rows that no later layer reads are left out
    sparse: bool = False  # sparse features as a sparse CSR tensor, where layers are fused

    @classmethod
    def of(cls, model: nn.Module, *, is_sparse: bool) -> "CalledWith":
        """What a model takes. `is_sparse`: whether features are."""
        if "torch_geometric.nn.models.basic_gnn" not in sys.modules:  # then it is none of PyG's
            return cls()
        from graphmill.pyg.fusing import reads_sparse
        from graphmill.pyg.trimming import may_be_trimmed

        return cls(may_be_trimmed(model), is_sparse and reads_sparse(model))


class EdgeIndexModel(nn.Module):
    """A model that is called as model(x, edge_index), as PyG's are, on sampled mini-batches.

    With `edges` it is called with that argument, too: `edge_weight` [num_edges], `edge_attr` [num_edges, num_features].
    Its own dropout draws from torch's generator, which is seeded by (seed, epoch, step, rank) before every training
    step, so a step does not depend on what was drawn before it.
    """

    def __init__(
        self,
        inner: nn.Module,
        *,
        seed: int,
        rank: int,
        dtype: torch.dtype = torch.float32,
        standardise: Standardise | None = None,
        edges: EdgeArgument | None = None,
        called_with: CalledWith = CalledWith(),
    ) -> None:
        super().__init__()
        self.inner, self.standardise, self.edges, self.called_with = inner, standardise, edges, called_with
        self.seed, self.rank, self.dtype = seed, rank, dtype

    @property
    def input_form(self) -> InputForm:
        """Features of every node of the batch."""
        return "rows"

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds [num_seeds, out_channels]."""
        if self.training:
            key = batch.seeds.key(self.seed, Purpose.DROPOUT, self.rank)
            seed_torch(key >> 1)
        x = csr_rows(batch.inputs) if self.called_with.sparse else dense_rows(batch)
        if self.standardise is not None:
            x = self.standardise(x)
        is_mixed = self.training and self.dtype != torch.float32
        with torch.autocast(x.device.type, self.dtype, enabled=is_mixed), self._hops(batch) as hops:
            out: Tensor = self.inner(x, edge_index(batch), **edge_arguments(self.edges, batch.edge_attr), **hops)
        return out[: len(batch.seeds.ids)]

    def _hops(self, batch: MiniBatch) -> AbstractContextManager[dict[str, list[int]]]:
        """What the model is called with so that it computes no row that no later layer reads."""
        if not self.called_with.hops:
            return nullcontext({})
        from graphmill.pyg.trimming import trimmed

        return trimmed(self.inner, batch.num_nodes_per_hop, batch.num_edges_per_hop)


NodeEncoder = GraphSage | RelationalGcn | Hgt | Sign | EdgeIndexModel | HeteroModel


def build_model(
    plan: Plan, spec: NodeModelSpec, reads: NodeModelInputs, *, rank: int, standardise: Standardise | None = None
) -> NodeEncoder:
    """The plan's model with its initial weights, the same on every rank. `standardise`: its inputs, if not None."""
    match spec:
        case GraphSageSpec():
            return GraphSage(
                in_channels=reads.in_channels,
                hidden_channels=spec.hidden_channels,
                out_channels=reads.out_channels,
                num_layers=spec.num_layers,
                dropout=spec.dropout,
                input_dropout=spec.input_dropout,
                seed=plan.seed,
                training_dtype=DTYPE_OF[plan.precision],
                standardise=standardise,
                is_weighted=reads.edge_argument == "edge_weight",
                residual=spec.residual,
                jumping_knowledge=spec.jumping_knowledge,
            )
        case RelationalSpec():
            return RelationalGcn(
                in_channels=reads.in_channels,
                hidden_channels=spec.hidden_channels,
                out_channels=reads.out_channels,
                num_layers=spec.num_layers,
                num_relations=len(reads.types.edge_types),
                num_bases=spec.num_bases,
                num_node_types=len(reads.types.node_types) if reads_node_types(spec) else None,
                projects_inputs=reads.is_sparse,
                dropout=spec.dropout,
                input_dropout=spec.input_dropout,
                seed=plan.seed,
                training_dtype=DTYPE_OF[plan.precision],
                standardise=standardise,
            )
        case HgtSpec():
            return Hgt(
                in_channels=reads.in_channels,
                hidden_channels=spec.hidden_channels,
                out_channels=reads.out_channels,
                num_layers=spec.num_layers,
                heads=spec.heads,
                source_types=source_types(reads.types),
                num_node_types=len(reads.types.node_types),
                is_sparse=reads.is_sparse,
                dropout=spec.dropout,
                input_dropout=spec.input_dropout,
                seed=plan.seed,
                standardise=standardise,
            )
        case SignSpec():
            return Sign(
                in_channels=reads.in_channels,
                num_blocks=spec.propagation.num_blocks,
                num_extra_columns=spec.num_extra_columns(reads.out_channels),
                is_sparse=reads.is_sparse,
                hidden_channels=spec.hidden_channels,
                out_channels=reads.out_channels,
                num_layers=spec.num_layers,
                dropout=spec.dropout,
                input_dropout=spec.input_dropout,
                seed=plan.seed,
                training_dtype=DTYPE_OF[plan.precision],
                standardise=standardise,
            )
        case NodeAttentionSpec():
            torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
            attention = NodeAttention(
                kind=spec.kind,
                in_channels=reads.in_channels,
                hidden_channels=spec.hidden_channels,
                out_channels=reads.out_channels,
                heads=spec.heads,
                num_layers=spec.num_layers,
                dropout=spec.dropout,
                attention_dropout=spec.attention_dropout,
                edge_dim=reads.edge_columns or None,
                attention=spec.attention,
                checkpoint_activations=spec.checkpoint_activations,
            )
            edges = reads.edge_argument
            return EdgeIndexModel(attention, seed=plan.seed, rank=rank, standardise=standardise, edges=edges)
        case NodeCustomModelSpec():
            return _custom_model(plan, spec, reads, rank, standardise)
        case _:
            assert_never(spec)


def _custom_model(
    plan: Plan, spec: NodeCustomModelSpec, reads: NodeModelInputs, rank: int, standardise: Standardise | None
) -> EdgeIndexModel | HeteroModel:
    """A model by dotted path."""
    dtype = DTYPE_OF[plan.precision]
    if spec.heterogeneous:
        types = Types.of(reads.types, reads.in_channels)
        of_types = construct_hetero(spec, types, reads.out_channels, plan.seed)
        return HeteroModel(of_types, types, seed=plan.seed, rank=rank, dtype=dtype, standardise=standardise)
    torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
    inner = construct(spec, {"in_channels": reads.in_channels, "out_channels": reads.out_channels})
    return EdgeIndexModel(
        inner,
        seed=plan.seed,
        rank=rank,
        dtype=dtype,
        standardise=standardise,
        edges=reads.edge_argument,
        called_with=CalledWith.of(inner, is_sparse=reads.is_sparse and plan.device == "cpu" and spec.fused),
    )


def check_model(plan: Plan, spec: NodeModelSpec, reads: NodeModelInputs, fanouts: tuple[int, ...]) -> None:
    """Make the plan's model if it is a user-defined one, try it on a made-up batch, and throw it away.

    Raises `UserError` where it does not fit, or reads further than neighbourhoods are sampled.
    """
    if not isinstance(spec, CustomModelSpec):
        return
    if isinstance(spec, NodeCustomModelSpec) and spec.heterogeneous:
        types = Types.of(reads.types, reads.in_channels)
        check_hetero(spec, construct_hetero(spec, types, reads.out_channels, plan.seed), types, reads.out_channels)
        return
    model, hops = build_model(plan, spec, reads, rank=0).to(plan.device).inner, len(fanouts)
    assert isinstance(model, nn.Module)
    nodes = torch.arange(hops + 2, device=plan.device)  # a path: node i reads node i + 1
    edges = torch.stack([nodes[1:], nodes[:-1]])
    x = torch.randn(len(nodes), reads.in_channels, device=plan.device)
    named = edge_arguments(reads.edge_argument, torch.rand(edges.shape[1], reads.edge_columns, device=plan.device))
    try_out(spec.target, model, {"x": x, "edge_index": edges}, [(len(nodes), reads.out_channels)], named)
    x.requires_grad_()
    model.eval()(x, edges, **named)[0].square().sum().backward()
    if x.grad is not None and x.grad[-1].any():
        raise UserError(
            f"{spec.target} reads nodes that are more than {hops} hops away,"
            f" and train.num_neighbors {list(fanouts)} samples {hops}",
            fix="give train.num_neighbors as many fan-outs as the model has layers",
        )


def edge_arguments(argument: EdgeArgument | None, edge_attr: Tensor) -> dict[str, Tensor]:
    """What a model is called with besides x and edge_index. `edge_attr`: [num_edges, columns that it reads]."""
    match argument:
        case None:
            return {}
        case "edge_weight":
            return {argument: edge_attr[:, 0]}
        case "edge_attr":
            return {argument: edge_attr}
