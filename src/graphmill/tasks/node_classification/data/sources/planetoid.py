"""Cora, CiteSeer and PubMed from Planetoid's raw files `ind.<name>.{x,tx,allx,y,ty,ally,graph,test.index}`.

Follows PyG's `read_planetoid_data`: the public split, self-loops dropped, duplicates merged. One thing differs: the
nodes of CiteSeer without a label (gaps in `test.index`, rows of zeros) are unlabelled here and class 0 there; no split
holds one.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.graph.features import SparseFeatures, csr_problem, sparse
from graphmill.graph.pickled import UNPICKLABLE, PickledArray, PickledCsr, read_restricted
from graphmill.graph.splits import split_from_ids
from graphmill.tasks.node_classification.data.labelled import LabelledGraph

_MAX_BYTES = 2**30  # the largest raw file of the three datasets has 30 MB
_FIX = "download the file again from https://github.com/kimiyoung/planetoid (folder data)"
URL = "https://github.com/kimiyoung/planetoid/raw/master/data"
PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
_NUM_VAL = 500
_MAX_NODES = 10**7


def read_array(path: Path) -> NDArray[Any]:
    """A pickled numpy array of numbers."""
    value = _load(path)
    if not isinstance(value, PickledArray):
        raise UserError(f"{path} holds no numpy array", fix=_FIX)
    try:
        return value.resolve()
    except UNREADABLE as error:
        raise UserError(f"{path} holds no readable numpy array: {reason(error)}", fix=_FIX) from error


def read_csr(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], tuple[int, int]]:
    """A pickled scipy CSR matrix: data, indices, indptr, shape. The parts are not yet checked against each other."""
    value = _load(path)
    if not isinstance(value, PickledCsr):
        raise UserError(f"{path} holds no scipy.sparse.csr_matrix", fix=_FIX)
    try:
        data, indices, indptr = (value.part(name).resolve() for name in ("data", "indices", "indptr"))
        num_rows, num_columns = (int(extent) for extent in value.part("shape"))
    except (*UNREADABLE, AttributeError) as error:
        raise UserError(f"{path} holds no readable csr_matrix: {reason(error)}", fix=_FIX) from error
    return data, indices, indptr, (num_rows, num_columns)


def read_adjacency(path: Path) -> NDArray[np.int64]:
    """A pickled dict of neighbour lists as edges [2, num_edges], from the key to each of its neighbours."""
    value = _load(path)
    try:
        if sum(len(row) for row in value.values()) > _MAX_BYTES // 8:
            raise ValueError("more neighbours than the three datasets have by far")
        sources = np.repeat(np.array(list(value), dtype=np.int64), [len(row) for row in value.values()])
        destinations = np.array([node for row in value.values() for node in row], dtype=np.int64)
        return np.stack([sources, destinations])
    except (*UNREADABLE, AttributeError) as error:
        raise UserError(f"{path} holds no dict of neighbour lists: {reason(error)}", fix=_FIX) from error


def _load(path: Path) -> Any:  # noqa: ANN401  # the callers check its type
    try:
        return read_restricted(path, max_bytes=_MAX_BYTES)
    except UNPICKLABLE as error:
        raise UserError(f"{path} cannot be read: {reason(error)}", fix=_FIX) from error


def file_names(dataset: str) -> tuple[str, ...]:
    """The raw files of cora, citeseer or pubmed."""
    return tuple(f"ind.{dataset}.{part}" for part in PARTS)


def read_planetoid(folder: Path, dataset: str, name: str) -> LabelledGraph:
    """Read the raw files in `folder`."""
    paths = {part: folder / f"ind.{dataset}.{part}" for part in PARTS}
    test = _test_index(paths["test.index"])
    num_train = len(read_array(paths["y"]))
    features, num_nodes = _features(paths, test)
    labels = _labels(paths, test, num_nodes)
    edges = read_adjacency(paths["graph"])
    return LabelledGraph(
        edge_index=edges[:, edges[0] != edges[1]],
        features=features,
        labels=labels,
        split=split_from_ids(
            {"train": np.arange(num_train), "val": np.arange(num_train, num_train + _NUM_VAL), "test": test},
            num_nodes,
            place=str(folder),
        ),
        name=name,
        source=f"Planetoid raw files ind.{dataset}.*; self-loops dropped",
        synthetic=False,
        split_note="public: 20 per class, 500, 1000 (Yang et al. 2016)",
        origin={"edge_index": str(paths["graph"]), "features": f"{paths['allx']}, {paths['tx']}", "split": str(folder)},
    )


def _test_index(path: Path) -> NDArray[np.int64]:
    """Node id of each row of tx and ty. Ids may leave gaps: CiteSeer's isolated nodes."""
    try:
        test = np.array(path.read_text(encoding="ascii").split(), dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"{path} cannot be read: {reason(error)}", fix="give one node id per line") from error
    if len(test) == 0 or test.min() < 0 or test.max() >= _MAX_NODES or len(np.unique(test)) < len(test):
        raise UserError(f"{path}: ids are missing, repeated or out of range", fix="download the file again")
    return test


def _features(paths: dict[str, Path], test: NDArray[np.int64]) -> tuple[SparseFeatures, int]:
    """allx holds the nodes before the test ids, tx the test nodes in the order of test.index; gaps are empty rows."""
    first, second = _csr(paths["allx"]), _csr(paths["tx"])
    num_before, num_nodes = first.num_nodes, int(test.max()) + 1
    _check_rows(paths["tx"], second.num_nodes, test, num_before)
    if first.num_features != second.num_features:
        raise UserError(
            f"{paths['tx']} has {second.num_features} columns, and {paths['allx']} {first.num_features}",
            fix="take all files of one dataset",
        )
    lengths = np.zeros(num_nodes, dtype=np.int64)
    lengths[:num_before] = np.diff(first.indptr)
    lengths[test] = np.diff(second.indptr)
    order = np.argsort(test)
    parts = [_rows(second, row) for row in order]
    features = sparse(
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([first.indices, *(indices for indices, _ in parts)]),
        np.concatenate([first.values, *(values for _, values in parts)]),
        first.num_features,
    )
    return features, num_nodes


def _labels(paths: dict[str, Path], test: NDArray[np.int64], num_nodes: int) -> NDArray[np.int64]:
    """The column of the one in each one-hot row; -1 for a row of zeros and for gaps."""
    before, after = read_array(paths["ally"]), read_array(paths["ty"])
    if before.ndim != 2 or after.ndim != 2 or before.shape[1] != after.shape[1] or before.shape[1] == 0:
        raise UserError(
            f"{paths['ty']} and {paths['ally']} are not one-hot rows of one width", fix="download them again"
        )
    _check_rows(paths["ty"], len(after), test, len(before))
    labels = np.full(num_nodes, -1, dtype=np.int64)
    labels[: len(before)] = _one_hot_columns(before)
    labels[test] = _one_hot_columns(after)
    return labels


def _one_hot_columns(rows: NDArray[Any]) -> NDArray[np.int64]:
    return np.where(rows.any(axis=1), rows.argmax(axis=1), -1)


def _check_rows(path: Path, num_rows: int, test: NDArray[np.int64], num_before: int) -> None:
    if num_rows != len(test) or test.min() < num_before:
        raise UserError(
            f"{path} has {num_rows} rows for {len(test)} test ids from {test.min()}, after {num_before} other nodes",
            fix="take all files of one dataset",
        )


def _csr(path: Path) -> SparseFeatures:
    data, indices, indptr, (num_rows, num_columns) = read_csr(path)
    problem = csr_problem(indptr, indices, num_columns)
    if problem is None and (data.shape != indices.shape or len(indptr) != num_rows + 1):
        problem = f"{len(data)} values, {len(indices)} indices, {len(indptr) - 1} of {num_rows} rows"
    if problem:
        raise UserError(f"{path}: {problem}", fix="download the file again")
    return sparse(indptr, indices, data, num_columns)


def _rows(matrix: SparseFeatures, row: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    rows = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return matrix.indices[rows], matrix.values[rows]
