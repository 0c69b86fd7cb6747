"""metrics.csv: the columns are fixed, cells round-trip, and a torn file is refused with its line."""

import math
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.columns import columns_markdown
from graphmill.record.metrics import append_metrics, format_cell, read_metrics, read_table, write_metrics
from graphmill.tasks.node_classification.page import KIND as NODES


def test_every_column_is_described_in_the_generated_reference():
    rows = columns_markdown(NODES).splitlines()[2:]
    assert [re.match(r"\| `(\w+)` \|", row).group(1) for row in rows] == list(NODES.columns)
    assert all(column.description and "|" not in column.description for column in NODES.columns.values())


def test_a_written_file_has_all_columns_and_reads_back(tmp_path: Path):
    path = tmp_path / "run" / "metrics.csv"
    write_metrics(
        path,
        [{"run_id": "a,b", "epoch": 1, "loss": 0.1, "synthetic": False}, {"run_id": "c", "epoch": 2}],
        NODES.columns,
    )
    first, second = read_metrics(path)
    assert list(first) == list(NODES.columns)
    assert (first["run_id"], first["epoch"], first["loss"], first["synthetic"]) == ("a,b", "1", "0.1", "false")
    assert second["loss"] == ""


def test_same_rows_give_the_same_bytes_whatever_the_order_of_their_keys(tmp_path: Path):
    row = {"run_id": "a", "epoch": 1, "loss": 1 / 3}
    write_metrics(tmp_path / "one.csv", [row], NODES.columns)
    write_metrics(tmp_path / "two.csv", [dict(reversed(row.items()))], NODES.columns)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "two.csv").read_bytes()


@given(st.floats())
def test_a_float_reads_back_to_the_same_float(number: float):
    read = float(format_cell(number))
    assert read == number or (math.isnan(read) and math.isnan(number))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float64(0.1), "0.1"),
        (np.int32(7), "7"),
        (np.bool_(False), "false"),
        (True, "true"),
        (None, ""),
        (float("inf"), "inf"),
        ("é", "é"),
    ],
)
def test_cells(value, text):
    assert format_cell(value) == text


def test_an_unknown_column_is_our_own_bug_and_names_the_nearest(tmp_path: Path):
    with pytest.raises(ValueError, match=r"'los'.*did you mean 'loss'"):
        write_metrics(tmp_path / "metrics.csv", [{"los": 1.0}], NODES.columns)
    assert not (tmp_path / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not even a header"),
        (b"\n \n", "not even a header"),
        (b"a,b\n1,2\n3\n", "line 3: 1 cells, but the header names 2 columns"),
        (b"a,b\n1,2\n3,4", "line 3: the file ends in the middle of a line"),
        (b"a,b\n1,2\n\x00\x00\x00\x00\n", "line 3: the file holds zero bytes"),
        (b"a,b\n1,\xff\n", "line 2: not UTF-8"),
        (b'a,b\n1,"2\n', "line 2: unexpected end of data"),
        (b"a,b,a\n1,2,3\n", "names a more than once"),
    ],
)
def test_a_torn_file_is_refused_with_file_and_line(tmp_path: Path, content: bytes, says: str):
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=says) as refusal:
        read_metrics(path)
    assert str(path) in refusal.value.message
    assert refusal.value.fix


def test_a_missing_file_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="cannot be read"):
        read_metrics(tmp_path / "metrics.csv")


def test_what_spreadsheets_leave_behind_is_read(tmp_path: Path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n3,4\r\n")
    table = read_table(path)
    assert (table.header, table.rows, table.lines) == (("a", "b"), (("1", "2"), ("3", "4")), (2, 4))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes):
    path = tmp_path_factory.mktemp("fuzz") / "metrics.csv"
    path.write_bytes(content)
    with suppress(UserError):
        read_metrics(path)


def test_reading_and_writing_need_no_torch(source_environ):
    code = "import sys, graphmill.record.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, env=source_environ).returncode == 0


def test_rows_are_appended_and_a_torn_one_is_cut_off(tmp_path):
    path = tmp_path / "metrics.csv"
    append_metrics(path, {"run_id": "a", "epoch": 1}, NODES.columns)
    first = path.read_bytes()
    append_metrics(path, {"run_id": "a, b", "epoch": 2, "loss": 0.5}, NODES.columns)
    assert path.read_bytes().startswith(first)
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b"a,1,3,0.4")  # killed in the middle of a row
    assert [row["epoch"] for row in read_metrics(path, is_growing=True)] == ["1", "2"]
    with pytest.raises(UserError, match="line 4: the file ends in the middle"):
        read_metrics(path)
    append_metrics(path, {"run_id": "a", "epoch": 3}, NODES.columns)
    assert path.read_bytes().startswith(whole)
    assert [row["epoch"] for row in read_metrics(path)] == ["1", "2", "3"]
    write_metrics(tmp_path / "at_once.csv", read_metrics(path), NODES.columns)
    assert (tmp_path / "at_once.csv").read_bytes() == path.read_bytes()


def test_a_run_from_before_a_task_had_its_last_columns_goes_on_with_its_header(tmp_path: Path):
    """A resume by a later version appends rows that are as wide as the others."""
    before = {name: column for name, column in NODES.columns.items() if name not in NODES.own_columns}
    assert len(before) < len(NODES.columns)
    append_metrics(tmp_path / "metrics.csv", {"epoch": 1, "loss": 0.5}, before)
    append_metrics(tmp_path / "metrics.csv", {"epoch": 2, "loss": 0.25, "fetched_rows": 3}, NODES.columns)
    lines = (tmp_path / "metrics.csv").read_text().splitlines()
    assert lines[0].split(",") == list(before)
    assert {line.count(",") for line in lines} == {len(before) - 1}
    assert [int(row["epoch"]) for row in read_metrics(tmp_path / "metrics.csv")] == [1, 2]
