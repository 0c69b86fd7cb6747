"""docs/reference is generated, and up to date."""

from pathlib import Path

import pytest

from graphmill.cli.reference import PAGES, main

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_up_to_date(name):
    assert (FOLDER / f"{name}.md").read_text() == PAGES[name](), (
        "run: python -m graphmill.cli.reference --write docs/reference"
    )


def test_it_is_deterministic_whatever_the_terminal(monkeypatch):
    before = PAGES["cli"]()
    monkeypatch.setenv("COLUMNS", "40")
    assert PAGES["cli"]() == before


@pytest.mark.slow
def test_write_then_check(tmp_path, capsys):
    folder = tmp_path / "docs" / "reference"
    assert main(["--check", str(folder)]) == 1
    assert "cli.md is out of date" in capsys.readouterr().err
    assert main(["--write", str(folder)]) == 0
    assert main(["--check", str(folder)]) == 0
    (tmp_path / "recipes" / "schema" / "study.json").write_text("old")
    assert main(["--check", str(folder)]) == 1
    assert "study.json is out of date" in capsys.readouterr().err


def test_one_page_on_standard_output(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out == PAGES["cli"]()
    assert main(["columns"]) == 0
    assert main(["nonsense"]) == 2


def test_every_key_has_a_meaning():
    rows = [line for line in PAGES["experiment"]().splitlines() if line.startswith("| `")]
    assert len(rows) > 40
    assert [row for row in rows if row.endswith("|  |")] == []
