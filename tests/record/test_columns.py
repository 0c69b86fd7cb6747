"""Columns: one name for one thing in every task, and files with other names are read by those of now."""

import csv
from pathlib import Path

import pytest

from graphmill.base.errors import UserError
from graphmill.record.columns import ANY_COLUMN, LAYOUTS, current_names, kind_of_header
from graphmill.record.metrics import read_metrics, write_metrics
from graphmill.report.layouts import merge_as
from graphmill.report.merge import merge
from graphmill.report.table import datasets_of, load_metrics, load_tables
from graphmill.spec.columns import Measure
from graphmill.spec.kinds import TASKS, all_kinds, default_kind

ROW = {"run_id": "r", "epoch": 1, "loss": 2.5, "train_s": 4.0, "wait_s": 0.5, "num_seeds": 60, "val_loss": 3.0}
HEADERS = {  # of the scripts in docs/coming-from.md
    "sync-ablation": """run_id sync_every epoch loss microF1 macroF1 best_microF1 best_macroF1 local_steps epoch_steps
        effective_global_steps seed_nodes_epoch_global seed_nodes_cum_global target_global_steps world_size time syncs
        commMB_per_step_fp16 commMB_per_step_fp32 commMB_per_step_fp64 commMB_epoch_fp16 commMB_cum_fp16
        commMB_epoch_fp32 commMB_cum_fp32 commMB_epoch_fp64 commMB_cum_fp64""",
    "multi-node-dcrnn": """epoch train_loss val_loss val_mae val_rmse epoch_time_sec throughput_samples_per_sec
        data_load_time_sec compute_time_sec gpu_util_avg cpu_util_avg""",
}
# metrics.csv of runs of version 0.1.0, two epochs of the first and one of the second
OF_0_1_0 = {
    "node_classification": """\
run_id,sync_every,epoch,loss,microF1,macroF1,best_microF1,best_macroF1,local_steps,epoch_steps,effective_global_steps,\
seed_nodes_epoch_global,seed_nodes_cum_global,target_global_steps,world_size,time,syncs,commMB_per_step_fp16,\
commMB_per_step_fp32,commMB_per_step_fp64,commMB_epoch_fp16,commMB_cum_fp16,commMB_epoch_fp32,commMB_cum_fp32,\
commMB_epoch_fp64,commMB_cum_fp64,sync_scheme,seed,num_hosts,dataset,synthetic,payload,val_loss,seeds_per_s,sample_s,\
gather_s,wait_s,compute_s,sync_s,eval_s,syncs_cum,measured_mib_epoch,measured_mib_cum,interface_mib_epoch,\
interface_mib_cum,replicas_agree,peak_rss_mib,peak_gpu_mib,attempt
old,3,1,1.5,,,,,5,5,10,140,140,20,2,0.25,2,0.5,1.0,2.0,1.0,1.0,2.0,2.0,4.0,4.0,local_sgd,1,1,planetoid/cora,false,fp32,,\
560.0,0.5,0.25,0.125,0.0625,0.5,,2,2.0,2.0,2.5,2.5,true,331.5,,1
old,3,2,1.25,0.75,0.5,0.75,0.5,10,5,20,140,280,20,2,0.25,2,0.5,1.0,2.0,1.0,2.0,2.0,4.0,4.0,8.0,local_sgd,1,1,\
planetoid/cora,false,fp32,1.0,560.0,0.5,0.25,0.125,0.0625,0.5,0.5,4,2.0,4.0,2.5,5.0,true,331.5,,1
""",
    "traffic": """\
epoch,train_loss,val_loss,val_mae,val_rmse,epoch_time_sec,throughput_samples_per_sec,data_load_time_sec,\
compute_time_sec,gpu_util_avg,cpu_util_avg,run_id,sync_every,world_size,local_steps,epoch_steps,sync_scheme,seed,\
num_hosts,dataset,synthetic,payload,effective_global_steps,target_global_steps,samples_epoch_global,\
samples_cum_global,syncs,gather_s,sync_s,eval_s,syncs_cum,measured_mib_epoch,measured_mib_cum,interface_mib_epoch,\
interface_mib_cum,replicas_agree,peak_rss_mib,peak_gpu_mib,attempt,best_val_mae,val_mape,val_mae_15min,val_mae_30min,\
val_mae_60min,val_mae_step1,val_rmse_15min,val_rmse_30min,val_rmse_60min,val_rmse_step1,val_mape_15min,\
val_mape_30min,val_mape_60min,val_mape_step1
1,2.5,6.0,6.0,7.25,2.0,256.0,0.125,1.5,,100.0,old,3,2,8,8,diloco,1,1,synthetic/traffic,true,fp32,16,32,512,512,3,0.125,\
0.25,0.5,3,0.125,0.125,0.25,0.25,true,331.5,,1,6.0,12.5,5.5,6.25,6.5,,6.5,7.25,8.5,,12.0,13.5,14.5,
""",
}
IN_0_1_0 = [kind for kind in all_kinds() if kind.name in OF_0_1_0]


@pytest.mark.parametrize("kind", all_kinds(), ids=lambda kind: kind.name)
def test_a_task_is_known_by_its_header(kind):
    assert kind_of_header(kind.columns) is kind
    assert kind_of_header(reversed(kind.columns)) is kind
    assert kind_of_header([*kind.columns, "another"]) is None
    assert kind_of_header([name for name in kind.columns if name != f"val_{kind.primary.name}"]) is None


def test_a_name_holds_one_kind_of_value_whatever_the_task():
    for kind in all_kinds():
        for name, column in kind.columns.items():
            assert column.kind == ANY_COLUMN[name].kind, name
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


def test_no_name_of_now_is_another_columns_former_name():
    assert current_names(ANY_COLUMN) == tuple(ANY_COLUMN)


def test_better_is_higher_or_lower_and_never_nan():
    f1, error = Measure("f1", "F1", higher_is_better=True), Measure("mae", "MAE", higher_is_better=False)
    assert f1.is_better(0.6, 0.5)
    assert error.is_better(0.5, 0.6)
    assert not any(measure.is_better(value, 0.5) for measure in (f1, error) for value in (0.5, float("nan")))


@pytest.mark.parametrize("kind", IN_0_1_0, ids=lambda kind: kind.name)
def test_a_file_of_version_0_1_0_is_read_by_the_names_of_now(tmp_path: Path, kind):
    path = tmp_path / "metrics.csv"
    path.write_text(OF_0_1_0[kind.name])
    rows = read_metrics(path)
    assert set(rows[0]) <= kind.columns.keys()
    last = rows[-1]
    seen = [last[name] for name in ("steps_done", "train_s", "num_seeds", "num_syncs", "num_syncs_cum", "wait_s")]
    expected = {
        "node_classification": ["10", "0.25", "140", "2", "4", "0.125"],
        "traffic": ["8", "2.0", "512", "3", "3", "0.125"],
    }[kind.name]
    assert seen == expected
    frame = load_metrics(path).frame
    assert set(frame.columns) == kind.columns.keys()
    assert frame[f"best_val_{kind.primary.name}"].to_list()[-1] == float(last[f"val_{kind.primary.name}"])


@pytest.mark.parametrize("kind", IN_0_1_0, ids=lambda kind: kind.name)
def test_runs_of_both_versions_are_merged_into_one_table(tmp_path: Path, kind):
    old, new = tmp_path / "logs" / "old" / "metrics.csv", tmp_path / "logs" / "new" / "metrics.csv"
    old.parent.mkdir(parents=True)
    old.write_text(OF_0_1_0[kind.name])
    write_metrics(
        new, [ROW | {"run_id": "new", "sync_scheme": "diloco", "sync_every": 1, "world_size": 1}], kind.columns
    )
    (merged,) = merge(tmp_path / "logs", output=tmp_path / "out.csv")
    rows = read_metrics(merged.csv)
    assert list(rows[0]) == list(kind.columns)
    assert [row["run_id"] for row in rows] == ["new", *["old"] * (len(rows) - 1)]
    assert merged.original_files == ()


def test_a_layout_is_the_header_of_the_other_program_and_reads_back(tmp_path: Path):
    for name, header in HEADERS.items():
        kind, layout = LAYOUTS[name]
        assert list(layout.columns) == header.split()
        assert set(layout.columns.values()) <= kind.columns.keys()
        logs = tmp_path / name
        (logs / "old").mkdir(parents=True)
        (logs / "old" / "metrics.csv").write_text(OF_0_1_0[kind.name])
        viewed = merge_as(name, logs, pattern="**/metrics.csv", output=tmp_path / f"{name}.csv")[0].csv
        with viewed.open(newline="") as file:
            shown = list(csv.DictReader(file))
        assert list(shown[0]) == header.split()
        was = list(csv.DictReader(OF_0_1_0[kind.name].splitlines()))
        assert shown == [{column: row[column] for column in header.split()} for row in was]


def test_a_layout_of_another_task_is_refused(tmp_path: Path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "metrics.csv").write_text(OF_0_1_0["traffic"])
    with pytest.raises(UserError, match="val_micro_f1"):
        merge_as("sync-ablation", tmp_path, pattern="**/metrics.csv", output=tmp_path / "out.csv")
    with pytest.raises(UserError, match="did you mean 'sync-ablation'"):
        merge_as("sync_ablation", tmp_path, pattern="**/metrics.csv")


def test_a_layout_that_cannot_tell_runs_apart_takes_one_run(tmp_path: Path):
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        (tmp_path / run / "metrics.csv").write_text(OF_0_1_0["traffic"].replace(",old,", f",{run},"))
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
    assert [metrics.kind.name for _, metrics in load_tables(output, columns=["val_mae"])] == ["traffic"]
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
