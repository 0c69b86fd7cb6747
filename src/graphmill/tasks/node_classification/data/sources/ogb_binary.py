"""OGB's node sets in its own binary layout, as ogbn-papers100M comes.

<folder>/raw/data.npz         edge_index [2, num_edges], node_feat [num_nodes, num_features], num_nodes_list, …
<folder>/raw/node-label.npz   node_label [num_nodes, 1 or num_labels], NaN: unlabelled
<folder>/split/<kind>/{train,valid,test}.csv.gz

Edges and features are mapped and not read into memory, wherever they come from: of ogbn-papers100M they are 80 GB.
"""

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import map_npz, npz_keys, read_npz
from graphmill.graph.features import dense
from graphmill.graph.unused import tell_unused
from graphmill.tasks.node_classification.data.labelled import LabelledGraph
from graphmill.tasks.node_classification.data.sources.labels import targets_of
from graphmill.tasks.node_classification.data.sources.ogb import read_split, split_folder

DATA: Final = "raw/data.npz"
LABELS: Final = "raw/node-label.npz"
_COUNTS: Final = ("num_nodes_list", "num_edges_list")


def is_ogb_binary(folder: Path) -> bool:
    """Whether a folder is in this layout."""
    return (folder / DATA).is_file()


def read_ogb_binary(folder: Path, dataset: str, name: str, scratch: Path) -> LabelledGraph:
    """Read the folder of a node set with a class, or several labels, per node; unpack into `scratch`."""
    path, labels_path = folder / DATA, folder / LABELS
    tell_unused(path.name, set(npz_keys(path)) - {"edge_index", "node_feat", *_COUNTS})
    counts = read_npz(path, required=(), optional=_COUNTS)
    labels = targets_of(
        read_npz(labels_path, required=("node_label",))["node_label"], place=f"{labels_path}, key node_label"
    )
    edges, x = (map_npz(path, key, scratch) for key in ("edge_index", "node_feat"))
    _check_shapes(path, edges, x, labels, counts)
    kind = split_folder(folder / "split")
    return LabelledGraph(
        edge_index=edges,
        features=dense(x),
        labels=labels,
        split=read_split(kind, len(labels)),
        name=name,
        source=f"{dataset}, OGB binary files",
        synthetic=False,
        split_note=f"public: {kind.name}",
        origin={
            "edge_index": f"{path}, key edge_index",
            "features": f"{path}, key node_feat",
            "labels": f"{labels_path}, key node_label",
        },
    )


def _check_shapes(
    path: Path, edges: NDArray[Any], x: NDArray[Any], labels: NDArray[np.integer[Any]], counts: dict[str, NDArray[Any]]
) -> None:
    if x.ndim != 2 or x.dtype.kind not in "fiu":
        raise UserError(
            f"{path}, key node_feat: {x.dtype} {list(x.shape)}", fix="give numbers [num_nodes, num_features]"
        )
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise UserError(f"{path}, key edge_index: its shape is {list(edges.shape)}", fix="give [2, num_edges]")
    found = {"num_nodes_list": {len(x), len(labels)}, "num_edges_list": {edges.shape[1]}}
    if len(x) != len(labels):
        raise UserError(
            f"{path}: {len(labels)} labels, and {len(x)} rows of features", fix="download the dataset again"
        )
    for key, said in counts.items():
        if said.reshape(-1).tolist() != sorted(found[key]):
            raise UserError(
                f"{path}: {key} says {said.reshape(-1).tolist()[:5]}, and there are {sorted(found[key])[0]}",
                fix="download the dataset again: it should hold one graph",
            )
