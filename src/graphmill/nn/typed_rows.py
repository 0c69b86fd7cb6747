"""Rows that have types, each type with a matrix of its own.

On the CPU in float32 the rows of a type lie together for one product a type; results do not depend on the number of
threads. Elsewhere each type's product is made for all rows, and each row takes its own: no wait for the device.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphmill.graph.batch import SparseRows
from graphmill.nn import native
from graphmill.nn.operators import is_native, linear, sparse_linear


@dataclass(frozen=True, slots=True)
class TypedRows:
    """The types of some rows, and on the CPU an order in which the rows of a type lie together."""

    types: Tensor  # int64 [n]
    num_types: int
    order: Tensor  # int32 [n]: which row is at each place; [0] elsewhere than on the CPU
    places: Tensor  # int32 [n]: its inverse
    indptr: Tensor  # int64 [num_types + 1]: the places of each type

    @classmethod
    def of(cls, types: Tensor, num_types: int) -> "TypedRows":
        """Order rows by their types [n], whole numbers below `num_types`."""
        if types.device.type != "cpu":
            empty = torch.empty(0, dtype=torch.int32)
            return cls(types.long(), num_types, empty, empty, torch.empty(0, dtype=torch.int64))
        order = np.argsort(types.numpy().astype(np.min_scalar_type(num_types)), kind="stable")  # by counting
        places = np.empty(len(order), np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        indptr = np.zeros(num_types + 1, np.int64)
        np.cumsum(np.bincount(types.numpy(), minlength=num_types), out=indptr[1:])
        ordered = torch.from_numpy(order.astype(np.int32))
        return cls(types.long(), num_types, ordered, torch.from_numpy(places), torch.from_numpy(indptr))

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.float32) -> Tensor:
        """x · weight[type]ᵀ + bias[type] → float32 [n, num_out].

        Args:
            x: [n, num_in].
            weight: [num_types, num_out, num_in].
            bias: [num_types, num_out], or None.
            dtype: of the factors of the product.
        """
        if is_native(x) and dtype == torch.float32:
            return taken(native.grouped_linear(taken(x, self.order), weight, bias, self.indptr), self.places)

        out = torch.zeros(len(x), weight.shape[1], device=x.device)
        for number, matrix in enumerate(weight):
            out = torch.where((self.types == number).unsqueeze(1), linear(x.to(dtype), matrix, None), out)
        return out if bias is None else out + F.embedding(self.types, bias)


def taken(x: Tensor, rows: Tensor) -> Tensor:
    """Rows int32 [m] of x [n, num_columns] → [m, num_columns].

    As a product of sparse rows, whose gradient adds up in the same order for any number of threads.
    """
    if not is_native(x):
        return F.embedding(rows.long(), x)
    begins = torch.arange(len(rows) + 1)
    return sparse_linear(SparseRows(begins, rows, torch.ones(len(rows)), len(x)), x.contiguous())
