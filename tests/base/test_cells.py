"""CSV that a spreadsheet does not compute, and that we read back."""

import csv
import io

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base.cells import as_written, csv_text
from graphmill.record.csv_frames import without_formulas

WIDE = ("\uff1d1", "\uff20SUM")
FORMULAS = ("=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", *WIDE, "'=1", "''-x")
PLAIN = ("-0.5", "+1", "-inf", "1e-05", "", "nan", "synthetic/sbm", "'twas", "a=b", "a,b\n=1")


@pytest.mark.parametrize("text", FORMULAS)
def test_a_formula_is_a_text(text):
    assert next(csv.reader(io.StringIO(csv_text([[text]]), newline="")))[0] == f"'{text}"
    frame = pl.DataFrame({"name": [text, None], "number": [-1.0, 2.0]})
    assert without_formulas(frame).rows() == [(f"'{text}", -1.0), (None, 2.0)]
    assert without_formulas(frame.lazy()).collect().equals(without_formulas(frame))


@pytest.mark.parametrize("text", PLAIN)
def test_numbers_and_other_texts_stay(text):
    assert [*csv.reader(io.StringIO(csv_text([[text, "x"]]), newline=""))] == [[text, "x"]]
    frame = pl.DataFrame({"name": [text]})
    assert without_formulas(frame).equals(frame)


@given(st.text(alphabet="'=+-@\uff1d\uff0b\t\r1.e ax,\"\n", max_size=6))
def test_every_text_is_read_back(text):
    (row,) = csv.reader(io.StringIO(csv_text([[text, "x"]]), newline=""))
    assert as_written(row[0]) == text
