"""A series of one's own: what `prepare` reads, what it says, and what it refuses with what to type."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.spec.plan import MachineInfo
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.traffic.data.prepare import prepare_traffic
from graphmill.tasks.traffic.data.read import holds_readings
from graphmill.tasks.traffic.data.store import TrafficStore
from graphmill.tasks.traffic.page import TrafficExperiment

BEGIN = 1_700_000_100  # 2023-11-14 22:15
TIMES = BEGIN + 300 * np.arange(60)
VALUES = np.random.default_rng(0).uniform(1, 9, (60, 3)).astype(np.float32)
RING = np.roll(np.eye(3, dtype=np.float32), 1, axis=1)


def prepared(
    folder: Path, *, values=VALUES, times=TIMES, more: dict[str, Any] | None = None, **options
) -> TrafficStore:
    np.savez(folder / "own.npz", values=values, timestamps=times, sensor_ids=np.array(["a", "b", "c"]), **(more or {}))
    return prepare_traffic("own", root=folder, from_path=folder / "own.npz", options=options)


def planned(store: TrafficStore, **experiment) -> None:
    asked = {"dataset": {"name": str(store.path), "history": 3, "horizon": 2}, "train": {"epochs": 1}, **experiment}
    machine = MachineInfo(num_cores=2, num_gpus=0)
    plan_experiment(
        TrafficExperiment.model_validate(asked), dataset_root=store.path.parent, run_id="r", machine=machine
    )


@pytest.mark.parametrize(("unit", "per_s"), [("milli", 10**3), ("micro", 10**6), ("nano", 10**9)])
def test_times_in_thousandths_are_known_by_their_size(tmp_path: Path, caplog, unit: str, per_s: int) -> None:
    caplog.set_level("INFO")
    store = prepared(tmp_path, times=TIMES * per_s)
    np.testing.assert_array_equal(store.timestamps, TIMES)
    assert f"times are read as {unit}seconds since 1970: 2023-11-14T22:15:00" in caplog.text


def test_times_may_be_numbers_with_a_point(tmp_path: Path) -> None:
    np.testing.assert_array_equal(prepared(tmp_path, times=TIMES.astype(np.float64)).timestamps, TIMES)


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (np.where(TIMES == BEGIN, np.nan, TIMES), "a time is not a number"),
        (BEGIN * 1000 + 100 * np.arange(60), "within one second"),
        (np.full(60, np.datetime64("NaT", "s")), "NaT"),
    ],
)
def test_times_that_are_none(tmp_path: Path, times, says: str) -> None:
    with pytest.raises(UserError, match=says):
        prepared(tmp_path, times=times)


def jittered() -> np.ndarray:
    return TIMES + np.random.default_rng(1).integers(-4, 5, len(TIMES))


def test_a_clock_that_jitters_is_refused_and_the_advice_works(tmp_path: Path, caplog) -> None:
    with pytest.raises(UserError, match="the clock jitters") as raised:
        prepared(tmp_path, times=jittered())
    assert "-o interval_s=300" in raised.value.fix
    caplog.set_level("INFO")
    store = prepared(tmp_path, times=jittered(), interval_s=300)
    assert (store.metadata.num_gaps, store.metadata.interval_s) == (0, 300)
    assert np.abs(np.asarray(store.timestamps) - TIMES).max() <= 4
    assert "grid of 300 s" in caplog.text


def test_rows_that_meet_on_the_grid_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="meet another at one step"):
        prepared(tmp_path, interval_s=3600)


def test_a_gap_of_whole_intervals_is_no_jitter(tmp_path: Path) -> None:
    times = TIMES + 300 * 40 * (np.arange(60) // 20)  # nights are left out
    assert prepared(tmp_path, times=times).metadata.num_gaps == 2


def with_cells(**cells: float) -> np.ndarray:
    values = VALUES.copy()
    for name, value in cells.items():
        values[int(name[1:]), 1] = value
    return values


def test_zeros_are_missing_and_prepare_says_so(tmp_path: Path, caplog) -> None:
    caplog.set_level("INFO")
    store = prepared(tmp_path, values=with_cells(r3=0, r4=0, r5=np.nan))
    assert (store.metadata.num_missing, store.metadata.num_zero) == (3, 2)
    assert "2 zeros and 1 NaNs or empty cells" in caplog.text
    assert "-o missing=nan" in caplog.text


def test_with_missing_nan_a_zero_is_a_reading(tmp_path: Path) -> None:
    store = prepared(tmp_path, values=with_cells(r3=0, r4=-2.5, r5=np.nan), missing="nan")
    np.testing.assert_array_equal(store.values[3:6, 1], [0, -2.5, np.nan])
    assert (store.metadata.num_missing, store.metadata.missing) == (1, "nan")


@pytest.mark.parametrize(
    ("cell", "missing", "fix"),
    [(np.nan, "never", "-o missing=nan"), (-1, "zeros", "-o missing=nan"), (np.inf, "nan", "write NaN")],
)
def test_readings_that_cannot_be(tmp_path: Path, cell: float, missing: str, fix: str) -> None:
    with pytest.raises(UserError, match=f"sensor b reads {float(cell)} at row 3") as raised:
        prepared(tmp_path, values=with_cells(r3=cell), missing=missing)
    assert fix in raised.value.fix


def test_a_sensor_of_zeros_alone(tmp_path: Path) -> None:
    values = VALUES * np.array([1, 0, 1], dtype=np.float32)
    with pytest.raises(UserError, match="no reading at all") as raised:
        prepared(tmp_path, values=values)
    assert "-o missing=nan" in raised.value.fix
    assert prepared(tmp_path, values=values, missing="never").metadata.num_missing == 0


def test_a_unit_that_is_not_given_is_not_guessed(tmp_path: Path, caplog) -> None:
    caplog.set_level("INFO")
    assert prepared(tmp_path).metadata.unit == ""
    assert "--unit" in caplog.text


def test_without_a_graph_only_a_model_that_needs_one_stops(tmp_path: Path) -> None:
    store = prepared(tmp_path)
    assert store.metadata.num_edges == 0
    with pytest.raises(UserError, match=r"model\.kind=dcrnn reads a graph") as raised:
        planned(store)
    assert all(words in raised.value.fix for words in ("model.kind=stid", "dataset.graph=identity", "--adjacency"))
    planned(store, model={"kind": "stid"})
    planned(store, dataset={"name": str(store.path), "history": 3, "horizon": 2, "graph": "identity"})


def test_options_of_the_generator_are_not_of_files_nor_the_reverse(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not generated and takes no num_steps"):
        prepared(tmp_path, num_steps=3)
    with pytest.raises(UserError, match="is generated and takes no unit"):
        prepare_traffic("synthetic/traffic", root=tmp_path, options={"unit": "km/h"})


def test_largests_matrix(tmp_path: Path) -> None:
    np.save(tmp_path / "ca_rn_adj.npy", RING)
    store = prepared(tmp_path, adjacency=str(tmp_path / "ca_rn_adj.npy"))
    np.testing.assert_array_equal(store.edge_index, [[0, 1, 2], [1, 2, 0]])
    np.save(tmp_path / "other.npy", np.eye(4))
    with pytest.raises(UserError, match="4 rows and no sensor ids"):
        prepared(tmp_path / "..", adjacency=str(tmp_path / "other.npy"))


def test_a_matrix_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "adj.npy", np.array([[print]], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects"):
        prepared(tmp_path, adjacency=str(tmp_path / "adj.npy"))


def basicts(folder: Path, *, clock: tuple[float, float] = (0.25, 2 / 7), **changes: Any) -> Path:
    folder.mkdir()
    data = np.zeros((60, 3, 3), dtype="<f4")
    data[..., 0] = VALUES
    data[0, :, 1:] = clock
    data.tofile(folder / "data.dat")
    channels = ["traffic flow", "time of day", "day of week"]
    said = {"name": "PEMS", "shape": [60, 3, 3], "frequency (minutes)": 5, "feature_description": channels, **changes}
    (folder / "desc.json").write_text(json.dumps(said))
    (folder / "adj_mx.pkl").write_bytes(pickle.dumps(RING))
    return folder


def test_basicts(tmp_path: Path, caplog) -> None:
    caplog.set_level("INFO")
    store = prepare_traffic("p", root=tmp_path, from_path=basicts(tmp_path / "PEMS"), options={"unit": "vehicles"})
    np.testing.assert_array_equal(store.values, VALUES)
    assert store.metadata.begin == "1970-01-07T06:00:00"  # a Wednesday, as its first row says
    assert (store.metadata.num_edges, store.metadata.interval_s) == (3, 300)
    assert "has no dates" in caplog.text
    assert "dates made up" in store.metadata.source


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shape": [61, 3, 3]}, "data.dat has 2160 bytes"),
        ({"shape": "many"}, "cannot be read"),
        ({"feature_description": ["flow", "x", "y"]}, "the clock is not there"),
        ({"feature_description": ["flow"]}, "1 channels are named"),
        ({"clock": (6.0, 2.0)}, "not shares of a day and a week"),
    ],
)
def test_basicts_that_does_not_hold_together(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        prepare_traffic("p", root=tmp_path, from_path=basicts(tmp_path / "PEMS", **changes))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time,a\n2023-01-01 00:00:00,1\n,2\n", "row 1 has no time"),
        ("time,a\n2023-01-01T00:00:00+0100,1\n2023-01-01T00:05:00+0100,2\n", "have a zone"),
    ],
)
def test_csv_times(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "own.csv").write_text(text)
    with pytest.raises(UserError, match=says):
        prepare_traffic("own", root=tmp_path, from_path=tmp_path / "own.csv")


def test_a_table_is_a_series_if_its_first_column_is_called_a_time(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text('"Timestamp",a\n2023-01-01,1\n')
    (tmp_path / "nodes.csv").write_text("id,label,split\n0,a,train\n")
    assert holds_readings(tmp_path / "own.csv")
    assert not holds_readings(tmp_path / "nodes.csv")
