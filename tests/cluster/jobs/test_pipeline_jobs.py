"""Pipelines on a real Slurm: stages packed into jobs, chained, cancelled, killed; the weights of `pipeline run`."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphmill.record.events import Start, Sync, events_in
from graphmill.record.find_weights import weights_of
from graphmill.record.run_folder import RunFolder
from graphmill.tasks.node_classification.data.prepare import prepare

pytestmark = pytest.mark.slow

EXPERIMENT = {
    "task": {"kind": "node_classification"},
    "dataset": {"name": "synthetic/sbm"},
    "model": {"hidden_channels": 16},
    "train": {
        "ranks": 1, "threads": 1, "device": "cpu", "batch_size": 20, "num_neighbors": [5, 5],
        "checkpoint": {"every_epochs": 0, "every_steps": 40}, "evaluate_every_epochs": 10,
    },
    "slurm": {"site": "devcluster"},
}  # fmt: skip
NO_RANK = """
import os

from torch import nn

if "SLURM_PROCID" in os.environ or "RANK" in os.environ:
    import absent_where_ranks_run


class Model(nn.Linear):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)

    def forward(self, x, edge_index):
        return super().forward(x)
"""
"""A model that can be tried where it is submitted, and cannot be loaded where it is trained."""
LONG_S = 600.0  # for a machine that others use as well


def stages(epochs: int) -> list[dict[str, Any]]:
    return [
        {"name": "few", "set": {"train.num_neighbors": [2, 1], "train.epochs": 5}},
        {"name": "many", "set": {"train.epochs": epochs}, "init_from": {"stage": "few"}},
    ]


class Pipeline:
    """One pipeline, used through the command line."""

    def __init__(self, folder: Path, data: Path, listed: list[dict[str, Any]], **keys: Any) -> None:
        self.file, self.logs, self.data = folder / "p.yaml", folder / "logs", data
        folder.mkdir(parents=True, exist_ok=True)
        self.write(listed, **keys)

    def write(self, listed: list[dict[str, Any]], **keys: Any) -> None:
        self.names = [stage["name"] for stage in listed]
        text = yaml.safe_dump({"name": "p", "experiment": EXPERIMENT, "stages": listed, **keys})
        self.file.write_text(text)

    def start(self, verb: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "graphmill.cli", "pipeline", verb, str(self.file), *words]
        command += ["--logs-root", str(self.logs), *([] if verb == "list" else ["--dataset-root", str(self.data)])]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def call(self, verb: str, *words: str) -> tuple[int, str, str]:
        child = self.start(verb, *words)
        out, err = child.communicate()
        return child.returncode, out, err

    def json(self, verb: str, *words: str) -> dict[str, Any]:
        code, out, err = self.call(verb, *words, "--json")
        assert code == 0, out + err
        return json.loads(out)

    def stage(self, name: str) -> RunFolder:
        return RunFolder(self.logs / "p" / name)

    def is_done(self, name: str) -> bool:
        folder = self.stage(name)
        return folder.plan_path.exists() and folder.is_done()

    def attempts(self) -> list[int]:
        return [len(self.stage(name).attempts()) for name in self.names]

    def weights(self) -> dict[tuple[str, str], str]:
        """Checksums of names, shapes and values."""
        found = {}
        for name in self.names:
            for which in ("best", "last"):
                file = weights_of(self.stage(name), which, lambda *_: pytest.fail("damaged"))
                found[name, which] = file.checked()
        return found

    def watched(self) -> dict[str, str]:
        """Details by stage."""
        command = [sys.executable, "-m", "graphmill.cli", "watch", str(self.logs / "p"), "--once", "--json"]
        out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
        return {view["run"]: view["detail"] for view in json.loads(out)["runs"]}

    def log(self) -> str:
        return "\n".join(path.read_text() for path in sorted((self.logs / "p").glob("slurm-*.out")))


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("data")
    prepare("synthetic/sbm", root=root, options={"num_nodes": 1500, "num_edges": 6000, "features": 16})
    return root


def wait_for_chain(slurm) -> None:
    slurm.wait_until(lambda: not slurm.call("squeue", "--noheader"), "the chain to end", LONG_S)


def fingerprint(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.lstat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(root.rglob("*"))
    }


def test_a_stage_that_spans_jobs(slurm, tmp_path, data):
    pipeline = Pipeline(tmp_path, data, stages(100), evaluate_on="all")
    cost = pipeline.json("plan")["stages"][1]["cost"]
    minutes = math.ceil((cost["start_s"] + cost["end_s"] + 20) / 60)  # 1, unless others make this machine slow
    limit = ("--time-limit", str(minutes))
    # More than one job can do, even if the machine is half as fast again by then: each command below measures anew.
    epochs = math.ceil(1.5 * 100 * 60 * minutes / cost["work_s"]["low"])
    pipeline.write(stages(epochs), evaluate_on="all")
    before = fingerprint(tmp_path)
    shown = pipeline.json("submit", *limit, "--dry-run")["jobs"]
    assert fingerprint(tmp_path) == before
    assert all(job["time_s"] <= 60 * minutes for job in shown)
    assert [job["hands_over"] for job in shown if "many" in job["stages"]][:1] == [True]

    submitted = pipeline.json("submit", *limit)["jobs"]
    assert sum("many" in job["stages"] for job in submitted) >= 2, "this machine is much faster than at first"
    code, _, err = pipeline.call("submit", *limit)
    assert code == 2, "while jobs of it wait"
    wait_for_chain(slurm)
    assert all(pipeline.is_done(name) for name in pipeline.names), pipeline.log()
    jobs = [attempt.job_id for attempt in pipeline.stage("many").attempts()]
    assert len(set(jobs)) >= 2, pipeline.log()
    assert set(jobs) <= {job["job_id"] for job in submitted}
    assert pipeline.attempts()[0] == 1
    assert steps_done_twice(pipeline.stage("many")) == 0, "each job begins where the one before it has saved"

    done = fingerprint(pipeline.logs)
    code, out, _ = pipeline.call("submit", *limit)
    assert (code, fingerprint(pipeline.logs)) == (0, done), "what is done is not run again"
    pipeline.write([{**stages(epochs)[0], "set": {"train.epochs": 7}}, stages(epochs)[1]], evaluate_on="all")
    code, _, err = pipeline.call("submit", *limit)
    assert code == 2
    assert all(part in err for part in ("few", "num_neighbors")), err
    assert fingerprint(pipeline.logs) == done

    alone = Pipeline(tmp_path / "alone", data, stages(epochs), evaluate_on="all")
    code, out, err = alone.call("run")
    assert code == 0, out + err
    assert pipeline.weights() == alone.weights()
    rows = [(folder / "evaluations.csv").read_text() for folder in (pipeline.logs / "p", alone.logs / "p")]
    assert rows[0] == rows[1]


def steps_done_twice(folder: RunFolder) -> int:
    events = events_in(folder.events_path(0))
    starts = [event for event in events if isinstance(event, Start)]
    found = 0
    for start in starts[1:]:
        reached = max(event.steps_done for event in events if isinstance(event, Sync) and event.time < start.time)
        found += reached - start.steps_done
    return found


def test_a_failed_stage_stops_what_depends_on_it_and_nothing_else(slurm, tmp_path, data, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "no_rank.py").write_text(NO_RANK)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'code'}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    listed = stages(3)
    listed[0]["set"] = {"model": {"kind": "custom", "target": "no_rank.Model"}, "train.epochs": 1}
    listed.append({"name": "other", "set": {"train.epochs": 1}})
    pipeline = Pipeline(tmp_path, data, listed)
    jobs = pipeline.json("submit", "--trial", "0", "--time-limit", "5")["jobs"]
    assert [job["stages"] for job in jobs] == [["few"], ["many"], ["other"]], "not measured, so each by itself"
    wait_for_chain(slurm)
    assert [slurm.state(job["job_id"]) for job in jobs] == ["FAILED", "FAILED", "COMPLETED"]
    assert not pipeline.stage("many").path.exists()
    assert pipeline.is_done("other")
    assert pipeline.attempts()[0] == 1, "a later job of the chain does not try again"
    listed_now = {stage["stage"]: stage for stage in pipeline.json("list")["stages"]}
    assert listed_now["many"]["waits_for"] == ["few"]
    assert pipeline.watched()["p/many"] == "not run: few failed (bad_request)"
    assert pipeline.call("run")[0] == 1, "the same, here"
    assert pipeline.attempts()[0] == 2
    assert pipeline.watched()["p/many"] == "not run: few failed (bad_request)"
    again = pipeline.json("submit", "--trial", "0", "--time-limit", "5", "--stages", "few")["jobs"]
    assert [job["stages"] for job in again] == [["few"]]
    code, _, err = pipeline.call("run")
    assert code == 2
    assert again[0]["job_id"] in err
    wait_for_chain(slurm)
    assert pipeline.attempts()[0] == 3


def test_a_stage_that_was_not_asked_for_needs_no_data(slurm, tmp_path, data):
    listed = [*stages(2), {"name": "absent", "set": {"dataset.name": "none"}, "init_from": {"stage": "many"}}]
    pipeline = Pipeline(tmp_path, data, listed, evaluate_on="all")
    code, _, err = pipeline.call("submit", "--trial", "0", "--time-limit", "5")
    assert code == 2
    assert "stage absent: no dataset 'none'" in err
    jobs = pipeline.json("submit", "--trial", "0", "--time-limit", "5", "--stages", "few", "many")["jobs"]
    wait_for_chain(slurm)
    assert [slurm.state(job["job_id"]) for job in jobs] == ["COMPLETED"] * len(jobs), pipeline.log()
    assert all(pipeline.is_done(name) for name in ("few", "many"))
    rows = (pipeline.logs / "p" / "evaluations.csv").read_text().splitlines()[1:]
    assert {row.split(",")[3] for row in rows} == {"few", "many"}
    assert "many is not evaluated on the data of absent: no dataset 'none'" in pipeline.log()
    assert pipeline.watched()["p/absent"] == "never started"


def test_a_stopped_pipeline_stays_stopped_until_it_is_submitted_again(slurm, tmp_path, data):
    pipeline = Pipeline(tmp_path, data, stages(400))
    pipeline.json("submit", "--trial", "0", "--time-limit", "5")
    slurm.wait_until(lambda: any(pipeline.stage("few").checkpoints_dir.glob("step_*/manifest.json")), "steps", LONG_S)
    command = [sys.executable, "-m", "graphmill.cli", "stop", str(pipeline.logs / "p")]
    stopped = subprocess.run(command, capture_output=True, text=True, check=False)
    assert stopped.returncode == 0, stopped.stderr
    wait_for_chain(slurm)
    assert not pipeline.is_done("many")
    pipeline.write(stages(400))
    pipeline.json("submit", "--trial", "0", "--time-limit", "5")
    wait_for_chain(slurm)
    assert pipeline.is_done("many"), pipeline.log()
