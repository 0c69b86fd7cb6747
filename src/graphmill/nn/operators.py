"""The operators of mean-aggregating layers.

On the CPU in float32 the work is native: rows in compressed sparse form, no message per edge, results that do not
depend on the number of threads. Elsewhere the same arithmetic is torch's, of operators that never wait for the device
and add up in the same order every time: a sum by `index_add_` would differ from run to run on a GPU.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphmill.graph.batch import SparseRows
from graphmill.nn import native
from graphmill.nn.draws import drop_values, on_device_of, row_keys


@dataclass(frozen=True, slots=True)
class Activation:
    """ReLU, then dropout with probability `p`. A layer that takes `Activation | None` applies none if it is None."""

    keys: Tensor | None = None  # int64 [num_rows]: the dropout key of each row; None: no dropout
    p: float = 0.0

    def __post_init__(self) -> None:
        assert (self.keys is None) == (self.p == 0), "dropout has a probability and a key per row, or neither"


RELU = Activation()


def is_native(x: Tensor) -> bool:
    """Whether the native operators take `x`: float32 on the CPU."""
    return x.device.type == "cpu" and x.dtype == torch.float32


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation | None = None) -> Tensor:
    """activation(x · weightᵀ + bias) → float32 [n, num_out] for x [n, num_in] and weight [num_out, num_in].

    The product is made in the number format of `x`.
    """
    if (is_native(x) or (x.device.type == "cpu" and x.dtype == torch.bfloat16)) and x.shape[0]:
        keys, p = (None, 0.0) if activation is None else (activation.keys, activation.p)
        return native.linear(x, weight, bias, keys, activation is not None, p)
    out = F.linear(x, weight.to(x.dtype)).float()
    out = out if bias is None else out + bias
    return out if activation is None else activate(out, activation)


def activate(x: Tensor, activation: Activation) -> Tensor:
    """dropout(relu(x)) for x [n, num_columns]."""
    if activation.keys is None:
        return torch.relu(x)
    if is_native(x):
        return native.relu_dropout(x.contiguous(), activation.keys, activation.p)
    columns = torch.arange(x.shape[1], device=x.device)
    return drop_values(torch.relu(x), on_device_of(activation.keys, x).unsqueeze(1), columns, activation.p)


def relu_dropped(x: Tensor, p: float, training: bool) -> Tensor:
    """dropout(relu(x)) for x [n, num_columns], with draws that follow from torch's generator of the CPU.

    One number is drawn, and each value's draw is keyed by it, the same on any device: torch's own draws come one after
    another on the CPU, on one thread, and take longer than a product, and are others on a GPU.
    """
    if not training or p == 0:
        return torch.relu(x)
    if x.dim() != 2 or p >= 1:
        return F.dropout(torch.relu(x), p)
    key = int(torch.randint(2**63 - 1, (1,), device="cpu"))
    return activate(x, Activation(row_keys(key, torch.arange(len(x), device="cpu")), p))


def segment_mean(x: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """Mean of the rows x[indices[indptr[r]:indptr[r + 1]]] → [num_rows, num_columns]; the mean of nothing is 0."""
    if is_native(x):
        return native.segment_mean(x.contiguous(), indptr, indices)
    begins, (entries,) = _own_entries(indptr, indices)
    return F.embedding_bag(entries.long(), x, begins, mode="mean", include_last_offset=True)


def _own_entries(indptr: Tensor, *entries: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Rows that begin at 0, and no entries but theirs.

    On a GPU they are so already (`sample.feed` copies nothing else), and checking would wait for the device.
    """
    if indptr.device.type != "cpu":
        return indptr, entries
    first, last = int(indptr[0]), int(indptr[-1])
    return indptr - first, tuple(each[first:last] for each in entries)


def self_and_mean(h: Tensor, indptr: Tensor, indices: Tensor) -> Tensor:
    """[h[r] ; mean of h over segment r] for the first rows of h [n, num_columns] → [num_rows, 2 * num_columns]."""
    if is_native(h):
        return native.self_and_mean(h.contiguous(), indptr, indices)
    return torch.cat([h[: len(indptr) - 1], segment_mean(h, indptr, indices)], dim=1)


def self_and_sum(h: Tensor, eps: Tensor | None, indptr: Tensor, indices: Tensor) -> Tensor:
    """(1 + eps) h[r] + the sum of h over segment r, for the first rows of h [n, num_columns].

    Args:
        h: [n, num_columns].
        eps: [1], or None for 0.
        indptr: int64 [num_rows + 1].
        indices: int32, rows of h.

    Returns:
        [num_rows, num_columns].
    """
    if is_native(h):
        return native.self_and_sum(h.contiguous(), eps, indptr, indices)
    begins, (entries,) = _own_entries(indptr, indices)
    own = h[: len(indptr) - 1]
    own = own if eps is None else own * (1 + eps)
    return own + F.embedding_bag(entries.long(), h, begins, mode="sum", include_last_offset=True)


def sum_of_rows(x: Tensor, offsets: Tensor) -> Tensor:
    """Sums of the rows x[offsets[r]:offsets[r + 1]] of x [n, num_columns], in their order → [num_rows, num_columns]."""
    if is_native(x):
        rows, ones = torch.arange(len(x), dtype=torch.int32), x.new_ones(len(x))
        return native.sparse_linear(offsets, rows, ones, x.contiguous())
    return torch.segment_reduce(x, "sum", offsets=offsets, axis=0, initial=0.0)


def norm_relu(norm: nn.Module, x: Tensor) -> Tensor:
    """relu(norm(x)) for x [n, num_columns]; in one pass for batch norm in training, and as torch does it elsewhere.

    Args:
        norm: a norm of the columns. Batch norm keeps its running moments as torch's own does.
        x: [n, num_columns].
    """
    # torch refuses to learn from one row.
    if isinstance(norm, nn.BatchNorm1d) and norm.training and is_native(x) and len(x) > 1:
        return _batch_norm_relu(norm, x.contiguous())
    return torch.relu(norm(x))


def _batch_norm_relu(norm: nn.BatchNorm1d, x: Tensor) -> Tensor:
    running, momentum = (norm.running_mean, norm.running_var, norm.num_batches_tracked), norm.momentum
    assert momentum is not None
    out, mean, variance = native.norm_relu(x, norm.weight, norm.bias, norm.eps)
    with torch.no_grad():
        running_mean, running_variance, counted = (each for each in running if each is not None)
        running_mean.lerp_(mean, momentum)
        running_variance.lerp_(variance * (len(x) / (len(x) - 1)), momentum)
        counted.add_(1)
    return out


def sparse_linear(x: SparseRows, weight: Tensor) -> Tensor:
    """x · weight for sparse rows x [n, num_features] and weight [num_features, num_out] → [n, num_out]."""
    if is_native(weight):
        return native.sparse_linear(x.indptr, x.indices, x.values, weight)
    begins, (indices, values) = _own_entries(x.indptr, x.indices, x.values)
    return F.embedding_bag(
        indices.long(), weight, begins, mode="sum", include_last_offset=True, per_sample_weights=values
    )


def sparse_dropout(x: SparseRows, keys: Tensor, p: float) -> SparseRows:
    """Sparse rows with a share `p` of their values dropped; `keys` [n]: the key of each row."""
    row_of_value = torch.repeat_interleave(on_device_of(keys, x.values), x.indptr.diff(), output_size=len(x.values))
    return SparseRows(x.indptr, x.indices, drop_values(x.values, row_of_value, x.indices.long(), p), x.num_features)
