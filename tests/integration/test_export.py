"""Runs in experiment trackers: a run that was killed and resumed is one run there, and nothing is ever doubled."""

import importlib.util
import json
import math
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmill.base.errors import UserError
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.report.export.tracker import PACKAGES, Target, open_tracker, read_run, refuse_same_names

pytestmark = pytest.mark.distributed
EPOCHS = 6


def tracker(name: str, **target):
    module = {"mlflow": "sqlalchemy"}.get(name, name)
    if importlib.util.find_spec(name) is None or importlib.util.find_spec(module) is None:
        pytest.skip(f"{' '.join(PACKAGES[name])} is not installed")
    return open_tracker(name, Target("gnn", **target))


def interrupted(planned, zygote, root, *, kills: int, epochs: int) -> RunFolder:
    """A run whose first attempts are killed a bit more than an epoch after they began."""
    settings = {"ranks": 1, "batch_size": 70, "optimizer": {"kind": "adam", "lr": 0.1}}
    short = RunFolder.create(planned("short", epochs=2, baselines=False, **settings), root)
    zygote.wait(zygote.start(short, resume=False, die_at=-1))
    folder = RunFolder.create(planned("study/often-killed", epochs=epochs, **settings), root)
    folder.note_provenance(["test"])
    for number in range(kills):
        killed = zygote.wait(zygote.start(folder, resume=number > 0, die_at=zygote.changes(short)))
        assert killed == [-signal.SIGKILL], zygote.said(folder)
    assert zygote.wait(zygote.start(folder, resume=True)) == [0], zygote.said(folder)
    assert len(folder.attempts()) == kills + 1
    return folder


@pytest.fixture(scope="module")
def folder(planned, zygote, tmp_path_factory) -> RunFolder:
    return interrupted(planned, zygote, tmp_path_factory.mktemp("logs"), kills=2, epochs=EPOCHS)


@pytest.fixture(scope="module")
def run(folder):
    return read_run(folder)


def series(run, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in run.points if point.name == name]


def test_one_run_whatever_attempts_it_took(folder, run):
    rows = read_metrics(folder.metrics_path)
    assert {row["attempt"] for row in rows} >= {"1", "3"}
    for name in ("loss", "val_loss", "val_micro_f1", "best_val_micro_f1", "train_s", "measured_mib_cum", "num_syncs"):
        assert series(run, name) == [(epoch, float(rows[epoch - 1][name])) for epoch in range(1, EPOCHS + 1)], name
    assert [step for step, _ in series(run, "learning_rate")] == list(range(1, EPOCHS + 1))
    times = [point.time for point in run.points if point.name == "loss"]
    assert times == sorted(times)
    assert run.began <= times[0]
    assert times[-1] <= run.ended
    test, best = folder.read_outcome().test, folder.read_outcome().best
    assert series(run, "test_micro_f1") == [(best["epoch"], test["micro_f1"])]
    assert run.params["sync.scheme"] == "deferred_allreduce"
    assert run.params["epochs"] == EPOCHS
    wanted = {"dataset": "cora", "model": "graphsage", "seed": "1234", "attempts": "3", "status": "done"}
    assert wanted.items() <= run.tags.items()
    assert read_run(folder) == run


def test_a_run_that_is_being_written(folder, run, tmp_path):
    """Its last row may stand there before the event of that epoch does."""
    from shutil import copytree

    growing = RunFolder(copytree(folder.path, tmp_path / "growing"))
    growing.outcome_path.unlink()
    lines = growing.events_path(0).read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if '"kind": "epoch"' in line)
    growing.events_path(0).write_text("".join(lines[:last]))
    found = read_run(growing)
    assert (found.identity, found.ended, found.tags["status"]) == (run.identity, None, "unfinished")
    assert series(found, "loss") == series(run, "loss")[:-1]
    growing.write_outcome(folder.read_outcome())
    with pytest.raises(UserError, match=f"epoch {EPOCHS}"):
        read_run(growing)


def test_two_runs_of_one_name_and_one_that_has_not_begun(run, planned, tmp_path):
    with pytest.raises(UserError, match="often-killed"):
        refuse_same_names([run, replace(run, identity="another")])
    with pytest.raises(UserError, match="not begun"):
        read_run(RunFolder.create(planned("new"), tmp_path))


def read_tensorboard(path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
    return {name: read.Scalars(name) for name in read.Tags()["scalars"]}, read


def assert_in_tensorboard(run, root):
    scalars, read = read_tensorboard(root / run.name)
    assert scalars.keys() == {point.name for point in run.points}
    for name, points in scalars.items():
        wanted = [(p.step, p.time, np.float32(p.value)) for p in run.points if p.name == name]  # it keeps 32 bits
        assert [(p.step, p.wall_time, np.float32(p.value)) for p in points] == wanted, name
    assert sorted(read.Tags()["tensors"]) == ["_hparams_/session_start_info", "tags"]
    assert "| dataset | cora |" in read.Tensors("tags")[0].tensor_proto.string_val[0].decode()
    assert b"sync.scheme" in read.SummaryMetadata("_hparams_/session_start_info").plugin_data.content


def test_tensorboard_has_it_once(run, tmp_path):
    files = tracker("tensorboard", place=str(tmp_path))
    assert files.planned(run).how == "new"
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        files.write(run)
        assert files.planned(run).how == "unchanged"
        assert_in_tensorboard(run, tmp_path)
    with pytest.raises(UserError, match="another run"):
        files.planned(replace(run, identity="another"))


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_tensorboard_of_a_run_that_grows_is_that_of_the_whole_run(run, tmp_path_factory, data):
    root = tmp_path_factory.mktemp("boards")
    grown, whole = tracker("tensorboard", place=str(root / "grown")), tracker("tensorboard", place=str(root / "whole"))
    whole.write(run)
    first = data.draw(st.integers(0, len(run.points)))
    last = data.draw(st.integers(first, len(run.points)))
    grown.write(replace(run, points=run.points[:first]))
    change = grown.planned(replace(run, points=run.points[:last]))
    assert (change.how, change.num_points) == ("added to" if last > first else "unchanged", last - first)
    for points in (run.points[:last], run.points):
        grown.write(replace(run, points=points))
    (one,), (other,) = (list((root / name / run.name).iterdir()) for name in ("grown", "whole"))
    assert one.read_bytes() == other.read_bytes()
    grown.write(replace(run, tags={**run.tags, "verify": "ok"}))
    assert [path.name for path in (root / "grown" / run.name).iterdir()] == [one.name]
    assert one.read_bytes() != other.read_bytes()


def assert_in_mlflow(run, uri):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("gnn").experiment_id])
    for name in {point.name for point in run.points}:
        wanted = [(p.step, round(p.time * 1000), p.value) for p in run.points if p.name == name]
        history = client.get_metric_history(found.info.run_id, name)
        assert [(m.step, m.timestamp, m.value) for m in sorted(history, key=lambda m: m.step)] == wanted, name
    assert found.data.params["sync.scheme"] == "deferred_allreduce"
    assert found.data.params["epochs"] == str(run.params["epochs"])
    assert run.tags.items() <= found.data.tags.items()
    assert (found.info.status, found.info.run_name) == ("RUNNING" if run.ended is None else "FINISHED", run.name)
    return found


def test_mlflow_has_it_once(run, tmp_path):
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    store = tracker("mlflow", place=uri)
    half = len(run.points) // 2
    growing = replace(run, points=run.points[:half], ended=None, ending=None, tags={**run.tags, "status": "unfinished"})
    assert store.planned(growing).how == "new"
    assert list(tmp_path.iterdir()) == [], "planning makes no database"
    for shown, num_points in ((growing, half), (growing, 0), (run, len(run.points) - half), (run, 0)):
        assert store.planned(shown).num_points == num_points
        store.write(shown)
        found = assert_in_mlflow(shown, uri)
    assert found.info.start_time == round(run.began * 1000)
    with pytest.raises(UserError, match="another run called"):
        store.planned(replace(run, identity="another"))
    with pytest.raises(UserError, match="--tracking-uri"):
        tracker("mlflow", place=f"file:{tmp_path / 'mlruns'}").planned(run)


@pytest.mark.slow
def test_a_long_parameter_is_shortened_for_mlflow_and_still_told_from_others(run, tmp_path):
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    store = tracker("mlflow", place=uri)
    shown = replace(run, params={**run.params, "one": "x" * 6001, "other": "x" * 6001 + "y", "fits": "x" * 6000})
    for _ in range(2):
        store.write(shown)
    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("gnn").experiment_id])
    one, other, fits = (found.data.params[name] for name in ("one", "other", "fits"))
    assert (len(one), len(other)) == (6000, 6000)
    assert one.startswith("xxx")
    assert "6001 characters" in one
    assert one.rpartition("sha256")[2] != other.rpartition("sha256")[2]
    assert fits == "x" * 6000


def test_mlflow_refuses_names_that_it_would_merge(run, tmp_path):
    store = tracker("mlflow", place=f"sqlite:///{tmp_path / 'mlflow.db'}")
    with pytest.raises(UserError, match="both a_b"):
        store.planned(replace(run, params={"a*b": 1, "a?b": 2}))


def records(content: bytes):
    """The records of a .wandb file, which is a log in the format of LevelDB: blocks of 32 KiB, after a header of 7."""
    at, record = 7, b""
    while at + 7 <= len(content):
        left = 2**15 - at % 2**15
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        record += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def test_wandb_offline_has_it_once(run, tmp_path):
    runs = tracker("wandb", place=str(tmp_path))
    from wandb.proto.wandb_internal_pb2 import Record

    runs.write(replace(run, points=run.points[:40], ended=None, ending=None))
    assert runs.planned(run).how == "written anew"
    for _ in range(2):
        runs.write(run)
        assert runs.planned(run).how == "unchanged"
        (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    parsed = [Record.FromString(content) for content in records(file.read_bytes())]
    rows = [
        {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
        for record in parsed
        if record.HasField("history")
    ]
    assert [row["_step"] for row in rows] == list(range(1, EPOCHS + 1))
    assert [(row["_step"], row["loss"]) for row in rows] == series(run, "loss")
    assert [row["_timestamp"] for row in rows] == [point.time for point in run.points if point.name == "loss"]
    (begun,) = (record.run for record in parsed if record.HasField("run"))
    config = {item.key: json.loads(item.value_json) for item in begun.config.update}
    assert config["sync.scheme"] == "deferred_allreduce"
    assert config["tags"] == dict(run.tags)


def test_trackio_has_it_once(run, tmp_path):
    project = tracker("trackio", place=str(tmp_path))
    from trackio.sqlite_storage import SQLiteStorage

    project.write(replace(run, points=run.points[:40]))
    for _ in range(2):
        project.write(run)
        assert project.planned(run).how == "unchanged"
        rows = SQLiteStorage.get_logs("gnn", run.name)
        assert [(row["step"], row["loss"]) for row in rows if "loss" in row] == series(run, "loss")
    assert SQLiteStorage.get_run_config("gnn", run.name)["sync.scheme"] == "deferred_allreduce"
    with pytest.raises(UserError, match="another run called"):
        project.planned(replace(run, identity="another"))


def test_what_is_not_installed_and_what_is_no_tracker(monkeypatch):
    with pytest.raises(UserError, match="did you mean 'tensorboard'"):
        open_tracker("tensorbord", Target("gnn"))
    monkeypatch.setattr(sys, "path", [])
    for name, packages in PACKAGES.items():
        with pytest.raises(UserError, match=packages[0]) as raised:
            open_tracker(name, Target("gnn"))
        assert f"graphmill[{name}]" in raised.value.fix


MAIN = "import sys; sys.argv[0] = 'graphmill'; from graphmill.cli import main\ntry: main()\nfinally: "


def test_the_command_shows_and_writes_without_torch(folder, environ, tmp_path):
    tracker("tensorboard")

    def export(*words):
        program = MAIN + "assert 'torch' not in sys.modules"
        command = [sys.executable, "-c", program, "export", str(folder.path), "--to", "tensorboard", *words]
        return subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)

    shown = export("--dry-run")
    assert (shown.returncode, list(tmp_path.iterdir())) == (0, []), shown.stderr
    assert "--dry-run" in shown.stdout
    done = export("--json", "--verify")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["runs"][0]
    assert (told["how"], told["run"]) == ("new", "study/often-killed")
    assert told["tags"]["verify"].startswith("ok")
    assert_in_tensorboard(read_run(folder, verified=told["tags"]["verify"]), tmp_path / "tensorboard")
    assert math.isfinite(told["num_points"])
    wrong = export("--tracking-uri", "x")
    assert (wrong.returncode, "--output" in wrong.stderr) == (2, True)


@pytest.mark.slow
def test_eleven_requeues_are_one_run(planned, zygote, tmp_path):
    often = read_run(interrupted(planned, zygote, tmp_path, kills=11, epochs=40))
    assert often.tags["attempts"] == "12"
    assert [step for step, _ in series(often, "loss")] == list(range(1, 41))
    files = tracker("tensorboard", place=str(tmp_path / "boards"))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    store = tracker("mlflow", place=uri)
    for _ in range(2):
        files.write(often)
        store.write(often)
        assert_in_tensorboard(often, tmp_path / "boards")
        assert_in_mlflow(often, uri)
