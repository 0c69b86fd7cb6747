"""Pipelines of real runs: order, handing over of weights, refusals, kills."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from command_line import own_messages, run_here
from other_tasks import dies_before

from graphmill.cluster.launch.evaluation_sets import evaluate_on_all, read_evaluations
from graphmill.cluster.launch.pipeline import Stages
from graphmill.record.find_weights import weights_of
from graphmill.record.run_folder import RunFolder
from graphmill.spec.pipeline import load_pipeline

pytestmark = pytest.mark.distributed

BASE = {
    "dataset": {"name": "cora"},
    "model": {"hidden_channels": 8},
    "train": {
        "ranks": 1, "threads": 1, "device": "cpu", "batch_size": 20, "epochs": 3, "num_neighbors": [3, 3],
        "baselines": False, "checkpoint": {"every_steps": 2},
    },
}  # fmt: skip
STAGES = [
    {"name": "few", "set": {"train.num_neighbors": [2, 1]}},
    {"name": "many", "set": {"train.optimizer.lr": 0.02}, "init_from": {"stage": "few"}},
]


class Pipeline:
    """One file and one logs root, used through the command line."""

    def __init__(self, folder: Path, environ: dict[str, str], data_root: Path) -> None:
        self.file, self.logs = folder / "p.yaml", folder / "logs"
        self.environ, self.data_root = environ, data_root
        self.write(STAGES)

    def write(self, stages: list[dict], **keys) -> None:
        self.file.parent.mkdir(exist_ok=True, parents=True)
        self.file.write_text(yaml.safe_dump({"name": "p", "experiment": BASE, "stages": stages, **keys}))

    def words(self, *words: str) -> list[str]:
        data = [] if words[0] == "list" else ["--dataset-root", str(self.data_root)]
        return ["pipeline", words[0], str(self.file), *words[1:], "--logs-root", str(self.logs), *data]

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "graphmill.cli", *self.words(*words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environ, stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def call(self, *words: str) -> tuple[int, str, str]:
        """In this process."""
        with patch.dict(os.environ, self.environ), own_messages():
            done = run_here(*self.words(*words))
        return done.code, done.out, done.err

    def run(self, *words: str) -> None:
        code, out, err = self.call("run", *words)
        assert code == 0, out + err

    def watch(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "graphmill.cli", "watch", str(self.logs / "p"), "--interval", "1"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self.environ, stdout=pipe, stderr=pipe, text=True)

    def stage(self, name: str) -> RunFolder:
        return RunFolder(self.logs / "p" / name)

    def weights(self) -> dict[tuple[str, str], str]:
        """Checksums of names, shapes and values."""
        found = {}
        for stage in STAGES:
            for which in ("best", "last"):
                file = weights_of(self.stage(stage["name"]), which, lambda *_: pytest.fail("damaged"))
                found[stage["name"], which] = file.checked()
        return found

    def attempts(self) -> list[int]:
        return [len(self.stage(stage["name"]).attempts()) for stage in STAGES]


@pytest.fixture
def pipeline(tmp_path, environ, data_root):
    return Pipeline(tmp_path, environ, data_root)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, environ, data_root):
    whole = Pipeline(tmp_path_factory.mktemp("undisturbed"), environ, data_root)
    whole.write(STAGES, evaluate_on="all")
    whole.run()
    return whole


def test_the_second_stage_begins_with_the_best_weights_of_the_first(undisturbed):
    asked = undisturbed.stage("many").read_plan().init_from
    assert asked.checksum == undisturbed.weights()["few", "best"]
    assert asked.source == str(undisturbed.stage("few").path)
    assert undisturbed.attempts() == [1, 1]


def test_every_stage_is_evaluated_on_the_data_of_all(undisturbed):
    rows = read_evaluations(undisturbed.logs / "p" / "evaluations.csv")
    assert {(row.stage, row.set) for row in rows} == {
        (one, other) for one in ("few", "many") for other in ("few", "many")
    }
    for stage in ("few", "many"):
        best = undisturbed.stage(stage).read_outcome().best
        (own,) = (row for row in rows if (row.stage, row.set, row.measure) == (stage, stage, "micro_f1"))
        assert (own.value, own.epoch) == (best["micro_f1"], best["epoch"])


@pytest.mark.slow
def test_a_stage_that_was_trained_again_is_evaluated_again(undisturbed, environ, monkeypatch):
    """The file holds what its former weights were worth."""
    monkeypatch.setenv("PYTHONPATH", environ["PYTHONPATH"])  # of the interpreter that evaluates
    path, best = undisturbed.logs / "p" / "evaluations.csv", undisturbed.weights()["few", "best"]
    before = read_evaluations(path)
    path.write_text(path.read_text().replace(best, "0" * len(best)))
    pipeline = load_pipeline(undisturbed.file)
    evaluate_on_all(Stages(pipeline, undisturbed.logs), pipeline.stage("few"), plan_of=lambda _: pytest.fail("begun"))
    keys = [
        sorted((row.stage, row.weights, row.set, row.measure) for row in rows)
        for rows in (before, read_evaluations(path))
    ]
    assert keys[0] == keys[1]


def test_what_is_done_is_not_run_again_and_a_list_changes_nothing(undisturbed):
    before = {path: path.stat().st_mtime_ns for path in undisturbed.logs.rglob("*")}
    undisturbed.run()
    code, out, _ = undisturbed.call("list", "--json")
    assert code == 0
    stages = json.loads(out)["stages"]
    assert [(stage["stage"], stage["status"], stage["epochs"]) for stage in stages] == [
        ("few", "done", 3),
        ("many", "done", 3),
    ]
    assert undisturbed.attempts() == [1, 1]
    assert {path: path.stat().st_mtime_ns for path in undisturbed.logs.rglob("*")} == before


def test_a_changed_definition_is_refused_with_the_difference(undisturbed, tmp_path, environ, data_root):
    changed = Pipeline(tmp_path, environ, data_root)
    changed.logs = undisturbed.logs
    first = {**STAGES[0], "set": {"train.num_neighbors": [2, 2]}}
    changed.write([first, STAGES[1]])
    code, _, err = changed.call("run")
    assert code == 2
    assert all(part in err for part in ("few", "num_neighbors", "[2, 1]", "[2, 2]")), err
    changed.write([STAGES[0], {**STAGES[1], "init_from": {"stage": "few", "exclude": ["*bias*"]}}])
    code, _, err = changed.call("run")
    assert code == 2
    assert all(part in err for part in ("many", "init_from.exclude")), err
    assert undisturbed.attempts() == [1, 1]


@pytest.mark.slow
def test_a_failed_stage_stops_what_depends_on_it_and_nothing_else(pipeline):
    (pipeline.file.parent / "fragile.py").write_text(
        "from torch import nn\n\n\nclass Fragile(nn.Linear):\n"
        "    def __init__(self, in_channels, out_channels):\n        super().__init__(in_channels, out_channels)\n\n"
        "    def forward(self, x, edge_index):\n"
        "        assert len(x) < 10, 'more nodes than the made-up batch has'\n        return super().forward(x)\n"
    )
    pipeline.environ = {**pipeline.environ, "PYTHONPATH": f"{pipeline.file.parent}:{pipeline.environ['PYTHONPATH']}"}
    broken = {"name": "few", "set": {"model": {"kind": "custom", "target": "fragile.Fragile"}}}
    pipeline.write([broken, STAGES[1], {"name": "other", "set": {"train.epochs": 1}}])
    code, _, err = pipeline.call("run")
    assert code == 1, err
    assert "many: not run" in err
    assert not pipeline.stage("many").path.exists()
    assert pipeline.stage("other").read_outcome().status == "done"


@pytest.mark.slow
def test_a_stage_whose_model_does_not_fit_is_told_before_any_runs(pipeline):
    broken = {"name": "few", "set": {"model": {"kind": "custom", "target": "no.such.Model"}}}
    pipeline.write([STAGES[0] | {"name": "first"}, broken])
    code, _, err = pipeline.call("run")
    assert code == 2
    assert "stage few" in err or "no.such" in err
    assert not pipeline.logs.exists()


def test_stages_may_be_chosen_and_a_dry_run_changes_nothing(pipeline):
    code, out, _ = pipeline.call("run", "--dry-run")
    assert code == 0
    assert "many" in out
    assert not pipeline.logs.exists()
    code, _, err = pipeline.call("run", "--stages", "many")
    assert code == 1
    assert "few" in err
    assert not pipeline.logs.exists()


@pytest.mark.slow
def test_a_second_run_names_the_first_and_changes_nothing_and_both_stages_are_watched(pipeline):
    longer = [{**stage, "set": {**stage["set"], "train.epochs": 40}} for stage in STAGES]
    pipeline.write(longer)
    first = pipeline.start("run")
    wait_for(lambda: any(pipeline.stage("few").checkpoints_dir.glob("step_*/manifest.json")), first)
    watching = pipeline.watch()
    record = pipeline.logs / "p" / "pipeline.json"
    before = record.stat().st_mtime_ns
    code, _, err = pipeline.call("run")
    assert code == 2, err
    assert f"process {first.pid} on" in err
    assert (record.stat().st_mtime_ns, pipeline.attempts()) == (before, [1, 0])
    out, err = watching.communicate()
    assert watching.returncode == 0, out + err
    assert first.wait() == 0
    states = [tuple(line.split()[1:3]) for line in out.splitlines()]
    assert {("p/few", "running"), ("p/many", "waiting"), ("p/many", "running"), ("p/many", "done")} <= set(states), out
    assert pipeline.attempts() == [1, 1]


def test_killed_within_a_stage_and_while_weights_are_handed_over(pipeline, undisturbed):
    pipeline.environ, environ = dies_before(6, pipeline.environ), pipeline.environ
    dies = pipeline.start("run")
    out, err = dies.communicate()
    assert dies.returncode == -signal.SIGKILL, out + err
    assert pipeline.attempts() == [1, 0]
    assert any(pipeline.stage("few").checkpoints_dir.glob("step_*/manifest.json"))
    pipeline.environ = environ
    pipeline.run("--stages", "few")
    assert pipeline.attempts() == [2, 0]
    leave_half_handed_over(pipeline)
    pipeline.run()
    assert pipeline.weights() == undisturbed.weights()
    assert pipeline.attempts() == [2, 1]


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path, environ, data_root, undisturbed):
    dice, kills = random.Random(9), 0
    for number in range(100):
        pipeline = Pipeline(tmp_path / str(number), environ, data_root)
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            finished = [stage["name"] for stage in STAGES if is_done(pipeline.stage(stage["name"]))]
            before = pipeline.attempts()
            child = pipeline.start("run")
            kill_after_s = dice.uniform(0, 25) if kills < 20 else 600
            try:
                code = child.wait(kill_after_s)
            except subprocess.TimeoutExpired:
                code, kills = kill(child), kills + 1
            after = pipeline.attempts()
            for stage, one, other in zip(STAGES, before, after, strict=True):
                assert stage["name"] not in finished or one == other, "a stage that is done is not run again"
        assert code == 0, child.communicate()
        assert pipeline.weights() == undisturbed.weights()
        if kills >= 20:
            return


def is_done(folder: RunFolder) -> bool:
    outcome = folder.read_outcome() if folder.plan_path.exists() else None
    return outcome is not None and outcome.status == "done"


def leave_half_handed_over(pipeline: Pipeline) -> None:
    """What a launcher leaves that is killed between the copy of the weights and the plan."""
    folder = pipeline.stage("many").path
    folder.mkdir(parents=True)
    (folder / "initial_weights.safetensors").write_bytes(b"of an earlier try")
    (folder / ".initial_weights.safetensors.host@1.tmp").write_bytes(b"half")


def wait_for(condition, child: subprocess.Popen[str]) -> None:
    while not condition():
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)


def kill(child: subprocess.Popen[str]) -> int:
    os.killpg(child.pid, signal.SIGKILL)
    return child.wait()
