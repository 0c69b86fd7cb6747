"""Thousands of runs: files are read once or twice, one run's rows are in memory at a time, the page stays small."""

import shutil
import sys
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.documents import Outcome
from graphmill.record.metrics import read_metrics, write_metrics
from graphmill.record.provenance import collect_provenance
from graphmill.record.run_folder import RunFolder
from graphmill.report.html import html
from graphmill.report.layouts import merge_as
from graphmill.report.markdown import markdown
from graphmill.report.merge import merge
from graphmill.report.page import Page, Remark, Table
from graphmill.report.study_page import MOST_IN_DETAIL, study_page
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.node_classification.page import NodeClassificationExperiment

_OPENED: Counter[str] = Counter()


def _note(event: str, arguments: Sequence[object]) -> None:
    if event == "open" and isinstance(arguments[0], str | Path):
        _OPENED[str(arguments[0])] += 1


sys.addaudithook(_note)


@pytest.fixture
def opened() -> Iterator[Counter[str]]:
    """Path → how often it was opened since the test cleared it."""
    _OPENED.clear()
    yield _OPENED
    _OPENED.clear()


@pytest.fixture
def many(tmp_path: Path, planner, plausible):
    """Makes finished runs, copies of one: `many(120)`, or into a folder of another name."""

    def make(number: int, folder: str = "many", *, epochs: int = 3) -> list[RunFolder]:
        asked = {"name": "run", "train": {"ranks": 1, "epochs": epochs, "seed": 1}}
        one = RunFolder.create(
            planner(NodeClassificationExperiment.model_validate(asked), f"{folder}/run0000"), tmp_path
        )
        rows = plausible.run_rows(run_id="many/run0000", dataset="toy", world_size=1, epochs=epochs)
        write_metrics(one.metrics_path, rows, NODES.columns)
        one.begin_attempt(resumed=False, command=["graphmill"])
        one.write_provenance(collect_provenance(["graphmill"]))
        scores = {"best": {"epoch": epochs, "micro_f1": 0.5}, "test": {"micro_f1": 0.4}}
        one.write_outcome(
            Outcome(status="done", exit_code=0, epochs=epochs, steps_per_rank=3, wall_s=60.0, message="", **scores)
        )
        one.evaluations_path.write_text("epoch,set,measure,value\n2,val,micro_f1,0.5\n1,val,micro_f1,0.25\n")
        for place in range(1, number):
            other = tmp_path / folder / f"run{place:04d}"
            shutil.copytree(one.path, other)
            for name, was, now in (
                ("plan.json", '"seed": 1', f'"seed": {place + 1}'),
                ("plan.json", "run0000", other.name),
                ("metrics.csv", "run0000", other.name),
            ):
                (other / name).write_text((other / name).read_text().replace(was, now))
        return [RunFolder(path) for path in sorted((tmp_path / folder).iterdir())]

    return make


def opens_of(opened: Counter[str], runs: Sequence[RunFolder], name: str) -> set[int]:
    return {opened[str(run.path / name)] for run in runs}


@pytest.mark.parametrize(("layout", "reads"), [("wide", {"metrics.csv": 2}), ("long", {"evaluations.csv": 1})])
def test_a_merge_reads_a_plan_once_and_a_table_once_to_know_its_runs_and_once_to_write_it(
    tmp_path, many, opened, layout, reads
):
    runs = many(7)
    opened.clear()
    (merged,) = merge_as(layout, tmp_path / "many", pattern="**/metrics.csv", output=tmp_path / "m.csv")
    assert merged.num_files == 7
    for name, times in {"plan.json": 1, **reads}.items():
        assert opens_of(opened, runs, name) == {times}, name
    order = [row["run_id"] for row in read_metrics(tmp_path / "m.csv")]
    assert order == sorted(order)


def test_the_memory_of_a_merge_does_not_grow_with_the_runs(tmp_path, many):
    peaks = []
    for number in (40, 160):
        many(number, f"of{number}", epochs=50)
        tracemalloc.start()
        merge(tmp_path / f"of{number}", output=tmp_path / f"{number}.csv")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0], "four times as many rows"


def test_files_whose_rows_stand_between_those_of_others_are_merged_in_order(tmp_path, many):
    many(4)
    merge(tmp_path / "many", output=tmp_path / "m.csv", key_columns=("epoch", "run_id"))
    keys = [(int(row["epoch"]), row["run_id"]) for row in read_metrics(tmp_path / "m.csv")]
    assert keys == [(epoch, f"many/run{run:04d}") for epoch in (1, 2, 3) for run in range(4)]


def test_rows_of_a_merge_are_refused_before_anything_is_written(tmp_path, many):
    *_, last = many(4)
    last.metrics_path.write_text(last.metrics_path.read_text().replace("toy", "toy,"))
    with pytest.raises(UserError, match="run0003"):
        merge(tmp_path / "many", output=tmp_path / "m.csv")
    assert not [path for path in tmp_path.iterdir() if path.name.startswith((".m.", "m."))]


def section(page: Page, title: str) -> list[object]:
    return [block for each in page.sections if each.title == title for block in each.blocks]


def cells(page: Page) -> Table:
    (table,) = section(page, "Every cell")
    assert isinstance(table, Table)
    return table


def test_a_page_of_many_runs_reads_each_file_once_and_leads_to_every_run(tmp_path, many, opened):
    runs = many(MOST_IN_DETAIL + 1)
    (runs[3].path / "report.html").write_text("its own")
    opened.clear()
    page = study_page("many", runs, written="now", page_folder=tmp_path / "pages")
    for name in ("plan.json", "metrics.csv", "outcome.json", "attempts.jsonl", "provenance.json"):
        assert opens_of(opened, runs, name) == {1}, name
    assert not {"bound by", "verified"} & set(cells(page).columns)
    links = [row[-1].link for row in cells(page).rows]
    assert links[2:4] == ["../many/run0002", "../many/run0003/report.html"]
    assert html(page).count('<a href="../many/run') == len(runs)
    assert "[run0002](../many/run0002)" in markdown(page)
    table, remark = section(page, "How the runs ended")
    assert [row[1] for row in table.rows] == [len(runs)]
    assert isinstance(remark, Remark)


def test_a_page_of_a_few_runs_diagnoses_each_and_has_no_links(many):
    page = study_page("few", many(2), written="now")
    assert cells(page).columns[-3:] == ("bound by", "verified", "run")
    assert "<a href=" not in html(page).split("</nav>")[1]
    assert not section(page, "How the runs ended")


def test_a_page_grows_by_less_than_a_kibibyte_a_run_and_not_beyond_its_largest_table(many, monkeypatch):
    runs = many(MOST_IN_DETAIL + 41)
    sizes = [len(html(study_page("many", runs[:number], written="now"))) for number in (101, 121, 141)]
    assert 0 < sizes[2] - sizes[1] < 20 * 1024
    monkeypatch.setattr("graphmill.report.study_page.MOST_ROWS", 50)
    sizes = [len(html(study_page("many", runs[:number], written="now"))) for number in (101, 141)]
    assert sizes[1] - sizes[0] < 40 * 100, "seeds and names only, at most 100"


def test_of_more_runs_than_rows_those_that_are_not_done_and_the_best_are_shown(many, monkeypatch):
    runs = many(MOST_IN_DETAIL + 1)
    for run, best, status in ((runs[7], 0.9, "done"), (runs[50], 0.1, "failed")):
        outcome = run.read_outcome()
        exit_code = 0 if status == "done" else 1
        run.write_outcome(
            outcome.model_copy(
                update={"best": {"epoch": 1, "micro_f1": best}, "status": status, "exit_code": exit_code}
            )
        )
    monkeypatch.setattr("graphmill.report.study_page.MOST_ROWS", 2)
    page = study_page("many", runs, written="now")
    assert [row[-1].text for row in cells(page).rows] == ["run0007", "run0050"]
    assert "of 101" in cells(page).caption
    ended = section(page, "How the runs ended")[0]
    assert {(row[0].text, row[1]) for row in ended.rows} == {("done", 100), ("failed", 1)}


def test_a_name_in_a_path_is_no_scheme_of_a_link(tmp_path, many):
    runs = many(MOST_IN_DETAIL + 1)
    evil = tmp_path / "javascript:alert(1)"
    shutil.move(runs[0].path, evil)
    page = study_page("many", [RunFolder(evil), *runs[1:]], written="now", page_folder=tmp_path)
    assert cells(page).rows[0][-1].link == "javascript%3Aalert%281%29"
