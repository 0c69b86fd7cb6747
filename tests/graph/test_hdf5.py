"""HDF5 in a process of its own: what becomes of one that crashes, does not end, or takes all memory."""

import os
import signal
import threading

import h5py
import numpy as np
import psutil
import pytest
from waiting import wait_until

from graphmill.base.errors import UserError
from graphmill.graph import hdf5
from graphmill.graph.hdf5 import Rows, described, row, tree, write_columns


@pytest.fixture
def reader(monkeypatch):
    own = hdf5._ReaderProcess()
    monkeypatch.setattr(hdf5, "_reader", own)
    return own


@pytest.fixture
def path(tmp_path, reader):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["numbers"] = np.arange(12, dtype=">i4")
        file["group/texts"] = np.array([b"a", "é".encode()])
        file["numbers"].attrs["unit"] = "mph"
        file["numbers"].attrs["count"] = np.int16(12)
        file["gone"] = h5py.SoftLink("/nowhere")
        lengths = file.create_dataset("vectors", (3,), h5py.vlen_dtype(np.float64))
        for number in range(3):
            lengths[number] = np.arange(number)
    return tmp_path / "x.h5"


def test_what_is_in_a_file_is_read_as_it_is(path):
    assert tree(path) == {"numbers": None, "group": ["texts"], "gone": None, "vectors": None}
    found = described(path, ["numbers", "group"], ["unit", "count", "none"])
    assert (found["numbers"].shape, found["numbers"].dtype, found["numbers"].kind) == ((12,), ">i4", "i")
    assert found["numbers"].attributes == {"unit": "mph", "count": 12}
    assert found["group"].shape is None
    assert Rows(path, "numbers", 12)[2:5].tolist() == [2, 3, 4]
    assert Rows(path, "group/texts", 2)[:] == ["a", "é"]
    assert row(path, ["numbers", "vectors"], 2, keep=False)["vectors"].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", ["raw", "link", "through", "virtual", "folder/numbers"])
def test_nothing_is_read_of_other_files_that_one_names(path, tmp_path, name):
    """Whoever made it may name any file that the reader may read, and what is prepared of it is handed on."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"only the owner's" * 4)
    with h5py.File(tmp_path / "theirs.h5", "w") as file:
        file.create_dataset("raw", (16,), np.int32, external=[(str(secret), 0, 64)])
        file["link"] = h5py.ExternalLink(str(path), "/numbers")
        file["folder"] = h5py.ExternalLink(str(path), "/")
        file["through"] = h5py.SoftLink("/folder/numbers")
        layout = h5py.VirtualLayout((12,), np.int32)
        layout[:] = h5py.VirtualSource(str(path), "numbers", (12,))
        file.create_virtual_dataset("virtual", layout)
    for ask in (
        lambda: described(tmp_path / "theirs.h5", [name]),
        lambda: Rows(tmp_path / "theirs.h5", name, 12)[0:2],
        lambda: row(tmp_path / "theirs.h5", [name], 0, keep=False),
    ):
        with pytest.raises(ValueError, match=f"{name} is virtual, or lies in another file"):
            ask()


def test_what_hdf5_says_itself_is_a_value_error(path, tmp_path):
    for ask in (
        lambda: described(path, ["gone"]),
        lambda: row(path, ["absent"], 0, keep=False),
        lambda: tree(tmp_path / "absent.h5"),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            ask()
    assert tree(path)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_reader_that_crashes_is_told_and_the_next_one_reads(path, reader, number):
    row(path, ["numbers"], 0, keep=True)
    process = psutil.Process(reader._process.pid)
    process.suspend()  # it is in the middle of an answer
    threading.Timer(0.2, lambda: (os.kill(process.pid, number), process.resume())).start()
    with pytest.raises(UserError, match=rf"x\.h5 cannot be read as HDF5: HDF5 crashed \({number.name}\)"):
        row(path, ["numbers"], 1, keep=True)
    assert row(path, ["numbers"], 1, keep=False)["numbers"] == 1


def test_an_answer_has_a_limit_of_time(path, tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5, "ANSWER_WITHIN_S", 1)
    os.mkfifo(tmp_path / "never.h5")  # opening it waits for a writer
    with pytest.raises(UserError, match=r"never\.h5 .* did not end within 1 s"):
        tree(tmp_path / "never.h5")


def test_an_answer_has_a_limit_of_memory(path, tmp_path):
    with h5py.File(tmp_path / "wide.h5", "w") as file:
        file.create_dataset("x", (1 << 20, 1 << 12), "f8", chunks=(1 << 10, 1 << 10))  # nothing of it is stored
    with pytest.raises((ValueError, UserError)):
        Rows(tmp_path / "wide.h5", "x", 1 << 20)[:]
    assert Rows(tmp_path / "wide.h5", "x", 1 << 20)[:2].shape == (2, 1 << 12)


def test_a_reader_that_is_not_asked_ends_and_is_started_again(path, reader):
    tree(path)
    first = reader._process
    wait_until(lambda: first.poll() is not None, "it ends by itself")
    assert first.returncode == 0
    assert tree(path)
    assert reader._process is not first


def test_a_file_that_is_not_read_on_is_closed(path, reader):
    row(path, ["numbers"], 0, keep=True)
    process = psutil.Process(reader._process.pid)
    assert [each.path for each in process.open_files()] == [str(path)]
    row(path, ["numbers"], 1, keep=False)
    assert process.open_files() == []


def test_a_file_that_is_open_to_be_read_may_be_written_but_none_that_is_written_is_read(path):
    row(path, ["numbers"], 0, keep=True)
    with h5py.File(path, "r+") as file:
        row(path, ["numbers"], 0, keep=False)
        file["numbers"][0] = 7
        with pytest.raises(ValueError, match="lock"):
            tree(path)
    assert row(path, ["numbers"], 0, keep=False)["numbers"] == 7


def test_columns_are_written_row_by_row_and_a_failure_says_why(tmp_path, reader):
    columns = {"text": "text", "number": "<i4", "vector": "<f8 variable"}
    rows = [{"text": "é", "number": 3, "vector": np.arange(number)} for number in range(4)]
    write_columns(tmp_path / "y.h5", columns, {"records": 4}, iter(rows), 4)
    assert described(tmp_path / "y.h5", ["/"], ["records"])["/"].attributes == {"records": 4}
    assert row(tmp_path / "y.h5", ["text", "vector"], 3, keep=False)["vector"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(OSError, match="No such file"):
        write_columns(tmp_path / "no" / "y.h5", columns, {}, iter(rows), 4)


def test_a_writer_ends_with_its_source(tmp_path):
    def rows():
        yield {"number": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_columns(tmp_path / "y.h5", {"number": "<i4"}, {}, rows(), 2)
    alive = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    assert not [each for each in alive if "write" in each.cmdline()]
