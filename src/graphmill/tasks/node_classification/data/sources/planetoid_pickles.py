"""Read the pickles of Planetoid's raw files, without executing them (graph/pickled.py)."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.graph.pickled import UNPICKLABLE, PickledArray, PickledCsr, read_restricted

_MAX_BYTES = 2**30  # the largest raw file of the three datasets has 30 MB
_FIX = "download the file again from https://github.com/kimiyoung/planetoid (folder data)"


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
