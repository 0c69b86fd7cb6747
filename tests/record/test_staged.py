"""What a rank sees of a staged copy: it is there and unchanged, or it is refused."""

import doctest
import os
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.record import staged
from graphmill.record.staged import FileState, Share, StagedMark, staged_name, staged_path, staged_problem, write_mark


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "x.npy").write_bytes(bytes(1000))
    write_mark(
        tmp_path,
        StagedMark(
            checksum="c0ffee", source="/there", hostname="here", time=time.time(),
            files={"x.npy": FileState.of(tmp_path / "x.npy")}, xxh3={"x.npy": "0" * 32},
        ),
    )  # fmt: skip
    return tmp_path


def test_an_unchanged_copy_has_no_problem(copy: Path):
    assert staged_problem(copy, "c0ffee") is None


def _flip_a_byte_and_set_the_time_back(file: Path) -> None:
    stat = file.stat()
    with file.open("r+b") as opened:
        opened.seek(500)
        opened.write(b"\1")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        _flip_a_byte_and_set_the_time_back,
        lambda file: os.truncate(file, 999),
        lambda file: file.with_name(".staged.json").unlink(),
        lambda file: file.with_name(".staged.json").write_text("{"),
        lambda file: file.rename(file.with_name("y.npy")),
    ],
)
def test_whatever_is_done_to_a_copy_is_seen(copy: Path, damage):
    damage(copy / "x.npy")
    assert staged_problem(copy, "c0ffee") is not None


def test_the_copy_of_another_dataset_is_refused(copy: Path):
    assert "is a copy of c0ffee" in (staged_problem(copy, "other") or "")


@given(st.text(max_size=30), st.text("0123456789abcdef", min_size=12, max_size=32))
def test_no_name_leaves_the_staged_root(name: str, checksum: str):
    assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", staged_name(name, checksum))


@pytest.mark.parametrize("has_parts", [(0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("parts", [(0,), (1, 2)])
@pytest.mark.parametrize("has_topology", [False, True])
@pytest.mark.parametrize("topology", [False, True])
def test_a_copy_is_taken_where_it_has_the_parts_and_the_topology(
    tmp_path: Path, has_parts, parts, has_topology: bool, topology: bool
):
    share, has = Share(parts, whole_topology=topology), Share(has_parts, whole_topology=has_topology)
    (tmp_path / staged_name("graph", "c0ffee", has)).mkdir()
    suffices = set(parts) <= set(has_parts) and (has_topology or not topology)
    found = staged_path(tmp_path, "graph", "c0ffee", share)
    assert found.exists() == has.holds(share) == suffices


def test_examples():
    assert doctest.testmod(staged).failed == 0
