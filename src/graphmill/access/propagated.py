"""Features of all hops, made once: a node's own row, then means over its neighbourhoods (SGC, SIGN).

S = D^-1/2 (A + I) D^-1/2 over in-neighbours, where D counts them and the node itself (Wu et al. 2019, arXiv
1902.07153). Row v holds x, S x, …, S^K x of v side by side (Frasca et al. 2020, arXiv 2004.11198), so that a mini-batch
is a few rows, and nothing is sampled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import DenseFeatures, Features, SparseFeatures, to_float32
from graphmill.graph.topology import Topology
from graphmill.nn import native
from graphmill.spec.sign import Propagation

_MOST_ROWS: Final = 2**31 - 1  # of a table that a native product reads
_VALUES_AT_A_TIME: Final = 1 << 22  # of a block of rows, written out: 32 MiB in float64


@dataclass(frozen=True, slots=True)
class StepRows:
    """Some consecutive rows of S, in compressed sparse form."""

    begin: int
    end: int
    indptr: NDArray[np.int64]  # [end - begin + 1]
    sources: NDArray[np.int64]  # [num_entries], nodes
    values: NDArray[np.float64]  # [num_entries]


def step_rows(topology: Topology, begin: int, end: int, scale: NDArray[np.float64] | None = None) -> StepRows:
    """Rows `begin` to `end` of S. `scale`: of each node, as `step_scale` gives it; None: it is made anew."""
    scale = step_scale(topology) if scale is None else scale
    ends = topology.indptr[begin : end + 1] - topology.indptr[begin]
    neighbours = topology.indices[topology.indptr[begin] : topology.indptr[end]].astype(np.int64)
    sources = np.insert(neighbours, ends[1:], np.arange(begin, end))
    counts = np.diff(ends) + 1
    values = np.repeat(scale[begin:end], counts) * scale[sources]
    return StepRows(begin, end, np.arange(end - begin + 1) + ends, sources, values)


def step_scale(topology: Topology) -> NDArray[np.float64]:
    """D^-1/2 of every node [num_nodes]."""
    return np.asarray((np.diff(topology.indptr) + 1.0) ** -0.5)


def propagated(
    features: Features, topology: Topology, propagation: Propagation, extra_columns: NDArray[np.float32] | None = None
) -> Features:
    """Rows of all hops side by side, or of the last alone: [num_nodes, num_blocks * num_features], float32.

    Of sparse features so many values of each row are kept at each hop, the largest, and the next hop is made of those.
    Besides the result a block of rows is in memory; of sparse ones the result twice, while it is put together.
    `extra_columns` [num_nodes, n]: columns that follow those, as they are.
    """
    extra_columns = np.empty((topology.num_nodes, 0), dtype=np.float32) if extra_columns is None else extra_columns
    if isinstance(features, SparseFeatures):
        return _sparse(features, topology, propagation, extra_columns)
    return _dense(features, topology, propagation, extra_columns)


def _dense(
    features: DenseFeatures, topology: Topology, propagation: Propagation, extra_columns: NDArray[np.float32]
) -> DenseFeatures:
    """Row k of a node in a table of `slots` rows a node is its hop k, so that a hop is read where it was written.

    Where the last hop alone is read, two slots are used in turn.
    """
    count, width = features.num_nodes, features.num_features
    slots = propagation.hops + 1 if propagation.reads == "all" else 2
    if count * slots > _MOST_ROWS:
        raise UserError(
            f"{count:,} nodes with {slots} rows of propagated features each are more than {_MOST_ROWS:,}",
            fix="set a smaller model.hops, or model.hops_read=last",
        )
    room = np.empty(count * (slots * width + extra_columns.shape[1]), dtype=np.float32)
    x = room[: count * slots * width].reshape(count, slots, width)
    table, scale = torch.from_numpy(x.reshape(count * slots, width)), step_scale(topology)
    for begin, end in _blocks(np.full(count, width)):
        x[begin:end, 0] = to_float32(DenseFeatures(features.x[begin:end], features.dtype))
    for hop in range(1, propagation.hops + 1):
        for begin, end in _blocks(np.diff(topology.indptr) + 1 + width):
            rows = step_rows(topology, begin, end, scale)
            places, values = rows.sources * slots + (hop - 1) % slots, rows.values.astype(np.float32)
            tensors = [torch.from_numpy(each) for each in (rows.indptr, places.astype(np.int32), values)]
            x[begin:end, hop % slots] = native.sparse_linear(*tensors, table).numpy()
    if propagation.reads == "last":
        return DenseFeatures(np.concatenate([x[:, propagation.hops % slots], extra_columns], axis=1), "float32")
    return DenseFeatures(_widened(room, x.reshape(count, slots * width), extra_columns), "float32")


def _widened(
    room: NDArray[np.float32], rows: NDArray[np.float32], extra_columns: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Rows that lie at the beginning of `room`, moved apart in it, the last first, and `extra_columns` by them."""
    wide = room.reshape(len(rows), rows.shape[1] + extra_columns.shape[1])
    if extra_columns.shape[1] == 0:
        return wide
    for begin, end in reversed(list(_blocks(np.full(len(rows), wide.shape[1])))):
        wide[begin:end] = np.concatenate([rows[begin:end], extra_columns[begin:end]], axis=1)
    return wide


def _sparse(
    features: SparseFeatures, topology: Topology, propagation: Propagation, extra_columns: NDArray[np.float32]
) -> SparseFeatures:
    of_hops = [features]
    for _ in range(propagation.hops):
        of_hops.append(_next_hop(of_hops[-1], topology, propagation.values_per_hop))
    kept = of_hops[-1:] if propagation.reads == "last" else of_hops
    return _side_by_side([*kept, _without_zeros(extra_columns)])


def _without_zeros(x: NDArray[np.float32]) -> SparseFeatures:
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(x, axis=1))])
    rows, columns = x.nonzero()
    return SparseFeatures(indptr, columns.astype(np.int32), x[rows, columns], x.shape[1])


def _side_by_side(blocks: list[SparseFeatures]) -> SparseFeatures:
    count, begins = len(blocks), np.cumsum([0, *(each.num_features for each in blocks)])
    lengths = np.stack([np.diff(each.indptr) for each in blocks], axis=1)  # [num_nodes, blocks]
    ends = np.concatenate([[0], np.cumsum(lengths.ravel())])
    indices, values = np.empty(ends[-1], dtype=np.int32), np.empty(ends[-1], dtype=np.float32)
    for number, its in enumerate(blocks):
        places = np.arange(len(its.indices)) + np.repeat(ends[number:-1:count] - its.indptr[:-1], lengths[:, number])
        indices[places] = its.indices + begins[number]
        values[places] = its.values
    return SparseFeatures(ends[::count].copy(), indices, values, int(begins[-1]))


def _next_hop(x: SparseFeatures, topology: Topology, most: int | None) -> SparseFeatures:
    """S x, a block of rows at a time: each is written out, and the largest of its values that are not 0 are kept."""
    scale, own, width = step_scale(topology), np.diff(x.indptr), x.num_features
    lengths, indices, values = [np.zeros(1, dtype=np.int64)], [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for begin, end in _blocks_read(topology, own, width):
        block = _written_out(x, step_rows(topology, begin, end, scale))
        if most is not None and most < width:
            _keep_largest(block, most)
        rows, columns = block.nonzero()
        lengths.append(np.bincount(rows, minlength=end - begin))
        indices.append(columns.astype(np.int32))
        values.append(block[rows, columns])
    return SparseFeatures(np.cumsum(np.concatenate(lengths)), np.concatenate(indices), np.concatenate(values), width)


def _written_out(x: SparseFeatures, step: StepRows) -> NDArray[np.float32]:
    """Rows of a product of S, with their zeros; summed in float64, in the order of the sources."""
    counts, width, num_rows = np.diff(x.indptr)[step.sources], x.num_features, step.end - step.begin
    entries = np.arange(counts.sum()) + np.repeat(x.indptr[step.sources] - (np.cumsum(counts) - counts), counts)
    row_of = np.repeat(np.repeat(np.arange(num_rows), np.diff(step.indptr)), counts)
    weights = np.repeat(step.values, counts) * x.values[entries]
    found: NDArray[Any] = np.bincount(row_of * width + x.indices[entries], weights, num_rows * width)
    return found.astype(np.float32).reshape(num_rows, width)


def _keep_largest(block: NDArray[np.float32], most: int) -> None:
    """Set all but the `most` largest values of each row, by magnitude, to 0; of equal ones the first are kept."""
    for row in np.flatnonzero(np.count_nonzero(block, axis=1) > most):
        sizes = np.abs(block[row])
        least = np.partition(sizes, -most)[-most]
        ties = np.flatnonzero(sizes == least)
        block[row, sizes < least] = 0
        block[row, ties[len(ties) - (np.count_nonzero(sizes >= least) - most) :]] = 0


def _blocks_read(topology: Topology, counts: NDArray[np.int64], width: int) -> Iterator[tuple[int, int]]:
    """Blocks of rows by the values that they read; `counts`: of each node [num_nodes]."""
    for first, last in _blocks(np.diff(topology.indptr) + width):
        ends = topology.indptr[first : last + 1] - topology.indptr[first]
        of_neighbours = counts[topology.indices[topology.indptr[first] : topology.indptr[last]]]
        read = np.diff(np.concatenate([[0], np.cumsum(of_neighbours)])[ends])
        for begin, end in _blocks(read + counts[first:last] + width):
            yield first + begin, first + end


def _blocks(costs: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Consecutive rows that cost no more than `_VALUES_AT_A_TIME` together, one row at least."""
    ends, begin = np.cumsum(costs), 0
    while begin < len(costs):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + _VALUES_AT_A_TIME, side="right")))
        yield begin, end
        begin = end
