"""Instances of others: OR-Library's assignment problems, SuiteSparse's matrices, costs in plain files.

OR-Library (Beasley 1990): a number n, then n × n whole costs, row after row, wrapped over lines. SuiteSparse: sparse
matrices in Matrix Market format; a pair that is not stored is infeasible.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys, read_npz
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.graph.matrix_files import read_matrices
from graphmill.graph.unused import tell_unused
from graphmill.tasks.assignment.data.families import Matrix
from graphmill.tasks.assignment.data.instance import About, Instance, RecordError, checked_costs, solved

ORLIB: Final = "orlib"
SUITESPARSE: Final = "suitesparse"
PLAIN: Final = "given"
MARKET_SUFFIXES: Final = (".mtx", ".mtx.gz")
Reader = Callable[[], tuple[Matrix, float | None]]
"""Gives a matrix, and its published optimum if there is one."""
_LONGEST_COUNT: Final = 64  # bytes of a first line
_NPZ: Final = ("names", "optimum")
_MOST_ENTRIES: Final = 2**31  # of a matrix that is made dense: 16 GiB


def holds_assign_text(path: Path) -> bool:
    """Whether a text file looks like OR-Library's: a number on its first line, and nothing but numbers after it."""
    if path.suffix != ".txt" or not path.is_file():
        return False
    with path.open("rb") as file:
        words = file.read(2**12).split()
    return bool(words) and words[0].isdigit() and all(word.isdigit() for word in words[1:-1])


def has_square_costs(path: Path) -> bool:
    """Whether the number that a text file begins with says how many follow it."""
    with path.open("rb") as file:
        first = next(iter(file.readline(_LONGEST_COUNT).split()), b"")
        if not first.isdigit():
            return False
        file.seek(0)
        wanted = 1 + int(first) ** 2
        return path.stat().st_size >= 2 * wanted - 1 and sum(len(line.split()) for line in file) == wanted


def holds_assign_arrays(path: Path) -> bool:
    """Whether a .npz file holds named matrices with their optima."""
    return path.suffix == ".npz" and path.is_file() and set(_NPZ) <= set(npz_keys(path))


class Matrices:
    """`sources.Source`: matrices by name, each read when it is asked for."""

    def __init__(self, path: Path, readers: Mapping[str, Reader], family: str) -> None:
        self.path = path
        self._names, self._readers, self._family = list(readers), list(readers.values()), family

    def __len__(self) -> int:
        return len(self._names)

    @property
    def identity(self) -> Mapping[str, Any]:
        """Which file it is, and whether it is still the same."""
        stat = self.path.stat()
        return {"file": str(self.path.resolve()), "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}

    def name_of(self, number: int) -> str:
        """Name of a matrix for messages."""
        return f"{self.path}" if len(self._names) == 1 else f"{self.path}, {self._names[number]}"

    def summary(self, number: int) -> tuple[About, tuple[int, int]]:
        """Name and shape: the file is read."""
        rows, cols = self._readers[number]()[0].shape
        return About(self._family, rows, self._names[number]), (rows, cols)

    def instance(self, number: int) -> Instance:
        """The instance with its exact answer, which is compared with the published one."""
        costs, published = self._readers[number]()
        kept = checked_costs(costs, "float64")
        found = solved(kept, About(self._family, kept.shape[0], self._names[number]))
        if published is not None and found.optimum != published:
            raise RecordError(f"its optimum is {found.optimum!r}, and the file says {published!r}")
        return found


def assign_text(path: Path) -> Matrices:
    """A text file of OR-Library."""
    return Matrices(path, {path.name.split(".")[0]: lambda: (_assign_text(path), None)}, ORLIB)


def assign_arrays(path: Path) -> Matrices:
    """A .npz file: `names`, `optimum` of each, and a matrix under each name."""
    found = read_npz(path, required=_NPZ)
    names, optima = found["names"], found["optimum"]
    if names.ndim != 1 or names.dtype.kind != "U" or optima.shape != names.shape or optima.dtype.kind not in "iuf":
        raise UserError(
            f"{path}: names is {names.dtype} {list(names.shape)}, and optimum {optima.dtype} {list(optima.shape)}",
            fix="write the names of the matrices, and a number for each",
        )

    def reader(name: str, optimum: float) -> Reader:
        return lambda: (_numbers(read_npz(path, required=(name,))[name], name), optimum)

    readers = {str(name): reader(str(name), float(each)) for name, each in zip(names, optima, strict=True)}
    tell_unused(path.name, set(npz_keys(path)) - {*_NPZ, *readers})
    return Matrices(path, readers, ORLIB)


def market_matrix(path: Path, costs: str) -> Matrices:
    """A Matrix Market file; `costs` as the option matrix_costs says."""
    return Matrices(path, {path.name.split(".")[0]: lambda: (_market(path, costs), None)}, SUITESPARSE)


def plain_matrices(path: Path) -> Matrices:
    """A .npy, .npz, .csv or .tsv file of costs."""
    found = {each.name: each.costs for each in read_matrices(path)}

    def reader(name: str) -> Reader:
        return lambda: (_numbers(found[name], name), None)

    return Matrices(path, {name: reader(name) for name in found}, PLAIN)


def _assign_text(path: Path) -> Matrix:
    try:
        numbers = np.array(path.read_text(encoding="ascii").split(), dtype=np.float64)
    except UNREADABLE as error:
        raise RecordError(f"it cannot be read: {reason(error)}") from error
    n = int(numbers[0]) if len(numbers) and numbers[0] >= 1 and numbers[0] == np.floor(numbers[0]) else 0
    if not n or len(numbers) != 1 + n * n:
        raise RecordError(f"it has {max(0, len(numbers) - 1):,} costs, and {n} x {n} are {n * n:,}")
    return numbers[1:].reshape(n, n)


def _numbers(matrix: NDArray[Any], name: str) -> Matrix:
    if matrix.dtype.kind not in "iufb" or matrix.ndim != 2:
        raise RecordError(f"{name} is {matrix.dtype} {list(matrix.shape)}, and no matrix of numbers")
    return matrix.astype(np.float64)


def _market(path: Path, costs: str) -> Matrix:
    try:
        from scipy import io
    except ImportError:
        raise UserError("SciPy is not installed, and it reads Matrix Market files", fix="pip install scipy") from None
    try:
        rows, cols = io.mminfo(path)[:2]  # type: ignore[no-untyped-call,attr-defined]  # SciPy leaves it unannotated
        if rows * cols > _MOST_ENTRIES:
            raise RecordError(f"{rows:,} x {cols:,} costs are more than a dense matrix may have here")
        found = io.mmread(path)  # type: ignore[no-untyped-call,attr-defined]
    except UNREADABLE as error:
        raise RecordError(f"it cannot be read as Matrix Market: {reason(error)}") from error
    matrix = np.full((rows, cols), np.inf)
    if isinstance(found, np.ndarray):
        matrix[:] = np.abs(found)
    else:
        found.sum_duplicates()
        matrix[found.row, found.col] = np.abs(found.data)
    return matrix if costs == "magnitude" else _log_ratios(matrix)


def _log_ratios(matrix: Matrix) -> Matrix:
    """log(largest of the column) - log |a|: the product of what is matched is largest where their sum is least."""
    is_stored = np.isfinite(matrix) & (matrix > 0)  # a stored 0 would make the product 0
    largest = np.where(is_stored, matrix, 0).max(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        costs = np.log(largest) - np.log(matrix)
    return np.where(is_stored, costs, np.inf)
