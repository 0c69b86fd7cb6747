"""Traffic at rest: one folder of memory-mapped .npy arrays and the metadata that vouches for them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, ValidationError

import graphmill
from graphmill.base.errors import UserError
from graphmill.base.files import remove_leftovers, replacing_folder, write_text
from graphmill.graph.arrays import (
    UNREADABLE,
    ArrayRecord,
    check_arrays,
    check_checksum,
    damaged,
    map_array,
    write_array,
)
from graphmill.spec.plan import TrafficFacts
from graphmill.tasks.traffic.series import Series

FILE_NAME = "metadata.json"
FORMAT = "traffic/1"
TRAIN_SHARE, TEST_SHARE = 0.7, 0.2  # of time, in this order: train, val, test
_ROWS_AT_A_TIME = 4096
_MAX_BYTES = 2**24


class TrafficMetadata(BaseModel):
    """What a traffic store says about itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal["traffic/1"] = "traffic/1"
    name: str
    source: str = Field(description="where readings and graph came from, and what was done to them on the way")
    synthetic: bool
    unit: str = Field(description="of the readings, for example mph")
    num_steps: PositiveInt
    num_sensors: PositiveInt
    num_edges: NonNegativeInt = Field(description="directed, loops included")
    sensor_ids: tuple[str, ...]
    interval_s: PositiveInt = Field(description="between two steps")
    begin: str = Field(description="time of the first step, local, without a zone")
    end: str = Field(description="time of the last step")
    num_gaps: NonNegativeInt = Field(description="places where more or less time passes; no window lies across one")
    num_missing: NonNegativeInt = Field(description="readings that are 0: masked, never filled in")
    num_nan: NonNegativeInt = Field(description="readings among them that were NaN in the file")
    num_train_steps: PositiveInt = Field(description="first steps, from which mean and std were taken")
    mean: float = Field(description="of the readings in the training steps, missing ones left out")
    std: float = Field(gt=0, description="of the same")
    present_share: float = Field(gt=0, le=1, description="share of readings in the training steps that are there")
    arrays: dict[str, ArrayRecord] = Field(description="by name; the file is <name>.npy")
    created_by: str
    checksum: str = Field("", description="xxh3-128 of everything above except created_by, file checksums included")

    def content_checksum(self) -> str:
        """What `checksum` must be."""
        content = self.model_dump(mode="json", exclude={"created_by", "checksum"})
        return xxhash.xxh3_128(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TrafficStore:
    """Prepared readings and their road graph. Each access maps the files anew, which is cheap."""

    path: Path
    metadata: TrafficMetadata

    @classmethod
    def open(cls, path: Path) -> "TrafficStore":
        """Open the folder `path` after checking metadata and the sizes, dtypes and shapes of all files.

        Contents are read only of files that changed since they were prepared: `verify` reads all.
        """
        metadata = _read_metadata(path)
        check_arrays(path, metadata.arrays)
        return cls(path, metadata)

    def verify(self) -> None:
        """Read everything and compare checksums. `UserError` names the first breach."""
        for name, record in self.metadata.arrays.items():
            check_checksum(self.path / f"{name}.npy", record)

    @property
    def values(self) -> NDArray[np.float32]:
        """Readings [num_steps, num_sensors], mapped; 0: missing."""
        return self._array("values")

    @property
    def timestamps(self) -> NDArray[np.int64]:
        """Seconds since 1970 in local time [num_steps], rising."""
        return self._array("timestamps")

    @property
    def edge_index(self) -> NDArray[np.int32]:
        """[2, num_edges]: from row 0 to row 1."""
        return self._array("edge_index")

    @property
    def edge_weight(self) -> NDArray[np.float32]:
        """[num_edges], above 0."""
        return self._array("edge_weight")

    def facts(self, history: int, horizon: int) -> TrafficFacts:
        """What the planner must know, for windows of these lengths. `UserError` where they make an empty split."""
        known = self.metadata
        starts = window_starts(np.asarray(self.timestamps), known.interval_s, history + horizon)
        num_train, num_val, num_test = split_counts(len(starts))
        if min(num_train, num_val, num_test) == 0:
            raise UserError(
                f"{known.name} has {len(starts)} windows of {history} + {horizon} steps, which make {num_train} for"
                f" training, {num_val} for validation and {num_test} for the test",
                fix="give readings of more time, or set dataset.history and dataset.horizon to less",
            )
        return TrafficFacts(
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
        )

    def _array(self, name: str) -> NDArray[Any]:
        return map_array(self.path / f"{name}.npy", self.metadata.arrays[name])


def window_starts(timestamps: NDArray[np.int64], interval_s: int, length: int) -> NDArray[np.int64]:
    """First steps of all runs of `length` steps without a gap in time, rising."""
    if len(timestamps) < length:
        return np.empty(0, dtype=np.int64)
    gaps_before = np.concatenate([[0], np.cumsum(np.diff(timestamps) != interval_s)])
    is_whole = gaps_before[length - 1 :] == gaps_before[: len(gaps_before) - length + 1]
    return np.flatnonzero(is_whole).astype(np.int64, copy=False)


def split_counts(num_windows: int) -> tuple[int, int, int]:
    """How many of the windows, in order of time, are for training, validation and test."""
    num_train, num_test = round(num_windows * TRAIN_SHARE), round(num_windows * TEST_SHARE)
    return num_train, num_windows - num_train - num_test, num_test


@dataclass(frozen=True, slots=True)
class RawTraffic:
    """What is to be written."""

    series: Series
    adjacency: NDArray[np.float32]  # [num_sensors, num_sensors]
    name: str
    source: str
    synthetic: bool
    unit: str


def write_traffic(raw: RawTraffic, path: Path) -> TrafficStore:
    """Write the folder `path`, whole or not at all; a store that is there is replaced."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file, and a store is a folder", fix="move it away, or give another name")
    sources, targets = np.nonzero(raw.adjacency)
    arrays: Mapping[str, NDArray[Any]] = {
        "values": raw.series.values,
        "timestamps": raw.series.timestamps,
        "edge_index": np.stack([sources, targets]).astype(np.int32),
        "edge_weight": raw.adjacency[sources, targets],
    }
    try:
        remove_leftovers(path)
        with replacing_folder(path) as folder:
            records = {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
            metadata = _describe(raw, len(sources), records)
            metadata = metadata.model_copy(update={"checksum": metadata.content_checksum()})
            text = json.dumps(metadata.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False)
            write_text(folder / FILE_NAME, text + "\n")
    except OSError as error:
        raise UserError(
            f"{path}: the store cannot be written: {error.strerror or error}",
            fix="free some space or choose another place",
        ) from error
    return TrafficStore(path, metadata)


def _describe(raw: RawTraffic, num_edges: int, records: dict[str, ArrayRecord]) -> TrafficMetadata:
    series = raw.series
    num_steps = len(series.timestamps)
    num_train_steps = int(num_steps * TRAIN_SHARE)
    if num_train_steps == 0:
        raise UserError(f"{raw.name} has {num_steps} steps", fix="give readings of more time")
    mean, std, present_share = _scale(series.values[:num_train_steps], raw.name)
    steps = np.diff(series.timestamps)
    lengths, counts = np.unique(steps, return_counts=True)
    interval = int(lengths[counts.argmax()]) if len(lengths) else 1
    begin, end = (str(np.datetime64(int(each), "s")) for each in series.timestamps[[0, -1]])
    return TrafficMetadata(
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
        num_gaps=int(np.count_nonzero(steps != interval)),
        num_missing=int(series.values.size - np.count_nonzero(series.values)),
        num_nan=series.num_nan,
        num_train_steps=num_train_steps,
        mean=mean,
        std=std,
        present_share=present_share,
        arrays=records,
        created_by=f"graphmill {graphmill.__version__}",
    )


def _scale(values: NDArray[np.float32], name: str) -> tuple[float, float, float]:
    """Mean and standard deviation of what is there, and its share; in two passes over slices of rows."""
    slices = [values[begin : begin + _ROWS_AT_A_TIME] for begin in range(0, len(values), _ROWS_AT_A_TIME)]
    count = sum(int(np.count_nonzero(rows)) for rows in slices)
    if count == 0:
        raise UserError(
            f"{name} has no reading in its training steps (the first 70 %)", fix="give readings of more time"
        )
    mean = sum(float(rows.sum(dtype=np.float64)) for rows in slices) / count
    squares = sum(
        float(np.square(rows - mean, where=rows != 0, out=np.zeros_like(rows)).sum(dtype=np.float64)) for rows in slices
    )
    std = float(np.sqrt(squares / count))
    if std == 0:
        raise UserError(f"{name}: every reading of the training steps is {mean}", fix="give readings that differ")
    return mean, std, count / values.size


def is_traffic_store(folder: Path) -> bool:
    """Whether the metadata there, whole or damaged, are those of a traffic store."""
    try:
        with (folder / FILE_NAME).open("rb") as file:
            return f'"{FORMAT}"'.encode() in file.read(_MAX_BYTES)
    except OSError:
        return False


def _read_metadata(folder: Path) -> TrafficMetadata:
    path = folder / FILE_NAME
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise damaged(path, "it is too large for metadata")
        raw = json.loads(path.read_text(encoding="utf-8"))
        metadata = TrafficMetadata.model_validate(raw)
    except FileNotFoundError:
        raise UserError(
            f"{folder} is no traffic store: it has no {FILE_NAME}", fix="prepare it: graphmill prepare NAME --from PATH"
        ) from None
    except ValidationError as error:
        kind = raw.get("format_version") if isinstance(raw, dict) else None
        if kind != FORMAT:
            raise UserError(
                f"{folder} is no traffic store: its format is {kind!r}, not {FORMAT!r}",
                fix="give a prepared traffic dataset (graphmill datasets), or another task",
            ) from None
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:5])
        raise damaged(path, problems) from None
    except UNREADABLE as error:
        raise damaged(path, f"it cannot be read as JSON: {error}") from error
    if metadata.checksum != metadata.content_checksum():
        raise damaged(path, f"its checksum is {metadata.content_checksum()}, and it says {metadata.checksum!r}")
    problem = _disagreement(metadata)
    if problem:
        raise damaged(path, problem)
    return metadata


def _disagreement(metadata: TrafficMetadata) -> str | None:
    steps, sensors, edges = metadata.num_steps, metadata.num_sensors, metadata.num_edges
    expected = {
        "values": ("float32", (steps, sensors)),
        "timestamps": ("int64", (steps,)),
        "edge_index": ("int32", (2, edges)),
        "edge_weight": ("float32", (edges,)),
    }
    found = {name: (record.dtype, record.shape) for name, record in metadata.arrays.items()}
    if found != expected:
        return f"arrays are {found}, and should be {expected}"
    if len(metadata.sensor_ids) != sensors or metadata.num_train_steps > steps:
        return (
            f"{len(metadata.sensor_ids)} sensor ids and {metadata.num_train_steps} training steps do not fit the arrays"
        )
    return None
