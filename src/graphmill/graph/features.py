"""Node features at rest: dense rows in three number formats, of one table or of several, or compressed sparse rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.base.errors import UserError
from graphmill.graph.pages import evict
from graphmill.graph.sampled import StorageIds

FeatureDtype = Literal["float32", "float16", "bfloat16"]

STORED_AS = {"float32": "float32", "float16": "float16", "bfloat16": "uint16"}  # numpy has no bfloat16
_VALUES_AT_A_TIME = 2**22  # values checked at a time: bounds the memory of checks over a mapped file


@dataclass(frozen=True, slots=True)
class DenseFeatures:
    """One row of numbers per node. numpy has no bfloat16: such rows are the uint16 words of the format."""

    x: NDArray[Any]  # [num_nodes, num_features]
    dtype: FeatureDtype

    @property
    def num_nodes(self) -> int:
        """Rows."""
        return int(self.x.shape[0])

    @property
    def num_features(self) -> int:
        """Columns."""
        return int(self.x.shape[1])


@dataclass(frozen=True, slots=True)
class SparseFeatures:
    """Compressed sparse rows; columns ascend within a row, without duplicates."""

    indptr: NDArray[np.int64]  # [num_nodes + 1]
    indices: NDArray[np.int32]  # [num_values]
    values: NDArray[np.float32]  # [num_values]
    num_features: int

    @property
    def num_nodes(self) -> int:
        """Rows."""
        return len(self.indptr) - 1


Features = DenseFeatures | SparseFeatures


def dense(x: NDArray[Any]) -> DenseFeatures:
    """Dense features of any real `x` [num_nodes, num_features]: float16 and float32 stay, all else becomes float32."""
    if x.dtype == np.float16:
        return DenseFeatures(np.ascontiguousarray(x), "float16")
    with np.errstate(over="ignore"):  # what overflows becomes infinite and is refused, with its row, by the checks
        return DenseFeatures(np.ascontiguousarray(x, dtype=np.float32), "float32")


def no_features(num_nodes: int) -> DenseFeatures:
    """Features of nodes that have none: rows without a column."""
    return DenseFeatures(np.empty((num_nodes, 0), dtype=np.float32), "float32")


def sparse(indptr: NDArray[Any], indices: NDArray[Any], values: NDArray[Any], num_features: int) -> SparseFeatures:
    """Sparse features of a CSR matrix in scipy's parts; unsorted rows are sorted.

    The parts must agree with one another: see `csr_problem`.
    """
    with np.errstate(over="ignore"):
        rows = SparseFeatures(
            indptr.astype(np.int64, copy=False),
            indices.astype(np.int32, copy=False),
            values.astype(np.float32, copy=False),
            num_features,
        )
    return rows if _unsorted_row(rows.indptr, rows.indices) is None else _with_sorted_rows(rows)


def csr_problem(indptr: NDArray[Any], indices: NDArray[Any], num_columns: int) -> str | None:
    """What is wrong with the structure of a CSR matrix, or None. Rows may be unsorted."""
    if indptr.ndim != 1 or indices.ndim != 1 or len(indptr) == 0:
        return f"indptr {list(indptr.shape)} and indices {list(indices.shape)} must be one-dimensional"
    if indptr.dtype.kind not in "iu" or indices.dtype.kind not in "iu":
        return f"indptr and indices must be integers, not {indptr.dtype} and {indices.dtype}"
    if indptr[0] != 0 or indptr[-1] != len(indices):
        return f"indptr runs from {indptr[0]} to {indptr[-1]}, but there are {len(indices)} indices"
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        return f"indptr falls from {indptr[falls[0]]} to {indptr[falls[0] + 1]} at row {falls[0]}"
    outside = np.flatnonzero((indices < 0) | (indices >= num_columns))
    if len(outside):
        row = int(np.searchsorted(indptr, outside[0], side="right")) - 1
        return f"row {row} names column {indices[outside[0]]}, and columns run from 0 to {num_columns - 1}"
    return None


def unsorted_or_repeated(indptr: NDArray[np.int64], indices: NDArray[Any]) -> str | None:
    """Name the first row that does not strictly ascend, or None."""
    row = _unsorted_row(indptr, indices)
    return None if row is None else f"row {row} is not in ascending order, or names a column twice"


def not_finite(features: Features) -> str | None:
    """Name the place of the first NaN or infinity, or None."""
    if isinstance(features, SparseFeatures):
        bad = np.flatnonzero(~np.isfinite(features.values))
        if len(bad) == 0:
            return None
        row = int(np.searchsorted(features.indptr, bad[0], side="right")) - 1
        return f"row {row}, column {features.indices[bad[0]]} is {features.values[bad[0]]}"
    for start, block in _row_blocks(features.x):
        finite = (block & 0x7F80) != 0x7F80 if features.dtype == "bfloat16" else np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            shown = to_float32(DenseFeatures(block[row : row + 1], features.dtype))[0, column]
            return f"row {start + row}, column {column} is {shown}"
    return None


def to_float32(features: DenseFeatures) -> NDArray[np.float32]:
    """The rows as float32 [num_nodes, num_features]."""
    if features.dtype != "bfloat16":
        return features.x.astype(np.float32, copy=False)
    return (features.x.astype(np.uint32) << 16).view(np.float32)


def stored_as(features: DenseFeatures, dtype: FeatureDtype) -> DenseFeatures:
    """The rows in another number format, rounded to nearest, ties to even."""
    if dtype == features.dtype:
        return features
    x = to_float32(features)
    if dtype == "float32":
        return DenseFeatures(x, dtype)
    if dtype == "float16":
        largest = float(np.abs(x).max(initial=0))
        if largest > 65504:
            raise UserError(
                f"features reach {largest:g}, and float16 ends at 65504", fix="store them as bfloat16 or float32"
            )
        return DenseFeatures(x.astype(np.float16), dtype)
    words = np.ascontiguousarray(x).view(np.uint32)
    rounded = words + 0x7FFF + ((words >> 16) & 1)
    return DenseFeatures((rounded >> 16).astype(np.uint16), dtype)


def _row_blocks(x: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Consecutive rows and the number of the first; rows of a mapped file are in memory no longer than a block."""
    step = max(1, _VALUES_AT_A_TIME // max(1, x.shape[1]))
    for start in range(0, len(x), step):
        yield start, x[start : start + step]
        evict(x[start : start + step])


def _unsorted_row(indptr: NDArray[np.int64], indices: NDArray[Any]) -> int | None:
    if len(indices) < 2:
        return None
    ascends = indices[1:] > indices[:-1]
    ends = indptr[1:-1]
    ends = ends[(ends > 0) & (ends < len(indices))]
    ascends[ends - 1] = True  # from one row to the next anything goes
    bad = np.flatnonzero(~ascends)
    return int(np.searchsorted(indptr, bad[0], side="right")) - 1 if len(bad) else None


def _with_sorted_rows(rows: SparseFeatures) -> SparseFeatures:
    row_of = np.repeat(np.arange(rows.num_nodes, dtype=np.int64), np.diff(rows.indptr))
    order = np.argsort(row_of * max(1, rows.num_features) + rows.indices, kind="stable")
    return SparseFeatures(rows.indptr, rows.indices[order], rows.values[order], rows.num_features)


@dataclass(frozen=True, slots=True)
class StackedFeatures:
    """Tables of one width and format, one under another: row r of the second is row r + len(first) here."""

    x: _native.RowStack  # what native gathers read in place of an array
    tables: tuple[DenseFeatures, ...]

    @classmethod
    def of(cls, tables: Sequence[Features]) -> "StackedFeatures":
        """Stack at least one table; all must be dense."""
        dense = tuple(table for table in tables if isinstance(table, DenseFeatures))
        if len(dense) != len(tables):
            raise TypeError("sparse rows cannot be stacked")
        return cls(_native.RowStack([table.x for table in dense]), dense)

    @property
    def num_features(self) -> int:
        """Columns."""
        return self.tables[0].num_features

    @property
    def dtype(self) -> FeatureDtype:
        """Number format."""
        return self.tables[0].dtype

    def gather(self, rows: StorageIds, num_threads: int) -> DenseFeatures:
        """The rows [n], in that order, copied into a table of their own."""
        x = np.empty((len(rows), self.num_features), dtype=self.tables[0].x.dtype)
        self.x.copy(rows, x, num_threads)
        return DenseFeatures(x, self.dtype)
