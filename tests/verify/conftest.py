"""One real run, trained once by two real ranks; every test gets a copy to damage."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from graphmill.cluster.launch.run import start_run
from graphmill.record.checksums import renew_checksums, seal_of
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.sources.generate import generate
from graphmill.tasks.node_classification.data.store import write_store
from graphmill.tasks.node_classification.page import NodeClassificationExperiment
from graphmill.tasks.planning import plan_experiment
from graphmill.verify.check import Check
from graphmill.verify.run import verify_run

SOURCE = str(Path(__file__).parents[2] / "src")


@dataclass(frozen=True)
class Copy:
    """A copy of a run, and ways to damage it."""

    folder: RunFolder

    @property
    def path(self) -> Path:
        return self.folder.path

    def edit(self, row: int, **cells: str) -> None:
        """Change cells of metrics.csv."""
        with self.rows() as rows:
            rows[row].update(cells)

    def rows(self) -> "Rows":
        """The rows of metrics.csv as a list to change."""
        return Rows(self.folder.metrics_path)

    def json(self, path: Path, **changes: Any) -> None:
        """Change keys of a JSON file; a dotted key goes deeper."""
        value = json.loads(path.read_text())
        for name, new in changes.items():
            *parents, last = name.split("__")
            inner = value
            for parent in parents:
                inner = inner[parent]
            inner[last] = new
        path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")

    def events(self, rank: int, change: Callable[[list[dict[str, Any]]], None]) -> None:
        """Change the events of a rank, as a list."""
        path = self.folder.events_path(rank)
        known = [json.loads(line) for line in path.read_text().splitlines()]
        change(known)
        path.write_text("".join(json.dumps(event, ensure_ascii=False) + "\n" for event in known))

    def event(self, rank: int, kind: str, number: int = -1, **changes: Any) -> None:
        """Change the n-th event of a kind."""
        self.events(rank, lambda known: [e for e in known if e["kind"] == kind][number].update(changes))

    def checkpoint(self, number: int = -1) -> Path:
        return sorted(self.folder.checkpoints_dir.iterdir())[number]

    def seal_again(self) -> None:
        """What somebody would do who knows of the seal: the other witnesses are left."""
        for rank in range(len(list(self.folder.events_dir.iterdir()))):
            path = self.folder.events_path(rank)
            *before, last = path.read_text().splitlines(keepends=True)
            path.write_text("".join(before))
            finish = {**json.loads(last), "seal": seal_of(self.folder, rank)}
            path.write_text("".join(before) + json.dumps(finish, ensure_ascii=False) + "\n")

    def failures(self) -> dict[str, str]:
        """Failed checks: `group/name` → why."""
        return {f"{check.group}/{check.name}": check.detail for check in self.checks() if check.result == "fail"}

    def checks(self) -> list[Check]:
        return verify_run(self.folder)


class Rows:
    """Reads a CSV, writes it back when the block ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: list[dict[str, str]] = []

    def __enter__(self) -> list[dict[str, str]]:
        with self.path.open(newline="") as file:
            reader = csv.DictReader(file)
            self.known, self.header = list(reader), reader.fieldnames
        return self.known

    def __exit__(self, *_: object) -> None:
        with self.path.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.header, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.known)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFolder]:
    """`mine`: 3 epochs of 2 ranks on data that counts as real; `other`: the same with another seed."""
    root = tmp_path_factory.mktemp("verify")
    options = {"num_nodes": 120, "num_edges": 700, "features": 6, "communities": 3, "signal": 1.0}
    raw = generate("sbm", options, "people")
    write_store(replace(raw, synthetic=False), root / "data" / "people")
    environ = dict(os.environ)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (SOURCE, environ.get("PYTHONPATH"))))
    try:
        for run_id, seed in (("mine", 1), ("other", 2)):
            train = {
                "ranks": 2, "epochs": 3, "batch_size": 10, "num_neighbors": [3, 3], "threads": 1, "seed": seed,
                "sync": {"scheme": "deferred_allreduce", "every": 2}, "checkpoint": {"keep_every_epochs": 1},
            }  # fmt: skip
            model = {"kind": "graphsage", "hidden_channels": 8, "num_layers": 2}
            experiment = NodeClassificationExperiment.model_validate(
                {"dataset": {"name": "people"}, "model": model, "train": train}
            )
            plan = plan_experiment(experiment, dataset_root=root / "data", run_id=run_id)
            code = start_run(plan, logs_root=root / "logs")
            said = sorted((root / "logs" / run_id).glob("*.log"))
            assert code == 0, "\n".join(path.read_text() for path in said)
            _as_if_it_had_lasted(RunFolder(root / "logs" / run_id))
    finally:
        os.environ.clear()
        os.environ.update(environ)
    return {run_id: RunFolder.open(root / "logs" / run_id) for run_id in ("mine", "other")}


def _as_if_it_had_lasted(folder: RunFolder) -> None:
    """The end of the run saw what a monitor wrote: its own may have begun to write after the ranks."""
    path = folder.monitor_path("node7")
    path.parent.mkdir(exist_ok=True)
    path.write_text("time,subject\n1.0,host\n2.0,host\n3.0,host\n")
    renew_checksums(folder, [path.relative_to(folder.path).as_posix()])


@pytest.fixture
def run(trained: dict[str, RunFolder], tmp_path: Path) -> Copy:
    """A copy of `mine`."""
    shutil.copytree(trained["mine"].path, tmp_path / "logs" / "mine")
    return Copy(RunFolder.open(tmp_path / "logs" / "mine"))


@pytest.fixture
def other(trained: dict[str, RunFolder], tmp_path: Path) -> RunFolder:
    """A copy of `other`: the same plan but for its seed and its name."""
    shutil.copytree(trained["other"].path, tmp_path / "logs" / "other")
    return RunFolder.open(tmp_path / "logs" / "other")
