"""Runs that differ in more than their rng seed are never averaged, in any table or figure."""

import csv
import itertools
from pathlib import Path

import pytest

from graphmill.record.metrics import write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.report.curves import mean_curves, sync_ablation, title_of
from graphmill.report.merge import merge
from graphmill.report.pareto import pareto
from graphmill.report.table import by_dataset, load_metrics
from graphmill.tasks.node_classification.page import KIND as NODES
from graphmill.tasks.node_classification.page import NodeClassificationExperiment

GRID = list(itertools.product((8, 16), (0.1, 0.01), (1, 2)))
WIDTH, LR = "plan.model.hidden_channels", "plan.optimizer.lr"


@pytest.fixture
def grid(tmp_path: Path, planner, plausible) -> Path:
    """Merged: two widths, two learning rates, two rng seeds; the widths are far apart in accuracy."""
    for width, lr, seed in GRID:
        run_id = f"w{width}-lr{lr}-s{seed}"
        asked = {
            "model": {"kind": "graphsage", "hidden_channels": width},
            "train": {"ranks": 2, "epochs": 12, "seed": seed, "optimizer": {"kind": "adam", "lr": lr}},
        }
        folder = RunFolder.create(
            planner(NodeClassificationExperiment.model_validate(asked), run_id), tmp_path / "logs"
        )
        rows = plausible.run_rows(run_id=run_id, seed=seed, world_size=2, ceiling=width / 100 + lr, dataset="toy")
        write_metrics(folder.metrics_path, rows, NODES.columns)
    return merge(tmp_path / "logs", output=tmp_path / "metrics.csv")[0].csv


def test_what_varies_is_a_column(grid):
    with grid.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [name for name in rows[0] if name.startswith("plan.")] == [WIDTH, LR]
    assert {(row[WIDTH], row[LR], row["run_id"]) for row in rows} == {
        (str(width), str(lr), f"w{width}-lr{lr}-s{seed}") for width, lr, seed in GRID
    }


def test_a_grid_has_four_curves_and_four_ends(grid, tmp_path):
    (part,) = by_dataset(load_metrics(grid))
    curves = mean_curves(part, "global_steps", "val_micro_f1")
    assert [curve.num_runs for curve in curves] == [2] * 4
    chart = sync_ablation(part)
    assert [series.label for series in chart.panels[0].series] == [
        f"hidden_channels {width}, lr {lr}" for width in (8, 16) for lr in (0.01, 0.1)
    ]
    assert "deferred all-reduce, 2 ranks, mean ± s.d. of 2 seeds" in chart.title
    alone = [curve.variant._replace(world_size=1) for curve in curves]
    assert title_of(part, alone, [2] * 4) == f"{part.name}, 1 rank, mean ± s.d. of 2 seeds"
    (written,) = pareto(grid, output_dir=tmp_path)
    with written.summary.open() as lines:
        summary = list(csv.DictReader(lines))
    assert sorted((row[WIDTH], row[LR], row["n"]) for row in summary) == sorted(
        (str(width), str(lr), "2") for width in (8, 16) for lr in (0.1, 0.01)
    )


def test_runs_that_are_chosen_may_be_of_one_configuration(grid):
    """What does not vary among them is no column."""
    (part,) = by_dataset(load_metrics(grid, runs="w8-lr0.1-*"))
    assert set(part.frame["configuration"]) == {""}
