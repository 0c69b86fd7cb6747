"""Windows over one memory-mapped array: a window is the index of its first step, and nothing of it is stored.

Split as in DCRNN: of all windows in order of time the first 70 % train, the last 20 % test. A window never lies across
a gap in time, so a data set with nights left out has fewer windows than steps.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graphmill.graph.batch import copied
from graphmill.graph.sampled import AnySeeds
from graphmill.graph.splits import Split
from graphmill.tasks.traffic.data.seasons import rows_before
from graphmill.tasks.traffic.data.store import TrafficStore, window_starts
from graphmill.tasks.traffic.page import DAY_S, INPUT_CHANNELS, SEASON_S, WEEK_DAYS, Season, split_counts

_ROWS_AT_A_TIME = 2048
_FIRST_WEEKDAY = 3  # 1970-01-01 was a Thursday; Monday counts 0


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """What one step computes on, on the rank's device. Prefetched, so it holds readings and clock and nothing derived
    from them.
    """

    seeds: AnySeeds  # `ids`: first steps of the windows
    readings: Tensor  # float32 [num_windows, history + horizon, num_sensors] in the unit of the data; NaN: missing
    clock: Tensor  # float32 [num_windows, history, 2]: time of day and day of the week, each in [0, 1)
    before: Tensor | None = None  # as `readings`: a season before each; None: the plan has none

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
        before = None if self.before is None else copied(self.before, device)
        return replace(self, readings=copied(self.readings, device), clock=copied(self.clock, device), before=before)

    def inputs(self, mean: Tensor, std: Tensor) -> Tensor:
        """[num_windows, history, num_sensors, 4 or 5]: scaled reading, 1 where there is one, time of day, weekday; and
        the scaled difference to a season before, 0 where either is missing.

        A missing reading is (0, 0): not a reading of 0, nor any guess, but marked as missing.
        """
        history = self.clock.shape[1]
        raw = self.readings[:, :history]
        known = ~raw.isnan()
        inputs = raw.new_empty(*raw.shape, INPUT_CHANNELS + (self.before is not None))
        inputs[..., 0] = torch.where(known, (raw - mean) / std, 0.0)
        inputs[..., 1] = known
        inputs[..., 2:INPUT_CHANNELS] = self.clock.unsqueeze(2)
        if self.before is not None:
            inputs[..., INPUT_CHANNELS] = torch.nan_to_num((raw - self.before[:, :history]) / std, nan=0.0)
        return inputs

    def season_ahead(self, mean: Tensor, std: Tensor) -> Tensor | None:
        """Scaled readings a season before the targets, of their shape, 0 where missing; None without a season."""
        if self.before is None:
            return None
        return torch.nan_to_num((self.before[:, self.clock.shape[1] :] - mean) / std, nan=0.0)

    def learnt_from(self, mean: Tensor) -> Tensor:
        """What a forecast of 0 stands for, [num_windows, horizon, num_sensors]: the reading a season before, or where
        that is missing the last one; `mean` without a season.
        """
        if self.before is None:
            return mean
        ahead = self.before[:, self.clock.shape[1] :]
        return torch.where(ahead.isnan(), self.last_known(mean), ahead)

    def last_known(self, mean: Tensor | float) -> Tensor:
        """The last reading of each window's history, [num_windows, 1, num_sensors]; `mean` where it has none."""
        history = self.readings[:, : self.clock.shape[1]]
        place = ~history.isnan() * torch.arange(1, history.shape[1] + 1, device=history.device).view(1, -1, 1)
        latest = place.amax(dim=1, keepdim=True)
        return torch.where(latest > 0, history.gather(1, (latest - 1).clamp(min=0)), mean)


@dataclass(frozen=True, slots=True)
class TrafficWindows:
    """All windows of a store for given lengths."""

    store: TrafficStore
    history: int
    horizon: int
    season: Season = "none"
    values: NDArray[np.float32] = field(init=False, repr=False)  # mapped
    starts: NDArray[np.int64] = field(init=False, repr=False)  # [num_windows] rising
    clock: NDArray[np.float32] = field(init=False, repr=False)  # [num_steps, 2]: time of day, day of the week
    rows_before: NDArray[np.int64] = field(init=False, repr=False)  # [num_steps]: a season before; -1: none

    def __post_init__(self) -> None:
        times = np.asarray(self.store.timestamps)
        before = np.empty(0, np.int64) if self.season == "none" else rows_before(times, SEASON_S[self.season])
        object.__setattr__(self, "rows_before", before)
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
        clock = torch.from_numpy(self.clock[steps[:, : self.history]])
        return WindowBatch(seeds, readings, clock, None if self.season == "none" else self._before(steps))

    def _before(self, steps: NDArray[np.int64]) -> Tensor:
        rows = self.rows_before[steps]
        before = self.values[rows]
        before[rows < 0] = np.nan
        return torch.from_numpy(before)


def clock_of(times: NDArray[np.int64]) -> NDArray[np.float32]:
    """Time of day and day of the week, each in [0, 1): [..., 2] for seconds since 1970 in local time [...]."""
    weekday = (times // DAY_S + _FIRST_WEEKDAY) % WEEK_DAYS
    return np.stack([times % DAY_S / DAY_S, weekday / WEEK_DAYS], axis=-1).astype(np.float32)
