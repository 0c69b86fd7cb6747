"""Windows over one memory-mapped array: a window is the index of its first step, and nothing of it is stored.

Split as in DCRNN: of all windows in order of time the first 70 % train, the last 20 % test. A window never lies across
a gap in time, so a data set with nights left out has fewer windows than steps.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.batch import copied
from graphmill.graph.sampled import AnySeeds
from graphmill.graph.splits import Split
from graphmill.tasks.traffic.data.store import TrafficStore, window_starts
from graphmill.tasks.traffic.page import DAY_S, FIRST_WEEKDAY, INPUT_CHANNELS, WEEK_DAYS, split_counts

_ROWS_AT_A_TIME = 2048


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """What one step computes on, on the rank's device. Prefetched, so it holds readings and clock and nothing derived
    from them.
    """

    seeds: AnySeeds  # `ids`: first steps of the windows
    readings: Tensor  # float32 [num_windows, history + horizon, num_sensors] in the unit of the data; NaN: missing
    clock: Tensor  # float32 [num_windows, history, 2]: time of day and day of the week, each in [0, 1)

    @property
    def num_seeds(self) -> int:
        """Windows; 0 if the rank has no share of the step."""
        return len(self.seeds.ids)

    @property
    def targets(self) -> Tensor:
        """Readings to be forecast [num_windows, horizon, num_sensors]."""
        return self.readings[:, self.clock.shape[1] :]

    @property
    def is_known(self) -> Tensor:
        """Which targets are not missing, bool, the same shape."""
        return ~self.targets.isnan()

    def to(self, device: torch.device) -> "WindowBatch":
        """Copy of the batch on `device`, made without waiting if the memory allows it."""
        if device.type == "cpu":
            return self
        return WindowBatch(self.seeds, copied(self.readings, device), copied(self.clock, device))

    def inputs(self, mean: Tensor, std: Tensor) -> Tensor:
        """[num_windows, history, num_sensors, 4]: scaled reading, 1 where there is one, time of day, weekday.

        A missing reading is (0, 0): not a reading of 0, nor any guess, but marked as missing. `mean` is one number, or
        one of each window and sensor [num_windows, 1, num_sensors].
        """
        raw = self.readings[:, : self.clock.shape[1]]
        known = ~raw.isnan()
        inputs = raw.new_empty(*raw.shape, INPUT_CHANNELS)
        inputs[..., 0] = torch.where(known, (raw - mean) / std, 0.0)
        inputs[..., 1] = known
        inputs[..., 2:] = self.clock.unsqueeze(2)
        return inputs


@dataclass(frozen=True, slots=True)
class TrafficWindows:
    """All windows of a store for given lengths."""

    store: TrafficStore
    history: int
    horizon: int
    values: NDArray[np.float32] = field(init=False, repr=False)  # mapped
    starts: NDArray[np.int64] = field(init=False, repr=False)  # [num_windows] rising
    clock: NDArray[np.float32] = field(init=False, repr=False)  # [num_steps, 2]: time of day, day of the week

    def __post_init__(self) -> None:
        times = np.asarray(self.store.timestamps)
        object.__setattr__(self, "values", self.store.values)
        object.__setattr__(self, "starts", window_starts(times, self.store.metadata.interval_s, self.length))
        object.__setattr__(self, "clock", clock_of(times))

    @property
    def length(self) -> int:
        """Steps of a window."""
        return self.history + self.horizon

    @property
    def counts(self) -> tuple[int, int, int]:
        """Windows for training, validation and test."""
        return split_counts(len(self.starts))

    def of(self, split: Split) -> NDArray[np.int64]:
        """First steps of the windows of a split, rising."""
        num_train, num_val, _ = self.counts
        ends = {"train": (0, num_train), "val": (num_train, num_train + num_val), "test": (num_train + num_val, None)}
        return self.starts[slice(*ends[split])]

    def num_known(self) -> NDArray[np.int64]:
        """[num_steps] how many targets of the window that begins there are not missing; 0 where none begins."""
        rows = range(0, len(self.values), _ROWS_AT_A_TIME)
        known = [np.count_nonzero(~np.isnan(self.values[begin : begin + _ROWS_AT_A_TIME]), axis=1) for begin in rows]
        sums = np.concatenate([[0], np.cumsum(np.concatenate(known))])
        counts = np.zeros(len(self.values), dtype=np.int64)
        counts[self.starts] = sums[self.starts + self.length] - sums[self.starts + self.history]
        return counts

    def batch(self, seeds: AnySeeds) -> WindowBatch:
        """The windows that begin at `seeds.ids`, on the CPU."""
        steps = np.asarray(seeds.ids)[:, None] + np.arange(self.length)
        readings = torch.from_numpy(self.values[steps])  # the only copy of the windows
        return WindowBatch(seeds, readings, torch.from_numpy(self.clock[steps[:, : self.history]]))


def clock_of(times: NDArray[np.int64]) -> NDArray[np.float32]:
    """Time of day and day of the week, each in [0, 1): [..., 2] for seconds since 1970 in local time [...]."""
    weekday = (times // DAY_S + FIRST_WEEKDAY) % WEEK_DAYS
    return np.stack([times % DAY_S / DAY_S, weekday / WEEK_DAYS], axis=-1).astype(np.float32)
