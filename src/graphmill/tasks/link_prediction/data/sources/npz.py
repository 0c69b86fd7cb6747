"""One .npz file of links.

`edge_index` [2, num_edges] and one of
- `train_links`, `val_links`, `test_links` [n, 2] (source, target) or [n, 3] (source, relation, target): then edge_index
  is the message graph;
- `split` [num_edges], or nothing: then the edges are the links, and a split is drawn as it is asked for;
- `edge_time` [num_edges] besides, for a split by time.
Instead of these the arrays of PyG's `RandomLinkSplit` (`random_link_split.py`).

Features are dense (`x`) or CSR (`x_data x_indices x_indptr x_shape`), or there are none: then num_nodes may be there.
`edge_type` [num_edges] are relations, with or without `edge_type_names`; types of nodes as `graph/npz.py` has
them. Links of val and test may be ranked among `val_candidates`, `test_candidates` [n, k] (targets), and
`val_source_candidates`, …, or among a pool of pairs, `val_pool`, `test_pool` [m, 2]. `names` [num_nodes].
"""

import logging
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import MAPPED, npz_keys, read_npz
from graphmill.graph.edge_features import edge_columns
from graphmill.graph.features import Features, no_features
from graphmill.graph.npz import FEATURE_KEYS, TYPE_KEYS, npz_features, types_in
from graphmill.graph.raw import edge_index_problem
from graphmill.graph.splits import SPLIT_CODES, SPLITS, Split
from graphmill.graph.typed import RawTypes
from graphmill.graph.unused import tell_unused
from graphmill.tasks.link_prediction.data.links import JUDGED, Candidates, GivenCandidates, LinkGraph, Links
from graphmill.tasks.link_prediction.data.links import SharedCandidates as Shared
from graphmill.tasks.link_prediction.data.sources import random_link_split
from graphmill.tasks.link_prediction.data.splits import JoinedGraph, have_direction

_log = logging.getLogger(__name__)

_LINKS: Final[dict[Split, str]] = {split: f"{split}_links" for split in SPLITS}
_CANDIDATES: Final = tuple(
    f"{split}_{what}" for split in JUDGED for what in ("candidates", "source_candidates", "pool")
)
_PARTS: Final = tuple(f"{split}_{array}" for split in SPLITS for array in random_link_split.ARRAYS)
_EDGES: Final = ("edge_weight", "edge_attr")
_MORE: Final = (*FEATURE_KEYS, *_EDGES, "num_nodes", "names")
_OF_NAMES: Final[dict[str, int]] = {**{str(name): code for name, code in SPLIT_CODES.items()}, "valid": 1, "": -1}

Arrays = dict[str, NDArray[Any]]


def has_links(keys: set[str]) -> bool:
    """Whether an archive has keys of links in splits, which other graphs have not."""
    return set(_LINKS.values()) <= keys or "test_edge_label_index" in keys


def read_npz_links(path: Path, name: str, *, undirected: bool | None, scratch: Path) -> LinkGraph | JoinedGraph:
    """Read the file; large arrays are unpacked into `scratch`. `UserError` names the key that is malformed."""
    keys = set(npz_keys(path))
    if "test_edge_label_index" in keys:
        return _read_random_link_split(path, keys, name, undirected)
    given = bool(keys & set(_LINKS.values()))
    wanted = [*(_LINKS.values() if given else ()), "edge_index"]
    of_splits = (*_CANDIDATES,) if given else ("split", "edge_time")
    optional = (*_MORE, *of_splits, *TYPE_KEYS)
    arrays = read_npz(path, required=wanted, optional=optional, mapped=MAPPED, scratch=scratch)
    num_nodes_of = [arrays[key] for key in wanted] + [arrays[key] for key in of_splits if key in arrays]
    features = _features(arrays, path, num_nodes_of if given else [arrays["edge_index"]])
    types, read = _types(arrays, features.num_nodes, path)
    tell_unused(path.name, keys - {*wanted, *_MORE, *of_splits, *read})
    columns, column_names = edge_columns({key: arrays[key] for key in _EDGES if key in arrays}, place=f"{path}, key")
    common: dict[str, Any] = {
        "edge_index": arrays["edge_index"],
        "features": features,
        "edge_features": columns,
        "edge_feature_names": column_names,
        "types": types,
        "name": name,
        "source": f"npz file {path.name}",
        "synthetic": False,
        "node_names": _names(arrays, path),
        "origin": {
            "edge_index": f"{path}, key edge_index",
            "features": f"{path}, key {'x' if 'x' in arrays else 'x_indptr, x_indices, x_data'}",
            "types": f"{path}, keys {', '.join(sorted(read))}",
            "links": f"{path}, keys {', '.join(_LINKS.values())}",
            "candidates": f"{path}, keys {', '.join(key for key in _CANDIDATES if key in arrays)}",
            "split": f"{path}, key split",
            "times": f"{path}, key edge_time",
            "names": f"{path}, key names",
        },
    }
    if not given:
        split = _codes(arrays["split"], path) if "split" in arrays else None
        return JoinedGraph(**common, split=split, times=arrays.get("edge_time"))
    return _with_given_links(arrays, path, common, undirected)


def _with_given_links(arrays: Arrays, path: Path, common: dict[str, Any], undirected: bool | None) -> LinkGraph:
    links = {split: _links(arrays[key], f"{path}, key {key}") for split, key in _LINKS.items()}
    has_relations = links["train"].relations is not None
    types: RawTypes | None = common["types"]
    if has_relations and types is None:
        raise UserError(
            f"{path}: links have a relation, and edges have none", fix="give edge_type [num_edges], or links [n, 2]"
        )
    if problem := edge_index_problem(arrays["edge_index"], common["features"].num_nodes):
        raise UserError(f"{path}, key edge_index: {problem[0]}", fix=problem[1])
    directed = have_direction(
        arrays["edge_index"], common["features"].num_nodes, have_relations=has_relations, undirected=undirected
    )
    return LinkGraph(
        **common,
        links=links,
        links_have_direction=directed,
        split_note="as given in the file",
        num_relations=len(types.relations) if has_relations and types is not None else 0,
        candidates=_candidates(arrays),
    )


def _links(rows: NDArray[Any], place: str) -> Links:
    if rows.ndim != 2 or rows.shape[1] not in (2, 3) or rows.dtype.kind not in "iu":
        how = ": transpose it" if rows.ndim == 2 and rows.shape[0] in (2, 3) else ""
        raise UserError(
            f"{place}: {rows.dtype} {list(rows.shape)}",
            fix=f"give whole numbers [num_links, 2] (source, target) or [num_links, 3] (source, relation, target){how}",
        )
    columns = rows.T.astype(np.int64)
    return Links.of(columns if len(columns) == 2 else columns[[0, 2, 1]])


def _candidates(arrays: Arrays) -> dict[Split, Candidates]:
    found: dict[Split, Candidates] = {}
    for split in JUDGED:
        if f"{split}_pool" in arrays:
            pool = arrays[f"{split}_pool"]
            found[split] = Shared(pool.T if pool.ndim == 2 and pool.shape[1] == 2 else pool)
        elif f"{split}_candidates" in arrays:
            found[split] = GivenCandidates(arrays[f"{split}_candidates"], arrays.get(f"{split}_source_candidates"))
    return found


def _features(arrays: Arrays, path: Path, of_nodes: list[NDArray[Any]]) -> Features:
    """Features in the file, or none for as many nodes as it gives or names."""
    if any(key in arrays for key in FEATURE_KEYS):
        return npz_features(arrays, path)
    if "num_nodes" in arrays:
        count = arrays["num_nodes"].reshape(-1)
        if len(count) != 1 or count.dtype.kind not in "iu" or not 0 < count[0] <= 2**32:
            raise UserError(f"{path}, key num_nodes: {count.tolist()[:5]}", fix="give one count")
        return no_features(int(count[0]))
    if "names" in arrays:
        return no_features(len(arrays["names"]))
    largest = max((int(array.max()) for array in of_nodes if array.size and array.dtype.kind in "iu"), default=-1)
    if not 0 <= largest < 2**32:
        raise UserError(f"{path} names no nodes, or node {largest}", fix="number nodes from 0, or add num_nodes")
    _log.info(f"{path.name} has neither features nor num_nodes: {largest + 1:,} nodes, the largest id and one")
    return no_features(largest + 1)


def _types(arrays: Arrays, num_nodes: int, path: Path) -> tuple[RawTypes | None, set[str]]:
    """Types of edges as relations; numbers without names are their names."""
    kinds = arrays.get("edge_type")
    has_names = "edge_type_names" in arrays or "edge_type_symbols" in arrays
    if kinds is None or has_names:
        return types_in(arrays, num_nodes, place=str(path))
    if kinds.dtype.kind not in "iu" or not kinds.size or not 0 <= kinds.min() <= kinds.max() < 2**15:
        raise UserError(
            f"{path}, key edge_type: {kinds.dtype} {list(kinds.shape)}", fix="number relations from 0 to at most 32767"
        )
    names = np.array([str(number) for number in range(int(kinds.max()) + 1)])
    types, read = types_in({**arrays, "edge_type_names": names}, num_nodes, place=str(path))
    return types, read


def _names(arrays: Arrays, path: Path) -> tuple[str, ...]:
    names = arrays.get("names")
    if names is None:
        return ()
    if names.ndim != 1 or names.dtype.kind != "U":
        raise UserError(f"{path}, key names: {names.dtype} {list(names.shape)}", fix="give one string per node")
    return tuple(map(str, names.tolist()))


def _codes(split: NDArray[Any], path: Path) -> NDArray[np.int8]:
    """Codes of splits as they are, or of their names."""
    if split.dtype.kind == "U":
        names = [str(name).strip().lower() for name in split.reshape(-1)]
        unknown = next((row for row, name in enumerate(names) if name not in _OF_NAMES), None)
        if unknown is not None:
            raise UserError(
                f"{path}, key split: link {unknown} is in {names[unknown]!r}", fix="use train, val, test or none"
            )
        return np.array([_OF_NAMES[name] for name in names], dtype=np.int8)
    if split.dtype.kind not in "iu" or (split.size and not -1 <= split.min() <= split.max() <= 2):
        raise UserError(
            f"{path}, key split: {split.dtype} {list(split.shape)}", fix="give 0 train, 1 val, 2 test, -1 none per edge"
        )
    return split.astype(np.int8)


def _read_random_link_split(path: Path, keys: set[str], name: str, undirected: bool | None) -> LinkGraph:
    arrays = read_npz(path, required=[f"{split}_edge_index" for split in SPLITS], optional=(*_PARTS, *_MORE))
    parts = {
        split: {array: arrays[f"{split}_{array}"] for array in random_link_split.ARRAYS if f"{split}_{array}" in arrays}
        for split in SPLITS
    }
    of_nodes = [
        arrays[f"{split}_{array}"]
        for split in SPLITS
        for array in random_link_split.ARRAYS[:2]
        if f"{split}_{array}" in arrays
    ]
    tell_unused(path.name, keys - {*_PARTS, *_MORE})
    return random_link_split.of_parts(
        parts,
        features=_features(arrays, path, of_nodes),
        of_edges={key: arrays[key] for key in _EDGES if key in arrays},
        name=name,
        source=f"RandomLinkSplit in {path.name}",
        place=str(path),
        undirected=undirected,
    )
