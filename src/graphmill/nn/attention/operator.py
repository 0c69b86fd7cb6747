"""`graphmill::attention`: attention over the edges that point to each node, GAT and GATv2 alike, with its gradient.

For an edge e from j to i, with features eₑ, and head h:

    zₑₕ = sourceⱼₕ + targetᵢₕ + eₑ · Wₕ                    scores: one a head (GAT), or as many as channels (GATv2)
    ℓₑₕ = ⟨aₕ, leaky(zₑₕ)⟩                                 GAT: leaky(zₑₕ)
    αₑₕ = exp(ℓₑₕ − mᵢₕ) / Σ_{f → i} exp(ℓ_fₕ − mᵢₕ)       then dropout, keyed by (key, id of the edge, head)
    outᵢₕ = Σ_{e: j → i} αₑₕ xⱼₕ

GAT: Veličković et al. 2018, eq. 1-4 (arXiv 1710.10903). Its scores are linear in x and e, so they are made before:
⟨a_src, Θxⱼ⟩, ⟨a_dst, Θxᵢ⟩, and ⟨a_edge, Wₑ e⟩ by a matrix of [edge_dim, heads]. GATv2: Brody, Alon & Yahav 2022,
eq. 7 (arXiv 2105.14491): the source's scores are x itself. The softmax runs over tiles of edges with a running maximum
and sum (Milakov & Gimelshein 2018, arXiv 1805.02867).

No tensor of edges × heads × channels is made, forward or backward: features of edges are projected where they are
used. Forward saves out and the log-sum-exp [num_targets, heads]; backward computes the rest again. For the gradient of
the logits only Σ_e αₑ ∂αₑ = ⟨∂outᵢₕ, outᵢₕ⟩ is needed of a node's other edges. Each result is a function of its inputs
alone: gradients of sources are gathered by source, those of weights summed over fixed shares of the edges.

On CPUs the kernels are native (native/attention.h), in float32 and float64. On NVIDIA GPUs they are Triton's
(`triton_launch`), of any mix of float32, float16 and bfloat16: results have the format of x, gradients that of their
inputs, and sums are float32. There out is saved in float32 besides: the gradient of a sharp softmax is a difference of
near-equal numbers, ⟨∂outᵢₕ, xⱼₕ⟩ − ⟨∂outᵢₕ, outᵢₕ⟩, to which a rounded out would add its whole rounding error. Both
draw the same bits of dropout.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphmill import _native
from graphmill.nn.attention.edges import EdgeGroups
from graphmill.nn.define import capsule, define


@dataclass(frozen=True, slots=True)
class Scores:
    """What the logits of edges are made of; scores = 1 without `att`, and channels with it."""

    target: Tensor  # [num_targets, heads * scores]
    source: Tensor | None  # [num_sources, heads]; None: x itself
    att: Tensor | None  # [heads * channels]; None: the score is the logit
    negative_slope: float


@dataclass(frozen=True, slots=True)
class EdgeScores:
    """Features of edges and of the loops beside them, and what makes scores of them."""

    attr: Tensor  # [num_edges, edge_dim], in the caller's order
    loop_attr: Tensor  # [num_loops, edge_dim]
    weight: Tensor  # [edge_dim, heads * scores]


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout of alpha: whether an edge's head is dropped depends on (key, id of the edge, head) alone."""

    key: Tensor  # int64 [1], on the CPU
    p: float


def attention(
    x: Tensor, heads: int, scores: Scores, features: EdgeScores | None, dropout: Dropout | None, groups: EdgeGroups
) -> tuple[Tensor, Tensor]:
    """(out [num_targets, heads * channels], log-sum-exp [num_targets, heads]) for x [num_sources, heads * channels].

    The log-sum-exp carries no gradient, and is float32 at least.
    """
    out, lse, _ = _attention(*_arguments(x, heads, scores, features, dropout, groups))
    return out, lse


def attention_weights(
    lse: Tensor,
    x: Tensor,
    heads: int,
    scores: Scores,
    features: EdgeScores | None,
    dropout: Dropout | None,
    groups: EdgeGroups,
) -> Tensor:
    """Alpha [num_edges + num_loops, heads] in the caller's order, loops last, without a gradient.

    0 where an edge from a node to itself gave way to the node's loop.
    """
    with torch.no_grad():
        return _attention_weights(*_arguments(x, heads, scores, features, dropout, groups), lse)


def _arguments(
    x: Tensor, heads: int, scores: Scores, features: EdgeScores | None, dropout: Dropout | None, groups: EdgeGroups
) -> tuple[Any, ...]:
    def dense(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.contiguous()

    attr, loop_attr, weight = (None,) * 3 if features is None else (features.attr, features.loop_attr, features.weight)
    key, p = (None, 0.0) if dropout is None else (dropout.key, dropout.p)
    tensors = map(dense, (x, scores.source, scores.target, attr, loop_attr, weight, scores.att))
    return *tensors, *groups.tensors, groups.num_loops, heads, scores.negative_slope, p, key


_INPUTS = (
    "Tensor x, Tensor? source, Tensor target, Tensor? edge_attr, Tensor? loop_attr, Tensor? edge_weight, Tensor? att, "
    "Tensor indptr, Tensor sources, Tensor edge_ids, Tensor out_indptr, Tensor targets, Tensor slots, "
    "SymInt num_loops, int heads, float negative_slope, float p, Tensor? key"
)
_NUM_GRADIENTS = 7  # of the inputs that have one, which come first


def _call(*inputs: Any) -> Any:  # noqa: ANN401
    of_gradients: list[Any] = [capsule(each) for each in inputs[:_NUM_GRADIENTS]]
    x, source, target, edge_attr, loop_attr, edge_weight, att = of_gradients
    indptr, sources, edge_ids, *by_source, num_loops, heads, negative_slope, p, key = inputs[_NUM_GRADIENTS:]
    edges: list[Any] = [capsule(each) for each in (indptr, sources, edge_ids, *by_source)]
    if not len(by_source[0]):
        edges[3:] = None, None, None
    groups = _native.EdgeGroups(edges[0], edges[1], edges[2], edges[3], edges[4], edges[5], len(inputs[0]), num_loops)
    call = _native.Attention if inputs[0].dtype == torch.float32 else _native.AttentionDouble
    drawn = None if key is None else int(key) % 2**64
    return call(
        groups, heads, x, source, target, edge_attr, loop_attr, edge_weight, att, negative_slope, p, drawn
    )  # fmt: skip


def _results(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
    """Out, the log-sum-exp, and out in float32 where the format of x is shorter, else empty: out itself is saved."""
    x, target, heads = inputs[0], inputs[2], inputs[14]
    num_targets, sums = target.shape[0], torch.promote_types(x.dtype, torch.float32)
    exact = (0, 0) if x.dtype == sums else (num_targets, x.shape[1])
    out, lse = x.new_empty(num_targets, x.shape[1]), x.new_empty(num_targets, heads, dtype=sums)
    return out, lse, x.new_empty(exact, dtype=sums)


def _forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
    out, lse, exact = _results(*inputs)
    _call(*inputs).forward(capsule(out), capsule(lse), torch.get_num_threads())
    return out, lse, exact


def _alpha(*inputs: Any) -> Tensor:  # noqa: ANN401
    x: Tensor = inputs[0]
    sources, num_loops, heads = inputs[8], inputs[13], inputs[14]
    return x.new_zeros(sources.shape[0] + num_loops, heads)


def _weights(*inputs: Any) -> Tensor:  # noqa: ANN401
    *of_call, lse = inputs
    alpha = _alpha(*of_call)
    _call(*of_call).weights(capsule(lse), capsule(alpha), torch.get_num_threads())
    return alpha


def _gradients_like(*inputs: Any) -> list[Tensor]:  # noqa: ANN401
    """Room for gradients of the first inputs, empty where none is written: no input, or features that need none."""
    x, source, target, edge_attr, loop_attr, edge_weight, att = inputs[:_NUM_GRADIENTS]
    of_features = inputs[-1]
    wanted = (x, source, target, *((edge_attr, loop_attr) if of_features else (None, None)), edge_weight, att)
    return [x.new_empty(0) if tensor is None else torch.empty_like(tensor) for tensor in wanted]


def _begun(gradients: list[Tensor], of_call: Iterable[Any], of_features: bool) -> list[Tensor | None]:
    """The gradients that are asked for, else None."""
    if of_features:
        gradients[3].zero_()  # rows of edges that gave way to a loop are not written
    present = [None if tensor is None else gradient for gradient, tensor in zip(gradients, of_call, strict=False)]
    if not of_features:
        present[3] = present[4] = None
    return present


def _backward(*inputs: Any) -> list[Tensor]:  # noqa: ANN401
    *of_call, grad, out, lse, of_features = inputs
    gradients = _gradients_like(*inputs)
    present = _begun(gradients, of_call, of_features)
    x, sources, num_loops, heads = of_call[0], of_call[8], of_call[13], of_call[14]
    pairs = x.new_empty(sources.shape[0] + num_loops, 2 * heads)
    arrays: list[Any] = [capsule(each) for each in (grad, out, lse, pairs, *present)]
    _call(*of_call).backward(*arrays, torch.get_num_threads())
    return gradients


# ---- on GPUs: Triton is imported where a tensor of one arrives -------------------------------------------------------


def _triton_call(*inputs: Any) -> Any:  # noqa: ANN401
    from graphmill.nn.attention import triton_launch

    call = triton_launch.Call(*inputs)
    call.check()
    return triton_launch, call


def _triton_forward(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ANN401
    launch, call = _triton_call(*inputs)
    out, lse, exact = _results(*inputs)
    launch.forward(call, out, lse, exact if exact.numel() else None)
    return out, lse, exact


def _triton_weights(*inputs: Any) -> Tensor:  # noqa: ANN401
    launch, call = _triton_call(*inputs[:-1])
    alpha = _alpha(*inputs[:-1])
    launch.weights(call, inputs[-1], alpha)
    return alpha


def _triton_backward(*inputs: Any) -> list[Tensor]:  # noqa: ANN401
    *of_call, grad, out, lse, of_features = inputs
    launch, call = _triton_call(*of_call)
    gradients = _gradients_like(*inputs)
    launch.backward(call, grad, out, lse, _begun(gradients, of_call, of_features))
    return gradients


_attention = define(f"attention({_INPUTS}) -> (Tensor, Tensor, Tensor)", _forward, _results, on_gpu=_triton_forward)
_attention_weights = define(
    f"attention_weights({_INPUTS}, Tensor lse) -> Tensor",
    _weights,
    lambda *inputs: _alpha(*inputs[:-1]),
    on_gpu=_triton_weights,
)
_attention_backward = define(
    f"attention_backward({_INPUTS}, Tensor grad, Tensor out, Tensor lse, bool of_features) -> Tensor[]",
    _backward,
    _gradients_like,
    on_gpu=_triton_backward,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
    out, lse, exact = output
    ctx.mark_non_differentiable(lse, exact)
    is_rounded = out.dtype != exact.dtype
    ctx.save_for_backward(*inputs[:13], inputs[17], exact if is_rounded else out, lse)
    ctx.numbers = inputs[13:17]


def _gradients(ctx: Any, grad: Tensor, *_: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    *tensors, key, out, lse = ctx.saved_tensors
    of_features = tensors[3] is not None and (ctx.needs_input_grad[3] or ctx.needs_input_grad[4])
    gradients = _attention_backward(*tensors, *ctx.numbers, key, grad.contiguous(), out, lse, of_features)
    needed = ctx.needs_input_grad[:_NUM_GRADIENTS]
    return *(gradient if need else None for gradient, need in zip(gradients, needed, strict=True)), *([None] * 11)


_attention.differentiate(_save, _gradients)
