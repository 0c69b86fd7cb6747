"""The native operators of layers: products, sums and means over segments, batch norm; `define` makes them torch's."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill import _native
from graphmill.nn.define import capsule, define


def _unsigned(keys: Tensor | None) -> Any:  # noqa: ANN401  # a capsule
    return None if keys is None else capsule(keys.view(torch.uint64))


# ---- linear: dropout(relu(x · weightᵀ + bias)), in one pass for float32, by torch's product for bfloat16 -------------


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, keys: Tensor | None, relu: bool, p: float) -> Tensor:
    out, threads = weight.new_empty(x.shape[0], weight.shape[0]), torch.get_num_threads()
    if x.dtype == torch.float32:
        _native.linear(capsule(x), capsule(weight), capsule(bias), capsule(out), relu, _unsigned(keys), p, threads)
    else:
        product = F.linear(x.detach(), weight.detach().to(x.dtype)).view(torch.uint16)
        _native.finish(capsule(product), capsule(bias), capsule(out), relu, _unsigned(keys), p, threads)
    return out


def _linear_backward(grad: Tensor, x: Tensor, weight: Tensor, activated: Tensor | None, p: float) -> list[Tensor]:
    """Gradients of weight and bias; what ReLU and dropout made zero is left out."""
    grad_weight, grad_bias = torch.empty_like(weight), weight.new_empty(weight.shape[0])
    threads = torch.get_num_threads()
    _native.linear_backward(
        capsule(grad), capsule(activated), p, capsule(x.detach()), capsule(grad_weight), capsule(grad_bias), threads
    )
    return [grad_weight, grad_bias]


linear = define(
    "linear(Tensor x, Tensor weight, Tensor? bias, Tensor? keys, bool relu, float p) -> Tensor",
    _linear,
    lambda x, weight, bias, keys, relu, p: weight.new_empty(x.shape[0], weight.shape[0]),
)
linear_backward = define(
    "linear_backward(Tensor grad, Tensor x, Tensor weight, Tensor? activated, float p) -> Tensor[]",
    _linear_backward,
    lambda grad, x, weight, activated, p: [torch.empty_like(weight), weight.new_empty(weight.shape[0])],
)


def _narrow_gradient(grad: Tensor, activated: Tensor | None, p: float) -> list[Tensor]:
    """The gradient of a product in bfloat16, by that of its activation, and the gradient of the bias, in float32."""
    narrow, grad_bias = torch.empty_like(grad, dtype=torch.bfloat16), grad.new_empty(grad.shape[1])
    _native.narrow_gradient(
        capsule(grad), capsule(activated), p, capsule(narrow.view(torch.uint16)), capsule(grad_bias),
        torch.get_num_threads(),
    )  # fmt: skip
    return [narrow, grad_bias]


narrow_gradient = define(
    "narrow_gradient(Tensor grad, Tensor? activated, float p) -> Tensor[]",
    _narrow_gradient,
    lambda grad, activated, p: [torch.empty_like(grad, dtype=torch.bfloat16), grad.new_empty(grad.shape[1])],
)


def _save_linear(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    x, weight, _bias, _keys, relu, p = inputs
    ctx.save_for_backward(x, weight, output if relu else None)
    ctx.p = p


def _linear_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    x, weight, activated = ctx.saved_tensors
    grad = grad.contiguous()
    grad_x = grad_weight = grad_bias = None
    of_x, of_weight = ctx.needs_input_grad[0], ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
    if x.dtype == torch.float32:
        if of_weight:  # not of weights that stay as they are
            grad_weight, grad_bias = linear_backward(grad, x, weight, activated, ctx.p)
        if of_x:
            before = grad if activated is None else relu_dropout_backward(grad, activated, ctx.p)
            grad_x = linear(before, weight.t().contiguous(), None, None, False, 0.0)
    else:  # torch sums products of such factors in float32, and rounds the sum
        factor, grad_bias = narrow_gradient(grad, activated, ctx.p)
        grad_weight = (factor.t() @ x).to(weight.dtype) if of_weight else None
        grad_x = factor @ weight.to(x.dtype) if of_x else None
    return grad_x, grad_weight, grad_bias if ctx.needs_input_grad[2] else None, None, None, None


linear.differentiate(_save_linear, _linear_gradients)


# ---- relu_dropout: dropout(relu(x)) ----------------------------------------------------------------------------------


def _relu_dropout(x: Tensor, keys: Tensor, p: float) -> Tensor:
    out = torch.empty_like(x)
    _native.relu_dropout(capsule(x), _unsigned(keys), p, capsule(out), torch.get_num_threads())
    return out


def _relu_dropout_backward(grad: Tensor, out: Tensor, p: float) -> Tensor:
    grad_x = torch.empty_like(grad)
    _native.relu_dropout_backward(capsule(grad), capsule(out), p, capsule(grad_x), torch.get_num_threads())
    return grad_x


relu_dropout = define(
    "relu_dropout(Tensor x, Tensor keys, float p) -> Tensor", _relu_dropout, lambda x, keys, p: torch.empty_like(x)
)
relu_dropout_backward = define(
    "relu_dropout_backward(Tensor grad, Tensor out, float p) -> Tensor",
    _relu_dropout_backward,
    lambda grad, out, p: torch.empty_like(grad),
)


def _save_relu_dropout(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    ctx.save_for_backward(output)
    ctx.p = inputs[2]


def _relu_dropout_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return relu_dropout_backward(grad.contiguous(), ctx.saved_tensors[0], ctx.p), None, None


relu_dropout.differentiate(_save_relu_dropout, _relu_dropout_gradients)


# ---- means over segments ---------------------------------------------------------------------------------------------


def _segment_mean(x: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    out = x.new_empty(indptr.shape[0] - 1, x.shape[1])
    _native.segment_mean(capsule(x), capsule(indptr), capsule(indices), capsule(out), torch.get_num_threads())
    return out


def _segment_mean_backward(grad: Tensor, indptr: Tensor, indices: Tensor, num_rows: int) -> Tensor:
    grad_x = grad.new_empty(num_rows, grad.shape[1])
    _native.segment_mean_backward(
        capsule(grad), capsule(indptr), capsule(indices), capsule(grad_x), torch.get_num_threads()
    )
    return grad_x


def _self_and_mean(h: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    out = h.new_empty(indptr.shape[0] - 1, 2 * h.shape[1])
    _native.gather_self_and_mean(
        capsule(h), None, None, capsule(indptr), capsule(indices), capsule(out), torch.get_num_threads()
    )
    return out


def _self_and_mean_backward(grad: Tensor, indptr: Tensor, indices: Tensor, num_rows: int) -> Tensor:
    grad_h = grad.new_empty(num_rows, grad.shape[1] // 2)
    _native.self_and_mean_backward(
        capsule(grad), capsule(indptr), capsule(indices), capsule(grad_h), torch.get_num_threads()
    )
    return grad_h


segment_mean = define(
    "segment_mean(Tensor x, Tensor indptr, Tensor indices) -> Tensor",
    _segment_mean,
    lambda x, indptr, indices: x.new_empty(indptr.shape[0] - 1, x.shape[1]),
)
segment_mean_backward = define(
    "segment_mean_backward(Tensor grad, Tensor indptr, Tensor indices, SymInt num_rows) -> Tensor",
    _segment_mean_backward,
    lambda grad, indptr, indices, num_rows: grad.new_empty(num_rows, grad.shape[1]),
)
self_and_mean = define(
    "self_and_mean(Tensor h, Tensor indptr, Tensor indices) -> Tensor",
    _self_and_mean,
    lambda h, indptr, indices: h.new_empty(indptr.shape[0] - 1, 2 * h.shape[1]),
)
self_and_mean_backward = define(
    "self_and_mean_backward(Tensor grad, Tensor indptr, Tensor indices, SymInt num_rows) -> Tensor",
    _self_and_mean_backward,
    lambda grad, indptr, indices, num_rows: grad.new_empty(num_rows, grad.shape[1] // 2),
)


def _save_segments(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ANN401
    x, indptr, indices = inputs
    ctx.save_for_backward(indptr, indices)
    ctx.num_rows = x.shape[0]


def _segment_mean_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return segment_mean_backward(grad.contiguous(), *ctx.saved_tensors, ctx.num_rows), None, None


def _self_and_mean_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return self_and_mean_backward(grad.contiguous(), *ctx.saved_tensors, ctx.num_rows), None, None


segment_mean.differentiate(_save_segments, _segment_mean_gradients)
self_and_mean.differentiate(_save_segments, _self_and_mean_gradients)


# ---- self_and_sum: (1 + eps) · rows + sums over segments -------------------------------------------------------------


def _scale(eps: Tensor | None) -> float:
    return 1.0 if eps is None else 1.0 + float(eps.detach())


def _self_and_sum(h: Tensor, eps: Tensor | None, indptr: Tensor, indices: Tensor) -> Tensor:
    out = h.new_empty(indptr.shape[0] - 1, h.shape[1])
    _native.self_and_sum(
        capsule(h), _scale(eps), capsule(indptr), capsule(indices), capsule(out), torch.get_num_threads()
    )
    return out


def _self_and_sum_backward(grad: Tensor, eps: Tensor | None, indptr: Tensor, indices: Tensor, num_rows: int) -> Tensor:
    grad_h = grad.new_empty(num_rows, grad.shape[1])
    rows, threads = (capsule(indptr), capsule(indices)), torch.get_num_threads()
    _native.self_and_sum_backward(capsule(grad), _scale(eps), *rows, capsule(grad_h), threads)
    return grad_h


self_and_sum = define(
    "self_and_sum(Tensor h, Tensor? eps, Tensor indptr, Tensor indices) -> Tensor",
    _self_and_sum,
    lambda h, eps, indptr, indices: h.new_empty(indptr.shape[0] - 1, h.shape[1]),
)
self_and_sum_backward = define(
    "self_and_sum_backward(Tensor grad, Tensor? eps, Tensor indptr, Tensor indices, SymInt num_rows) -> Tensor",
    _self_and_sum_backward,
    lambda grad, eps, indptr, indices, num_rows: grad.new_empty(num_rows, grad.shape[1]),
)


def _save_self_and_sum(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    h, eps, indptr, indices = inputs
    ctx.save_for_backward(None if eps is None else h, eps, indptr, indices)
    ctx.num_rows = h.shape[0]


def _self_and_sum_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    h, eps, indptr, indices = ctx.saved_tensors
    grad, grad_h, grad_eps = grad.contiguous(), None, None
    if ctx.needs_input_grad[0]:
        grad_h = self_and_sum_backward(grad, eps, indptr, indices, ctx.num_rows)
    if ctx.needs_input_grad[1]:
        grad_eps = (grad * h[: grad.shape[0]]).sum().reshape(eps.shape)
    return grad_h, grad_eps, None, None


self_and_sum.differentiate(_save_self_and_sum, _self_and_sum_gradients)


# ---- norm_relu: relu(batch norm) of a batch in training, with its moments -------------------------------------------


def _norm_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    out, mean, variance = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    threads = torch.get_num_threads()
    _native.norm_relu(
        capsule(x), capsule(weight), capsule(bias), eps, capsule(mean), capsule(variance), capsule(out), threads
    )
    return out, mean, variance


def _norm_relu_backward(
    grad: Tensor, x: Tensor, weight: Tensor, mean: Tensor, variance: Tensor, out: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    of_forward = (capsule(x), capsule(weight), eps, capsule(mean), capsule(variance), capsule(out))
    found = (capsule(grad_x), capsule(grad_weight), capsule(grad_bias))
    _native.norm_relu_backward(*of_forward, capsule(grad), *found, torch.get_num_threads())
    return grad_x, grad_weight, grad_bias


norm_relu = define(
    "norm_relu(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor, Tensor)",
    _norm_relu,
    lambda x, weight, bias, eps: (torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)),
)
norm_relu_backward = define(
    "norm_relu_backward(Tensor grad, Tensor x, Tensor weight, Tensor mean, Tensor variance, Tensor out, float eps) "
    "-> (Tensor, Tensor, Tensor)",
    _norm_relu_backward,
    lambda grad, x, weight, mean, variance, out, eps: (
        torch.empty_like(x),
        torch.empty_like(weight),
        torch.empty_like(weight),
    ),
)


def _save_norm_relu(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
    x, weight, _bias, eps = inputs
    out, mean, variance = output
    ctx.mark_non_differentiable(mean, variance)
    ctx.save_for_backward(x, weight, mean, variance, out)
    ctx.eps = eps


def _norm_relu_gradients(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return *norm_relu_backward(grad.contiguous(), *ctx.saved_tensors, ctx.eps), None


norm_relu.differentiate(_save_norm_relu, _norm_relu_gradients)


# ---- sparse_linear: x · weight for sparse rows x ---------------------------------------------------------------------


def _sparse_linear(indptr: Tensor, indices: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    out = weight.new_empty(indptr.shape[0] - 1, weight.shape[1])
    _native.sparse_multiply(
        capsule(indptr), capsule(indices), capsule(values), capsule(weight), capsule(out), torch.get_num_threads()
    )
    return out


def _sparse_linear_backward(indptr: Tensor, indices: Tensor, values: Tensor, grad: Tensor, num_features: int) -> Tensor:
    grad_weight = grad.new_empty(num_features, grad.shape[1])
    threads = torch.get_num_threads()
    _native.sparse_multiply_backward(
        capsule(indptr), capsule(indices), capsule(values), capsule(grad), capsule(grad_weight), threads
    )
    return grad_weight


sparse_linear = define(
    "sparse_linear(Tensor indptr, Tensor indices, Tensor values, Tensor weight) -> Tensor",
    _sparse_linear,
    lambda indptr, indices, values, weight: weight.new_empty(indptr.shape[0] - 1, weight.shape[1]),
)
sparse_linear_backward = define(
    "sparse_linear_backward(Tensor indptr, Tensor indices, Tensor values, Tensor grad, SymInt num_features) -> Tensor",
    _sparse_linear_backward,
    lambda indptr, indices, values, grad, num_features: grad.new_empty(num_features, grad.shape[1]),
)


def _save_sparse(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ANN401
    ctx.save_for_backward(*inputs[:3])
    ctx.num_features = inputs[3].shape[0]


def _sparse_linear_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return None, None, None, sparse_linear_backward(*ctx.saved_tensors, grad.contiguous(), ctx.num_features)


sparse_linear.differentiate(_save_sparse, _sparse_linear_gradients)


# ---- grouped_linear: rows in groups that lie together, each group times a matrix of its own -------------------------


def _grouped_linear(x: Tensor, weight: Tensor, bias: Tensor | None, indptr: Tensor) -> Tensor:
    out, threads = x.new_empty(x.shape[0], weight.shape[1]), torch.get_num_threads()
    for number, rows in _groups(indptr):
        line = None if bias is None else bias.detach()[number]
        _native.linear(
            capsule(x[rows]), capsule(weight[number]), capsule(line), capsule(out[rows]), False, None, 0.0, threads
        )
    return out


def _grouped_linear_backward(grad: Tensor, x: Tensor, weight: Tensor, indptr: Tensor) -> list[Tensor]:
    grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.zeros_like(weight), weight.new_zeros(weight.shape[:2])
    turned, threads = weight.detach().transpose(1, 2).contiguous(), torch.get_num_threads()
    for number, rows in _groups(indptr):
        given, read = grad.detach()[rows], x.detach()[rows]
        _native.linear(capsule(given), capsule(turned[number]), None, capsule(grad_x[rows]), False, None, 0.0, threads)
        _native.linear_backward(
            capsule(given), None, 0.0, capsule(read), capsule(grad_weight[number]), capsule(grad_bias[number]), threads
        )
    return [grad_x, grad_weight, grad_bias]


def _groups(indptr: Tensor) -> Iterator[tuple[int, slice]]:
    """The number and the rows of each group that has rows."""
    for number, (begin, end) in enumerate(pairwise(indptr.tolist())):
        if begin < end:
            yield number, slice(begin, end)


grouped_linear = define(
    "grouped_linear(Tensor x, Tensor weight, Tensor? bias, Tensor indptr) -> Tensor",
    _grouped_linear,
    lambda x, weight, bias, indptr: x.new_empty(x.shape[0], weight.shape[1]),
)
grouped_linear_backward = define(
    "grouped_linear_backward(Tensor grad, Tensor x, Tensor weight, Tensor indptr) -> Tensor[]",
    _grouped_linear_backward,
    lambda grad, x, weight, indptr: [
        torch.empty_like(x),
        torch.empty_like(weight),
        weight.new_empty(weight.shape[:2]),
    ],
)


def _save_grouped(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ANN401
    x, weight, _bias, indptr = inputs
    ctx.save_for_backward(x, weight, indptr)


def _grouped_linear_gradients(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    grad_x, grad_weight, grad_bias = grouped_linear_backward(grad.contiguous(), *ctx.saved_tensors)
    return grad_x, grad_weight, grad_bias if ctx.needs_input_grad[2] else None, None


grouped_linear.differentiate(_save_grouped, _grouped_linear_gradients)
