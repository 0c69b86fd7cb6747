"""Features of nodes and types of edges and nodes in a .npz file.

A file has types if it has `edge_type` [num_edges] (whole numbers) and their names, `edge_type_names` or
`edge_type_symbols`. Types of nodes are `node_type` [num_nodes] or `pos` (WordNet's parts of speech), as names, or as
numbers with `node_type_names`; without them all nodes are of one type.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import Features, SparseFeatures, csr_problem, dense, sparse
from graphmill.graph.typed import RawTypes, named_relations

_CSR: Final = ("x_data", "x_indices", "x_indptr", "x_shape")
FEATURE_KEYS: Final = ("x", *_CSR)
_EDGE_NAMES: Final = ("edge_type_names", "edge_type_symbols")
_NODES: Final = ("node_type", "pos")
TYPE_KEYS: Final = ("edge_type", *_EDGE_NAMES, *_NODES, "node_type_names")
_ONE_TYPE: Final = "node"

Arrays = Mapping[str, NDArray[Any]]


def npz_features(arrays: Mapping[str, NDArray[Any]], path: Path) -> Features:
    """Features [num_nodes, num_features] of the arrays of a file. `UserError` if it has none, or they are malformed."""
    if "x" in arrays:
        if arrays["x"].dtype.kind not in "iufb" or arrays["x"].ndim != 2:
            x = arrays["x"]
            raise UserError(f"{path}, key x: {x.dtype} {list(x.shape)}", fix="give numbers [num_nodes, num_features]")
        return dense(arrays["x"])
    missing = [key for key in _CSR if key not in arrays]
    if missing:
        raise UserError(
            f"{path} has no features: it lacks x, and of a sparse matrix {', '.join(missing)}",
            fix=f"add x [num_nodes, num_features], or {', '.join(_CSR)}",
        )
    return csr_features(*(arrays[key] for key in _CSR), place=f"{path}, keys {' '.join(_CSR)}")


def csr_features(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: NDArray[Any], *, place: str
) -> SparseFeatures:
    """Sparse features from scipy's parts."""
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or not 0 < shape[1] < 2**31:
        raise UserError(f"{place}: shape is {shape.tolist()}, not two counts", fix="give [num_nodes, num_features]")
    problem = csr_problem(indptr, indices, int(shape[1]))
    if problem is None and (data.shape != indices.shape or data.dtype.kind not in "iufb"):
        problem = f"{data.dtype} {list(data.shape)} values for {len(indices)} indices"
    if problem is None and len(indptr) != shape[0] + 1:
        problem = f"{len(indptr) - 1} rows, and the shape says {shape[0]}"
    if problem:
        raise UserError(f"{place}: {problem}", fix="write the parts of a scipy.sparse.csr_matrix")
    return sparse(indptr, indices, data, int(shape[1]))


def types_in(arrays: Arrays, num_nodes: int, *, place: str) -> tuple[RawTypes | None, set[str]]:
    """The types, and which of `TYPE_KEYS` were read; None, and none, if the file has no types of edges with names.

    `UserError` if the arrays do not fit the graph.
    """
    key = next((name for name in _EDGE_NAMES if name in arrays), None)
    if key is None or "edge_type" not in arrays:
        return None, set()
    edge_type, edge_index = arrays["edge_type"], arrays["edge_index"]
    names = _names(arrays[key], f"{place}, key {key}")
    _check(edge_type, edge_index.shape[-1], len(names), f"{place}, key edge_type", "edge")
    node_type, node_names, read = _nodes(arrays, num_nodes, place)
    of_ends = node_type[edge_index.clip(0, num_nodes - 1)]  # a node that is not there is refused with the graph
    relations = named_relations(names, edge_type, of_ends, node_names)
    types = RawTypes(node_type=node_type, node_names=node_names, edge_type=edge_type, relations=relations)
    return types, {"edge_type", key, *read}


def _nodes(arrays: Arrays, num_nodes: int, place: str) -> tuple[NDArray[Any], tuple[str, ...], set[str]]:
    """The type of each node, the types' names, and the keys that were read."""
    key = next((name for name in _NODES if name in arrays and _is_type(arrays[name])), None)
    if key is None:
        return np.zeros(num_nodes, dtype=np.int8), (_ONE_TYPE,), set()
    given, where = arrays[key], f"{place}, key {key}"
    if given.dtype.kind == "U":
        if given.shape != (num_nodes,):
            raise _misfit(where, given, num_nodes, "node")
        found, numbers = np.unique(given, return_inverse=True)
        return numbers, tuple(map(str, found)), {key}
    if "node_type_names" not in arrays:
        raise UserError(f"{where}: numbers without node_type_names", fix="add one name per type, or write names")
    names = _names(arrays["node_type_names"], f"{place}, key node_type_names")
    _check(given, num_nodes, len(names), where, "node")
    return given, names, {key, "node_type_names"}


def _is_type(values: NDArray[Any]) -> bool:
    """Whether an array holds types, rather than positions in space, as `pos` may."""
    return values.ndim == 1 and values.dtype.kind in "iuU"


def _names(names: NDArray[Any], where: str) -> tuple[str, ...]:
    found = tuple(map(str, names.tolist())) if names.ndim == 1 and names.dtype.kind == "U" else ()
    if not found or len(set(found)) != len(found):
        raise UserError(f"{where}: {names.dtype} {list(names.shape)}", fix="give one string per type, each once")
    return found


def _check(numbers: NDArray[Any], count: int, num_names: int, where: str, what: str) -> None:
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise _misfit(where, numbers, count, what)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < num_names:
        raise UserError(
            f"{where}: types {numbers.min()} to {numbers.max()}, and there are names of {num_names}",
            fix=f"number the types from 0 to {num_names - 1}, or add names",
        )


def _misfit(where: str, values: NDArray[Any], count: int, what: str) -> UserError:
    return UserError(f"{where}: {values.dtype} {list(values.shape)} for {count} {what}s", fix=f"give one per {what}")
