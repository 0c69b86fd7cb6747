"""BasicTS's folder of a dataset: desc.json, data.dat (float32, no header) and adj_mx.pkl.

Channel 0 is what is read; channels named "time of day" and "day of week" are the clock, as shares of a day and a week.
The dates are not in the files.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.base.json_text import parse_json
from graphmill.graph.unused import tell_unused

_log = logging.getLogger(__name__)

NAME: Final = "desc.json"
DATA: Final = "data.dat"
_FIRST_MONDAY: Final = 4 * 86_400  # 1970-01-05
_MAX_BYTES: Final = 2**24
_KEYS: Final = ("shape", "frequency (minutes)", "feature_description")
_CLOCK: Final = ("time of day", "day of week", "day of month", "day of year")
_FIX: Final = (
    f'{NAME} says {{"shape": [num_steps, num_sensors, num_channels], "frequency (minutes)": 5, "feature_description":'
    ' ["traffic speed", "time of day", "day of week"]}; BasicTS writes it'
)


@dataclass(frozen=True, slots=True)
class BasicTs:
    """What is read of the folder."""

    values: NDArray[np.float32]  # [num_steps, num_sensors]
    timestamps: NDArray[np.int64]  # [num_steps]; of a made-up week
    sensor_ids: tuple[str, ...]  # numbers: the files name none
    source: str


def read_basicts(folder: Path) -> BasicTs:
    """Channel 0 of data.dat. The clock begins in the first week of 1970 at the weekday and time of the first row."""
    shape, interval_s, channels = _described(folder / NAME)
    values = _mapped(folder / DATA, shape)
    first = _first_time(values, channels, folder)
    _log.info(
        f"{folder / DATA} has no dates: its rows are dated from {np.datetime64(first, 's')}, and only weekday and time"
        " of day are of the data"
    )
    tell_unused(folder.name, [name for name in channels[1:] if name not in _CLOCK])
    timestamps = first + interval_s * np.arange(shape[0], dtype=np.int64)
    ids = tuple(str(number) for number in range(shape[1]))
    return BasicTs(np.array(values[:, :, 0]), timestamps, ids, f"BasicTS {folder.name}/{DATA}, dates made up")


def _described(path: Path) -> tuple[tuple[int, int, int], int, list[str]]:
    """Shape, seconds between rows, names of the channels."""
    try:
        said: Any = parse_json(path.read_text(encoding="utf-8")) if path.stat().st_size <= _MAX_BYTES else {}
        shape, minutes, names = (said[key] for key in _KEYS)
        steps, sensors, channels = (int(extent) for extent in shape)
        interval_s = round(float(minutes) * 60)
    except KeyError as error:
        raise UserError(f"{path} lacks {error}", fix=_FIX) from None
    except (OSError, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"{path} cannot be read: {error}", fix=_FIX) from None
    if min(steps, sensors, channels, interval_s) < 1 or len(names) != channels:
        raise UserError(f"{path}: {len(names)} channels are named, and the shape is {shape}", fix=_FIX)
    return (steps, sensors, channels), interval_s, [str(name) for name in names]


def _mapped(path: Path, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    wanted = shape[0] * shape[1] * shape[2] * 4
    found = path.stat().st_size if path.is_file() else None
    if found != wanted:
        has = "is not there" if found is None else f"has {found} bytes"
        raise UserError(f"{path} {has}, and {NAME} says {list(shape)} numbers of 4 bytes: {wanted}", fix=_FIX)
    return np.asarray(np.memmap(path, dtype="<f4", mode="r", shape=shape))


def _first_time(values: NDArray[np.float32], channels: list[str], folder: Path) -> int:
    """Seconds since 1970 of the first row, in the week that begins on Monday, 1970-01-05."""
    place = {name: number for number, name in enumerate(channels)}
    if not place.keys() >= {"time of day", "day of week"}:
        raise UserError(
            f"{folder / NAME}: its channels are {', '.join(channels)}, and the clock is not there", fix=_FIX
        )
    shares = [float(values[0, 0, place[name]]) for name in ("time of day", "day of week")]
    if not all(0 <= share < 1 for share in shares):
        raise UserError(
            f"{folder / DATA}: the first row's time of day and weekday are {shares}, not shares of a day and a week",
            fix="write them with BasicTS's rescale of the clock: in [0, 1)",
        )
    return _FIRST_MONDAY + round(shares[0] * 86_400) + round(shares[1] * 7) * 86_400
