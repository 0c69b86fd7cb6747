"""Read pickles of numpy arrays and scipy CSR matrices without executing them (DESIGN invariant 8).

A pickle names classes and functions to call. Only the handful that numpy arrays, scipy CSR matrices and a dict of lists
need is admitted, and even these are stand-ins that keep the parts for inspection: nothing of numpy or scipy is
called by the file. The interpreter is pickle's own in Python; the one in C allocates whatever a memo index asks for.
"""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from graphmill.graph.arrays import UNREADABLE

UNPICKLABLE = (*UNREADABLE, AttributeError, AssertionError, pickle.UnpicklingError)
"""What reading a damaged or hostile pickle may raise here."""


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


class PickledArray:
    """A numpy.ndarray's state: (version, shape, dtype, is_fortran, bytes)."""

    state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def resolve(self) -> NDArray[Any]:
        """The array, in native byte order. Raises one of `UNPICKLABLE` if its state is damaged."""
        _, shape, dtype, is_fortran, data = self.state
        raw = data.encode("latin1") if isinstance(data, str) else data  # Python 2's bytes arrive as text
        if not isinstance(raw, bytes):
            raise TypeError(f"an array whose data is a {type(raw).__name__}")
        array = np.frombuffer(raw, dtype=dtype.resolve()).reshape(shape, order="F" if is_fortran else "C")
        return array.astype(array.dtype.newbyteorder("="))


class PickledCsr:
    """A scipy.sparse.csr_matrix: its attributes."""

    def part(self, name: str) -> Any:  # noqa: ANN401  # whatever the pickle put there
        """Return one attribute: data, indices, indptr or shape."""
        parts = vars(self)
        return parts[name] if name in parts else parts[f"_{name}"]


def _reconstruct(*_: object) -> PickledArray:
    return PickledArray()


def _new_object(*_: object) -> PickledCsr:
    return PickledCsr()


def _new_dict(*_: object) -> dict[Any, Any]:
    return {}


def _encode(text: str, encoding: str) -> bytes:
    """How protocols 0 to 2 spell bytes in Python 3."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes spelled in {encoding}")
    return text.encode("latin1")


_ADMITTED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): PickledArray,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): PickledCsr,
    ("scipy.sparse._csr", "csr_matrix"): PickledCsr,
    ("copy_reg", "_reconstructor"): _new_object,
    ("copyreg", "_reconstructor"): _new_object,
    ("__builtin__", "object"): PickledCsr,
    ("builtins", "object"): PickledCsr,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("collections", "defaultdict"): _new_dict,
    ("_codecs", "encode"): _encode,
}


class Restricted(pickle._Unpickler):
    """Unpickler that refuses all names but the admitted ones."""

    # A bytearray is allocated before its bytes are there to read; no raw file has one.
    dispatch: ClassVar = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401  # overrides pickle's own signature
        """Return the stand-in for a class of that name."""
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, and only arrays of numbers are read from a pickle"
            ) from None


def read_restricted(path: Path, *, max_bytes: int) -> Any:  # noqa: ANN401  # the callers check its type
    """The object pickled in `path`: lists, dicts, numbers, strings, `PickledArray` and `PickledCsr`, nothing else.

    Raises one of `UNPICKLABLE` if it is larger than `max_bytes`, damaged, or names anything else.
    """
    size = path.stat().st_size
    if size > max_bytes:
        raise ValueError(f"{size} bytes, and at most {max_bytes} are read")
    return Restricted(io.BytesIO(path.read_bytes()), encoding="latin1").load()
