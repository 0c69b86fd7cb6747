"""Which file holds the readings, which the graph, if any, and whether they belong together."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys
from graphmill.graph.unused import tell_unused
from graphmill.tasks.recognise import Certainty, Look, best_of, named, shaped
from graphmill.tasks.traffic.data.adjacency import LAYOUTS, adjacency_for, read_adjacency
from graphmill.tasks.traffic.data.basicts import NAME as BASICTS
from graphmill.tasks.traffic.data.look import look_of_hdf, look_of_table
from graphmill.tasks.traffic.data.measured import SensorReadings
from graphmill.tasks.traffic.data.series import read_series
from graphmill.tasks.traffic.data.store import RawTraffic
from graphmill.tasks.traffic.page import MissingReadings

_log = logging.getLogger(__name__)
_LOOKED_AT: Final = 20  # files of a folder


@dataclass(frozen=True, slots=True)
class Reading:
    """How raw files are read, by the options of `prepare`."""

    adjacency: Path | None = None  # None: beside the readings, or there is no graph
    unit: str = ""  # of the readings; "": not said
    missing: MissingReadings = "zeros"
    interval_s: int | None = None  # times are moved to the nearest step of so many seconds; None: they are left alone
    start: str | None = None  # the time of the first row of a table without times


def read_traffic(name: str, path: Path, how: Reading) -> RawTraffic:
    """Readings from a file or folder, and the graph of the same sensors, if there is one."""
    if not path.exists():
        raise UserError(f"{path} does not exist", fix="give a path that does with --from")
    what = f"file of readings (.h5, .npz, .csv, or {BASICTS})"
    series_path = path if path.is_file() else _one(path, _series_files(path), what)
    series = read_series(series_path, how.missing, interval_s=how.interval_s, start=how.start)
    _say_what_is_missing(series)
    if not how.unit:
        _log.info("the unit of the readings is not said, and errors will have none: --unit names it")
    graph_path = how.adjacency or _graph_of(path, series_path)
    if how.adjacency is not None and series_path.suffix == ".npz" and "adj" in npz_keys(series_path):
        tell_unused(series_path.name, ["adj"])
    if graph_path is None:
        _log.info("no graph is given: models that need one cannot be trained on this; --adjacency PATH gives one")
        matrix, graph = np.zeros((len(series.sensor_ids),) * 2, dtype=np.float32), "none"
    else:
        matrix, note = adjacency_for(read := read_adjacency(graph_path), series.sensor_ids, graph_path)
        graph = f"{read.source}{note}"
        if note:
            _log.info(f"{graph_path.name}{note}")
    return RawTraffic(series, matrix, name, f"{series.source}; graph: {graph}", synthetic=False, unit=how.unit)


def _say_what_is_missing(series: SensorReadings) -> None:
    share = (series.num_zero + series.num_nan) / series.values.size
    what = "zeros" if isinstance(series.missing, str) else f"readings of {series.missing:g}"
    counts = f"{series.num_zero:,} {what} and {series.num_nan:,} NaNs or empty cells ({share:.1%} of the readings)"
    if series.num_zero and series.missing == "zeros":
        _log.info(
            f"{counts} count as missing, as -o missing=zeros says, the default; if 0 is a true reading: -o missing=nan"
        )
    elif series.num_nan or series.num_zero:
        _log.info(f"{counts} count as missing, as -o missing={series.missing} says")


def holds_readings(path: Path) -> Look | None:
    """What says that a file or folder is a series: BasicTS, pandas' HDF, an .npz with readings and their times, a table
    whose first column is a time and whose others are numbers.
    """
    if path.name == BASICTS or (path / BASICTS).is_file():
        return named(f"it has {BASICTS}, a name of BasicTS's")
    if path.is_dir():
        files = [*path.glob("*.h5"), *path.glob("*.hdf5"), *path.glob("*.npz"), *path.glob("*.csv")]
        looks = [holds_readings(file) for file in sorted(files)[:_LOOKED_AT]]
        return best_of([look for look in looks if look is None or look.certainty > Certainty.WEAK])
    if path.suffix in (".h5", ".hdf5"):
        return look_of_hdf(path)
    if path.suffix == ".csv" and path.is_file():
        return look_of_table(path)
    if path.suffix == ".npz" and path.is_file() and {"values", "timestamps"} <= set(npz_keys(path)):
        return shaped(f"{path.name} has the keys values and timestamps")
    return None


def _series_files(folder: Path) -> list[Path]:
    readings = [path for path in folder.glob("*.npz") if "values" in npz_keys(path)]
    tables = [path for path in folder.glob("*.csv") if not path.name.startswith(("distances", "graph_sensor"))]
    return sorted([*folder.glob("*.h5"), *folder.glob("*.hdf5"), *readings, *tables, *folder.glob(BASICTS)])


def _graph_of(path: Path, series_path: Path) -> Path | None:
    """The file with the graph: the readings' own, or the one beside them in the folder `path`; None: there is none."""
    if series_path.suffix == ".npz" and "adj" in npz_keys(series_path):
        return series_path
    if path.is_file() and path.name != BASICTS:
        return None
    folder = path if path.is_dir() else path.parent
    graphs = [each for each in folder.glob("*.npz") if "adj" in npz_keys(each)]
    found = [*folder.glob("adj*.pkl"), *folder.glob("*adj*.npy"), *folder.glob("distances*.csv"), *graphs]
    return _one(folder, sorted(found), f"graph ({LAYOUTS})") if found else None


def _one(folder: Path, candidates: list[Path], what: str) -> Path:
    if len(candidates) != 1:
        names = ", ".join(each.name for each in candidates) or "none"
        raise UserError(
            f"{folder} must hold one {what}, and has {names}", fix="give the files by name: --from and --adjacency"
        )
    return candidates[0]
