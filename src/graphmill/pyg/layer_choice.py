"""Which code computes a layer: graphmill's operators, or PyG's own."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.dense.linear import Linear

from graphmill.graph.batch import SparseRows
from graphmill.nn.operators import is_native, linear, sparse_linear
from graphmill.pyg.layer_edges import LayerEdges

_HOOKS = (
    "propagate_forward_pre", "propagate_forward", "message_forward_pre", "message_forward", "aggregate_forward_pre",
    "aggregate_forward", "message_and_aggregate_forward_pre", "message_and_aggregate_forward",
    "edge_update_forward_pre", "edge_update_forward",
)  # fmt: skip
_STEPS = ("message", "aggregate", "update", "message_and_aggregate", "edge_update")
_AGGREGATIONS = {MeanAggregation: "mean", SumAggregation: "sum"}
_READ = 10
"""How many multiply-adds of a product take as long as reading one number of a neighbour's row, about."""


class LayerEnds(NamedTuple):
    """The rows at both ends of the edges; `target` is None where targets have none."""

    source: Tensor
    target: Tensor | None
    sizes: tuple[int, int]


def ends_of(x: object, size: tuple[int, int] | None) -> LayerEnds | None:
    """Ends of a layer's edges; None if the number of targets is unknown, or `size` contradicts `x`."""
    source, target = x if isinstance(x, tuple) and len(x) == 2 else (x, x)
    if not isinstance(source, Tensor) or source.dim() != 2:
        return None
    if isinstance(target, Tensor):
        sizes = (len(source), len(target))
    elif target is None and size is not None:
        sizes = (len(source), size[1])
    else:
        return None
    return LayerEnds(source, target, sizes) if size is None or tuple(size) == sizes else None


def is_ours(ends: LayerEnds, edge_index: object, parts: list[Any], *others: Tensor, sparse: bool = False) -> bool:
    """Whether the native operators take these rows, edges, linear parts (of sources, of targets), other parameters.

    `sparse`: whether rows may be a sparse CSR tensor, which is read in products alone.
    """
    if type(edge_index) is not Tensor or edge_index.dtype != torch.int64 or edge_index.device.type != "cpu":
        return False
    if edge_index.layout != torch.strided or edge_index.dim() != 2 or len(edge_index) != 2:
        return False
    if not all(type(part) is Linear and not has_hooks(part) for part in parts):
        return False
    rows = [ends.source, *([] if ends.target is None else [ends.target])]
    if not all(
        each.dim() == 2 and each.numel() and (_is_strided(each) or (sparse and _is_fixed(each))) for each in rows
    ):
        return False
    if any(part.weight.shape[1] != each.shape[1] for part, each in zip(parts, rows, strict=False)):
        return False  # PyG says so
    tensors = [*rows, *others, *(part.weight for part in parts)]
    return all(type(each) in (Tensor, nn.Parameter) and is_native(each) for each in tensors) and not _is_transformed()


def _is_strided(x: Tensor) -> bool:
    return x.layout == torch.strided


def _is_fixed(x: Tensor) -> bool:
    """Whether rows are a sparse CSR tensor of one value an entry, that asks for no gradient."""
    return x.layout == torch.sparse_csr and x.values().dim() == 1 and not x.requires_grad


def projected(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x · weightᵀ + bias → [n, num_out], for rows x [n, num_in], strided or sparse CSR."""
    if _is_strided(x):
        return linear(x.contiguous(), weight, bias)
    rows = SparseRows(x.crow_indices().long(), x.col_indices().int(), x.values(), x.shape[1])
    out = sparse_linear(rows, weight.t().contiguous())
    return out if bias is None else out.add_(bias)


def _is_transformed() -> bool:
    """Whether torch traces or transforms what is called, or chooses number formats."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[no-untyped-call,attr-defined]
        or torch.is_autocast_enabled("cpu")
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def has_hooks(module: nn.Module) -> bool:
    """Whether something runs before or after the module, or its gradient."""
    return bool(
        module._forward_pre_hooks or module._forward_hooks or module._backward_pre_hooks or module._backward_hooks
    )


def aggregation_of(layer: MessagePassing, peer: type) -> str | None:
    """ "mean" or "sum" where the layer passes messages as its class of PyG's does; None for anything else."""
    if layer.flow != "source_to_target" or layer.node_dim not in (-2, 0) or layer.decomposed_layers != 1:
        return None
    how = _AGGREGATIONS.get(type(layer.aggr_module))
    if how is None or has_hooks(layer.aggr_module) or layer.explain:
        return None
    if any(getattr(layer, f"_{name}_hooks") for name in _HOOKS):
        return None
    for step in _STEPS:
        if step in layer.__dict__ or getattr(type(layer), step) is not getattr(peer, step):
            return None
    return how


def are_weights(edge_weight: Tensor | None, edge_index: Tensor) -> bool:
    """Whether sums may be weighted by a tensor: it has no gradient there."""
    if edge_weight is None:
        return True
    if type(edge_weight) is not Tensor or not is_native(edge_weight) or edge_weight.shape != edge_index.shape[1:]:
        return False
    return not (edge_weight.requires_grad and torch.is_grad_enabled())


def aggregates_first(edges: LayerEdges, x: Tensor, num_out: int) -> bool:
    """Whether neighbours are added up before their product with the weight, by what either order takes.

    The product is one of targets then, else of sources; rows are read as wide as inputs then, else as outputs, and in
    the gradient once more, but not those of inputs that need none.
    """
    if not _is_strided(x):
        return False
    has_gradient = int(torch.is_grad_enabled())
    of_x = int(x.requires_grad) * has_gradient
    reads, num_in, products = _READ * len(edges.indices), x.shape[1], (1 + has_gradient + of_x) * x.shape[1] * num_out
    before = reads * num_in * (1 + of_x) + edges.num_targets * products
    after = reads * num_out * (1 + has_gradient) + edges.num_sources * products
    return before <= after
