"""Which file holds the readings, which the road graph, and whether they belong together."""

import logging
from pathlib import Path

from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys
from graphmill.tasks.traffic.adjacency import LAYOUTS, adjacency_for, read_adjacency
from graphmill.tasks.traffic.series import read_series
from graphmill.tasks.traffic.store import RawTraffic

_log = logging.getLogger(__name__)


def read_traffic(name: str, path: Path, adjacency_path: Path | None, *, unit: str) -> RawTraffic:
    """Readings from a file or folder, and the road graph of the same sensors."""
    if not path.exists():
        raise UserError(f"{path} does not exist", fix="give a path that does with --from")
    series_path = path if path.is_file() else _one(path, _series_files(path), "file of readings (.h5, .npz, .csv)")
    series = read_series(series_path)
    graph_path = adjacency_path or _graph_of(path, series_path)
    matrix, note = adjacency_for(read := read_adjacency(graph_path), series.sensor_ids, graph_path)
    for line in (
        f"{series.num_nan} NaNs are read as missing" if series.num_nan else "",
        f"{graph_path.name}{note}" if note else "",
    ):
        if line:
            _log.info(line)
    return RawTraffic(series, matrix, name, f"{series.source}; graph: {read.source}{note}", synthetic=False, unit=unit)


def holds_readings(path: Path) -> bool:
    """Whether a file is traffic by its look: pandas HDF, or an .npz with readings and their times."""
    if path.suffix in (".h5", ".hdf5"):
        return True
    return path.suffix == ".npz" and path.is_file() and {"values", "timestamps"} <= set(npz_keys(path))


def _series_files(folder: Path) -> list[Path]:
    readings = [path for path in folder.glob("*.npz") if "values" in npz_keys(path)]
    tables = [path for path in folder.glob("*.csv") if not path.name.startswith(("distances", "graph_sensor"))]
    return sorted([*folder.glob("*.h5"), *folder.glob("*.hdf5"), *readings, *tables])


def _graph_of(path: Path, series_path: Path) -> Path:
    if series_path.suffix == ".npz" and "adj" in npz_keys(series_path):
        return series_path
    if path.is_file():
        raise UserError(f"{path} holds no road graph", fix=f"give one with --adjacency: {LAYOUTS}")
    graphs = [each for each in path.glob("*.npz") if "adj" in npz_keys(each)]
    return _one(
        path, sorted([*path.glob("adj*.pkl"), *path.glob("distances*.csv"), *graphs]), f"road graph ({LAYOUTS})"
    )


def _one(folder: Path, found: list[Path], what: str) -> Path:
    if len(found) != 1:
        names = ", ".join(each.name for each in found) or "none"
        raise UserError(
            f"{folder} must hold one {what}, and has {names}", fix="give the files by name: --from and --adjacency"
        )
    return found[0]
