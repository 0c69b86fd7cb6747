"""Result files: each entry with the origin of its own, no mixed code, old files as they were."""

import json
import re
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import entries
import graph_tables
import measured
import origin
from entries import problems, read, sha256, source, write_entries
from origin import Origin, code_of, describe, processor

GENERIC = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 167
model name\t: Intel(R) Xeon(R) Processor
stepping\t: 8

processor\t: 1
model\t\t: 999
"""


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "RESULTS", tmp_path)
    return tmp_path


def coded(checksum: str) -> dict:
    found = json.loads(json.dumps(origin.asdict(Origin.now(["benchmarks/x.py"]))))
    found["code"]["checksum"] = checksum
    return found


def test_entries_of_one_code_are_right(results):
    write_entries("speed", {"a": (coded("1"), {"s": 1}), "b": (coded("1"), {"s": 2})})
    assert problems(results, results / "none.json") == []


def test_a_later_entry_of_other_code_is_an_error(results):
    write_entries("speed", {"a": (coded("1"), {"s": 1}), "b": (coded("1"), {"s": 1})})
    write_entries("speed", {"b": (coded("2"), {"s": 3})})
    assert set(read("speed")) == {"a", "b", "origins"}
    (problem,) = problems(results, results / "none.json")
    assert "speed.json" in problem
    write_entries("speed", {"a": (coded("2"), {"s": 3})})
    assert problems(results, results / "none.json") == []


def test_an_entry_without_origin_is_an_error(results):
    (results / "speed.json").write_text(json.dumps({"entries": {"a": {"result": {}}}}))
    assert len(problems(results, results / "none.json")) == 1


def test_old_files_are_accepted_as_they_were_and_not_otherwise(results, tmp_path_factory):
    listed = tmp_path_factory.mktemp("list") / "old.json"
    path = results / "speed.json"
    path.write_text(json.dumps({"result": {"s": 1}, "provenance": {}}))
    assert len(problems(results, listed)) == 1
    listed.write_text(json.dumps({"speed": {"sha256": sha256(path), "known": []}}))
    assert problems(results, listed) == []
    path.write_text(json.dumps({"result": {"s": 2}, "provenance": {}}))
    assert len(problems(results, listed)) == 1


def test_a_file_that_was_measured_again_leaves_the_list(results, tmp_path_factory):
    listed = tmp_path_factory.mktemp("list") / "old.json"
    listed.write_text(json.dumps({"speed": {"sha256": "0", "known": []}}))
    write_entries("speed", {"a": (coded("1"), {})})
    assert len(problems(results, listed)) == 1


def test_the_committed_results_are_right():
    assert problems(Path(entries.HERE) / "results") == []


def test_the_page_says_commit_date_age_and_processor(results):
    write_entries("speed", {"all": (coded("1"), {"s": 1})})
    result = read("speed")
    text, taken = source(result, "x"), result["origins"]["all"]
    facts = (taken["code"]["commit"][:8], taken["time_utc"][:10], taken["code"]["isa"], describe(taken["processor"]))
    assert all(fact in text for fact in facts)
    assert re.search(entries.AGES, text)


@cache
def _coded_once() -> dict:
    return coded("1")


@given(hours=st.lists(st.integers(0, 23), min_size=2, max_size=2), now=st.integers(0, 47))
def test_entries_of_one_day_share_a_line_at_any_hour_that_it_is_written(hours, now):
    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2026, 11, 25, tzinfo=tz) + timedelta(hours=now)

    of_one = _coded_once()
    origins = {str(n): {**of_one, "time_utc": f"2026-11-24T{hour:02}:16:23+00:00"} for n, hour in enumerate(hours)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "datetime", Clock)
        assert len(source({"origins": origins}, "x").splitlines()) == 1


def test_a_generic_processor_is_told_by_its_numbers():
    found = processor(GENERIC)
    assert (found.vendor, found.family, found.model, found.stepping) == ("GenuineIntel", 6, 167, 8)
    assert all(number in describe(origin.asdict(found)) for number in ("6", "167", "8"))
    named = {**origin.asdict(found), "name": "AMD EPYC 9B14"}
    assert describe(named) == "AMD EPYC 9B14"


def test_the_checksum_is_of_sources_only(tmp_path):
    package = tmp_path / "src" / "graphmill"
    package.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("")
    (package / "a.py").write_text("a = 1")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    before = code_of(package, "isa")
    (tmp_path / "benchmarks" / "results" / "x.json").write_text("{}")
    (tmp_path / "notes.md").write_text("words")
    assert code_of(package, "isa") == before
    (package / "a.py").write_text("a = 2")
    assert code_of(package, "isa").checksum != before.checksum


def test_no_folder_of_this_machine_is_written_down():
    words = ["/somewhere/benchmarks/x.py", "--work=/tmp/here/there", "benchmarks/y.py", "1/2"]
    assert origin.without_folders(words) == ["…/x.py", "--work=…/there", "benchmarks/y.py", "1/2"]


def test_readme_leaves_out_what_something_is_known_against(monkeypatch):
    found = {"kills": {"num_identical": 3, "num_runs": 3, "known": ["x"], "origins": {"all": coded("1")}}}
    monkeypatch.setattr(measured, "read", found.get)
    assert "3 of 3" not in measured.headlines()
    assert "kills.py" in measured.headlines()
    found["kills"]["known"] = []
    assert "3 of 3" in measured.headlines()


def committed(commit: str | None, *, dirty: bool = False) -> dict:
    found = coded("1")
    found["code"] |= {"commit": commit, "dirty": dirty}
    return found


def test_code_of_no_commit_is_told_unless_the_list_says_why(results):
    head = entries._git("rev-parse", "HEAD")
    if entries._git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here")
    for origin_of, is_right in (
        (committed(head), True),
        (committed("a2b50534" * 5), False),
        (committed(head, dirty=True), False),
        (committed(None), False),
    ):
        write_entries("speed", {"a": (origin_of, {"s": 1})})
        assert (entries.of_no_commit(results, {}) == []) is is_right
        assert (entries.of_no_commit(results, {"speed": {}}) == []) is not is_right, "nothing is excepted for nothing"


def test_a_figure_past_the_age_is_told(results):
    write_entries("speed", {"a": (coded("1"), {"s": 1})})
    assert entries.too_old(results) == []
    assert len(entries.too_old(results, most_days=-1)) == 1


def test_the_committed_results_name_their_code_or_are_excepted():
    assert entries.of_no_commit() == []


def test_readme_leaves_out_what_no_commit_holds():
    for name, why in entries.exceptions().items():
        assert (f"`benchmarks/{name}.py` |" in measured.headlines()) == (
            why["code_is_of"] is not None and name in measured.HEADLINES
        )


def test_the_core_of_an_editable_install_is_known():
    assert code_of(Path(origin.graphmill.__file__).parent).native_checksum is not None


def test_an_alarm_at_every_window_stands_beside_f1():
    value = {"num_attacked": 98, "num_test": 140}
    assert graph_tables.always_f1(value) == pytest.approx(0.8235, abs=1e-4)
    assert graph_tables.alarmed(value, {"precision": [98 / 140, 1.0, 0.0], "recall": [1.0, 0.5, 0.0]}) == pytest.approx(
        [1.0, 0.0, 0.0]
    )
