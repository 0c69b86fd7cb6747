from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.runtime.roots import dataset_root

ALL = {"GRAPHMILL_DATA_ROOT": "/a", "PYG_DATA_ROOT": "/b", "SCRATCH": "/c"}


def test_the_first_one_given_wins():
    assert dataset_root("/o", ALL) == Path("/o")
    assert dataset_root(None, ALL) == Path("/a")
    assert dataset_root(None, {**ALL, "GRAPHMILL_DATA_ROOT": ""}) == Path("/b")
    assert dataset_root(None, {"SCRATCH": "/c"}) == Path("/c/graphmill")
    assert dataset_root(None, {}) == Path("data")


def test_home_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert dataset_root("~/data", {}) == Path("/home/me/data")


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "data").write_text("")
    with pytest.raises(UserError, match=r"from PYG_DATA_ROOT.*is a file"):
        dataset_root(None, {"PYG_DATA_ROOT": str(tmp_path / "data")})
