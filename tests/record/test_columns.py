"""Columns: one name for one thing in every task, and files of other programs are read by our names."""

import csv
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.columns import any_column, current_names, kind_of_header, layouts
from graphmill.record.metrics import read_metrics, write_metrics
from graphmill.report.layouts import merge_as
from graphmill.report.merge import merge
from graphmill.report.table import datasets_of, load_metrics, load_tables
from graphmill.spec.columns import Measure
from graphmill.spec.kinds import TASKS, all_kinds, default_kind

ROW = {"run_id": "r", "epoch": 1, "loss": 2.5, "train_s": 4.0, "wait_s": 0.5, "num_seeds": 60, "val_loss": 3.0}
# metrics.csv of the scripts in docs/coming-from.md
OF_OTHERS = {
    "sync-ablation": """\
run_id,sync_every,epoch,loss,microF1,macroF1,best_microF1,best_macroF1,local_steps,epoch_steps,effective_global_steps,\
seed_nodes_epoch_global,seed_nodes_cum_global,target_global_steps,world_size,time,syncs,commMB_per_step_fp16,\
commMB_per_step_fp32,commMB_per_step_fp64,commMB_epoch_fp16,commMB_cum_fp16,commMB_epoch_fp32,commMB_cum_fp32,\
commMB_epoch_fp64,commMB_cum_fp64
old,3,1,1.5,,,,,5,5,10,140,140,20,2,0.25,2,0.5,1.0,2.0,1.0,1.0,2.0,2.0,4.0,4.0
old,3,2,1.25,0.75,0.5,0.75,0.5,10,5,20,140,280,20,2,0.25,2,0.5,1.0,2.0,1.0,2.0,2.0,4.0,4.0,8.0
""",
    "multi-node-dcrnn": """\
epoch,train_loss,val_loss,val_mae,val_rmse,epoch_time_sec,throughput_samples_per_sec,data_load_time_sec,\
compute_time_sec,gpu_util_avg,cpu_util_avg
1,2.5,6.0,6.0,7.25,2.0,256.0,0.125,1.5,,100.0
""",
}


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_a_task_is_known_by_its_header(kind):
    assert kind_of_header(kind.columns) is kind
    assert kind_of_header(reversed(kind.columns)) is kind
    assert kind_of_header([*kind.columns, "another"]) is None
    assert kind_of_header([name for name in kind.columns if name != f"val_{kind.primary.name}"]) is None


def test_a_name_holds_one_kind_of_value_whatever_the_task():
    for kind in all_kinds():
        for name, column in kind.columns.items():
            assert column.kind == any_column()[name].kind, name
            assert column.description
            assert "|" not in column.description


def own_columns(kind) -> set[str]:
    """Of its measures, and what only its runs record."""
    measured = {f"{when}_{measure.name}" for measure in kind.measures for when in ("val", "best_val")}
    return measured | set(kind.own_columns)


def test_tasks_differ_in_their_own_columns_alone():
    for kind in all_kinds():
        assert own_columns(kind) <= kind.columns.keys()
        shared = kind.columns.keys() - own_columns(kind)
        assert shared == default_kind().columns.keys() - own_columns(default_kind())


def test_no_name_of_ours_is_another_programs_name_of_another_column():
    assert current_names(any_column()) == tuple(any_column())


def test_better_is_higher_or_lower_and_never_nan():
    f1, error = Measure("f1", "F1", higher_is_better=True), Measure("mae", "MAE", higher_is_better=False)
    assert f1.is_better(0.6, 0.5)
    assert error.is_better(0.5, 0.6)
    assert not any(measure.is_better(value, 0.5) for measure in (f1, error) for value in (0.5, float("nan")))


def run_shown_as(name: str, path: Path, run_id: str) -> None:
    """A run whose view in that layout is the other program's file."""
    kind, layout = layouts()[name]
    shown = csv.DictReader(OF_OTHERS[name].splitlines())
    rows = [{"run_id": run_id, **{layout.columns[column]: text for column, text in row.items()}} for row in shown]
    write_metrics(path, rows, kind.columns)


@pytest.mark.parametrize("name", layouts())
def test_a_layout_is_the_header_of_the_other_program_and_reads_back(tmp_path: Path, name: str):
    kind, layout = layouts()[name]
    assert ",".join(layout.columns) == OF_OTHERS[name].partition("\n")[0]
    assert set(layout.columns.values()) <= kind.columns.keys()
    run_shown_as(name, tmp_path / "logs" / "old" / "metrics.csv", "old")
    viewed = merge_as(name, tmp_path / "logs", pattern="**/metrics.csv", output=tmp_path / "out.csv")[0].csv
    assert viewed.read_text() == OF_OTHERS[name]
    assert set(read_metrics(viewed)[0]) == set(layout.columns.values())


def test_a_layout_of_another_task_is_refused(tmp_path: Path):
    run_shown_as("multi-node-dcrnn", tmp_path / "old" / "metrics.csv", "old")
    with pytest.raises(UserError, match="val_micro_f1"):
        merge_as("sync-ablation", tmp_path, pattern="**/metrics.csv", output=tmp_path / "out.csv")
    with pytest.raises(UserError, match="did you mean 'sync-ablation'"):
        merge_as("sync_ablation", tmp_path, pattern="**/metrics.csv")


def test_a_layout_that_cannot_tell_runs_apart_takes_one_run(tmp_path: Path):
    for run in ("a", "b"):
        run_shown_as("multi-node-dcrnn", tmp_path / run / "metrics.csv", run)
    with pytest.raises(UserError, match="there are 2"):
        merge_as("multi-node-dcrnn", tmp_path, pattern="**/metrics.csv", output=tmp_path / "out.csv")


def runs_of_both_tasks(root: Path) -> None:
    for kind in all_kinds():
        row = {**ROW, "run_id": kind.name, "sync_scheme": "local_sgd", "sync_every": 1, "world_size": 1, "seed": 1}
        write_metrics(root / kind.name / "metrics.csv", [row], kind.columns)


def test_each_task_has_a_table_of_its_own_and_an_earlier_one_of_all_is_gone(tmp_path, caplog):
    runs_of_both_tasks(tmp_path)
    output = tmp_path / "results" / "metrics.csv"
    merge(tmp_path / "traffic", output=output)
    with caplog.at_level("INFO"):
        merged = merge(tmp_path, output=output)
    assert f"removed {output}: of an earlier merge" in caplog.text
    assert [one.task for one in merged] == sorted(TASKS)
    assert sorted(path.name for path in output.parent.glob("*.csv")) == [
        f"metrics_{task}.csv" for task in sorted(TASKS)
    ]
    assert not output.with_suffix(".parquet").exists()
    tables = load_tables(output)
    assert sorted(metrics.kind.name for _, metrics in tables) == sorted(TASKS)
    assert [path for path, _ in load_tables(output, task="traffic")] == [output.with_name("metrics_traffic.csv")]
    assert [metrics.kind.name for _, metrics in load_tables(output, runs="traff*")] == ["traffic"]
    of_errors = load_tables(output, columns=["val_mae"])
    assert [metrics.kind.name for _, metrics in of_errors] == ["node_regression", "traffic"]
    with pytest.raises(UserError, match="'nothing'"):
        load_tables(output, runs="nothing")


def test_what_is_drawn_of_two_tasks_never_shares_a_file(tmp_path):
    runs_of_both_tasks(tmp_path)
    merge(tmp_path, output=tmp_path / "metrics.csv")
    suffixes = [part.suffix for _, part in datasets_of(load_tables(tmp_path / "metrics.csv"))]
    assert len(set(suffixes)) == len(TASKS)


def test_a_view_of_runs_of_two_tasks_is_refused_as_such(tmp_path):
    runs_of_both_tasks(tmp_path)
    with pytest.raises(UserError, match="different columns") as refused:
        merge_as("sync-ablation", tmp_path, pattern="**/metrics.csv", output=tmp_path / "out.csv")
    assert "--glob" in refused.value.fix


def test_runs_of_any_task_merge_among_themselves_and_load(tmp_path):
    runs_of_both_tasks(tmp_path)
    for task in TASKS:
        (merged,) = merge(tmp_path / task, output=tmp_path / f"{task}.csv")
        assert merged.csv.read_bytes() == (tmp_path / task / "metrics.csv").read_bytes()
        frame = load_metrics(merged.csv).frame
        assert frame["train_s"].to_list() == [4.0]
        assert frame["loss"].to_list() == [2.5]
