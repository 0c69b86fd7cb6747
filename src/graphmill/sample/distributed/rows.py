"""Rows of features taken out of several tables, and put together in the order in which a batch wants them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill import _native
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures
from graphmill.graph.sampled import StorageIds

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of a table, and which rows of the result they become."""

    table: Features
    rows: Ids  # [n]
    places: Ids  # [n]


def take(table: Features, rows: Ids, num_threads: int) -> Features:
    """The rows [n] of a table, in that order."""
    return put_together([Taken(table, rows, np.arange(len(rows)))], len(rows), num_threads)


def put_together(pieces: Sequence[Taken], num_rows: int, num_threads: int) -> Features:
    """A table of `num_rows` rows, each of which one piece places; at least one piece, all of one form."""
    first = pieces[0].table
    if isinstance(first, SparseFeatures):
        return _sparse_together(pieces, num_rows, first.num_features, num_threads)
    x = np.empty((num_rows, first.num_features), dtype=first.x.dtype)
    for piece in pieces:
        assert isinstance(piece.table, DenseFeatures)
        if len(piece.rows):
            _native.copy_rows(bytes_of(piece.table.x), piece.rows, piece.places, bytes_of(x), num_threads)
    return DenseFeatures(x, first.dtype)


def bytes_of(x: NDArray[Any]) -> NDArray[np.uint8]:
    """The rows of `x` [n, num_columns] as bytes [n, num_columns · itemsize], without a copy."""
    return x.view(np.uint8).reshape(len(x), x.shape[1] * x.dtype.itemsize)


def row_bytes_of(table: Features) -> float:
    """Of one row; of sparse ones the mean."""
    if isinstance(table, DenseFeatures):
        return float(table.num_features * table.x.dtype.itemsize)
    return len(table.values) * 8 / max(1, table.num_nodes)


def _sparse_together(pieces: Sequence[Taken], num_rows: int, num_features: int, num_threads: int) -> SparseFeatures:
    indptr = np.zeros(num_rows + 1, dtype=np.int64)
    for piece in pieces:
        assert isinstance(piece.table, SparseFeatures)
        table = piece.table.indptr
        indptr[piece.places + 1] = table[piece.rows + 1] - table[piece.rows]
    np.cumsum(indptr, out=indptr)
    indices, values = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1], dtype=np.float32)
    for piece in pieces:
        assert isinstance(piece.table, SparseFeatures)
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
