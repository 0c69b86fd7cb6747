"""The models of node classification: GraphSAGE, or anybody's model by dotted path."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any, assert_never

import torch
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.base.names import did_you_mean
from graphmill.graph.batch import DenseRows, InputForm, MiniBatch, SelfAndMean, SparseRows
from graphmill.graph.keys import Purpose, key_of
from graphmill.nn.graphsage import GraphSage
from graphmill.spec.experiment import CustomModelSpec, GraphSageSpec
from graphmill.spec.plan import Plan

DTYPE_OF = {"fp32": torch.float32, "bf16": torch.bfloat16}


class EdgeIndexModel(nn.Module):
    """A model that is called as model(x, edge_index), as PyG's are, on sampled mini-batches.

    Its own dropout draws from torch's generator, which is seeded by (seed, epoch, step, rank) before every training
    step, so a step does not depend on what was drawn before it.
    """

    def __init__(self, inner: nn.Module, *, seed: int, rank: int, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.inner = inner
        self.seed, self.rank, self.dtype = seed, rank, dtype

    @property
    def input_form(self) -> InputForm:
        """Features of every node of the batch."""
        return "rows"

    def forward(self, batch: MiniBatch) -> Tensor:
        """Logits of the seeds [num_seeds, out_channels]."""
        if self.training:
            key = key_of(self.seed, Purpose.DROPOUT, batch.seeds.epoch, batch.seeds.step, self.rank)
            torch.manual_seed(key >> 1)
        x = dense_rows(batch)
        is_mixed = self.training and self.dtype != torch.float32
        with torch.autocast(x.device.type, self.dtype, enabled=is_mixed):
            out: Tensor = self.inner(x, edge_index(batch))
        return out[: len(batch.seeds.ids)]


def build_model(plan: Plan, *, rank: int) -> "GraphSage | EdgeIndexModel":
    """The plan's model with its initial weights, the same on every rank."""
    match plan.model:
        case GraphSageSpec() as spec:
            return GraphSage(
                in_channels=plan.dataset.num_features,
                hidden_channels=spec.hidden_channels,
                out_channels=plan.dataset.num_classes,
                num_layers=spec.num_layers,
                dropout=spec.dropout,
                input_dropout=spec.input_dropout,
                seed=plan.seed,
                training_dtype=DTYPE_OF[plan.precision],
            )
        case CustomModelSpec() as spec:
            torch.manual_seed(key_of(plan.seed, Purpose.INITIAL_WEIGHTS) >> 1)
            channels = {"in_channels": plan.dataset.num_features, "out_channels": plan.dataset.num_classes}
            return EdgeIndexModel(_construct(spec, channels), seed=plan.seed, rank=rank, dtype=DTYPE_OF[plan.precision])
        case _:
            assert_never(plan.model)


def edge_index(batch: MiniBatch) -> Tensor:
    """The sampled edges as PyG writes them: int64 [2, num_edges], row 0 the source, row 1 the target, local ids."""
    block = batch.blocks[0]  # sampled without resampling, the first layer's block holds all edges
    targets = torch.repeat_interleave(torch.arange(block.num_rows, device=block.indptr.device), block.indptr.diff())
    return torch.stack([block.indices.long(), targets])


def dense_rows(batch: MiniBatch) -> Tensor:
    """Features of every node of the batch [num_nodes, num_features]; sparse rows are written out."""
    match batch.inputs:
        case DenseRows(x):
            return x
        case SparseRows() as x:
            rows = torch.repeat_interleave(torch.arange(len(x.indptr) - 1, device=x.values.device), x.indptr.diff())
            out = x.values.new_zeros(len(x.indptr) - 1, x.num_features)
            out[rows, x.indices.long()] = x.values
            return out
        case SelfAndMean():
            raise AssertionError("a model that reads rows was given averages")
        case _:
            assert_never(batch.inputs)


def _construct(spec: CustomModelSpec, channels: dict[str, int]) -> nn.Module:
    factory = _load(spec.target)
    try:
        model = factory(**{**channels, **spec.options})
    except TypeError as error:
        accepted = list(inspect.signature(factory).parameters)
        raise UserError(
            f"{spec.target} does not take model.options {sorted(spec.options)} with in_channels and out_channels:"
            f" {error}",
            fix=f"set model.options; it takes {', '.join(accepted)}",
        ) from None
    if not isinstance(model, nn.Module):
        raise UserError(
            f"{spec.target} made a {type(model).__name__}, not a torch.nn.Module", fix="name a class of modules"
        )
    return model


def _load(target: str) -> Callable[..., Any]:
    module_name, _, name = target.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UserError(
            f"model.target {target!r} cannot be imported: {error}",
            fix="install it, or give a dotted path such as torch_geometric.nn.GCN",
        ) from None
    if not hasattr(module, name):
        raise UserError(f"{module_name} has no {name!r}; {did_you_mean(name, dir(module))}", fix="mend model.target")
    factory: Callable[..., Any] = getattr(module, name)
    return factory
