"""Measures that users define in tables and figures: their columns, their direction, and what is compared by them."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.record.documents import Outcome
from graphmill.record.metrics import CsvTable, read_metrics, write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.report.compare import compare
from graphmill.report.directions import with_directions
from graphmill.report.learning import learning_curves
from graphmill.report.merge import merge
from graphmill.report.table import by_dataset, load_metrics, load_runs
from graphmill.spec.columns import Measure
from graphmill.spec.kinds import find_kind
from graphmill.spec.measures import with_measures
from graphmill.tasks.node_classification.page import NodeClassificationExperiment

ERR = {"target": "mymeasures.err", "higher_is_better": False}
NODES = find_kind("node_classification")


@pytest.fixture
def run(tmp_path: Path, planner, plausible):
    """Makes a finished run whose measure `err`, if it has one, falls as micro-F1 rises."""

    def make(run_id: str, *, width: int = 8, seed: int = 1, err: float = 0.0, **train) -> RunFolder:
        train = {"ranks": 2, "epochs": 5, "seed": seed, **train}
        asked = {"model": {"kind": "graphsage", "hidden_channels": width}, "train": train}
        plan = planner(NodeClassificationExperiment.model_validate(asked), run_id)
        folder = RunFolder.create(plan, tmp_path / "logs")
        rows = plausible.run_rows(run_id=run_id, seed=seed, world_size=2, epochs=5, dataset="toy")
        scores = {"micro_f1": rows[-1]["best_val_micro_f1"]}
        if "err" in plan.measures:
            found = [err + 1 - row["val_micro_f1"] for row in rows]
            for row, value, best in zip(rows, found, itertools.accumulate(found, min), strict=True):
                row |= {"val_err": value, "best_val_err": best}
            scores["err"] = min(found)
        write_metrics(folder.metrics_path, rows, plan.kind.columns)
        best = {"epoch": 5, **scores}
        folder.write_outcome(
            Outcome(status="done", exit_code=0, epochs=5, steps_per_rank=1, wall_s=1.0, best=best, test=scores)
        )
        return folder

    return make


def test_a_merged_table_knows_what_its_runs_are_judged_by(run, tmp_path):
    for seed in (1, 2):
        run(f"s{seed}", seed=seed, measures={"err": ERR}, best_by="err")
    metrics = load_metrics(merge(tmp_path / "logs", output=tmp_path / "metrics.csv")[0].csv)
    assert (metrics.kind.primary.name, metrics.kind.primary.higher_is_better) == ("err", False)
    assert metrics.frame["val_err"].is_finite().all()
    (part,) = by_dataset(metrics)
    assert [chart.name for chart in learning_curves(part)] == ["learning_loss_toy", "learning_val_err_toy"]


def test_runs_with_and_without_a_measure_share_a_table(run, tmp_path):
    run("with", measures={"err": ERR})
    run("without", width=16)
    merged = merge(tmp_path / "logs", output=tmp_path / "metrics.csv")[0].csv
    filled = {row["run_id"]: bool(row["val_err"]) for row in read_metrics(merged)}
    assert filled == {"with": True, "without": False}
    metrics = load_metrics(merged)
    assert metrics.kind.primary.name == "micro_f1"
    (part,) = by_dataset(metrics)
    names = [chart.name for chart in learning_curves(part)]
    assert names == ["learning_loss_toy", "learning_val_micro_f1_toy", "learning_val_err_toy"]


def test_run_folders_know_the_direction(run):
    (metrics,) = load_runs([run("one", measures={"err": ERR}, best_by="err"), run("other", width=16)])
    assert metrics.kind.primary.name == "micro_f1", "they were judged by different measures"
    directions = {measure.name: measure.higher_is_better for measure in metrics.kind.measures}
    assert directions["err"] is False


def test_the_lowest_error_is_the_best(run):
    runs = [run(f"w{width}", width=width, err=width / 10, measures={"err": ERR}, best_by="err") for width in (8, 16)]
    (table,) = compare(runs)
    assert (table.measure, table.higher_is_better) == ("err", False)
    assert table.best.runs == ("w8",)


def test_runs_that_were_judged_differently_are_compared_by_the_tasks_measure(run):
    (table,) = compare([run("one", measures={"err": ERR}, best_by="err"), run("other", width=16)])
    assert table.measure == "micro-F1"
    assert all(0.5 < row.val.mean < 1 for row in table.rows)


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8),
    rises=st.booleans(),
    assumed=st.booleans(),
)
def test_the_direction_is_in_the_rows(values, rises, assumed):
    best = itertools.accumulate(values, max if rises else min)
    rows = tuple(("run", repr(value), repr(top)) for value, top in zip(values, best, strict=True))
    table = CsvTable(Path("metrics.csv"), ("run_id", "val_own", "best_val_own"), rows, tuple(range(len(rows))))
    kind = with_measures(NODES, [Measure("own", "own", higher_is_better=assumed)], None)
    found = with_directions(kind, table).measures[-1].higher_is_better
    assert found == rises or len(set(values)) == 1
