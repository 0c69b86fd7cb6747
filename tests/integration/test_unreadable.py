"""Unreadable is not damaged: a disk that fails while checkpoints are read costs a run nothing but the attempt."""

import errno
import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import HANG_S, wait_until

from graphmill.base.errors import UnreadableError
from graphmill.record.manifest import Manifest, checkpoint_folders, saved_steps
from graphmill.record.run_folder import RunFolder
from graphmill.record.weights import WEIGHTS_FILE, WeightsFile
from graphmill.tasks.node_classification.prepare import prepare

OPTIONS = (
    "-O", "train.epochs=40", "-O", "train.batch_size=20", "-O", "train.threads=1", "-O", "train.num_neighbors=[3,3]",
    "-O", "model.hidden_channels=8", "-O", "train.checkpoint.every_steps=5", "-O", "train.device=cpu",
)  # fmt: skip
FEW_STEPS = 20


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("unreadable")
    prepare("synthetic/sbm", root=root / "data", options={"num_nodes": 300, "num_edges": 1500, "features": 8})
    (root / "toy.yaml").write_text("name: toy\ndataset: {name: synthetic/sbm}\n")
    assert finish(root, "alone") == 0
    return root


def command(root: Path, run: str, *words: str) -> list[str]:
    where = ("--logs-root", str(root / "logs"), "--run-id", run, "--dataset-root", str(root / "data"))
    return [sys.executable, "-m", "graphmill.cli", "train", str(root / "toy.yaml"), *OPTIONS, *where, *words]


def finish(root: Path, run: str, *words: str, environ: dict[str, str] | None = None) -> int:
    return subprocess.run(command(root, run, *words), env=environ, check=False, timeout=HANG_S).returncode


def everything(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def weights(run: RunFolder) -> str:
    """Checksum of the tensors: the file says which run they are of, too."""
    return WeightsFile.read(checkpoint_folders(run.checkpoints_dir)[-1] / WEIGHTS_FILE).compute_checksum()


@pytest.fixture
def stopped(root, request) -> RunFolder:
    """A run that was stopped after a few checkpoints."""
    folder = RunFolder(root / "logs" / re_id(request.node.name))
    process = subprocess.Popen(command(root, folder.path.name))
    wait_until(lambda: process.poll() is not None or saved_steps(folder.checkpoints_dir) >= FEW_STEPS, "checkpoints")
    process.send_signal(signal.SIGTERM)
    assert process.wait(HANG_S) == 75
    outcome = folder.read_outcome()
    assert outcome is not None
    assert outcome.status == "stopped"
    return folder


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
    assert finish(root, stopped.path.name, "--resume", environ=failing_disk(reads_of=part, error=error)) == 71
    outcome = stopped.read_outcome()
    assert outcome is not None
    assert (outcome.status, outcome.exit_code) == ("io_error", 71)
    assert errno.errorcode[error] in outcome.message
    assert everything(stopped.checkpoints_dir) == before
    assert finish(root, stopped.path.name, "--resume") == 0
    assert weights(stopped) == weights(RunFolder(root / "logs" / "alone"))


def test_a_disk_that_fails_for_a_moment_is_waited_for(tmp_path, monkeypatch):
    tries = []

    def flaky(folder: Path) -> list[Path]:
        tries.append(folder)
        if len(tries) < 3:
            raise OSError(errno.ESTALE, "Stale file handle")
        return [folder / "step_0000000001"]

    monkeypatch.setattr("graphmill.record.manifest._RETRY_AFTER_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(Path, "iterdir", flaky)
    assert [path.name for path in checkpoint_folders(tmp_path)] == ["step_0000000001"]
    assert len(tries) == 3


def test_what_is_absent_is_known_to_be_absent(tmp_path):
    assert checkpoint_folders(tmp_path / "nowhere") == []
    assert saved_steps(tmp_path / "nowhere") == 0
    with pytest.raises(FileNotFoundError):
        Manifest.read(tmp_path)
    assert not issubclass(UnreadableError, OSError), "whoever takes an OSError for damage must not take this for one"
