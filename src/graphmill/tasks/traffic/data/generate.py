"""Made-up traffic for tests: congestion that travels against the traffic, rush hours, weekends, missing readings.

It is not made to look like any road. Every record of it says `synthetic`.
"""

import numpy as np
from numpy.typing import NDArray

from graphmill.base.errors import UserError
from graphmill.tasks.traffic.data.measured import SensorReadings
from graphmill.tasks.traffic.data.store import RawTraffic

_FIRST_MONDAY = 345_600  # 1970-01-05 00:00


def generate(
    name: str = "synthetic/traffic",
    *,
    num_sensors: int = 20,
    num_steps: int = 2016,
    interval_s: int = 300,
    missing_share: float = 0.05,
    seed: int = 0,
) -> RawTraffic:
    """Speeds in mph on a ring road with a few shortcuts: what slows a sensor slows those before it, later."""
    if num_sensors < 2 or num_steps < 2 or interval_s < 1 or not 0 <= missing_share < 1:
        raise UserError(
            f"num_sensors={num_sensors}, num_steps={num_steps}, interval_s={interval_s}, missing_share={missing_share}"
            " make no traffic",
            fix="give two sensors and two steps or more, and a share below 1",
        )
    rng = np.random.default_rng(seed)
    adjacency = _ring(num_sensors, rng)
    timestamps = _FIRST_MONDAY + interval_s * np.arange(num_steps, dtype=np.int64)
    values = np.clip(65 - _rush_hours(timestamps)[:, None] - _congestion(adjacency, num_steps, rng), 3, 75)
    is_missing = rng.random(values.shape) < missing_share
    is_missing[0, is_missing.all(axis=0)] = False  # no sensor is missing at all steps
    values[is_missing] = np.nan
    ids = tuple(f"s{number}" for number in range(num_sensors))
    series = SensorReadings(values.astype(np.float32), timestamps, ids, "generated", num_nan=int(is_missing.sum()))
    options = f"num_sensors={num_sensors} num_steps={num_steps} missing_share={missing_share} seed={seed}"
    return RawTraffic(series, adjacency, name, f"synthetic: generated with {options}", synthetic=True, unit="mph")


def _ring(num_sensors: int, rng: np.random.Generator) -> NDArray[np.float32]:
    adjacency = np.eye(num_sensors, dtype=np.float32)
    numbers = np.arange(num_sensors)
    adjacency[numbers, (numbers + 1) % num_sensors] = 0.8
    for source, target in rng.integers(0, num_sensors, (num_sensors // 4, 2)):
        adjacency[source, target] = max(adjacency[source, target], 0.3)
    return adjacency


def _rush_hours(timestamps: NDArray[np.int64]) -> NDArray[np.float64]:
    hours = timestamps % 86_400 / 3600
    rush = 20 * (np.exp(-((hours - 8) ** 2) / 2) + np.exp(-((hours - 17.5) ** 2) / 3))
    is_weekend = (timestamps // 86_400 + 3) % 7 >= 5
    slowed: NDArray[np.float64] = np.where(is_weekend, 0.3, 1.0) * rush
    return slowed


def _congestion(adjacency: NDArray[np.float32], num_steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A shock at a sensor fades, and moves to those whose traffic runs into it."""
    spread = adjacency / adjacency.sum(axis=1, keepdims=True)
    level = np.zeros(len(adjacency))
    rows = np.empty((num_steps, len(adjacency)))
    for step in range(num_steps):
        shocks = rng.exponential(12, len(adjacency)) * (rng.random(len(adjacency)) < 0.02)
        level = 0.97 * (spread @ level) + shocks
        rows[step] = level + rng.normal(0, 0.7, len(adjacency))
    return rows
