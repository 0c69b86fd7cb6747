"""The operators of mean-aggregating layers, each with its backward.

On the CPU in float32 the work is native: rows in compressed sparse form, no message per edge, results that do not
depend on the number of threads. Elsewhere the same arithmetic is torch's, of operators that never wait for the device
and add up in the same order every time: a sum by `index_add_` would differ from run to run on a GPU.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill import _native
from graphmill.graph.batch import SparseRows
from graphmill.nn.draws import beside, drop_values


@dataclass(frozen=True, slots=True)
class Activation:
    """ReLU, then dropout with probability `p`. A layer that takes `Activation | None` has none where it is None."""

    keys: Tensor | None = None  # int64 [num_rows]: the dropout key of each row; None: no dropout
    p: float = 0.0

    def __post_init__(self) -> None:
        assert (self.keys is None) == (self.p == 0), "dropout has a probability and a key per row, or neither"


RELU = Activation()


def is_native(x: Tensor) -> bool:
    """Whether the native operators take `x`: float32 on the CPU."""
    return x.device.type == "cpu" and x.dtype == torch.float32


def _apply(function: type[torch.autograd.Function], *arguments: object) -> Tensor:
    out: Tensor = function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    return out


def _unsigned(keys: Tensor | None) -> Tensor | None:
    return None if keys is None else keys.view(torch.uint64)


class _Linear(torch.autograd.Function):
    """dropout(relu(x · weightᵀ + bias)) on the CPU: in one pass for float32, by torch's product for bfloat16.

    The gradient of the weight leaves out what ReLU and dropout made zero, and is summed in float32.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, activation: Activation | None) -> Tensor:  # noqa: ANN401
        keys, p = (None, 0.0) if activation is None else (_unsigned(activation.keys), activation.p)
        a, w, b = x.detach(), weight.detach(), bias.detach()
        if x.dtype == torch.float32:
            out = x.new_empty(x.shape[0], weight.shape[0])
            _native.linear(a, w, b, out, activation is not None, keys, p, torch.get_num_threads())
        else:
            out = F.linear(a, w.to(x.dtype)).float().add_(b)
            if keys is not None:
                _native.relu_dropout(out, keys, p, out, torch.get_num_threads())
            elif activation is not None:
                out.relu_()
        ctx.save_for_backward(x, weight, None if activation is None else out)
        ctx.p = p
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        x, weight, activated = ctx.saved_tensors
        grad, threads = grads[0].contiguous(), torch.get_num_threads()
        grad_weight, grad_bias = torch.empty_like(weight), weight.new_empty(weight.shape[0])
        a = x.detach() if activated is not None else x.detach().float()
        _native.linear_backward(grad, activated, ctx.p, a, grad_weight, grad_bias, threads)
        grad_x = None
        if ctx.needs_input_grad[0]:
            if activated is not None:
                before = torch.empty_like(grad)
                _native.relu_dropout_backward(grad, activated, ctx.p, before, threads)
                grad = before
            grad_x = grad.to(x.dtype) @ weight.to(x.dtype)
        return grad_x, grad_weight, grad_bias, None


def linear(x: Tensor, weight: Tensor, bias: Tensor, activation: Activation | None = None) -> Tensor:
    """activation(x · weightᵀ + bias) → float32 [n, num_out] for x [n, num_in] and weight [num_out, num_in].

    The product is made in the number format of `x`.
    """
    if (is_native(x) or (x.device.type == "cpu" and x.dtype == torch.bfloat16)) and x.shape[0]:
        return _apply(_Linear, x, weight, bias, activation)
    out = F.linear(x, weight.to(x.dtype)).float() + bias
    return out if activation is None else activate(out, activation)


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


def activate(x: Tensor, activation: Activation) -> Tensor:
    """dropout(relu(x)) for x [n, num_columns]."""
    if activation.keys is None:
        return torch.relu(x)
    if is_native(x):
        return _apply(_ReluDropout, x.contiguous(), activation.keys, activation.p)
    columns = torch.arange(x.shape[1], device=x.device)
    return drop_values(torch.relu(x), beside(activation.keys, x).unsqueeze(1), columns, activation.p)


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
        return _apply(_SegmentMean, x.contiguous(), indptr, indices)
    begins, (entries,) = _own_entries(indptr, indices)
    return F.embedding_bag(entries.long(), x, begins, mode="mean", include_last_offset=True)


def _own_entries(indptr: Tensor, *entries: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Rows that begin at 0, and no entries but theirs.

    On a GPU they are so already (`sample.feed` copies nothing else), and to look would be to wait for it.
    """
    if indptr.device.type != "cpu":
        return indptr, entries
    first, last = int(indptr[0]), int(indptr[-1])
    return indptr - first, tuple(each[first:last] for each in entries)


class _SelfAndMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:  # noqa: ANN401
        out = h.new_empty(indptr.shape[0] - 1, 2 * h.shape[1])
        _native.gather_self_and_mean(h.detach(), None, None, indptr, indices, out, torch.get_num_threads())
        ctx.save_for_backward(indptr, indices)
        ctx.num_rows = h.shape[0]
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        indptr, indices = ctx.saved_tensors
        grad = grads[0].contiguous()
        grad_h = grad.new_empty(ctx.num_rows, grad.shape[1] // 2)
        _native.self_and_mean_backward(grad, indptr, indices, grad_h, torch.get_num_threads())
        return grad_h, None, None


def self_and_mean(h: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """[h[r] ; mean of h over segment r] for the first rows of h [n, num_columns] → [num_rows, 2 * num_columns]."""
    if is_native(h):
        return _apply(_SelfAndMean, h.contiguous(), indptr, indices)
    return torch.cat([h[: len(indptr) - 1], segment_mean(h, indptr, indices)], dim=1)


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
        return _apply(_SparseLinear, x.indptr, x.indices, x.values, weight)
    begins, (indices, values) = _own_entries(x.indptr, x.indices, x.values)
    return F.embedding_bag(
        indices.long(), weight, begins, mode="sum", include_last_offset=True, per_sample_weights=values
    )


def sparse_dropout(x: SparseRows, keys: Tensor, p: float) -> SparseRows:
    """Sparse rows with a share `p` of their values dropped; `keys` [n]: the key of each row."""
    row_of_value = torch.repeat_interleave(beside(keys, x.values), x.indptr.diff(), output_size=len(x.values))
    return SparseRows(x.indptr, x.indices, drop_values(x.values, row_of_value, x.indices.long(), p), x.num_features)
