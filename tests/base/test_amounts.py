"""Times and amounts of memory: as sbatch takes them, as Slurm's programs print them, as a person reads them."""

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.base import amounts
from graphmill.base.amounts import accounted_mib, clock_of, mib_of, seconds_of, shown_clock, span_of

HOURS, SIXTIETHS = st.integers(0, 23), st.integers(0, 59)


@given(st.integers(0, 400), HOURS, SIXTIETHS, SIXTIETHS)
def test_printed_spans_are_read_back(days, hours, minutes, seconds):
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert span_of(f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}") == expected
    if not days:
        assert span_of(f"{hours}:{minutes:02d}:{seconds:02d}") == expected
    if not days and not hours:
        assert span_of(f"{minutes}:{seconds:02d}\n") == expected


@pytest.mark.parametrize(
    "text", ["", "UNLIMITED", "INVALID", "NOT_SET", "Partition_Limit", "N/A", "1:2:3:4", "-1:00", "5", "a:b", "٣:0"]
)
def test_what_is_no_span_is_none(text):
    assert span_of(text) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800), (30, 1800), ("00:30:00", 1800), ("48:00:00", 172800), ("2-00:00:00", 172800), ("2-0", 172800),
        ("1-02:30", 95400), ("30:00", None), ("", None), ("0", None), (-5, None), ("00:61:00", None), ("1h", None),
        ("UNLIMITED", None), ("00:00:00", None), ("1:00:00\n", None), ("٣٠", None),
    ],
)  # fmt: skip
def test_limits_as_sbatch_takes_them(text: str | int, seconds: int | None):
    assert seconds_of(text) == seconds
    if seconds is not None:
        assert seconds_of(clock_of(seconds)) == seconds


@given(st.integers(0, 10**7))
def test_shown_clocks_can_be_read_back(seconds):
    assert span_of(shown_clock(seconds)) == seconds == span_of(clock_of(seconds))


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("85G", 87040),
        ("4000", 4000),
        ("2t", 2 << 20),
        ("512K", 0.5),
        ("0", 0),
        ("85GB", None),
        ("-1", None),
        ("", None),
    ],
)
def test_memory_as_sbatch_takes_it(text: str, mib: float | None):
    assert mib_of(text) == mib


@pytest.mark.parametrize("text", ["", "lots", "-1G", "1.2.3"])
def test_what_sacct_does_not_print_is_none(text: str):
    assert accounted_mib(text) is None


def test_examples():
    assert doctest.testmod(amounts).failed == 0
