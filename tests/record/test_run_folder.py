import errno
import json
import math
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphmill.base.errors import UserError
from graphmill.record import run_folder
from graphmill.record.documents import Outcome, SubmittedJob
from graphmill.record.manifest import Best, Counters, Manifest, Position, SavedStats
from graphmill.record.run_folder import (
    RunFolder,
    default_run_id,
    find_runs,
    plan_text,
    refuse_other_plan,
    with_own_folder,
)
from graphmill.spec.plan import MachineInfo, Plan, resolve
from graphmill.tasks.node_classification.page import GraphInfo, NodeClassificationExperiment


def make_plan(run_id: str = "run") -> Plan:
    facts = GraphInfo(
        name="toy", path="/nowhere/toy", checksum="0" * 16, synthetic=False, num_nodes=100, num_edges=400,
        num_features=8, num_classes=3, num_train=60, has_sparse_features=False,
    )  # fmt: skip
    experiment = NodeClassificationExperiment.model_validate({"train": {"epochs": 2}})
    return resolve(experiment, machine=MachineInfo(num_cores=2, num_gpus=0), dataset=facts, run_id=run_id)


def test_same_plan_same_bytes_and_it_comes_back(tmp_path):
    plan = make_plan()
    folder = RunFolder.create(plan, tmp_path)
    assert folder.plan_path.read_text() == plan_text(make_plan())
    assert RunFolder.open(tmp_path / "run").read_plan() == plan


def test_a_plan_that_was_edited_to_say_no_weight_decay_is_told_what_to_write(tmp_path):
    """Null is what an experiment says for "by the task"; a plan has made that choice."""
    folder = RunFolder.create(make_plan(), tmp_path)
    asked = json.loads(folder.plan_path.read_text())
    asked["optimizer"]["weight_decay"] = None
    folder.plan_path.write_text(json.dumps(asked))
    with pytest.raises(UserError, match=r"optimizer: .*weight_decay is null.*write a number"):
        folder.read_plan()


def test_a_folder_that_holds_a_run_is_refused(tmp_path):
    RunFolder.create(make_plan(), tmp_path)
    with pytest.raises(UserError, match="holds a run already"):
        RunFolder.create(make_plan(), tmp_path)


@pytest.mark.parametrize(("status", "is_refused"), [("bad_request", True), ("failed", False)])
def test_a_run_that_was_refused_before_its_first_step_may_be_removed(tmp_path, status, is_refused):
    folder = RunFolder.create(make_plan(), tmp_path)
    folder.write_outcome(Outcome(status=status, exit_code=2, epochs=0, steps_per_rank=0, wall_s=1.0))
    with pytest.raises(UserError, match="holds a run already") as taken:
        RunFolder.create(make_plan(), tmp_path)
    assert (f"remove {folder.path}" in taken.value.fix) == is_refused
    assert f"graphmill train --resume {folder.path}" in taken.value.fix
    other = make_plan().model_copy(update={"seed": 17})
    with pytest.raises(UserError, match="planned otherwise: seed is") as asked:
        refuse_other_plan(folder, folder.read_plan(), other)
    assert (f"remove {folder.path}" in asked.value.fix) == is_refused


def test_of_runs_of_one_id_that_begin_at_once_one_does(tmp_path):
    """Its plan is the one on disk; the others are told."""
    for number in range(10):
        plans = [make_plan(f"run-{number}").model_copy(update={"seed": seed}) for seed in range(6)]
        at_once = threading.Barrier(len(plans))

        def begin(plan, at_once=at_once):
            at_once.wait()
            with suppress(UserError):
                return RunFolder.create(plan, tmp_path)

        with ThreadPoolExecutor(len(plans)) as pool:
            made = list(pool.map(begin, plans))
        begun = [plan for plan, folder in zip(plans, made, strict=True) if folder]
        assert [plan.seed for plan in begun] == [RunFolder(tmp_path / f"run-{number}").read_plan().seed]


def test_a_plan_is_put_where_there_are_no_hard_links(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, "not on this file system")

    monkeypatch.setattr(os, "link", refuse)
    RunFolder.create(make_plan(), tmp_path)
    with pytest.raises(UserError, match="holds a run already"):
        RunFolder.create(make_plan(), tmp_path)


def test_a_folder_that_holds_other_files_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match="holds other files"):
        RunFolder.create(make_plan(), tmp_path)


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "run").mkdir()
    RunFolder.create(make_plan(), tmp_path)


def test_a_cell_stands_in_its_study_but_no_run_in_a_run(tmp_path):
    RunFolder.create(make_plan("study/cell-1"), tmp_path)
    RunFolder.create(make_plan("run"), tmp_path)
    with pytest.raises(UserError, match="a run cannot hold another"):
        RunFolder.create(make_plan("run/inner"), tmp_path)
    assert [run.path.relative_to(tmp_path).as_posix() for run in find_runs(tmp_path)] == ["run", "study/cell-1"]
    assert find_runs(tmp_path / "run") == [RunFolder(tmp_path / "run")]
    assert find_runs(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    "run_id", ["", "..", "../x", "/abs", "a/b/c/d", "a//b", "a/", ".hidden", "a b", "a\n", "é", "x" * 300]
)
def test_names_that_cannot_be_folders(tmp_path, run_id):
    with pytest.raises(UserError, match="cannot name a run"):
        RunFolder.create(make_plan(run_id), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_written(tmp_path):
    (tmp_path / "logs").write_text("a file")
    with pytest.raises(UserError, match="cannot be made"):
        RunFolder.create(make_plan(), tmp_path / "logs")


def test_outcome(tmp_path):
    folder = RunFolder.create(make_plan(), tmp_path)
    assert folder.read_outcome() is None
    outcome = Outcome(
        status="done", exit_code=0, epochs=2, steps_per_rank=8, test={"microF1": 0.5}, best={"epoch": 2}, wall_s=1.5
    )
    folder.write_outcome(outcome)
    assert folder.read_outcome() == outcome
    assert set(json.loads(folder.outcome_path.read_text())) == {
        "status", "exit_code", "epochs", "steps_per_rank", "test", "baselines", "best", "wall_s", "message",
        "may_pass", "stopped_early", "elastic",
    }  # fmt: skip


def test_measures_that_are_undefined_come_back_as_such(tmp_path):
    """Captures without times have no false alarms an hour."""
    measures = {"f1": 0.5, "false_alarms_per_hour": math.nan}
    folder = RunFolder.create(make_plan(), tmp_path)
    folder.write_outcome(
        Outcome(status="done", exit_code=0, epochs=2, steps_per_rank=8, test=measures, best=measures, wall_s=1.5)
    )
    outcome = folder.read_outcome()
    for found in (outcome.test, outcome.best):
        assert found["f1"] == 0.5
        assert math.isnan(found["false_alarms_per_hour"])
    books = SavedStats(loss_sum=1.0, epoch_s=1.0, counters=Counters(), before_epoch=Counters(), spent_s={})
    position = Position(
        epoch=1, step=0, steps_done=4, books=books, best=Best(step=4, epoch=1, values=measures, loss=1.0), patience=None
    )
    Manifest(plan_hash="", world_size=1, parameter_hash="", positions=(position,), files={}, keep=False).write(tmp_path)
    values = Manifest.read(tmp_path).positions[0].best.values
    assert values["f1"] == 0.5
    assert math.isnan(values["false_alarms_per_hour"])


def test_a_new_attempt_takes_back_the_outcome_and_counts(tmp_path):
    folder = RunFolder.create(make_plan(), tmp_path)
    assert folder.begin_attempt(resumed=False, command=["graphmill", "train"]) == 1
    folder.write_outcome(Outcome(status="failed", exit_code=1, epochs=0, steps_per_rank=0, wall_s=0.1))
    assert folder.begin_attempt(resumed=True, command=["graphmill", "train", "--resume"]) == 2
    assert folder.read_outcome() is None
    assert [attempt.resumed for attempt in folder.attempts()] == [False, True]


@pytest.mark.parametrize("file", ["plan.json", "outcome.json", "provenance.json"])
@pytest.mark.parametrize("damage", [b"", b"{", b'{"status": "nonsense"}', b"\xff\xfe", b"[]", b"null"])
def test_damage_is_a_users_error(tmp_path, file, damage):
    folder = RunFolder.create(make_plan(), tmp_path)
    (folder.path / file).write_bytes(damage)
    read = {
        "plan.json": folder.read_plan,
        "outcome.json": folder.read_outcome,
        "provenance.json": folder.read_provenance,
    }
    with pytest.raises(UserError, match="damaged"):
        read[file]()


def test_damaged_attempts(tmp_path):
    folder = RunFolder.create(make_plan(), tmp_path)
    folder.attempts_path.write_text("{}\n")
    with pytest.raises(UserError, match="damaged"):
        folder.attempts()


def test_what_is_no_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match=r"not a run folder|not a folder"):
            RunFolder.open(path)


def test_a_lock_goes_with_its_process(tmp_path, source_environ):
    folder = RunFolder.create(make_plan(), tmp_path)
    program = (
        "import sys, time; from pathlib import Path; from graphmill.record.run_folder import RunFolder\n"
        "with RunFolder(Path(sys.argv[1])).lock(): print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(folder.path)], env=source_environ, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=f"process {holder.pid} on "), folder.lock():
        pass
    holder.kill()
    holder.wait()
    with folder.lock():
        pass


def test_jobs_are_appended_and_a_torn_line_does_no_harm(tmp_path):
    folder = RunFolder.create(make_plan(), tmp_path)
    assert folder.jobs() == []
    folder.note_job(SubmittedJob(job_id="17", time=1.0))
    with folder.jobs_path.open("a") as file:
        file.write('{"job_id": "1')
    folder.note_job(SubmittedJob(job_id="17", time=2.0, how="requeue"))
    assert [(job.job_id, job.how) for job in folder.jobs()] == [("17", "submit"), ("17", "requeue")]
    folder.jobs_path.write_text("[]\n")
    with pytest.raises(UserError, match="damaged"):
        folder.jobs()


def test_the_last_sign_of_life(tmp_path):
    folder = RunFolder.create(make_plan(), tmp_path)
    assert folder.heartbeat() is None
    for path, moment in ((folder.events_path(0), 100.0), (folder.monitor_path("host1"), 200.0)):
        path.parent.mkdir()
        path.touch()
        os.utime(path, (moment, moment))
    assert folder.heartbeat() == 200.0


def test_a_wish_to_stop(tmp_path):
    folder = RunFolder.create(make_plan(), tmp_path)
    assert not folder.is_asked_to_stop()
    folder.ask_to_stop()
    assert folder.is_asked_to_stop()


@pytest.mark.parametrize(
    ("path", "run_id", "root"),
    [("/logs/one", "one", "/logs"), ("/logs/a/b/one", "a/b/one", "/logs"), ("/else/one", "a/one", "/else")],
)
def test_the_logs_root_is_above_all_folders_of_an_id(path, run_id, root):
    assert RunFolder(Path(path)).logs_root(run_id) == Path(root)


@pytest.fixture
def one_second(monkeypatch):
    """It is always 8:00:00."""
    monkeypatch.setattr(
        run_folder, "datetime", SimpleNamespace(now=lambda zone: datetime(2026, 11, 29, 8, tzinfo=zone))
    )


def test_runs_that_begin_at_once_have_folders_of_their_own(tmp_path, one_second):
    plan = make_plan().model_copy(update={"name": "one"})
    at_once = threading.Barrier(8)

    def begin(_):
        at_once.wait()
        return RunFolder.create(with_own_folder(plan, tmp_path / "logs"), tmp_path / "logs").read_plan().run_id

    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(begin, range(8)))
    assert names == {f"one-20261129T080000Z{end}" for end in ("", *(f"-{number}" for number in range(2, 9)))}


def test_runs_that_begin_in_one_second_have_ids_of_their_own(tmp_path, one_second):
    names = [default_run_id("one", tmp_path)]
    for _ in range(2):
        (tmp_path / names[-1]).mkdir()
        names.append(default_run_id("one", tmp_path))
    assert names == ["one-20261129T080000Z", "one-20261129T080000Z-2", "one-20261129T080000Z-3"]


def test_a_logs_root_that_points_nowhere_is_an_error(tmp_path):
    """A purged scratch behind a link: nothing can be made there, however often it is tried."""
    (tmp_path / "logs").symlink_to(tmp_path / "gone" / "logs")
    with pytest.raises(UserError, match="cannot be made"):
        with_own_folder(make_plan(), tmp_path / "logs")
