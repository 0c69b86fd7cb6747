"""Rows of features taken out of several tables, and put together in the order in which a batch wants them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.features import DenseFeatures, Features, SparseFeatures, StackedFeatures
from graphmill.graph.sampled import StorageIds

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Taken:
    """Rows of a table, and which rows of the result they become."""

    table: SparseFeatures
    rows: Ids  # [n]
    places: Ids  # [n]


def sparse_rows_of(tables: Sequence[Features], rows: Ids) -> SparseFeatures:
    """Rows [n] of sparse tables that are counted through, one under another, in a table of their own."""
    pieces, begin = [], 0
    for table in tables:
        assert isinstance(table, SparseFeatures)
        end = begin + table.num_nodes
        places = np.flatnonzero((rows >= begin) & (rows < end))
        pieces.append(_Taken(table, rows[places] - begin, places))
        begin = end
    return _joined(pieces, len(rows))


def rows_of(tables: Sequence[Features], rows: Ids, num_threads: int) -> Features:
    """Rows [n] of tables that are counted through, one under another, in a table of their own."""
    if isinstance(tables[0], SparseFeatures):
        return sparse_rows_of(tables, rows)
    return StackedFeatures.of(tables).gather(StorageIds(rows), num_threads)


def row_bytes_of(table: Features) -> float:
    """Bytes of one row; of sparse rows the mean."""
    if isinstance(table, DenseFeatures):
        return float(table.num_features * table.x.dtype.itemsize)
    return len(table.values) * 8 / max(1, table.num_nodes)


def _joined(pieces: Sequence[_Taken], num_rows: int) -> SparseFeatures:
    num_features, indptr = pieces[0].table.num_features, np.zeros(num_rows + 1, dtype=np.int64)
    for piece in pieces:
        table = piece.table.indptr
        indptr[piece.places + 1] = table[piece.rows + 1] - table[piece.rows]
    np.cumsum(indptr, out=indptr)
    indices, values = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
    for piece in pieces:
        _copy_sparse(piece.table, piece.rows, piece.places, SparseFeatures(indptr, indices, values, num_features))
    return SparseFeatures(indptr, indices, values, num_features)


def _copy_sparse(table: SparseFeatures, rows: Ids, places: Ids, out: SparseFeatures) -> None:
    counts = out.indptr[places + 1] - out.indptr[places]
    offsets = np.cumsum(counts) - counts
    within = np.arange(counts.sum()) - np.repeat(offsets, counts)
    entries, targets = np.repeat(table.indptr[rows], counts) + within, np.repeat(out.indptr[places], counts) + within
    out.indices[targets], out.values[targets] = table.indices[entries], table.values[entries]


def all_rows(num_rows: int) -> StorageIds:
    """The rows of a table that was put together for a batch: in the order of its nodes."""
    return StorageIds(np.arange(num_rows))
