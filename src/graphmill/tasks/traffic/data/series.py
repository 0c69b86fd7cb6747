"""Readings over time as they come from elsewhere: pandas HDF, .npz, CSV, BasicTS → `SensorReadings`, checked.

A missing reading is NaN here and ever after; `missing` says which readings of a file are. Timestamps are local time
without a zone, in seconds since 1970.
"""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.packed import csv_source, is_inflated
from graphmill.graph.archive import npz_keys, read_npz
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.graph.csv_header import csv_header
from graphmill.graph.hdf5 import Described, Rows, described, tree
from graphmill.graph.unused import tell_unused
from graphmill.tasks.traffic.data.basicts import NAME as BASICTS
from graphmill.tasks.traffic.data.basicts import read_basicts
from graphmill.tasks.traffic.data.clock import check_regular, check_rising, on_grid, seconds_of
from graphmill.tasks.traffic.data.look import are_numbers, first_lines, separator_of, separator_of_table
from graphmill.tasks.traffic.data.measured import SensorReadings
from graphmill.tasks.traffic.page import MissingReadings

_ROWS_AT_A_TIME = 2048  # of a wide file: the copy in another number format stays small compared to the whole
_OFTEN = 3  # times that a single value below 0 must occur to be a code
_UNITS_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
CSV_LAYOUT = "a first column of times (2012-03-01 00:05:00, or seconds since 1970), then one column per sensor id"
NPZ_LAYOUT = "values [num_steps, num_sensors], timestamps [num_steps] and sensor_ids [num_sensors]"
FILES = "an .h5, .npz or .csv file of readings, or BasicTS's desc.json with data.dat beside it"


def is_bare(path: Path) -> bool:
    """Whether its first line is numbers alone: no names of sensors, and so no column of times."""
    header, _ = first_lines(path)
    cells = header.split(separator_of(header))
    return len(cells) > 1 and are_numbers(cells) and all(cell.strip() for cell in cells)


def read_bare(path: Path, start: str | None, interval_s: int | None) -> SensorReadings:
    """Read a table, with times from `start` on; sensors are numbered from 0, as such tables' matrices are."""
    if start is None or interval_s is None:
        raise UserError(
            f"{path} has no header and no times: its first line is numbers alone",
            fix="say when the first row was read and the seconds between rows: -o start=2012-05-01 -o interval_s=300",
        )
    try:
        first = int(np.datetime64(start, "s").astype(np.int64))
    except ValueError:
        raise UserError(
            f"start={start} is not a time", fix="-o start=2012-05-01, or -o start=2012-05-01T00:05"
        ) from None
    try:
        values = np.loadtxt(path, delimiter=separator_of(first_lines(path)[0]), dtype=np.float32, ndmin=2)
    except (ValueError, *UNREADABLE) as error:
        raise UserError(
            f"{path} cannot be read as a table of numbers: {reason(error)}", fix="give as many numbers on each line"
        ) from error
    timestamps = first + interval_s * np.arange(len(values), dtype=np.int64)
    ids = tuple(map(str, range(values.shape[1])))
    return SensorReadings(values, timestamps, ids, f"CSV file {path.name}, times from {start} on, sensors numbered")


def read_series(
    path: Path, missing: MissingReadings = "zeros", *, interval_s: int | None = None, start: str | None = None
) -> SensorReadings:
    """Read and check the file by its ending. `interval_s`: times are moved to the nearest step of that many seconds.

    `start`: the time of the first row of a table without header and times, whose rows are `interval_s` apart.
    """
    readers: dict[str, Callable[[Path], SensorReadings]]
    readers = {".h5": _read_hdf, ".hdf5": _read_hdf, ".npz": _read_npz, ".csv": _read_csv, ".json": _read_basicts}
    if not path.is_file():
        raise UserError(f"{path} is not a file", fix=f"give {FILES}")
    if path.suffix not in readers or (path.suffix == ".json" and path.name != BASICTS):
        raise UserError(f"{path} is in no layout that is read here", fix=f"give {FILES}")
    if path.suffix == ".csv" and is_bare(path):
        series = read_bare(path, start, interval_s)
    elif start is not None:
        raise UserError(f"{path} has times, and start={start} is of a table without", fix="leave -o start out")
    else:
        series = readers[path.suffix](path)
    _check_shape(series, path)
    check_rising(series.timestamps, path)
    if interval_s is not None:
        series = replace(series, timestamps=on_grid(series.timestamps, interval_s, path))
    check_regular(series.timestamps, path)
    return _with_missing(series, missing, path)


def _check_shape(series: SensorReadings, path: Path) -> None:
    values, timestamps, ids = series.values, series.timestamps, series.sensor_ids
    if values.ndim != 2 or values.shape != (len(timestamps), len(ids)) or 0 in values.shape:
        raise UserError(
            f"{path}: readings {list(values.shape)} for {len(timestamps)} times and {len(ids)} sensors",
            fix="give one row per time and one column per sensor",
        )
    if len(set(ids)) < len(ids):
        twice = next(name for number, name in enumerate(ids) if name in ids[:number])
        raise UserError(f"{path}: sensor {twice} is there twice", fix="keep one column per sensor")


def _with_missing(series: SensorReadings, missing: MissingReadings, path: Path) -> SensorReadings:
    """Check the values, and put NaN wherever `missing` says that a reading is missing; in place."""
    ids, num_zero, num_nan = series.sensor_ids, 0, 0
    if isinstance(missing, str):
        _refuse_code(series.values, missing, path)
    has_reading = np.zeros(len(ids), dtype=bool)
    for begin in range(0, len(series.values), _ROWS_AT_A_TIME):
        rows = series.values[begin : begin + _ROWS_AT_A_TIME]
        _check_readings(rows, begin, missing, ids, path)
        num_nan += int(np.count_nonzero(np.isnan(rows)))
        if not isinstance(missing, str):
            num_zero += int(np.count_nonzero(rows == np.float32(missing)))
            rows[rows == np.float32(missing)] = np.nan
        elif missing == "zeros":
            num_zero += int(np.count_nonzero(rows == 0))
            rows[rows == 0] = np.nan
        has_reading |= (~np.isnan(rows)).any(axis=0)
    if not has_reading.all():
        silent = [ids[number] for number in np.flatnonzero(~has_reading)]
        zeros = "; if 0 is a true reading: -o missing=nan" if missing == "zeros" and num_zero else ""
        raise UserError(
            f"{path}: {len(silent)} of {len(ids)} sensors have no reading at all ({', '.join(silent[:5])})",
            fix=f"drop their columns, and their rows and columns of the adjacency{zeros}",
        )
    return replace(series, missing=missing, num_zero=num_zero, num_nan=num_nan)


def _refuse_code(values: NDArray[np.float32], missing: str, path: Path) -> None:
    """`UserError` if the only value below 0 occurs again and again: that is a code for a missing reading."""
    below, counts = np.unique(values[values < 0], return_counts=True)
    if len(below) == 1 and counts[0] >= _OFTEN:
        code = f"{float(below[0]):g}"
        raise UserError(
            f"{path}: one value below 0, {code}, occurs {counts[0]:,} times, as a code of missing readings does"
            f" (missing={missing} takes it for a reading)",
            fix=f"-o missing={code}, or write NaN where a reading is missing and another value where it is not",
        )


def _check_readings(
    rows: NDArray[np.float32], begin: int, missing: MissingReadings, ids: tuple[str, ...], path: Path
) -> None:
    """`begin`: the number of the first of the `rows` in the file."""
    for is_bad, fix in (
        (np.isinf(rows), "leave the cell empty, or write NaN, where a reading is missing"),
        (np.isnan(rows) & (missing == "never"), "say that NaN and empty cells are missing readings: -o missing=nan"),
        (
            (rows < 0) & (missing == "zeros"),
            "with missing=zeros no reading is below 0: write NaN where one is missing; if readings may be 0 or less:"
            " -o missing=nan",
        ),
    ):
        if is_bad.any():
            row, column = (int(index[0]) for index in np.nonzero(is_bad))
            reads = f"sensor {ids[column]} reads {rows[row, column]} at row {begin + row}"
            raise UserError(f"{path}: {reads}", fix=fix)


def _as_float32(source: Any, shape: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ANN401  # sliceable
    """`source` [num_steps, num_sensors], read in slices of rows."""
    values = np.empty(shape, dtype=np.float32)
    for begin in range(0, shape[0], _ROWS_AT_A_TIME):
        values[begin : begin + _ROWS_AT_A_TIME] = source[begin : begin + _ROWS_AT_A_TIME]
    return values


def _read_hdf(path: Path) -> SensorReadings:
    """A DataFrame as pandas' `to_hdf` writes it (fixed format): rows are times, columns sensors.

    Its attributes hold pickles, which are never loaded.
    """
    try:
        frame = _only_frame(path)
        names = [f"{frame}/{name}" for name in ("block0_values", "block0_items", "axis1")]
        block, items, axis = (described(path, names, ("kind", "tz"))[name] for name in names)
        ids = tuple(Rows(path, names[1], _extent(items))[:])
        timestamps = _hdf_times(axis, path, names[2])
        tell_unused(path.name, [key for key in tree(path) if key != frame])
        if block.shape is None or len(block.shape) != 2 or block.kind not in "iuf":
            raise UserError(f"{path}: block0_values is {block.dtype} {list(block.shape or ())}", fix=_HDF_FIX)
        if is_inflated(math.prod(block.shape) * block.itemsize, block.stored):
            what = f"block0_values is {list(block.shape)}, of which {block.stored:,} bytes are there"
            raise UserError(f"{path}: {what}", fix=_HDF_FIX)
        values = _as_float32(Rows(path, names[0], block.shape[0]), (block.shape[0], block.shape[1]))
    except ValueError as error:
        raise UserError(f"{path} cannot be read as HDF5: {error}", fix="fetch the file again") from error
    return SensorReadings(values, timestamps, tuple(map(str, ids)), f"pandas HDF {path.name}")


_HDF_FIX = "write it with pandas: df.to_hdf(path, key='df', format='fixed'), one row per time, one column per sensor"


def _only_frame(path: Path) -> str:
    keys = tree(path)
    frames = {key: below for key, below in keys.items() if below is not None and "block0_values" in below}
    if len(frames) != 1:
        found = ", ".join(keys) or "nothing"
        what = "no DataFrame in fixed format" if not frames else f"{len(frames)} DataFrames"
        raise UserError(f"{path} holds {what} (keys: {found})", fix=_HDF_FIX)
    ((frame, below),) = frames.items()
    missing = [name for name in ("axis1", "block0_items") if name not in below]
    if missing or "block1_values" in below:
        what = f"lacks {', '.join(missing)}" if missing else "has columns of several number formats"
        raise UserError(f"{path}: key {frame} {what}", fix=_HDF_FIX)
    return frame


def _extent(dataset: Described) -> int:
    if dataset.shape is None or len(dataset.shape) != 1:
        raise ValueError(f"a dataset is {list(dataset.shape or ())}, and no list")
    return dataset.shape[0]


def _hdf_times(axis: Described, path: Path, name: str) -> NDArray[np.int64]:
    kind = str(axis.attributes.get("kind", ""))
    unit = kind.removeprefix("datetime64").strip("[]") or "ns"
    if zone := axis.attributes.get("tz"):
        raise UserError(
            f"{path}: its times have a zone ({zone}), and readings follow the local day",
            fix="write them in local time without a zone: df.index = df.index.tz_localize(None)",
        )
    if not kind.startswith("datetime64") or unit not in _UNITS_PER_S or axis.dtype != "int64":
        raise UserError(f"{path}: the rows are indexed by {kind or axis.dtype}, not by time", fix=_HDF_FIX)
    times: NDArray[np.int64] = np.asarray(Rows(path, name, _extent(axis))[:]) // _UNITS_PER_S[unit]
    return times


def _read_npz(path: Path) -> SensorReadings:
    keys = npz_keys(path)
    ids_key = "node_ids" if "node_ids" in keys and "sensor_ids" not in keys else "sensor_ids"
    arrays = read_npz(path, required=("values", "timestamps", ids_key))
    tell_unused(path.name, set(keys) - {*arrays, "adj"})
    values, times, ids = arrays["values"], arrays["timestamps"], arrays[ids_key]
    if values.ndim != 2 or values.dtype.kind not in "iuf":
        raise UserError(f"{path}, key values: {values.dtype} {list(values.shape)}", fix=f"give {NPZ_LAYOUT}")
    if times.ndim != 1 or times.dtype.kind not in "iufM":
        raise UserError(f"{path}, key timestamps: {times.dtype} {list(times.shape)}", fix=f"give {NPZ_LAYOUT}")
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise UserError(f"{path}, key {ids_key}: {ids.dtype} {list(ids.shape)}", fix=f"give {NPZ_LAYOUT}")
    if times.dtype.kind == "M":
        if np.isnat(times).any():
            raise UserError(
                f"{path}: a time is not a time (NaT)", fix="give a time for every row, or leave the row out"
            )
        times = times.astype("datetime64[s]").astype(np.int64)
    clean = _as_float32(values, (values.shape[0], values.shape[1]))
    return SensorReadings(clean, seconds_of(times, path), tuple(map(str, ids)), f"npz file {path.name}")


def _read_csv(path: Path) -> SensorReadings:
    import polars as pl

    try:
        separator, comma = separator_of_table(path)
        csv_header(path, separator=separator)
        table = pl.read_csv(
            csv_source(path),
            separator=separator,
            decimal_comma=comma,
            infer_schema_length=None,
            null_values=["", "NaN", "nan", "NA"],
        )
    except (pl.exceptions.PolarsError, *UNREADABLE) as error:
        raise UserError(f"{path} cannot be read as CSV: {_first_line(error)}", fix=f"give {CSV_LAYOUT}") from error
    if table.width < 2 or table.height == 0:
        raise UserError(f"{path} has {table.width} columns and {table.height} rows", fix=f"give {CSV_LAYOUT}")
    ids = tuple(table.columns[1:])
    for name in ids:
        if not table[name].dtype.is_numeric():
            broken = table[name].is_not_null() & table[name].cast(pl.Float64, strict=False).is_null()
            row = int(broken.arg_max() or 0)
            raise UserError(
                f"{path}: column {name}, line {row + 2}: {table[name][row]!r} is not a number", fix=f"give {CSV_LAYOUT}"
            )
    values = np.empty((table.height, len(ids)), dtype=np.float32)
    for number, name in enumerate(ids):
        values[:, number] = table[name].cast(pl.Float32).fill_null(float("nan")).to_numpy()
    return SensorReadings(values, _csv_times(table, path), ids, f"CSV file {path.name}")


def _first_line(error: BaseException) -> str:
    """What a library says, without its advice."""
    return reason(error).strip().splitlines()[0]


def _csv_times(table: Any, path: Path) -> NDArray[np.int64]:  # noqa: ANN401  # polars is imported late
    import polars as pl

    column = table[table.columns[0]]
    if column.null_count():
        row = int(column.is_null().arg_max())
        raise UserError(
            f"{path}: row {row} has no time (column {column.name})",
            fix="give a time for every row, or leave the row out",
        )
    if column.dtype.is_numeric():
        return seconds_of(column.to_numpy(), path)
    if re.match(r"\s*\d{1,2}[./-]", column.cast(pl.String)[0]):
        raise UserError(
            f"{path}: column {column.name} begins with {column[0]!r}, and day and month cannot be told apart",
            fix="write the year first: 2023-12-31 10:00:00",
        )
    try:
        times = column.cast(pl.String).str.to_datetime(time_unit="us", strict=True)
    except pl.exceptions.PolarsError as error:
        raise UserError(
            f"{path}: column {column.name} is not a time: {_first_line(error)}", fix=f"give {CSV_LAYOUT}"
        ) from None
    if times.dtype.time_zone is not None:
        raise UserError(
            f"{path}: times of column {column.name} have a zone ({column[0]}), and readings follow the local day",
            fix="write them in local time without a zone: 2012-03-01 00:05:00",
        )
    return np.asarray(times.dt.epoch("s").to_numpy(), dtype=np.int64)


def _read_basicts(path: Path) -> SensorReadings:
    read = read_basicts(path.parent)
    return SensorReadings(read.values, read.timestamps, read.sensor_ids, read.source)
