"""Names of nodes at rest: their UTF-8 one after the other, and where each begins."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def packed_names(names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a store: name_indptr [num_nodes + 1] and the bytes, name_bytes."""
    encoded = [name.encode(errors="surrogateescape") for name in names]
    indptr = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum([len(name) for name in encoded], out=indptr[1:])
    return {"name_indptr": indptr, "name_bytes": np.frombuffer(b"".join(encoded), dtype=np.uint8)}


def unpacked_names(indptr: NDArray[np.int64], text: NDArray[np.uint8], nodes: Iterable[int]) -> list[str]:
    """The names of these nodes."""
    return [text[indptr[node] : indptr[node + 1]].tobytes().decode(errors="replace") for node in nodes]
