"""What PyG's `RandomLinkSplit` gives: for each split edges to read, pairs to tell, and which of those are links.

Three `Data` that `torch.save` wrote to train.pt, val.pt and test.pt of a folder, or an .npz with the arrays as
train_edge_index, train_edge_label_index, train_edge_label, and so on. The message graph is the edge_index of train.
Pairs of val and test that are no links are what their links are ranked among; those of train are drawn anew.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.features import Features, dense, no_features
from graphmill.graph.raw import edge_index_problem
from graphmill.graph.saved import arrays_in, read_saved_data
from graphmill.graph.splits import SPLITS, Split
from graphmill.graph.unused import tell_unused
from graphmill.tasks.link_prediction.data.links import JUDGED, Candidates, LinkGraph, Links, SharedCandidates
from graphmill.tasks.link_prediction.data.splits import have_direction

_log = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]
ARRAYS: Final = ("edge_index", "edge_label_index", "edge_label")
_SEPARATE: Final = ("pos_edge_label_index", "neg_edge_label_index")  # with split_labels=True
_EDGES: Final = ("edge_weight", "edge_attr")
_FILES: Final[dict[Split, tuple[str, ...]]] = {
    "train": ("train.pt",),
    "val": ("val.pt", "valid.pt"),
    "test": ("test.pt",),
}


def saved_files(folder: Path) -> dict[Split, Path] | None:
    """The file of each split, or None if the folder is not in this layout."""
    found = {split: path for split, names in _FILES.items() for name in names if (path := folder / name).is_file()}
    return found if set(found) == set(SPLITS) else None


def read_saved_split(folder: Path, name: str, *, undirected: bool | None) -> LinkGraph:
    """Read the three files. `UserError` if one holds anything but tensors in a `Data`."""
    files = saved_files(folder)
    assert files is not None, "asked before"
    saved = {split: read_saved_data(path) for split, path in files.items()}
    parts = {split: arrays_in(found, (*ARRAYS, *_SEPARATE), files[split]) for split, found in saved.items()}
    train, path = saved["train"], files["train"]
    tell_unused(path.name, {str(key) for key in train} - {"x", *_EDGES, *ARRAYS, *_SEPARATE, "num_nodes"})
    return of_parts(
        parts,
        features=_features(train, parts, path),
        of_edges=arrays_in(train, _EDGES, path),
        name=name,
        source=f"RandomLinkSplit in {folder.name}",
        place=str(folder),
        undirected=undirected,
    )


def of_parts(
    parts: Mapping[Split, Arrays],
    *,
    features: Features,
    of_edges: Arrays,
    name: str,
    source: str,
    place: str,
    undirected: bool | None,
) -> LinkGraph:
    """The links of the arrays of each split, whose names are `ARRAYS`. `UserError` if they are no such arrays."""
    for split in SPLITS:
        _check(parts[split], split, features.num_nodes, place)
    told = {split: _both_kinds(parts[split]) for split in SPLITS}
    if num_pairs := told["train"][1].shape[1]:
        _log.info(f"not used: {num_pairs:,} pairs of train that are no links: such are drawn anew at each step")
    more = {split: parts[split]["edge_index"].shape[1] - parts["train"]["edge_index"].shape[1] for split in JUDGED}
    if any(more.values()):
        counts = ", ".join(f"{split} {count:,}" for split, count in more.items() if count)
        _log.info(f"not used: edges that are read for other splits than train alone: {counts}")
    pools: dict[Split, Candidates] = {
        split: SharedCandidates(told[split][1]) for split in JUDGED if told[split][1].shape[1]
    }
    edges = parts["train"]["edge_index"]
    columns, names = edge_columns(of_edges, place=place)
    return LinkGraph(
        edge_index=edges,
        features=features,
        name=name,
        source=source,
        synthetic=False,
        origin=dict.fromkeys(("edge_index", "features", "links", "candidates"), place),
        edge_features=columns,
        edge_feature_names=names,
        links={split: Links.of(told[split][0]) for split in SPLITS},
        links_have_direction=have_direction(edges, features.num_nodes, have_relations=False, undirected=undirected),
        split_note="as PyG's RandomLinkSplit drew it",
        candidates=pools,
    )


def _both_kinds(arrays: Arrays) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs that are links, and pairs that are none, [2, n] each."""
    if "edge_label_index" in arrays:
        pairs, is_link = arrays["edge_label_index"].astype(np.int64), arrays["edge_label"] > 0
        return pairs[:, is_link], pairs[:, ~is_link]
    none = np.empty((2, 0), dtype=np.int64)
    return arrays[_SEPARATE[0]].astype(np.int64), arrays.get(_SEPARATE[1], none).astype(np.int64)


def _check(arrays: Arrays, split: Split, num_nodes: int, place: str) -> None:
    if "edge_index" not in arrays or ("edge_label_index" not in arrays and _SEPARATE[0] not in arrays):
        raise UserError(
            f"{place}: {split} has {', '.join(sorted(arrays)) or 'nothing'}",
            fix="give edge_index, edge_label_index and edge_label of each split, as RandomLinkSplit does",
        )
    for key in ("edge_index", "edge_label_index", *_SEPARATE):
        if key in arrays and (found := edge_index_problem(arrays[key], num_nodes)):
            raise UserError(f"{place}, {key} of {split}: {found[0]}", fix=found[1])
    if "edge_label_index" not in arrays:
        return
    labels = arrays.setdefault("edge_label", np.ones(arrays["edge_label_index"].shape[1]))
    if labels.shape != (arrays["edge_label_index"].shape[1],) or labels.dtype.kind not in "iufb":
        raise UserError(
            f"{place}, edge_label of {split}: {labels.dtype} {list(labels.shape)}",
            fix="give one number for each pair: 0 for those that are no links",
        )


def _features(train: Mapping[str, Any], parts: Mapping[Split, Arrays], path: Path) -> Features:
    """Features of the nodes, or none for as many nodes as are given or named."""
    if train.get("x") is not None:
        x = arrays_in(train, ("x",), path)["x"]
        if x.ndim != 2:
            raise UserError(f"{path}, key x: {x.dtype} {list(x.shape)}", fix="give numbers [num_nodes, num_features]")
        return dense(x)
    if isinstance(train.get("num_nodes"), int) and train["num_nodes"] > 0:
        return no_features(train["num_nodes"])
    ids = [array for of in parts.values() for key, array in of.items() if key.endswith("_index") and array.size]
    return no_features(1 + max((int(array.max()) for array in ids), default=0))
