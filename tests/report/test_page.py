"""A report of runs made by hand: what it says, that it is safe, and that a real browser shows and sorts it."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.record.documents import Outcome
from graphmill.record.metrics import write_metrics
from graphmill.record.provenance import collect_provenance
from graphmill.record.run_folder import RunFolder
from graphmill.report.compare import ComparedBaseline, Comparison, Configuration
from graphmill.report.html import html
from graphmill.report.markdown import markdown
from graphmill.report.page import Breakdown, Facts, Figures, Page, Remark, Section, Shown, Table
from graphmill.report.pipeline_page import Crossed, PredictedStage, StageOfReport, pipeline_page
from graphmill.report.run_page import run_page
from graphmill.report.study_page import comparison_blocks, study_page
from graphmill.spec.packing import Interval
from graphmill.tasks.node_classification.page import KIND, NodeClassificationExperiment

EVIL = '<script>document.title = "owned"</script><img src="http://127.0.0.1/x" onerror="alert(1)">'


@pytest.fixture
def finished(tmp_path: Path, planner, plausible: SimpleNamespace):
    """Makes a finished run: `finished("grid/a", width=8, seed=1, val=0.5)`; its records hold `EVIL` where they may."""

    def make(run_id: str, *, width=8, seed=1, val=0.5) -> RunFolder:
        asked = {
            "name": "run",
            "model": {"kind": "graphsage", "hidden_channels": width},
            "train": {"ranks": 1, "epochs": 3, "seed": seed},
        }
        folder = RunFolder.create(
            planner(NodeClassificationExperiment.model_validate(asked), run_id), tmp_path / "logs"
        )
        rows = plausible.run_rows(run_id=run_id, dataset="toy", world_size=1, epochs=3, seed=seed)
        write_metrics(folder.metrics_path, rows, KIND.columns)
        folder.begin_attempt(resumed=False, command=["graphmill"])
        folder.write_provenance(collect_provenance(["graphmill", EVIL]).model_copy(update={"hostname": EVIL}))
        scores = {"best": {"epoch": 3, "micro_f1": val, "macro_f1": val / 2}, "test": {"micro_f1": val - 0.01}}
        folder.write_outcome(
            Outcome(status="done", exit_code=0, epochs=3, steps_per_rank=3, wall_s=75.0, message=EVIL, **scores)
        )
        return folder

    return make


@pytest.fixture
def grid(finished) -> list[RunFolder]:
    """Two widths, two rng seeds: the wider is better."""
    return [
        finished(f"grid/w{width}-s{seed}", width=width, seed=seed, val=width / 100 + seed / 1000)
        for width in (8, 16, 128)
        for seed in (1, 2)
    ]


def tables_of(page: Page) -> dict[str, Table]:
    return {block.caption: block for section in page.sections for block in section.blocks if isinstance(block, Table)}


def test_a_run_is_reported_with_its_scores_curves_time_provenance_and_plan(finished):
    page = run_page(finished("one"), written="now")
    shown = {each.name: each.value for each in page.headlines}
    assert shown["status"] == "done"
    assert (shown["validation micro-F1"], shown["test micro-F1"]) == ("0.5000", "0.4900")
    assert (shown["epochs"], shown["time"]) == ("3 of 3", "0:01:15")
    titles = [section.title for section in page.sections]
    assert titles[:3] == ["Learning curves", "Measures", "Where the time went"]
    assert {"What was verified", "Provenance", "Epochs", "Plan"} <= set(titles)
    curves = next(section for section in page.sections if section.title == "Learning curves").blocks[0]
    assert isinstance(curves, Figures)
    assert [chart.y.label for chart in curves.charts] == ["loss (nats)", "validation micro-F1"]
    assert [series.label for series in curves.charts[0].panels[0].series] == ["training", "validation"]
    assert [row[0] for row in tables_of(page)["Every epoch, as in metrics.csv"].rows] == [1, 2, 3]


def test_a_run_that_never_began_is_reported_too(new_run):
    folder, _ = new_run()
    page = run_page(folder, written="now")
    assert page.headlines[0].value == "unfinished"
    assert "No epoch is over yet." in html(page)


def test_a_damaged_file_is_said_and_the_rest_is_reported(finished):
    folder = finished("one")
    folder.provenance_path.write_text("{")
    page = run_page(folder, written="now")
    (remark,) = next(section for section in page.sections if section.title == "Provenance").blocks
    assert isinstance(remark, Remark)
    assert "provenance.json is damaged" in remark.text


def test_a_study_has_its_comparison_a_line_for_each_configuration_and_every_cell(grid):
    page = study_page("grid", grid, written="now")
    compared = next(table for caption, table in tables_of(page).items() if "mean ± s.d." in caption)
    assert compared.columns == ("hidden_channels", "runs", "val micro-F1", "test micro-F1")
    assert compared.marked == 0
    assert compared.rows[0][0].text == "128"
    cells = tables_of(page)["One row for each run"]
    assert len(cells.rows) == 6
    assert cells.columns[-1] == "run"
    curves = next(section for section in page.sections if section.title == "Learning curves").blocks[0]
    labels = [series.label for series in curves.charts[1].panels[0].series]
    assert labels == ["hidden_channels 8", "hidden_channels 16", "hidden_channels 128"]


def test_a_pipeline_sets_what_was_predicted_against_what_was_measured(finished):
    first, second = finished("p/one"), finished("p/two", width=16)
    predicted = [
        PredictedStage(Interval(70.0, 80.0), Interval(1.0, 2.0)),
        PredictedStage(Interval(10.0, 20.0), Interval(800, 900)),
    ]
    stages = [
        StageOfReport("one", first, (), predicted[0]),
        StageOfReport("two", second, (("init_from", "one"),), predicted[1]),
        StageOfReport("three", None, (("init_from", "two"),), None),
    ]
    page = pipeline_page("p", stages, [Crossed("one", "two", "micro_f1", 0.25)], written="now")
    rows = tables_of(page)["Wall time of the stage, and peak memory of its first rank"].rows
    assert [cell.text for cell in rows[0][1:]] == ["70.0 to 80.0", "75.0", "1 to 2", "812, more"]
    assert [cell.text for cell in rows[1][1:]] == ["10.0 to 20.0", "75.0, more", "800 to 900", "812"]
    statuses = [row[1].text for row in tables_of(page)["In order"].rows]
    assert statuses == ["done", "done", "not begun"]
    assert "three" in html(page)


def test_names_in_a_run_folder_are_shown_and_never_run(finished):
    page = run_page(finished("one"), written=EVIL)
    text = html(page)
    assert "<script>document" not in text
    assert "<img" not in text
    assert text.count("<script>") == 1
    assert "&lt;script&gt;document" in text
    assert "<script" not in markdown(page).replace("\\<", "")


def test_the_same_page_is_the_same_bytes_with_unique_ids(grid):
    page = study_page("grid", grid, written="now")
    assert html(page) == html(page)
    ids = re.findall(r' id="([^"]+)"', html(page))
    assert len(ids) == len(set(ids))


def test_markdown_has_the_tables_of_the_page(grid):
    text = markdown(study_page("grid", grid, written="now"))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert any("**128**" in row for row in rows)
    blocks = re.split(r"\n\n", text)
    for block in (each.splitlines() for each in blocks if each.startswith("|")):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block}) == 1


def page_of(*blocks) -> Page:
    return Page("run", EVIL, EVIL, True, (), (Section("Blocks", blocks), Section("Folded", blocks[:1], True)), EVIL)


@pytest.fixture
def shown(tab, tmp_path: Path):
    """Opens a page in the browser: `shown(page)`."""

    def show(page: Page):
        path = tmp_path / "report.html"
        path.write_text(html(page))
        tab.errors.clear()
        tab.requests.clear()
        tab.open(path)
        return tab

    return show


COLUMN = (
    "[...document.querySelectorAll('div.wide tbody tr')].slice(0, 4).map(row => row.cells[{}].textContent).join(' ')"
)


def test_in_a_browser_a_table_sorts_by_value_with_empty_cells_last(shown):
    rows = (("b", Shown("1,000", 1000.0)), ("a", Shown("2 ± 0.1", 2.0)), ("c", None), ("d", 30.0))
    tab = shown(page_of(Table(EVIL, ("name", "value"), rows)))
    click = "document.querySelectorAll('thead button')[{}].click()"
    tab.ask(click.format(1))
    assert tab.ask(COLUMN.format(0)) == "a d b c"
    tab.ask(click.format(1))
    assert tab.ask(COLUMN.format(0)) == "b d a c"
    assert tab.ask("document.querySelectorAll('thead th')[1].getAttribute('aria-sort')") == "descending"
    tab.ask(click.format(0))
    assert tab.ask(COLUMN.format(0)) == "a b c d"
    assert (tab.errors, tab.requests[1:]) == ([], [])


def test_in_a_browser_a_report_shows_without_errors_and_asks_for_nothing(shown, grid):
    tab = shown(study_page(EVIL, grid, written=EVIL))
    assert tab.ask("document.querySelectorAll('figure svg[role=img][aria-label]').length") == 2
    assert tab.ask("document.querySelectorAll('figure svg').length") == 2
    assert tab.ask("[...document.querySelectorAll('th')].every(head => head.scope)")
    assert tab.ask("document.documentElement.scrollWidth <= innerWidth")
    assert "owned" not in [tab.ask("document.title")]
    assert tab.ask("document.images.length") == 0
    assert (tab.errors, len(tab.requests)) == ([], 1)


def test_in_a_browser_it_is_light_or_dark_as_the_reader_asks_and_whole_on_paper(shown, finished):
    tab = shown(run_page(finished("one"), written="now"))
    colours = {}
    for scheme in ("light", "dark"):
        tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        line = "getComputedStyle(document.querySelector('figure svg path[style*=\"--c-0072b2\"]')).stroke"
        colours[scheme] = (tab.ask("getComputedStyle(document.body).backgroundColor"), tab.ask(line))
    assert colours["light"] == ("rgb(255, 255, 255)", "rgb(0, 114, 178)")
    assert all(dark != light for dark, light in zip(colours["dark"], colours["light"], strict=True))
    assert tab.ask("document.querySelectorAll('details[open]').length") == 0
    tab.ask("dispatchEvent(new Event('beforeprint'))")
    assert tab.ask("document.querySelectorAll('details:not([open])').length") == 0


def test_every_kind_of_block_is_written():
    blocks = (
        Remark("a remark", "bad"),
        Facts("facts", (("name", EVIL),)),
        Breakdown("shares", (("a", 0.25), ("the rest", 0.75))),
        Table("table", ("a", "b"), ((1, EVIL), (2, None))),
    )
    text = html(page_of(*blocks))
    assert text.count("25.0 %") == 1
    assert "onerror=" not in re.sub(r"&#?\w+;", "", re.sub(r">[^<]*<", "><", text))
    assert "| a | 25.0 % |" in markdown(page_of(*blocks))


def test_a_comparison_shows_the_baselines_and_what_loses_to_one():
    row = Configuration(
        {"model.kind": "gat"}, ("a", "b"), (1, 2), ((1,), (2,)), "", ("loses to a baseline: .5, X .7",), None, None
    )
    baselines = {
        "x": ComparedBaseline("method X", (0.6, 0.6), (0.7, 0.8)),
        "y": ComparedBaseline("method Y", None, None),
    }
    found = Comparison(
        "node_classification", "d", False, "micro-F1", True, ("model.kind",), (row,), (), baselines
    )  # fmt: skip
    table, beside, remark = comparison_blocks(found)
    assert table.columns[0] == "model.kind", "a kind of what, is said"
    assert [[cell if isinstance(cell, str | None) else cell.text for cell in each] for each in beside.rows] == [
        ["method X", "0.6000", "0.7000 to 0.8000"], ["method Y", None, None],
    ]  # fmt: skip
    assert (remark.tone, "1 of 2 runs of model.kind gat" in remark.text) == ("bad", True)
