"""Lines that are appended: whole, and durable when the call returns."""

import errno
import os
from pathlib import Path

import pytest

from graphmill.record.lines import append_line, append_lines, complete_lines


@pytest.fixture
def on_disk(monkeypatch):
    """What would be on disk after a power cut: the bytes that were there at the latest fsync."""
    found = {}
    fsync = os.fsync

    def noted(fd: int) -> None:
        fsync(fd)
        found[str(Path(f"/proc/self/fd/{fd}").readlink())] = os.pread(fd, 1 << 20, 0)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_line_is_durable_when_it_was_appended(tmp_path, on_disk):
    path = tmp_path / "lines"
    append_line(path, "one")
    assert on_disk[str(path)] == b"one\n"
    append_lines(path, ["two", "three"])
    assert on_disk[str(path)] == b"one\ntwo\nthree\n"


def test_what_a_crash_left_of_a_line_is_cut_off(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    assert complete_lines(path) == ["one"]
    append_line(path, "three")
    assert path.read_bytes() == b"one\nthree\n"


@pytest.mark.parametrize("meanwhile", [b"", b"of another\n", b"of another, torn"])
def test_lines_are_appended_once_however_often_that_was_tried(tmp_path, monkeypatch, meanwhile):
    path, fsync, failed = tmp_path / "lines", os.fsync, []
    append_line(path, "one")

    def fails_once(fd: int) -> None:
        if not failed:
            failed.append(fd)
            path.write_bytes(path.read_bytes() + meanwhile)
            raise OSError(errno.EIO, "no answer")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", fails_once)
    monkeypatch.setattr("graphmill.base.retries._WRITE_AGAIN_AFTER_S", (0.0,))
    append_lines(path, ["two", "three"])
    assert path.read_bytes() == b"one\ntwo\nthree\n" + meanwhile
