"""Write the folder of parts: one pass over each array of the store, a few rows at a time, all parts at once.

Nothing is loaded whole but the part of each node and what counts rows, so the memory does not grow with the features,
nor with the edges.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.header import ArrayRecord
from graphmill.graph.pages import evict
from graphmill.graph.splits import SPLIT_CODES
from graphmill.graph.store import GraphStore
from graphmill.graph.topology import index_dtype
from graphmill.partition.metadata import LISTS_FOLDER, part_folder
from graphmill.partition.methods.files import row_blocks
from graphmill.partition.problem import Ids, Parts
from graphmill.partition.streams import Advance, ArrayReader, ArrayWriter, copy_array
from graphmill.runtime.process import allow_open_files

CHUNK_BYTES: Final = 2**25  # of an array that is in memory at a time
_SPLITS: Final = ("train", "val", "test")

ReadRows = Callable[[int], NDArray[Any]]
"""The next rows of an array, so many."""


@dataclass(frozen=True, slots=True)
class PartsFolder:
    """A folder that is being written, and what is in it so far."""

    path: Path
    parts: Parts
    num_parts: int
    advance: Advance
    records: dict[str, ArrayRecord] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the whole graph."""
        return len(self.parts)

    def writer(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ArrayWriter:
        """Writer of an array of the folder."""
        return ArrayWriter(self.path / f"{name}.npy", dtype, shape, self.advance)

    def of_parts(self, name: str, dtype: np.dtype[Any], lengths: Ids, row: tuple[int, ...]) -> list[ArrayWriter]:
        """One array in each part, of `lengths` [num_parts] rows."""
        return [
            self.writer(f"{part_folder(part)}/{name}", dtype, (int(length), *row))
            for part, length in enumerate(lengths)
        ]

    def finish(self, name: str, writers: Sequence[ArrayWriter]) -> None:
        """Close the arrays of the parts."""
        for part, writer in enumerate(writers):
            self.records[f"{part_folder(part)}/{name}"] = writer.finish()

    def write(self, name: str, array: NDArray[Any]) -> None:
        """Write a whole array that is in memory."""
        writer = self.writer(name, array.dtype, array.shape)
        writer.append(array)
        self.records[f"{name}"] = writer.finish()


class _Share(NamedTuple):
    """Consecutive nodes by part: positions in the block, ascending within a part, and where each part begins."""

    start: int
    stop: int
    order: Ids
    bounds: Ids  # [num_parts + 1]

    def of(self, part: int) -> slice:
        """Slice of `order` with the nodes of a part."""
        return slice(self.bounds[part], self.bounds[part + 1])


def write_parts(store: GraphStore, folder: PartsFolder) -> Ids:
    """Write everything but the metadata; returns the offsets of the parts [num_parts + 1]."""
    allow_open_files()
    counts = np.bincount(folder.parts, minlength=folder.num_parts)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    _write_book(folder, offsets)
    has_splits = "split" in store.metadata.arrays
    if has_splits:
        _write_splits(store, folder)
    _write_lists(store, folder)
    if store.metadata.node_types:
        _copy(store, folder, "node_type", "node_book/node_type")
    for prefix in ("",) if store.metadata.is_symmetric else ("", "undirected_"):
        _copy_topology(store, folder, prefix)
        _split_topology(store, folder, prefix)
    for name in ("y", "split") if has_splits else ():
        _split_rows(store, folder, name)
    if store.metadata.has_sparse_features:
        _split_ragged(store, folder, "x_indptr", {"x_indices": None, "x_values": None})
    else:
        _split_rows(store, folder, "x")
    return offsets


def bytes_to_write(store: GraphStore) -> int:
    """Bytes to write, without rankings: for a bar, and to know before the work that a disk has no room.

    The file that a partitioner reads the graph from stands in the same folder, is smaller, and goes before they come.
    """
    known = store.metadata
    arrays = {name: record.bytes for name, record in known.arrays.items() if name != "undirected_edge_ids"}
    prefixes = ("",) if known.is_symmetric else ("", "undirected_")
    topology = sum(arrays[f"{prefix}{name}"] for prefix in prefixes for name in ("indptr", "indices"))
    of_node = 2 * index_dtype(known.num_nodes).itemsize + 8 * len(prefixes)  # its place, its id, where its edges begin
    return sum(arrays.values()) + topology + of_node * known.num_nodes


def write_rankings(folder: PartsFolder, rankings: Mapping[str, Sequence[NDArray[Any]]]) -> None:
    """Nodes of other parts by descending hotness: for each policy an array for each part."""
    for policy, by_part in rankings.items():
        for part, ranking in enumerate(by_part):
            folder.write(f"{part_folder(part)}/hot/{policy}", ranking)


def _shares(folder: PartsFolder, blocks: Iterator[tuple[int, int]]) -> Iterator[_Share]:
    for start, stop in blocks:
        parts = folder.parts[start:stop]
        counts = np.bincount(parts, minlength=folder.num_parts)
        order = np.argsort(parts, kind="stable")
        yield _Share(start, stop, order, np.concatenate([[0], np.cumsum(counts)]))


def _even_blocks(num_rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    step = max(1, CHUNK_BYTES // max(row_bytes, 8))
    return ((start, min(start + step, num_rows)) for start in range(0, num_rows, step))


def _write_book(folder: PartsFolder, offsets: Ids) -> None:
    """Write the storage id of every node, and the nodes of every part."""
    ids = index_dtype(folder.num_nodes)
    book = folder.writer("node_book/storage_of", ids, (folder.num_nodes,))
    nodes = folder.of_parts("node_ids", ids, np.diff(offsets), ())
    free = offsets[:-1].copy()  # of each part: the storage id of its next node
    for share in _shares(folder, _even_blocks(folder.num_nodes, 8)):
        places = np.empty(share.stop - share.start, dtype=ids)
        for part, writer in enumerate(nodes):
            mine = share.order[share.of(part)]
            places[mine] = np.arange(free[part], free[part] + len(mine))
            free[part] += len(mine)
            writer.append(share.start + mine)
        book.append(places)
    folder.records["node_book/storage_of"] = book.finish()
    folder.finish("node_ids", nodes)


def _write_splits(store: GraphStore, folder: PartsFolder) -> None:
    """Write the nodes of each split of the whole graph, and their labels."""
    split, labels = store.array("split"), store.array("y")
    for name in _SPLITS:
        nodes = np.flatnonzero(split == SPLIT_CODES[name]).astype(np.int64, copy=False)
        folder.write(f"splits/{name}", nodes)
        folder.write(f"splits/{name}_y", labels[nodes])


def _write_lists(store: GraphStore, folder: PartsFolder) -> None:
    """Write the arrays of no node and no edge, as they are, for every rank."""
    for name, array in store.lists().items():
        if array is None:
            _copy(store, folder, name, f"{LISTS_FOLDER}/{name}")
        else:
            folder.write(f"{LISTS_FOLDER}/{name}", array)


def _copy_topology(store: GraphStore, folder: PartsFolder, prefix: str) -> None:
    for name in (f"{prefix}indptr", f"{prefix}indices"):
        _copy(store, folder, name, f"topology/{name}")


def _copy(store: GraphStore, folder: PartsFolder, name: str, to: str) -> None:
    """Copy a whole array, as it is."""
    source, target = store.path / f"{name}.npy", folder.path / f"{to}.npy"
    folder.records[to] = copy_array(source, store.metadata.arrays[name], target, folder.advance)


def _split_topology(store: GraphStore, folder: PartsFolder, prefix: str) -> None:
    """In-edges of the nodes of each part, with their features, and which entries of the whole they are."""
    columns: dict[str, ReadRows | None] = {f"{prefix}indices": None}
    with ExitStack() as stack:
        if store.metadata.edge_features and not prefix:
            columns["edge_attr"] = None
        elif store.metadata.edge_features and not store.metadata.edge_types:
            columns["undirected_edge_attr"] = _features_by_id(store, stack)
        _split_ragged(store, folder, f"{prefix}indptr", columns, entries=f"{prefix}entries")


def _features_by_id(store: GraphStore, stack: ExitStack) -> ReadRows:
    """Features of the entries of both directions, gathered by the ids of the edges that they are."""
    record = store.metadata.arrays["undirected_edge_ids"]
    ids = stack.enter_context(ArrayReader(store.path / "undirected_edge_ids.npy", record))
    values = store.array("edge_attr")

    def read(count: int) -> NDArray[Any]:
        found: NDArray[Any] = values[ids.read(count)]
        evict(values)
        return found

    return read


def _split_rows(store: GraphStore, folder: PartsFolder, name: str) -> None:
    """Split an array of one row per node."""
    record = store.metadata.arrays[name]
    counts = np.bincount(folder.parts, minlength=folder.num_parts)
    with ArrayReader(store.path / f"{name}.npy", record) as reader:
        writers = folder.of_parts(name, reader.dtype, counts, record.shape[1:])
        for share in _shares(folder, _even_blocks(folder.num_nodes, reader.row_bytes)):
            rows = reader.read(share.stop - share.start)
            for part, writer in enumerate(writers):
                writer.append(rows[share.order[share.of(part)]])
    folder.finish(name, writers)


def _split_ragged(
    store: GraphStore,
    folder: PartsFolder,
    indptr_name: str,
    columns: Mapping[str, ReadRows | None],  # None: the store's array of that name
    *,
    entries: str | None = None,
) -> None:
    """Arrays of many entries per node, which `indptr` counts; `entries` also says where the rows began in the whole."""
    indptr = store.array(indptr_name)
    rows = np.bincount(folder.parts, minlength=folder.num_parts)
    lengths = np.bincount(folder.parts, weights=np.diff(indptr), minlength=folder.num_parts).astype(np.int64)
    whole = np.dtype(np.int64)
    with ExitStack() as stack:
        reads, writers, row_bytes = _columns(store, folder, columns, lengths, stack)
        ends = folder.of_parts(indptr_name, whole, rows + 1, ())
        firsts = [] if entries is None else folder.of_parts(entries, whole, rows, ())
        filled = np.zeros(folder.num_parts, dtype=np.int64)
        for writer in ends:
            writer.append(np.zeros(1, whole))
        blocks = row_blocks(indptr, CHUNK_BYTES // max(row_bytes, 8), CHUNK_BYTES // 8)
        for share in _shares(folder, blocks):
            starts, degree = indptr[share.start : share.stop], np.diff(indptr[share.start : share.stop + 1])
            blocks_of = [read(int(degree.sum())) for read in reads]
            for part in range(folder.num_parts):
                mine = share.order[share.of(part)]
                at = _positions(starts[mine] - indptr[share.start], degree[mine])
                for block, of_column in zip(blocks_of, writers, strict=True):
                    of_column[part].append(block[at])
                ends[part].append(filled[part] + np.cumsum(degree[mine]))
                filled[part] += len(at)
                if firsts:
                    firsts[part].append(starts[mine])
    for name, of_column in zip(columns, writers, strict=True):
        folder.finish(name, of_column)
    folder.finish(indptr_name, ends)
    if entries is not None:
        folder.finish(entries, firsts)


def _columns(
    store: GraphStore, folder: PartsFolder, columns: Mapping[str, ReadRows | None], lengths: Ids, stack: ExitStack
) -> tuple[list[ReadRows], list[list[ArrayWriter]], int]:
    """Reader of each column, its writers by part, and the bytes of the widest row."""
    reads: list[ReadRows] = []
    writers, row_bytes = [], 1
    for name, read in columns.items():
        record = store.metadata.arrays[name if read is None else "edge_attr"]
        dtype, row = np.dtype(record.dtype), record.shape[1:]
        if read is None:
            read = stack.enter_context(ArrayReader(store.path / f"{name}.npy", record)).read
        reads.append(read)
        writers.append(folder.of_parts(name, dtype, lengths, row))
        row_bytes = max(row_bytes, dtype.itemsize * int(np.prod(row, dtype=np.int64)))
    return reads, writers, row_bytes


def _positions(starts: Ids, lengths: Ids) -> Ids:
    """The entries [sum of lengths] of rows that begin at `starts`, one row after the other."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total)
