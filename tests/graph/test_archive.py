"""Archives that would ask for far more memory than they hold."""

import io
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest

from graphmill.base.errors import UserError
from graphmill.base.packed import is_inflated
from graphmill.graph import archive
from graphmill.graph.archive import map_npz, read_npz
from graphmill.tasks.graph_classification.data.read import read_graphs
from graphmill.tasks.intrusion.data.road import read_npz as read_frames
from graphmill.tasks.traffic.data.series import read_series

NUM_BYTES = 300 << 20


def inflated(path: Path, name: str) -> Path:
    """A small archive whose member is 300 MiB of zeros."""
    header = io.BytesIO()
    described = {"descr": "<i8", "fortran_order": False, "shape": (NUM_BYTES // 8,)}
    np.lib.format.write_array_header_1_0(header, described)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as opened:
        with opened.open(f"{name}.npy", "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for _ in range(300):
                member.write(bytes(1 << 20))
        for other in ("a", "b"):
            opened.writestr(other, b"")
    assert path.stat().st_size < 1 << 20
    return path


def test_an_archive_that_would_unpack_to_a_thousand_times_its_size_is_refused(tmp_path):
    path = inflated(tmp_path / "x.npz", "edge_index")
    for read in (
        lambda: read_npz(path, required=["edge_index"]),
        lambda: map_npz(path, "edge_index", tmp_path / "scratch"),
        lambda: read_frames(path),
    ):
        with pytest.raises(UserError, match="would unpack to") as refused:
            read()
        assert "without compression" in refused.value.fix
    assert not (tmp_path / "scratch").exists()
    with zipfile.ZipFile(path, "r") as opened, zipfile.ZipFile(tmp_path / "stored.npz", "w") as stored:
        stored.writestr("edge_index.npy", opened.read("edge_index.npy"))
    assert len(read_npz(tmp_path / "stored.npz", required=["edge_index"])["edge_index"]) == NUM_BYTES // 8, "as told"


def test_so_is_one_of_texts(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as opened:
        for part in ("A", "graph_indicator", "graph_labels"):
            opened.writestr(f"X_{part}.txt", b"1\n" * (150 << 20 if part == "A" else 1))
    with pytest.raises(UserError, match="would unpack to"):
        read_graphs(tmp_path / "x.zip")


def test_members_that_share_their_bytes_are_refused(tmp_path):
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "x.npz", "w") as opened:
        warnings.simplefilter("ignore")
        for name in ("a", "b"):
            content = io.BytesIO()
            np.save(content, np.arange(1000))
            if name == "a":
                opened.writestr("a.npy", content.getvalue())
        shared = zipfile.ZipInfo("b.npy")
        first = opened.getinfo("a.npy")
        for field in ("compress_size", "file_size", "CRC", "header_offset", "compress_type"):
            setattr(shared, field, getattr(first, field))
        opened.filelist.append(shared)
    with pytest.raises(UserError, match="more bytes than it"):
        read_npz(tmp_path / "x.npz", required=["a", "b"])


def test_readings_that_are_not_in_the_file_are_refused(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        frame = file.create_group("df")
        frame.create_dataset("block0_values", shape=(1 << 20, 1 << 10), dtype="f4", chunks=(64, 64))
        frame["block0_items"] = np.arange(3).astype("S4")
        frame["axis1"] = np.arange(3)
        frame["axis1"].attrs["kind"] = "datetime64"
    with pytest.raises(UserError, match="bytes are there"):
        read_series(tmp_path / "x.h5")


def test_small_arrays_may_be_zeros():
    assert not is_inflated(100 << 20, 1000)
    assert is_inflated(NUM_BYTES, 1000)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_large_arrays_that_may_be_mapped_are(tmp_path, monkeypatch, write):
    """So that they need not fit into memory; what is compressed lies in a file without a name, gone with the array."""
    x = np.random.default_rng(0).random((300, 7))
    arrays = {"x": x, "edge_index": np.arange(20).reshape(2, 10), "y": np.arange(300), "turned": np.asfortranarray(x)}
    write(tmp_path / "graph.npz", **arrays)
    monkeypatch.setattr(archive, "MAPPED_BYTES", 1000)
    found = read_npz(
        tmp_path / "graph.npz", required=arrays, mapped=("x", "edge_index", "turned"), scratch=tmp_path / "scratch"
    )
    assert all(np.array_equal(found[key], value) for key, value in arrays.items())
    assert {key for key, value in found.items() if not value.flags.writeable} == {"x", "turned"}
    assert not list(tmp_path.glob("scratch/*"))
    if write is np.savez:
        assert not (tmp_path / "scratch").exists()


def test_a_mapped_array_that_is_damaged_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "graph.npz"
    np.savez(path, x=np.arange(1000.0))
    damaged = bytearray(path.read_bytes())
    damaged[4000] ^= 1
    path.write_bytes(damaged)
    monkeypatch.setattr(archive, "MAPPED_BYTES", 1000)
    with pytest.raises(UserError, match="key x"):
        read_npz(path, required=("x",), mapped=("x",), scratch=tmp_path)


THREADS = """
import gc, io, sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from graphmill.graph.arrays import read_npy_array, read_npy_header

sys.setswitchinterval(1e-6)
gc.callbacks.append(lambda *_: time.sleep(0))  # another thread has its turn, also while a header is parsed
gc.set_threshold(20)
file = io.BytesIO()
np.save(file, np.zeros((3, 4), dtype=[("a", "<f4"), ("b", "<i8")]))

def read(_):
    for _ in range(300):
        read_npy_header(io.BytesIO(file.getvalue()))
        read_npy_array(io.BytesIO(file.getvalue()))

with ThreadPoolExecutor(8) as pool:
    list(pool.map(read, range(16)))
"""


def test_threads_read_headers_though_python_3_11_parses_for_one_only(source_environ):
    """Without a lock half of such threads end with a SystemError: AST constructor recursion depth mismatch."""
    subprocess.run([sys.executable, "-c", THREADS], env=source_environ, check=True)
