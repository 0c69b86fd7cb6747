"""The operators of mean-aggregating layers, each with its backward.

On the CPU in float32 the work is native: rows in compressed sparse form, no message per edge, results that do not depend on the
number of threads. Elsewhere the same arithmetic is torch's.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill import _native
from graphmill.graph.batch import SparseRows
from graphmill.nn.draws import drop_values


def is_native(x: Tensor) -> bool:
    """Whether the native operators take `x`: float32 on the CPU."""
    return x.device.type == "cpu" and x.dtype == torch.float32


class _Linear(torch.autograd.Function):
    """dropout(relu(x · weightᵀ + bias)) in one pass over the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool, keys: Tensor | None, p: float) -> Tensor:  # noqa: ANN401
        out = x.new_empty(x.shape[0], weight.shape[0])
        unsigned = None if keys is None else keys.view(torch.uint64)
        _native.linear(
            x.detach(),
            weight.detach(),
            bias.detach(),
            out,
            relu,
            unsigned,
            p if keys is not None else 0.0,
            torch.get_num_threads(),
        )
        ctx.save_for_backward(x, weight, out if relu else None)
        ctx.scale_p = p if keys is not None else 0.0
        ctx.relu = relu
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, out = ctx.saved_tensors
        grad = grads[0].contiguous()
        if ctx.relu:
            before = torch.empty_like(grad)
            _native.relu_dropout_backward(grad, out, ctx.scale_p, before, torch.get_num_threads())
            grad = before
        grad_weight = torch.empty_like(weight)
        _native.linear_backward_weight(grad, x.detach(), grad_weight, torch.get_num_threads())
        grad_x = grad @ weight if ctx.needs_input_grad[0] else None
        return grad_x, grad_weight, grad.sum(dim=0), None, None, None


def linear(
    x: Tensor, weight: Tensor, bias: Tensor, *, relu: bool = False, keys: Tensor | None = None, p: float = 0.0
) -> Tensor:
    """dropout(relu(x · weightᵀ + bias)) → [n, num_out], float32.

    `x` [n, num_in], `weight` [num_out, num_in]. `keys` [n]: the dropout key of each row, or None for no dropout. Dropout
    comes after a ReLU only.
    """
    if is_native(x) and x.shape[0]:
        out: Tensor = _Linear.apply(x, weight, bias, relu, keys if p > 0 else None, p)
        return out
    out = F.linear(x, weight.to(x.dtype)).float() + bias
    return activate(out, keys=keys, p=p) if relu else out


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, keys: Tensor, p: float) -> Tensor:  # noqa: ANN401
        out = torch.empty_like(x)
        _native.relu_dropout(x.detach(), keys.view(torch.uint64), p, out, torch.get_num_threads())
        ctx.save_for_backward(out)
        ctx.p = p
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        (out,) = ctx.saved_tensors
        grad_x = torch.empty_like(out)
        _native.relu_dropout_backward(grads[0].contiguous(), out, ctx.p, grad_x, torch.get_num_threads())
        return grad_x, None, None


def activate(x: Tensor, *, keys: Tensor | None, p: float) -> Tensor:
    """dropout(relu(x)) for x [n, num_columns]; `keys` [n] as in `linear`."""
    if keys is None or p == 0:
        return torch.relu(x)
    if is_native(x):
        out: Tensor = _ReluDropout.apply(x.contiguous(), keys, p)
        return out
    columns = torch.arange(x.shape[1], device=x.device)
    return drop_values(torch.relu(x), keys.to(x.device).unsqueeze(1), columns, p)


class _SegmentMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:  # noqa: ANN401
        out = x.new_empty(indptr.shape[0] - 1, x.shape[1])
        _native.segment_mean(x.detach(), indptr, indices, out, torch.get_num_threads())
        ctx.save_for_backward(indptr, indices)
        ctx.num_rows = x.shape[0]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        indptr, indices = ctx.saved_tensors
        grad = grads[0].contiguous()
        grad_x = grad.new_empty(ctx.num_rows, grad.shape[1])
        _native.segment_mean_backward(grad, indptr, indices, grad_x, torch.get_num_threads())
        return grad_x, None, None


def segment_mean(x: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """Mean of the rows x[indices[indptr[r]:indptr[r + 1]]] → [num_rows, num_columns]; the mean of nothing is 0."""
    if is_native(x):
        out: Tensor = _SegmentMean.apply(x.contiguous(), indptr, indices)
        return out
    lengths = indptr.diff()
    rows = torch.repeat_interleave(torch.arange(len(lengths), device=x.device), lengths)
    total = x.new_zeros(len(lengths), x.shape[1]).index_add_(0, rows, x.index_select(0, indices))
    return total / lengths.clamp(min=1).unsqueeze(1).to(x.dtype)


class _SparseLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, indptr: Tensor, indices: Tensor, values: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN401
        out = weight.new_empty(indptr.shape[0] - 1, weight.shape[1])
        _native.sparse_multiply(indptr, indices, values, weight.detach(), out, torch.get_num_threads())
        ctx.save_for_backward(indptr, indices, values)
        ctx.num_features = weight.shape[0]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        indptr, indices, values = ctx.saved_tensors
        grad = grads[0].contiguous()
        grad_weight = grad.new_empty(ctx.num_features, grad.shape[1])
        _native.sparse_multiply_backward(indptr, indices, values, grad, grad_weight, torch.get_num_threads())
        return None, None, None, grad_weight


def sparse_linear(x: SparseRows, weight: Tensor) -> Tensor:
    """x · weight for sparse rows x [n, num_features] and weight [num_features, num_out] → [n, num_out]."""
    if is_native(weight):
        out: Tensor = _SparseLinear.apply(x.indptr, x.indices, x.values, weight)
        return out
    rows = torch.repeat_interleave(torch.arange(len(x.indptr) - 1, device=weight.device), x.indptr.diff())
    products = weight.index_select(0, x.indices) * x.values.unsqueeze(1)
    return weight.new_zeros(len(x.indptr) - 1, weight.shape[1]).index_add_(0, rows, products)


def sparse_dropout(x: SparseRows, keys: Tensor, p: float) -> SparseRows:
    """Sparse rows with a share `p` of their values dropped; `keys` [n]: the key of each row."""
    row_of_value = torch.repeat_interleave(keys.to(x.values.device), x.indptr.diff())
    return SparseRows(x.indptr, x.indices, drop_values(x.values, row_of_value, x.indices.long(), p), x.num_features)
