"""Tables of readings without header and times, as STGCN's PeMSD7_V_228.csv: numbers alone, a row for each time."""

from pathlib import Path

import numpy as np

from graphmill.base.errors import UserError
from graphmill.graph.arrays import UNREADABLE, reason
from graphmill.tasks.traffic.data.look import are_numbers, first_lines, separator_of
from graphmill.tasks.traffic.data.measured import SensorReadings


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
