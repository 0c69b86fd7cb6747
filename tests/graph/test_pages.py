"""Pages that a process has given back are found again, and are no longer counted as its own."""

import numpy as np
import psutil
import pytest

from graphmill.graph.arrays import map_array, record_of, write_array
from graphmill.graph.pages import evict

ROWS, COLUMNS = 5000, 301  # rows that begin anywhere within a page


@pytest.fixture
def stored(tmp_path):
    values = np.random.default_rng(7).integers(0, 1 << 30, (ROWS, COLUMNS))
    return values, map_array(tmp_path / "x.npy", write_array(tmp_path / "x.npy", values))


@pytest.mark.parametrize("rows", [slice(None), slice(0, 1), slice(17, 3001), slice(ROWS - 1, None), slice(5, 5)])
def test_what_is_forgotten_is_read_again(stored, rows):
    values, mapped = stored
    assert np.array_equal(mapped, values)
    evict(mapped[rows])
    assert np.array_equal(mapped, values)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(1_000_000, dtype=np.float16),
        np.arange(300_000).reshape(3, -1).T,
        np.arange(700_000) % 2 == 0,
        np.array(["a", "bcd"] * 1000),
        np.zeros((0, 5)),
        np.arange(10, dtype=">i4"),
        np.float32(3),
    ],
    ids=["float16", "turned", "bool", "text", "empty", "big-endian", "one number"],
)
def test_an_array_is_written_as_numpy_writes_it(tmp_path, values):
    record = write_array(tmp_path / "x.npy", values)
    wanted = np.ascontiguousarray(values, dtype=np.asarray(values).dtype.newbyteorder("<"))
    np.save(tmp_path / "numpys.npy", wanted)
    assert (tmp_path / "x.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()
    assert record == record_of(tmp_path / "x.npy")


@pytest.mark.parametrize("rows", [slice(None), slice(17, 3001)])
def test_what_was_written_is_kept(tmp_path, rows):
    mapped = np.memmap(tmp_path / "rows", dtype=np.float32, mode="w+", shape=(ROWS, COLUMNS), offset=52)
    values = np.random.default_rng(7).random((ROWS, COLUMNS), dtype=np.float32)
    mapped[rows] = values[rows]
    evict(mapped[rows])
    assert np.array_equal(mapped[rows], values[rows])


def test_changes_that_only_the_process_has_stay(tmp_path):
    write_array(tmp_path / "x.npy", np.zeros(100_000))
    own = np.memmap(tmp_path / "x.npy", dtype=np.float64, mode="c", offset=128)
    own[:] = 3
    evict(np.asarray(own)[10:])
    in_memory = np.full(100_000, 3.0)
    evict(in_memory)
    assert np.all(own == 3)
    assert np.all(in_memory == 3)


def test_a_process_does_not_count_what_it_forgot(stored):
    _, mapped = stored
    mapped.sum()
    before = psutil.Process().memory_info().shared
    evict(mapped)
    assert before - psutil.Process().memory_info().shared > 0.9 * mapped.nbytes
