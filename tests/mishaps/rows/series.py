"""Series of many sensors over time, in every format that is read, as loggers and scripts leave them."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rows.mishap import Mishap

BEGIN = 1_700_000_100
TIMES = BEGIN + 300 * np.arange(60)
VALUES = np.random.default_rng(0).uniform(1, 9, (60, 3)).astype(np.float32)
RING = np.roll(np.eye(3, dtype=np.float32), 1, axis=1)
SERIES: dict[str, Any] = {
    "values": VALUES,
    "timestamps": TIMES,
    "sensor_ids": np.array(["a", "b", "c"]),
    "adj": RING,
}
MADE = ("root",)


def series(**changes: Any) -> Callable[[Path], object]:
    """Write series.npz with some arrays changed, or left out (None)."""
    arrays = {name: value for name, value in {**SERIES, **changes}.items() if value is not None}
    return lambda folder: np.savez(folder / "series.npz", **arrays)


def cell(row: int, value: float) -> np.ndarray:
    """The readings with one of sensor b replaced."""
    values = VALUES.copy()
    values[row, 1] = value
    return values


def wide(text: str, name: str = "series.csv") -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def rows_of(*lines: str) -> str:
    good = [f"2024-01-01 {hour:02}:00:00,{hour + 1},{hour + 2}" for hour in range(24)]
    return "\n".join(["time,a,b", *good, *lines, ""])


def hdf(**frames: Any) -> Callable[[Path], object]:
    """Write an HDF5 file of plain datasets, as h5py and MATLAB do; pandas' layout is another."""

    def make(folder: Path) -> None:
        import h5py

        with h5py.File(folder / "series.h5", "w") as file:
            for name, array in frames.items():
                file[name] = array

    return make


def adjacency(name: str, write: Callable[[Path], object]) -> Callable[[Path], object]:
    """A good series without its graph, and a graph of its own."""

    def make(folder: Path) -> None:
        series(adj=None)(folder)
        write(folder / name)

    return make


def matrix(array: Any) -> Callable[[Path], object]:
    return adjacency("adj.npy", lambda path: np.save(path, array))


def basicts(description: object, data: bytes = VALUES.tobytes()) -> Callable[[Path], object]:
    def make(folder: Path) -> None:
        (folder / "series").mkdir()
        text = description if isinstance(description, str) else json.dumps(description)
        (folder / "series" / "desc.json").write_text(text)
        (folder / "series" / "data.dat").write_bytes(data)

    return make


def npz(name: str, make: Callable[[Path], object], *says: str, options: str = "", **more: Any) -> Mishap:
    words = f"prepare mine --from series.npz --task traffic --dataset-root root {options}"
    return Mishap(f"series: {name}", words, says, make, **more)


def of(file: str, name: str, make: Callable[[Path], object], *says: str, options: str = "", **more: Any) -> Mishap:
    words = f"prepare mine --from {file} --task traffic --dataset-root root {options}"
    return Mishap(f"series {file}: {name}", words, says, make, **more)


def prepared_without_graph(folder: Path) -> None:
    from graphmill.tasks.traffic.data.prepare import prepare_traffic

    series(adj=None)(folder)
    prepare_traffic("mine", root=folder, from_path=folder / "series.npz")


DONE: dict[str, Any] = {"status": 0, "leaves": MADE}
JITTER = TIMES + np.random.default_rng(1).integers(-4, 5, len(TIMES))
GRAPH = "--adjacency adj.npy"
DESCRIPTION = {"shape": [60, 3, 1], "frequency (minutes)": 5, "feature_description": ["flow"]}

ROWS = [
    npz("cut short", lambda f: (series()(f), (f / "series.npz").write_bytes(b"PK\x03\x04")), "series.npz"),
    npz("no values", series(values=None), "values"),
    npz("no times", series(timestamps=None), "timestamps"),
    npz("no ids", series(sensor_ids=None), "sensor_ids"),
    npz("turned round", series(values=VALUES.T), "60", "3"),
    npz("of one dimension", series(values=VALUES[:, 0]), "values", "[60]"),
    npz("of three dimensions", series(values=VALUES[:, :, None]), "values", "[60, 3, 1]"),
    npz("words", series(values=VALUES.astype(str)), "values"),
    npz("complex", series(values=VALUES.astype(np.complex64)), "values", "complex64"),
    npz("pickled", series(values=VALUES.astype(object)), "values", "objects"),
    npz("a time too few", series(timestamps=TIMES[:-1]), "59", "60"),
    npz("an id too few", series(sensor_ids=np.array(["a", "b"])), "2", "3"),
    npz("an id twice", series(sensor_ids=np.array(["a", "b", "a"])), "a"),
    npz("times that fall", series(timestamps=TIMES[::-1]), "time"),
    npz("a time twice", series(timestamps=np.repeat(TIMES[::2], 2)), "time"),
    npz("a time that is NaN", series(timestamps=np.where(TIMES == BEGIN, np.nan, TIMES)), "not a number"),
    npz("times of words", series(timestamps=np.array(["monday"] * 60)), "timestamps"),
    npz("a clock that jitters", series(timestamps=JITTER), "the clock jitters", "interval_s=300"),
    npz("a grid too coarse", series(), "3600", options="-o interval_s=3600"),
    npz("an infinite reading", series(values=cell(3, np.inf)), "sensor b", "inf", "row 3"),
    npz("a negative reading", series(values=cell(3, -1)), "sensor b", "-1", "missing=nan"),
    npz("NaN though never", series(values=cell(3, np.nan)), "nan", "row 3", options="-o missing=never"),
    npz("a sensor of zeros", series(values=VALUES * np.array([1, 0, 1])), "no reading", "b", "missing=nan"),
    npz("all missing", series(values=VALUES * np.nan), "no reading"),
    npz("one step", series(values=VALUES[:1], timestamps=TIMES[:1]), "1"),
    npz("no sensor", series(values=VALUES[:, :0], sensor_ids=np.zeros(0, "<U1"), adj=None), "sensor"),
    npz("a word for missing", series(), "missing", "nan", options="-o missing=sometimes"),
    npz("an interval of zero", series(), "interval_s", options="-o interval_s=0"),
    npz("an option of a generator", series(), "num_sensors", options="-o num_sensors=3"),
    npz("an option that nobody knows", series(), "mising", "missing", options="-o mising=nan"),
    npz("a graph of another size", series(adj=np.eye(4)), "4", "3"),
    npz("a graph that is not square", series(adj=np.ones((3, 2))), "[3, 2]"),
    npz("a graph with NaN", series(adj=RING * np.nan), "edge", "nan"),
    npz("a graph with negative weights", series(adj=-RING), "-1"),
    of("series.npz", "a graph that is not there", series(adj=None), "adj.npy does not exist", options=GRAPH),
    of("series.npz", "a matrix of another size", matrix(np.eye(4)), "4", "3", options=GRAPH),
    of("series.npz", "a matrix of objects", matrix(np.eye(3).astype(object)), "adj.npy", options=GRAPH),
    of("series.npz", "a matrix of words", matrix(np.eye(3).astype(str)), "adj.npy", options=GRAPH),
    of("series.npz", "a pickle that runs code",
       adjacency("adj.pkl", lambda path: path.write_bytes(pickle.dumps(print))), "adj.pkl",
       options="--adjacency adj.pkl"),
    of("series.npz", "a pickle that is none", adjacency("adj.pkl", lambda path: path.write_bytes(b"abc")), "adj.pkl",
       options="--adjacency adj.pkl"),
    of("series.npz", "distances without their ids",
       adjacency("distances.csv", lambda path: path.write_text("from,to,cost\na,b,1\n")), "graph_sensor_ids.txt",
       options="--adjacency distances.csv"),
    of("series.npz", "a graph in a spreadsheet", adjacency("adj.xlsx", lambda path: path.write_bytes(b"PK")),
       "adj.xlsx", ".npy", options="--adjacency adj.xlsx"),
    of("series.csv", "empty", wide(""), "series.csv"),
    of("series.csv", "a header alone", wide("time,a,b\n"), "series.csv"),
    of("series.csv", "no sensor", wide("time\n2024-01-01\n"), "series.csv"),
    of("series.csv", "a word among readings", wide(rows_of("2024-01-02 00:00:00,broken,1")), "broken", "column a",
       "line 26"),
    of("series.csv", "a day that is none", wide(rows_of("2024-02-31 00:00:00,1,1")), "2024-02-31"),
    of("series.csv", "a day first", wide("time,a\n31/12/2023 10:00,1\n31/12/2023 11:00,2\n"),
       "31/12/2023", "2023-12-31"),
    of("series.csv", "an hour out of order", wide(rows_of("2024-01-01 05:00:00,1,1")), "time"),
    of("series.csv", "a sensor twice", wide(rows_of().replace("a,b", "a,a")), "two columns", "'a'"),
    of("series.csv", "a field too many", wide(rows_of("2024-01-02 00:00:00,1,1,1")), "series.csv"),
    of("series.csv", "semicolons", wide(rows_of().replace(",", ";")), "the separator is ;", **DONE),
    of("series.csv", "Latin-1", lambda f: (f / "series.csv").write_bytes("time,straße\n1,2\n".encode("latin-1")),
       "series.csv", "utf-8"),
    of("series.h5", "cut short", lambda f: (f / "series.h5").write_bytes(b"\x89HDF\r\n\x1a\n"), "series.h5"),
    of("series.h5", "a text", lambda f: (f / "series.h5").write_text("hello"), "series.h5"),
    of("series.h5", "of MATLAB", hdf(speeds=VALUES), "series.h5", "pandas"),
    of("series", "no description that can be read", basicts("{"), "desc.json"),
    of("series", "a description without a shape", basicts({"frequency (minutes)": 5}), "shape"),
    of("series", "data shorter than described", basicts(DESCRIPTION, VALUES.tobytes()[:-4]), "data.dat"),
    of("series.xlsx", "a spreadsheet", wide("PK", "series.xlsx"), "series.xlsx"),
    of("series.h5", "not there", lambda folder: None, "series.h5", "does not exist"),
    npz("zeros", series(values=cell(3, 0)), "1 zeros", "missing=nan", **DONE),
    npz("no unit", series(), "--unit", **DONE),
    npz("no graph", series(adj=None), "no graph", "--adjacency", **DONE),
    npz("milliseconds", series(timestamps=TIMES * 1000), "milliseconds", "2023-11-14", **DONE),
    npz("a gap", series(timestamps=TIMES + 3000 * (np.arange(60) > 30)), "1", **DONE),
    Mishap("series: taken for a graph", "prepare mine --from series.npz --task node_classification",
           ("edge_index",), series()),
    Mishap("series: dcrnn without a graph",
           "plan traffic-demo -O dataset.name=mine -O dataset.history=3 -O dataset.horizon=2 --dataset-root .",
           ("model.kind=stid", "dataset.graph=identity"),
           prepared_without_graph),
    Mishap("series: nodes to classify in a task of readings",
           "plan traffic-demo -O dataset.name=synthetic/sbm", ("synthetic/sbm", "node_classification")),
    Mishap("series: readings in a task of nodes",
           "plan toy.yaml -O dataset.name=mine --dataset-root .", ("mine", "traffic"),
           prepared_without_graph),
]  # fmt: skip
