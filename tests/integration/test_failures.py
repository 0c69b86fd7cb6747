"""What goes wrong on one rank, or on disk, ends the run soon, says why, and leaves nobody waiting."""

import re
import shutil
import signal
import time

import pytest
from torch.distributed import TCPStore
from waiting import wait_until

from graphmill.base.errors import UserError
from graphmill.cluster.launch.local import run_ranks
from graphmill.record.events import DamagedCheckpoint, Failure, Start, Stop, Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.train.evaluate import evaluate

pytestmark = pytest.mark.distributed


def stranger(planned, name: str, **train):
    return planned("run", model={"kind": "custom", "target": f"strange_models.{name}"}, **{"ranks": 2, **train})


def errors_of(folder: RunFolder, rank: int) -> list[str]:
    return [error.message for error in events_in(folder.events_path(rank), Failure)]


@pytest.mark.parametrize(
    ("name", "code", "said"), [("Picky", 2, "does not like rank 1"), ("Fragile", 1, "rank 1 met a bug")]
)
def test_others_do_not_wait_for_a_rank_that_fails(zygote, planned, tmp_path, name, code, said):
    """Even without a launcher: the connection closes, and the collective they stand in fails."""
    folder = RunFolder.create(stranger(planned, name), tmp_path)
    codes = zygote.wait(zygote.start(folder, resume=False))
    assert codes == [1, code], "rank 0 was told by the connection (1), not by the watchdog after a silence (74)"
    assert said in errors_of(folder, 1)[0]
    assert folder.read_outcome().status == "failed"


def test_ranks_do_not_train_with_the_run_that_has_their_port(zygote, planned, tmp_path):
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("graphmill.whose", "another run")
    keys = store.num_keys()
    folder = RunFolder.create(planned("run", ranks=2), tmp_path)
    assert zygote.wait(zygote.start(folder, resume=False, port=store.port)) == [69, 69], zygote.said(folder)
    assert "is in use" in errors_of(folder, 0)[0]
    assert "another run" in errors_of(folder, 1)[0]
    assert store.num_keys() == keys, "it would have been taken for their rank 1"
    assert zygote.wait(zygote.start(folder, resume=True)) == [0, 0], zygote.said(folder)


def test_the_launcher_tells_the_first_error(environ, planned, tmp_path, capfd):
    folder = RunFolder.create(stranger(planned, "Picky"), tmp_path)
    folder.begin_attempt(resumed=False, command=["test"])
    assert run_ranks(folder, folder.read_plan(), resume=False, environ=environ) == 2
    err = capfd.readouterr().err
    assert err.count("this model does not like rank 1") == 1
    assert "→ bring another model" in err
    assert "Traceback" not in err


def test_a_run_that_diverges_says_so(zygote, planned, tmp_path):
    folder = RunFolder.create(stranger(planned, "Exploding"), tmp_path)
    assert zygote.wait(zygote.start(folder, resume=False)) == [2, 2]
    assert "the training loss is nan by step 7: the run has diverged" in folder.read_outcome().message
    assert "lower train.optimizer.lr" in zygote.said(folder)


def test_replicas_that_differ_end_the_run_on_all_ranks(zygote, planned, tmp_path):
    folder = RunFolder.create(stranger(planned, "Drifting"), tmp_path)
    assert zygote.wait(zygote.start(folder, resume=False)) == [1, 1]
    for rank in (0, 1):
        syncs = events_in(folder.events_path(rank), Sync)
        assert [sync.replicas_agree for sync in syncs] == [True, True, True, False]
        assert "replicas differ after the sync at step 4" in errors_of(folder, rank)[0]
    assert folder.read_outcome().status == "failed"


@pytest.mark.parametrize("asked", [slice(0, 1), slice(1, None)], ids=["rank 0", "the others"])
def test_a_signal_to_some_ranks_stops_all_at_the_same_step(zygote, planned, tmp_path, asked):
    folder = RunFolder.create(planned("run", ranks=3, epochs=4000, evaluate_every_epochs=0), tmp_path)
    pids = zygote.start(folder, resume=False)
    while not syncs_of(folder, 0):
        time.sleep(0.01)
    zygote.kill(pids[asked], signal.SIGTERM)
    assert zygote.wait(pids) == [75] * 3, zygote.said(folder)
    stops = [events_in(folder.events_path(rank))[-1] for rank in range(3)]
    assert [type(stop) for stop in stops] == [Stop] * 3
    assert len({stop.steps_done for stop in stops}) == 1


@pytest.mark.parametrize(("job", "status"), [("17", "stopped"), ("", "done")])
def test_ranks_read_that_a_stop_was_asked_for_before_they_could_take_a_signal(zygote, planned, tmp_path, job, status):
    """In a job; where a person continues the run here, that word is of the past."""
    folder = RunFolder.create(planned("run", ranks=2, epochs=2), tmp_path)
    folder.ask_to_stop()
    pids = zygote.start(folder, resume=False, job_id=job)
    assert zygote.wait(pids) == [75 if status == "stopped" else 0] * 2, zygote.said(folder)
    outcome = folder.read_outcome()
    assert outcome.status == status
    assert (outcome.steps_per_rank == 0) == (status == "stopped")


def syncs_of(folder: RunFolder, rank: int) -> list[Sync]:
    path = folder.events_path(rank)
    return events_in(path, Sync) if path.exists() else []


def test_the_number_of_ranks_must_be_the_attempts(zygote, planned, tmp_path):
    folder = RunFolder.create(planned("run", ranks=2), tmp_path)
    pids = zygote.start(folder, resume=False, ranks=1)
    assert zygote.wait(pids) == [2]
    said = zygote.said(folder)
    assert "2 ranks, but 1 were started" in said
    assert f"--resume {folder.path} --ranks 1" in said


@pytest.fixture(scope="module")
def finished(planned, zygote, tmp_path_factory):
    """A run that is done, and makes a copy of it to be damaged."""
    plan = planned("run", epochs=3, checkpoint={"keep_every_epochs": 1})
    reference = RunFolder.create(plan, tmp_path_factory.mktemp("finished"))
    assert zygote.wait(zygote.start(reference, resume=False)) == [0]
    return reference


@pytest.fixture
def interrupted(finished, tmp_path) -> RunFolder:
    """The same run as if it had been killed right before its last checkpoint: those of two epochs are there."""
    folder = RunFolder(tmp_path / "run")
    shutil.copytree(finished.path, folder.path)
    folder.outcome_path.unlink()
    shutil.rmtree(max(folder.checkpoints_dir.glob("step_*")))
    return folder


def weights(folder: RunFolder) -> bytes:
    return (max(folder.checkpoints_dir.glob("step_*")) / "model.safetensors").read_bytes()


def flip(path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "rank_0.safetensors", "manifest.json"])
def test_a_damaged_checkpoint_is_said_and_the_one_before_it_used(zygote, finished, interrupted, name):
    first, latest = sorted(interrupted.checkpoints_dir.glob("step_*"))
    if name == "model.safetensors":
        flip(latest / name)
    else:
        (latest / name).unlink()
    assert zygote.wait(zygote.start(interrupted, resume=True)) == [0], zygote.said(interrupted)
    said = zygote.said(interrupted)
    assert re.search(rf"{latest.name} is damaged and passed over: {re.escape(name)}", said)
    assert f"resumed after step {int(first.name.removeprefix('step_'))}" in said
    events = events_in(interrupted.events_path(0), DamagedCheckpoint)
    assert [event.checkpoint for event in events] == [latest.name]
    assert weights(interrupted) == weights(finished)
    assert interrupted.read_outcome().test == finished.read_outcome().test


def test_the_best_of_an_earlier_attempt_is_kept(zygote, planned, tmp_path):
    """A rate so high that the run gets worse after its best epoch: the resumed run must remember that epoch."""
    optimizer = {"kind": "adam", "lr": 1.0, "weight_decay": 0}
    plan = planned("run", epochs=6, optimizer=optimizer, checkpoint={"keep_every_epochs": 1})
    reference = RunFolder.create(plan, tmp_path / "reference")
    assert zygote.wait(zygote.start(reference, resume=False)) == [0]
    expected = reference.read_outcome()
    assert expected.best["epoch"] < 5, "else this test says nothing"
    folder = RunFolder(tmp_path / "resumed")
    shutil.copytree(reference.path, folder.path)
    folder.outcome_path.unlink()
    shutil.rmtree(max(folder.checkpoints_dir.glob("step_*")))
    assert zygote.wait(zygote.start(folder, resume=True)) == [0], zygote.said(folder)
    found = folder.read_outcome()
    assert (found.best, found.test) == (expected.best, expected.test)


def test_all_ranks_pass_over_what_is_damaged_for_one(zygote, planned, tmp_path):
    """Rank 0 looks at everybody's files and decides for all."""
    plan = planned(
        "run", ranks=2, epochs=3, checkpoint={"keep_every_epochs": 1}, sync={"scheme": "local_sgd", "every": 3}
    )
    reference = RunFolder.create(plan, tmp_path / "reference")
    assert zygote.wait(zygote.start(reference, resume=False)) == [0, 0]
    folder = RunFolder(tmp_path / "damaged")
    shutil.copytree(reference.path, folder.path)
    folder.outcome_path.unlink()
    latest = max(folder.checkpoints_dir.glob("step_*"))
    flip(latest / "rank_1.safetensors")
    assert zygote.wait(zygote.start(folder, resume=True)) == [0, 0], zygote.said(folder)
    assert f"{latest.name} is damaged and passed over: rank_1.safetensors" in zygote.said(folder)
    for rank in (0, 1):
        assert events_in(folder.events_path(rank), Start)[-1].steps_done == 14
    for name in ("model", "rank_0", "rank_1"):
        one, other = (max(run.checkpoints_dir.glob("step_*")) / f"{name}.safetensors" for run in (reference, folder))
        assert one.read_bytes() == other.read_bytes()


def test_with_all_checkpoints_damaged_the_run_begins_anew(zygote, finished, interrupted):
    for path in interrupted.checkpoints_dir.glob("step_*/model.safetensors"):
        flip(path)
    assert zygote.wait(zygote.start(interrupted, resume=True)) == [0], zygote.said(interrupted)
    assert zygote.said(interrupted).count("is damaged and passed over") == 2
    assert weights(interrupted) == weights(finished)


def test_evaluation_says_what_is_damaged(finished, zygote, tmp_path, caplog):
    folder = RunFolder.create(finished.read_plan(), tmp_path)
    assert zygote.wait(zygote.start(folder, resume=False)) == [0]
    steps = sorted(path.name for path in folder.checkpoints_dir.glob("step_*"))
    flip(folder.checkpoints_dir / steps[-1] / "model.safetensors")
    facts = evaluate(folder, split="val", which="last")
    assert facts["steps_per_rank"] == int(steps[-2].removeprefix("step_"))
    assert f"{steps[-1]} is damaged and passed over" in caplog.messages[0]
    for step in steps:
        (folder.checkpoints_dir / step / "manifest.json").unlink()
    with pytest.raises(UserError, match="holds no whole checkpoint"):
        evaluate(folder, split="val", which="best")


def test_a_damaged_best_checkpoint_is_found_at_the_resume(zygote, planned, tmp_path):
    """Not after hours of training, when the test split is to be judged with it. As if killed before the last one."""
    plan = planned("run", epochs=4, evaluate_every_epochs=2, checkpoint={"keep_every_epochs": 1})
    folder = RunFolder.create(plan, tmp_path)
    assert zygote.wait(zygote.start(folder, resume=False)) == [0]
    folder.outcome_path.unlink()
    shutil.rmtree(max(folder.checkpoints_dir.glob("step_*")))
    best = folder.checkpoints_dir / f"step_{plan.calendar.steps_done(2):010d}"
    assert max(folder.checkpoints_dir.glob("step_*")) > best
    flip(best / "model.safetensors")
    assert zygote.wait(zygote.start(folder, resume=True)) == [2]
    message = folder.read_outcome().message
    assert f"{best} is damaged: model.safetensors does not match its checksum" in message


def test_another_plan_does_not_continue_a_run(zygote, interrupted):
    plan = interrupted.read_plan()
    interrupted.plan_path.write_text(
        plan.model_copy(update={"optimizer": plan.optimizer.model_copy(update={"lr": 0.5})}).model_dump_json()
    )
    assert zygote.wait(zygote.start(interrupted, resume=True)) == [2]
    assert "was written by another plan" in zygote.said(interrupted)


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_rank_that_is_stopped_is_missed_by_name_and_the_run_goes_on_later(zygote, planned, tmp_path, victim):
    # It has to run out, so it is as short as a busy machine's heartbeats allow: threads of their own, every 0.8 s.
    plan = planned("run", ranks=2, epochs=400, hang_timeout_s=8, evaluate_every_epochs=0)
    folder = RunFolder.create(plan, tmp_path)
    pids = zygote.start(folder, resume=False)
    wait_until(lambda: syncs_of(folder, 1 - victim), "a sync")
    zygote.kill([pids[victim]], signal.SIGSTOP)
    wait_until(lambda: errors_of(folder, 1 - victim), f"rank {victim} to be missed", look_every_s=0.1)
    zygote.kill([pids[victim]])
    assert zygote.wait(pids)[1 - victim] == 74
    said = errors_of(folder, 1 - victim)[0]
    assert re.search(rf"rank {victim} on \S+ sent no heartbeat for \d+ s: stopped, swapping", said)
    if victim:
        assert folder.read_outcome().status == "lost"
