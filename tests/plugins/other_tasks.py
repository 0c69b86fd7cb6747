"""Small data of the tasks besides nodes, and a run of `graphmill train` that is killed with all its ranks."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from waiting import HANG_S

from graphmill.record.events import Sync, events_in
from graphmill.record.run_folder import RunFolder
from graphmill.spec.kinds.graph_classification import GraphSetPrepareOptions
from graphmill.spec.kinds.intrusion import CapturePrepareOptions
from graphmill.tasks.graph_classification.prepare import GENERATED, prepare_asked
from graphmill.tasks.intrusion.prepare import GENERATED as CAPTURES
from graphmill.tasks.intrusion.prepare import prepare_asked as prepare_captures
from graphmill.tasks.stores import Preparation
from graphmill.tasks.traffic.prepare import prepare_traffic


def make_graphs(root: Path) -> None:
    prepare_asked(Preparation(GENERATED, root, GraphSetPrepareOptions(num_graphs=455)))


def make_series(root: Path) -> None:
    prepare_traffic("synthetic/traffic", root=root, options={"num_sensors": 6, "num_steps": 400})


def make_captures(root: Path) -> None:
    prepare_captures(Preparation(CAPTURES, root, CapturePrepareOptions()))


def graphmill_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "graphmill.cli", *words]


def has_done(folder: RunFolder, step: int) -> bool:
    """Whether a sync of that step, or a later one, is recorded."""
    path = folder.events_path(0)
    return path.exists() and any(event.steps_done >= step for event in events_in(path, Sync))


def train_and_kill(experiment: str, root: Path, environ: dict[str, str], *, step: int) -> RunFolder:
    """A run of the data below `root`, whose launcher is killed after a step: its ranks die with it, by the kernel."""
    (root / "experiment.yaml").write_text(experiment)
    shared = ("--dataset-root", str(root), "--logs-root", str(root / "logs"))
    command = graphmill_command("train", str(root / "experiment.yaml"), *shared, "--run-id", "killed")
    folder, give_up = RunFolder(root / "logs" / "killed"), time.monotonic() + HANG_S
    with (root / "said").open("wb") as said:
        launcher = subprocess.Popen(command, env=environ, cwd=root, stdout=said, stderr=said)
        while not has_done(folder, step):
            assert launcher.poll() is None, (root / "said").read_text()
            assert time.monotonic() < give_up
            time.sleep(0.002)
        launcher.kill()
        assert launcher.wait() == -signal.SIGKILL
    assert folder.read_outcome() is None
    return folder


def resume_with(folder: RunFolder, environ: dict[str, str], *words: str) -> str:
    """Continue it to its end. Returns what was printed."""
    command = graphmill_command("train", "--resume", str(folder.path), *words)
    root = folder.path.parents[1]
    done = subprocess.run(command, env=environ, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
