"""Compressed sparse topology: built from an edge list by sorting one 64-bit key per edge.

An edge u → v is the key `v << bits | u`. Sorted keys are the rows in order, equal keys are duplicates, and a row's
start is a binary search: no argsort, no permutation, at most two extra copies of the keys in memory; parallel edges are
merged. `topology_with_edge_ids` pays for the permutation, for edges that carry data of their own (features, weights,
times).
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.pages import evict

MAX_NODES = 2**32  # two ids must fit one 64-bit key

_BLOCK = 2**20  # keys that are looked at together
_MOST_NODES_PER_ID = 8  # beyond, a table of all nodes takes more memory, and may take more time, than a sort

EdgeKeys = NDArray[np.uint64]  # [num_edges], ascending and unique: destination << bits | source
EdgeIds = NDArray[np.int64]  # [num_edges]: which edge of the list it was built from each entry of a topology is
_Whole = TypeVar("_Whole", np.uint64, np.int64)


@dataclass(frozen=True, slots=True)
class Topology:
    """In-neighbours of every node, in compressed sparse column form: edge u → v is stored as u in the row of v.

    Rows are ascending and hold no neighbour twice, unless multi-edges were kept; a self-loop is an ordinary entry.
    """

    indptr: NDArray[np.int64]  # [num_nodes + 1]
    indices: NDArray[np.int32] | NDArray[np.int64]  # [num_edges]; int64 only if num_nodes ≥ 2^31

    @property
    def num_nodes(self) -> int:
        """Rows, counting those without a neighbour."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Entries: each direction of an undirected edge is one."""
        return len(self.indices)


def index_dtype(num_nodes: int) -> np.dtype[np.int32] | np.dtype[np.int64]:
    """The dtype of neighbour ids: int32 if it fits."""
    return np.dtype(np.int32) if num_nodes < 2**31 else np.dtype(np.int64)


def edge_keys(edge_index: NDArray[Any], num_nodes: int, out: NDArray[np.uint64] | None = None) -> EdgeKeys:
    """Sorted unique keys of `edge_index` [2, num_edges] (sources, then destinations), ids in 0..num_nodes.

    They are the first of `out` [at least num_edges], where that is given.
    """
    return sorted_unique(unsorted_keys(edge_index, num_nodes, out))


def unsorted_keys(
    edge_index: NDArray[Any], num_nodes: int, out: NDArray[np.uint64] | None = None
) -> NDArray[np.uint64]:
    """A key for each edge, in the order of the edges; of mapped edges a block at a time is in memory."""
    num_edges = edge_index.shape[1]
    keys = np.empty(num_edges, dtype=np.uint64) if out is None else out[:num_edges]
    for start in range(0, num_edges, _BLOCK):
        block, (sources, targets) = keys[start : start + _BLOCK], edge_index[:, start : start + _BLOCK]
        block[:] = targets
        block <<= _shift(num_nodes)
        np.bitwise_or(block, sources, out=block, dtype=np.uint64, casting="unsafe")
        evict(sources)
        evict(targets)
    return keys


def topology_with_edge_ids(
    edge_index: NDArray[Any], num_nodes: int, *, undirected: bool = False, keep_multi_edges: bool = False
) -> tuple[Topology, EdgeIds]:
    """The topology of `edge_index` [2, num_edges], and which of its edges each entry is.

    So x[edge_ids] are the values of the entries, for any x [num_edges, …] that edges carry. Of edges between the
    same two nodes the first is kept, or with `keep_multi_edges` all, in their order. With `undirected` an edge has an
    entry in both directions under one id (a self-loop has one), and of merged edges those as given come first.
    """
    ids = np.arange(edge_index.shape[1], dtype=np.int64)
    if undirected:
        to_reverse = ids if not keep_multi_edges else ids[edge_index[0] != edge_index[1]]
        edge_index = np.concatenate([edge_index, edge_index[::-1, to_reverse]], axis=1)
        ids = np.concatenate([ids, to_reverse])
    keys = unsorted_keys(edge_index, num_nodes)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if not keep_multi_edges and len(keys):
        is_first = np.concatenate([[True], keys[1:] != keys[:-1]])
        keys, order = keys[is_first], order[is_first]
    return topology_from_keys(keys, num_nodes), ids[order]


def undirected_keys(keys: EdgeKeys, num_nodes: int, out: NDArray[np.uint64] | None = None) -> EdgeKeys | None:
    """Sorted unique keys of both directions of every edge, or None if the graph is symmetric already.

    `out` [at least 2 len(keys)] is the only memory that this takes, and `keys` may be its first: they are lost then,
    unless the graph is symmetric.
    """
    both = np.empty(2 * len(keys), dtype=np.uint64) if out is None else out[: 2 * len(keys)]
    given, reversed_keys = np.split(both, 2)
    given[:] = keys
    _reverse(keys, num_nodes, reversed_keys)
    return None if np.array_equal(reversed_keys, keys) else sorted_unique(both)


def other_keys(
    keys: EdgeKeys, num_nodes: int, num_entries: int, out: NDArray[np.uint64] | None = None
) -> EdgeKeys | None:
    """Keys of the union of both directions; None if a topology with these keys and `num_entries` is that union.

    It is not where edges are parallel: in the union two nodes are joined once in each direction. `out`: as of
    `undirected_keys`.
    """
    both = undirected_keys(keys, num_nodes, out)
    return keys if both is None and num_entries > len(keys) else both


def topology_from_keys(keys: EdgeKeys, num_nodes: int) -> Topology:
    """The rows that sorted `keys` encode."""
    indptr = np.empty(num_nodes + 1, dtype=np.int64)
    first_keys = np.arange(num_nodes, dtype=np.uint64)
    first_keys <<= _shift(num_nodes)
    indptr[:-1] = np.searchsorted(keys, first_keys)
    indptr[-1] = len(keys)
    indices = np.empty(len(keys), dtype=index_dtype(num_nodes))
    np.bitwise_and(keys, _mask(num_nodes), out=indices, casting="unsafe")
    return Topology(indptr=indptr, indices=indices)


def keys_from_topology(topology: Topology) -> EdgeKeys:
    """The inverse of `topology_from_keys`."""
    keys = np.repeat(np.arange(topology.num_nodes, dtype=np.uint64), np.diff(topology.indptr))
    keys <<= _shift(topology.num_nodes)
    np.bitwise_or(keys, topology.indices, out=keys, dtype=np.uint64, casting="unsafe")
    return keys


def sorted_unique(keys: NDArray[_Whole]) -> NDArray[_Whole]:
    """Sort `keys` in place and remove repeated ones, block by block; the result is a view of the same memory.

    numpy.unique hashes, which takes ten times as long on 20 million keys, and a boolean index would copy them all.
    """
    keys.sort()
    num_kept = 0
    last: _Whole | None = None
    for start in range(0, len(keys), _BLOCK):
        block = keys[start : start + _BLOCK]
        is_first = np.empty(len(block), dtype=np.bool_)
        is_first[0] = last is None or block[0] != last
        np.not_equal(block[1:], block[:-1], out=is_first[1:])
        last = block[-1]
        kept = block[is_first]
        keys[num_kept : num_kept + len(kept)] = kept
        num_kept += len(kept)
    return keys[:num_kept]


def relabelled(ids: NDArray[Any], num_nodes: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Relabel node ids [n] from 0 on: the distinct ids, ascending, and the place of each id among them [n].

    As `numpy.unique` with the inverse, by a table of all nodes in place of a sort where they are not far more than ids.
    """
    if num_nodes > _MOST_NODES_PER_ID * len(ids):
        distinct, places = np.unique(ids, return_inverse=True)
        return distinct.astype(np.int64, copy=False), places
    is_there = np.zeros(num_nodes, dtype=np.bool_)
    is_there[ids] = True
    distinct = np.flatnonzero(is_there)
    place_of = np.empty(num_nodes, dtype=np.int64)
    place_of[distinct] = np.arange(len(distinct))
    return distinct, place_of[ids]


def self_loops(keys: EdgeKeys, num_nodes: int) -> NDArray[np.int64]:
    """Ascending ids [num_self_loops] of the nodes that are in their own row."""
    blocks = (keys[start : start + _BLOCK] for start in range(0, len(keys), _BLOCK))
    found = [block[block >> _shift(num_nodes) == block & _mask(num_nodes)] & _mask(num_nodes) for block in blocks]
    return np.concatenate([np.empty(0, np.int64), *(ids.astype(np.int64) for ids in found)])


def num_isolated(undirected: Topology, loops: NDArray[np.int64]) -> int:
    """Nodes without an edge from or to another node; self-loops do not count."""
    degree = np.diff(undirected.indptr)
    degree[loops] -= 1
    return int(np.count_nonzero(degree == 0))


def _shift(num_nodes: int) -> np.uint64:
    return np.uint64(max(1, (num_nodes - 1).bit_length()))


def _mask(num_nodes: int) -> np.uint64:
    return np.uint64((1 << int(_shift(num_nodes))) - 1)


def _reverse(keys: EdgeKeys, num_nodes: int, out: EdgeKeys) -> None:
    """Write the sorted keys of the other directions to `out`."""
    np.bitwise_and(keys, _mask(num_nodes), out=out)
    out <<= _shift(num_nodes)
    for start in range(0, len(keys), _BLOCK):
        out[start : start + _BLOCK] |= keys[start : start + _BLOCK] >> _shift(num_nodes)
    out.sort()
