"""Unreadable is not damaged: a disk that fails while a run's files are read costs it nothing but the attempt."""

import errno
import hashlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_in
from second_user import as_second_user
from waiting import HANG_S, wait_until

from graphmill.base import exits
from graphmill.base.errors import UnreadableError
from graphmill.record.documents import SubmittedJob
from graphmill.record.endings import ENDINGS
from graphmill.record.manifest import Manifest, checkpoint_folders, saved_steps
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WEIGHTS_FILE, WeightsFile
from graphmill.tasks.node_classification.data.prepare import prepare
from graphmill.train import evaluate

OPTIONS = (
    "-O", "train.epochs=20", "-O", "train.batch_size=20", "-O", "train.threads=1", "-O", "train.num_neighbors=[3,3]",
    "-O", "model.hidden_channels=8", "-O", "train.checkpoint.every_steps=5", "-O", "train.device=cpu",
    "-O", "train.baselines=false",
)  # fmt: skip
FEW_STEPS = 20


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("unreadable")
    prepare("synthetic/sbm", root=root / "data", options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    (root / "toy.yaml").write_text("name: toy\ndataset: {name: synthetic/sbm}\n")
    run_in(root, *training(root, "alone"))
    return root


def training(root: Path, run: str, *words: str) -> list[str]:
    where = ("--logs-root", str(root / "logs"), "--run-id", run, "--dataset-root", str(root / "data"))
    return ["train", str(root / "toy.yaml"), *OPTIONS, *where, *words]


def command(root: Path, run: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "graphmill.cli", *training(root, run, *words)]


def everything(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def weights(run: RunFolder) -> str:
    """Checksum of the tensors: the file says which run they are of, too."""
    return WeightsFile.read(checkpoint_folders(run.checkpoints_dir)[-1] / WEIGHTS_FILE).compute_checksum()


@pytest.fixture(scope="module")
def _stopped(root) -> RunFolder:
    folder = RunFolder(root / "logs" / "stopped")
    process = subprocess.Popen(command(root, folder.path.name))
    wait_until(lambda: process.poll() is not None or saved_steps(folder.checkpoints_dir) >= FEW_STEPS, "checkpoints")
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 75
    outcome = folder.read_outcome()
    assert outcome is not None
    assert outcome.status == "stopped"
    return folder


@pytest.fixture
def stopped(_stopped, root, request) -> RunFolder:
    """A run that was stopped after a few checkpoints."""
    return RunFolder(shutil.copytree(_stopped.path, root / "logs" / re_id(request.node.name)))


def re_id(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name).strip("-")


@pytest.mark.parametrize(
    ("part", "error"),
    [
        pytest.param("checkpoints/step_", errno.EIO, id="all"),
        pytest.param("manifest.json", errno.ESTALE, id="manifests", marks=pytest.mark.slow),
        pytest.param("model.safetensors", errno.EACCES, id="weights", marks=pytest.mark.slow),
        pytest.param("run/../checkpoints", errno.ETIMEDOUT, id="folder", marks=pytest.mark.slow),
    ],
)
def test_no_good_checkpoint_is_lost_to_a_disk_that_fails(root, stopped, failing_disk, part, error):
    part = part if part != "run/../checkpoints" else f"{stopped.path.name}/checkpoints"
    before = everything(stopped.checkpoints_dir)
    resume = command(root, stopped.path.name, "--resume")
    failing = failing_disk(reads_of=part, error=error)
    assert subprocess.run(resume, env=failing, check=False, timeout=HANG_S).returncode == 71
    outcome = stopped.read_outcome()
    assert outcome is not None
    assert (outcome.status, outcome.exit_code) == ("io_error", 71)
    assert errno.errorcode[error] in outcome.message
    assert everything(stopped.checkpoints_dir) == before
    run_in(root, *training(root, stopped.path.name, "--resume"))
    assert weights(stopped) == weights(RunFolder(root / "logs" / "alone"))


def fails_to_resume(root: Path, folder: RunFolder, file: str, environ: dict[str, str]) -> None:
    """It ends as an I/O error, which names the file and says nothing about damage."""
    resume = command(root, folder.path.name, "--resume")
    done = subprocess.run(resume, env=environ, check=False, timeout=HANG_S, capture_output=True, text=True)
    assert done.returncode == ENDINGS["io_error"].exit_status, done.stderr
    assert f"{folder.path.name}/{file} cannot be read: Input/output error (EIO)" in done.stderr
    assert not any(word in done.stderr for word in ("Traceback", "bug", "remove", "damaged", "start a new"))


@pytest.mark.slow
def test_the_outcome_of_a_finished_run_is_kept(root, failing_disk):
    alone = RunFolder(root / "logs" / "alone")
    before = everything(alone.path)
    fails_to_resume(root, alone, "outcome.json", failing_disk(reads_of="alone/outcome.json"))
    assert everything(alone.path) == before


@pytest.mark.parametrize(
    ("file", "is_begun"),
    [
        pytest.param("attempts.jsonl", False, id="attempts", marks=pytest.mark.slow),
        pytest.param("metrics.csv", True, id="metrics", marks=pytest.mark.slow),
        pytest.param("plan.json", False, id="plan", marks=pytest.mark.slow),
        pytest.param("evaluations.csv", True, id="evaluations", marks=pytest.mark.slow),
    ],
)
def test_no_file_of_a_run_is_lost_to_a_disk_that_fails(root, stopped, failing_disk, file, is_begun):
    before = everything(stopped.path)
    fails_to_resume(root, stopped, file, failing_disk(reads_of=f"{stopped.path.name}/{file}"))
    if not is_begun:
        assert everything(stopped.path) == before
        return
    outcome = stopped.read_outcome()
    assert outcome is not None
    assert (outcome.status, outcome.exit_code) == ("io_error", 71)
    assert everything(stopped.path)[file] == before[file]
    run_in(root, *training(root, stopped.path.name, "--resume"))
    assert weights(stopped) == weights(RunFolder(root / "logs" / "alone"))


READ_ALL = """
import sys
from pathlib import Path
from graphmill.base import retries
from graphmill.base import exits
from graphmill.base.errors import UnreadableError
from graphmill.record.evaluations import read_evaluations
from graphmill.record.events import events_in
from graphmill.record.lock import owner_of
from graphmill.record.metrics import read_metrics
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WeightsFile

retries._READ_AGAIN_AFTER_S = ()
run = RunFolder(Path(sys.argv[1]))
readers = [
    run.read_plan, run.plan_hash, run.read_outcome, run.read_provenance, run.attempts, run.jobs,
    lambda: read_metrics(run.metrics_path), lambda: read_evaluations(run), lambda: events_in(run.events_path(0)),
    lambda: owner_of(run.path), lambda: WeightsFile.read(Path(sys.argv[2])),
]
for number, read in enumerate(readers):
    try:
        read()
        print(number, "read")
    except UnreadableError as error:
        print(number, "EIO" if "EIO" in str(error) else error)
"""


def test_every_reader_knows_an_io_error_from_damage(root, failing_disk):
    alone = RunFolder(shutil.copytree(root / "logs" / "alone", root / "logs" / "copied"))
    alone.note_job(SubmittedJob(job_id="17", time=1.0))
    program = [sys.executable, "-c", READ_ALL, alone.path, checkpoint_folders(alone.checkpoints_dir)[-1] / WEIGHTS_FILE]
    for environ, ends in ((None, "read"), (failing_disk(reads_of="logs/copied/"), "EIO")):
        done = subprocess.run(program, env=environ, check=True, timeout=HANG_S, capture_output=True, text=True)
        assert done.stdout.splitlines() == [f"{number} {ends}" for number in range(11)]


def test_a_job_that_cannot_read_how_often_it_began_begins_nothing(stopped, failing_disk):
    environ = {**failing_disk(reads_of=f"{stopped.path.name}/attempts.jsonl"), "SLURM_JOB_ID": "17"}
    before = everything(stopped.path)
    driver = [sys.executable, "-m", "graphmill.cluster.jobs.in_job", "--python=python", "--on-time-limit=requeue"]
    job = [*driver, "--max-attempts=9", stopped.path]
    done = subprocess.run(job, env=environ, check=False, timeout=HANG_S, capture_output=True, text=True)
    assert done.returncode == ENDINGS["io_error"].exit_status, done.stderr
    assert "attempts.jsonl cannot be read: Input/output error" in done.stderr
    assert everything(stopped.path) == before


@pytest.mark.slow
def test_a_run_that_cannot_be_read_does_not_hide_the_others(root, stopped, failing_disk):
    environ = failing_disk(reads_of=f"{stopped.path.name}/outcome.json")
    program = [sys.executable, "-m", "graphmill.cli", "list", "--logs-root", str(root / "logs"), "--json"]
    done = subprocess.run(program, env=environ, check=True, timeout=HANG_S, capture_output=True, text=True)
    states = {run["run"]: run["state"] for run in json.loads(done.stdout)["runs"]}
    assert (states[stopped.path.name], states["alone"]) == ("unreadable", "done")


def test_a_disk_that_fails_for_a_moment_is_waited_for(tmp_path, monkeypatch):
    tries = []

    def flaky(folder: Path) -> list[Path]:
        tries.append(folder)
        if len(tries) < 3:
            raise OSError(errno.ESTALE, "Stale file handle")
        return [folder / "step_0000000001"]

    monkeypatch.setattr("graphmill.base.retries._READ_AGAIN_AFTER_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(Path, "iterdir", flaky)
    assert [path.name for path in checkpoint_folders(tmp_path)] == ["step_0000000001"]
    assert len(tries) == 3


def test_what_is_absent_is_known_to_be_absent(tmp_path):
    assert checkpoint_folders(tmp_path / "nowhere") == []
    assert saved_steps(tmp_path / "nowhere") == 0
    with pytest.raises(FileNotFoundError):
        Manifest.read(tmp_path)
    assert not issubclass(UnreadableError, OSError), "whoever takes an OSError for damage must not take this for one"


def test_checkpoints_that_a_colleague_may_not_read_are_told_in_a_sentence(root, shared_place, caplog):
    """By `evaluate`, as other unreadable files are: not with a traceback (third look I, F8)."""
    shutil.copytree(root / "logs" / "alone", shared_place / "alone")
    shutil.copytree(root / "data", shared_place / "data")
    words = [str(shared_place / "alone"), "--dataset-root", str(shared_place / "data")]
    assert evaluate.main(words) == exits.DONE, "and all that it imports is imported"
    RunFolder(shared_place / "alone").checkpoints_dir.chmod(0o700)

    def evaluates() -> None:
        assert evaluate.main(words) == exits.IO_ERROR
        assert "ermission denied" in caplog.text

    as_second_user(evaluates)
