"""Sets of graphs as others keep them: TUDataset's text files, in a folder or a zip archive, and .npz archives.

TUDataset (Morris et al. 2020, arXiv 2007.08663): NAME_A.txt has an edge on each line, as two nodes counted from 1 over
all graphs; NAME_graph_indicator.txt the graph of each node; NAME_graph_labels.txt a class for each graph; other
files, where they are there, features and classes of nodes and edges, a line for each.
"""

import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys, read_npz, refuse_inflated
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.graph.graph_set import GraphSet
from graphmill.graph.unused import tell_unused
from graphmill.tasks.recognise import Look, named

_NPZ: Final = ("num_nodes", "num_edges", "edge_index", "x", "y")
_NPZ_MORE: Final = ("edge_attr", "split")
_NEEDED: Final = ("A", "graph_indicator", "graph_labels")
_MORE: Final = ("node_attributes", "node_labels", "edge_attributes", "edge_labels")
_LARGEST: Final = 2.0**53  # up to which float64 holds every whole number
_MOST_BYTES: Final = 8 << 30  # of a member of an archive, unpacked


@dataclass(frozen=True, slots=True)
class Read:
    """What a source holds."""

    source: str
    graphs: GraphSet
    labels: NDArray[np.int64]  # [num_graphs], as they are there
    split: NDArray[np.int8] | None  # None: the source has none
    notes: tuple[str, ...] = ()


def holds_graphs(path: Path) -> Look | None:
    """What says that a file or folder is a set of graphs."""
    if path.is_dir():
        found = sorted(each.name for each in path.glob("*_graph_indicator.txt"))
        return named(f"it has {found[0]}, a name of TUDataset's") if found else None
    if path.suffix == ".zip" and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            found = sorted(name for name in archive.namelist() if name.endswith("_graph_indicator.txt"))
            return named(f"it has {found[0]}, a name of TUDataset's") if found else None
    if path.suffix == ".npz" and path.is_file() and set(_NPZ) <= set(npz_keys(path)):
        return named(f"it has the keys {', '.join(_NPZ)}")
    return None


def read_graphs(path: Path) -> Read:
    """The graphs in a folder, a zip archive or a .npz file. `UserError` names the file, and the line, that is wrong."""
    if not path.exists():
        raise UserError(f"{path} does not exist", fix="give the folder or the archive of the graphs")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.is_dir():
        names = {each.name: each for each in path.glob("*.txt")}
        return _read_tu(path, list(names), lambda name: names[name].read_bytes())
    if path.suffix != ".zip":
        raise UserError(f"{path} is no set of graphs", fix="give a folder or NAME.zip of TUDataset, or a .npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {Path(info.filename).name: info for info in archive.infolist() if not info.is_dir()}
            if large := [name for name, info in members.items() if info.file_size > _MOST_BYTES]:
                raise UserError(f"{path}: {large[0]} is too large", fix="unpack the archive and give its folder")
            refuse_inflated(path, members.values())
            return _read_tu(path, list(members), lambda name: archive.read(members[name]))
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read: {reason(error)}", fix="fetch the archive again") from error


def _read_npz(path: Path) -> Read:
    arrays = read_npz(path, required=_NPZ, optional=_NPZ_MORE)
    tell_unused(path.name, set(npz_keys(path)) - {*_NPZ, *_NPZ_MORE})
    whole = ("num_nodes", "num_edges", "edge_index", "y")
    for name in whole:
        if arrays[name].dtype.kind not in "iu":
            raise UserError(f"{path}, key {name}: {arrays[name].dtype} are no whole numbers", fix="write it as int64")
    shapes = {"num_nodes": 1, "num_edges": 1, "edge_index": 2, "x": 2, "y": 1, "edge_attr": 2, "split": 1}
    for name, array in arrays.items():
        if array.ndim != shapes[name]:
            raise UserError(f"{path}, key {name}: it has {array.ndim} dimensions", fix=f"give it {shapes[name]}")
    numbers = {name: arrays[name].astype(np.int64) for name in whole}
    edge_index, x, edge_attr = numbers["edge_index"], arrays["x"], arrays.get("edge_attr")
    graphs = GraphSet.of(numbers["num_nodes"], numbers["num_edges"], edge_index, x, edge_attr)
    split = arrays["split"].astype(np.int8) if "split" in arrays else None
    return Read(f"arrays {path.name}", graphs, numbers["y"], split)


def _read_tu(path: Path, names: list[str], read: Callable[[str], bytes]) -> Read:
    indicators = [name for name in names if name.endswith("_graph_indicator.txt")]
    if len(indicators) != 1:
        raise UserError(
            f"{path} holds {len(indicators)} files *_graph_indicator.txt", fix="give the folder of one TUDataset"
        )
    stem = indicators[0].removesuffix("_graph_indicator.txt")
    own = (f"{stem}_", "README", "readme")
    tell_unused(str(path), [name for name in names if name.endswith(".txt") and not name.startswith(own)])
    tables: dict[str, NDArray[Any]] = {}
    for name in names:
        key = name.removeprefix(f"{stem}_").removesuffix(".txt")
        if name.startswith(f"{stem}_") and name.endswith(".txt") and key != "label_readme":
            tables[key] = _table(path, name, read(name))
    if missing := [f"{stem}_{key}.txt" for key in _NEEDED if key not in tables]:
        raise UserError(f"{path} lacks {', '.join(missing)}", fix="give the whole folder of the dataset")
    tell_unused(path.name, (f"{stem}_{key}.txt" for key in tables if key not in (*_NEEDED, *_MORE)))
    return _assembled(path, stem, tables)


def _table(path: Path, name: str, content: bytes) -> NDArray[np.float64]:
    """[num_lines, num_columns] of numbers that commas separate; [0, 2] of an empty file."""
    if not content.strip():
        return np.empty((0, 2))
    try:
        return np.loadtxt(io.BytesIO(content), delimiter=",", dtype=np.float64, ndmin=2, comments=None)
    except ValueError as error:
        problem = str(error).split(";")[0]
        raise UserError(f"{path}: {name}: {problem}", fix="write a line of numbers, with commas, for each") from None


def _assembled(path: Path, stem: str, tables: dict[str, NDArray[np.float64]]) -> Read:
    if (columns := tables["A"].shape[1]) != 2:
        raise UserError(f"{path}: {stem}_A.txt, line 1: {columns} numbers", fix="write two nodes on each line, `1, 2`")
    graph_of_node = _as_integers(path, f"{stem}_graph_indicator.txt", tables["graph_indicator"][:, 0]) - 1
    labels = _as_integers(path, f"{stem}_graph_labels.txt", tables["graph_labels"][:, 0])
    pairs = _as_integers(path, f"{stem}_A.txt", tables["A"]).T - 1
    num_nodes, num_graphs = len(graph_of_node), len(labels)
    if pairs.size and (pairs.min() < 0 or pairs.max() >= num_nodes):
        line = int(np.flatnonzero(((pairs < 0) | (pairs >= num_nodes)).any(axis=0))[0]) + 1
        raise UserError(
            f"{path}: {stem}_A.txt, line {line}: not two of the {num_nodes:,} nodes", fix="count nodes from 1"
        )
    if graph_of_node.size and (graph_of_node.min() < 0 or graph_of_node.max() >= num_graphs):
        line = int(np.flatnonzero((graph_of_node < 0) | (graph_of_node >= num_graphs))[0]) + 1
        raise UserError(
            f"{path}: {stem}_graph_indicator.txt, line {line}: none of the {num_graphs:,} graphs",
            fix="count graphs from 1, and give each a label",
        )
    across = np.flatnonzero(graph_of_node[pairs[0]] != graph_of_node[pairs[1]])
    if len(across):
        raise UserError(
            f"{path}: {stem}_A.txt, line {across[0] + 1}: an edge between two graphs", fix="leave such edges out"
        )
    by_graph = np.argsort(graph_of_node, kind="stable")
    place = np.empty(num_nodes, np.int64)
    place[by_graph] = np.arange(num_nodes)
    order = np.argsort(graph_of_node[pairs[0]], kind="stable")
    sizes = np.bincount(graph_of_node, minlength=num_graphs)
    first = np.cumsum(sizes) - sizes
    graph_of_edge = graph_of_node[pairs[0][order]]
    x, notes = _node_features(path, stem, tables, num_nodes, pairs)
    edge_attr = _joined(path, stem, tables, ("edge_attributes", "edge_labels"), pairs.shape[1])
    graphs = GraphSet.of(
        sizes,
        np.bincount(graph_of_edge, minlength=num_graphs),
        place[pairs[:, order]] - first[graph_of_edge],
        x[by_graph],
        None if edge_attr is None else edge_attr[order],
    )
    return Read(f"TUDataset {path.name}", graphs, labels, None, notes)


def _node_features(
    path: Path, stem: str, tables: dict[str, NDArray[np.float64]], num_nodes: int, pairs: NDArray[np.int64]
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    x = _joined(path, stem, tables, ("node_attributes", "node_labels"), num_nodes)
    if x is not None:
        return x, ()
    degrees = np.bincount(pairs[1], minlength=num_nodes).astype(np.float32)[:, None]
    return degrees, ("nodes have neither attributes nor labels: their in-degree is their one feature",)


def _joined(
    path: Path, stem: str, tables: dict[str, NDArray[np.float64]], keys: tuple[str, str], number: int
) -> NDArray[np.float32] | None:
    """Attributes as they are, and a column for each value of each label."""
    attributes, labels = keys
    parts = []
    for key in keys:
        if key in tables and len(tables[key]) != number:
            raise UserError(
                f"{path}: {stem}_{key}.txt has {len(tables[key]):,} lines for {number:,}", fix="give a line for each"
            )
    if attributes in tables:
        parts.append(tables[attributes])
    if labels in tables:
        parts += [
            (column[:, None] == np.unique(column)).astype(np.float64)
            for column in _as_integers(path, f"{stem}_{labels}.txt", tables[labels]).T
        ]
    return np.concatenate(parts, axis=1).astype(np.float32) if parts else None


def _as_integers(path: Path, name: str, values: NDArray[np.float64]) -> NDArray[np.int64]:
    is_whole = (np.abs(values) < _LARGEST) & (values == np.floor(values))  # of a NaN neither holds
    if not is_whole.all():
        line = int(np.flatnonzero(~is_whole.reshape(len(values), -1).all(axis=1))[0]) + 1
        raise UserError(f"{path}: {name}, line {line}: not a whole number", fix="write whole numbers there")
    return values.astype(np.int64)
