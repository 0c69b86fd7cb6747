"""Read the parts that were opened, and what all ranks read: checksums, then what the arrays promise each other."""

import numpy as np

from graphmill.base.errors import UserError
from graphmill.graph.arrays import check_checksums
from graphmill.graph.splits import SPLIT_CODES, SPLITS
from graphmill.graph.typed import column_problem, neighbours_and_types
from graphmill.partition.metadata import files_of, part_folder
from graphmill.partition.methods.files import row_blocks
from graphmill.partition.parts import PartedGraph, again

_ENTRIES_AT_A_TIME = 2**22


def verify_parts(graph: PartedGraph) -> None:
    """`UserError` names the first breach. Checksums first, so that a flipped bit is reported as one.

    What is not on this host cannot be: edges are compared with the whole topology where that is here.
    """
    has_topology = graph.has_topology
    names = files_of(graph.metadata, graph.parts, whole_topology=has_topology)
    try:
        check_checksums(graph.path, {name: graph.metadata.arrays[name] for name in names})
    except UserError as error:
        raise UserError(error.message, fix=again(graph.metadata, graph.path)) from error
    for part in graph.parts:
        _verify_book(graph, part)
        for undirected in (False,) if graph.metadata.is_symmetric else (False, True):
            _verify_rows(graph, part, undirected=undirected)
            if has_topology:
                _compare_rows(graph, part, undirected=undirected)
    if graph.metadata.splits:
        _verify_splits(graph)
    for part in graph.parts if graph.metadata.edge_types else ():
        _verify_types(graph, part)


def _verify_book(graph: PartedGraph, part: int) -> None:
    """Rows ascend by node, and the book says of each of its nodes that it is there. So no node is in two parts."""
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
    """Check that every row of the part has in-neighbours that are nodes of the graph, ascending."""
    here = graph.part(part).topology(undirected=undirected)
    types = None if undirected or not graph.metadata.edge_types else graph.part(part).edge_attr(undirected=False)[:, -1]
    name = _indices_of(part, undirected=undirected)
    if here.indptr[0] != 0 or here.indptr[-1] != len(here.indices) or (np.diff(here.indptr) < 0).any():
        raise _breach(graph, name, "its rows do not follow each other")
    for start, stop in row_blocks(here.indptr, _ENTRIES_AT_A_TIME):
        first, last = int(here.indptr[start]), int(here.indptr[stop])
        found = here.indices[first:last]
        if types is not None:
            found = neighbours_and_types(found, types[first:last], len(graph.metadata.edge_types))
        is_first = np.zeros(len(found) + 1, dtype=np.bool_)  # of its row, which may be less than the entry before it
        is_first[here.indptr[start:stop] - first] = True
        ascends = ((np.diff(found) > 0) | is_first[1:-1]).all() if len(found) else True
        nodes = here.indices[first:last]
        if not ascends or (nodes < 0).any() or (nodes >= graph.metadata.num_nodes).any():
            raise _breach(graph, name, f"between rows {start} and {stop} are no ascending nodes of the graph")


def _compare_rows(graph: PartedGraph, part: int, *, undirected: bool) -> None:
    """Check that the in-edges of the part's nodes are those of the whole graph."""
    own, nodes = graph.part(part), graph.part(part).node_ids
    here, whole = own.topology(undirected=undirected), graph.topology(undirected=undirected)
    entries = own.first_entries(undirected=undirected)
    name = _indices_of(part, undirected=undirected)
    if not np.array_equal(entries, whole.indptr[nodes]) or not np.array_equal(
        np.diff(here.indptr), whole.indptr[nodes.astype(np.int64) + 1] - entries
    ):
        raise _breach(graph, name, "its rows are not those of the whole topology")
    for start, stop in row_blocks(here.indptr, _ENTRIES_AT_A_TIME):
        first, last = int(here.indptr[start]), int(here.indptr[stop])
        shift = np.repeat(entries[start:stop] - here.indptr[start:stop], np.diff(here.indptr[start : stop + 1]))
        if not np.array_equal(here.indices[first:last], whole.indices[np.arange(first, last) + shift]):
            raise _breach(graph, name, f"between rows {start} and {stop} it differs from the whole topology")


def _verify_types(graph: PartedGraph, part: int) -> None:
    """The part has the nodes of each type that were counted, and each edge joins nodes that its type does."""
    known, of_all, own = graph.metadata, graph.node_type, graph.part(part)
    assert known.by_type is not None, "else the metadata contradict themselves"
    counted = [of_type[part] for of_type in known.by_type.nodes]
    mine = of_all[own.node_ids]
    if (mine < 0).any() or np.bincount(mine, minlength=len(counted)).tolist() != counted:
        raise _breach(graph, "node_book/node_type", f"the nodes of part {part} are not {counted} of the types")
    relations = [each.relation for each in known.edge_types]
    here, values = own.topology(undirected=False), own.edge_attr(undirected=False)
    for start, stop in row_blocks(here.indptr, _ENTRIES_AT_A_TIME):
        first, last = int(here.indptr[start]), int(here.indptr[stop])
        targets = np.repeat(mine[start:stop], np.diff(here.indptr[start : stop + 1]))
        of_ends = np.stack([of_all[here.indices[first:last]], targets])
        if problem := column_problem(relations, known.node_type_names, of_ends, values[first:last, -1]):
            raise _breach(graph, f"{part_folder(part)}/edge_attr", f"between rows {start} and {stop}: {problem}")


def _verify_splits(graph: PartedGraph) -> None:
    """Check that each split lists the nodes that the parts say are in it, with their labels, and ascends."""
    places = graph.book.storage
    for split in SPLITS:
        listed, labels = graph.nodes_in(split), graph.labels_in(split)
        if (np.diff(listed) <= 0).any():
            raise _breach(graph, f"splits/{split}", "its nodes do not ascend")
        for number in graph.parts:
            part, (first, end) = graph.part(number), graph.book.range_of(number)
            mine = np.flatnonzero(part.array("split") == SPLIT_CODES[split])
            here = (places[listed] >= first) & (places[listed] < end)
            if not np.array_equal(part.node_ids[mine], listed[here]):
                raise _breach(graph, f"splits/{split}", f"it lists other nodes than part {number}")
            if not np.array_equal(part.array("y")[mine], labels[here]):
                raise _breach(graph, f"splits/{split}_y", f"its labels are others than those of part {number}")


def _indices_of(part: int, *, undirected: bool) -> str:
    return f"{part_folder(part)}/{'undirected_' if undirected else ''}indices"


def _breach(graph: PartedGraph, name: str, problem: str) -> UserError:
    return UserError(f"{graph.path / name}.npy: {problem}", fix=again(graph.metadata, graph.path))
