"""Readings from files: what is read, what is missing, what is refused."""

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.tasks.traffic.data.series import read_series

VALUES = np.array([[60, 50.5, 1], [0, 40, 2], [61, 30, np.nan]])
TIMES = np.arange(3) * 300 + 1_330_560_000
IDS = ["773869", "767541", "767542"]


def write_hdf(path: Path, values=VALUES, times=TIMES, ids=IDS, *, key="df", unit="[ns]", scale=10**9) -> Path:
    """A frame as pandas writes it in fixed format."""
    with h5py.File(path, "w") as file:
        group = file.create_group(key)
        group["axis0"] = np.array(ids, dtype="S")
        group["block0_items"] = np.array(ids, dtype="S")
        group["block0_values"] = values
        group["axis1"] = np.asarray(times, dtype=np.int64) * scale
        group["axis1"].attrs["kind"] = np.bytes_(f"datetime64{unit}")
        group["axis1"].attrs["freq"] = np.bytes_(b"cos\nsystem\n(S'false'\ntR.")  # a pickle that nobody is to load
    return path


def write_npz(path: Path, values=VALUES, times=TIMES, ids=IDS) -> Path:
    np.savez(path, values=values, timestamps=times, sensor_ids=np.array(ids))
    return path


def write_csv(path: Path, values=VALUES, times=TIMES, ids=IDS) -> Path:
    lines = [",".join(["time", *ids])]
    for time, row in zip(times, values, strict=True):
        cells = ["" if np.isnan(value) else str(value) for value in row]
        lines.append(",".join([str(np.datetime64(int(time), "s")).replace("T", " "), *cells]))
    path.write_text("\n".join(lines) + "\n")
    return path


WRITERS = [(write_hdf, "r.h5"), (write_npz, "r.npz"), (write_csv, "r.csv")]
Writer = Callable[..., Path]


@pytest.mark.parametrize(("write", "name"), WRITERS)
def test_every_layout_gives_the_same_series(tmp_path: Path, write: Writer, name: str) -> None:
    series = read_series(write(tmp_path / name))
    assert series.values.dtype == np.float32
    expected = np.where(VALUES == 0, np.nan, VALUES).astype(np.float32)
    np.testing.assert_array_equal(series.values, expected)
    np.testing.assert_array_equal(series.timestamps, TIMES)
    assert series.sensor_ids == tuple(IDS)
    assert (series.missing, series.num_zero, series.num_nan) == ("zeros", 1, 1)


@pytest.mark.parametrize(("unit", "scale"), [("", 10**9), ("[ns]", 10**9), ("[us]", 10**6), ("[s]", 1)])
def test_hdf_times_of_every_unit(tmp_path: Path, unit: str, scale: int) -> None:
    series = read_series(write_hdf(tmp_path / "r.h5", unit=unit, scale=scale))
    np.testing.assert_array_equal(series.timestamps, TIMES)


def test_csv_times_may_be_seconds(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("time,a\n100,5\n400,6\n")
    np.testing.assert_array_equal(read_series(path).timestamps, [100, 400])


def changed(row: int, column: int, value: float) -> np.ndarray:
    values = VALUES.copy()
    values[row, column] = value
    return values


BAD = [
    ({"times": TIMES[[0, 2, 1]]}, "lies before the one before it"),
    ({"times": TIMES[[0, 1, 1]]}, "is the same as the one before it"),
    ({"values": changed(1, 1, -3)}, "sensor 767541 reads -3.0 at row 1"),
    ({"values": changed(2, 0, np.inf)}, "sensor 773869 reads inf at row 2"),
    ({"values": VALUES * [1, 0, 1]}, "1 of 3 sensors have no reading at all (767541)"),
]


@pytest.mark.parametrize(("write", "name"), WRITERS)
@pytest.mark.parametrize(("change", "says"), BAD)
def test_bad_readings_are_refused(tmp_path: Path, write: Writer, name: str, change: dict, says: str) -> None:
    with pytest.raises(UserError) as raised:
        read_series(write(tmp_path / name, **change))
    assert says in raised.value.message
    assert raised.value.fix


@pytest.mark.parametrize(("write", "name"), WRITERS[:2])
def test_a_sensor_that_is_there_twice_is_refused(tmp_path: Path, write: Writer, name: str) -> None:
    with pytest.raises(UserError, match="sensor 773869 is there twice"):
        read_series(write(tmp_path / name, ids=[IDS[0], IDS[1], IDS[0]]))


def test_hdf_without_a_frame(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "r.h5", "w") as file:
        file["speeds"] = VALUES
    with pytest.raises(UserError, match=r"no DataFrame in fixed format \(keys: speeds\)"):
        read_series(tmp_path / "r.h5")


def test_hdf_with_two_frames(tmp_path: Path) -> None:
    path = write_hdf(tmp_path / "r.h5")
    with h5py.File(path, "a") as file:
        file.copy("df", "other")
    with pytest.raises(UserError, match="holds 2 DataFrames"):
        read_series(path)


def test_hdf_not_indexed_by_time(tmp_path: Path) -> None:
    path = write_hdf(tmp_path / "r.h5")
    with h5py.File(path, "a") as file:
        file["df/axis1"].attrs["kind"] = np.bytes_(b"integer")
    with pytest.raises(UserError, match="indexed by integer, not by time"):
        read_series(path)


@pytest.mark.parametrize("name", ["r.h5", "r.npz", "r.csv"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff" * 50, b"hello"])
def test_no_file_of_readings_at_all(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError):
        read_series(tmp_path / name)


@pytest.mark.parametrize("length", [100, 1000, 3000])
def test_a_file_cut_short(tmp_path: Path, length: int) -> None:
    for write, name in WRITERS[:2]:
        path = write(tmp_path / name)
        path.write_bytes(path.read_bytes()[: min(length, path.stat().st_size - 9)])
        with pytest.raises(UserError):
            read_series(path)


def test_csv_of_words(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("time,a\n2012-03-01 00:00:00,fast\n")
    with pytest.raises(UserError, match=r"column a, line 2: .fast. is not a number"):
        read_series(tmp_path / "r.csv")
    (tmp_path / "r.csv").write_text("time,a\nyesterday,5\n")
    with pytest.raises(UserError, match="column time is not a time"):
        read_series(tmp_path / "r.csv")


def test_another_ending(tmp_path: Path) -> None:
    (tmp_path / "r.xlsx").write_text("")
    with pytest.raises(UserError, match="in no layout"):
        read_series(tmp_path / "r.xlsx")


def test_real_hdf_and_npz_agree(shared: Path) -> None:
    hdf, npz = read_series(shared / "metr-la-10sensors.h5"), read_series(shared / "metr_la_10sensors_full.npz")
    np.testing.assert_array_equal(hdf.values, npz.values)
    np.testing.assert_array_equal(hdf.timestamps, npz.timestamps)
    assert hdf.sensor_ids == npz.sensor_ids
