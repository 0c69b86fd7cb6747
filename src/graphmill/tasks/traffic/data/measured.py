"""Readings of all sensors over time, as every reader gives them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphmill.tasks.traffic.page import MissingReadings


@dataclass(frozen=True, slots=True)
class SensorReadings:
    """Readings of all sensors at all steps."""

    values: NDArray[np.float32]  # [num_steps, num_sensors]; NaN: missing
    timestamps: NDArray[np.int64]  # [num_steps] seconds, rising
    sensor_ids: tuple[str, ...]  # [num_sensors]
    source: str
    missing: MissingReadings = "nan"  # what was read as missing
    num_zero: int = 0  # zeros, or readings of the code, that were read as missing
    num_nan: int = 0  # NaNs, empty cells among them, that were read as missing
