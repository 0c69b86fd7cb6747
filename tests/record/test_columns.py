"""Columns by task: the originals' own come first, and a fact is the same fact in every task."""

import pytest

from graphmill.base.errors import UserError
from graphmill.record.columns import ANY_COLUMN, cells_of, facts_of, kind_of_header
from graphmill.record.metrics import read_metrics, write_metrics
from graphmill.report.merge import merge
from graphmill.report.table import load_metrics
from graphmill.spec.columns import Measure
from graphmill.spec.kinds import KINDS
from graphmill.spec.kinds.node_classification import SEED_000_COLUMNS
from graphmill.spec.kinds.traffic import KIND as TRAFFIC
from graphmill.spec.kinds.traffic import SEED_003_COLUMNS

SEED_003 = """epoch train_loss val_loss val_mae val_rmse epoch_time_sec throughput_samples_per_sec data_load_time_sec
compute_time_sec gpu_util_avg cpu_util_avg"""
FACTS = {"run_id": "r", "epoch": 1, "loss": 2.5, "time": 4.0, "wait_s": 0.5, "num_seeds_epoch": 60, "val_loss": 3.0}


def test_the_columns_of_seed_003_come_first_in_its_order():
    assert list(TRAFFIC.columns)[:11] == SEED_003.split() == list(SEED_003_COLUMNS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_task_is_known_by_its_header(kind):
    assert kind_of_header(kind.columns) is kind
    assert kind_of_header(reversed(kind.columns)) is None
    assert kind_of_header(SEED_000_COLUMNS) is None


def test_a_name_holds_one_kind_of_value_whatever_the_task():
    for kind in KINDS:
        for name, column in kind.columns.items():
            assert (column.kind, column.shows) == (ANY_COLUMN[name].kind, ANY_COLUMN[name].shows), name
            assert column.description
            assert "|" not in column.description


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_measure_has_its_columns(kind):
    shown = {column.shows or name for name, column in kind.columns.items()}
    assert {f"val_{measure.name}" for measure in kind.measures} <= shown
    assert f"best_val_{kind.primary.name}" in shown


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_facts_come_back_from_the_row_that_shows_them(tmp_path, kind):
    write_metrics(tmp_path / "metrics.csv", [cells_of(kind, FACTS)], kind.columns)
    (row,) = read_metrics(tmp_path / "metrics.csv")
    assert list(row) == list(kind.columns)
    found = facts_of(kind, row)
    assert {name: found[name] for name in FACTS} == {name: str(value) for name, value in FACTS.items()}


def test_the_same_facts_under_the_names_of_each_original():
    of_graph, of_traffic = (cells_of(kind, FACTS) for kind in KINDS)
    assert (of_graph["loss"], of_graph["time"], of_graph["seed_nodes_epoch_global"]) == (2.5, 4.0, 60)
    assert (of_traffic["train_loss"], of_traffic["epoch_time_sec"], of_traffic["samples_epoch_global"]) == (
        2.5,
        4.0,
        60,
    )
    assert of_traffic["data_load_time_sec"] == 0.5, "what the step waited, not what a thread did meanwhile"


def test_an_unknown_fact_is_our_own_bug_and_names_the_nearest():
    with pytest.raises(ValueError, match=r"'los'.*did you mean 'loss'"):
        cells_of(TRAFFIC, {"los": 1.0})


def test_better_is_higher_or_lower_and_never_nan():
    f1, error = Measure("f1", "F1", higher_is_better=True), Measure("mae", "MAE", higher_is_better=False)
    assert f1.is_better(0.6, 0.5)
    assert error.is_better(0.5, 0.6)
    assert not any(measure.is_better(value, 0.5) for measure in (f1, error) for value in (0.5, float("nan")))


def runs_of_both_tasks(root):
    for kind in KINDS:
        facts = {**FACTS, "run_id": kind.name, "sync_scheme": "local_sgd", "sync_every": 1, "world_size": 1, "seed": 1}
        write_metrics(root / kind.name / "metrics.csv", [cells_of(kind, facts)], kind.columns)


def test_a_merge_of_two_tasks_is_refused_as_such(tmp_path):
    runs_of_both_tasks(tmp_path)
    with pytest.raises(UserError, match=r"of a node_classification run, .* of a traffic run, and one table") as refused:
        merge(tmp_path, output=tmp_path / "out.csv")
    assert "--input-root" in refused.value.fix


def test_runs_of_any_task_merge_among_themselves_and_load(tmp_path):
    runs_of_both_tasks(tmp_path)
    for task in (kind.name for kind in KINDS):
        merged = merge(tmp_path / task, output=tmp_path / f"{task}.csv")
        assert merged.csv.read_bytes() == (tmp_path / task / "metrics.csv").read_bytes()
        frame = load_metrics(merged.csv).frame
        assert frame["time"].to_list() == [4.0], "a fact stands under one name for whoever draws"
        assert frame["loss"].to_list() == [2.5]
