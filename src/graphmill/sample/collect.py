"""Collect what a step computes on: features and labels of a sampled neighbourhood."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill import _native
from graphmill.graph.batch import DenseRows, Inputs, MiniBatch, Sampled, SelfAndMean, SparseRows
from graphmill.graph.features import DenseFeatures, Features

InputForm = Literal["rows", "self_and_mean"]

# As many batches as can be alive at once: being made, waiting in the queue, being computed on.
_BATCHES_IN_MAKING_AND_USE = 2


@dataclass(slots=True)
class BufferRing:
    """Tensors that are written again after `size` later calls: fresh memory costs more than what is written to it."""

    size: int
    dtype: torch.dtype
    _slots: list[Tensor] = field(default_factory=list, init=False, repr=False)
    _next: int = field(default=0, init=False, repr=False)

    def take(self, num_rows: int, num_columns: int) -> Tensor:
        """Uninitialised [num_rows, num_columns]."""
        wanted = num_rows * num_columns
        if self._next == len(self._slots):
            self._slots.append(torch.empty(0, dtype=self.dtype))
        if self._slots[self._next].numel() < wanted:
            self._slots[self._next] = torch.empty(wanted + wanted // 8, dtype=self.dtype)
        taken = self._slots[self._next][:wanted].view(num_rows, num_columns)
        self._next = (self._next + 1) % self.size
        return taken


@dataclass(frozen=True, slots=True)
class Collector:
    """Features and labels for sampled neighbourhoods.

    The feature memory of a batch serves again `prefetch` + 2 batches later, so batches are to be used in order and not kept.
    """

    features: Features
    labels: NDArray[np.int64]
    form: InputForm
    dtype: torch.dtype  # of dense inputs: float32 or bfloat16
    num_threads: int
    prefetch: int
    _ring: BufferRing = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ring", BufferRing(self.prefetch + _BATCHES_IN_MAKING_AND_USE, self.dtype))

    def collect(self, sampled: Sampled) -> MiniBatch:
        """The mini-batch of a sampled neighbourhood, on the CPU."""
        return MiniBatch(
            seeds=sampled.seeds,
            node_ids=torch.from_numpy(sampled.node_ids),
            indptr=torch.from_numpy(sampled.indptr),
            indices=torch.from_numpy(sampled.indices),
            num_nodes_per_hop=sampled.num_nodes_per_hop,
            num_edges_per_hop=sampled.num_edges_per_hop,
            inputs=collect_inputs(self.features, sampled, form=self.form, take=self._ring.take, num_threads=self.num_threads),
            labels=torch.from_numpy(self.labels[sampled.seeds.ids]),
        )


def collect_inputs(
    features: Features, sampled: Sampled, *, form: InputForm, take: Callable[[int, int], Tensor], num_threads: int
) -> Inputs:
    """The features of a neighbourhood in the form that the model's first layer reads.

    `take(num_rows, num_columns)` gives the memory for dense ones, and with it their number format.
    """
    if not isinstance(features, DenseFeatures):
        return gather_sparse(features.indptr, features.indices, features.values, features.num_features, sampled.node_ids, num_threads)
    if form == "self_and_mean":
        num_rows = len(sampled.indptr) - 1
        x = take(num_rows, 2 * features.x.shape[1])
        _native.gather_self_and_mean(
            features.x, sampled.node_ids[:num_rows], sampled.node_ids, sampled.indptr, sampled.indices, x, num_threads
        )
        return SelfAndMean(x)
    x = take(len(sampled.node_ids), features.x.shape[1])
    _native.gather_rows(features.x, sampled.node_ids, x, num_threads)
    return DenseRows(x)


def gather_sparse(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[np.float32],
    num_features: int,
    ids: NDArray[np.int64],
    num_threads: int,
) -> SparseRows:
    """Rows `ids` of a compressed sparse matrix."""
    out_indptr = np.zeros(len(ids) + 1, dtype=np.int64)
    np.cumsum(indptr[ids + 1] - indptr[ids], out=out_indptr[1:])
    out_indices = np.empty(out_indptr[-1], dtype=np.int32)
    out_values = np.empty(out_indptr[-1], dtype=np.float32)
    _native.gather_sparse_rows(indptr, indices, values, ids, out_indptr, out_indices, out_values, num_threads)
    return SparseRows(
        torch.from_numpy(out_indptr), torch.from_numpy(out_indices), torch.from_numpy(out_values), num_features
    )
