"""Read a whole folder of parts: checksums, then what the arrays promise each other."""

import numpy as np

from graphmill.base.errors import UserError
from graphmill.graph.arrays import check_checksum
from graphmill.graph.splits import SPLIT_CODES
from graphmill.partition.metadata import part_folder
from graphmill.partition.methods.files import row_blocks
from graphmill.partition.parts import PartedGraph, again

_ENTRIES_AT_A_TIME = 2**22


def verify_parts(graph: PartedGraph) -> None:
    """`UserError` names the first breach. Checksums first, so that a flipped bit is reported as one."""
    for name, record in graph.metadata.arrays.items():
        try:
            check_checksum(graph.path / f"{name}.npy", record)
        except UserError as error:
            raise UserError(error.message, fix=again(graph.metadata)) from error
    for part in range(graph.metadata.num_parts):
        _verify_book(graph, part)
        for undirected in (False,) if graph.metadata.is_symmetric else (False, True):
            _verify_rows(graph, part, undirected=undirected)
    _verify_splits(graph)


def _verify_book(graph: PartedGraph, part: int) -> None:
    """Rows ascend by node, and the book says of each of its nodes that it is there. So every node is in one part."""
    nodes, (first, end) = graph.part(part).node_ids, graph.book.range_of(part)
    if (np.diff(nodes) <= 0).any() or (len(nodes) and not 0 <= nodes[0] <= nodes[-1] < graph.metadata.num_nodes):
        raise _breach(graph, f"{part_folder(part)}/node_ids", "they are no ascending nodes of the graph")
    wrong = np.flatnonzero(graph.book.storage[nodes] != np.arange(first, end))
    if len(wrong):
        raise _breach(
            graph,
            "node_book/storage_of",
            f"node {nodes[wrong[0]]} is row {wrong[0]} of part {part}, and the book says otherwise: it is of another"
            " partition",
        )


def _verify_rows(graph: PartedGraph, part: int, *, undirected: bool) -> None:
    """The in-edges of the part's nodes are those of the whole graph."""
    own, nodes = graph.part(part), graph.part(part).node_ids
    here, whole = own.topology(undirected=undirected), graph.topology(undirected=undirected)
    entries = own.first_entries(undirected=undirected)
    name = f"{part_folder(part)}/{'undirected_' if undirected else ''}indices"
    if not np.array_equal(entries, whole.indptr[nodes]) or not np.array_equal(
        np.diff(here.indptr), whole.indptr[nodes.astype(np.int64) + 1] - entries
    ):
        raise _breach(graph, name, "its rows are not those of the whole topology")
    for start, stop in row_blocks(here.indptr, _ENTRIES_AT_A_TIME):
        first, last = int(here.indptr[start]), int(here.indptr[stop])
        shift = np.repeat(entries[start:stop] - here.indptr[start:stop], np.diff(here.indptr[start : stop + 1]))
        if not np.array_equal(here.indices[first:last], whole.indices[np.arange(first, last) + shift]):
            raise _breach(graph, name, f"between rows {start} and {stop} it differs from the whole topology")


def _verify_splits(graph: PartedGraph) -> None:
    """Each split lists the nodes that the parts say are in it, with their labels."""
    whole = np.empty(graph.metadata.num_nodes, np.int8)
    labels = np.empty(graph.metadata.num_nodes, np.int64)
    for part in range(graph.metadata.num_parts):
        nodes = graph.part(part).node_ids
        whole[nodes], labels[nodes] = graph.part(part).array("split"), graph.part(part).array("y")
    for split in ("train", "val", "test"):
        nodes = np.flatnonzero(whole == SPLIT_CODES[split])
        if not np.array_equal(nodes, graph.nodes_in(split)):
            raise _breach(graph, f"splits/{split}", "it lists other nodes than the parts")
        if not np.array_equal(labels[nodes], graph.labels_in(split)):
            raise _breach(graph, f"splits/{split}_y", "its labels are others than the parts'")


def _breach(graph: PartedGraph, name: str, problem: str) -> UserError:
    return UserError(f"{graph.path / name}.npy: {problem}", fix=again(graph.metadata))
