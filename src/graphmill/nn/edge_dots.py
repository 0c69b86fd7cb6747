"""`graphmill::edge_dots`: a dot product for each edge and head, of a row of its target and a row of its source."""

from typing import Any

import torch
from torch import Tensor

from graphmill import _native
from graphmill.nn.attention.edges import EdgeGroups
from graphmill.nn.define import capsule, define
from graphmill.nn.operators import is_native

_EDGES = "Tensor indptr, Tensor sources, Tensor edge_ids, Tensor out_indptr, Tensor targets, Tensor slots, int heads"


def edge_dots(q: Tensor, k: Tensor, heads: int, groups: EdgeGroups) -> Tensor:
    """⟨qᵢₕ, kⱼₕ⟩ of each edge from j to i → [num_edges, heads], in the caller's order.

    Args:
        q: [num_targets, heads * channels].
        k: [num_sources, heads * channels].
        heads: into which the columns are cut.
        groups: of edges without loops; by source, too, where a gradient is asked for.
    """
    if is_native(q):
        return _edge_dots(q.contiguous(), k.contiguous(), *groups.tensors, heads)
    sources, targets = groups.edge_index
    return (q[targets] * k[sources]).view(len(sources), heads, -1).sum(-1)


def _groups(tensors: tuple[Tensor, ...], num_sources: int) -> _native.EdgeGroups:
    indptr, sources, edge_ids, *by_source = tensors
    out_indptr, targets, slots = by_source if len(by_source[0]) else (None, None, None)
    by_target = capsule(indptr), capsule(sources), capsule(edge_ids)
    return _native.EdgeGroups(*by_target, capsule(out_indptr), capsule(targets), capsule(slots), num_sources, 0)


def _forward(q: Tensor, k: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401
    *edges, heads = rest
    out = q.new_empty(len(edges[1]), heads)
    groups = _groups(tuple(edges), len(k))
    _native.edge_dots(groups, heads, capsule(q), capsule(k), capsule(out), torch.get_num_threads())
    return out


def _backward(grad: Tensor, q: Tensor, k: Tensor, *rest: Any) -> list[Tensor]:  # noqa: ANN401
    *edges, heads = rest
    grad_q, grad_k = torch.empty_like(q), torch.empty_like(k)
    _native.edge_dots_backward(
        _groups(tuple(edges), len(k)),
        heads,
        capsule(q),
        capsule(k),
        capsule(grad),
        capsule(grad_q),
        capsule(grad_k),
        torch.get_num_threads(),
    )
    return [grad_q, grad_k]


_edge_dots = define(
    f"edge_dots(Tensor q, Tensor k, {_EDGES}) -> Tensor",
    _forward,
    lambda q, k, *rest: q.new_empty(rest[1].shape[0], rest[-1]),
)
_edge_dots_backward = define(
    f"edge_dots_backward(Tensor grad, Tensor q, Tensor k, {_EDGES}) -> Tensor[]",
    _backward,
    lambda grad, q, k, *rest: [torch.empty_like(q), torch.empty_like(k)],
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    *tensors, ctx.heads = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return *_edge_dots_backward(grad.contiguous(), *ctx.saved_tensors, ctx.heads), *(None,) * 7


_edge_dots.differentiate(_save, _gradients)
