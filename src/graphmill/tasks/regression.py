"""Logistic regression, as a baseline: with a bias, an L2 penalty and C = 1, as scikit-learn's default is.

torch's L-BFGS on all rows: the objective is convex, so that is its only minimum, and scikit-learn need not be
installed. Dense rows are in float64; sparse ones, which are counts most often, in float32, which takes half the time.
The rows may be a product of matrices, which is never computed: S^k (X W) in place of (S^k X) W leaves sparse features
sparse.
"""

import logging
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_log = logging.getLogger(__name__)

_MAX_STEPS: Final = 1000
_TOLERANCE: Final = 2e-5  # of the largest entry of the gradient of the mean objective


@dataclass(frozen=True, slots=True)
class Csr:
    """A sparse matrix in numpy arrays."""

    indptr: NDArray[np.int64]
    indices: NDArray[np.int64]
    values: NDArray[Any]
    num_columns: int

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.indptr) - 1

    def rows(self, chosen: NDArray[np.int64]) -> "Csr":
        """Take some rows, in the order of `chosen`."""
        lengths = np.diff(self.indptr)[chosen]
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        entries = np.arange(indptr[-1]) + np.repeat(self.indptr[:-1][chosen] - indptr[:-1], lengths)
        return Csr(indptr, self.indices[entries], self.values[entries], self.num_columns)

    def tensor(self) -> Tensor:
        """The matrix as a tensor, float32, in CSR form."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)")
            return torch.sparse_csr_tensor(
                torch.from_numpy(self.indptr.astype(np.int64)),
                torch.from_numpy(self.indices.astype(np.int64)),
                torch.from_numpy(self.values.astype(np.float32)),
                size=(self.num_rows, self.num_columns),
                check_invariants=False,  # a store was checked
            )


def in_blocks(blocks: Sequence[tuple[int, int, Csr]], num_rows: int, num_columns: int) -> Csr:
    """Make one matrix of (first row, first column, block); blocks may lie beside one another, and elsewhere is 0."""
    rows = [first + np.repeat(np.arange(block.num_rows), np.diff(block.indptr)) for first, _, block in blocks]
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    columns = np.concatenate([block.indices + first for _, first, block in blocks])
    values = np.concatenate([block.values for _, _, block in blocks])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=num_rows))])
    return Csr(indptr, columns[order], values[order], num_columns)


Matrix = Tensor | Csr
EVALUATIONS: Final = 120
"""Of the objective in a fit, about."""


@dataclass(frozen=True, slots=True)
class _Product:
    """F_1 F_2 … F_n and its transpose, as what they do to a matrix."""

    factors: Sequence[Tensor]
    transposed: Sequence[Tensor]

    @classmethod
    def of(cls, factors: Sequence[Matrix]) -> "_Product":
        tensors = [factor.tensor() if isinstance(factor, Csr) else factor for factor in factors]
        return cls(tensors, [_transposed(each) for each in tensors])

    def times(self, weight: Tensor) -> Tensor:
        for factor in reversed(self.factors):
            weight = factor @ weight
        return weight

    def transposed_times(self, rows: Tensor) -> Tensor:
        for factor in self.transposed:
            rows = factor @ rows
        return rows


@dataclass(frozen=True, slots=True)
class Regression:
    """Fitted: the logits of a row x are x W + b."""

    weight: Tensor  # [num_features, num_classes]
    bias: Tensor  # [num_classes]

    def logits(self, factors: Sequence[Matrix]) -> Tensor:
        """Logits of the rows of a product of matrices, [num_rows, num_classes]."""
        found = self.weight
        for factor in reversed(factors):
            found = (factor.tensor() if isinstance(factor, Csr) else factor) @ found
        return found + self.bias


def fit(factors: Sequence[Matrix], labels: NDArray[Any], num_classes: int) -> Regression:
    """Minimise the cross-entropy summed over the rows + ‖W‖²/2.

    Args:
        factors: the rows are those of their product, [num_rows, num_features]; dense ones in float64.
        labels: classes [num_rows], below `num_classes`; or 0 and 1 of each of several labels [num_rows, num_classes],
            of which each is a regression of its own.
    """
    return _minimum(_Product.of(factors), torch.from_numpy(np.array(labels, dtype=np.int64)), num_classes)


def _loss_and_residual(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The cross-entropy summed over the rows, and its gradient by the logits."""
    if labels.dim() == 2:
        truths = labels.to(logits.dtype)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truths, reduction="sum")
        return loss, logits.sigmoid() - truths
    log_likely = logits.log_softmax(dim=1)
    residual = log_likely.exp()
    residual[torch.arange(len(labels)), labels] -= 1
    return torch.nn.functional.nll_loss(log_likely, labels, reduction="sum"), residual


def _minimum(rows: _Product, labels: Tensor, num_classes: int) -> Regression:
    dtype = rows.factors[-1].dtype
    weight = torch.zeros(rows.factors[-1].shape[1], num_classes, dtype=dtype)
    bias = torch.zeros(num_classes, dtype=dtype)
    _leave_compiler_out()
    optimizer = torch.optim.LBFGS(
        [weight, bias],
        max_iter=_MAX_STEPS,
        max_eval=2 * _MAX_STEPS,
        tolerance_grad=_TOLERANCE,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def objective() -> Tensor:
        loss, residual = _loss_and_residual(rows.times(weight) + bias, labels)
        weight.grad = (rows.transposed_times(residual) + weight) / len(labels)
        bias.grad = residual.sum(dim=0) / len(labels)
        return (loss + weight.square().sum() / 2) / len(labels)

    optimizer.step(objective)  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    objective()
    assert weight.grad is not None
    largest = float(weight.grad.abs().max())
    if largest > _TOLERANCE:
        _log.warning(f"logistic regression has not converged: the largest entry of its gradient is {largest:.1g}")
    return Regression(weight, bias)


def _leave_compiler_out() -> None:
    """Spare this process torch's compiler, whose 900 modules the first optimizer imports only to be left alone by it.

    torch keeps what the compiler makes of `add_param_group` (torch/_compile.py), and asks for it by this name: without
    a compiler that is the function itself. A torch that keeps it elsewhere imports the compiler, as before.
    """
    function = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", None)
    if function is not None and "torch._dynamo" not in sys.modules:
        setattr(function, "__dynamo_disable", function)


def _transposed(matrix: Tensor) -> Tensor:
    if matrix.layout == torch.strided:
        return matrix.T
    turned: Tensor = matrix.to_sparse(layout=torch.sparse_coo).t().coalesce().to_sparse_csr()
    return turned
