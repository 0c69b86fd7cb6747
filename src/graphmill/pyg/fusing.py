"""PyG's layers within a model, replaced by those of `graphmill.pyg`: same parameters, same `state_dict`, same results.

The layers are those that `graphmill.pyg` has; when PyG's own code computes them: `graphmill.pyg.layers`.
"""

from typing import Final

from torch import nn
from torch_geometric import nn as peers
from torch_geometric.nn.conv import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from graphmill.pyg import attention_layers, layers
from graphmill.pyg.layer_choice import aggregation_of

FUSED: Final[dict[type, type[MessagePassing]]] = {
    peers.SAGEConv: layers.SAGEConv,
    peers.GCNConv: layers.GCNConv,
    peers.GINConv: layers.GINConv,
    peers.RGCNConv: layers.RGCNConv,
    peers.GATConv: attention_layers.GATConv,
    peers.GATv2Conv: attention_layers.GATv2Conv,
}
"""Layers of PyG, and what computes them here."""

_PROJECTING: Final = (layers.SAGEConv, layers.GCNConv, attention_layers.GATConv, attention_layers.GATv2Conv)
"""Layers that read their inputs in a product alone."""
_USUAL: Final = {"project": False, "cached": False, "num_blocks": None, "flow": "source_to_target"}
"""Options of layers, as they are where graphmill computes."""


def fuse_layers(model: nn.Module) -> tuple[str, ...]:
    """Replace PyG's layers within a model, in place: on CPUs they compute with graphmill's operators.

    A class derived from one of PyG's is left as it is, for its code is another.

    Args:
        model: any module; its parameters, buffers and hooks stay the same objects.

    Returns:
        Names of the layers replaced, as `model.named_modules` has them.
    """
    found = [(name, layer) for name, layer in model.named_modules() if type(layer) in FUSED]
    for _, layer in found:
        layer.__class__ = FUSED[type(layer)]  # a subclass that adds no state
    return tuple(name for name, _ in found)


def left_to_pyg(model: nn.Module) -> tuple[str, ...]:
    """Names of layers that pass messages by PyG's own code, with what they are: `convs.1 (TransformerConv)`."""
    passing = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, MessagePassing)]
    return tuple(f"{name} ({what})" for name, layer in passing if (what := _of_pyg(layer)))


def _of_pyg(layer: MessagePassing) -> str:
    """What a layer is that PyG's own code computes, whatever it is called with; "": it is computed here."""
    kind = type(layer)
    if kind not in FUSED.values():
        return kind.__name__
    for option, usual in _USUAL.items():
        if getattr(layer, option, usual) != usual:
            return f"{kind.__name__} with {option}={getattr(layer, option)}"
    takes = ("sum", "mean") if kind in (layers.SAGEConv, layers.GINConv, layers.RGCNConv) else ("sum",)
    return "" if aggregation_of(layer, kind.__mro__[1]) in takes else f"{kind.__name__} with aggr={layer.aggr}"


def reads_sparse(model: nn.Module) -> bool:
    """Whether a model takes features as a sparse CSR tensor: its first layer reads them in a product alone."""
    if not isinstance(model, BasicGNN):
        return False
    first = model.convs[0]
    return isinstance(first, _PROJECTING) and not _of_pyg(first) and not getattr(first, "residual", False)
