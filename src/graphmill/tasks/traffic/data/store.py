"""Traffic at rest: one folder of memory-mapped .npy arrays and the metadata that vouches for them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt

from graphmill.base.errors import UserError
from graphmill.graph.header import Expected, Header
from graphmill.graph.prepared import PreparedStore
from graphmill.tasks.traffic.data.clock import interval_of, longest_run
from graphmill.tasks.traffic.data.measured import SensorReadings
from graphmill.tasks.traffic.data.seasons import BestSeason, preferred
from graphmill.tasks.traffic.page import (
    KIND,
    TRAIN_SHARE,
    MissingReadings,
    TrafficDatasetSpec,
    TrafficInfo,
    split_counts,
)

_ROWS_AT_A_TIME = 4096


class TrafficMetadata(Header):
    """What a traffic store says about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    format_version: Literal["traffic/1"] = "traffic/1"
    source: str = Field(description="where readings and graph came from, and what was done to them on the way")
    unit: str = Field(description="of the readings, for example mph; empty: not said")
    num_steps: PositiveInt
    num_sensors: PositiveInt
    num_edges: NonNegativeInt = Field(description="directed, loops included")
    sensor_ids: tuple[str, ...]
    interval_s: PositiveInt = Field(description="between two steps")
    begin: str = Field(description="time of the first step, local, without a zone")
    end: str = Field(description="time of the last step")
    num_gaps: NonNegativeInt = Field(description="places where more or less time passes; no window lies across one")
    missing: MissingReadings = Field(description="which readings of the file were taken as missing")
    num_missing: NonNegativeInt = Field(description="readings that are missing: NaN, masked, never filled in")
    num_zero: NonNegativeInt = Field(description="readings among them that were 0 in the file")
    num_train_steps: PositiveInt = Field(description="first steps, from which mean and std were taken")
    mean: float = Field(description="of the readings in the training steps, missing ones left out")
    std: float = Field(gt=0, description="of the same")
    present_share: float = Field(gt=0, le=1, description="share of readings in the training steps that are there")

    def expected_arrays(self) -> Expected:
        """What the arrays must be."""
        return {
            "values": ("float32", (self.num_steps, self.num_sensors)),
            "timestamps": ("int64", (self.num_steps,)),
            "edge_index": ("int32", (2, self.num_edges)),
            "edge_weight": ("float32", (self.num_edges,)),
        }

    def disagreement(self) -> str | None:
        """What is wrong with the metadata, or None."""
        if problem := super().disagreement():
            return problem
        if len(self.sensor_ids) != self.num_sensors or self.num_train_steps > self.num_steps:
            return f"{len(self.sensor_ids)} sensor ids and {self.num_train_steps} training steps do not fit the arrays"
        return None


@dataclass(frozen=True, slots=True)
class TrafficStore(PreparedStore):
    """Prepared readings and their graph."""

    metadata: TrafficMetadata

    kind = KIND.name
    own_part = TrafficMetadata

    @property
    def values(self) -> NDArray[np.float32]:
        """Readings [num_steps, num_sensors], mapped; NaN: missing."""
        return self.array("values")

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Seconds since 1970 in local time [num_steps], rising."""
        return self.array("timestamps")

    @property
    def edge_index(self) -> NDArray[np.int32]:
        """[2, num_edges]: from row 0 to row 1."""
        return self.array("edge_index")

    @property
    def edge_weight(self) -> NDArray[np.float32]:
        """Weights of the edges [num_edges], above 0."""
        return self.array("edge_weight")

    def info(self, spec: TrafficDatasetSpec) -> TrafficInfo:
        """What the planner must know, for windows as asked. `UserError` if they make an empty split."""
        known, history, horizon = self.metadata, spec.history, spec.horizon
        starts = window_starts(np.asarray(self.timestamps), known.interval_s, history + horizon)
        num_train, num_val, num_test = split_counts(len(starts))
        if min(num_train, num_val, num_test) == 0:
            raise UserError(
                f"{known.name} has {len(starts)} windows of {history} + {horizon} steps, which make {num_train} for"
                f" training, {num_val} for validation and {num_test} for the test",
                fix="give readings of more time, or set dataset.history and dataset.horizon to less",
            )
        season = self._preferred_season(spec, starts)
        return TrafficInfo(
            name=known.name,
            path=str(self.path.resolve()),
            checksum=known.checksum,
            synthetic=known.synthetic,
            num_train=num_train,
            num_sensors=known.num_sensors,
            num_edges=known.num_edges,
            num_steps=known.num_steps,
            interval_s=known.interval_s,
            unit=known.unit,
            num_val=num_val,
            num_test=num_test,
            sensors=hashlib.sha256("\n".join(known.sensor_ids).encode()).hexdigest()[:16],
            best_season=season.season,
            season_error=season.over_last,
            season_error_far=season.over_far,
        )

    def _preferred_season(self, spec: TrafficDatasetSpec, starts: NDArray[np.int64]) -> BestSeason:
        num_train, num_val, _ = split_counts(len(starts))
        first, last = starts[num_train] + spec.history, starts[num_train + num_val - 1] + spec.history + spec.horizon
        return preferred(
            self.values,
            np.asarray(self.timestamps),
            interval_s=self.metadata.interval_s,
            horizon=spec.horizon,
            validation=(int(first), int(last)),
        )

    def described(self) -> Sequence[tuple[str, Any]]:
        """What `graphmill inspect` shows."""
        known = self.metadata
        longest = longest_run(np.asarray(self.timestamps), known.interval_s)
        share = known.num_missing / (known.num_steps * known.num_sensors)
        return [
            ("sensors", known.num_sensors),
            ("edges", known.num_edges or "none: it has no graph"),
            ("steps", f"{known.num_steps:,} of {known.interval_s} s, {known.begin} to {known.end}"),
            ("gaps in time", f"{known.num_gaps}; {longest:,} steps without one at most"),
            (
                "missing",
                f"{known.num_missing:,} readings ({share:.1%}), {known.num_zero:,} of them zeros in the file"
                f" (missing={known.missing})",
            ),
            ("training mean ± std", f"{known.mean:.2f} ± {known.std:.2f} {known.unit or '(unit not said)'}"),
        ]


def window_starts(timestamps: NDArray[np.int64], interval_s: int, length: int) -> NDArray[np.int64]:
    """First steps of all runs of `length` steps without a gap in time, rising."""
    if len(timestamps) < length:
        return np.empty(0, dtype=np.int64)
    gaps_before = np.concatenate([[0], np.cumsum(np.diff(timestamps) != interval_s)])
    is_whole = gaps_before[length - 1 :] == gaps_before[: len(gaps_before) - length + 1]
    return np.flatnonzero(is_whole).astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True)
class RawTraffic:
    """What is to be written."""

    series: SensorReadings
    adjacency: NDArray[np.float32]  # [num_sensors, num_sensors]; all 0: there is no graph
    name: str
    source: str
    synthetic: bool
    unit: str


def write_traffic(raw: RawTraffic, path: Path) -> TrafficStore:
    """Write the folder `path`, whole or not at all; an existing store is replaced."""
    sources, targets = np.nonzero(raw.adjacency)
    arrays: Mapping[str, NDArray[Any]] = {
        "values": raw.series.values,
        "timestamps": raw.series.timestamps,
        "edge_index": np.stack([sources, targets]).astype(np.int32),
        "edge_weight": raw.adjacency[sources, targets],
    }
    return TrafficStore.write(path, arrays, _describe(raw, len(sources)))


def _describe(raw: RawTraffic, num_edges: int) -> TrafficMetadata:
    series = raw.series
    num_steps = len(series.timestamps)
    num_train_steps = int(num_steps * TRAIN_SHARE)
    if num_train_steps == 0:
        raise UserError(f"{raw.name} has {num_steps} steps", fix="give readings of more time")
    mean, std, present_share = _scale(series.values[:num_train_steps], raw.name)
    interval = interval_of(series.timestamps)
    begin, end = (str(np.datetime64(int(each), "s")) for each in series.timestamps[[0, -1]])
    return TrafficMetadata(
        kind=KIND.name,
        name=raw.name,
        source=raw.source,
        synthetic=raw.synthetic,
        unit=raw.unit,
        num_steps=num_steps,
        num_sensors=len(series.sensor_ids),
        num_edges=num_edges,
        sensor_ids=series.sensor_ids,
        interval_s=interval,
        begin=begin,
        end=end,
        num_gaps=int(np.count_nonzero(np.diff(series.timestamps) != interval)),
        missing=series.missing,
        num_missing=_num_missing(series.values),
        num_zero=series.num_zero,
        num_train_steps=num_train_steps,
        mean=mean,
        std=std,
        present_share=present_share,
        arrays={},
    )


def _num_missing(values: NDArray[np.float32]) -> int:
    rows = range(0, len(values), _ROWS_AT_A_TIME)
    return sum(int(np.count_nonzero(np.isnan(values[begin : begin + _ROWS_AT_A_TIME]))) for begin in rows)


def _scale(values: NDArray[np.float32], name: str) -> tuple[float, float, float]:
    """Mean and standard deviation of what is there, and its share; in two passes over slices of rows."""
    slices = [values[begin : begin + _ROWS_AT_A_TIME] for begin in range(0, len(values), _ROWS_AT_A_TIME)]
    count = sum(int(np.count_nonzero(~np.isnan(rows))) for rows in slices)
    if count == 0:
        raise UserError(
            f"{name} has no reading in its training steps (the first 70 %)", fix="give readings of more time"
        )
    mean = sum(float(np.nansum(rows, dtype=np.float64)) for rows in slices) / count
    squares = sum(float(np.nansum(np.square(rows - mean), dtype=np.float64)) for rows in slices)
    std = float(np.sqrt(squares / count))
    if std == 0:
        raise UserError(f"{name}: every reading of the training steps is {mean}", fix="give readings that differ")
    return mean, std, count / values.size
