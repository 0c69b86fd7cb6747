"""The models of graph classification: GIN, GAT, GATv2, or a user-defined one by dotted path.

`GraphClassifier` is one outside training, as `graphmill.load` gives it.
"""

from dataclasses import replace
from typing import assert_never

import torch
from torch import Tensor, nn

from graphmill.graph.batch import GraphBatch, flat_batch
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.draws import seed_torch
from graphmill.nn.graph_attention import GraphAttention
from graphmill.nn.standardise import Standardise
from graphmill.spec.experiment import CustomModelSpec
from graphmill.spec.plan import Plan
from graphmill.tasks.custom_model import construct, try_out
from graphmill.tasks.graph_classification.nn.gin import Gin
from graphmill.tasks.graph_classification.page import GinSpec, GraphAttentionSpec, GraphClassificationPlan

DTYPE_OF = {"fp32": torch.float32, "bf16": torch.bfloat16}


class GraphModel(nn.Module):
    """A model of whole graphs, on batches, with standardised inputs if so planned.

    Its dropout draws from torch's generator, which is seeded by (seed, epoch, step, rank) before every training step,
    so a step does not depend on what was drawn before it.
    """

    def __init__(
        self, inner: nn.Module, *, seed: int, rank: int, dtype: torch.dtype, standardise: Standardise | None
    ) -> None:
        super().__init__()
        self.inner, self.standardise = inner, standardise
        self.seed, self.rank, self.dtype = seed, rank, dtype

    def forward(self, batch: GraphBatch) -> Tensor:
        """Logits [num_graphs, num_classes]."""
        if self.training:
            seed_torch(batch.seeds.key(self.seed, Purpose.DROPOUT, self.rank) >> 1)
        batch = standardised(batch, self.standardise)
        is_mixed = self.training and self.dtype != torch.float32
        with torch.autocast(batch.x.device.type, self.dtype, enabled=is_mixed):
            if isinstance(self.inner, Gin | GraphAttention):
                return self.inner(batch)  # type: ignore[no-any-return]
            out: Tensor = self.inner(*arguments(batch).values(), **edge_arguments(batch))
        return out


def build_model(
    plan: Plan, task_plan: GraphClassificationPlan, *, rank: int, standardise: Standardise | None = None
) -> GraphModel:
    """The plan's model with its initial weights, the same on every rank. `standardise`: its inputs, if not None."""
    torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
    channels = {"in_channels": task_plan.dataset.num_features, "out_channels": task_plan.dataset.num_classes}
    inner: nn.Module
    match task_plan.model:
        case GinSpec() as spec:
            inner = Gin(
                **channels,
                hidden_channels=spec.hidden_channels,
                num_layers=spec.num_layers,
                dropout=spec.dropout,
                norm=spec.norm,
                train_eps=spec.train_eps,
                mean_nodes=task_plan.dataset.mean_nodes if spec.readout == "mean_and_sum" else None,
            )
        case GraphAttentionSpec() as spec:
            inner = GraphAttention(
                **channels,
                kind=spec.kind,
                hidden_channels=spec.hidden_channels,
                heads=spec.heads,
                num_layers=spec.num_layers,
                dropout=spec.dropout,
                attention_dropout=spec.attention_dropout,
                edge_dim=task_plan.dataset.num_edge_features or None,
                attention=spec.attention,
                checkpoint_activations=spec.checkpoint_activations,
            )
        case CustomModelSpec() as spec:
            inner = construct(spec, channels)
        case _:
            assert_never(task_plan.model)
    return GraphModel(inner, seed=plan.seed, rank=rank, dtype=DTYPE_OF[plan.precision], standardise=standardise)


def standardised(batch: GraphBatch, standardise: Standardise | None) -> GraphBatch:
    """Batch with the features of its nodes standardised; None: they are left as they are."""
    if standardise is None:
        return batch
    return GraphBatch(
        batch.seeds,
        batch.node_offsets,
        batch.block,
        batch.by_source,
        standardise(batch.x),
        batch.edge_attr,
        batch.labels,
    )


def arguments(batch: GraphBatch) -> dict[str, Tensor]:
    """What a model by dotted path is called with, as PyG's are: x, edge_index, and the graph of each node."""
    counts, num_nodes = batch.node_offsets.diff(), len(batch.x)
    graphs = torch.arange(len(counts), device=counts.device)
    return {
        "x": batch.x,
        "edge_index": batch.edge_index,
        "batch": torch.repeat_interleave(graphs, counts, output_size=num_nodes),
    }


def edge_arguments(batch: GraphBatch) -> dict[str, Tensor]:
    """Features of edges by name, where the data have some."""
    return {"edge_attr": batch.edge_attr} if batch.edge_attr.shape[1] else {}


def check_model(plan: Plan, task_plan: GraphClassificationPlan) -> None:
    """Make the plan's model if it is a user-defined one, try it on made-up graphs, and throw it away."""
    if not isinstance(task_plan.model, CustomModelSpec):
        return
    model = build_model(plan, task_plan, rank=0).to(plan.device).inner
    known, device = task_plan.dataset, plan.device
    edges = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 0, 4, 3]], device=device)
    given = {
        "x": torch.randn(5, known.num_features, device=device),
        "edge_index": edges,
        "batch": torch.tensor([0, 0, 0, 1, 1], device=device),
    }
    named = {"edge_attr": torch.randn(5, known.num_edge_features, device=device)} if known.num_edge_features else {}
    try_out(task_plan.model.target, model, given, [(2, known.num_classes)], named)


class GraphClassifier(nn.Module):
    """A built-in model with its inputs standardised as in training, if they were."""

    def __init__(self, model: Gin | GraphAttention, standardise: Standardise | None) -> None:
        super().__init__()
        self.model, self.standardise = model, standardise

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Logits [num_graphs, num_classes].

        Args:
            x: features of nodes [num_nodes, num_features], as they were prepared.
            edge_index: int64 [2, num_edges], sources in row 0, targets in row 1.
            batch: int64 [num_nodes]: the graph of each node, ascending.
            edge_attr: features of edges [num_edges, num_edge_features], if the model was trained with some.

        Raises:
            ValueError: `batch` is not ascending, or an edge names a node that is not there.
        """
        return self.model(self._batch(x, edge_index, batch, edge_attr))  # type: ignore[no-any-return]

    def embed(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """What is classified [num_graphs, num_channels]: `graphmill predict --embeddings`."""
        return self.model.embed(self._batch(x, edge_index, batch, edge_attr))

    def _batch(self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_attr: Tensor | None) -> GraphBatch:
        made = flat_batch(x, edge_index, batch, edge_attr)
        return made if self.standardise is None else replace(made, x=self.standardise(x))


class OnStandardisedGraphs(nn.Module):
    """A user-defined model that was trained on standardised inputs."""

    def __init__(self, standardise: Standardise, inner: nn.Module) -> None:
        super().__init__()
        self.standardise, self.inner = standardise, inner

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, **named: Tensor) -> Tensor:
        """What the model makes of the standardised x."""
        return self.inner(self.standardise(x), edge_index, batch, **named)  # type: ignore[no-any-return]
