"""Compressed files that would unpack to far more than they hold."""

import gzip
import lzma
import zlib

import polars as pl
import pytest

from graphmill.base.errors import UserError
from graphmill.base.packed import csv_source, open_packed
from graphmill.graph.csv_header import csv_header
from graphmill.graph.tables import (
    count_columns,
    read_headerless,
    read_integers,
    read_table,
)
from graphmill.record.traces import merge
from graphmill.tasks.intrusion.data.captures import read_capture
from graphmill.tasks.traffic.data.series import read_series

MIB = 1 << 20


@pytest.fixture(scope="module")
def bombs(tmp_path_factory):
    """Files of well below a MiB that unpack to 300."""
    folder = tmp_path_factory.mktemp("bombs")
    with gzip.open(folder / "x.csv.gz", "wb", compresslevel=9) as file:
        file.write(b"src,dst\n")
        for _ in range(300):
            file.write(b"0,1\n" * (MIB // 4))
    with lzma.open(folder / "x.xz", "wb", preset=1) as file:
        for _ in range(300):
            file.write(b"Package: x\n\n" * (MIB // 12))
    (folder / "x.csv").write_bytes((folder / "x.csv.gz").read_bytes())  # polars goes by what is in it
    pl.DataFrame({name: pl.repeat(0, 20_000_000, eager=True) for name in ("src", "dst")}).write_parquet(
        folder / "x.parquet"
    )
    assert all(path.stat().st_size < MIB for path in folder.iterdir())
    return folder


READERS = {
    "x.csv.gz": lambda path: read_table(path, ["src"]),
    "x.csv": lambda path: read_integers(path, ["src", "dst"]),
    "x.parquet": lambda path: read_integers(path, ["src", "dst"]),
    "x.xz": lambda path: open_packed(path).read(),
}


@pytest.mark.parametrize("name", READERS)
def test_what_would_unpack_to_hundreds_of_times_its_size_is_refused(bombs, name):
    with pytest.raises(UserError, match=r"would unpack to more than|rows of 2 columns"):
        READERS[name](bombs / name)


def test_so_are_a_capture_a_table_without_header_readings_and_a_trace(tmp_path, monkeypatch):
    """Of 40 MiB, where 16 may do harm."""
    monkeypatch.setattr("graphmill.base.packed._SUSPECT_BYTES", 16 * MIB)
    bomb = tmp_path / "x.csv.gz"
    bomb.write_bytes(gzip.compress(b"src,dst\n" + b"0,1\n" * (10 * MIB)))
    (tmp_path / "x.csv").write_bytes(bomb.read_bytes())
    for read in (
        lambda: read_capture(bomb, "csv"),
        lambda: read_headerless(bomb, 2, pl.Int64, what="an id"),
        lambda: read_series(tmp_path / "x.csv"),
        lambda: merge([bomb], tmp_path / "all.gz", max_mib=1.0, between=lambda: None),
    ):
        with pytest.raises(UserError, match=r"would unpack to|cannot be read as CSV"):
            read()


def test_its_first_line_is_read_all_the_same(bombs):
    assert csv_header(bombs / "x.csv.gz") == ["src", "dst"]
    assert count_columns(bombs / "x.csv.gz") == 2


def test_ordinary_ones_are_read_and_what_the_message_says_works(tmp_path, monkeypatch):
    monkeypatch.setattr("graphmill.base.packed._SUSPECT_BYTES", 1000)
    (tmp_path / "few.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    assert read_table(tmp_path / "few.csv.gz", ["b"]).to_dicts() == [{"b": "2"}]
    rows = b"a,b\n" + b"1,2\n" * 1_000_000
    (tmp_path / "many.csv.gz").write_bytes(gzip.compress(rows))
    with pytest.raises(UserError, match="would unpack") as refused:
        read_table(tmp_path / "many.csv.gz", ["b"])
    assert "gunzip -k" in refused.value.fix
    (tmp_path / "many.csv").write_bytes(rows)
    assert len(read_table(tmp_path / "many.csv", ["b"])) == 1_000_000
    assert open_packed(tmp_path / "many.csv").read() == rows


@pytest.mark.parametrize("begin", [zlib.compress(b"a,b\n"), b"\x28\xb5\x2f\xfd\x00\x00"], ids=["zlib", "zstd"])
def test_what_polars_would_unpack_by_itself_is_not_given_to_it(tmp_path, begin):
    (tmp_path / "x.csv").write_bytes(begin)
    with pytest.raises(UserError, match="compressed with z"):
        csv_source(tmp_path / "x.csv")


def test_a_column_of_lists_is_refused_before_it_is_read(tmp_path):
    pl.DataFrame({"src": [[0] * 100], "dst": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(UserError, match="column src holds List"):
        read_integers(tmp_path / "x.parquet", ["src", "dst"])
