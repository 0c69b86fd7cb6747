"""The closing table: what each scheme and k reached, and what it moved and took."""

from pathlib import Path

import pytest
from rich.console import Console

from graphmill.record.documents import Outcome
from graphmill.record.metrics import write_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.report.schemes import scheme_table, scheme_tables
from graphmill.tasks.node_classification.page import KIND as NODES


def printed(rows, width=90) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    for table in scheme_tables(rows):
        console.print(table, "", sep="\n")
    return console.export_text()


def test_a_row_holds_means_over_the_runs_of_a_scheme_and_k(tmp_path: Path, plausible):
    rows = [row | {"val_micro_f1": 0.8 + seed / 100} for seed in (1, 3) for row in plausible.run_rows(seed=seed, k=16)]
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    (row,) = scheme_table(tmp_path / "metrics.csv", runs_root=None)
    assert (row.scheme, row.k, row.world_size, row.num_runs) == ("deferred_allreduce", 16, 4, 2)
    assert row.val == pytest.approx(0.82)
    assert row.val_sd == pytest.approx(0.0141421, rel=1e-4)
    assert row.syncs == 36
    assert row.modelled_mib == row.measured_mib == pytest.approx(36 * 1.257)
    assert row.wall_s == pytest.approx(sum(r["train_s"] + r["eval_s"] for r in rows) / 2)
    assert row.replicas_agree is True
    assert row.test is None


def test_half_precision_payloads_are_modelled_in_half_precision(tmp_path: Path, plausible):
    write_metrics(tmp_path / "metrics.csv", plausible.run_rows(payload="bf16"), NODES.columns)
    (row,) = scheme_table(tmp_path / "metrics.csv", runs_root=None)
    assert row.modelled_mib == row.measured_mib


def test_test_results_come_from_the_runs_own_folders(tmp_path: Path, plausible):
    rows = plausible.study_rows(ks=(1,), seeds=(1, 2), schemes=("local_sgd",))
    plausible.write_runs(tmp_path / "logs", rows)
    for run_id, score in zip(sorted({row["run_id"] for row in rows}), (0.81, 0.83), strict=True):
        outcome = Outcome(status="done", exit_code=0, epochs=1, steps_per_rank=1, test={"micro_f1": score}, wall_s=1)
        RunFolder(tmp_path / "logs" / run_id).write_outcome(outcome)
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    (row,) = scheme_table(tmp_path / "metrics.csv", runs_root=tmp_path / "logs")
    assert row.test == pytest.approx(0.82)
    assert "0.8200 ±.0141" in printed([row], width=100)
    assert "…" not in printed([row], width=80)


def test_a_run_id_that_is_no_name_of_a_folder_is_not_followed(tmp_path: Path, plausible):
    write_metrics(tmp_path / "metrics.csv", plausible.run_rows(run_id="../../secret"), NODES.columns)
    (row,) = scheme_table(tmp_path / "metrics.csv", runs_root=tmp_path / "logs")
    assert row.test is None


def test_a_file_of_the_original_has_a_table_too(tmp_path: Path, plausible):
    plausible.write_sync_ablation(tmp_path / "metrics.csv", plausible.run_rows(k=16))
    (row,) = scheme_table(tmp_path / "metrics.csv", runs_root=None)
    assert (row.syncs, row.measured_mib, row.dataset, row.replicas_agree) == (36, None, None, None)
    assert "not all runs recorded whether" in printed([row])
    assert "measured" not in printed([row])


def test_what_the_terminal_shows(tmp_path: Path, plausible, golden):
    rows = plausible.study_rows(ks=(1, 4, 16), seeds=(1, 2)) + plausible.run_rows(dataset="sbm [1]", synthetic=True)
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    golden("report/scheme_table.txt", printed(scheme_table(tmp_path / "metrics.csv", runs_root=None)))


def test_replicas_that_differ_are_said_loudly(tmp_path: Path, plausible):
    rows = plausible.run_rows(k=8)
    rows[3]["replicas_agree"] = False
    write_metrics(tmp_path / "metrics.csv", rows, NODES.columns)
    table = scheme_table(tmp_path / "metrics.csv", runs_root=None)
    assert "replicas differed after a sync of deferred all-reduce at k = 8" in printed(table)
