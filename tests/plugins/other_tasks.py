"""Small data of the tasks besides nodes, and a run of `graphmill train` that is killed with all its ranks."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml
from command_line import run_in

from graphmill.record.run_folder import RunFolder
from graphmill.spec.load import inline_experiment
from graphmill.spec.plan import Plan
from graphmill.tasks.graph_classification.data.prepare import GENERATED, prepare_requested
from graphmill.tasks.graph_classification.page import GraphSetPrepareOptions
from graphmill.tasks.intrusion.data.prepare import GENERATED as CAPTURES
from graphmill.tasks.intrusion.data.prepare import prepare_requested as prepare_captures
from graphmill.tasks.intrusion.page import CapturePrepareOptions
from graphmill.tasks.link_prediction.data.prepare import prepare_requested as prepare_links
from graphmill.tasks.link_prediction.page.data import LinkPrepareOptions
from graphmill.tasks.node_regression.data.prepare import prepare_requested as prepare_values
from graphmill.tasks.node_regression.page.data import ValuesPrepareOptions
from graphmill.tasks.planning import plan_experiment
from graphmill.tasks.stores import Preparation
from graphmill.tasks.traffic.data.prepare import prepare_traffic

LINKS: Final = "synthetic/nearest"
DIES_BEFORE: Final = Path(__file__).parent / "dies_before"


def make_graphs(root: Path) -> None:
    prepare_requested(Preparation(GENERATED, root, GraphSetPrepareOptions(num_graphs=455)))


def make_series(root: Path) -> None:
    prepare_traffic("synthetic/traffic", root=root, options={"num_sensors": 6, "num_steps": 400})


def make_captures(root: Path) -> None:
    prepare_captures(Preparation(CAPTURES, root, CapturePrepareOptions()))


def make_links(root: Path) -> None:
    prepare_links(Preparation(LINKS, root, LinkPrepareOptions(num_nodes=120, neighbours=4)))


def make_links_in_parts(root: Path) -> None:
    make_links(root)
    words = ("--num-parts", "2", "--method", "ldg", "--dataset-root", str(root))
    run_in(root, "partition", LINKS, *words)


def make_values(root: Path) -> None:
    prepare_values(Preparation("synthetic/values", root, ValuesPrepareOptions(num_nodes=400, targets=2)))


def graphmill_command(*words: str) -> list[str]:
    return [sys.executable, "-m", "graphmill.cli", *words]


def plan_of_task(experiment: str, root: Path) -> Plan:
    """Of an experiment in YAML, on the data below `root`; baselines, which take longer than it does, are not scored."""
    raw = yaml.safe_load(experiment)
    raw["train"]["baselines"] = False
    return plan_experiment(inline_experiment(raw, "test"), dataset_root=root, run_id="killed")


def killed_by_rank(zygote, experiment: str, root: Path, *, step: int) -> RunFolder:
    """As `train_and_kill`, without a launcher: rank 0 kills itself before that checkpoint, and the others follow."""
    folder = RunFolder.create(plan_of_task(experiment, root), root / "logs")
    folder.note_provenance(["test"])
    pids = zygote.start(folder, resume=False, dies=(0, f"step {step}"))
    assert zygote.wait(pids, patience_s=0)[0] == -signal.SIGKILL, zygote.said(folder)
    assert folder.read_outcome() is None
    return folder


def dies_before(step: int, environ: dict[str, str]) -> dict[str, str]:
    """The environment of a launcher that is killed before its first checkpoint at or past a step."""
    path = os.pathsep.join((str(DIES_BEFORE), environ["PYTHONPATH"]))
    return {**environ, "PYTHONPATH": path, "DIES_BEFORE_STEP": str(step)}


def train_and_kill(experiment: str, root: Path, environ: dict[str, str], *, step: int) -> RunFolder:
    """A run of the data below `root`, whose launcher is killed before its first checkpoint at or past a step.

    Its ranks die with it, by the kernel.
    """
    (root / "experiment.yaml").write_text(experiment)
    shared = ("--dataset-root", str(root), "--logs-root", str(root / "logs"))
    command = graphmill_command("train", str(root / "experiment.yaml"), *shared, "--run-id", "killed")
    dying = dies_before(step, environ)
    done = subprocess.run(command, env=dying, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
    folder = RunFolder(root / "logs" / "killed")
    assert folder.read_outcome() is None
    return folder


def resume_with(folder: RunFolder, environ: dict[str, str], *words: str) -> str:
    """Continue it to its end. Returns what was printed."""
    command = graphmill_command("train", "--resume", str(folder.path), *words)
    root = folder.path.parents[1]
    done = subprocess.run(command, env=environ, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
