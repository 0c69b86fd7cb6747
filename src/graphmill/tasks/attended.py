"""What a trained model attends to: alpha of every edge, in every layer, for every head."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from graphmill.base.errors import UserError
from graphmill.graph.batch import GraphBatch
from graphmill.nn.attention.layers import AttentionConv, AttentionWeights

Ids = NDArray[np.int64]


@contextmanager
def recorded(model: nn.Module) -> Iterator[list[AttentionWeights]]:
    """What each layer of attention of `model` gives its edges meanwhile, in the order of the calls."""
    found: list[AttentionWeights] = []

    def ask(_: nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return given, {**named, "return_attention_weights": True}

    def record(_: nn.Module, __: object, result: tuple[Tensor, AttentionWeights]) -> Tensor:
        found.append(result[1])
        return result[0]

    layers = layers_of(model)
    hooks = [layer.register_forward_pre_hook(ask, with_kwargs=True) for layer in layers]
    hooks += [layer.register_forward_hook(record) for layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def layers_of(model: nn.Module) -> list[AttentionConv]:
    """Attention layers of a model."""
    return [module for module in model.modules() if isinstance(module, AttentionConv)]


@dataclass(frozen=True, slots=True)
class Attended:
    """What one layer gives `n` edges; each node's own edge is one of those to it."""

    layer: int  # from 0, in the order in which they are computed
    ids: tuple[Ids, ...]  # [n] each
    alpha: NDArray[np.float32]  # [n, heads]; over the edges to a node it adds up to 1


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of a model, part after part, so that it is never in memory as a whole."""

    names: tuple[str, ...]  # of the ids: source and target at the end
    heads: int
    parts: Iterator[Attended]


def heads_of(model: nn.Module, kind: str) -> int:
    """Number of heads of the model's layers of attention; `UserError` if it has none."""
    layers = layers_of(model)
    if not layers:
        raise UserError(
            f"model.kind {kind} has no layers of attention", fix="leave --attention out, or name a run of gat or gatv2"
        )
    return max(layer.heads for layer in layers)


@torch.no_grad()
def of_batches(model: nn.Module, batches: Iterable[GraphBatch]) -> Iterator[tuple[GraphBatch, int, Tensor, Tensor]]:
    """(batch, layer, edges int64 [2, n] with each node's own, alpha [n, heads]) of every layer, batch after batch.

    `model` is called on a batch, and is not in training mode while it is.
    """
    for batch in batches:
        was_training = model.training
        model.eval()
        with recorded(model) as found:
            model(batch)
        model.train(was_training)
        for layer, (edges, alpha) in enumerate(found):
            yield batch, layer, edges.cpu(), alpha.float().cpu()


def graph_of_edges(batch: GraphBatch, edges: Tensor) -> tuple[Ids, Ids]:
    """Graph that each edge [2, n] of a batch is in, and the number of that graph's first node."""
    offsets = batch.node_offsets.cpu().numpy()
    place = np.searchsorted(offsets, edges[1].numpy(), side="right") - 1
    return place, offsets[place]
