"""Each breach of a finished run is found, and named."""

import csv
import json

import pytest

from graphmill.cluster.run import start_run
from graphmill.cluster.verify import verify_run
from graphmill.record.run_folder import RunFolder


@pytest.fixture
def finished(tmp_path, make_plan, stand_in) -> RunFolder:
    start_run(make_plan("mine"), logs_root=tmp_path, command=stand_in("0:finish", "1:finish"))
    return RunFolder.open(tmp_path / "mine")


def failures(folder: RunFolder) -> dict[str, str]:
    return {check.name: check.detail for check in verify_run(folder) if check.result == "fail"}


def edit(folder: RunFolder, row: int, **cells: str) -> None:
    rows = list(csv.DictReader(folder.metrics_path.open()))
    rows[row].update(cells)
    with folder.metrics_path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_a_whole_run_passes(finished):
    assert failures(finished) == {}
    results = {check.name: check.result for check in verify_run(finished)}
    assert results["dataset"] == "warn", "the toy dataset is not on this machine"
    assert results["seeds"] == results["replicas"] == results["ranks"] == "ok"


@pytest.mark.parametrize("file", ["provenance.json", "attempts.jsonl", "metrics.csv", "outcome.json"])
def test_a_missing_file(finished, file):
    (finished.path / file).unlink()
    assert file in failures(finished)["files"]


@pytest.mark.parametrize(
    ("cells", "check", "detail"),
    [
        ({"loss": "nan"}, "losses", "epoch 2: loss is nan"),
        ({"loss": ""}, "losses", "loss is empty"),
        ({"val_loss": "inf"}, "losses", "val_loss is inf"),
        ({"replicas_agree": "false"}, "replicas", "epoch 2: replicas_agree is false"),
        ({"replicas_agree": ""}, "replicas", "replicas_agree is empty"),
        ({"seed_nodes_epoch_global": "59"}, "seeds", "epoch 2 saw 59 seeds of 60"),
        ({"seed_nodes_epoch_global": "61"}, "seeds", "epoch 2 saw 61 seeds of 60"),
        ({"epoch": "3"}, "metrics", "epochs 1 to 3"),
        ({"local_steps": "5"}, "metrics", "5 steps of each rank, but 6 were planned"),
        ({"epoch_steps": "2"}, "metrics", "add up to 5"),
        ({"run_id": "other"}, "identity", "run_id is other, but mine in the plan"),
        ({"sync_scheme": "diloco"}, "identity", "sync_scheme is diloco"),
        ({"synthetic": "true"}, "identity", "synthetic is true, but false"),
        ({"local_steps": "many"}, "metrics", "no number"),
    ],
)
def test_a_wrong_cell(finished, cells, check, detail):
    edit(finished, 1, **cells)
    assert detail in failures(finished)[check]


def test_a_run_that_has_not_ended(finished):
    finished.outcome_path.unlink()
    assert "under way, or died without a word" in failures(finished)["outcome"]


@pytest.mark.parametrize(
    ("change", "detail"),
    [({"status": "failed"}, "failed after 2 epochs"), ({"test": None}, "test split was not evaluated")],
)
def test_an_outcome_that_is_not_done(finished, change, detail):
    outcome = json.loads(finished.outcome_path.read_text())
    finished.outcome_path.write_text(json.dumps({**outcome, **change}))
    assert detail in failures(finished)["outcome"]


def test_a_rank_that_was_never_heard_from(finished):
    finished.events_path(1).unlink()
    assert failures(finished)["ranks"] == "rank 1 was never heard from"


def test_a_rank_that_did_not_finish(finished):
    path = finished.events_path(1)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    assert "rank 1 did not finish: its last word is start" in failures(finished)["ranks"]


def test_a_checkpoint_without_a_manifest_is_none(finished):
    for manifest in finished.checkpoints_dir.glob("*/manifest.json"):
        manifest.unlink()
    assert failures(finished)["checkpoints"] == "none is complete"


@pytest.mark.parametrize(
    ("damage", "detail"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"other"), "does not match its checksum"),
        (lambda folder: (folder / "model.safetensors").unlink(), "cannot be read"),
        (lambda folder: (folder / "manifest.json").write_text("{"), "is damaged"),
        (lambda folder: (folder / "manifest.json").write_text("{}"), "is damaged"),
        (lambda folder: (folder / "manifest.json").write_text('{"files": 3}'), "is damaged"),
    ],
)
def test_a_damaged_checkpoint(finished, damage, detail):
    damage(next(finished.checkpoints_dir.iterdir()))
    assert detail in failures(finished)["checkpoints"]


def test_provenance_of_other_data(finished):
    provenance = json.loads(finished.provenance_path.read_text())
    finished.provenance_path.write_text(json.dumps({**provenance, "synthetic": True}))
    assert "other data" in failures(finished)["provenance"]


@pytest.mark.parametrize("file", ["outcome.json", "provenance.json", "metrics.csv"])
def test_damage_is_told_and_nothing_crashes(finished, file):
    (finished.path / file).write_bytes(b'{"torn')
    assert failures(finished)


def test_fewer_epochs_than_planned(finished):
    lines = finished.metrics_path.read_text().splitlines(keepends=True)
    finished.metrics_path.write_text("".join(lines[:2]))
    assert "1 rows, but 2 were planned" in failures(finished)["metrics"]
    finished.metrics_path.write_text(lines[0])
    assert "no epoch" in failures(finished)["metrics"]
