"""Read the pickles of Planetoid's raw files without running what they say (DESIGN invariant 8).

A pickle names classes and functions to call. Only the handful that numpy arrays, scipy CSR matrices and a dict of lists
need is admitted, and even these are stand-ins that keep the parts for us to look at: nothing of numpy or scipy is
called by the file. The interpreter is pickle's own in Python; the one in C allocates whatever a memo index asks for.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.arrays import UNREADABLE, reason

_MAX_BYTES = 2**30  # the largest raw file of the three datasets has 30 MB
_FIX = "download the file again from https://github.com/kimiyoung/planetoid (folder data)"


class _Dtype:
    """numpy.dtype("f4", …) and its state: (version, byte order, …)."""

    def __init__(self, code: str, *_: object) -> None:
        self.code = code
        self.order = "|"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def resolve(self) -> np.dtype[Any]:
        dtype = np.dtype(f"{self.order if self.order in '<>|=' else '|'}{self.code}")
        if dtype.kind not in "iufb":
            raise ValueError(f"an array of {self.code!r}")
        return dtype


class _Array:
    """A numpy.ndarray's state: (version, shape, dtype, is_fortran, bytes)."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def resolve(self) -> NDArray[Any]:
        _, shape, dtype, is_fortran, data = self.state
        raw = data.encode("latin1") if isinstance(data, str) else data  # Python 2's bytes arrive as text
        if not isinstance(raw, bytes):
            raise TypeError(f"an array whose data is a {type(raw).__name__}")
        array = np.frombuffer(raw, dtype=dtype.resolve()).reshape(shape, order="F" if is_fortran else "C")
        return array.astype(array.dtype.newbyteorder("="))


class _Csr:
    """A scipy.sparse.csr_matrix: its attributes."""

    def part(self, name: str) -> Any:  # noqa: ANN401  # whatever the pickle put there
        parts = vars(self)
        return parts[name] if name in parts else parts[f"_{name}"]


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _new_object(*_: object) -> _Csr:
    return _Csr()


def _new_dict(*_: object) -> dict[Any, Any]:
    return {}


def _encode(text: str, encoding: str) -> bytes:
    """How protocols 0 to 2 spell bytes in Python 3."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes spelled in {encoding}")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("copy_reg", "_reconstructor"): _new_object,
    ("copyreg", "_reconstructor"): _new_object,
    ("__builtin__", "object"): _Csr,
    ("builtins", "object"): _Csr,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("collections", "defaultdict"): _new_dict,
    ("_codecs", "encode"): _encode,
}


class _Restricted(pickle._Unpickler):
    # A bytearray is allocated before its bytes are there to read; no raw file has one.
    dispatch: ClassVar = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  # overrides pickle's own signature
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no raw file needs") from None


def read_array(path: Path) -> NDArray[Any]:
    """A pickled numpy array of numbers."""
    value = _load(path)
    if not isinstance(value, _Array):
        raise UserError(f"{path} holds no numpy array", fix=_FIX)
    try:
        return value.resolve()
    except UNREADABLE as error:
        raise UserError(f"{path} holds no readable numpy array: {reason(error)}", fix=_FIX) from error


def read_csr(path: Path) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], tuple[int, int]]:
    """A pickled scipy CSR matrix: data, indices, indptr, shape. The parts are not yet held against each other."""
    value = _load(path)
    if not isinstance(value, _Csr):
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


def _load(path: Path) -> Any:  # noqa: ANN401  # the callers look at what it is
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"{path.stat().st_size} bytes are too many")
        return _Restricted(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except (*UNREADABLE, AttributeError, AssertionError, pickle.UnpicklingError) as error:
        raise UserError(f"{path} cannot be read: {reason(error)}", fix=_FIX) from error
