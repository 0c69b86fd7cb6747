"""Features in a .npz file: dense as `x`, or the parts of a CSR matrix, `x_data x_indices x_indptr x_shape`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.features import Features, SparseFeatures, csr_problem, dense, sparse

_CSR: Final = ("x_data", "x_indices", "x_indptr", "x_shape")
FEATURE_KEYS: Final = ("x", *_CSR)


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
