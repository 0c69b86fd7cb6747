"""Readings over time as they come from elsewhere: pandas HDF, .npz or wide CSV → `Series`, checked.

Whatever the file: a reading of 0 or NaN is missing, and stays so; a negative or infinite one is refused, and so are
timestamps that do not increase. Timestamps are local time without a zone, in seconds since 1970.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.graph.archive import npz_keys, read_npz
from graphmill.graph.arrays import UNREADABLE, reason

_ROWS_AT_A_TIME = 2048  # of a wide file: the copy in another number format stays small compared to the whole
_UNITS_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
CSV_LAYOUT = "a first column of times (2012-03-01 00:05:00, or seconds since 1970), then one column per sensor id"
NPZ_LAYOUT = "values [num_steps, num_sensors], timestamps [num_steps] and sensor_ids [num_sensors]"


@dataclass(frozen=True, slots=True)
class Series:
    """Readings of all sensors at all steps."""

    values: NDArray[np.float32]  # [num_steps, num_sensors]; 0: missing
    timestamps: NDArray[np.int64]  # [num_steps] seconds, rising
    sensor_ids: tuple[str, ...]  # [num_sensors]
    source: str
    num_nan: int  # NaNs that were read as missing


def read_series(path: Path) -> Series:
    """Read and check the file by its ending."""
    readers = {".h5": _read_hdf, ".hdf5": _read_hdf, ".npz": _read_npz, ".csv": _read_csv}
    if not path.is_file():
        raise UserError(f"{path} is not a file", fix="give an .h5, .npz or .csv file of readings")
    if path.suffix not in readers:
        raise UserError(f"{path} is in no layout that is read here", fix="give an .h5, .npz or .csv file of readings")
    return check_series(readers[path.suffix](path), path)


def check_series(series: Series, path: Path) -> Series:
    """The same, or a `UserError` that names the first thing that is wrong."""
    values, timestamps, ids = series.values, series.timestamps, series.sensor_ids
    if values.ndim != 2 or values.shape != (len(timestamps), len(ids)) or 0 in values.shape:
        raise UserError(
            f"{path}: readings {list(values.shape)} for {len(timestamps)} times and {len(ids)} sensors",
            fix="give one row per time and one column per sensor",
        )
    if len(set(ids)) < len(ids):
        twice = next(name for number, name in enumerate(ids) if name in ids[:number])
        raise UserError(f"{path}: sensor {twice} is there twice", fix="keep one column per sensor")
    _check_time(timestamps, path)
    _check_values(series, path)
    return series


def _check_time(timestamps: NDArray[np.int64], path: Path) -> None:
    steps = np.diff(timestamps)
    if len(steps) and int(steps.min()) <= 0:
        at = int(np.flatnonzero(steps <= 0)[0]) + 1
        problem = "is the same as the one before it" if steps[at - 1] == 0 else "lies before the one before it"
        raise UserError(
            f"{path}: the time of row {at} ({np.datetime64(int(timestamps[at]), 's')}) {problem}",
            fix="sort the rows by time, and keep one row per time",
        )


def _check_values(series: Series, path: Path) -> None:
    has_reading = np.zeros(len(series.sensor_ids), dtype=bool)
    for begin in range(0, len(series.values), _ROWS_AT_A_TIME):
        rows = series.values[begin : begin + _ROWS_AT_A_TIME]
        bad = (rows < 0) | ~np.isfinite(rows)
        if bad.any():
            row, column = (int(index[0]) for index in np.nonzero(bad))
            raise UserError(
                f"{path}: sensor {series.sensor_ids[column]} reads {rows[row, column]} at row {begin + row}",
                fix="write 0 where a reading is missing; readings are finite and not negative",
            )
        has_reading |= (rows > 0).any(axis=0)
    if not has_reading.all():
        silent = [series.sensor_ids[number] for number in np.flatnonzero(~has_reading)]
        raise UserError(
            f"{path}: {len(silent)} of {len(has_reading)} sensors have no reading at all ({', '.join(silent[:5])})",
            fix="drop their columns, and their rows and columns of the adjacency",
        )


def _as_float32(source: Any, shape: tuple[int, int]) -> tuple[NDArray[np.float32], int]:  # noqa: ANN401  # sliceable
    """`source` [num_steps, num_sensors] in slices of rows, NaN as 0, and how many NaNs there were."""
    values = np.empty(shape, dtype=np.float32)
    num_nan = 0
    for begin in range(0, shape[0], _ROWS_AT_A_TIME):
        rows = values[begin : begin + _ROWS_AT_A_TIME]
        rows[:] = source[begin : begin + _ROWS_AT_A_TIME]
        nans = np.isnan(rows)
        num_nan += int(nans.sum())
        rows[nans] = 0
    return values, num_nan


def _read_hdf(path: Path) -> Series:
    """A DataFrame as pandas' `to_hdf` writes it (fixed format): rows are times, columns sensors.

    Its attributes hold pickles, which are never loaded.
    """
    import h5py

    try:
        with h5py.File(path, "r") as file:  # type: ignore[no-untyped-call,attr-defined]  # h5py leaves it unannotated
            frame = _only_frame(file, path)
            block = frame["block0_values"]
            ids = tuple(_text(name) for name in frame["block0_items"][:])
            timestamps = _hdf_times(frame["axis1"], path)
            if block.ndim != 2 or block.dtype.kind not in "iuf":
                raise UserError(f"{path}: block0_values is {block.dtype} {list(block.shape)}", fix=_HDF_FIX)
            values, num_nan = _as_float32(block, block.shape)
    except UNREADABLE as error:
        raise UserError(f"{path} cannot be read as HDF5: {reason(error)}", fix="fetch the file again") from error
    return Series(values, timestamps, ids, f"pandas HDF {path.name}", num_nan)


_HDF_FIX = "write it with pandas: df.to_hdf(path, key='df', format='fixed'), one row per time, one column per sensor"


def _only_frame(file: Any, path: Path) -> Any:  # noqa: ANN401  # h5py is untyped
    frames = [key for key in file if hasattr(file[key], "keys") and "block0_values" in file[key]]
    if len(frames) != 1:
        found = ", ".join(file) or "nothing"
        what = "no DataFrame in fixed format" if not frames else f"{len(frames)} DataFrames"
        raise UserError(f"{path} holds {what} (keys: {found})", fix=_HDF_FIX)
    frame = file[frames[0]]
    missing = [name for name in ("axis1", "block0_items") if name not in frame]
    if missing or "block1_values" in frame:
        what = f"lacks {', '.join(missing)}" if missing else "has columns of several number formats"
        raise UserError(f"{path}: key {frames[0]} {what}", fix=_HDF_FIX)
    return frame


def _hdf_times(axis: Any, path: Path) -> NDArray[np.int64]:  # noqa: ANN401
    kind = _text(axis.attrs.get("kind", b""))
    unit = kind.removeprefix("datetime64").strip("[]") or "ns"
    if not kind.startswith("datetime64") or unit not in _UNITS_PER_S or axis.dtype != np.int64:
        raise UserError(f"{path}: the rows are indexed by {kind or axis.dtype}, not by time", fix=_HDF_FIX)
    times: NDArray[np.int64] = axis[:] // _UNITS_PER_S[unit]
    return times


def _text(name: object) -> str:
    return name.decode("utf-8") if isinstance(name, bytes) else str(name)


def _read_npz(path: Path) -> Series:
    keys = npz_keys(path)
    ids_key = "node_ids" if "node_ids" in keys and "sensor_ids" not in keys else "sensor_ids"
    arrays = read_npz(path, required=("values", "timestamps", ids_key))
    values, times, ids = arrays["values"], arrays["timestamps"], arrays[ids_key]
    if values.ndim != 2 or values.dtype.kind not in "iuf":
        raise UserError(f"{path}, key values: {values.dtype} {list(values.shape)}", fix=f"give {NPZ_LAYOUT}")
    if times.ndim != 1 or times.dtype.kind not in "iuM":
        raise UserError(f"{path}, key timestamps: {times.dtype} {list(times.shape)}", fix=f"give {NPZ_LAYOUT}")
    if ids.ndim != 1 or ids.dtype.kind not in "iuU":
        raise UserError(f"{path}, key {ids_key}: {ids.dtype} {list(ids.shape)}", fix=f"give {NPZ_LAYOUT}")
    seconds = times.astype("datetime64[s]") if times.dtype.kind == "M" else times
    if values.dtype == np.float32 and not np.isnan(values).any():
        clean, num_nan = values, 0
    else:
        clean, num_nan = _as_float32(values, (values.shape[0], values.shape[1]))
    return Series(clean, seconds.astype(np.int64), tuple(map(str, ids)), f"npz file {path.name}", num_nan)


def _read_csv(path: Path) -> Series:
    import polars as pl

    try:
        table = pl.read_csv(path, infer_schema_length=None, null_values=["", "NaN", "nan", "NA"])
    except (pl.exceptions.PolarsError, *UNREADABLE) as error:
        raise UserError(f"{path} cannot be read as CSV: {reason(error)}", fix=f"give {CSV_LAYOUT}") from error
    if table.width < 2 or table.height == 0:
        raise UserError(f"{path} has {table.width} columns and {table.height} rows", fix=f"give {CSV_LAYOUT}")
    ids = tuple(table.columns[1:])
    for name in ids:
        if not table[name].dtype.is_numeric():
            raise UserError(f"{path}: column {name} holds {table[name].dtype}, not numbers", fix=f"give {CSV_LAYOUT}")
    values, num_nan = np.empty((table.height, len(ids)), dtype=np.float32), 0
    for number, name in enumerate(ids):
        column = table[name].cast(pl.Float32).fill_null(float("nan")).to_numpy()
        num_nan += int(np.isnan(column).sum())
        values[:, number] = np.nan_to_num(column, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return Series(values, _csv_times(table, path), ids, f"CSV file {path.name}", num_nan)


def _csv_times(table: Any, path: Path) -> NDArray[np.int64]:  # noqa: ANN401  # polars is imported late
    import polars as pl

    column = table[table.columns[0]]
    if column.dtype.is_integer():
        return np.asarray(column.cast(pl.Int64).to_numpy(), dtype=np.int64)
    try:
        times = column.cast(pl.String).str.to_datetime(time_unit="ms", strict=True)
        return np.asarray(times.dt.epoch("s").to_numpy(), dtype=np.int64)
    except pl.exceptions.PolarsError as error:
        raise UserError(f"{path}: column {table.columns[0]} is not a time: {error}", fix=f"give {CSV_LAYOUT}") from None
