"""Graphs of sensors as they come from elsewhere: DCRNN's or BasicTS's adj_mx.pkl, DCRNN's distances, LargeST's .npy,
or an .npz → weighted edges, checked.

The pickle is read by the restricted unpickler of `graph.pickled`, so that nothing in the file runs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys, read_npy, read_npz
from graphmill.graph.arrays import reason
from graphmill.graph.pickled import UNPICKLABLE, PickledArray, read_restricted

THRESHOLD = 0.1  # of the Gaussian kernel: weaker edges are dropped, as in DCRNN
LAYOUTS = (
    "adj_mx.pkl, distances_*.csv (from,to,cost) with graph_sensor_ids.txt, an .npz with adj and sensor_ids, or a .npy"
    " matrix with its rows in the order of the sensors"
)
_MAX_PICKLE_BYTES = 2**30
_FETCH_AGAIN = (
    "give an adj_mx.pkl as DCRNN writes it (a list of sensor ids, their positions, a matrix) or as BasicTS does"
    " (a matrix); or numpy.save the matrix as .npy"
)


@dataclass(frozen=True, slots=True)
class Adjacency:
    """Weighted edges between sensors."""

    matrix: NDArray[np.float32]  # [num_sensors, num_sensors]; entry (i, j): weight of the edge from i to j, 0: none
    sensor_ids: tuple[str, ...]  # of the rows; empty if the file does not say
    source: str


def read_adjacency(path: Path) -> Adjacency:
    """Read the file by its ending; weights are finite and not negative."""
    readers: dict[str, Callable[[Path], Adjacency]] = {
        ".pkl": _read_pickle,
        ".npz": _read_npz,
        ".npy": _read_npy,
        ".csv": _read_distances,
    }
    if not path.exists():
        raise UserError(f"{path} does not exist", fix="give a path that does with --adjacency")
    if not path.is_file() or path.suffix not in readers:
        raise UserError(f"{path} is not an adjacency that is read here", fix=f"give {LAYOUTS}")
    adjacency = readers[path.suffix](path)
    matrix = adjacency.matrix
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise UserError(f"{path}: the adjacency is {list(matrix.shape)}, not square", fix=f"give {LAYOUTS}")
    if adjacency.sensor_ids and len(adjacency.sensor_ids) != len(matrix):
        raise UserError(f"{path}: {len(adjacency.sensor_ids)} sensor ids for {len(matrix)} rows", fix=f"give {LAYOUTS}")
    bad = np.argwhere(~np.isfinite(matrix) | (matrix < 0))
    if len(bad):
        row, column = bad[0]
        raise UserError(
            f"{path}: the weight of the edge from row {row} to {column} is {matrix[row, column]}",
            fix="weights are finite and not negative, 0 where there is no edge",
        )
    return adjacency


def adjacency_for(adjacency: Adjacency, sensor_ids: tuple[str, ...], path: Path) -> tuple[NDArray[np.float32], str]:
    """The matrix with rows in the order of `sensor_ids`, and what was left out of it, in words.

    Rows are matched by id; sensors without readings are left out. If the file has no ids, it must have as many rows.
    """
    matrix = adjacency.matrix
    if not adjacency.sensor_ids:
        if len(matrix) != len(sensor_ids):
            raise UserError(
                f"{path}: the adjacency has {len(matrix)} rows and no sensor ids, and there are"
                f" {len(sensor_ids)} sensors",
                fix="give an adjacency of these sensors, or one with sensor ids",
            )
        kept, note = matrix, ""
    else:
        position = {name: number for number, name in enumerate(adjacency.sensor_ids)}
        unknown = [name for name in sensor_ids if name not in position]
        if unknown:
            raise UserError(
                f"{path}: {len(unknown)} of {len(sensor_ids)} sensors are not in the adjacency"
                f" ({', '.join(unknown[:5])})",
                fix="give the adjacency of these sensors",
            )
        rows = np.array([position[name] for name in sensor_ids])
        kept = matrix[np.ix_(rows, rows)]
        surplus = len(matrix) - len(rows)
        note = f", its other {surplus} sensors left out" if surplus else ""
    if len(kept) > 1 and not (kept - np.diag(kept.diagonal())).any():
        raise UserError(
            f"{path}: no edge joins two of the {len(kept)} sensors",
            fix="give another adjacency, or none: leave --adjacency out, and the readings are prepared without a graph",
        )
    return kept, note


def gaussian_kernel(distances: NDArray[np.float64]) -> NDArray[np.float32]:
    """exp(-(d / σ)²) with σ the standard deviation of all finite distances; below `THRESHOLD`: 0."""
    finite = distances[np.isfinite(distances)]
    sigma = finite.std() if len(finite) else 0.0
    if sigma == 0:
        raise UserError(f"{len(finite)} distances have no spread", fix="give distances in one unit, of several lengths")
    weights = np.exp(-np.square(distances / sigma))
    weights[weights < THRESHOLD] = 0
    return weights.astype(np.float32)


# ---- adj_mx.pkl ------------------------------------------------------------------------------------------------------


def _read_pickle(path: Path) -> Adjacency:
    try:
        content = read_restricted(path, max_bytes=_MAX_PICKLE_BYTES)
        ids, _, array = ((), {}, content) if isinstance(content, PickledArray) else content
        if not isinstance(array, PickledArray):
            raise TypeError("its third item is not an array")
        names = tuple(name.decode("latin1") if isinstance(name, bytes) else str(name) for name in ids)
        matrix = array.resolve().astype(np.float32)
    except UNPICKLABLE as error:
        raise UserError(f"{path} is not an adj_mx.pkl: {reason(error)}", fix=_FETCH_AGAIN) from error
    return Adjacency(matrix, names, f"{path.name}")


# ---- distances and .npz ----------------------------------------------------------------------------------------------


def _read_distances(path: Path) -> Adjacency:
    ids_path = path.with_name("graph_sensor_ids.txt")
    if not ids_path.is_file():
        raise UserError(f"{path} needs {ids_path.name} next to it", fix="put the sensor ids there, separated by commas")
    ids = tuple(
        part.strip() for part in ids_path.read_text(encoding="utf-8").replace("\n", ",").split(",") if part.strip()
    )
    position = {name: number for number, name in enumerate(ids)}
    distances = np.full((len(ids), len(ids)), np.inf)
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        source, target, cost = _distance(line, number, path)
        if source in position and target in position:
            distances[position[source], position[target]] = cost
            seen |= {source, target}
    absent = [name for name in ids if name not in seen]
    if absent:
        raise UserError(
            f"{path}: {len(absent)} of the {len(ids)} sensors of {ids_path.name} have no distance"
            f" ({', '.join(absent[:5])})",
            fix="give the distances and the ids of the same sensors",
        )
    return Adjacency(gaussian_kernel(distances), ids, f"{path.name}, Gaussian kernel, threshold {THRESHOLD}")


def _distance(line: str, number: int, path: Path) -> tuple[str, str, float]:
    """Parse one line; a header gives empty names."""
    parts = [part.strip() for part in line.split(",")]
    try:
        source, target, cost = parts[0], parts[1], float(parts[2])
    except (IndexError, ValueError):
        if number == 0:
            return "", "", 0.0
        raise UserError(f"{path}, line {number + 1}, is not from,to,cost", fix="correct that line") from None
    if not np.isfinite(cost) or cost < 0:
        raise UserError(f"{path}, line {number + 1}: the distance is {cost}", fix="correct that line")
    return source, target, cost


def _read_npy(path: Path) -> Adjacency:
    matrix = read_npy(path)
    if matrix.dtype.kind not in "iufb":
        raise UserError(f"{path}: {matrix.dtype}", fix="give a matrix of weights")
    return Adjacency(matrix.astype(np.float32), (), f"{path.name}")


def _read_npz(path: Path) -> Adjacency:
    keys = npz_keys(path)
    ids_key = next((key for key in ("sensor_ids", "node_ids") if key in keys), None)
    arrays = read_npz(path, required=("adj",), optional=("sensor_ids", "node_ids"))
    if arrays["adj"].dtype.kind not in "iufb":
        raise UserError(f"{path}, key adj: {arrays['adj'].dtype}", fix="give a matrix of weights")
    names = () if ids_key is None else tuple(map(str, arrays[ids_key]))
    return Adjacency(arrays["adj"].astype(np.float32), names, f"adj of {path.name}")
