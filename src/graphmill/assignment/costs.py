"""Costs as a caller may give them, as arrays that the native solver reads; what is not a problem is refused here."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.assignment.solution import InvalidCostsError, Potentials
from graphmill.base.arguments import flag

_MOST_COLUMNS: Final = 2**31 - 2
_LARGEST_SUM: Final = 2**61  # of integer potentials: below it no sum of two and a cost overflows
Columns = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Costs:
    """A problem with no more rows than columns: dense, or sparse, where pairs that are not listed are infeasible."""

    num_rows: int
    num_columns: int
    values: NDArray[Any]  # [rows, columns], or [pairs]; float32, float64 or int64
    indptr: NDArray[np.int64] | None  # [rows + 1], None: dense
    indices: NDArray[np.int32] | None
    is_transposed: bool
    is_negated: bool

    @property
    def of_potentials(self) -> Any:  # noqa: ANN401  # a numpy scalar type
        """Number type that potentials are computed in."""
        return np.int64 if self.values.dtype == np.int64 else np.float64

    def solve(
        self, start: int, candidates: int, u: Potentials, v: Potentials, pairs: Columns | None = None
    ) -> tuple[Columns, dict[str, Any]] | None:
        """The column of each row, and what the solver counted; u and v are overwritten. None: infeasible.

        Beside counts it tells the largest potential.

        `pairs`: columns to begin with, -1 for a row that has none, where `start` says that there are some.
        """
        columns = np.empty(self.num_rows, np.int64) if pairs is None else pairs.copy()
        if self.indptr is None:
            work = _native.solve_assignment(self.values, start, candidates, u, v, columns)
        else:
            work = _native.solve_sparse_assignment(self.indptr, self.indices, self.values, start, u, v, columns)
        return None if work is None else (columns, work)

    def certify(self, u: Potentials, v: Potentials, columns: Columns) -> tuple[float, float]:
        """The largest violation and slack, over all pairs."""
        if self.indptr is None:
            violation, slack = _native.certify_assignment(self.values, u, v, columns)
        else:
            violation, slack = _native.certify_sparse_assignment(self.indptr, self.indices, self.values, u, v, columns)
        if self.num_rows < self.num_columns:
            is_left = np.ones(self.num_columns, bool)
            is_left[columns] = False
            violation = max(violation, v.max(initial=0))
            slack = max(slack, np.abs(v[is_left]).max(initial=0))
        return float(violation), float(slack)

    def of_pairs(self, columns: Columns) -> NDArray[Any]:
        """The cost of each row's pair."""
        if self.indptr is None or self.indices is None:
            return np.asarray(self.values[np.arange(self.num_rows), columns])
        rows = np.repeat(np.arange(self.num_rows), np.diff(self.indptr))
        is_pair = self.indices == columns[rows]
        return np.asarray(self.values[is_pair])

    def least_of_rows(self) -> NDArray[np.float64]:
        """The least cost of each row."""
        if self.indptr is None:
            return np.asarray(self.values.min(axis=1), np.float64)
        return np.asarray(np.minimum.reduceat(self.values, self.indptr[:-1]), np.float64)  # each row has a pair

    def least_of_columns(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """The least of cost - u of each column; 0 where no row may have it."""
        if self.indptr is None or self.indices is None:
            least = np.asarray((self.values - u[:, None]).min(axis=0), np.float64)
        else:
            least = np.full(self.num_columns, np.inf)
            np.minimum.at(least, self.indices, self.values - np.repeat(u, np.diff(self.indptr)))
        return np.where(np.isfinite(least), least, 0.0)


def costs_of(given: Any, *, maximize: bool = False) -> Costs:  # noqa: ANN401  # whatever numpy makes an array of
    """Read costs: a matrix [n, m], or a scipy.sparse one whose missing entries are infeasible pairs.

    Raises `InvalidCostsError` for what is not a matrix of real numbers, and for integers so large that sums overflow.
    """
    maximize, matrix = flag("maximize", maximize), matrix_of(given)
    if not isinstance(matrix, np.ndarray):
        return _sparse(matrix, maximize=maximize)
    is_transposed = matrix.shape[0] > matrix.shape[1]
    if is_transposed:
        matrix = matrix.T
    values = _numbers(matrix, maximize=maximize)
    return Costs(*_sizes(values.shape), np.ascontiguousarray(values), None, None, is_transposed, maximize)


def matrix_of(given: Any) -> Any:  # noqa: ANN401  # whatever numpy makes an array of; scipy.sparse as it is
    """The matrix [n, m] of costs, not yet looked at; of torch's tensors their numbers."""
    try:
        matrix = given if hasattr(given, "tocsr") else np.asarray(given.detach() if hasattr(given, "detach") else given)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors that numpy has no form for
        raise InvalidCostsError(f"costs are no matrix: {error}", fix="give numbers [rows, columns]") from None
    if matrix.ndim != 2:
        raise InvalidCostsError(
            f"costs have {matrix.ndim} dimensions", fix="give a matrix [rows, columns]; for a batch: solve_many"
        )
    return matrix


def _sparse(given: Any, *, maximize: bool) -> Costs:  # noqa: ANN401
    is_transposed = given.shape[0] > given.shape[1]
    matrix = (given.T if is_transposed else given).tocsr()
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    num_rows, num_columns = _sizes(matrix.shape)
    values = _numbers(matrix.data, maximize=maximize)
    if values.dtype != np.int64 and not np.isfinite(values).all():
        raise InvalidCostsError("sparse costs hold NaN or inf", fix="leave infeasible pairs out of the matrix")
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    return Costs(num_rows, num_columns, np.ascontiguousarray(values), indptr, indices, is_transposed, maximize)


def _sizes(shape: tuple[int, ...]) -> tuple[int, int]:
    if shape[1] > _MOST_COLUMNS:
        raise InvalidCostsError(f"the problem has {shape[1]:,} columns", fix=f"give at most {_MOST_COLUMNS:,}")
    return shape[0], shape[1]


def _numbers(values: NDArray[Any], *, maximize: bool) -> NDArray[Any]:
    """Costs as float32, float64 or int64, negated if the largest sum is wanted."""
    kind = values.dtype.kind
    if kind not in "fiub":
        raise InvalidCostsError(f"costs are of type {values.dtype}", fix="give real numbers")
    if kind == "f":
        numbers = values if values.dtype in (np.float32, np.float64) else values.astype(np.float64)
        return -numbers if maximize else numbers
    if values.size:
        largest = max(abs(int(values.max())), abs(int(values.min())))
        if largest * (max(values.shape) + 1) * 2 > _LARGEST_SUM:
            raise InvalidCostsError(
                f"integer costs reach {largest:,}: sums of potentials could overflow 64 bits",
                fix="give smaller integers, or floats",
            )
    integers = values.astype(np.int64, copy=False)
    return -integers if maximize else integers
